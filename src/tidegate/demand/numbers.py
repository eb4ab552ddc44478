"""A number that can be believed: with its unit, the samples behind it, an interval, and the table it was measured on.

The table's name leads to the window and the origins, which the document keeps once (`Ground`).
Must not know: what is measured.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from tidegate.model.columns import F64, I64
from tidegate.model.spec import Spec

#: The share of intervals that should hold the truth.
CONFIDENCE = 0.9

#: Digits that are kept: more would only make documents differ.
DIGITS = 6

#: Multiplications up to which BLAS starts no threads, for matrices and for vectors.
_QUIET, _QUIET_VECTOR = 1 << 18, 9_000

_NORMAL_90 = 1.6448536269514722


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
    BLOCKS = "block_bootstrap"  # time is drawn again in blocks, so that what belongs together stays together
    UNITS = "unit_bootstrap"  # whole pods or jobs are drawn again
    RANKS = "order_statistics"  # the binomial interval of a quantile: nothing is assumed about the shape
    WILSON = "wilson"  # of a share
    SURVIVAL = "kaplan_meier"  # of durations of which some had not ended when they were last seen
    AT_LEAST = "at_least"  # no interval: the value is a lower bound, and nothing says how much more it is


class Number(Spec, frozen=True):
    """One measured number."""

    value: float
    unit: Unit
    samples: int  # rows behind it, or blocks of time where time was drawn again
    low: float  # of the 90 % interval
    high: float
    how: How = How.EXACT
    table: str = "jobs"  # its window and origins: `grounds` of the document

    def plus_minus(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


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


def estimate(value: float, draws: F64, unit: Unit, samples: int, table: str) -> Number:
    """A number with the interval of its redrawn values; the interval always holds the number itself."""
    tail = (1 - CONFIDENCE) / 2
    known = draws[np.isfinite(draws)]
    low, high = np.quantile(known, [tail, 1 - tail]) if known.size else (value, value)
    return Number(
        value=trim(value),
        unit=unit,
        samples=int(samples),
        low=trim(min(float(low), value)),
        high=trim(max(float(high), value)),
        how=How.BLOCKS,
        table=table,
    )


def share(part: int, whole: int, table: str) -> Number:
    """A share with Wilson's interval."""
    z = _NORMAL_90
    p = part / whole if whole else 0.0
    n = max(whole, 1)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low, high = max(0.0, min(centre - half, p)), min(1.0, max(centre + half, p))
    return Number(
        value=trim(p), unit=Unit.SHARE, samples=whole, low=trim(low), high=trim(high), how=How.WILSON, table=table
    )


def rank_quantile(ordered: I64, p: float, unit: Unit, table: str, every: int = 1) -> Number:
    """A quantile of sorted values (the smallest that p of them reach), with its binomial interval.

    Each value stands for `every` of them.
    """
    n = int(ordered.size)
    at = min(max(math.ceil(p * n) - 1, 0), n - 1)
    half = _NORMAL_90 * math.sqrt(n * p * (1 - p) / every)
    low, high = max(math.floor(n * p - half) - 1, 0), min(math.ceil(n * p + half), n - 1)
    return Number(
        value=trim(float(ordered[at])),
        unit=unit,
        samples=n * every,
        low=trim(float(ordered[min(low, at)])),
        high=trim(float(ordered[max(high, at)])),
        how=How.RANKS,
        table=table,
    )
