"""Arrivals: their rate, and how uneven they are in windows of every length (index of dispersion). Part of input three.

Counts of independent arrivals have a variance equal to their mean (IDC 1). A larger one is burstiness; one that grows
with the window means that the rate itself changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidegate.demand.concurrency import MOST_EXACT
from tidegate.demand.estimate import How, Number, Unit, estimate, exact, relative_deviation_effects
from tidegate.demand.grouped_quantiles import Grouping, Some, in_order_by_group
from tidegate.demand.job_table import JobTable
from tidegate.demand.step_curve import Window
from tidegate.demand.unrecorded import Unseen, on_seen_clock, seen_window
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tidegate.stats.blocks import count_units, linear_interval, sum_by, unit_widths, units_of
from tidegate.stats.interval import NoInterval

#: Windows in which arrivals are counted.
WINDOWS_MS = (SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS)

#: Windows that are counted at most: of very many arrivals, over all groups together; of one series.
MOST_BINS, MOST_SINGLE = 1 << 21, 1 << 24


#: Pairs of arrivals in one window, from which on dispersion has an interval: it tells nothing but how many there are.
_LEAST_PAIRS = 10


class Dispersion(Spec, frozen=True):
    """How uneven arrivals are in windows of one length."""

    window_ms: int
    idc: Number  # variance over mean of the counts: 1 for independent arrivals
    peak_to_mean: Number


class ArrivalStats(Spec, frozen=True):
    """When things arrive."""

    unit: Unit
    count: int
    per_hour: Number
    gap_cv: Number | None  # of the times between arrivals; None where they were only counted in windows
    dispersion: tuple[Dispersion, ...]


class _Came(NamedTuple):
    """When jobs came, by a clock that stands still while nothing is recorded."""

    jobs: JobTable
    start_ms: int
    window: Window  # by that clock
    unseen: Unseen

    def parts(self) -> Iterator[Some]:
        """Times from the window's start and cells, some jobs at a time."""
        for each in self.jobs.parts():
            rows = each.submitted_from(self.start_ms)
            yield on_seen_clock(rows.submitted_ms, self.unseen) - self.window.start_ms, rows.cell


def measure_by_group(
    jobs: JobTable, groupings: Sequence[Grouping], window: Window, unseen: Unseen = ()
) -> list[list[ArrivalStats | None]]:
    """Arrivals of each group of each grouping: one by one, or where they are very many by counting them in windows."""
    came = _Came(jobs, window.start_ms, seen_window(window, unseen), unseen)
    if len(jobs) > MOST_EXACT:
        return _count_by_group(came, groupings)
    in_order = [in_order_by_group(came.parts(), one).parts for one in groupings]
    return [[_measure(part, came.window) for part in parts] for parts in in_order]


def _measure(since_ms: I64, window: Window) -> ArrivalStats | None:
    if since_ms.size == 0:
        return None
    return measure_arrivals(since_ms + window.start_ms, window, Unit.JOBS, "jobs", ordered=True)


