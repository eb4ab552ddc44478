"""A quantity over time that changes in steps: how long it had each level, its mean, its peak, and when it was high.

Everything is weighted with time and exact. Levels are whole steps of `unit`, so the time at each level can be counted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.units import HOUR_MS, TimeMs
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


class StepCurve(NamedTuple):
    """Levels one after the other, in order of time; before the first and after the last the level is 0."""

    window: Window
    start_ms: I64  # when each level began, from the window's start
    width_ms: I64  # how long it lasted; may be 0
    level: I64  # in units
    unit: float  # what a level of 1 means, such as 1 GPU
    tick_ms: int = 0  # the width of all levels but the last two, if they are even; else 0

    def width_between(self, from_ms: int, to_ms: int) -> I64:
        """How long each level lasted between two times of the window."""
        begin, end = np.maximum(self.start_ms, from_ms), np.minimum(self.start_ms + self.width_ms, to_ms)
        width: I64 = np.maximum(end - begin, 0)
        return width


def curve_of_changes(window: Window, at_ms: I64, change: I64, unit: float) -> StepCurve:
    """The curve of changes in order of time, which add up to 0: each starts a level, which lasts until the next."""
    return StepCurve(window, at_ms, np.diff(at_ms, append=at_ms[-1:]), np.cumsum(change), unit)


def curve_of_steps(window: Window, values: F64, step_ms: int) -> StepCurve:
    """The curve of a level that was seen in even steps, in thousandths; steps that were not seen (NaN) are 0."""
    start = np.arange(values.size, dtype=np.int64) * step_ms
    level = np.round(np.nan_to_num(values) * 1000).astype(np.int64)
    return StepCurve(window, start, np.full(values.size, step_ms, np.int64), level, 0.001)


class LevelTimes(NamedTuple):
    """Time at each level."""

    time_ms: F64  # by row
    value: F64  # the level that each row stands for

    def quantiles(self, shares: F64) -> F64:
        """The lowest levels that are not exceeded for the given shares of the time."""
        return weighted_quantiles(self.value, self.time_ms, shares)

    def mean(self) -> float:
        """The mean level."""
        return self.area() / max(float(self.time_ms.sum()), 1e-300)

    def peak(self) -> float:
        """The highest level that lasted at all."""
        seen = np.flatnonzero(self.time_ms > 0)
        return float(self.value[seen[-1]]) if seen.size else 0.0

    def area(self) -> float:
        """Levels times their time."""
        return float((self.time_ms * self.value).sum())


def level_times(curve: StepCurve) -> LevelTimes:
    """How long each level lasted; the rest of the window it was 0."""
    time = times_between(curve, 0, curve.window.length_ms)
    return LevelTimes(time, np.arange(time.size, dtype=np.float64) * (_row_size(curve) * curve.unit))


def times_between(curve: StepCurve, from_ms: int, to_ms: int) -> F64:
    """How long each level lasted between two times of the window, in the rows of `level_times`."""
    size, width = _row_size(curve), curve.width_between(from_ms, to_ms)
    rows = curve.level // size if size > 1 else curve.level
    time = np.bincount(rows, weights=width, minlength=1).astype(np.float64, copy=False)
    time[0] += max(to_ms - from_ms - float(width.sum()), 0.0)
    return time


def _row_size(curve: StepCurve) -> int:
    return max(1, math.ceil((int(curve.level.max(initial=0)) + 1) / MOST_LEVELS))


def average_by(curve: StepCurve, step_ms: int) -> F64:
    """The mean level in each step of the window, the last one shorter."""
    steps = max(1, -(-curve.window.length_ms // step_ms))
    edges = np.minimum(np.arange(steps + 1, dtype=np.int64) * step_ms, max(curve.window.length_ms, 1))
    return np.diff(area_until(curve, edges)) / np.maximum(np.diff(edges), 1)


def area_until(curve: StepCurve, at_ms: I64) -> F64:
    """What lies below the curve up to each time, in units times milliseconds."""
    if curve.level.size == 0:
        return np.zeros(at_ms.size)
    after = _rows_until(curve, at_ms)
    row = np.maximum(after - 1, 0)
    area = _areas(curve)
    before = area[row] - curve.level[row] * curve.width_ms[row]
    part = np.clip(at_ms - curve.start_ms[row], 0, curve.width_ms[row]) * curve.level[row]
    return np.where(after > 0, (before + part) * curve.unit, 0.0)


def _areas(curve: StepCurve) -> I64:
    """What lies below the curve up to the end of each level, in whole units times milliseconds."""
    if not curve.tick_ms:
        return np.cumsum(curve.level * curve.width_ms)
    area: I64 = np.cumsum(curve.level) * curve.tick_ms
    area[-2:] += np.cumsum(curve.level[-2:] * (curve.width_ms[-2:] - curve.tick_ms))
    return area


def _rows_until(curve: StepCurve, at_ms: I64) -> I64:
    """How many levels have begun by each time."""
    if curve.tick_ms:
        return np.minimum(at_ms // curve.tick_ms + 1, curve.level.size)
    return np.searchsorted(curve.start_ms, at_ms, side="right")


def level_at(curve: StepCurve, at_ms: I64) -> F64:
    """The level just before each time."""
    if curve.level.size == 0:
        return np.zeros(at_ms.size)
    row = np.searchsorted(curve.start_ms, at_ms, side="left") - 1
    return np.where(row >= 0, curve.level[np.maximum(row, 0)] * curve.unit, 0.0)


class Episodes(NamedTuple):
    """Times in which the level was above a line without a break: columns, in order of time."""

    start_ms: I64
    length_ms: I64
    height: F64  # the highest level, above the line
    area: F64  # above the line, in units times hours


def episodes_above(curve: StepCurve, line: float) -> Episodes:
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
    area = np.add.reduceat(over * width, first) / HOUR_MS
    return Episodes(start[first], end[last] - start[first], np.maximum.reduceat(over, first), area)
