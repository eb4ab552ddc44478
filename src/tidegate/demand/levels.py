"""How much is asked for at once: mean, quantiles and peak with intervals, bands, the spread, and the hours of the week.

Input one, for any quantity that has a level over time: GPUs, busy GPUs, waiting jobs, requests per second.
Must not know: which table a level came from.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from tidegate.demand.calendar import WEEK_HOURS, block_length, hour_of_week, step_for
from tidegate.demand.curves import Curve, Held, Window, average_by, hold, mean, peak, quantiles
from tidegate.demand.numbers import Number, Unit, estimate, exact, multiply, trim, trimmed
from tidegate.demand.sketches import Sketch, sketch_of
from tidegate.demand.tables import Calendar
from tidegate.model.columns import F64, I64
from tidegate.model.spec import Spec
from tidegate.model.units import HOUR_MS, MINUTE_MS

#: Quantiles that are told.
SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)

#: Times that time is drawn again for an interval.
DRAWS = 200

_BINS = 200

#: The sketch is there to draw from; what is told is exact.
_ROUGH = 0.05

#: Steps that are fine enough for intervals and for the hours of the week.
_COARSE_MS = 10 * MINUTE_MS

#: Where bands meet, as shares of the time: floor, base, swing, burst, spike.
BANDS = (("floor", 0.0, 0.05), ("base", 0.05, 0.5), ("swing", 0.5, 0.95), ("burst", 0.95, 0.99), ("spike", 0.99, 1.0))


class Band(Spec, frozen=True):
    """A slice of the demand between two levels."""

    name: str
    low: float
    high: float
    demand: float  # what is asked for inside the slice, in units times hours
    used_share: float  # of (high - low) over the whole window: what is bought for it and used
    active_share: float  # of the time in which anything of it is asked for


class Profile(Spec, frozen=True):
    """By hour of the week, 168 each; an hour that was never seen has the overall value."""

    mean: tuple[float, ...]
    p10: tuple[float, ...]
    p90: tuple[float, ...]


class Levels(Spec, frozen=True):
    """A level over time, in numbers."""

    unit: Unit
    mean: Number
    p05: Number
    p25: Number
    p50: Number
    p75: Number
    p90: Number
    p95: Number
    p99: Number
    peak: Number
    bands: tuple[Band, ...]
    week: Profile | None  # None: not kept
    sketch: Sketch  # of time at each level, in hours
    step_ms: int
    memory: float  # how much of a deviation is left one step later: the correlation from step to step


class Track(NamedTuple):
    """A level over time: how long each level was held, and its mean in even steps."""

    window: Window
    held: Held
    series: F64
    step_ms: int
    samples: int


def track_curve(curve: Curve, samples: int) -> Track:
    """Follow a curve of steps."""
    step_ms = step_for(curve.window, MINUTE_MS if curve.window.length_ms > HOUR_MS else 1000)
    return Track(curve.window, hold(curve), average_by(curve, step_ms), step_ms, samples)


def track_series(values: F64, step_ms: int, start_ms: int, samples: int) -> Track:
    """Follow a level that was seen in even steps; steps that were not seen (NaN) do not count."""
    seen = values[np.isfinite(values)]
    ordered = np.sort(seen)
    window = Window(start_ms, start_ms + step_ms * max(values.size, 1))
    return Track(window, Held(np.full(ordered.size, float(step_ms)), ordered), values, step_ms, samples)


def measure_levels(track: Track, unit: Unit, table: str, calendar: Calendar | None, seed: int) -> Levels:
    """All numbers of a level; without a calendar its hours of the week are not kept."""
    draws, own = redraw(track, seed)
    exactly = quantiles(track.held, np.asarray(SHARES))
    blocks = max(1, round(track.window.length_ms / block_length(track.window)))
    numbers = {
        f"p{round(100 * at):02d}": estimate(
            float(value), np.maximum(value + draws[:, row] - own[row], 0.0), unit, blocks, table
        )
        for row, (at, value) in enumerate(zip(SHARES, exactly.tolist(), strict=True))
    }
    middle, top = mean(track.held), peak(track.held)
    return Levels(
        unit=unit,
        mean=estimate(middle, np.maximum(middle + draws[:, -1] - own[-1], 0.0), unit, blocks, table),
        peak=exact(top, unit, track.samples, table),
        bands=cut_bands(track.held),
        week=profile_week(track, calendar) if calendar else None,
        sketch=sketch_of(track.held.value, track.held.time_ms / HOUR_MS, _ROUGH),
        step_ms=track.step_ms,
        memory=memory_of(track.series),
        **numbers,
    )


def memory_of(series: F64) -> float:
    """The correlation from one step to the next."""
    seen = series[np.isfinite(series)]
    if seen.size < 3:
        return 0.0
    away = seen - seen.mean()
    spread = float((away * away).sum())
    return trim(float((away[1:] * away[:-1]).sum()) / spread) if spread > 0 else 0.0


def redraw(track: Track, seed: int) -> tuple[F64, F64]:
    """Quantiles and mean of the series with its blocks drawn again, and those of the series itself."""
    values, step_ms = _coarser(track)
    seen = np.isfinite(values)
    if not seen.any():
        nothing = np.zeros(len(SHARES) + 1)
        return np.tile(nothing, (DRAWS, 1)), nothing
    block = (np.arange(values.size) * step_ms // block_length(track.window)).astype(np.int64)[seen]
    values = values[seen]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS)))
    row = np.minimum(np.searchsorted(edges, values, side="left"), edges.size - 1)
    count = int(block.max()) + 1
    table = np.bincount(block * edges.size + row, minlength=count * edges.size).reshape(count, edges.size)
    sums = np.bincount(block, weights=values, minlength=count).astype(np.float64, copy=False)
    picks = _picks(count, seed)
    counts, totals = multiply(picks, table.astype(np.float64)), multiply(picks, sums)
    own = _read(table.sum(0, dtype=np.float64)[None], np.asarray([sums.sum()]), edges)[0]
    return _read(counts, totals, edges), own


@cache
def _picks(count: int, seed: int) -> F64:
    """How often each block is drawn, for each draw; as floats, because products of integers are slow."""
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(np.float64)


def _read(counts: F64, sums: F64, edges: F64) -> F64:
    tops = np.cumsum(counts, axis=1)
    total = np.maximum(tops[:, -1:], 1)
    at = [edges[np.minimum((tops < share * total).sum(axis=1), edges.size - 1)] for share in SHARES]
    return np.stack([*at, sums / total[:, 0]], axis=1)


def cut_bands(held: Held) -> tuple[Band, ...]:
    """Slices of the demand between quantiles of the time."""
    total = float(held.time_ms.sum())
    top = peak(held)
    marks = {0.0: 0.0, 1.0: top}
    for _, low, high in BANDS:
        for at in (low, high):
            marks.setdefault(at, float(quantiles(held, np.asarray([at]))[0]))
    return tuple(_slice(held, name, marks[low], marks[high], total) for name, low, high in BANDS)


def _slice(held: Held, name: str, low: float, high: float, total: float) -> Band:
    inside = float((np.clip(held.value - low, 0.0, high - low) * held.time_ms).sum())
    active = float(held.time_ms[held.value > low].sum()) if high > low else 0.0
    bought = (high - low) * total
    return Band(
        name=name,
        low=trim(low),
        high=trim(high),
        demand=trim(inside / HOUR_MS),
        used_share=trim(inside / bought) if bought > 0 else 0.0,
        active_share=trim(active / total) if total > 0 else 0.0,
    )


def profile_week(track: Track, calendar: Calendar) -> Profile:
    """What each hour of the week asks for."""
    values, step_ms = _coarser(track)
    seen = np.isfinite(values)
    at_ms = track.window.start_ms + np.arange(values.size, dtype=np.int64)[seen] * step_ms
    values = values[seen]
    if values.size == 0:
        values, at_ms = np.zeros(1), np.zeros(1, np.int64)
    hour = hour_of_week(at_ms, calendar)
    counts = np.bincount(hour, minlength=WEEK_HOURS)
    order = np.lexsort((values, hour))
    first = np.cumsum(counts) - counts
    low, high = (_pick(values, order, first, counts, at) for at in (0.1, 0.9))
    means = np.bincount(hour, weights=values, minlength=WEEK_HOURS) / np.maximum(counts, 1)
    return Profile(mean=trimmed(np.where(counts > 0, means, values.mean())), p10=trimmed(low), p90=trimmed(high))


def _pick(values: F64, order: I64, first: I64, counts: I64, at: float) -> F64:
    """The quantile of each hour; an hour that was not seen has that of all hours."""
    row = first + np.maximum(np.ceil(at * counts) - 1, 0).astype(np.int64)
    inside: F64 = values[order][np.minimum(row, values.size - 1)]
    return np.where(counts > 0, inside, np.quantile(values, at))


def _coarser(track: Track) -> tuple[F64, int]:
    """The series by means of ten minutes or more; what does not fill a step at the end is left out."""
    factor = max(_COARSE_MS // track.step_ms, 1)
    kept = track.series[: track.series.size // factor * factor]
    if factor == 1 or kept.size < _BINS * factor:
        return track.series, track.step_ms
    return kept.reshape(-1, factor).mean(1), track.step_ms * factor
