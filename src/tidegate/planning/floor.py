"""The concurrency floor: the smallest constant capacity that holds the tolerance, found by replay.

Waits are not quite monotone in capacity: with one GPU more another gang may start first, and some job waits longer.
So the search looks around the result of the bisection. The floor is the smallest capacity above which none of the
capacities that were replayed breaks the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64
from tidegate.model.units import WHOLE_MILLI
from tidegate.planning.capacity import constant
from tidegate.planning.capacity_replay import CapacityReplayer, QueueOrder, ReplayOutcome, ReplaySpan
from tidegate.planning.concurrency import curve_of, mean_between, peak_milli
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import WaitTolerance
from tidegate.stats.blocks import Blocks, choose_blocks, unit_widths
from tidegate.stats.interval import LEAST_IN_TAIL, LEAST_PARTS, Interval, NoInterval, narrow, spread_of

#: How far around what was found is looked, as a share of it, and how many capacities at most.
_NEIGHBOURHOOD, _MOST_LOOKED = 0.04, 16


class Floor(NamedTuple):
    """The smallest capacity that holds the tolerance, and how sure that is."""

    gpus: int
    lowest_gpus: int  # below this, as far as was looked, nothing holds
    low_gpus: int | None  # of the interval, from floors of blocks of time; None: there is none
    high_gpus: int | None
    blocks: int
    block_ms: int
    none: NoInterval | None  # why there is no interval
    replays: int
    outcome: ReplayOutcome  # at the floor
    below: ReplayOutcome | None  # with one GPU less; None: the widest job does not fit then


def find_floor(replayer: CapacityReplayer, tolerance: WaitTolerance, seed: int) -> Floor:
    """The floor of all the judge's jobs, with an interval."""
    from_ms, to_ms = replayer.jobs.span_ms
    found = smallest(replayer, tolerance, ReplaySpan(*replayer.jobs.span_ms))
    blocks, floors = _block_floors(replayer, tolerance, found, seed)
    sure = blocks if isinstance(blocks, NoInterval) else _interval(found, floors, blocks)
    lowest, safe = _look_around(replayer, tolerance, found)
    outcome = replayer.replay(constant(safe * WHOLE_MILLI, from_ms))
    fits = (safe - 1) * WHOLE_MILLI >= replayer.jobs.widest_milli
    below = replayer.replay(constant((safe - 1) * WHOLE_MILLI, from_ms)) if fits else None
    if isinstance(sure, NoInterval) or isinstance(blocks, NoInterval):
        none = sure if isinstance(sure, NoInterval) else None
        return Floor(safe, lowest, None, None, 0, 0, none, replayer.replays, outcome, below)
    low, high = min(math.floor(sure.low), lowest), max(math.ceil(sure.high), safe)
    block_ms = (to_ms - from_ms) // blocks.number
    return Floor(safe, lowest, low, high, blocks.number, block_ms, None, replayer.replays, outcome, below)


def floor_gpus(replayer: CapacityReplayer, tolerance: WaitTolerance) -> int:
    """The floor of all the judge's jobs, without an interval: the number that `find_floor` gives."""
    return _look_around(replayer, tolerance, smallest(replayer, tolerance, ReplaySpan(*replayer.jobs.span_ms)))[1]


def smallest(replayer: CapacityReplayer, tolerance: WaitTolerance, span: ReplaySpan, near: int | None = None) -> int:
    """GPUs that hold the tolerance for the jobs of a span, by bisection; before the span nothing is missing."""

    def holds(gpus: int) -> bool:
        outcome = replayer.replay(constant(gpus * WHOLE_MILLI, span.from_ms), span=span)
        return outcome.holds(tolerance)

    jobs = replayer.jobs
    counted = (jobs.at_ms >= span.from_ms) & (jobs.at_ms <= span.to_ms)
    if not counted.any():
        return 0
    low = math.ceil(int(jobs.gpus_milli[counted].max()) / WHOLE_MILLI)
    return bisect(holds, low, max(enough_gpus(jobs, span), low), near)


def enough_gpus(jobs: PlanJobs, span: ReplaySpan) -> int:
    """GPUs with which no job of the span waits: a job that takes no time needs its GPUs all the same."""
    lasting = jobs._replace(run_ms=np.maximum(jobs.run_ms, 1))
    return math.ceil(peak_milli(curve_of(lasting), span.from_ms, span.to_ms) / WHOLE_MILLI)


