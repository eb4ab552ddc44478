"""A measured number: value, unit, samples, interval, and the table it was measured on.

The table's name leads to the window and the origins, which the document keeps once (`Ground`).
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from msgspec.structs import replace

from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.stats.interval import Interval, NoInterval, part_interval, rank_interval, wilson
from tidegate.stats.quantile import quantile_row

#: Digits that are kept: more would only make documents differ.
DIGITS = 6

#: The largest deviation over the mean that samples tell with an interval (1 is that of exponential durations).
LARGEST_CV = 1.2

#: Multiplications up to which BLAS starts no threads, for matrices and for vectors.
_QUIET, _QUIET_VECTOR = 1 << 18, 9_000


class Unit(StrEnum):
    """What is counted."""

    GPUS = "gpus"
    GPU_HOURS = "gpu_hours"
    JOBS = "jobs"
    REQUESTS = "requests"
    REQUESTS_PER_S = "requests_per_s"
    MS = "ms"
    SHARE = "share"  # 0 to 1
    RATIO = "ratio"
    MIB = "mib"
    GIB = "gib"


class How(StrEnum):
    """Where an interval comes from."""

    EXACT = "exact"  # seen, not estimated: low and high are the value
    BLOCKS = "blocks"  # how far blocks of time differ, as long as the data's memory asks for
    UNITS = "units"  # how far pods or jobs differ, taken to be independent
    RANKS = "order_statistics"  # the binomial interval of a quantile: nothing is assumed about the shape
    WILSON = "wilson"  # of a share
    SURVIVAL = "kaplan_meier"  # of durations of which some had not ended when they were last seen
    AT_LEAST = "at_least"  # no interval: the value is a lower bound, and nothing says how much more it is
    AT_MOST = "at_most"  # no interval: the value is an upper bound, and nothing says how much less it is
    FEW = NoInterval.FEW.value  # no interval: fewer than six blocks of time, pods or jobs
    TREND = NoInterval.TREND.value  # no interval: deviations last as long as the window
    UNEVEN = NoInterval.UNEVEN.value  # no interval: one block of time, pod or job makes up nearly all of it
    TAIL = NoInterval.TAIL.value  # no interval: the longest few decide a deviation, and a sample shows too few of them

    WIDE = NoInterval.WIDE.value  # no interval: its ends would differ by more than twenty times

    def has_interval(self) -> bool:
        """Whether low and high are those of an interval, and not the value once more."""
        return self not in {How.AT_LEAST, How.AT_MOST, How.FEW, How.TREND, How.UNEVEN, How.TAIL, How.WIDE}


class Number(Spec, frozen=True):
    """One measured number."""

    value: float
    unit: Unit
    samples: int  # rows behind it, or blocks of time
    low: float  # of the 90 % interval
    high: float
    how: How = How.EXACT
    table: str = "jobs"  # its window and origins: `grounds` of the document


def trim(value: float) -> float:
    """Keep the digits that matter; what is not a number becomes 0 only by the caller's choice."""
    if value == 0 or not math.isfinite(value):
        return float(value)
    return float(f"{value:.{DIGITS}g}")


def trimmed(values: F64, digits: int = 4) -> tuple[float, ...]:
    """A series, as short as it may be written."""
    return tuple(float(f"{value:.{digits}g}") for value in values.tolist())


def multiply(rows: F64, other: F64) -> F64:
    """The product of a matrix with a matrix or vector, some rows at a time.

    For large products BLAS starts threads, and these go on spinning after it: on a busy machine that costs far more.
    """
    step = max(1, _QUIET // max(other.size, 1) if other.ndim > 1 else _QUIET_VECTOR // max(other.size, 1))
    parts = [rows[at : at + step] @ other for at in range(0, len(rows), step)]
    return np.concatenate(parts) if parts else np.asarray(rows @ other, np.float64)


def exact(value: float, unit: Unit, samples: int, table: str) -> Number:
    """A number that was counted, not estimated."""
    kept = trim(value)
    return Number(value=kept, unit=unit, samples=int(samples), low=kept, high=kept, table=table)


def estimate(value: float, found: Interval | NoInterval, unit: Unit, of: tuple[int, str], how: How) -> Number:
    """A number of so many samples of a table with its interval, which always holds it; or with why it has none."""
    low, high = (value, value) if isinstance(found, NoInterval) else found
    if unit is Unit.SHARE:
        high = min(high, 1.0)
    return Number(
        value=trim(value),
        unit=unit,
        samples=int(of[0]),
        low=trim(min(low, value)),
        high=trim(max(high, value)),
        how=How(found.value) if isinstance(found, NoInterval) else how,
        table=of[1],
    )


def at_least(number: Number) -> Number:
    """The same number, of which only a lower bound is known."""
    return replace(number, low=number.value, high=number.value, how=How.AT_LEAST)


def at_most(number: Number) -> Number:
    """The same number, of which only an upper bound is known."""
    return replace(number, low=number.value, high=number.value, how=How.AT_MOST)


def unit_interval(value: float, effects: F64, samples: int) -> Interval | NoInterval:
    """The interval of a value to which independent pods or jobs add their own effects (they add up to 0)."""
    every = max(samples // max(effects.size, 1), 1)  # that each of them stands for
    return part_interval(value, value + effects.size * effects, float(every), np.abs(effects))


def relative_deviation_effects(away: F64, mean: float, deviation: float) -> F64:
    """What each value adds to the deviation over the mean, by how far it is away from the mean; they add up to 0."""
    if mean <= 0 or deviation <= 0:  # all are alike: nothing bends
        return np.zeros(away.size)
    bends = (away * away - deviation**2) / (2 * deviation * mean)
    return np.asarray((bends - away * (deviation / mean / mean)) / away.size, np.float64)


def variation(cv: float, found: Interval | NoInterval, of: tuple[int, str], how: How) -> Number:
    """A deviation over the mean; that of a heavy tail has no interval: samples nearly always tell too little."""
    return estimate(cv, NoInterval.TAIL if cv > LARGEST_CV else found, Unit.RATIO, of, how)


def share(part: int, whole: int, table: str) -> Number:
    """A share with Wilson's interval."""
    found = part / whole if whole else 0.0
    low, high = (float(end[0]) for end in wilson(np.array([found]), np.array([max(whole, 1)])))
    return estimate(found, Interval(low, high), Unit.SHARE, (whole, table), How.WILSON)


def rank_quantile(
    ordered: I64, p: float, unit: Unit, table: str, every: int = 1, alike: float | NoInterval = 1.0
) -> Number:
    """A quantile of sorted values with its binomial interval, `alike` worth one; each value stands for `every`."""
    value = float(ordered[quantile_row(ordered.size, p)])
    if isinstance(alike, NoInterval):
        return estimate(value, alike, unit, (ordered.size * every, table), How.RANKS)
    low, high = (float(ordered[row]) for row in rank_interval(ordered.size, p, every / alike))
    return estimate(value, Interval(low, high), unit, (ordered.size * every, table), How.RANKS)
