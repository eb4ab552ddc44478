"""Wait tolerance: as declared, or as shown by waits and cancellations. Input four.

Patience is estimated as survival is (`survival`): a job that was cancelled while it waited reached the end of its
patience; one that started, or still waits, would have waited longer. Waits until a start are estimated the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tidegate.demand.censoring import Observation, State
from tidegate.demand.concurrency import MOST_EXACT, Mask
from tidegate.demand.estimate import How, Number, Unit, at_least, estimate, exact, rank_quantile, share, trim
from tidegate.demand.group_keys import dense
from tidegate.demand.grouped_quantiles import Grouping, Some, in_order_by_group
from tidegate.demand.job_table import JobRows, JobTable
from tidegate.demand.sketches import Sketch, sketch_ordered
from tidegate.demand.step_curve import StepCurve, level_at
from tidegate.demand.survival import Survival, WatchedDurations, estimate_survival, survival_quantile, survival_sketch
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import MINUTE_MS
from tidegate.stats.block_quantiles import likeness, quantile_interval
from tidegate.stats.blocks import Blocks, choose_blocks, count_units, linear_spread, sum_by, units_of
from tidegate.stats.interval import LEAST_BEYOND, LEAST_PARTS, NORMAL, Interval, NoInterval, PartSpread, share_interval
from tidegate.stats.quantile import quantile

#: A depth breaks tolerance when more than this share of those who meet it, or more, wait longer than tolerated.
BROKEN = 0.1

#: The share of people whose patience may be spent.
_IMPATIENT = 0.1


#: Where nine of ten started sooner, waits show how long the scheduler takes, and no patience.
_ASKED_MS = MINUTE_MS


class ToleranceBasis(StrEnum):
    """What a tolerance rests on, the best first."""

    DECLARED = "declared"  # nine of ten of those who say tolerate so much, or more
    GIVEN_UP = "given_up"  # the wait by which a tenth would have cancelled
    ACCEPTED = "accepted"  # few gave up: at least the wait that nine of ten went through
    NONE = "none"


class MeasuredTolerance(Spec, frozen=True):
    """How long work of one group may wait."""

    basis: ToleranceBasis
    tolerated: Number | None  # None: nothing says
    declared: Number | None  # the median of what was declared; nine of ten declare what is `tolerated`, or more
    declared_share: Number | None  # of the jobs that declare any
    waited_p50: Number | None
    waited_p90: Number | None
    waited_p95: Number | None
    waited_p99: Number | None
    cancelled: (
        Number | None
    )  # the share of jobs that were cancelled while they waited; at most, had all that still wait
    still: int  # jobs that still waited when they were last seen
    waits: Sketch | None  # until a start


class Broken(Spec, frozen=True):
    """The depth of the queue from which on waits break tolerance."""

    tolerated_ms: float
    depth: Number | None  # GPUs waiting; None: it never was that deep
    late: Number  # the share of jobs that waited longer than tolerated


_NOTHING: I64 = np.zeros(0, np.int64)

#: Values by the unit of time in which jobs were submitted.
_ByUnit = tuple[I64, ...]


class Looks(NamedTuple):
    """Waits by the unit of time in which jobs were submitted."""

    started: _ByUnit = ()  # until the start
    gone: _ByUnit = ()  # until a cancellation
    still: _ByUnit = ()  # so far, of those that still wait
    said: _ByUnit = ()  # what is declared as tolerated


class Counts(NamedTuple):
    """Jobs by the unit of time in which they were submitted."""

    left: I64 = _NOTHING  # those that gave up
    asked: I64 = _NOTHING  # those that gave up or started
    began: I64 = _NOTHING  # those that were seen to start
    waited_ms: I64 = _NOTHING  # how long these waited in all


class ObservedWaits(NamedTuple):
    """Waits of some jobs, in order."""

    started_ms: I64  # until the start
    given_up_ms: I64  # until a cancellation
    declared_ms: I64  # as tolerated
    still_ms: I64  # so far, of those that still wait
    entered_ms: I64  # of those that waited already when jobs began to be watched: how long by then
    member: dict[str, int]  # the row of these jobs in each dimension
    every: tuple[int, int, int, int, int]  # each stands for so many: of very many, only every so-manieth is kept
    looks: Looks = Looks()
    counts: Counts = Counts()
    blocks: Blocks | NoInterval = NoInterval.FEW  # as long as waits of all jobs stay alike, or these if that is longer

    def belongs(self, scope: str, row: int) -> bool:
        """Whether these jobs belong to a group; all belong to what is no dimension."""
        return self.member.get(scope, row) == row

    def until_start(self) -> WatchedDurations:
        """How long it takes until a start, as far as it was watched."""
        left, every = _merged((self.given_up_ms, self.every[1]), (self.still_ms, self.every[3]))
        return WatchedDurations(self.started_ms, left, self.entered_ms, (self.every[0], every, self.every[4]))

    def until_given_up(self) -> WatchedDurations:
        """How long it takes until a job gives up, as far as it was watched."""
        left, every = _merged((self.started_ms, self.every[0]), (self.still_ms, self.every[3]))
        return WatchedDurations(self.given_up_ms, left, self.entered_ms, (self.every[1], every, self.every[4]))


def _merged(one: tuple[I64, int], other: tuple[I64, int]) -> tuple[I64, int]:
    """Two columns in one order, as far apart in it as the one that was thinned out more."""
    columns = [part for part in (one, other) if part[0].size]
    if len(columns) < 2:
        return columns[0] if columns else (one[0], 1)
    every = max(one[1], other[1])
    kept = [values[(every // each) // 2 :: every // each] for values, each in columns]
    return np.sort(np.concatenate(kept), kind="stable"), every


#: Picks some of the jobs that are watched from a time on.
_Pick = Callable[[JobRows, Observation], JobRows]


def sort_waits(jobs: JobTable) -> list[ObservedWaits]:
    """Waits by cell: each combination of kind, queue and GPU model that occurs."""
    combination = np.zeros(jobs.cells.amount.size, np.int64)
    for name, label in jobs.cells.labels.items():
        combination = combination * max(len(jobs.names[name]), 1) + label
    used, group_of = dense(combination)
    grouping = Grouping(group_of.astype(np.int64), used.size)
    known = jobs.recorded.submissions  # else waits are not known
    picks = (_began, _gone, _said, _waiting) if known else (_none, _none, _said, _none)
    ordered = [
        in_order_by_group((_waits(pick(rows, jobs.watch), jobs.watch, pick) for rows in jobs.parts()), grouping)
        for pick in picks
    ]
    ordered.append(in_order_by_group((_entered(rows, jobs.watch) for rows in jobs.parts() if known), grouping))
    started, given_up, declared, still, entered = (one.every for one in ordered)
    every = (started, given_up, declared, still, entered)
    first = [int(np.flatnonzero(group_of == row)[0]) for row in range(used.size)]
    members = [{name: int(label[at]) for name, label in jobs.cells.labels.items()} for at in first]
    parts = zip(*(one.parts for one in ordered), strict=True)
    columns = [(part[0], part[1], part[2], part[3], part[4]) for part in parts]
    cut = _cut_time(jobs) if known else _Cut(0, 1, NoInterval.FEW)
    looks = [_sort_by_unit(jobs, grouping, cut, pick) for pick in (_began, _gone, _waiting, _said)]
    counts = _count_by_unit(jobs, grouping, cut)
    by_unit = [(Looks(*(one[row] for one in looks)), Counts(*(one[row] for one in counts))) for row in range(used.size)]
    return [
        ObservedWaits(*column, member, every, *by_unit[row], cut.blocks)
        for row, (column, member) in enumerate(zip(columns, members, strict=True))
    ]


class _Cut(NamedTuple):
    """How time is cut into blocks."""

    start_ms: int
    length_ms: int
    blocks: Blocks | NoInterval

    def unit(self, at_ms: I64) -> I64:
        return units_of(at_ms - self.start_ms, self.length_ms)


def _cut_time(jobs: JobTable) -> _Cut:
    """Blocks by the memory of how long jobs wait: who is in the same queue at the same time waits alike."""
    ends = [(int(rows.submitted_ms.min()), int(rows.submitted_ms.max())) for rows in jobs.parts() if rows.cell.size]
    if not ends:
        return _Cut(0, 1, NoInterval.FEW)
    start_ms = min(first for first, _ in ends)
    cut = _Cut(start_ms, max(last for _, last in ends) + 1 - start_ms, NoInterval.FEW)
    sums, counts = np.zeros((2, count_units(cut.length_ms)))
    for rows in jobs.parts():
        began = _began(rows, jobs.watch)
        unit = cut.unit(began.submitted_ms)
        sums += sum_by(unit, (began.started_ms - began.submitted_ms).astype(np.float64), sums.size)
        counts += sum_by(unit, np.ones(unit.size), sums.size)
    return cut._replace(blocks=choose_blocks(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)))


def _sort_by_unit(jobs: JobTable, grouping: Grouping, cut: _Cut, pick_rows: _Pick) -> list[tuple[I64, ...]]:
    """Waits of some jobs of each group and unit of time; of very many jobs, every so-manieth."""
    if isinstance(cut.blocks, NoInterval):
        return [()] * grouping.groups
    number, every = cut.blocks.units, max(1, -(-len(jobs) // MOST_EXACT))
    wide = Grouping((grouping.group_of[:, None] * number + np.arange(number)).ravel(), grouping.groups * number)

    def pick(rows: JobRows) -> Some:
        some = pick_rows(rows, jobs.watch)
        some = some.take(np.arange(0, some.cell.size, every)) if every > 1 else some
        cell = some.cell.astype(np.int64) * number + cut.unit(some.submitted_ms)
        return _waits(some, jobs.watch, pick_rows)[0], cell.astype(np.int32)

    parts = in_order_by_group(map(pick, jobs.parts()), wide).parts
    return [tuple(parts[row * number : (row + 1) * number]) for row in range(grouping.groups)]


def _count_by_unit(jobs: JobTable, grouping: Grouping, cut: _Cut) -> tuple[I64, ...]:
    """Of each group by unit of time: who gave up, who gave up or started, who was seen to start, and their waits."""
    units = count_units(cut.length_ms)
    left, started, seen, waited = np.zeros((4, grouping.groups * units), np.int64)
    for rows in jobs.parts() if jobs.recorded.submissions else ():
        at = grouping.group_of[rows.cell] * units + cut.unit(rows.submitted_ms)
        gone = rows.cancelled & (rows.started_ms < 0) & (rows.ended_ms >= rows.submitted_ms)
        left += np.bincount(at[gone], minlength=left.size)
        started += np.bincount(at[rows.started_ms >= 0], minlength=left.size)
        began = _began(rows, jobs.watch)
        at = grouping.group_of[began.cell] * units + cut.unit(began.submitted_ms)
        seen += np.bincount(at, minlength=left.size)
        np.add.at(waited, at, began.started_ms - began.submitted_ms)
    return tuple(counts.reshape(-1, units) for counts in (left, left + started, seen, waited))


def _began(jobs: JobRows, watch: Observation) -> JobRows:
    """Jobs that were seen to start."""
    began = jobs if jobs.started_ms.min(initial=0) >= 0 else jobs.take(jobs.started_ms >= 0)
    return began if watch.since_ms is None else began.take(began.started_ms >= watch.since_ms)


def _none(jobs: JobRows, watch: Observation) -> JobRows:
    del watch
    return jobs.take(np.zeros(0, np.int64))


def _waits(jobs: JobRows, watch: Observation, picked_by: _Pick) -> Some:
    """How long jobs waited, or as long as they declare."""
    waited = jobs.tolerated_wait_ms if picked_by is _said else waited_until_ms(jobs, watch) - jobs.submitted_ms
    return waited, jobs.cell


def _gone(jobs: JobRows, watch: Observation) -> JobRows:
    """Jobs that gave up while they waited."""
    gone = np.flatnonzero(jobs.cancelled)
    gone = gone[(jobs.started_ms[gone] < 0) & (jobs.ended_ms[gone] >= jobs.submitted_ms[gone])]
    if watch.since_ms is not None:
        gone = gone[jobs.ended_ms[gone] >= watch.since_ms]
    return jobs.take(gone)


def _said(jobs: JobRows, watch: Observation) -> JobRows:
    """Jobs that declare how long they may wait."""
    del watch
    return jobs.take(np.flatnonzero(jobs.tolerated_wait_ms >= 0))


def _waiting(jobs: JobRows, watch: Observation) -> JobRows:
    """Jobs that still wait."""
    del watch
    return jobs.take(np.flatnonzero(jobs.state == State.WAITS))


def _entered(jobs: JobRows, watch: Observation) -> Some:
    """Ages of jobs that waited already when jobs began to be watched."""
    if watch.since_ms is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    over = waited_until_ms(jobs, watch)
    late = np.flatnonzero((jobs.submitted_ms < watch.since_ms) & (over >= watch.since_ms))
    return np.minimum(watch.since_ms, over[late] - 1) - jobs.submitted_ms[late], jobs.cell[late]


def waited_until_ms(jobs: JobRows, watch: Observation) -> I64:
    """When each stopped waiting: by its start, by giving up, or when it was last seen; -1 where that is not known."""
    gone = np.where(jobs.cancelled, jobs.ended_ms, -1)
    gone = np.where(jobs.state == State.WAITS, watch.until_ms, gone)
    return np.where(jobs.started_ms >= 0, jobs.started_ms, gone)


def gather_waits(parts: list[ObservedWaits]) -> ObservedWaits:
    """The waits of several cells together, in order again."""
    if not parts:
        return ObservedWaits(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, {}, (1, 1, 1, 1, 1))
    columns = zip(*(part[:5] for part in parts), strict=True)
    started, given_up, declared, still, entered = (np.sort(np.concatenate(one), kind="stable") for one in columns)
    looks = Looks(*(_joined(column) for column in zip(*(part.looks for part in parts), strict=True)))
    counts = Counts(*(np.sum(column, axis=0) for column in zip(*(part.counts for part in parts), strict=True)))
    blocks = _longest_blocks(parts[0].blocks, counts)
    return ObservedWaits(started, given_up, declared, still, entered, {}, parts[0].every, looks, counts, blocks)


def _joined(parts: Iterable[_ByUnit]) -> _ByUnit:
    """The values of several cells by unit of time, in order again."""
    return tuple(np.sort(np.concatenate(unit), kind="stable") for unit in zip(*parts, strict=True))


def _longest_blocks(blocks: Blocks | NoInterval, counts: Counts) -> Blocks | NoInterval:
    """Blocks as long as the waits of a group stay alike, or those of all jobs, whichever is longer.

    A small queue that moves slowly would be lost in a large one that does not.
    """
    if isinstance(blocks, NoInterval):
        return blocks
    own = choose_blocks(np.where(counts.began > 0, counts.waited_ms / np.maximum(counts.began, 1), np.nan))
    return own if isinstance(own, NoInterval) or own.memory > blocks.memory else blocks


def measure_tolerance(waits: ObservedWaits, jobs: int) -> MeasuredTolerance:
    """What the waits of a group say."""
    declared, said = waits.declared_ms, waits.every[2]
    started = waits.started_ms.size * waits.every[0]
    given_up = waits.given_up_ms.size * waits.every[1]
    still = waits.still_ms.size * waits.every[3]
    until_start = waits.until_start()
    delays = {f"waited_p{at}": _quantile(waits, until_start, at / 100) for at in (50, 90, 95, 99)}
    basis, tolerated = _tolerated(waits, delays["waited_p90"])
    return MeasuredTolerance(
        basis=basis,
        tolerated=tolerated,
        declared=_quantile_declared(waits, 0.5) if declared.size else None,
        declared_share=share(min(declared.size * said, jobs), jobs, "jobs") if declared.size else None,
        cancelled=_cancelled(waits, given_up, started + given_up, still) if started + given_up else None,
        still=still,
        waits=_sketch(until_start) if started else None,
        **delays,
    )


def _quantile(waits: ObservedWaits, watched: WatchedDurations, part: float) -> Number | None:
    """The wait that a part does not exceed, with an interval by blocks of time."""
    if not watched.ended_ms.size:
        return None
    own = quantile(watched.ended_ms, part)
    known = None if watched.whole() else survival_quantile(estimate_survival(watched), part, Unit.MS, "jobs")
    if known is not None and known.how is How.AT_LEAST:
        return known
    value, blocks = own if known is None else known.value, waits.blocks
    if isinstance(blocks, NoInterval):
        return estimate(value, blocks, Unit.MS, (watched.total, "jobs"), How.BLOCKS)
    found = quantile_interval(blocks.join(waits.looks.started), blocks, part, value)
    return estimate(value, found, Unit.MS, (watched.total, "jobs"), How.BLOCKS)


def _sketch(watched: WatchedDurations) -> Sketch:
    if watched.whole():
        return sketch_ordered(watched.ended_ms, watched.every[0])
    return survival_sketch(estimate_survival(watched))


def _cancelled(waits: ObservedWaits, given_up: int, asked: int, still: int) -> Number:
    """The share that gave up, by blocks of time; its interval reaches from none of those that still wait to all."""
    whole = asked + still
    spread: PartSpread | NoInterval = NoInterval.FEW
    if (waits.counts.asked > 0).sum() >= LEAST_PARTS:
        left, those = waits.counts.left, waits.counts.asked
        part = float(left.sum()) / float(those.sum())
        spread = linear_spread(part, (left - part * those) / float(those.sum()))
    ends = [
        share_interval((given_up + more) / whole, whole, int((waits.counts.asked > 0).sum()), spread)
        for more in (0, still)
    ]
    wide = [one for one in ends if isinstance(one, Interval)]
    found = ends[0] if len(wide) < 2 else Interval(wide[0].low, wide[1].high)
    return estimate(given_up / whole, found, Unit.SHARE, (whole, "jobs"), How.BLOCKS)


def _quantile_declared(waits: ObservedWaits, part: float) -> Number:
    """What a part of the jobs declares, or less; those of an array, or of one user in a week, declare alike."""
    alike = likeness(waits.looks.said, part)
    return rank_quantile(waits.declared_ms, part, Unit.MS, "jobs", waits.every[2], alike)


def _tolerated(waits: ObservedWaits, accepted: Number | None) -> tuple[ToleranceBasis, Number | None]:
    if waits.declared_ms.size:  # by the median, half of those that declare less would be broken
        return ToleranceBasis.DECLARED, _quantile_declared(waits, _IMPATIENT)
    if waits.given_up_ms.size >= 10:
        survival = estimate_survival(waits.until_given_up())
        patience = survival_quantile(survival, _IMPATIENT, Unit.MS, "jobs", _alike_in_patience(waits, survival))
        if patience.value > 0:
            return ToleranceBasis.GIVEN_UP, patience
    if accepted is not None and accepted.value >= _ASKED_MS:
        return ToleranceBasis.ACCEPTED, at_least(accepted)
    return ToleranceBasis.NONE, None


def _alike_in_patience(waits: ObservedWaits, survival: Survival) -> float | NoInterval:
    """How many that give up are worth one: an array is cancelled at once, and on a bad day many leave.

    By unit of time, how many gave up against how many would have, at the rate of all: the variance of that by blocks,
    over that of as many that are independent.
    """
    reached = np.flatnonzero(survival.share <= 1 - _IMPATIENT + 1e-12)
    until_ms = survival.at_ms[reached[0] if reached.size else -1]
    gone = np.array([np.searchsorted(unit, until_ms, side="right") for unit in waits.looks.gone], np.float64)
    if (gone > 0).sum() < LEAST_PARTS:
        return NoInterval.FEW
    hazard = -np.log(np.maximum(survival.share, 1e-12))
    columns = zip(waits.looks.started, waits.looks.gone, waits.looks.still, strict=True)
    ages = [np.minimum(np.concatenate(one), until_ms) for one in columns]
    passed = np.concatenate(([0.0], hazard))
    likely = np.array([passed[np.searchsorted(survival.at_ms, age, side="right")].sum() for age in ages])
    total = float(gone.sum())
    spread = linear_spread(1.0, (gone - likely * (total / max(float(likely.sum()), 1e-12))) / total)
    if isinstance(spread, NoInterval):
        return spread
    counted = float(np.searchsorted(waits.given_up_ms, until_ms, side="right")) * waits.every[1]
    alike = max((spread.error * spread.times / NORMAL) ** 2 * counted, 1.0)
    return alike if counted / alike >= LEAST_BEYOND else NoInterval.FEW


def find_breaking_depth(submitted_ms: I64, waited_ms: I64, queue: StepCurve, tolerated_ms: float) -> Broken:
    """The least depth such that of all jobs that met it, or a deeper one, more than BROKEN waited too long."""
    late = waited_ms > tolerated_ms
    depth = level_at(queue, submitted_ms - queue.window.start_ms)
    return Broken(
        tolerated_ms=trim(tolerated_ms),
        depth=_least_breaking(depth, late),
        late=_late_share(submitted_ms, late),
    )


def _late_share(submitted_ms: I64, late: Mask) -> Number:
    """The share that waited too long, by blocks of time: those that are late come together."""
    if late.size == 0:
        return exact(0.0, Unit.SHARE, 0, "jobs")
    part, length_ms = float(late.mean()), int(np.ptp(submitted_ms)) + 1
    unit = units_of(submitted_ms - submitted_ms.min(), length_ms)
    units = count_units(length_ms)
    together = sum_by(unit, late.astype(np.float64), units)  # a day with many that are late counts for more
    spread = linear_spread(part, sum_by(unit, (late - part) / late.size, units), together)
    found = share_interval(part, late.size, np.unique(unit).size, spread)
    return estimate(part, found, Unit.SHARE, (late.size, "jobs"), How.BLOCKS)


def _least_breaking(depth: F64, late: Mask) -> Number | None:
    """Walk from the deepest queue down, as long as too many of those met so far waited too long."""
    if depth.size == 0:
        return None
    order = np.argsort(-depth, kind="stable")
    steps = np.append(np.flatnonzero(np.diff(depth[order])), order.size - 1)  # the last of each depth
    met = steps + 1
    share_late = np.cumsum(late[order])[steps] / met
    broken = np.flatnonzero((share_late > BROKEN) & (met >= min(20, order.size)))
    if broken.size == 0:
        return None
    at = steps[broken[-1]]
    return exact(float(depth[order[at]]), Unit.GPUS, int(met[broken[-1]]), "jobs")
