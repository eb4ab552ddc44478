"""Job durations by kind and size, and what their variance means for scheduling. Input seven.

Durations of jobs that still ran, or had begun before the window, come from `survival`.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from msgspec.structs import replace

from tidegate.demand.censoring import State
from tidegate.demand.distributions import Fitted, fit_family
from tidegate.demand.estimate import (
    How,
    Number,
    Unit,
    at_most,
    estimate,
    rank_quantile,
    relative_deviation_effects,
    trim,
    variation,
)
from tidegate.demand.grouped_quantiles import Grouping, Some, in_order_by_group
from tidegate.demand.job_table import JobRows, JobTable
from tidegate.demand.sketches import Sketch, sketch_ordered
from tidegate.demand.survival import (
    WatchedDurations,
    estimate_survival,
    survival_quantile,
    survival_shape,
    survival_sketch,
)
from tidegate.demand.tables import LARGEST, SIZE_NAMES, size_of
from tidegate.model.arrays import I64
from tidegate.model.struct import Spec
from tidegate.model.units import WHOLE_MILLI
from tidegate.stats.block_quantiles import likeness
from tidegate.stats.blocks import count_units, linear_interval, sum_by, units_of
from tidegate.stats.interval import LEAST_PARTS, NoInterval


class Meaning(StrEnum):
    """What a spread of durations asks of a scheduler."""

    EVEN = "even"  # CV below 1: order matters little
    HEAVY_TAIL = "heavy_tail"  # p99 is a hundred times p50: estimates from the mean are useless
    BLOCKS_SHORT_WORK = "blocks_short_work"  # CV above 2: short jobs behind long ones need backfill or preemption
    FRAGMENTS = "fragments"  # small and uneven: leaves holes that larger jobs cannot use
    NEEDS_GANG = "needs_gang"  # more than a node: starts whole or wastes what it holds
    FEW = "few"  # too few jobs to say


class DurationSpread(Spec, frozen=True):
    """How long jobs of one kind and size run."""

    kind: str
    size: str  # GPUs of the whole job; "" for all sizes
    gpu_hours: float  # as far as was seen
    running: int  # jobs that had not ended when they were last seen
    mean: Number
    p50: Number
    p90: Number
    p99: Number
    cv: Number  # deviation over mean
    meaning: tuple[Meaning, ...]
    fitted: Fitted | None
    sketch: Sketch


def measure_durations(jobs: JobTable) -> tuple[DurationSpread, ...]:
    """Spreads of each kind: of all sizes, and of each size that occurs."""
    kinds, cells = jobs.names["kind"], jobs.cells
    size = size_of(np.rint(cells.amount * (cells.unit * WHOLE_MILLI)).astype(np.int64))
    group = cells.labels["kind"].astype(np.int64) * len(SIZE_NAMES) + size
    grouping = Grouping(group, len(kinds) * len(SIZE_NAMES))
    watched, by_unit = _watch(jobs, grouping), _sort_by_unit(jobs, grouping)
    hours = np.bincount(group, weights=jobs.cell_gpu_hours, minlength=len(watched))
    found = []
    for row, kind in enumerate(kinds):
        rows = range(row * len(SIZE_NAMES), (row + 1) * len(SIZE_NAMES))
        used = [at for at in rows if watched[at].total]
        if not used:
            continue
        whole = tuple(np.sort(np.concatenate(one)) for one in zip(*(by_unit[at] for at in used), strict=True))
        named = [("", _together([watched[at] for at in used]), hours[list(rows)].sum(), whole)]
        named += [(SIZE_NAMES[at - rows.start], watched[at], hours[at], by_unit[at]) for at in used]
        found += [_spread((kind, name), values, float(spent), units) for name, values, spent, units in named]
    return tuple(found if jobs.recorded.runtimes else map(_bounded, found))


def _bounded(spread: DurationSpread) -> DurationSpread:
    """The same, of runtimes that have waits in them: as upper bounds."""
    names = ("mean", "p50", "p90", "p99")
    return replace(spread, **{name: at_most(getattr(spread, name)) for name in names})


def _watch(jobs: JobTable, grouping: Grouping) -> list[WatchedDurations]:
    """Runtimes of each group as they were watched."""
    since_ms = jobs.watch.since_ms
    late = () if since_ms is None else (_entered(rows, since_ms) for rows in jobs.parts())
    ended, going = (in_order_by_group(map(pick, jobs.parts()), grouping) for pick in (_ended, _going))
    entered = in_order_by_group(late, grouping)
    every = (ended.every, going.every, entered.every)
    return [WatchedDurations(*parts, every) for parts in zip(ended.parts, going.parts, entered.parts, strict=True)]


def _sort_by_unit(jobs: JobTable, grouping: Grouping) -> list[tuple[I64, ...]]:
    """Durations of each group that are known, by the unit of time in which jobs were submitted."""
    first, last = (int(jobs.frame["submitted_ms"].to_numpy().min()), int(jobs.frame["submitted_ms"].to_numpy().max()))
    length_ms = last - first + 1
    units = count_units(length_ms)
    wide = Grouping((grouping.group_of[:, None] * units + np.arange(units)).ravel(), grouping.groups * units)

    def pick(rows: JobRows) -> Some:
        over = rows.take((rows.state == State.OVER) & (rows.duration_ms >= 0))
        unit = units_of(over.submitted_ms - first, length_ms)
        return over.duration_ms, (over.cell.astype(np.int64) * units + unit).astype(np.int32)

    parts = in_order_by_group(map(pick, jobs.parts()), wide).parts
    return [tuple(parts[row * units : (row + 1) * units]) for row in range(grouping.groups)]


def _ended(jobs: JobRows) -> Some:
    over = jobs if jobs.state.max(initial=State.OVER) == State.OVER else jobs.take(jobs.state == State.OVER)
    if over.duration_ms.min(initial=0) < 0:
        over = over.take(over.duration_ms >= 0)
    return over.duration_ms, over.cell


def _going(jobs: JobRows) -> Some:
    runs = np.flatnonzero(jobs.state == State.RUNS)
    runs = runs[jobs.ran_ms[runs] > 0]
    return jobs.ran_ms[runs], jobs.cell[runs]


def _entered(jobs: JobRows, since_ms: int) -> Some:
    """Ages of jobs that ran already when jobs began to be watched."""
    ran = jobs.take((jobs.state <= State.RUNS) & (jobs.ran_ms > 0))
    begin = np.where(ran.started_ms >= 0, ran.started_ms, ran.submitted_ms)
    late = np.minimum(since_ms - begin, ran.ran_ms - 1)
    return late[late > 0], ran.cell[late > 0]


def _together(parts: list[WatchedDurations]) -> WatchedDurations:
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part[:3] for part in parts), strict=True)
    ended, going, entered = (np.sort(np.concatenate(column)) for column in columns)
    return WatchedDurations(ended, going, entered, parts[0].every)


def _spread(
    of: tuple[str, str], watched: WatchedDurations, gpu_hours: float, by_unit: tuple[I64, ...]
) -> DurationSpread:
    kind, size = of
    numbers, sketch = (_of_ended if watched.whole() else _by_survival)(watched, by_unit)
    mean, p50, p90, p99, cv = numbers
    known = How.AT_LEAST not in {cv.how, p50.how}
    return DurationSpread(
        kind=kind,
        size=size,
        gpu_hours=trim(gpu_hours),
        running=watched.going_ms.size * watched.every[1],
        mean=mean,
        p50=p50,
        p90=p90,
        p99=p99,
        cv=cv,
        meaning=_meaning(size, watched.total, cv.value, p99.value / max(p50.value, 1), known=known),
        fitted=fit_family(sketch),
        sketch=sketch,
    )


#: Mean, p50, p90, p99 and deviation over mean.
_Numbers = tuple[Number, Number, Number, Number, Number]


def _by_survival(watched: WatchedDurations, by_unit: tuple[I64, ...]) -> tuple[_Numbers, Sketch]:
    survival = estimate_survival(watched)
    alike = {at: likeness(by_unit, at) for at in (0.5, 0.9, 0.99)}
    p50, p90, p99 = (survival_quantile(survival, at, Unit.MS, "jobs", alike[at]) for at in alike)
    shape = survival_shape(survival, Unit.MS, "jobs", alike[0.5])
    return (shape.mean, p50, p90, p99, shape.cv), survival_sketch(survival)


def _of_ended(watched: WatchedDurations, by_unit: tuple[I64, ...]) -> tuple[_Numbers, Sketch]:
    ordered, every = watched.ended_ms, watched.every[0]
    p50, p90, p99 = (
        rank_quantile(ordered, at, Unit.MS, "jobs", every, likeness(by_unit, at)) for at in (0.5, 0.9, 0.99)
    )
    mean, cv = _moments(by_unit, watched.total)
    return (mean, p50, p90, p99, cv), sketch_ordered(ordered, every)


def _moments(by_unit: tuple[I64, ...], samples: int) -> tuple[Number, Number]:
    """Mean and deviation over mean, and what the jobs of each unit of time add to both."""
    values = np.concatenate(by_unit)
    sizes = np.array([unit.size for unit in by_unit])
    unit, few = np.repeat(np.arange(sizes.size), sizes), (sizes > 0).sum() < LEAST_PARTS
    mean, of = float(values.mean()), (samples, "jobs")
    away = values.astype(np.float64) - mean
    deviation = float(values.std())
    cv = deviation / mean if mean > 0 else 0.0
    effects = relative_deviation_effects(away, mean, deviation)
    sure, spread = (
        NoInterval.FEW
        if few
        else linear_interval(value, sum_by(unit, added, sizes.size), sum_by(unit, np.abs(added), sizes.size))[0]
        for value, added in ((mean, away / values.size), (cv, effects))
    )
    return estimate(mean, sure, Unit.MS, of, How.BLOCKS), variation(cv, spread, of, How.BLOCKS)


def _meaning(size: str, samples: int, cv: float, tail: float, *, known: bool = True) -> tuple[Meaning, ...]:
    """What a spread means; of one that is only known to be at least so wide, not that it is even."""
    if samples < 30:
        return (Meaning.FEW,)
    said = []
    if cv < 1 and known:
        said.append(Meaning.EVEN)
    if tail >= 100:
        said.append(Meaning.HEAVY_TAIL)
    if cv > 2:
        said.append(Meaning.BLOCKS_SHORT_WORK)
    if cv > 1 and size in {"<1", "1", "2", "3-4"}:
        said.append(Meaning.FRAGMENTS)
    if size in {"9-16", "17-64", LARGEST}:
        said.append(Meaning.NEEDS_GANG)
    return tuple(said)
