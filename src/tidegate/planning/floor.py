"""The floor: the smallest capacity at which the queue does not collapse, found by replay and not by a percentile.

Waits are not quite monotone in capacity: one GPU more lets another gang start first, and once in a while somebody
waits longer. So the search looks around what bisection found, and the floor is the smallest capacity above which, as
far as was looked, nothing breaks the tolerance.
Must not know: prices, windows of the week.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tidegate.model.columns import I64
from tidegate.model.units import DAY_MS, WEEK_MS, WHOLE_MILLI
from tidegate.planning.capacity import constant
from tidegate.planning.concurrency import curve_of, peak_milli
from tidegate.planning.jobs import PlanJobs
from tidegate.planning.judge import HELD_MILLI, Judge, Outcome, Span
from tidegate.planning.orders import Order

#: How far around what was found is looked, as a share of it, and how many capacities at most.
_NEIGHBOURHOOD, _MOST_LOOKED = 0.04, 16

#: Times that time is drawn again for the interval, and the shares of draws outside it.
_DRAWS, _TAIL = 40, 0.05


class Tolerance(NamedTuple):
    """How long work may wait, and which share of it must not wait longer."""

    wait_ms: int
    share_milli: int = HELD_MILLI


class Floor(NamedTuple):
    """The smallest capacity that holds the tolerance, and how sure that is."""

    gpus: int
    lowest_gpus: int  # below this, as far as was looked, nothing holds
    low_gpus: int  # interval: time drawn again in blocks
    high_gpus: int
    draws: int
    replays: int
    outcome: Outcome  # at the floor


def find_floor(judge: Judge, tolerance: Tolerance, seed: int) -> Floor:
    """The floor of all the judge's jobs, with an interval."""
    start_ms, _ = judge.jobs.span_ms
    found = smallest(judge, tolerance, Span(*judge.jobs.span_ms))
    draws = _draw_floors(judge, tolerance, found, seed)
    low, high = (int(value) for value in np.quantile([*draws, found], [_TAIL, 1 - _TAIL], method="inverted_cdf"))
    lowest, safe = _look_around(judge, tolerance, found)
    outcome = judge.replay(constant(safe * WHOLE_MILLI, start_ms))
    return Floor(safe, lowest, min(low, lowest), max(high, safe), len(draws), judge.replays, outcome)


def smallest(judge: Judge, tolerance: Tolerance, span: Span, near: int | None = None) -> int:
    """GPUs that hold the tolerance for the jobs of a span, by bisection; before the span nothing is missing."""

    def holds(gpus: int) -> bool:
        outcome = judge.replay(constant(gpus * WHOLE_MILLI, span.from_ms), span=span)
        return outcome.holds(tolerance.wait_ms, tolerance.share_milli)

    jobs = judge.jobs
    counted = (jobs.at_ms >= span.from_ms) & (jobs.at_ms <= span.to_ms)
    if not counted.any():
        return 0
    low = math.ceil(int(jobs.gpus_milli[counted].max()) / WHOLE_MILLI)
    return bisect(holds, low, max(enough_gpus(jobs, span), low), near)


def enough_gpus(jobs: PlanJobs, span: Span) -> int:
    """GPUs with which nobody who comes in the span waits: work that takes no time needs its GPUs all the same."""
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


def _look_around(judge: Judge, tolerance: Tolerance, found: int) -> tuple[int, int]:
    """The smallest capacity nearby that holds, and the smallest above which all that was looked at holds.

    Each capacity that fails moves the look up: its end lies as far above the last failure as above what was found.
    """
    jobs, span = judge.jobs, Span(*judge.jobs.span_ms)
    reach = max(math.ceil(found * _NEIGHBOURHOOD), 2)
    step = max(1, reach * 2 // _MOST_LOOKED)
    least, enough = math.ceil(jobs.widest_milli / WHOLE_MILLI), enough_gpus(jobs, span)
    gpus, broken, holding = max(found - reach, least), least - 1, []
    while True:
        outcome = judge.replay(constant(gpus * WHOLE_MILLI, span.from_ms))
        if outcome.holds(tolerance.wait_ms, tolerance.share_milli):
            holding.append(gpus)
        else:
            broken = gpus
        if gpus >= min(max(found, broken) + reach, enough):  # with enough nobody waits, so there it holds
            return holding[0], min(each for each in holding if each > broken)
        gpus = min(gpus + step, found if gpus < found else enough)


# -- how sure ------------------------------------------------------------------------------------------------------


def _draw_floors(judge: Judge, tolerance: Tolerance, near: int, seed: int) -> list[int]:
    """Floors of the same time with its weeks, or days where there are few, drawn again."""
    jobs = judge.jobs
    first_ms, last_ms = jobs.span_ms
    length = WEEK_MS if last_ms - first_ms >= 4 * WEEK_MS else DAY_MS
    block = (jobs.at_ms - first_ms) // length
    blocks = int(block[-1]) + 1
    if blocks < 4:
        return []
    rows = np.split(np.arange(jobs.total), np.searchsorted(block, np.arange(blocks)))
    rng = np.random.default_rng(seed)
    found = []
    for draw in range(_draws(judge)):
        again = jobs.draw_again(seed + draw + 1)  # how long those run that had not ended is not sure either
        drawn = _again(again, rows, rng.integers(0, blocks, blocks), length)
        other = Judge(drawn, judge.order, compiled=judge.compiled)
        found.append(smallest(other, tolerance, Span(*drawn.span_ms), near))
        judge.replays += other.replays
    return found


def _draws(judge: Judge) -> int:
    """Fewer for many jobs: their number makes up for it, and time is short."""
    return _DRAWS if judge.jobs.total <= 20_000 else _DRAWS // 2


def _again(jobs: PlanJobs, rows: list[I64], order: I64, length: int) -> PlanJobs:
    """The jobs of blocks of time, in another order of the blocks; what ran before the first of them stays there."""
    before, *blocks = rows
    parts = [(before, jobs.at_ms[before])]
    parts += [
        (blocks[block], jobs.at_ms[blocks[block]] + (place - block) * length)
        for place, block in enumerate(order.tolist())
    ]
    which = np.concatenate([part for part, _ in parts])
    if len(which) == len(before):
        return jobs
    return jobs.take(which)._replace(at_ms=np.concatenate([at for _, at in parts]))


def floor_of(jobs: PlanJobs, tolerance: Tolerance, order: Order, seed: int) -> Floor:
    """The floor of jobs."""
    return find_floor(Judge(jobs, order), tolerance, seed)
