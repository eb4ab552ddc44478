"""The forecast after the end of a window: bands by horizon, and how such bands did on the window's last third."""

from __future__ import annotations

import numpy as np

from tidegate.demand.estimate import Unit, trim, trimmed
from tidegate.demand.forecast import QUANTILES, LevelSeries, fill, foretell, know, learn, roll, score
from tidegate.model.arrays import F64
from tidegate.model.struct import Spec
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS

#: How far ahead.
HORIZONS_MS = (10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)

#: Steps of the series that is looked ahead from, at least.
STEP_MS = 10 * MINUTE_MS

#: A series shorter than this says too little about days.
SHORTEST_MS = 3 * DAY_MS

#: Times that weights are found again while the last third is rolled over.
_RELEARN = 2

#: How often widths are adapted meanwhile.
_ADAPT_MS = 4 * HOUR_MS


class Ahead(Spec, frozen=True):
    """Quantiles at one horizon, and how such forecasts did."""

    horizon_ms: int
    quantiles: tuple[float, ...]  # 0.05 to 0.95 by 0.05
    pinball: float
    last_value: float  # the loss of saying that nothing changes
    seasonal_naive: float  # of saying what was a week (or a day) before
    coverage: float  # of the 90 % bands, rolling over the last third
    origins: int


class Outlook(Spec, frozen=True):
    """What is to come."""

    of: str  # wanted GPUs or requests
    unit: Unit
    end_ms: int  # from here on
    step_ms: int
    last: float
    ahead: tuple[Ahead, ...]


def look_ahead(of: str, unit: Unit, values: F64, step_ms: int, end_ms: int) -> Outlook | None:
    """Bands for what follows a series; None where it is too short to know its days."""
    if values.size * step_ms < SHORTEST_MS or step_ms > HOUR_MS:
        return None
    series = _coarser(LevelSeries(fill(values), step_ms, ~np.isfinite(values)))
    return Outlook(
        of=of,
        unit=unit,
        end_ms=end_ms,
        step_ms=series.step_ms,
        last=trim(float(series.values[-1])),
        ahead=tuple(_ahead(series, horizon) for horizon in HORIZONS_MS if horizon >= series.step_ms),
    )


def _coarser(series: LevelSeries) -> LevelSeries:
    """Means of at least ten minutes; what does not fill a step at the beginning is left out."""
    factor = max(STEP_MS // series.step_ms, 1)
    kept = series.values[series.values.size % factor :]
    guessed = None if series.guessed is None else series.guessed[series.values.size % factor :]
    unsure = None if guessed is None else np.asarray(guessed.reshape(-1, factor).any(1), np.bool_)
    return LevelSeries(kept.reshape(-1, factor).mean(1), series.step_ms * factor, unsure)


def _ahead(series: LevelSeries, horizon_ms: int) -> Ahead:
    known = know(series, horizon_ms)
    last = series.values.size - 1
    recipe = learn(known, last, series.steps(DAY_MS))
    first = series.values.size - series.values.size // 3
    relearn_ms = max((series.values.size - first) * series.step_ms // _RELEARN, DAY_MS)
    rolled = roll(series, horizon_ms, first, relearn_ms, _ADAPT_MS)
    # With the widths learnt on the last third: the forecast is the one that was scored.
    told = foretell(recipe, known, series.values[-1:], np.array([last]), rolled.widen)[0]
    judged = score(rolled, series)
    return Ahead(
        horizon_ms=horizon_ms,
        quantiles=trimmed(told, 6),
        pinball=trim(judged.pinball),
        last_value=trim(judged.last_value),
        seasonal_naive=trim(judged.seasonal_naive),
        coverage=trim(judged.coverage),
        origins=judged.origins,
    )


def band(outlook: Outlook, ahead_ms: int) -> tuple[float, float, float]:
    """The 90 % band and its middle at any time up to the farthest horizon; by the root of the time in between."""
    marks = np.sqrt([0.0, *(one.horizon_ms for one in outlook.ahead)])
    rows = np.array([[outlook.last] * QUANTILES.size, *(one.quantiles for one in outlook.ahead)])
    at = np.sqrt(min(max(ahead_ms, 0), outlook.ahead[-1].horizon_ms))
    low, middle, high = (float(np.interp(at, marks, rows[:, column])) for column in (0, 9, 18))
    return low, middle, high
