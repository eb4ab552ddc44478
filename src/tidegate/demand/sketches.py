"""Sketches of distributions: counts in buckets whose borders grow by a constant factor (DDSketch).

Any quantile is known within `accuracy` of itself, and values can be drawn from a sketch (Masson, Rim and Lee, 2019).
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.demand.estimate import trim
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec

#: The default accuracy: any quantile is within this part of the true one.
ACCURACY = 0.02

#: So far above its border a value still counts as on it, in buckets.
_SLACK = 1e-9


class Sketch(Spec, frozen=True):
    """Values above zero in buckets (growth^(key-1), growth^key]; zeros apart."""

    keys: tuple[int, ...] = ()  # ascending
    weights: tuple[float, ...] = ()  # counts, or time, in each bucket
    zeros: float = 0.0
    least: float = 0.0
    most: float = 0.0
    mean: float = 0.0  # exact, not from the buckets
    accuracy: float = ACCURACY

    def log_growth(self) -> float:
        """The logarithm of a bucket's upper border over its lower one."""
        return log_growth(self.accuracy)


def log_growth(accuracy: float) -> float:
    """How buckets grow so that their middle is never farther off than this."""
    return math.log((1 + accuracy) / (1 - accuracy))


def sketch_of(values: F64 | I64, weights: F64 | None = None, accuracy: float = ACCURACY) -> Sketch:
    """The sketch of values of zero or more; each weighs one, or its weight."""
    if values.size == 0:
        return Sketch()
    heavy = np.ones(values.size) if weights is None else weights
    total = float(heavy.sum())
    if total <= 0:
        return Sketch()
    above = values > 0
    kept, weight = values[above], heavy[above]
    zeros = total - float(weight.sum())
    seen = values[heavy > 0]
    least, most = trim(float(seen.min())), trim(float(seen.max()))
    mean = trim(float((values * heavy).sum()) / total)
    if kept.size == 0:
        return Sketch(zeros=trim(zeros), mean=mean, least=least, most=most, accuracy=accuracy)
    keys, sums = _fill(kept, weight, log_growth(accuracy))
    return Sketch(
        keys=tuple(keys.tolist()),
        weights=tuple(trim(value) for value in sums.tolist()),
        zeros=trim(max(zeros, 0.0)),
        mean=mean,
        least=least,
        most=most,
        accuracy=accuracy,
    )


def sketch_ordered(values: I64, every: int = 1, accuracy: float = ACCURACY) -> Sketch:
    """The sketch of ascending values, each of the same weight: buckets are looked up, not values."""
    zeros = int(np.searchsorted(values, 0, side="right"))
    kept = values[zeros:]
    if kept.size == 0:
        return sketch_of(values, np.full(values.size, float(every)), accuracy)
    growth = log_growth(accuracy)
    first, last = (math.ceil(math.log(end) / growth - _SLACK) for end in (kept[0], kept[-1]))
    keys = np.arange(first, last + 1)
    ends = np.searchsorted(kept, np.exp((keys + _SLACK) * growth), side="right")
    ends[-1] = kept.size
    counts = np.diff(ends, prepend=0)
    return Sketch(
        keys=tuple(keys[counts > 0].tolist()),
        weights=tuple(trim(float(count)) for count in (counts[counts > 0] * every).tolist()),
        zeros=trim(float(zeros * every)),
        least=trim(float(values[0])),
        most=trim(float(values[-1])),
        mean=trim(float(values.mean())),
        accuracy=accuracy,
    )


def _fill(values: F64 | I64, weights: F64, growth: float) -> tuple[I64, F64]:
    """The keys that occur, and what lies in each."""
    key = np.ceil(np.log(values) / growth - _SLACK).astype(np.int64)
    first = int(key.min())
    sums = np.bincount(key - first, weights=weights)
    used = np.flatnonzero(sums > 0)
    return used.astype(np.int64) + first, sums[used].astype(np.float64)


def weight_of(sketch: Sketch) -> float:
    """How many values, or how much time, it stands for."""
    return sketch.zeros + sum(sketch.weights)


def quantiles(sketch: Sketch, at: F64) -> F64:
    """The values below which the given shares lie: between a bucket's borders in proportion, never beyond the ends."""
    total = weight_of(sketch)
    if total <= 0:
        return np.zeros(at.size)
    keys = np.asarray(sketch.keys, np.float64)
    tops = np.concatenate(([sketch.zeros], sketch.zeros + np.cumsum(np.asarray(sketch.weights, np.float64))))
    want = np.clip(at, 0.0, 1.0) * total
    bucket = np.clip(np.searchsorted(tops, want, side="left") - 1, -1, keys.size - 1)
    inside = bucket >= 0
    if not inside.any():
        return np.zeros(at.size)
    row = np.maximum(bucket, 0)
    part = (want - tops[row]) / np.maximum(tops[row + 1] - tops[row], 1e-300)
    values = np.exp((keys[row] - 1 + np.clip(part, 0.0, 1.0)) * sketch.log_growth())
    return np.where(inside, np.clip(values, max(sketch.least, 0.0), sketch.most), 0.0)


def share_below(sketch: Sketch, values: F64) -> F64:
    """The share of the sketch at or below each value."""
    total = weight_of(sketch)
    if total <= 0:
        return np.ones(values.size)
    tops = np.concatenate(([sketch.zeros], sketch.zeros + np.cumsum(np.asarray(sketch.weights, np.float64)))) / total
    keys = np.asarray(sketch.keys, np.float64)
    if keys.size == 0:
        return np.where(values >= 0, 1.0, 0.0)
    place = np.log(np.maximum(values, 1e-300)) / sketch.log_growth()
    row = np.searchsorted(keys, place - 1e-9, side="left")  # the first bucket that ends at or above the value
    inner = np.minimum(row, keys.size - 1)
    part = np.clip(place - (keys[inner] - 1), 0.0, 1.0) * (tops[inner + 1] - tops[inner])
    inside = tops[inner] + np.where(values > 0, part, 0.0)
    return np.where((row >= keys.size) | (values >= sketch.most), 1.0, np.where(values < 0, 0.0, inside))


def draw(sketch: Sketch, ranks: F64) -> F64:
    """Values at ranks between 0 and 1, scaled so that even ranks give the exact mean."""
    values = quantiles(sketch, ranks)
    middle = mean_of(sketch)
    return values * (sketch.mean / middle) if middle > 0 and sketch.mean > 0 else values


def mean_of(sketch: Sketch) -> float:
    """The mean as the buckets alone would have it: even ranks inside each bucket, by their logarithm."""
    total = weight_of(sketch)
    if total <= 0 or not sketch.keys:
        return 0.0
    tops = np.exp(np.asarray(sketch.keys, np.float64) * sketch.log_growth())
    lows = np.maximum(tops / math.exp(sketch.log_growth()), sketch.least)
    highs = np.minimum(tops, sketch.most)
    wide = highs > lows * (1 + 1e-12)
    gaps = np.log(np.where(wide, highs / np.maximum(lows, 1e-300), math.e))
    middles = np.where(wide, (highs - lows) / gaps, highs)
    return float((middles * np.asarray(sketch.weights)).sum() / total)
