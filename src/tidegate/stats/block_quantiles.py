"""Confidence intervals of quantiles of values that depend on each other, from blocks of time (sectioning).

The wider of two intervals. By blocks: the spread of the blocks' own quantiles; where few blocks reach beyond a high
quantile, Student's quantile has fewer degrees of freedom. By shares (Woodruff): how sure the share of values up to the
quantile is, and which values have that share at its ends; wide where values leave a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.stats.blocks import Blocks, linear_spread
from tidegate.stats.interval import (
    LEAST_BEYOND,
    LEAST_IN_TAIL,
    LEAST_PARTS,
    NORMAL,
    Interval,
    NoInterval,
    effective_number,
    narrow,
    spread_of,
    widest,
)
from tidegate.stats.quantile import quantile

#: Independent looks beyond a quantile, at least: with fewer, it depends on the shape of what was hardly seen.
_LEAST_LOOKS = 0.05


def quantile_interval(
    sections: Sequence[F64 | I64], blocks: Blocks, share: float, value: float | None = None
) -> Interval | NoInterval:
    """The interval of a quantile of all blocks' values; `value` is the quantile, if it differs a little from theirs."""
    whole = np.concatenate(list(sections))
    own = quantile(whole, share)
    moved = 0.0 if value is None else value - own
    parts = np.array([quantile(part, share) + moved for part in sections if part.size])
    if parts.size < LEAST_PARTS or blocks.looks * min(share, 1 - share) < _LEAST_LOOKS:
        return NoInterval.FEW
    above, below = (_count(side, sections, own) for side in (np.greater, np.less))
    effective = max(effective_number(above if share >= 0.5 else below), LEAST_IN_TAIL)
    by_parts = spread_of(own + moved, np.maximum(parts, 0.0), blocks.seen, effective).around(own + moved)
    sizes = np.array([part.size for part in sections], np.float64)
    reach = max(_reach(some, sizes, blocks.seen, effective) for some in (above, below))
    ends = (quantile(whole, min(max(at, 0.0), 1.0)) + moved for at in (share - reach, share + reach))
    found = widest(by_parts, Interval(*(max(end, 0.0) for end in ends)))
    return found if isinstance(found, NoInterval) else narrow(found)


def _count(side: Callable[..., np.ndarray], sections: Sequence[F64 | I64], value: float) -> F64:
    """How many values of each block lie to one side of a value."""
    return np.array([np.count_nonzero(side(part, value)) for part in sections], np.float64)


def _reach(some: F64, sizes: F64, seen: float, effective: float) -> float:
    """How far a share may be wrong, to either side."""
    share = float(some.sum() / sizes.sum())
    spread = spread_of(share, share + some.size * (some - share * sizes) / sizes.sum(), seen, effective)
    return spread.times * spread.error


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
