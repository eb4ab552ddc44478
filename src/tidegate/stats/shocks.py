"""The interval of a sum of lasting effects: for two runs that diverge and meet again.

A pod that fails in one of two runs makes a queue longer there, and all jobs behind it wait longer until both queues are
the same again. Differences are not independent; their changes from one unit of time to the next (shocks) are. A shock
counts until the runs change places or are the same again. In overload shocks last to the end: a random walk.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.stats.blocks import sum_by
from tidegate.stats.interval import LEAST_EFFECTIVE, Interval, NoInterval, around, narrow, student

#: Means of a random walk over neighbouring units differ by less than its values that far apart: by 2/3 of the variance.
_FROM_MEANS = 1.5

#: Sums of floats that should be 0 are at most this part of the value.
_ROUNDING = 1e-9


def shock_interval(value: float, lasting: F64, own: F64, period: I64, unit: I64) -> Interval | NoInterval:
    """The interval of a value to which each of many items adds its effects (all together they add up to 0).

    What is lasting has causes that others feel as well, what is its own has not. Items are in order of time; `period`
    and `unit` number theirs, upwards.
    """
    begins = np.diff(period, prepend=-1) != 0
    heads = np.flatnonzero(begins | (np.diff(unit, prepend=-1) != 0))
    piece = np.repeat(np.arange(heads.size), np.diff(heads, append=period.size))
    level = sum_by(piece, lasting, heads.size) / np.bincount(piece)
    before = np.where(begins[heads], 0.0, np.append(0.0, level[:-1]))
    lasts = np.searchsorted(period, period[heads], side="right") - heads
    shocks = _FROM_MEANS * ((level - before) * lasts) ** 2
    squares = np.append(shocks, sum_by(unit, own, int(unit[-1]) + 1) ** 2)
    if float(squares.sum()) <= (_ROUNDING * value) ** 2:  # each is as many times as long: nothing drives them apart
        return Interval(value, value)
    effective = float(squares.sum()) ** 2 / max(float((squares * squares).sum()), 1e-300)
    if effective < LEAST_EFFECTIVE:
        return NoInterval.UNEVEN
    half = student(effective) * math.sqrt(float(squares.sum()))
    return narrow(around(value, half, half))


def cut_periods(apart: F64, at_ms: I64, unit: I64, rest_ms: float) -> I64:
    """The period of each item: a new one where the sign of what units add up to changes, and after a rest.

    Where two runs of the same kind change places, either is as likely to be ahead next: signs of periods are
    independent. A rest is a time without any difference that is as long as work runs: then what caused one is gone.
    """
    side = np.sign(sum_by(unit, apart, int(unit[-1]) + 1))[unit]
    tells = np.flatnonzero(side)
    changes = (np.diff(side[tells]) != 0) | (np.diff(at_ms[tells]) > rest_ms)
    begins = np.zeros(apart.size, np.int64)
    begins[tells[1:][changes]] = 1
    return np.cumsum(begins)
