"""How many values are worth one that is independent: what comes at the same time is often alike."""

from __future__ import annotations

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.stats.blocks import linear_spread
from tidegate.stats.interval import LEAST_BEYOND, LEAST_PARTS, NORMAL, NoInterval
from tidegate.stats.quantile import quantile


def likeness(by_unit: tuple[I64, ...], part: float) -> float | NoInterval:
    """How many values are worth one, for a quantile: jobs of an array, or of one user in a week, last alike.

    Of values in order, by unit of time. Where many are equal, those below and those up to the quantile differ: the
    larger of both counts.
    """
    sizes = np.array([unit.size for unit in by_unit], np.float64)
    if (sizes > 0).sum() < LEAST_PARTS:
        return NoInterval.FEW
    value = quantile(np.concatenate(by_unit), part)
    below, most = (np.array([np.searchsorted(unit, value, side) for unit in by_unit]) for side in ("left", "right"))
    found = [_likeness_of_share(counts.astype(np.float64), sizes) for counts in (below, most)]
    worth = [one for one in found if not isinstance(one, NoInterval)]
    if len(worth) < len(found):
        return next(one for one in found if isinstance(one, NoInterval))
    alike = max(worth)
    return alike if float(sizes.sum()) / alike * min(part, 1 - part) >= LEAST_BEYOND else NoInterval.FEW


def _likeness_of_share(part: F64, whole: F64) -> float | NoInterval:
    """How many are worth one, for the share that some of them are of all, by unit of time."""
    count = float(whole.sum())
    share = float(part.sum()) / count
    if not 0 < share < 1:  # none, or all: nothing differs
        return 1.0
    spread = linear_spread(share, (part - share * whole) / count)
    if isinstance(spread, NoInterval):
        return spread
    return max((spread.error * spread.times / NORMAL) ** 2 * count / (share * (1 - share)), 1.0)
