"""Capacity bands: what to own, to book by window and to leave to burst, from the past alone.

With burst, levels are the newsvendor's, and a replay finds the ceiling that the worst week of the past needed. Without
burst, a search finds the levels that held the tolerance in the last weeks, and a margin is added. Levels with burst are
replayed on the past; if they break the tolerance, or cost more than a constant level that holds it, that one is taken.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np

from tidegate.config.prices import ASSUMED_PRICES, GpuPrices
from tidegate.demand.concurrency import Mask
from tidegate.demand.time_zone import Calendar
from tidegate.demand.unrecorded import unseen_between
from tidegate.model.arrays import F64, I64
from tidegate.model.units import MINUTE_MS, WEEK_MS, WHOLE_MILLI
from tidegate.planning.capacity import ALWAYS, SHUT, WeekWindows, WindowLevels, steps_of
from tidegate.planning.capacity_replay import CapacityReplayer, QueueOrder, ReplayOutcome, ReplaySpan, cost_of
from tidegate.planning.concurrency import average, curve_of, peak_milli
from tidegate.planning.floor import bisect, enough_gpus, floor_gpus, smallest
from tidegate.planning.kernels.replay import BurstRule
from tidegate.planning.newsvendor import FEW_LEVELS, HALF_LIFE_MS, Demand, Split, split, weigh
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import WaitTolerance
from tidegate.planning.windows import Habit, choose_windows

#: Without burst: how far back levels must have held, and what is put on top. Chosen on the first two thirds of seven
#: traces (docs/planning.md).
RECENT_MS, MARGIN_MILLI = 4 * WEEK_MS, 1_100


#: Times that windows stand trial on weeks they were not chosen on.
_MOST_FOLDS = 6

#: With burst: how far above the worst week of the past it may go. Growth is no surprise, and a ceiling that is not
#: reached costs nothing.
HEADROOM_MILLI = 1_500


#: What burst may cost above a level that holds without it. On the past it only costs; on time that was not seen it is
#: what keeps the tolerance (docs/planning.md).
RESERVE_MILLI = 1_050

#: Levels to own all week that are tried with burst where the split is not worth it.
_TRIED_LEVELS = 9


class PlanBasis(StrEnum):
    """What the levels of a plan come from."""

    SPLIT = "split"  # the newsvendor: own, book by window, burst
    LEVEL = "level"  # one level all week, and burst
    FLOOR = "floor"  # the floor all week, nothing else
    PEAK = "peak"  # the peak all week, nothing else
    BANDS = "bands"  # levels by window without burst, as was asked for


class Launch(NamedTuple):
    """How burst capacity comes and goes."""

    launch_ms: int = 10 * MINUTE_MS  # the cold start: from the launch to the first start
    linger_ms: int = 10 * MINUTE_MS
    step_gpus: int = 8


class PlanRecipe(NamedTuple):
    """What is asked of a plan."""

    tolerance: WaitTolerance
    prices: GpuPrices = ASSUMED_PRICES
    order: QueueOrder = QueueOrder.OVERTAKE
    launch: Launch = Launch()
    bursts: bool = True
    half_life_ms: int = HALF_LIFE_MS
    margin_milli: int = MARGIN_MILLI
    recent_ms: int = RECENT_MS
    headroom_milli: int = HEADROOM_MILLI
    windows: WeekWindows | None = None  # None: whichever cost least

    @property
    def burst_in_time(self) -> bool:
        """Whether capacity that is launched as soon as work waits is there before its tolerance ends."""
        return self.bursts and self.tolerance.tightest_ms >= self.launch.launch_ms

    def burst_rule(self) -> BurstRule:
        """Burst that starts early enough: a launch more before the tolerance ends than the launch itself takes."""
        if not self.bursts:
            return SHUT
        patience = max(self.tolerance.tightest_ms - 2 * self.launch.launch_ms, 0)
        return BurstRule(patience, self.launch.launch_ms, self.launch.linger_ms, self.launch.step_gpus * WHOLE_MILLI)


class Bands(NamedTuple):
    """A plan's levels, and what they were made from."""

    windows: WeekWindows
    own_gpus: int
    window_gpus: tuple[int, ...]  # by window, what is owned included
    ceiling_gpus: int  # of burst, above the window's level
    demand: Demand
    split: Split | None  # None: without burst
    basis: PlanBasis = PlanBasis.SPLIT

    def level(self, from_ms: int) -> WindowLevels:
        """The levels, in force from a time on."""
        levels = tuple(gpus * WHOLE_MILLI for gpus in self.window_gpus)
        return WindowLevels(from_ms, self.windows, levels, self.ceiling_gpus * WHOLE_MILLI)


