"""Confidence intervals at one level, 90 %: of shares, of quantiles of independent values, and from parts of a sample.

Parts are blocks of time, pods or jobs. Each part has its own value of a statistic; how far these lie from the value of
the whole gives the interval (sectioning, with Student's quantile). No resampling: nothing is drawn at random.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64

#: The share of intervals that hold the truth; one level for every command and document.
CONFIDENCE = 0.9

#: The quantile of the normal distribution that leaves half of the rest on each side.
NORMAL = 1.6448536269514722

#: Fewer parts say too little about the spread between them.
LEAST_PARTS = 6

#: Independent values beyond a quantile, at least: with fewer, the longest that was seen may well be shorter than it.
LEAST_BEYOND = 3.0

#: Fewer parts make up nearly all of a difference: their spread is not known.
LEAST_EFFECTIVE = 2.0

#: Parts that reach a tail make up the spread of it, this many at least: Student's quantile of fewer is of any width.
LEAST_IN_TAIL = 3.0

#: An interval whose ends differ by more than this many times says nothing; nor is it known by a logarithm.
WIDEST = 20.0

#: Student's quantile for the same level, by degrees of freedom.
_STUDENT = {
    1: 6.3138, 2: 2.92, 3: 2.3534, 4: 2.1318, 5: 2.015, 6: 1.9432, 8: 1.8595, 10: 1.8125,
    15: 1.7531, 20: 1.7247, 30: 1.6973, 60: 1.6706, 120: 1.6577,
}  # fmt: skip


class NoInterval(StrEnum):
    """Why there is no interval."""

    FEW = "too_few"  # fewer than six blocks of time, pods or jobs
    TREND = "trend"  # deviations last as long as the window: nothing in it shows how the next one would differ
    UNEVEN = "one_block"  # one block of time makes up nearly all of the difference
    TAIL = "heavy_tail"  # a deviation that the longest few decide: a sample shows too few of them
    WIDE = "too_wide"  # blocks differ by so much that the ends would differ by more than twenty times
    NOTHING = "nothing_to_compare"  # no pairs, or nothing but zeros


class Interval(NamedTuple):
    """Where the truth lies, nine times of ten."""

    low: float
    high: float


def student(degrees: float) -> float:
    """Student's quantile that leaves a twentieth on each side; between whole degrees by their reciprocals."""
    marks = 1 / np.array(list(_STUDENT))
    return float(np.interp(1 / max(degrees, 1.0), [0.0, *marks[::-1]], [NORMAL, *list(_STUDENT.values())[::-1]]))


class PartSpread(NamedTuple):
    """How sure a value is, by its parts."""

    error: float
    times: float  # Student's quantile: how many errors the interval reaches to each side
    shift: float  # how far the jackknife would move the value

    def around(self, value: float) -> Interval:
        """The interval of the value: by the logarithm, and further to the side to which the jackknife would move it."""
        half = self.times * self.error
        return around(value, half - min(self.shift, 0.0), half + max(self.shift, 0.0))


def part_interval(value: float, parts: F64, seen: float = 1.0, weights: F64 | None = None) -> Interval | NoInterval:
    """The interval of a value of 0 or more from the values of its parts, which may be missing (NaN).

    `seen` is the share of the variance that the parts show, where neighbours are alike. With weights, parts that make
    up most of the whole count for more: Satterthwaite's degrees of freedom. A quantile of a short part lies lower (or
    higher) than that of the whole, and that of the whole lies lower than the true one: the interval reaches as much
    further to that side as the jackknife would move it.
    """
    spread = part_spread(value, parts, seen, weights)
    return spread if isinstance(spread, NoInterval) else narrow(spread.around(value))


def part_spread(value: float, parts: F64, seen: float = 1.0, weights: F64 | None = None) -> PartSpread | NoInterval:
    """How far parts lie from the value of the whole; what `part_interval` is made of."""
    known = parts[np.isfinite(parts)]
    if known.size < LEAST_PARTS:
        return NoInterval.FEW
    effective = float(known.size) if weights is None else effective_number(weights[np.isfinite(parts)] ** 2)
    return NoInterval.UNEVEN if effective < LEAST_EFFECTIVE else spread_of(value, known, seen, effective)


def effective_number(weights: F64) -> float:
    """How many of the same weight would be as even (Kish)."""
    return float(weights.sum()) ** 2 / max(float((weights * weights).sum()), 1e-300)


def spread_of(value: float, parts: F64, seen: float, effective: float) -> PartSpread:
    """How far parts lie from the value of the whole, where their spread rests on so many of them."""
    error = math.sqrt(float(((parts - value) ** 2).sum()) / parts.size**2 * effective / (effective - 1) / seen)
    return PartSpread(error, student(effective - 1), (value - float(parts.mean())) / (parts.size - 1) / seen)


def share_interval(part: float, count: int, looks: int, spread: PartSpread | NoInterval) -> Interval | NoInterval:
    """Wilson's interval of a share of values that depend on each other: of as many as would be as sure if they did not.

    Where none of the values has it, or all, blocks do not differ; where one block has nearly all of it, the difference
    is not known. Then each unit of time with a value counts as one independent value.
    """
    if 0 < part < 1 and spread is not NoInterval.UNEVEN:
        if isinstance(spread, NoInterval):
            return spread
        unsure = (spread.error * spread.times / NORMAL) ** 2
        effective = min(part * (1 - part) / max(unsure, 1e-300), float(count))
    else:
        effective = float(looks)
    low, high = wilson(np.array([part]), np.array([effective]))
    return Interval(float(low[0]), float(high[0]))


def narrow(found: Interval) -> Interval | NoInterval:
    """The interval, unless its ends above 0 are so far apart that it says nothing."""
    return NoInterval.WIDE if 0 < found.low * WIDEST < found.high else found


def widest(one: Interval | NoInterval, other: Interval | NoInterval) -> Interval | NoInterval:
    """The interval that holds both; without an interval if one of them has none."""
    if isinstance(one, NoInterval):
        return one
    return other if isinstance(other, NoInterval) else Interval(min(one.low, other.low), max(one.high, other.high))


def around(value: float, below: float, above: float) -> Interval:
    """An interval by the logarithm: what is above 0 stays above, and what spreads over decades is not symmetric."""
    if value <= 0:
        return Interval(0.0, above)
    return Interval(value * math.exp(-min(below / value, 50.0)), value * math.exp(min(above / value, 50.0)))


def wilson(part: F64, count: F64) -> tuple[F64, F64]:
    """Wilson's interval of shares of so many independent values."""
    z2 = NORMAL * NORMAL
    centre = (part + z2 / (2 * count)) / (1 + z2 / count)
    half = NORMAL * np.sqrt(part * (1 - part) / count + z2 / (4 * count * count)) / (1 + z2 / count)
    return np.clip(np.minimum(centre - half, part), 0.0, 1.0), np.clip(np.maximum(centre + half, part), 0.0, 1.0)


def rank_interval(count: int, share: float, every: float = 1.0) -> tuple[int, int]:
    """Rows between which a quantile of ascending, independent values lies; each value stands for `every`."""
    half = NORMAL * math.sqrt(count * share * (1 - share) / every)
    return max(math.floor(count * share - half) - 1, 0), min(math.ceil(count * share + half), count - 1)
