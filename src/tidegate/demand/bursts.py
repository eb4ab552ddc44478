"""Bursts: episodes above the band, the part of them that is noise, and ceilings as token buckets.

Noise is an episode that is over before capacity that was started for it could be used: shorter than the measured
cold-start window. Without that measurement nothing is called noise.
"""

from __future__ import annotations

import numpy as np

from tidegate.demand.concurrency import Mask
from tidegate.demand.estimate import Number, Unit, exact, trim
from tidegate.demand.step_curve import Episodes, StepCurve, Window, episodes_above
from tidegate.model.arrays import F64
from tidegate.model.struct import Spec

#: Ceilings are given for these rates: multiples of the mean.
RATES = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)

#: Episodes that are listed: the largest.
MOST_TOLD = 12


#: What a level times a time is, and how many of it an hour at level 1 makes.
AREAS = {Unit.GPUS: (Unit.GPU_HOURS, 1.0), Unit.REQUESTS_PER_S: (Unit.REQUESTS, 3600.0)}


class Burst(Spec, frozen=True):
    """An episode above the band."""

    start_ms: int
    length_ms: int
    height: float  # above the band
    area: float  # above the band, in GPU-hours or requests
    noise: bool  # over before capacity started for it could have been used


class Bursts(Spec, frozen=True):
    """Episodes above the band."""

    above: float  # the band's upper edge
    unit: Unit
    cold_start_ms: int | None  # the measured window that parts noise from burst; None: not measured
    episodes: Number
    area: Number  # of all of them, in GPU-hours or requests
    noise: Number | None  # the share of the episodes that is noise
    noise_area: Number | None
    longest_ms: Number
    height: float  # above the band, at most, of what is no noise
    noise_height: float  # of what is
    largest: tuple[Burst, ...]


class Ceiling(Spec, frozen=True):
    """A token bucket that lets all of the demand through: no more than `rate` on average, and `burst` at once."""

    rate: float
    burst: float
    rate_unit: Unit
    burst_unit: Unit


def find_bursts(curve: StepCurve, above: float, cold_start_ms: int | None, unit: Unit, table: str) -> Bursts:
    """What rose above a level."""
    found = episodes_above(curve, above)
    count = found.start_ms.size
    short = _is_noise(found, curve.window, cold_start_ms)
    measured = cold_start_ms is not None
    area_unit, factor = AREAS[unit]
    area = found.area * factor
    return Bursts(
        above=trim(above),
        unit=unit,
        cold_start_ms=cold_start_ms,
        episodes=exact(count, Unit.RATIO, count, table),
        area=exact(float(area.sum()), area_unit, count, table),
        noise=exact(float(short.mean()) if count else 0.0, Unit.SHARE, count, table) if measured else None,
        noise_area=exact(float(area[short].sum()), area_unit, count, table) if measured else None,
        longest_ms=exact(float(found.length_ms.max(initial=0)), Unit.MS, count, table),
        height=trim(float(found.height[~short].max(initial=0.0))),
        noise_height=trim(float(found.height[short].max(initial=0.0))),
        largest=_largest(found._replace(area=area), curve.window, short),
    )


def _is_noise(found: Episodes, window: Window, cold_start_ms: int | None) -> Mask:
    """Which were over too soon; how long one lasts that the window cuts off is not known."""
    whole = (found.start_ms > 0) & (found.start_ms + found.length_ms < window.length_ms)
    return np.asarray(whole & (found.length_ms < (cold_start_ms or 0)), np.bool_)


def _largest(found: Episodes, window: Window, noise: Mask) -> tuple[Burst, ...]:
    """Those of the largest area, in order of time."""
    rows = np.sort(np.lexsort((found.start_ms, -found.area))[:MOST_TOLD])
    return tuple(
        Burst(
            start_ms=window.start_ms + int(found.start_ms[row]),
            length_ms=int(found.length_ms[row]),
            height=trim(float(found.height[row])),
            area=trim(float(found.area[row])),
            noise=bool(noise[row]),
        )
        for row in rows.tolist()
    )


def ceilings(series: F64, step_ms: int, units: tuple[Unit, Unit], per_ms: int) -> tuple[Ceiling, ...]:
    """For each rate the smallest bucket that never overflows; a bucket counts levels times `per_ms`."""
    seen = series[np.isfinite(series)]  # what was not seen neither fills a bucket nor empties it
    middle = float(seen.mean()) if seen.size else 0.0
    if middle <= 0:
        return ()
    rates = [middle * factor for factor in RATES if middle * factor < seen.max()] + [float(seen.max())]
    return tuple(
        Ceiling(
            rate=trim(rate), burst=trim(_bucket(seen, rate) * step_ms / per_ms), rate_unit=units[0], burst_unit=units[1]
        )
        for rate in rates
    )


def _bucket(series: F64, rate: float) -> float:
    """The most that ever piles up when no more than `rate` is taken away in each step."""
    pile = np.cumsum(series - rate)
    lowest = np.minimum(np.minimum.accumulate(pile), 0.0)
    return max(float((pile - np.concatenate(([0.0], lowest[:-1]))).max(initial=0.0)), 0.0)
