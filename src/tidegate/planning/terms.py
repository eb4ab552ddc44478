"""What a plan starts from: tolerance, cold start, residency and prices; measured where data tells, else to be signed.

Must not know: files, arguments, how a plan is made.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.demand.document import DemandModel, Scope
from tidegate.demand.fit import fit
from tidegate.demand.known import tables_at
from tidegate.demand.tables import Tables
from tidegate.demand.tolerance import Basis, Tolerance
from tidegate.model.prices import ASSUMED_PRICES, Prices
from tidegate.model.units import HOUR_MS, MINUTE_MS, duration_text
from tidegate.planning.assumptions import Assumption, Unsigned
from tidegate.planning.jobs import PlanJobs
from tidegate.planning.side_by_side import side_by_side

#: What is assumed where nothing was measured: batch work may wait an hour, and a node is there after ten minutes.
ASSUMED_TOLERANCE_MS, ASSUMED_COLD_START_MS = HOUR_MS, 10 * MINUTE_MS


class Given(NamedTuple):
    """What somebody says; it comes before what was measured."""

    tolerance_ms: int | None = None
    cold_start_ms: int | None = None
    prices: Prices | None = None
    prices_from: str = ""  # the file


class Terms(NamedTuple):
    """What a plan starts from, and what of it must be signed."""

    tolerance_ms: int
    cold_start_ms: int
    prices: Prices
    prices_from: str
    unsigned: tuple[Unsigned, ...]


def settle_terms(model: DemandModel, given: Given) -> Terms:
    """Measured where the model tells, else assumed; what somebody says instead is assumed too."""
    unsigned: list[Unsigned] = []
    tolerance_ms = _tolerance(model, given, unsigned)
    cold_start_ms = _cold_start(model, given, unsigned)
    if model.residency is None:
        means = "GPUs that are asked for are taken to be used; a plan cannot lend what is held idle"
        unsigned.append(Unsigned(Assumption.RESIDENCY, "as-asked", means, "samples of GPU use, such as DCGM's"))
    if given.prices is None:
        means = "owned GPUs cost 1 an hour, booked ones 1.5, burst 2.5"
        unsigned.append(Unsigned(Assumption.PRICES, "1:1.5:2.5", means, "--prices FILE"))
    return Terms(
        tolerance_ms,
        cold_start_ms,
        given.prices or ASSUMED_PRICES,
        given.prices_from or "assumed",
        tuple(unsigned),
    )


def terms_at(tables: Tables, now_ms: int, given: Given, seed: int = 0) -> Terms:
    """What a plan would have started from at an earlier time: nothing after it is read."""
    return settle_terms(fit(tables_at(tables, now_ms), seed=seed, run_all=side_by_side), given)


def unsigned_runtimes(jobs: PlanJobs) -> tuple[Unsigned, ...]:
    """What must be signed where a plan rests on kinds of which no job has ended."""
    if not jobs.only_bounded:
        return ()
    means = (
        f"of {int(jobs.endless.sum()):,} jobs none of the kind has ended; how long they run is guessed from their ages"
    )
    return (Unsigned(Assumption.RUNTIMES, "as-drawn", means, "jobs of each kind that have ended"),)


def known_tolerance(model: DemandModel) -> Tolerance | None:
    """What batch work tolerates, as far as its waits tell."""
    group = model.group(Scope.KIND, "batch") or model.total()
    if group is None or group.tolerance is None or group.tolerance.basis is Basis.NONE:
        return None
    return group.tolerance


def _tolerance(model: DemandModel, given: Given, unsigned: list[Unsigned]) -> int:
    known = known_tolerance(model)
    if known is not None and known.tolerated is not None and given.tolerance_ms is None:
        return round(known.tolerated.value)
    assumed = ASSUMED_TOLERANCE_MS if given.tolerance_ms is None else given.tolerance_ms
    text = duration_text(assumed)
    means = f"batch work may wait {text}"
    unsigned.append(Unsigned(Assumption.TOLERANCE, text, means, "jobs with submission and start, or a declared wait"))
    return assumed


def _cold_start(model: DemandModel, given: Given, unsigned: list[Unsigned]) -> int:
    if model.cold_start is not None and given.cold_start_ms is None:
        return round(model.cold_start.window.value)
    assumed = ASSUMED_COLD_START_MS if given.cold_start_ms is None else given.cold_start_ms
    text = duration_text(assumed)
    means = f"capacity that is launched is there after {text}"
    unsigned.append(Unsigned(Assumption.COLD_START, text, means, "times of nodes, images and weights to start"))
    return assumed
