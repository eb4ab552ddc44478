"""The plan as a document: versioned, the same bytes for the same input, every number with its origin.

It has a list of classes of work: today batch. Inference, fleets, quotas and what-if get fields of their own.
"""

from __future__ import annotations

import msgspec

from tidegate.demand.tables import RowOrigin
from tidegate.demand.time_zone import Calendar

FORMAT = "tidegate.plan/5"


class PlanPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document: everything is written out, defaults too."""


class CountPart(PlanPart, frozen=True):
    """Jobs that cannot be replayed, or whose runtime is drawn."""

    why: str
    jobs: int


class FindingPart(PlanPart, frozen=True):
    """What is to be said about a source."""

    code: str
    source: str
    effect: str  # dropped, mended, told
    rows: int
    says: str


class OriginPart(PlanPart, frozen=True):
    """What the plan was made from."""

    sources: tuple[RowOrigin, ...]
    findings: tuple[FindingPart, ...]
    dropped_rows: int  # that could not be used
    unseen: tuple[tuple[int, int], ...]  # from, to: nothing was recorded, and no level is made from it
    sampled: bool  # from a demand model: jobs that it drew, and not those that it was made from
    jobs: int
    left_out: tuple[CountPart, ...]
    drawn: tuple[CountPart, ...]  # how long they run is not known, and drawn from the others
    from_ms: int
    to_ms: int
    calendar: Calendar  # whose clocks windows go by


class AnswerPart(PlanPart, frozen=True):
    """One of the four questions, as it was answered."""

    question: str
    grade: str  # measured, partial, assumed
    says: str
    lifted_by: str  # data that would make it measured; "" if it is


class SignaturePart(PlanPart, frozen=True):
    """An assumption that was signed."""

    name: str
    value: str
    instead_of: str  # data that would make it unnecessary


class PricesPart(PlanPart, frozen=True):
    """Money for a GPU-hour."""

    currency: str
    own: float
    window: float
    burst: float
    origin: str  # a file, or "assumed"


class TolerancePart(PlanPart, frozen=True):
    """How long work may wait."""

    wait_ms: int  # batch work that declares nothing
    interactive_ms: int | None  # interactive work that declares nothing; None: there is none
    declared_jobs: int  # that are held to what they declare themselves
    tightest_ms: int  # of those that may wait least: what burst must be there for
    share_milli: int  # of the jobs that must not wait longer
    order: str  # who goes first


class FloorPart(PlanPart, frozen=True):
    """The smallest constant capacity that holds the tolerance, by replay."""

    gpus: int
    low_gpus: int | None  # of the 90 % interval
    high_gpus: int | None
    blocks: int  # of time, that the interval comes from
    block_ms: int  # how long each is: as the demand's memory asks for
    no_interval: str  # why there is none; "" if there is one
    replays: int
    wait_ms: int


class WindowPart(PlanPart, frozen=True):
    """Hours of the week with one level."""

    name: str
    hours: tuple[tuple[int, int], ...]  # from, to; hours of the week
    gpus: int  # what is owned included
    booked_gpus: int


class BurstPart(PlanPart, frozen=True):
    """Capacity that is switched on."""

    ceiling_gpus: int
    patience_ms: int
    launch_ms: int
    linger_ms: int
    step_gpus: int


class EdgePart(PlanPart, frozen=True):
    """Where one kind of capacity ends: what one GPU more of it would cost and save in a week."""

    name: str
    gpus: int
    used_hours: float  # a week in which a GPU more would be used
    breaks_even_hours: float
    costs: float
    saves: float


class SizePart(PlanPart, frozen=True):
    """How jobs of a size waited."""

    size: str  # GPUs
    jobs: int
    wait_ms: int | None  # that the share of them did not exceed; None: some never start
    late_share: float
    counts: bool  # enough of them to be held to the tolerance on their own


class PatiencePart(PlanPart, frozen=True):
    """How jobs waited that may wait so long."""

    tolerates: str  # the longest wait of them
    jobs: int
    wait_ms: int | None  # that the share of them did not exceed; None: some never start
    late_share: float
    counts: bool  # enough of them to be held to the tolerance on their own


class WayPart(PlanPart, frozen=True):
    """A way to provide capacity, replayed."""

    name: str
    gpus: float  # on average, burst left out
    held_gpu_hours: float  # a week
    owned_gpu_hours: float
    burst_gpu_hours: float
    cost: float
    wait_ms: int | None  # that the share of jobs did not exceed; None: some never start
    late_share: float
    late_gpu_hours: float  # share of the GPU-hours that is late; one job counts for no more than may be late in all
    sizes: tuple[SizePart, ...]
    patience: tuple[PatiencePart, ...]
    holds: bool  # all of the jobs, those of each size and patience that counts, and the GPU-hours


class TwinPart(PlanPart, frozen=True):
    """What the engine said to what was counted."""

    jobs: int
    capacity_changes: int
    differing_starts: int


class WeekPart(PlanPart, frozen=True):
    """What was planned for a week of the trial."""

    from_ms: int
    own_gpus: int
    window_gpus: tuple[int, ...]
    ceiling_gpus: int


class TrialPart(PlanPart, frozen=True):
    """The plan on time that it has not seen."""

    from_ms: int
    to_ms: int
    jobs: int
    tolerance_ms: int  # as it was known when the trial began
    cold_start_ms: int  # as it was known when the trial began
    weeks: tuple[WeekPart, ...]
    used_gpu_hours: float  # no capacity holds less
    ways: tuple[WayPart, ...]  # totals of the trial
    ratio_to_clairvoyant: float | None  # None: one of the two breaks the tolerance, and is not compared
    saved_against_peak: float | None  # None: the plan breaks the tolerance
    says: tuple[str, ...]


class ClassPart(PlanPart, frozen=True):
    """The plan of a class of work."""

    kind: str
    tolerance: TolerancePart
    floor: FloorPart
    own_gpus: int
    windows: tuple[WindowPart, ...]
    burst: BurstPart | None
    edges: tuple[EdgePart, ...]
    ways: tuple[WayPart, ...]  # a week on average, on the time it was made from
    twin: TwinPart
    basis: str  # what the levels come from: split, level, floor, peak, bands
    holds: bool  # the tolerance, on the time it was made from
    says: tuple[str, ...]


class PlanDocument(PlanPart, frozen=True):
    """A plan."""

    format: str
    made_by: str
    seed: int
    origin: OriginPart
    answers: tuple[AnswerPart, ...]
    signatures: tuple[SignaturePart, ...]
    prices: PricesPart
    classes: tuple[ClassPart, ...]
    trial: TrialPart | None


def encode_plan(plan: PlanDocument) -> bytes:
    """The plan as JSON, indented: the same plan gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode_plan(data: bytes) -> PlanDocument:
    """The plan of JSON; a ValueError says what is wrong."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        said = found.get("format") if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"format: expected {FORMAT!r}, found {said!r}")
    try:
        return msgspec.convert(found, PlanDocument)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