def bisect(holds: Callable[[int], bool], low: int, high: int, near: int | None = None) -> int:
    """The smallest number that holds, if every larger one does; the highest is taken to hold."""
    if near is not None and low < near < high:  # a guess: look close to it first
        reach = max(near // 16, 2)
        if holds(near):
            high = near
            if near - reach > low and not holds(near - reach):
                low = near - reach + 1
        else:
            low = near + 1
            if near + reach < high and holds(near + reach):
                high = near + reach
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _look_around(replayer: CapacityReplayer, tolerance: WaitTolerance, found: int) -> tuple[int, int]:
    """The smallest capacity nearby that holds, and the smallest above which all that was looked at holds.

    Each capacity that fails moves the look up: its end lies as far above the last failure as above what was found.
    """
    jobs, span = replayer.jobs, ReplaySpan(*replayer.jobs.span_ms)
    reach = max(math.ceil(found * _NEIGHBOURHOOD), 2)
    step = max(1, reach * 2 // _MOST_LOOKED)
    least, enough = math.ceil(jobs.widest_milli / WHOLE_MILLI), enough_gpus(jobs, span)
    gpus, broken, holding = max(found - reach, least), least - 1, []
    while True:
        outcome = replayer.replay(constant(gpus * WHOLE_MILLI, span.from_ms))
        if outcome.holds(tolerance):
            holding.append(gpus)
        else:
            broken = gpus
        if gpus >= min(max(found, broken) + reach, enough):  # with enough GPUs no job waits, so there it holds
            return holding[0], min(each for each in holding if each > broken)
        gpus = min(gpus + step, found if gpus < found else enough)


# -- how sure ------------------------------------------------------------------------------------------------------


def _block_floors(
    replayer: CapacityReplayer, tolerance: WaitTolerance, near: int, seed: int
) -> tuple[Blocks | NoInterval, F64]:
    """Blocks of time, as long as the demand's memory asks for, and the floor of each: NaN where no job came."""
    jobs, (from_ms, to_ms) = replayer.jobs, replayer.jobs.span_ms
    edges = from_ms + np.concatenate([[0.0], np.cumsum(unit_widths(to_ms - from_ms))]).astype(np.int64)
    blocks = choose_blocks(mean_between(curve_of(jobs), edges))
    if isinstance(blocks, NoInterval):
        return blocks, np.zeros(0)
    ends = np.append(edges[np.searchsorted(blocks.of_units(), np.arange(blocks.number))], to_ms + 1)
    floors = []
    for block, (first_ms, end_ms) in enumerate(pairwise(ends.tolist())):
        # How long those run that had not ended is not sure either: every block has draws of its own.
        again = jobs.draw_again(seed + block + 1)
        other = replayer if again is jobs else CapacityReplayer(again, replayer.order, compiled=replayer.compiled)
        gpus = smallest(other, tolerance, ReplaySpan(first_ms, end_ms - 1), near)
        floors.append(float(gpus) if gpus else np.nan)
        replayer.replays += other.replays if other is not replayer else 0
    return blocks, np.array(floors)


def _interval(found: int, floors: F64, blocks: Blocks) -> Interval | NoInterval:
    """The interval from floors of blocks.

    Where blocks cannot be as long as the memory asks for, the floor rests on the few that reach it.
    """
    known = floors[np.isfinite(floors)]
    if known.size < LEAST_PARTS:
        return NoInterval.FEW
    few = blocks.number <= LEAST_PARTS
    effective = max(float((known >= found).sum()), LEAST_IN_TAIL) if few else float(known.size)
    return narrow(spread_of(float(found), known, blocks.seen, effective).around(float(found)))


def span_text(low: int | None, high: int | None) -> str:
    """An interval in words."""
    return "no interval" if low is None or high is None else f"{low:,} to {high:,}"


def floor_of(jobs: PlanJobs, tolerance: WaitTolerance, order: QueueOrder, seed: int) -> Floor:
    """The floor of jobs."""
    return find_floor(CapacityReplayer(jobs, order), tolerance, seed)