def plan_bands(past: PlanJobs, now_ms: int, recipe: PlanRecipe) -> Bands:
    """Bands for the time from now on, from jobs as they were known then."""
    at_ms, gpus = average(curve_of(past), past.span_ms[0], now_ms)
    for from_ms, to_ms in unseen_between(past.at_ms):  # what was not recorded is not quiet
        seen = (at_ms < from_ms) | (at_ms >= to_ms)
        at_ms, gpus = at_ms[seen], gpus[seen]
    # What ended on a Sunday saw weekends last: each hour of the week counts the same, and of each the latest most.
    demand = weigh(at_ms, gpus, now_ms, recipe.half_life_ms, past.calendar).even()
    windows = recipe.windows
    if windows is None:  # a week or two show no habit: windows are chosen on all of the past
        windows = choose_windows(_habit(at_ms, gpus, now_ms, past.calendar), recipe.prices, past.calendar)
    if not recipe.bursts:
        return _plan_without_burst(past, now_ms, recipe, windows, demand)
    cheapest = split(demand, windows, recipe.prices)
    bands = Bands(windows, cheapest.own_gpus, cheapest.window_gpus, 0, demand, cheapest)
    replayer = CapacityReplayer(past, recipe.order)
    bands = bands._replace(ceiling_gpus=_needed_ceiling(replayer, now_ms, recipe, bands))
    return _settle(replayer, now_ms, recipe, bands)


# -- replayed before it is believed ------------------------------------------------------------------------------------


class _Tried(NamedTuple):
    """Bands, replayed on the past."""

    bands: Bands
    holds: bool  # over all of the past, and over the last weeks
    cost: float
    late_cost: float  # of the last weeks alone

    def dearer(self, other: _Tried) -> bool:
        """Whether it costs more over all of the past and over the last weeks: owning for growth is no waste."""
        return self.cost > other.cost and self.late_cost > other.late_cost


def _settle(replayer: CapacityReplayer, now_ms: int, recipe: PlanRecipe, bands: Bands) -> Bands:
    """The bands, if they hold on the past and nothing simpler that holds costs less; else the cheapest that holds.

    Where burst comes after the tolerance has ended it cannot hold it, so no less than the floor is owned.
    """
    past = replayer.jobs
    floor, peak = floor_gpus(replayer, recipe.tolerance), enough_gpus(past, ReplaySpan(past.span_ms[0], now_ms))
    top = max(bands.window_gpus) + bands.ceiling_gpus
    if not recipe.burst_in_time:
        levels = tuple(max(gpus, floor) for gpus in bands.window_gpus)
        bands = bands._replace(own_gpus=min(levels), window_gpus=levels, ceiling_gpus=max(top - max(levels), 0))

    def tried(some: Bands) -> _Tried:
        return _try(replayer, now_ms, recipe, some)

    first = tried(bands)
    simple = [
        tried(hold_all_week(gpus, bands.demand)._replace(basis=basis))
        for gpus, basis in ((floor, PlanBasis.FLOOR), (peak, PlanBasis.PEAK))
    ]
    if first.holds and not any(first.dearer(other) for other in simple if other.holds):
        return bands
    lowest = bands.own_gpus if recipe.burst_in_time else floor
    owned = np.unique(np.linspace(lowest, max(peak, lowest), _TRIED_LEVELS).astype(np.int64)).tolist()
    level = [
        tried(hold_all_week(gpus, bands.demand)._replace(ceiling_gpus=max(top - gpus, 0), basis=PlanBasis.LEVEL))
        for gpus in owned
    ]
    return _cheapest(first, [first, *level], simple).bands


def _cheapest(first: _Tried, bursting: list[_Tried], simple: list[_Tried]) -> _Tried:
    """The cheapest that holds; with burst, if that costs little more: a level alone has nothing for what grows."""
    best, plain = (
        min((other for other in some if other.holds), key=lambda other: other.late_cost, default=None)
        for some in (bursting, simple)
    )
    if best is None or (plain is not None and best.late_cost * 1000 > plain.late_cost * RESERVE_MILLI):
        return plain or first
    return best


def _try(replayer: CapacityReplayer, now_ms: int, recipe: PlanRecipe, bands: Bands) -> _Tried:
    span = ReplaySpan(replayer.jobs.span_ms[0], now_ms)
    spans = (span, ReplaySpan(max(span.from_ms, now_ms - recipe.recent_ms), now_ms))
    steps = steps_of([bands.level(span.from_ms)], now_ms, replayer.jobs.calendar)
    outcomes = [replayer.replay(steps, recipe.burst_rule(), each) for each in spans]
    holds = all(each.holds(recipe.tolerance) for each in outcomes)
    costs = [
        cost_of(outcome, bands.own_gpus * each.hours, recipe.prices)
        for outcome, each in zip(outcomes, spans, strict=True)
    ]
    return _Tried(bands, holds, *costs)


def _habit(at_ms: I64, gpus: F64, now_ms: int, calendar: Calendar) -> Habit:
    """Each week in turn stands against the others; of very many weeks, every so-manieth together."""

    def demand(of: Mask) -> Demand:
        return weigh(at_ms[of], gpus[of], now_ms, 0, calendar, FEW_LEVELS).even()

    week = (now_ms - 1 - at_ms) // WEEK_MS
    whole = int(now_ms - at_ms.min(initial=now_ms)) // WEEK_MS
    turns = min(whole, _MOST_FOLDS) if whole > 1 else 0
    folds = tuple((demand(week % turns != turn), demand(week % turns == turn)) for turn in range(turns))
    return Habit(demand(week >= 0), folds)


