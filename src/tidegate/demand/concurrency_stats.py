"""Statistics of a level over time: mean, quantiles and peak with intervals, bands, and hours of the week.

Input one, for any quantity with a level: GPUs, busy GPUs, waiting jobs, requests per second.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tidegate.demand.calendar import WEEK_HOURS, hour_of_week, step_for
from tidegate.demand.estimate import How, Number, Unit, estimate, exact, trim, trimmed
from tidegate.demand.sketches import Sketch, sketch_of
from tidegate.demand.step_curve import LevelTimes, StepCurve, Window, average_by, level_times, times_between
from tidegate.demand.time_zone import Calendar
from tidegate.demand.unrecorded import Unseen, hide_unseen
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.stats.block_quantiles import quantile_interval
from tidegate.stats.blocks import Blocks, choose_blocks, count_units, sum_by, units_of
from tidegate.stats.interval import LEAST_PARTS, Interval, NoInterval
from tidegate.stats.quantile import grouped_quantiles, quantile

#: Quantiles of the document.
SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)

#: Steps that are too few to be put together.
_LEAST_STEPS = 200

#: The accuracy of sketches, which are there to draw from; numbers are exact.
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
    blocks: int  # of time, that intervals come from; 0: there are none
    block_ms: int  # how long each is: as the level's memory asks for


class Track(NamedTuple):
    """A level over time: how long each level was held, and its mean in even steps."""

    window: Window
    held: LevelTimes
    series: F64
    step_ms: int
    samples: int


def track_curve(curve: StepCurve, samples: int, unseen: Unseen = ()) -> Track:
    """Follow a curve of steps; time in which nothing was recorded does not count."""
    step_ms = step_for(curve.window, MINUTE_MS if curve.window.length_ms > HOUR_MS else 1000)
    track = Track(curve.window, level_times(curve), average_by(curve, step_ms), step_ms, samples)
    for from_ms, to_ms in unseen:
        first_ms, last_ms = from_ms - curve.window.start_ms, min(to_ms, curve.window.end_ms) - curve.window.start_ms
        track.held.time_ms[:] = np.maximum(track.held.time_ms - times_between(curve, first_ms, last_ms), 0.0)
    hide_unseen(track.series, step_ms, curve.window.start_ms, unseen)
    return track


def track_series(values: F64, step_ms: int, start_ms: int, samples: int) -> Track:
    """Follow a level that was seen in even steps; steps that were not seen (NaN) do not count."""
    seen = values[np.isfinite(values)]
    ordered = np.sort(seen)
    window = Window(start_ms, start_ms + step_ms * max(values.size, 1))
    return Track(window, LevelTimes(np.full(ordered.size, float(step_ms)), ordered), values, step_ms, samples)


def measure_levels(
    track: Track, unit: Unit, table: str, calendar: Calendar | None, *, of_queue: bool = False
) -> Levels:
    """All numbers of a level; without a calendar its hours of the week are not kept.

    A queue is empty but for some episodes, a few of which make its high quantiles: their intervals are wider.
    """
    exactly = track.held.quantiles(np.asarray(SHARES))
    middle = track.held.mean()
    series = coarser(track)
    blocks = choose_blocks(series.by_unit()) if track.samples >= LEAST_PARTS else NoInterval.FEW
    counted = 0 if isinstance(blocks, NoInterval) else blocks.number
    of_mean, *of_quantiles = _intervals(series, blocks, [middle, *exactly.tolist()], of_queue=of_queue)
    numbers = {
        f"p{round(100 * at):02d}": estimate(value, _outwards(found, track.held), unit, (counted, table), How.BLOCKS)
        for at, value, found in zip(SHARES, exactly.tolist(), of_quantiles, strict=True)
    }
    return Levels(
        unit=unit,
        mean=estimate(middle, of_mean, unit, (counted, table), How.BLOCKS),
        peak=exact(track.held.peak(), unit, track.samples, table),
        bands=cut_bands(track.held),
        week=profile_week(track, calendar) if calendar else None,
        sketch=sketch_of(track.held.value, track.held.time_ms / HOUR_MS, _ROUGH),
        step_ms=track.step_ms,
        memory=memory_of(track.series),
        blocks=counted,
        block_ms=track.window.length_ms // counted if counted else 0,
        **numbers,
    )


def _intervals(
    series: Coarse, blocks: Blocks | NoInterval, values: list[float], *, of_queue: bool
) -> list[Interval | NoInterval]:
    """Intervals of the mean and of the quantiles, from those of each block."""
    if isinstance(blocks, NoInterval):
        return [blocks] * len(values)
    sections = series.sections(blocks)
    found: list[Interval | NoInterval] = []
    for value, share in zip(values, (None, *SHARES), strict=True):
        if of_queue and share is not None:
            found.append(quantile_interval(sections, blocks, share, value))
            continue
        take = partial(quantile, share=share) if share is not None else np.mean
        parts = np.array([take(part) if part.size else np.nan for part in sections]) + value - take(series.values)
        found.append(blocks.interval(value, np.maximum(parts, 0.0)))
    return found


def _outwards(found: Interval | NoInterval, held: LevelTimes) -> Interval | NoInterval:
    """The interval up to the next levels that were held: a quantile is one of them."""
    if isinstance(found, NoInterval):
        return found
    levels = held.value[held.time_ms > 0]
    below, above = levels[levels <= found.low], levels[levels >= found.high]
    return Interval(
        float(below[-1]) if below.size else found.low,
        float(above[0]) if above.size else found.high,
    )


def memory_of(series: F64) -> float:
    """The correlation from one step to the next."""
    seen = series[np.isfinite(series)]
    if seen.size < 3:
        return 0.0
    away = seen - seen.mean()
    spread = float((away * away).sum())
    return trim(float((away[1:] * away[:-1]).sum()) / spread) if spread > 0 else 0.0


def cut_bands(held: LevelTimes) -> tuple[Band, ...]:
    """Slices of the demand between quantiles of the time."""
    total = float(held.time_ms.sum())
    marks = {0.0: 0.0, 1.0: held.peak()}
    for _, low, high in BANDS:
        for at in (low, high):
            marks.setdefault(at, float(held.quantiles(np.asarray([at]))[0]))
    return tuple(_slice(held, name, marks[low], marks[high], total) for name, low, high in BANDS)


def _slice(held: LevelTimes, name: str, low: float, high: float, total: float) -> Band:
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
    """What each hour of the week asks for; an hour that was never seen is as all of them together."""
    values, at_ms, _ = coarser(track)
    if values.size == 0:
        values, at_ms = np.zeros(1), np.zeros(1, np.int64)
    hour = hour_of_week(track.window.start_ms + at_ms, calendar)
    counts = np.bincount(hour, minlength=WEEK_HOURS)
    low, high = (grouped_quantiles(values, hour, WEEK_HOURS, at) for at in (0.1, 0.9))
    means = np.bincount(hour, weights=values, minlength=WEEK_HOURS) / np.maximum(counts, 1)
    rest = (values.mean(), quantile(values, 0.1), quantile(values, 0.9))
    told = [trimmed(np.where(counts > 0, one, other)) for one, other in zip((means, low, high), rest, strict=True)]
    return Profile(mean=told[0], p10=told[1], p90=told[2])


class Coarse(NamedTuple):
    """A level in even steps of ten minutes or more, as far as it was seen."""

    values: F64
    at_ms: I64  # when each step began, from the window's start
    length_ms: int

    @property
    def unit(self) -> I64:
        """The unit of time in which each step lies."""
        return units_of(self.at_ms, self.length_ms)

    def sections(self, blocks: Blocks) -> list[F64]:
        """The values of each block."""
        return np.split(self.values, np.searchsorted(blocks.of_units()[self.unit], np.arange(1, blocks.number)))

    def by_unit(self) -> F64:
        """The mean of each unit; NaN where nothing was seen of it."""
        units = count_units(self.length_ms)
        count = np.bincount(self.unit, minlength=units)
        sums = sum_by(self.unit, self.values, units)
        return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def coarser(track: Track) -> Coarse:
    """The series by means of ten minutes or more; what does not fill a step at the end is left out."""
    factor, values = max(_COARSE_MS // track.step_ms, 1), track.series
    kept = values[: values.size // factor * factor]
    if factor > 1 and kept.size >= _LEAST_STEPS * factor:
        values = kept.reshape(-1, factor).mean(1)
    else:
        factor = 1
    seen = np.flatnonzero(np.isfinite(values))
    return Coarse(values[seen], seen * (track.step_ms * factor), track.window.length_ms)