def _count_by_group(came: _Came, groupings: Sequence[Grouping]) -> list[list[ArrivalStats | None]]:
    """Counts in the shortest windows that are not too many; gaps are not looked at."""
    window = came.window
    bases = [_base_for(grouping, window) for grouping in groupings]
    bins = [window.length_ms // base + 1 for base in bases]
    sums = [np.zeros(grouping.groups * many, np.int64) for grouping, many in zip(groupings, bins, strict=True)]
    firsts = [grouping.group_of * np.int64(many) for grouping, many in zip(groupings, bins, strict=True)]
    for since, cells in came.parts():
        cell = cells.astype(np.intp)
        bin_of = {base: since // base for base in set(bases)}  # to divide takes longest
        for base, first, counts in zip(bases, firsts, sums, strict=True):
            row = first.take(cell, mode="clip")
            row += bin_of[base]
            np.add.at(counts, row, 1)
    return [
        [_from_counts(part, base, window) for part in counts.reshape(-1, many).astype(np.float64)]
        for base, many, counts in zip(bases, bins, sums, strict=True)
    ]


def _base_for(grouping: Grouping, window: Window) -> int:
    return next((length for length in WINDOWS_MS if window.length_ms // length * grouping.groups <= MOST_BINS), HOUR_MS)


def _from_counts(sums: F64, base_ms: int, window: Window) -> ArrivalStats | None:
    starts = np.arange(sums.size, dtype=np.int64) * base_ms
    return count_arrivals(starts, sums, base_ms, window, Unit.JOBS, "jobs") if sums.sum() else None


def count_arrivals(
    from_start_ms: I64, counts: F64, base_ms: int, window: Window, unit: Unit, table: str
) -> ArrivalStats:
    """Arrivals that were only counted: nothing is known below the windows they were counted in."""
    return ArrivalStats(
        unit=unit,
        count=round(float(counts.sum())),
        per_hour=measure_rate(from_start_ms, counts, window, unit, table),
        gap_cv=None,
        dispersion=disperse(from_start_ms, counts, base_ms, window, table),
    )


def measure_arrivals(at_ms: I64, window: Window, unit: Unit, table: str, *, ordered: bool = False) -> ArrivalStats:
    """Arrivals one by one."""
    times = (at_ms if ordered else np.sort(at_ms)) - window.start_ms
    ones = np.ones(times.size)
    return ArrivalStats(
        unit=unit,
        count=int(times.size),
        per_hour=measure_rate(times, ones, window, unit, table),
        gap_cv=_cv(times, window, table),
        dispersion=disperse(times, ones, SECOND_MS, window, table),
    )


def measure_rate(from_start_ms: I64, counts: F64, window: Window, unit: Unit, table: str) -> Number:
    """Arrivals in an hour, and how many more or fewer each unit of time had than the mean."""
    length_ms, total = max(window.length_ms, 1), float(counts.sum())
    widths = unit_widths(length_ms)
    by_unit = sum_by(units_of(from_start_ms, length_ms), counts, widths.size)
    effects = (by_unit - total * widths / length_ms) * (HOUR_MS / length_ms)
    return _by_time(total * HOUR_MS / length_ms, effects, unit, (round(total), table))


def _cv(times: I64, window: Window, table: str) -> Number | None:
    """The deviation of the gaps over their mean."""
    gaps = np.diff(times).astype(np.float64)
    if gaps.size < 2 or gaps.mean() <= 0:
        return None
    mean, deviation = float(gaps.mean()), float(gaps.std())
    effects = relative_deviation_effects(gaps - mean, mean, deviation)
    by_unit = sum_by(units_of(times[1:], window.length_ms), effects, count_units(window.length_ms))
    return _by_time(deviation / mean, by_unit, Unit.RATIO, (gaps.size, table))


def _by_time(value: float, effects: F64, unit: Unit, of: tuple[int, str]) -> Number:
    interval, _ = linear_interval(value, effects)
    return estimate(value, interval, unit, of, How.BLOCKS)


def disperse(from_start_ms: I64, counts: F64, base_ms: int, window: Window, table: str) -> tuple[Dispersion, ...]:
    """Counts in windows of every length from the base's on; only windows that were seen whole count."""
    found = []
    usable = [length for length in WINDOWS_MS if length >= base_ms and length % base_ms == 0]
    sums: F64 | None = None
    last_ms = 0
    for length in usable:
        whole = window.length_ms // length
        if whole < 2 or whole > MOST_SINGLE:
            continue
        if sums is None:
            sums = np.bincount(from_start_ms // length, weights=counts, minlength=whole).astype(np.float64, copy=False)
        else:
            factor = length // last_ms
            sums = np.add.reduceat(sums, np.arange(0, sums.size, factor))
        last_ms = length
        found.append(_disperse(sums[:whole], length, table))
    return tuple(found)


def _disperse(sums: F64, length_ms: int, table: str) -> Dispersion:
    middle = float(sums.mean())
    if middle <= 0:
        nothing = exact(0.0, Unit.RATIO, sums.size, table)
        return Dispersion(window_ms=length_ms, idc=nothing, peak_to_mean=nothing)
    idc = float(sums.var() / middle)
    found, _ = linear_interval(idc, _idc_effects(sums, length_ms, idc))
    pairs = max(float((sums * (sums - 1)).sum()), float(sums.sum()) * middle) / 2  # that came, or would by chance
    return Dispersion(
        window_ms=length_ms,
        idc=estimate(
            idc, found if pairs >= _LEAST_PAIRS else NoInterval.FEW, Unit.RATIO, (sums.size, table), How.BLOCKS
        ),
        peak_to_mean=exact(float(sums.max() / middle), Unit.RATIO, sums.size, table),
    )


def _idc_effects(sums: F64, length_ms: int, idc: float) -> F64:
    """What each unit of time adds to the variance over the mean; NaN where no window begins in it."""
    units = count_units(sums.size * length_ms)
    edges = np.searchsorted(units_of(np.arange(sums.size) * length_ms, sums.size * length_ms), np.arange(units))
    counts = np.diff(np.append(edges, sums.size))
    used, mean = counts > 0, float(sums.mean())
    firsts, squares = (np.add.reduceat(values, edges[used]) for values in (sums, sums * sums))
    around = squares - 2 * mean * firsts + counts[used] * mean**2  # about the mean of the whole
    effects = np.full(units, np.nan)
    effects[used] = (around - idc * firsts) / (mean * sums.size)
    return effects
