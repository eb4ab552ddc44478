"""Blocks of time that are as long as the memory of the data: for intervals of what changes slowly.

A window is cut into units (days, or 24 parts of a window shorter than a week). The correlation from unit to unit,
corrected for its bias in short series, gives the memory: the time in which a deviation falls to 1/e. A block has the
length 2 x (1 + 2 x memory); a window has six to thirty blocks, and correlation that is left between them is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.units import DAY_MS
from tidegate.stats.interval import LEAST_PARTS, Interval, NoInterval, PartSpread, part_interval, part_spread

#: Units of a window that is shorter than a week; blocks of any window, at most.
_SHORT_UNITS, _MOST_BLOCKS = 24, 30


class Blocks(NamedTuple):
    """How a window of so many units is cut."""

    number: int
    units: int
    memory: float  # in units
    seen: float  # the share of the variance that means of such blocks show

    @property
    def looks(self) -> float:
        """How many independent looks the window gives."""
        return self.units / (1 + 2 * self.memory)

    def of_units(self) -> I64:
        """The block of each unit."""
        return np.arange(self.units, dtype=np.int64) * self.number // self.units

    def join(self, by_unit: Sequence[I64]) -> list[I64]:
        """The values of each block, from those of each unit."""
        edges = np.searchsorted(self.of_units(), np.arange(self.number + 1)).tolist()
        return [np.concatenate(by_unit[first:end]) for first, end in pairwise(edges)]

    def interval(self, value: float, parts: F64, weights: F64 | None = None) -> Interval | NoInterval:
        """The interval of a value from its values in each block."""
        return part_interval(value, parts, self.seen, weights)


def sum_by(group: I64, values: F64, groups: int) -> F64:
    """The sum of the values of each group."""
    return np.bincount(group, values, groups).astype(np.float64, copy=False)


def count_units(length_ms: int) -> int:
    """Units of a window: whole days from a week on."""
    return length_ms // DAY_MS if length_ms >= 7 * DAY_MS else _SHORT_UNITS


def unit_widths(length_ms: int) -> F64:
    """How long each unit is: what is left after the last whole day belongs to it."""
    units = count_units(length_ms)
    widths = np.full(units, float(DAY_MS) if length_ms >= 7 * DAY_MS else length_ms / units)
    widths[-1] = length_ms - widths[:-1].sum()
    return widths


def units_of(from_start_ms: I64, length_ms: int) -> I64:
    """The unit in which each time lies."""
    width = max(float(unit_widths(length_ms)[0]), 1e-9)
    return np.minimum((from_start_ms / width).astype(np.int64), count_units(length_ms) - 1)


def choose_blocks(by_unit: F64) -> Blocks | NoInterval:
    """Blocks for a series by unit; NaN where nothing was seen."""
    units = by_unit.size
    if np.isfinite(by_unit).sum() < LEAST_PARTS:
        return NoInterval.FEW
    correlation = _next_unit(by_unit)
    if correlation >= 1 + 0.5 / units:
        return NoInterval.TREND
    correlation = min(max(correlation, 0.0), 1 - 2 / units)
    memory = -1 / math.log(correlation) if correlation > 0 else 0.0
    count = int(min(max(units / (2 + 4 * memory), LEAST_PARTS), units, _MOST_BLOCKS))
    length = units / count / max(memory, 1e-9)
    return Blocks(count, units, memory, 1 - (1 - math.exp(-min(length, 700.0))) / length)


def _next_unit(by_unit: F64) -> float:
    """The correlation from one unit to the next; that of n values is too low by about (1 + 3 x itself)/n."""
    away = by_unit - np.nanmean(by_unit)
    pairs, spread = np.nansum(away[1:] * away[:-1]), np.nansum(away * away)
    count = int(np.isfinite(away).sum())
    return float((count * pairs / spread + 1) / (count - 3)) if spread > 0 else 0.0


def linear_interval(
    value: float, effects: F64, weights: F64 | None = None
) -> tuple[Interval | NoInterval, Blocks | NoInterval]:
    """The interval of a value to which each unit adds its own effect (they add up to 0), and the blocks behind it."""
    blocks, parts, heavy = _by_block(value, effects, weights)
    return (blocks if isinstance(blocks, NoInterval) else blocks.interval(value, parts, heavy)), blocks


def linear_spread(value: float, effects: F64, weights: F64 | None = None) -> PartSpread | NoInterval:
    """How sure a value is to which each unit adds its own effect; weights are counts of what makes units differ."""
    blocks, parts, heavy = _by_block(value, effects, weights)
    if isinstance(blocks, NoInterval):
        return blocks
    return part_spread(value, parts, blocks.seen, None if heavy is None else np.sqrt(heavy))


def _by_block(value: float, effects: F64, weights: F64 | None) -> tuple[Blocks | NoInterval, F64, F64 | None]:
    """Blocks for effects by unit; the value in each block, and the weight of each."""
    blocks = choose_blocks(effects)
    if isinstance(blocks, NoInterval):
        return blocks, effects, None
    block = blocks.of_units()
    parts = value + blocks.number * sum_by(block, np.nan_to_num(effects), blocks.number)
    return blocks, parts, None if weights is None else sum_by(block, weights, blocks.number)
