"""The interval of a quantile of autocorrelated values, from blocks of time: the wider of two.

By blocks: how far their quantiles lie from that of the whole. What lies beyond a high quantile may come from few of
them; then the spread is known from as many, and Student's quantile is that of fewer degrees of freedom. By shares: how
sure blocks make the share of values up to the quantile, and which values have that share at its ends (Woodruff). It is
wide where values leave a gap, such as between usual waits and those that a campaign causes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.stats.blocks import Blocks
from tidegate.stats.interval import (
    LEAST_IN_TAIL,
    LEAST_PARTS,
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
    sections: Sequence[F64 | I64], blocks: Blocks, share: float, told: float | None = None
) -> Interval | NoInterval:
    """The interval of a quantile of the values of all blocks; `told` is its value, if not quite their own."""
    whole = np.concatenate(list(sections))
    own = quantile(whole, share)
    moved = 0.0 if told is None else told - own
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
