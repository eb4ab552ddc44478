"""The demand model: a small, versioned document with the seven inputs, recipes for synthetic demand, and a forecast.

Keys stand in the order of the fields and numbers have six digits: the same demand gives the same bytes. A change of
what a field means raises VERSION.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tidegate.config.codec import decode
from tidegate.demand.arrivals import ArrivalStats
from tidegate.demand.bursts import Bursts, Ceiling
from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.durations import DurationSpread
from tidegate.demand.estimate import Number
from tidegate.demand.forecast_report import Outlook
from tidegate.demand.residency import Residency
from tidegate.demand.services import ServiceDemand
from tidegate.demand.synth.streams import JobStream
from tidegate.demand.tables import RowOrigin
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import Broken, MeasuredTolerance
from tidegate.model.problem import Problem, Report
from tidegate.model.struct import Spec
from tidegate.model.units import HOUR_MS

FORMAT = "tidegate.demand"
VERSION = 3


class GroupScope(StrEnum):
    """What a group is a group of."""

    TOTAL = "total"
    KIND = "kind"
    QUEUE = "queue"
    GPU = "gpu"


class Ground(Spec, frozen=True):
    """What the numbers of one table stand on."""

    table: str  # jobs, requests, use, capacity, starts
    start_ms: int
    end_ms: int
    rows: int
    tick_ms: int  # to which times were rounded, for the total; 0: not at all
    origins: tuple[RowOrigin, ...]
    dropped: int = 0  # rows of its sources that could not be used
    unseen: tuple[tuple[int, int], ...] = ()  # from, to: nothing was recorded, so that levels leave this time out
    from_empty: bool = False  # jobs that ran when the table begins are not in it: levels rise from 0
    runtimes: bool = True  # of jobs; else they are from submission to end, waits included: upper bounds

    @property
    def seen_hours(self) -> float:
        """How long it was seen, in hours."""
        return (self.end_ms - self.start_ms - sum(to_ms - from_ms for from_ms, to_ms in self.unseen)) / HOUR_MS


class DemandGroup(Spec, frozen=True):
    """Demand of one group: in all, of a kind, a queue or a GPU model."""

    scope: GroupScope
    name: str
    jobs: int
    gpu_hours: Number | None
    wanted: Levels | None  # GPUs that would be at work if nothing waited
    seen: Levels | None  # GPUs that were held
    waiting: Levels | None  # GPUs that were waited for: the depth of the queue
    broken: Broken | None  # where the depth breaks tolerance
    arrivals: ArrivalStats | None
    bursts: Bursts | None
    ceilings: tuple[Ceiling, ...]
    tolerance: MeasuredTolerance | None


class MixShare(Spec, frozen=True):
    """What part of the GPU-hours one kind of work asks for."""

    kind: str
    share: Number
    gpu_hours: Number
    week: tuple[float, ...]  # the share by hour of the week


class Stage(Spec, frozen=True):
    """How long a stage of starting takes."""

    stage: str
    p50: Number
    p90: Number


class ColdStart(Spec, frozen=True):
    """How long until capacity that is asked for can be used."""

    window: Number  # the medians of all stages, one after the other
    stages: tuple[Stage, ...]


class PriorityShare(Spec, frozen=True):
    """How much of the work has one priority."""

    priority: int
    jobs: int
    gpu_hours: float


class Fleet(Spec, frozen=True):
    """The GPUs of the cluster, as far as counters show them."""

    total: Levels | None
    free_p95: Number | None  # GPUs free at once for no more than a twentieth of the time
    largest_gang: float  # GPUs of the largest job
    free: Number | None = None  # GPUs free on average, from counters of running and total GPUs


class DemandModel(Spec, frozen=True):
    """All that is known about a demand."""

    format: str
    version: int
    calendar: Calendar
    seed: int
    grounds: tuple[Ground, ...]
    groups: tuple[DemandGroup, ...]
    durations: tuple[DurationSpread, ...]
    mix: tuple[MixShare, ...]
    residency: Residency | None
    services: tuple[ServiceDemand, ...]
    cold_start: ColdStart | None
    priorities: tuple[PriorityShare, ...]
    fleet: Fleet | None
    days: tuple[float, ...]  # relative load by day
    streams: tuple[JobStream, ...]
    outlooks: tuple[Outlook, ...]

    def total(self) -> DemandGroup | None:
        """The group of everything; None where no table tells GPUs."""
        return next((group for group in self.groups if group.scope is GroupScope.TOTAL), None)

    def group(self, scope: GroupScope, name: str) -> DemandGroup | None:
        """A group by its name."""
        return next((group for group in self.groups if group.scope is scope and group.name == name), None)


def encode(model: DemandModel) -> bytes:
    """The document's bytes: JSON with a line for each field and lists of numbers on one line."""
    return ("\n".join(_lines(msgspec.to_builtins(model), "")) + "\n").encode()


def _lines(value: Any, indent: str) -> list[str]:
    """A value as lines; what has no structure inside stays on one."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        parts = [(f"{_plain(key)}: ", item) for key, item in value.items()]
        opening, closing = "{", "}"
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict | list | tuple):
        parts = [("", item) for item in value]
        opening, closing = "[", "]"
    else:
        return [_plain(value)]
    if all(not isinstance(item, dict | list | tuple) for _, item in parts):
        return [_plain(value)]
    lines = [opening]
    for row, (key, item) in enumerate(parts):
        first, *rest = _lines(item, inner)
        lines += [f"{inner}{key}{first}", *rest]
        if row < len(parts) - 1:
            lines[-1] += ","
    return [*lines, indent + closing]


def _plain(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def read(text: bytes, report: Report) -> DemandModel | None:
    """Read a document; None if it is not one, and then the report says why."""
    try:
        data: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        report.add(Problem(path=(), found=f"not JSON: {error}", expected="a demand model"))
        return None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        report.add(
            Problem(path=("format",), found=repr(found), expected=f"'{FORMAT}'", hint="made by `tidegate preflight`")
        )
        return None
    if data.get("version") != VERSION:
        hint = "make it again from its sources with this version of Tidegate"
        report.add(Problem(path=("version",), found=repr(data.get("version")), expected=str(VERSION), hint=hint))
        return None
    return decode(data, DemandModel, report)
