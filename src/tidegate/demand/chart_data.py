"""Data of the charts of a demand model: series and points."""

from __future__ import annotations

import numpy as np

from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.estimate import trimmed
from tidegate.demand.forecast_report import Outlook, band
from tidegate.demand.sketches import quantiles, weight_of
from tidegate.model.struct import Spec
from tidegate.model.units import HOUR_MS

#: Less than two days show no week.
_LEAST_HOURS = 48


class WeekCurve(Spec, frozen=True):
    """The usual week, hour by hour."""

    mean: tuple[float, ...]
    p10: tuple[float, ...]
    p90: tuple[float, ...]
    peak: float  # for a common scale


class DurationCurve(Spec, frozen=True):
    """For how much of the time demand is at or above a level: where bands come from."""

    share: tuple[float, ...]  # of the time
    level: tuple[float, ...]  # that is reached or exceeded
    bands: tuple[tuple[str, float, float], ...]


class BandPoint(Spec, frozen=True):
    """What is to come, at one time."""

    at_ms: int
    low: float
    middle: float
    high: float


def week_curve(levels: Levels) -> WeekCurve | None:
    """The usual week of a level; None where it was not kept, or where hardly any of it was seen."""
    if levels.week is None or weight_of(levels.sketch) < _LEAST_HOURS:
        return None
    return WeekCurve(mean=levels.week.mean, p10=levels.week.p10, p90=levels.week.p90, peak=max(levels.week.p90))


def duration_curve(levels: Levels, points: int = 101) -> DurationCurve:
    """The level over the share of the time that it is reached: the peak at 0, what is always there at 1."""
    share = np.linspace(0.0, 1.0, points)
    return DurationCurve(
        share=trimmed(share),
        level=trimmed(quantiles(levels.sketch, 1 - share)),
        bands=tuple((one.name, one.low, one.high) for one in levels.bands),
    )


def outlook_points(outlook: Outlook, every_ms: int = HOUR_MS) -> tuple[BandPoint, ...]:
    """The band from the end of the window to the farthest horizon."""
    found = []
    for ahead in range(0, outlook.ahead[-1].horizon_ms + 1, every_ms):
        low, middle, high = band(outlook, ahead)
        found.append(BandPoint(at_ms=outlook.end_ms + ahead, low=low, middle=middle, high=high))
    return tuple(found)
