"""The newsvendor problem: how much to own, to book and to leave to burst when demand is a distribution.

A GPU is worth owning while the burst that it saves costs more than the GPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidegate.config.prices import MICROS, GpuPrices
from tidegate.demand.calendar import hour_of_week
from tidegate.demand.time_zone import Calendar
from tidegate.model.arrays import F64, I64
from tidegate.model.units import WEEK_MS
from tidegate.planning.capacity import HOURS, WeekWindows

#: Levels at most; fewer are enough to compare windows.
MOST_LEVELS, FEW_LEVELS = 8192, 256


class Demand(NamedTuple):
    """How much is asked for in each hour of the week, as a distribution over levels."""

    level_gpus: F64  # levels, evenly spaced from 0
    weight: F64  # by hour of the week: how much of what was seen in it counts
    excess_gpu_h: F64  # (hour of the week, level): what is asked for above the level, times that weight

    def above(self, windows: WeekWindows) -> F64:
        """By window and level: GPU-hours a week that are asked for above the level.

        Each window counts with the hours that the calendar gives it, however much of it was seen; one that
        was never seen is as all others together.
        """
        member = np.equal.outer(np.arange(len(windows.names)), np.array(windows.of_hour)).astype(np.float64)
        weight, excess = member @ self.weight, member @ self.excess_gpu_h
        seen = (weight > 0)[:, None]
        excess = np.where(seen, excess, excess.sum(axis=0))
        weight = np.where(seen[:, 0], weight, weight.sum() or 1.0)
        told: F64 = excess * (np.array(windows.hours(), np.float64) / weight)[:, None]
        return told

    def even(self) -> Demand:
        """The same with all hours of the week alike, so that any two sets of windows see as much demand."""
        hours = WeekWindows(tuple(map(str, range(HOURS))), tuple(range(HOURS)))
        return Demand(self.level_gpus, np.ones(HOURS), self.above(hours))


def weigh(at_ms: I64, gpus: F64, now_ms: int, half_life_ms: int, calendar: Calendar, most: int = MOST_LEVELS) -> Demand:
    """The distribution of demand that was seen in even steps; what is older counts less, if there is a half-life."""
    weight = np.exp2((at_ms - now_ms) / half_life_ms) if half_life_ms else np.ones(len(at_ms))
    hour = hour_of_week(at_ms, calendar)
    top = float(gpus.max(initial=0.0))
    step = max(1, math.ceil(top / most))
    levels = np.arange(0, math.ceil(top / step) + 1, dtype=np.float64) * step
    mass = np.zeros((HOURS, len(levels)))
    upper = np.minimum(np.ceil(gpus / step).astype(np.int64), len(levels) - 1)
    part = upper - gpus / step  # what lies between two levels counts for both, so that means are kept
    np.add.at(mass, (hour, upper), weight * (1 - part))
    np.add.at(mass, (hour, np.maximum(upper - 1, 0)), weight * part)
    beyond = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]  # hours at or above each level
    above = np.concatenate([beyond[:, 1:], np.zeros((HOURS, 1))], axis=1)
    excess = np.cumsum(above[:, ::-1], axis=1)[:, ::-1] * step
    return Demand(levels, mass.sum(axis=1), excess)


class Split(NamedTuple):
    """What to own and to book by window, and what it costs a week if demand stays as it was."""

    own_gpus: int
    window_gpus: tuple[int, ...]  # by window, what is owned included
    own_cost: float
    window_cost: float
    burst_cost: float

    @property
    def cost(self) -> float:
        """All of it."""
        return self.own_cost + self.window_cost + self.burst_cost


def split(demand: Demand, windows: WeekWindows, prices: GpuPrices) -> Split:
    """The cheapest levels: own all week, book by window, burst above."""
    own, window, burst = (micros / MICROS for micros in (prices.own_micros, prices.window_micros, prices.burst_micros))
    hours, excess = np.array(windows.hours(), np.float64), demand.above(windows)
    level = demand.level_gpus
    booked = window * np.outer(hours, level) + burst * excess  # if all of it were booked
    best_from = np.minimum.accumulate(booked[:, ::-1], axis=1)[:, ::-1]
    total = own * level * hours.sum() + (best_from - window * np.outer(hours, level)).sum(axis=0)
    base = int(np.flatnonzero(total <= total.min() * (1 + 1e-12))[-1])  # of what costs the same, own rather than book
    rows = [base + int(np.argmin(booked[w, base:])) for w in range(len(hours))]
    return Split(
        own_gpus=int(level[base]),
        window_gpus=tuple(int(level[row]) for row in rows),
        own_cost=float(own * level[base] * hours.sum()),
        window_cost=float(sum(window * (level[row] - level[base]) * hours[w] for w, row in enumerate(rows))),
        burst_cost=float(sum(burst * excess[w, row] for w, row in enumerate(rows))),
    )


def cost_of(levels: Split, demand: Demand, windows: WeekWindows, prices: GpuPrices) -> float:
    """What levels cost a week under some demand."""
    own, window, burst = (micros / MICROS for micros in (prices.own_micros, prices.window_micros, prices.burst_micros))
    hours, above = windows.hours(), demand.above(windows)
    cost = own * levels.own_gpus * sum(hours)
    for row, gpus in enumerate(levels.window_gpus):
        cost += window * (gpus - levels.own_gpus) * hours[row]
        cost += burst * float(np.interp(gpus, demand.level_gpus, above[row]))
    return cost


def used_hours(demand: Demand, windows: WeekWindows, gpus: float) -> F64:
    """Hours a week, by window, in which more than so many GPUs are asked for."""
    step = demand.level_gpus[1] if len(demand.level_gpus) > 1 else 1.0
    row = min(int(gpus // step), len(demand.level_gpus) - 1)
    after = min(row + 1, len(demand.level_gpus) - 1)
    above = demand.above(windows)
    hours: F64 = (above[:, row] - above[:, after]) / step
    return hours


#: After this, what was seen counts half; chosen on the first two thirds of seven traces (docs/planning.md).
HALF_LIFE_MS = WEEK_MS // 2
