"""The one definition of a quantile: the smallest value that at least a share of all values do not exceed.

It is always a value that was seen (Hyndman and Fan's type 1, the inverse of the empirical distribution function).
Weighted with time, it is the lowest level that is not exceeded for that share of the time.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.model.arrays import F64, I64

#: Shares such as 0.95 are not exact in binary: ranks that are whole but for this stay whole.
_ROUNDING = 1e-9


def quantile_row(count: int, share: float) -> int:
    """The row of a quantile among so many ascending values."""
    return min(max(math.ceil(share * count - _ROUNDING) - 1, 0), count - 1)


def quantile(values: F64 | I64, share: float) -> float:
    """The quantile of values in any order."""
    row = quantile_row(values.size, share)
    return float(np.partition(values, row)[row])


def quantiles(values: F64 | I64, shares: F64) -> F64:
    """Several quantiles of values in any order."""
    rows = [quantile_row(values.size, share) for share in shares.tolist()]
    return np.partition(values, rows)[rows].astype(np.float64)


def weighted_quantiles(ascending: F64 | I64, weights: F64 | I64, shares: F64) -> F64:
    """Quantiles of ascending values that each count with a weight, such as levels with the time they were held."""
    totals = np.cumsum(weights)
    rows = np.searchsorted(totals, np.asarray(shares) * totals[-1] * (1 - 1e-12), side="left")
    return np.asarray(ascending[np.minimum(rows, ascending.size - 1)], np.float64)


def grouped_quantiles(values: F64, group: I64, groups: int, share: float) -> F64:
    """The quantile of each group of values; NaN for a group that has none."""
    counts = np.bincount(group, minlength=groups)
    order = np.lexsort((values, group))
    rows = np.cumsum(counts) - counts + [quantile_row(max(count, 1), share) for count in counts.tolist()]
    found: F64 = values[order][np.minimum(rows, max(values.size - 1, 0))] if values.size else np.full(groups, np.nan)
    return np.where(counts > 0, found, np.nan)
