"""Sorted values of each group: by one sort, or for very many values by counting them in fine buckets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.concurrency import MOST_EXACT
from tidegate.model.arrays import F64, I32, I64

#: Values fit below the group in one 64-bit key: 69 years in milliseconds.
_BITS = 41

#: Of very many values, about so many are kept of all groups together.
_MOST_KEPT = 1_000_000

#: A bucket is a power of two and the nine binary digits after it: its middle is within a thousandth of what is in it.
_DROPPED, _BASE, _BUCKETS = 14, 127 << 9, _BITS + 1 << 9


class Ordered(NamedTuple):
    """Values of each group, ascending; each stands for `every` of them."""

    parts: list[I64]
    every: int


class Grouping(NamedTuple):
    """The group of each cell."""

    group_of: I64
    groups: int


#: Values, and the cell of each.
Some = tuple[I64, I32]


def in_order_by_group(parts: Iterable[Some], grouping: Grouping) -> Ordered:
    """The values of each group, from 0 on."""
    few: list[Some] = []
    size = 0
    more = iter(parts)
    for part in more:
        few.append(part)
        size += part[0].size
        if size > MOST_EXACT:
            return _thin_out(chain(few, more), grouping)
    if size == 0:
        return Ordered([np.zeros(0, np.int64)] * grouping.groups, 1)
    return _sort(np.concatenate([values for values, _ in few]), np.concatenate([cell for _, cell in few]), grouping)


def _sort(values: I64, cell: I32, grouping: Grouping) -> Ordered:
    group = grouping.group_of[cell]
    key = (group << _BITS) | np.clip(values, 0, (1 << _BITS) - 1)
    ordered = pl.Series(key).sort().to_numpy() & ((1 << _BITS) - 1)
    ends = np.cumsum(np.bincount(group, minlength=grouping.groups))
    return Ordered(np.split(ordered, ends[:-1].tolist()), 1)


def _thin_out(parts: Iterable[Some], grouping: Grouping) -> Ordered:
    """Every so-manieth value in order, as exact as the buckets."""
    groups = grouping.groups
    base_of = grouping.group_of * np.int64(_BUCKETS)
    counts = np.zeros(groups * _BUCKETS, np.int64)
    size = 0
    for values, cell in parts:
        digits = np.maximum(values, 0).astype(np.float32).view(np.int32)
        digits >>= _DROPPED
        digits -= _BASE
        np.clip(digits, 0, _BUCKETS - 1, out=digits)
        row = base_of.take(cell, mode="clip")
        row += digits
        np.add.at(counts, row, 1)
        size += values.size
    every = max(1, size // _MOST_KEPT)
    middles = _middles()
    return Ordered([_representatives(part, middles, every) for part in counts.reshape(groups, _BUCKETS)], every)


def _middles() -> F64:
    """What each bucket stands for; the first is 0 and 1."""
    digits = (np.arange(_BUCKETS, dtype=np.int32) + _BASE << _DROPPED) + (1 << _DROPPED - 1)
    middles = digits.view(np.float32).astype(np.float64)
    middles[0] = 0.0
    return middles


def _representatives(counts: I64, middles: F64, every: int) -> I64:
    tops = np.cumsum(counts)
    ranks = np.arange(every // 2, tops[-1], every)
    return np.rint(middles[np.searchsorted(tops, ranks, side="right")]).astype(np.int64)
