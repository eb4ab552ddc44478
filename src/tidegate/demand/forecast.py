"""Forecast of a series at a horizon: quantiles, from its last value, its recent level and its seasons.

The change until the horizon is regressed on what is known: the last hour and day against the last value, and the change
over the same hours yesterday, on the days before and last week. Weights are least absolute deviations on the past; how
far they are trusted, and whether widths follow the level and recent unrest, is decided on parts of the past that the
weights have not seen (cross-validation). Quantiles are those of the errors there; their widths adapt to the truth as it
arrives (adaptive conformal inference; Gibbs and Candes, 2021). No forecast reads anything after its origin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.demand.concurrency import Mask
from tidegate.demand.estimate import multiply
from tidegate.model.arrays import F64, I64
from tidegate.model.units import DAY_MS, HOUR_MS
from tidegate.stats.quantile import quantiles

#: Quantiles of a forecast.
QUANTILES: F64 = np.arange(1, 20) / 20

#: The share of the truth that lies between the outermost of them.
COVERAGE = 0.9

#: Days of the past that weights are found on, and rows of them at most.
_MEMORY_DAYS, _MOST_ROWS = 21, 2000

_FOLDS, _ROUNDS, _RIDGE = 5, 8, 0.1

#: Parts of the weights that are tried: 0 is the last value alone.
_TRUST = (0.0, 0.25, 0.5, 0.75, 1.0)

#: What does better by less than this part is not better.
_BETTER = 0.995

#: A scale is never below this part of the usual error.
_LEAST_SCALE = 0.3

#: Widths grow by so much (as a logarithm) in a day of nothing but misses, slower for far horizons, between two limits.
_ADAPT, _SLOWER, _NARROWEST, _WIDEST = 6.0, 3.0, -0.3, 2.0

#: Widths begin wider by this over the number of independent outcomes that were seen.
_DOUBT = 3.0

_NEAR = 1e-9


class LevelSeries(NamedTuple):
    """A level in even steps, without gaps; what was not seen is no truth that a forecast is judged by."""

    values: F64
    step_ms: int
    guessed: Mask | None = None  # which values were not seen; None: none

    def steps(self, time_ms: int) -> int:
        """How many steps a time has, at least one."""
        return max(round(time_ms / self.step_ms), 1)

    def is_seen(self, rows: I64) -> Mask:
        """Which of the rows were seen."""
        return np.ones(rows.size, np.bool_) if self.guessed is None else ~self.guessed[rows]


class ForecastFeatures(NamedTuple):
    """What is known at each row about the change until the horizon."""

    signs: F64  # a row for each origin
    scales: F64  # what widths may depend on
    change: F64  # the truth; NaN where it lies beyond the end
    ahead: int  # steps


class FittedForecast(NamedTuple):
    """How known signs become quantiles."""

    weights: F64
    trust: float
    scale: F64
    least: float
    quantiles: F64  # of errors over their scale
    doubt: float  # widths are wider by this, as a logarithm


class Rolled(NamedTuple):
    """Forecasts from origins one after the other, and what came."""

    origin: I64  # rows
    ahead: int
    quantiles: F64
    truth: F64
    widen: tuple[float, float]  # what widths had adapted to in the end, on each side


class Score(NamedTuple):
    """How good forecasts were."""

    pinball: float
    coverage: float
    last_value: float  # the pinball loss of saying that nothing changes
    seasonal_naive: float  # of saying what was a week ago, or a day where a week was not seen
    origins: int


def fill(values: F64) -> F64:
    """The series without gaps: what was not seen is what was seen last."""
    seen = np.isfinite(values)
    if not seen.any():
        return np.zeros(values.size)
    last = np.maximum.accumulate(np.where(seen, np.arange(values.size), 0))
    filled = values[last]
    return np.where(np.isfinite(filled), filled, values[seen][0])


def know(series: LevelSeries, horizon_ms: int) -> ForecastFeatures:
    """Gather what is known at each row; a season that was not seen yet says nothing."""
    y = series.values
    ahead, hour, day = series.steps(horizon_ms), series.steps(HOUR_MS), series.steps(DAY_MS)
    recent, daily = _trailing(y, hour), _trailing(y, day)
    then = [_before(recent, back * day - ahead) for back in range(1, 8)]
    turned = [later - _before(recent, back * day) for back, later in enumerate(then, start=1)]
    usual = _mean(then)
    signs = [recent - y, daily - y, turned[0], _mean(turned), usual - y, turned[6], then[6] - y]
    moved = np.zeros(y.size)
    moved[ahead:] = np.abs(y[ahead:] - y[:-ahead])
    scales = [np.ones(y.size), _trailing(moved, day), y, np.where(np.isfinite(usual), usual, y)]
    change = np.full(y.size, np.nan)
    change[: y.size - ahead] = y[ahead:] - y[: y.size - ahead]
    return ForecastFeatures(np.nan_to_num(np.stack(signs, 1)), np.stack(scales, 1), change, ahead)


def _trailing(values: F64, width: int) -> F64:
    """The mean of the last `width` values up to each."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    last = np.arange(values.size)
    first = np.maximum(last - width + 1, 0)
    return (sums[last + 1] - sums[first]) / (last + 1 - first)


