"""A quantity over time that changes in steps: what it was for how long, on average, at most, and above a line.

Everything is weighted with time and exact. Levels are whole steps of `unit`, so that the time at each level can be
counted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.units import TimeMs
from tidegate.stats.quantile import weighted_quantiles

#: Levels that are counted one by one; above, neighbours are counted together.
MOST_LEVELS = 1 << 20


class Window(NamedTuple):
    """From when to when something was seen."""

    start_ms: TimeMs
    end_ms: TimeMs

    @property
    def length_ms(self) -> int:
        """How long it was."""
        return self.end_ms - self.start_ms


class Curve(NamedTuple):
    """Levels one after the other, in order of time; before the first and after the last the level is 0."""

    window: Window
    start_ms: I64  # when each level began, from the window's start
    width_ms: I64  # how long it lasted; may be 0
    level: I64  # in units
    unit: float  # what a level of 1 means, such as 1 GPU
    tick_ms: int = 0  # the width of all levels but the last two, if they are even; else 0


class Episode(NamedTuple):
    """A time in which the level was above a line without a break."""

    start_ms: TimeMs
    length_ms: int
    height: float  # the highest level in it, above the line
    area: float  # above the line, in units times hours


class Held(NamedTuple):
    """Time at each level."""

    time_ms: F64  # by row
    value: F64  # the level that each row stands for


def hold(curve: Curve) -> Held:
    """How long each level was held; the rest of the window it was 0."""
    top = int(curve.level.max(initial=0))
    step = max(1, math.ceil((top + 1) / MOST_LEVELS))
    rows = curve.level // step if step > 1 else curve.level
    time = np.bincount(rows, weights=curve.width_ms, minlength=1).astype(np.float64, copy=False)
    time[0] += max(curve.window.length_ms - float(curve.width_ms.sum()), 0.0)
    return Held(time, np.arange(time.size, dtype=np.float64) * (step * curve.unit))


def hold_between(curve: Curve, from_ms: int, to_ms: int) -> F64:
    """How long each level was held between two times of the window, in the rows of `hold`."""
    top = int(curve.level.max(initial=0))
    step = max(1, math.ceil((top + 1) / MOST_LEVELS))
    begin, end = np.maximum(curve.start_ms, from_ms), np.minimum(curve.start_ms + curve.width_ms, to_ms)
    width = np.maximum(end - begin, 0)
    time = np.bincount(curve.level // step, weights=width, minlength=1).astype(np.float64, copy=False)
    time[0] += max(to_ms - from_ms - float(width.sum()), 0.0)
    return time


def quantiles(held: Held, at: F64) -> F64:
    """The lowest levels that are not exceeded for the given shares of the time."""
    return weighted_quantiles(held.value, held.time_ms, at)


def mean(held: Held) -> float:
    """The level on average."""
    return float((held.time_ms * held.value).sum() / max(held.time_ms.sum(), 1e-300))


def peak(held: Held) -> float:
    """The highest level that lasted at all."""
    seen = np.flatnonzero(held.time_ms > 0)
    return float(held.value[seen[-1]]) if seen.size else 0.0


def average_by(curve: Curve, step_ms: int) -> F64:
    """The mean level in each step of the window, the last one shorter."""
    steps = max(1, -(-curve.window.length_ms // step_ms))
    edges = np.minimum(np.arange(steps + 1, dtype=np.int64) * step_ms, max(curve.window.length_ms, 1))
    return np.diff(_area_until(curve, edges)) / np.maximum(np.diff(edges), 1)


def _area_until(curve: Curve, at_ms: I64) -> F64:
    """What lies below the curve up to each time, in units times milliseconds."""
    if curve.level.size == 0:
        return np.zeros(at_ms.size)
    after = _rows_until(curve, at_ms)
    row = np.maximum(after - 1, 0)
    area = _areas(curve)
    before = area[row] - curve.level[row] * curve.width_ms[row]
    part = np.clip(at_ms - curve.start_ms[row], 0, curve.width_ms[row]) * curve.level[row]
    return np.where(after > 0, (before + part) * curve.unit, 0.0)


def _areas(curve: Curve) -> I64:
    """What lies below the curve up to the end of each level, in whole units times milliseconds."""
    if not curve.tick_ms:
        return np.cumsum(curve.level * curve.width_ms)
    area: I64 = np.cumsum(curve.level) * curve.tick_ms
    area[-2:] += np.cumsum(curve.level[-2:] * (curve.width_ms[-2:] - curve.tick_ms))
    return area


def _rows_until(curve: Curve, at_ms: I64) -> I64:
    """How many levels have begun by each time."""
    if curve.tick_ms:
        return np.minimum(at_ms // curve.tick_ms + 1, curve.level.size)
    return np.searchsorted(curve.start_ms, at_ms, side="right")


def level_at(curve: Curve, at_ms: I64) -> F64:
    """The level just before each time."""
    if curve.level.size == 0:
        return np.zeros(at_ms.size)
    row = np.searchsorted(curve.start_ms, at_ms, side="left") - 1
    return np.where(row >= 0, curve.level[np.maximum(row, 0)] * curve.unit, 0.0)


class Episodes(NamedTuple):
    """Episodes in columns, in order of time."""

    start_ms: I64
    length_ms: I64
    height: F64
    area: F64

    def row(self, at: int) -> Episode:
        """One of them."""
        return Episode(int(self.start_ms[at]), int(self.length_ms[at]), float(self.height[at]), float(self.area[at]))


def episodes_above(curve: Curve, line: float) -> Episodes:
    """When the level was above the line."""
    least = math.floor(line / curve.unit + 1e-9) + 1  # the first whole level above
    lasting = np.flatnonzero((curve.width_ms > 0) & (curve.level >= least))
    if lasting.size == 0:
        none = np.zeros(0, np.int64)
        return Episodes(none, none, none.astype(np.float64), none.astype(np.float64))
    start, width, level = curve.start_ms[lasting], curve.width_ms[lasting], curve.level[lasting]
    end = start + width
    first = np.flatnonzero(np.concatenate(([True], start[1:] > end[:-1])))
    last = np.append(first[1:], lasting.size) - 1
    over = level * curve.unit - line
    area = np.add.reduceat(over * width, first) / 3_600_000
    return Episodes(start[first], end[last] - start[first], np.maximum.reduceat(over, first), area)
