"""The inputs of a plan: tolerance, cold start, residency and prices; measured, or assumed and to be signed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from tidegate.config.prices import ASSUMED_PRICES, GpuPrices
from tidegate.demand.fit import fit
from tidegate.demand.model import DemandModel, GroupScope
from tidegate.demand.tables import Tables, tables_at
from tidegate.demand.tolerance import MeasuredTolerance, ToleranceBasis
from tidegate.model.errors import UserError
from tidegate.model.units import HOUR_MS, MINUTE_MS, duration_text
from tidegate.planning.plan_schema import SignaturePart
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.threads import side_by_side
from tidegate.planning.tolerance import WaitTolerance

#: What is assumed where nothing was measured: batch work may wait an hour, people five minutes, and a node is there
#: after ten minutes.
ASSUMED_TOLERANCE_MS, ASSUMED_INTERACTIVE_MS, ASSUMED_COLD_START_MS = HOUR_MS, 5 * MINUTE_MS, 10 * MINUTE_MS


class Assumption(StrEnum):
    """What can be assumed."""

    TOLERANCE = "tolerance"
    INTERACTIVE = "interactive"
    COLD_START = "cold-start"
    RESIDENCY = "residency"
    PRICES = "prices"
    RUNTIMES = "runtimes"


class Unsigned(NamedTuple):
    """An assumption that a plan needs and that is not signed."""

    name: Assumption
    value: str  # what would be assumed
    means: str  # what it says
    instead_of: str  # data that would make it unnecessary


class UnsignedAssumptionError(UserError):
    """A plan rests on assumptions that are not signed."""

    def __init__(self, missing: tuple[Unsigned, ...]) -> None:
        super().__init__(", ".join(each.name for each in missing))
        self.missing = missing


def sign(needed: Iterable[Unsigned], signed: dict[Assumption, str], *, all_of_them: bool) -> tuple[SignaturePart, ...]:
    """Signatures for what is needed; UnsignedPlan lists those that are missing."""
    needed = tuple(needed)
    missing = tuple(each for each in needed if each.name not in signed and not all_of_them)
    if missing:
        raise UnsignedAssumptionError(missing)
    return tuple(
        SignaturePart(name=each.name, value=signed.get(each.name) or each.value, instead_of=each.instead_of)
        for each in needed
    )


class Given(NamedTuple):
    """What the user gives; it comes before what was measured."""

    tolerance_ms: int | None = None
    interactive_ms: int | None = None
    cold_start_ms: int | None = None
    prices: GpuPrices | None = None
    prices_from: str = ""  # the file


class PlanInputs(NamedTuple):
    """What a plan starts from, and what of it must be signed."""

    tolerance_ms: int
    cold_start_ms: int
    prices: GpuPrices
    prices_from: str
    unsigned: tuple[Unsigned, ...]
    interactive_ms: int | None = None  # None: there is no interactive work
    as_declared: bool = True  # else the user gave the tolerance of batch work, whatever it declares

    @property
    def tolerance(self) -> WaitTolerance:
        """How long work may wait."""
        return WaitTolerance(self.tolerance_ms, interactive_ms=self.interactive_ms, as_declared=self.as_declared)


def settle_inputs(model: DemandModel, given: Given) -> PlanInputs:
    """Measured where the model has it, else assumed; what the user gives instead is assumed too."""
    unsigned: list[Unsigned] = []
    cold_start_ms = _cold_start(model, given, unsigned)
    tolerance_ms = _tolerance(model, given, cold_start_ms, unsigned)
    interactive_ms = _interactive(model, given, cold_start_ms, unsigned)
    if model.residency is None:
        means = "GPUs that are asked for are taken to be used; a plan cannot lend what is held idle"
        unsigned.append(Unsigned(Assumption.RESIDENCY, "as-asked", means, "samples of GPU use, such as DCGM's"))
    if given.prices is None:
        means = "owned GPUs cost 1 an hour, booked ones 1.5, burst 2.5"
        unsigned.append(Unsigned(Assumption.PRICES, "1:1.5:2.5", means, "--prices FILE"))
    return PlanInputs(
        tolerance_ms,
        cold_start_ms,
        given.prices or ASSUMED_PRICES,
        given.prices_from or "assumed",
        tuple(sorted(unsigned, key=lambda one: list(Assumption).index(one.name))),
        interactive_ms,
        as_declared=given.tolerance_ms is None,
    )


def inputs_at(tables: Tables, now_ms: int, given: Given, seed: int = 0) -> PlanInputs:
    """What a plan would have started from at an earlier time: nothing after it is read."""
    return settle_inputs(fit(tables_at(tables, now_ms), seed=seed, run_all=side_by_side), given)


def unsigned_runtimes(jobs: PlanJobs) -> tuple[Unsigned, ...]:
    """What must be signed where a plan rests on kinds of which no job has ended."""
    if not jobs.only_bounded:
        return ()
    means = (
        f"of {int(jobs.endless.sum()):,} jobs none of the kind has ended; how long they run is guessed from their ages"
    )
    return (Unsigned(Assumption.RUNTIMES, "as-drawn", means, "jobs of each kind that have ended"),)


def measured_wait_ms(known: MeasuredTolerance | None, cold_start_ms: int) -> int | None:
    """How long work may wait, as far as data tells.

    Waits that were accepted are a lower bound. One below the time that capacity takes to start says nothing: so short
    a wait is how long the scheduler takes, and burst could not keep it.
    """
    if known is None or known.tolerated is None:
        return None
    if known.basis is ToleranceBasis.ACCEPTED and known.tolerated.value < cold_start_ms:
        return None
    return round(known.tolerated.value)


def batch_patience(model: DemandModel) -> MeasuredTolerance | None:
    """What waits of batch work tell."""
    group = model.group(GroupScope.KIND, "batch") or model.total()
    return group.tolerance if group else None


def interactive_patience(model: DemandModel) -> tuple[bool, MeasuredTolerance | None]:
    """Whether people work interactively, and what their waits tell."""
    group = model.group(GroupScope.KIND, "interactive")
    return group is not None, group.tolerance if group else None


_DECLARED = "jobs with submission and start, or a declared wait"


def _tolerance(model: DemandModel, given: Given, cold_start_ms: int, unsigned: list[Unsigned]) -> int:
    known = batch_patience(model)
    measured = measured_wait_ms(known, cold_start_ms)
    if measured is not None and given.tolerance_ms is None:
        return measured
    assumed = ASSUMED_TOLERANCE_MS if given.tolerance_ms is None else given.tolerance_ms
    text = duration_text(assumed)
    means = f"batch work may wait {text}{_too_short(known, measured)}"
    unsigned.append(Unsigned(Assumption.TOLERANCE, text, means, _DECLARED))
    return assumed


def _too_short(known: MeasuredTolerance | None, measured: int | None) -> str:
    """That waits were seen, and why they are no tolerance."""
    if known is None or known.waited_p90 is None or known.basis is ToleranceBasis.DECLARED or measured is not None:
        return ""
    waited = duration_text(round(known.waited_p90.value))
    return f" (nine of ten started within {waited}: nobody was asked for patience that burst could use)"


def _interactive(model: DemandModel, given: Given, cold_start_ms: int, unsigned: list[Unsigned]) -> int | None:
    there, known = interactive_patience(model)
    if not there:
        return None
    measured = measured_wait_ms(known, cold_start_ms)
    if measured is not None and given.interactive_ms is None:
        return measured
    assumed = ASSUMED_INTERACTIVE_MS if given.interactive_ms is None else given.interactive_ms
    text = duration_text(assumed)
    unsigned.append(Unsigned(Assumption.INTERACTIVE, text, f"interactive work may wait {text}", _DECLARED))
    return assumed


def _cold_start(model: DemandModel, given: Given, unsigned: list[Unsigned]) -> int:
    if model.cold_start is not None and given.cold_start_ms is None:
        return round(model.cold_start.window.value)
    assumed = ASSUMED_COLD_START_MS if given.cold_start_ms is None else given.cold_start_ms
    text = duration_text(assumed)
    means = f"capacity that is launched is there after {text}"
    unsigned.append(Unsigned(Assumption.COLD_START, text, means, "times of nodes, images and weights to start"))
    return assumed