def _before(values: F64, steps: int) -> F64:
    """The value so many steps ago; NaN before the series began."""
    if steps < 0:
        return np.full(values.size, np.nan)  # not known yet
    return np.concatenate((np.full(min(steps, values.size), np.nan), values[: max(values.size - steps, 0)]))


def _mean(columns: list[F64]) -> F64:
    """The mean of what is there."""
    stacked = np.stack(columns)
    seen = np.isfinite(stacked)
    count = seen.sum(0)
    sums = np.where(seen, stacked, 0.0).sum(0)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def learn(known: ForecastFeatures, until: int, day: int) -> FittedForecast:
    """Find a recipe on origins whose outcome is seen at row `until`."""
    first = min(day, max(until - known.ahead, 0) // 2)
    rows = np.arange(max(first, until - _MEMORY_DAYS * day), max(until - known.ahead + 1, first + 1))
    rows = rows[:: max(1, -(-rows.size // _MOST_ROWS))]
    seen = (rows[-1] - rows[0] + 1) / max(known.ahead, 1)
    unseen = _guess_unseen(known, rows)
    best: tuple[float, float, F64, float, F64] | None = None
    for trust in _TRUST:
        errors = known.change[rows] - trust * unseen
        for scale in _scales(known.scales[rows], np.abs(errors)):
            least = _LEAST_SCALE * float(np.abs(errors).mean()) + _NEAR
            widths = np.maximum(multiply(known.scales[rows], scale), least)
            spread = quantiles(errors / widths, QUANTILES)
            loss = float(pinball(widths[:, None] * spread, errors).mean())
            if best is None or loss < best[0] * _BETTER:
                best = (loss, trust, scale, least, spread)
    assert best is not None
    _, trust, scale, least, spread = best
    weights = _fit(known.signs[rows], known.change[rows])
    return FittedForecast(weights, trust, scale, least, spread, min(_DOUBT / max(seen, 1.0), 0.7))


def _guess_unseen(known: ForecastFeatures, rows: I64) -> F64:
    """The change predicted by weights from the other parts of the past, a horizon's length away."""
    guess = np.zeros(rows.size)
    for part in np.array_split(np.arange(rows.size), _FOLDS):
        if part.size == 0:
            continue
        others = rows[(rows < rows[part[0]] - known.ahead) | (rows > rows[part[-1]] + known.ahead)]
        if others.size >= 50:
            guess[part] = multiply(known.signs[rows[part]], _fit(known.signs[others], known.change[others]))
    return guess


def _fit(signs: F64, change: F64) -> F64:
    """Weights of the least absolute deviations, by least squares weighted again and again, drawn to 0."""
    sizes = np.maximum(signs.std(0), _NEAR)
    scaled = signs / sizes
    least = 0.05 * float(np.abs(change).mean()) + 1e-6
    weights = np.zeros(signs.shape[1])
    for _ in range(_ROUNDS):
        trust = 1 / np.maximum(np.abs(change - multiply(scaled, weights)), least)
        left = (scaled * trust[:, None]).T
        weights = _solve(left @ scaled + _RIDGE * trust.sum() * np.eye(weights.size), multiply(left, change))
    return np.asarray(weights / sizes, np.float64)


def _solve(square: F64, right: F64) -> F64:
    """The solution of linear equations; the smallest of them where signs that never differ leave several."""
    try:
        return np.asarray(np.linalg.solve(square, right), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(square, right, rcond=None)[0], np.float64)


def _scales(columns: F64, errors: F64) -> tuple[F64, F64]:
    """Two ways to widths: the same everywhere, and by level and recent unrest."""
    same = np.zeros(columns.shape[1])
    same[0] = float(errors.mean()) + _NEAR
    ridge = 0.01 * np.diag((columns * columns).sum(0) + 1e-9)
    return same, _solve(columns.T @ columns + ridge, multiply(columns.T, errors))


def foretell(
    recipe: FittedForecast, known: ForecastFeatures, now: F64, rows: I64, widen: tuple[float, float] = (0.0, 0.0)
) -> F64:
    """Quantiles at the horizon for the origins in `rows`, where the series has the values `now`; never below 0."""
    widths = np.maximum(multiply(known.scales[rows], recipe.scale), recipe.least)
    middle = now + recipe.trust * multiply(known.signs[rows], recipe.weights)
    low, high = np.exp(recipe.doubt + widen[0]), np.exp(recipe.doubt + widen[1])
    spread = np.where(recipe.quantiles < 0, recipe.quantiles * low, recipe.quantiles * high)
    told: F64 = np.maximum(np.sort(middle[:, None] + widths[:, None] * spread, axis=1), 0.0)
    return told


def roll(series: LevelSeries, horizon_ms: int, first: int, relearn_ms: int = DAY_MS, adapt_ms: int = HOUR_MS) -> Rolled:
    """Forecast the rows from `first` on, each from its own origin, learning again as time goes by."""
    known = know(series, horizon_ms)
    size, ahead, day = series.values.size, known.ahead, series.steps(DAY_MS)
    hour, again = series.steps(adapt_ms), series.steps(relearn_ms)
    begin = max(first - ahead - 2 * day, ahead + 2, day)  # two days to let the widths settle
    told = np.full((size, QUANTILES.size), np.nan)
    widen, judged, due = (0.0, 0.0), begin, begin
    recipe: FittedForecast | None = None
    for now in range(begin, size - ahead, hour):
        if recipe is None or now >= due:
            recipe, due = learn(known, now, day), now + again
        rows = np.arange(judged, now - ahead + 1)
        if rows.size:
            rows, judged = rows[series.is_seen(rows + ahead)], now - ahead + 1
            widen = _adapt(widen, told[rows], series.values[rows + ahead], day + _SLOWER * ahead)
        rows = np.arange(now, min(now + hour, size - ahead))
        told[rows] = foretell(recipe, known, series.values[rows], rows, widen)
    origin = np.arange(max(first - ahead, begin), size - ahead)
    seen = series.is_seen(origin) & series.is_seen(origin + ahead)
    origin = origin[seen] if seen.any() else origin
    return Rolled(origin, ahead, told[origin], series.values[origin + ahead], widen)


def _adapt(widen: tuple[float, float], told: F64, truth: F64, slowness: float) -> tuple[float, float]:
    """Wider after misses, narrower without them, on each side."""
    tail = (1 - COVERAGE) / 2
    below = float((truth < told[:, 0] - _NEAR).sum()) - tail * truth.size
    above = float((truth > told[:, -1] + _NEAR).sum()) - tail * truth.size
    step = _ADAPT / slowness
    low, high = np.clip((widen[0] + step * below, widen[1] + step * above), _NARROWEST, _WIDEST).tolist()
    return low, high


def pinball(told: F64, truth: F64) -> F64:
    """The loss of each forecast: what is missed, weighted by the quantile, on average over the quantiles."""
    missed = truth[:, None] - told
    loss: F64 = np.maximum(QUANTILES * missed, (QUANTILES - 1) * missed).mean(1)
    return loss


def score(rolled: Rolled, series: LevelSeries) -> Score:
    """How good the forecasts were, next to the naive ones."""
    y, truth = series.values, rolled.truth
    inside = (truth >= rolled.quantiles[:, 0] - _NEAR) & (truth <= rolled.quantiles[:, -1] + _NEAR)
    return Score(
        pinball=float(pinball(rolled.quantiles, truth).mean()),
        coverage=float(inside.mean()),
        last_value=float(np.abs(truth - y[rolled.origin]).mean()) / 2,
        seasonal_naive=float(np.abs(truth - y[rolled.origin + rolled.ahead - _season(series, rolled)]).mean()) / 2,
        origins=int(truth.size),
    )


def _season(series: LevelSeries, rolled: Rolled) -> int:
    """A week in steps, or a day where the series is too short for it."""
    week, day = series.steps(7 * DAY_MS), series.steps(DAY_MS)
    return week if rolled.origin[0] + rolled.ahead >= week else min(day, int(rolled.origin[0]) + rolled.ahead)
