"""When things arrive: how many, and how unevenly at every length of time. A part of input three.

Independent arrivals have a variance of counts that equals the mean, whatever the window (IDC 1); more is burstiness,
and more still in longer windows means that rates themselves change.
Must not know: what arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.demand.curves import Window
from tidegate.demand.events import MOST_EXACT
from tidegate.demand.jobs import Jobs
from tidegate.demand.numbers import CONFIDENCE, How, Number, Unit, exact, trim
from tidegate.demand.ordering import Grouping, in_order_by_group
from tidegate.model.columns import F64, I64
from tidegate.model.spec import Spec
from tidegate.model.units import HOUR_MS, MINUTE_MS, SECOND_MS

#: Windows in which arrivals are counted.
WINDOWS_MS = (SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS)

#: Windows that are counted at most: of very many arrivals, over all groups together; of one series.
MOST_BINS, MOST_SINGLE = 1 << 21, 1 << 24

_DRAWS, _BLOCKS = 200, 12


class Dispersion(Spec, frozen=True):
    """How uneven arrivals are in windows of one length."""

    window_ms: int
    idc: Number  # variance over mean of the counts: 1 for independent arrivals
    peak_to_mean: Number


class Arrivals(Spec, frozen=True):
    """When things arrive."""

    unit: Unit
    count: int
    per_hour: Number
    gap_cv: Number | None  # of the times between arrivals; None where they were only counted in windows
    dispersion: tuple[Dispersion, ...]


def measure_by_group(jobs: Jobs, groupings: Sequence[Grouping], window: Window) -> list[list[Arrivals | None]]:
    """Arrivals of each group of each grouping: one by one, or where they are very many by counting them in windows."""
    if len(jobs) > MOST_EXACT:
        return _count_by_group(jobs, groupings, window)
    return [[_measure(part, window) for part in _in_order(jobs, one, window)] for one in groupings]


def _in_order(jobs: Jobs, grouping: Grouping, window: Window) -> list[I64]:
    parts = (rows.submitted_from(window.start_ms) for rows in jobs.parts())
    return in_order_by_group(((rows.submitted_ms - window.start_ms, rows.cell) for rows in parts), grouping).parts


def _measure(since_ms: I64, window: Window) -> Arrivals | None:
    if since_ms.size == 0:
        return None
    return measure_arrivals(since_ms + window.start_ms, window, Unit.JOBS, "jobs", ordered=True)


def _count_by_group(jobs: Jobs, groupings: Sequence[Grouping], window: Window) -> list[list[Arrivals | None]]:
    """Counts in the shortest windows that are not too many; gaps are not looked at."""
    bases = [_base_for(grouping, window) for grouping in groupings]
    bins = [window.length_ms // base + 1 for base in bases]
    sums = [np.zeros(grouping.groups * many, np.int64) for grouping, many in zip(groupings, bins, strict=True)]
    firsts = [grouping.group_of * np.int64(many) for grouping, many in zip(groupings, bins, strict=True)]
    for each in jobs.parts():
        rows = each.submitted_from(window.start_ms)
        since, cell = rows.submitted_ms - window.start_ms, rows.cell.astype(np.intp)
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


def _from_counts(sums: F64, base_ms: int, window: Window) -> Arrivals | None:
    total = int(sums.sum())
    if total == 0:
        return None
    hours = max(window.length_ms, 1) / HOUR_MS
    blocks = np.array([part.sum() for part in np.array_split(sums, _BLOCKS)]) * (_BLOCKS / hours)
    starts = np.arange(sums.size, dtype=np.int64) * base_ms
    return Arrivals(
        unit=Unit.JOBS,
        count=total,
        per_hour=_by_blocks(total / hours, blocks, Unit.JOBS, total, "jobs"),
        gap_cv=None,
        dispersion=disperse(starts, sums, base_ms, window, "jobs"),
    )


def measure_arrivals(at_ms: I64, window: Window, unit: Unit, table: str, *, ordered: bool = False) -> Arrivals:
    """Arrivals one by one."""
    times = at_ms if ordered else np.sort(at_ms)
    gaps = np.diff(times)
    spread = float(gaps.std() / gaps.mean()) if gaps.size > 1 and gaps.mean() > 0 else None
    return Arrivals(
        unit=unit,
        count=int(times.size),
        per_hour=_rate(times, window, unit, table),
        gap_cv=None if spread is None else _cv(gaps, spread, table),
        dispersion=disperse(times - window.start_ms, np.ones(times.size), SECOND_MS, window, table),
    )


def _rate(times: I64, window: Window, unit: Unit, table: str) -> Number:
    hours = max(window.length_ms, 1) / HOUR_MS
    edges = np.linspace(window.start_ms, window.end_ms, _BLOCKS + 1)
    counts = np.diff(np.searchsorted(times, edges)) * (_BLOCKS / hours)
    return _by_blocks(times.size / hours, counts, unit, times.size, table)


def _cv(gaps: I64, spread: float, table: str) -> Number:
    """With the interval of parts of the gaps: each part alone says how sure the whole is."""
    parts = [part for part in np.array_split(gaps, _BLOCKS) if part.size > 1 and part.mean() > 0]
    values = np.array([part.std() / part.mean() for part in parts])
    return _by_blocks(spread, values, Unit.RATIO, gaps.size, table)


def _by_blocks(value: float, blocks: F64, unit: Unit, samples: int, table: str) -> Number:
    """The value with the spread that means of as many blocks have, from one normal quantile on each side."""
    known = blocks[np.isfinite(blocks)]
    half = 1.645 * float(known.std(ddof=1)) / known.size**0.5 if known.size > 1 else 0.0
    low, high = trim(max(value - half, 0.0)), trim(value + half)
    return Number(value=trim(value), unit=unit, samples=samples, low=low, high=high, how=How.BLOCKS, table=table)


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
    low, high = _redraw_idc(sums)
    idc = float(sums.var() / middle)
    return Dispersion(
        window_ms=length_ms,
        idc=Number(
            value=trim(idc),
            unit=Unit.RATIO,
            samples=sums.size,
            low=trim(min(low, idc)),
            high=trim(max(high, idc)),
            how=How.BLOCKS,
            table=table,
        ),
        peak_to_mean=exact(float(sums.max() / middle), Unit.RATIO, sums.size, table),
    )


def _redraw_idc(sums: F64) -> tuple[float, float]:
    """The interval of variance over mean when blocks of windows are drawn again, always by the same draws."""
    blocks = min(max(_BLOCKS, 2), sums.size)
    edges = np.linspace(0, sums.size, blocks + 1).astype(np.int64)[:-1]
    ones = np.add.reduceat(np.ones(sums.size), edges)
    firsts, squares = np.add.reduceat(sums, edges), np.add.reduceat(sums * sums, edges)
    picks = np.random.default_rng(blocks).multinomial(blocks, np.full(blocks, 1 / blocks), size=_DRAWS)
    count, first, square = picks @ ones, picks @ firsts, picks @ squares
    with np.errstate(invalid="ignore", divide="ignore"):
        idc = (square / count - (first / count) ** 2) / (first / count)
    tail = (1 - CONFIDENCE) / 2
    known = idc[np.isfinite(idc)]
    low, high = np.quantile(known, [tail, 1 - tail]) if known.size else (0.0, 0.0)
    return float(low), float(high)