def _needed_ceiling(replayer: CapacityReplayer, now_ms: int, recipe: PlanRecipe, bands: Bands) -> int:
    """The least burst with which every week of the past would have held the tolerance; the largest gang must fit.

    Where no burst holds, it is what the peak asks for: the caller replays the bands.
    """
    past = replayer.jobs
    first_ms = past.span_ms[0]
    week = (past.at_ms[ReplaySpan(first_ms, now_ms).has(past.at_ms)] - first_ms) // WEEK_MS

    def holds(launches: int) -> bool:
        tried = bands._replace(ceiling_gpus=launches * recipe.launch.step_gpus).level(first_ms)
        outcome = replayer.replay(
            steps_of([tried], now_ms, past.calendar), recipe.burst_rule(), ReplaySpan(first_ms, now_ms)
        )
        return _weeks_hold(outcome, week, recipe.tolerance)

    low_level = min(bands.window_gpus)
    least = past.widest_milli // WHOLE_MILLI - low_level
    most = peak_milli(curve_of(past), first_ms, now_ms) // WHOLE_MILLI - low_level
    rows = [math.ceil(max(gpus, 0) / recipe.launch.step_gpus) for gpus in (least, most)]
    needed = bisect(holds, rows[0], max(rows)) * recipe.launch.step_gpus
    above = (low_level + needed) * (recipe.headroom_milli - 1000) / 1000
    return needed + math.ceil(above / recipe.launch.step_gpus) * recipe.launch.step_gpus


def _weeks_hold(outcome: ReplayOutcome, week: np.ndarray, tolerance: WaitTolerance) -> bool:
    """Whether every week holds the tolerance; a week for each of the jobs that count."""
    waits = outcome.waits(tolerance)
    return all(waits.take(week == row).hold(tolerance.share_milli) for row in np.unique(week))


# -- without burst -------------------------------------------------------------------------------------------------


def _plan_without_burst(past: PlanJobs, now_ms: int, recipe: PlanRecipe, windows: WeekWindows, demand: Demand) -> Bands:
    span = ReplaySpan(max(past.span_ms[0], now_ms - recipe.recent_ms), now_ms)
    replayer = CapacityReplayer(past, recipe.order)
    least = least_levels(replayer, windows, recipe.tolerance, span)
    levels = tuple(max(-(-gpus * recipe.margin_milli // 1000), 1) for gpus in least)
    widest = past.widest_milli // WHOLE_MILLI
    if max(levels) < widest:
        levels = tuple(max(gpus, widest) if gpus == max(levels) else gpus for gpus in levels)
    return Bands(windows, min(levels), levels, 0, demand, None, PlanBasis.BANDS)


def least_levels(
    replayer: CapacityReplayer, windows: WeekWindows, tolerance: WaitTolerance, span: ReplaySpan
) -> tuple[int, ...]:
    """The levels by window that hold the tolerance with the fewest GPU-hours held: by descent from several starts."""
    one = smallest(replayer, tolerance, span)
    count = len(windows.names)
    if count == 1:
        return (one,)
    order = sorted(range(count), key=lambda row: -windows.hours()[row])
    best, best_held = (one,) * count, math.inf
    for start_milli in (1000, 1050, 1150, 1300):
        for rows in (order, order[::-1]):
            levels = _descend(replayer, windows, tolerance, span, [-(-one * start_milli // 1000)] * count, rows)
            outcome = _replay_levels(replayer, windows, tuple(levels), span)
            if outcome.holds(tolerance) and outcome.held_gpu_h < best_held:
                best, best_held = tuple(levels), outcome.held_gpu_h
    return best


def _descend(
    replayer: CapacityReplayer,
    windows: WeekWindows,
    tolerance: WaitTolerance,
    span: ReplaySpan,
    levels: list[int],
    rows: list[int],
) -> list[int]:
    """Lower one window after the other as far as the tolerance lets."""

    def holds(row: int, gpus: int) -> bool:
        outcome = _replay_levels(replayer, windows, tuple(_with(levels, row, gpus)), span)
        return outcome.holds(tolerance)

    for row in rows:
        levels[row] = bisect(partial(holds, row), 0, levels[row])
    return levels


def _with(levels: list[int], row: int, gpus: int) -> list[int]:
    return [*levels[:row], gpus, *levels[row + 1 :]]


def _replay_levels(
    replayer: CapacityReplayer, windows: WeekWindows, gpus: tuple[int, ...], span: ReplaySpan
) -> ReplayOutcome:
    level = WindowLevels(span.from_ms, windows, tuple(each * WHOLE_MILLI for each in gpus))
    return replayer.replay(steps_of([level], span.to_ms, replayer.jobs.calendar), span=span)


def hold_all_week(gpus: int, demand: Demand) -> Bands:
    """One level, owned."""
    return Bands(ALWAYS, gpus, (gpus,), 0, demand, None)
