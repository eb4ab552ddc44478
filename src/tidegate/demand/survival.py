"""Survival analysis of durations that had not all ended: Kaplan-Meier, with intervals.

A duration that had not ended is at risk until it was last seen; one that began before the window is at risk from its
age at the begin of the window. Beyond the last end, the rate of ends is taken to be constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidegate.demand.estimate import How, Number, Unit, at_least, estimate, exact, variation
from tidegate.demand.sketches import ACCURACY, Sketch, sketch_of
from tidegate.model.arrays import F64, I64
from tidegate.stats.interval import NORMAL, Interval, NoInterval, around, wilson

#: The rate beyond the last end is that of the last so many ends.
_LAST_ENDS = 10

#: Values that stand for all that lies beyond the last end.
_TAIL_VALUES = 32

#: What may lie beyond the last end, as a part of what was seen; with more, only what was seen is known.
_MOST_TAIL = 0.05

#: A rate of few ends is not taken to be lower than this part of it.
_LEAST_RATE = 0.1


class WatchedDurations(NamedTuple):
    """Durations, ascending."""

    ended_ms: I64  # from begin to end
    going_ms: I64  # of what had not ended: how long it had lasted when it was last seen
    entered_ms: I64  # of what began before the window, ended or not: its age at its begin
    every: tuple[int, int, int] = (1, 1, 1)  # each of the three stands for so many

    @property
    def total(self) -> int:
        """How many durations there are."""
        return self.ended_ms.size * self.every[0] + self.going_ms.size * self.every[1]

    def whole(self) -> bool:
        """Whether all ended, and were seen to begin: then values need no estimate."""
        return not (self.going_ms.size or self.entered_ms.size)

    def at_risk(self, at_ms: I64) -> F64:
        """How many were watched and had not ended just before each age."""
        ended, going, entered = (
            every * (values.size - np.searchsorted(values, at_ms, side="left"))
            for values, every in zip(self[:3], self.every, strict=True)
        )
        return np.asarray(ended + going - entered, np.float64)

    def exposure_ms(self, from_ms: int) -> float:
        """The time at ages above one that was watched, of all of them together."""
        ended, going, entered = (
            every * float(np.maximum(values - from_ms, 0).sum())
            for values, every in zip(self[:3], self.every, strict=True)
        )
        return ended + going - entered


class Survival(NamedTuple):
    """The share that lasts longer than each age at which something ended."""

    at_ms: I64
    share: F64
    spread: F64  # of the variance, by Greenwood: what each end adds to that of the share, relative to its square
    rate: float  # of ends in a millisecond beyond the last of them; 0: nothing says
    ends: int  # that the rate was found from
    watched: WatchedDurations

    def longer_than(self, age_ms: I64) -> F64:
        """The share that lasts longer than each age, up to the last end."""
        row = np.searchsorted(self.at_ms, age_ms, side="right")
        return np.concatenate(([1.0], self.share))[row]

    @property
    def last_ms(self) -> int:
        """The longest that was seen to end."""
        return int(self.at_ms[-1]) if self.at_ms.size else 0

    @property
    def left(self) -> float:
        """The share that lasts longer than any that was seen to end."""
        return float(self.share[-1]) if self.share.size else 1.0


def estimate_survival(watched: WatchedDurations, usual_ms: float = 0.0) -> Survival:
    """How long things last; where none has ended yet, `usual_ms` is what others last."""
    at_ms, counts = np.unique(watched.ended_ms, return_counts=True)
    ends = counts * float(watched.every[0])
    risk = np.maximum(watched.at_risk(at_ms), ends)
    alone = risk <= ends  # no other is watched at that age, so it tells nothing about those that last longer
    ends = np.where(alone & (at_ms < at_ms.max(initial=0)), 0.0, ends)
    share = np.cumprod(1 - ends / np.maximum(risk, 1e-300))
    spread = np.where(risk > ends, ends / np.maximum(risk * (risk - ends), 1e-300), 0.0)
    rate, found = _tail_rate(watched, usual_ms)
    return Survival(at_ms, share, spread, rate, found, watched)


def _tail_rate(watched: WatchedDurations, usual_ms: float) -> tuple[float, int]:
    """Ends in a millisecond: the last ones, over the time that was watched since the one before them."""
    ended = watched.ended_ms
    if not ended.size:
        exposed = watched.exposure_ms(0) + usual_ms
        return (1 / exposed if exposed > 0 else 0.0), 1
    first = int(ended[-min(max(1, _LAST_ENDS // watched.every[0]), ended.size)])
    before = int(np.searchsorted(ended, first, side="left"))
    from_ms, ends = int(ended[before - 1]) if before else 0, (ended.size - before) * watched.every[0]
    return ends / max(watched.exposure_ms(from_ms), 1.0), ends


def draw_beyond(survival: Survival, age_ms: I64, ranks: F64) -> I64:
    """How long those last that have reached an age, at ranks between 0 and 1; always longer than the age."""
    target = ranks * survival.longer_than(age_ms)
    row = np.searchsorted(-survival.share, -target, side="left")
    inside = row < survival.at_ms.size
    seen = survival.at_ms[np.minimum(row, survival.at_ms.size - 1)] if survival.at_ms.size else age_ms
    from_ms = np.maximum(age_ms, survival.last_ms)
    beyond = np.log(np.maximum(survival.left / np.maximum(target, 1e-12), 1.0)) / max(survival.rate, 1e-15)
    told = np.where(inside, seen, from_ms + np.minimum(np.ceil(beyond), 1 << 40))
    return np.maximum(told.astype(np.int64), age_ms + 1)


# -- numbers -----------------------------------------------------------------------------------------------------------


def survival_quantile(
    survival: Survival, part: float, unit: Unit, table: str, alike: float | NoInterval = 1.0
) -> Number:
    """The age by which this part has ended, with an interval; at least how old they get, where that is not reached."""
    watched, line = survival.watched, 1 - part
    samples = watched.total
    marks = np.unique(np.concatenate((watched.ended_ms, watched.going_ms)))
    lower, upper = _band(survival, marks, 1.0 if isinstance(alike, NoInterval) else alike)
    reached = np.flatnonzero(survival.share <= line + 1e-12)
    sure = np.flatnonzero(lower <= line)
    low = float(marks[sure[0]]) if sure.size else float(marks[-1])
    if not reached.size:
        return at_least(exact(low, unit, samples, table))
    value = float(survival.at_ms[reached[0]])
    if isinstance(alike, NoInterval):
        return estimate(value, alike, unit, (samples, table), How.SURVIVAL)
    above = np.flatnonzero(upper <= line)
    high = float(marks[above[0]]) if above.size else _bound_beyond(survival, float(upper[-1]), line)
    return estimate(value, Interval(low, high), unit, (samples, table), How.SURVIVAL)


def _band(survival: Survival, marks: I64, alike: float) -> tuple[F64, F64]:
    """Wilson's interval of the share at each age, as if of as many as are watched there, those before them included."""
    share = survival.longer_than(marks)
    before = np.concatenate(([1.0], survival.share))[np.searchsorted(survival.at_ms, marks, side="left")]
    count = np.maximum(survival.watched.at_risk(marks), 1.0) / np.maximum(before, 1e-12)
    return wilson(share, count / alike)


def _bound_beyond(survival: Survival, share: float, line: float) -> float:
    """Where a share that is left at the end falls to a line, at the least rate of ends that is likely."""
    least = max(1 - NORMAL / math.sqrt(max(survival.ends, 1)), _LEAST_RATE)
    longest = max((int(values[-1]) for values in survival.watched[:2] if values.size), default=0)
    return longest + math.log(max(share / max(line, 1e-12), 1.0)) / max(survival.rate * least, 1e-15)


class DurationShape(NamedTuple):
    """Mean and variation of durations."""

    mean: Number
    cv: Number  # deviation over mean


class _Area(NamedTuple):
    """An integral of the survival, weighted with a power of the age."""

    seen: F64  # from each age on, up to the last end
    tail: float  # beyond it

    def error(self, spread: F64) -> float:
        """How sure the part is that was seen; the tail may be wrong by all of itself."""
        return math.sqrt(float(((self.seen[1:] + self.tail) ** 2 * spread).sum()) + self.tail**2)


def survival_shape(survival: Survival, unit: Unit, table: str, alike: float | NoInterval = 1.0) -> DurationShape:
    """The mean and the deviation over it; at least what was seen of them, where much of it lies beyond the last end.

    To cut off durations lowers their mean, and their deviation over it.
    """
    samples = survival.watched.total
    if not survival.last_ms:
        seen_ms = survival.watched.exposure_ms(0) / max(samples, 1)
        none = exact(0.0, Unit.RATIO, samples, table)
        return DurationShape(at_least(exact(seen_ms, unit, samples, table)), at_least(none))
    first, second = _area(survival, 1), _area(survival, 2)
    bounded = first.tail > _MOST_TAIL * first.seen[0]
    part = first._replace(tail=0.0) if bounded else first
    mean = float(part.seen[0]) + part.tail
    if not isinstance(alike, NoInterval):
        survival = survival._replace(spread=survival.spread * alike)
    found = _around(mean, part.error(survival.spread))
    sure = alike if isinstance(alike, NoInterval) else found
    told = estimate(mean, sure, unit, (samples, table), How.SURVIVAL)
    bound = at_least(exact(found.low, unit, samples, table))
    return DurationShape(bound if bounded else told, _variation(survival, first, second, table))


def _area(survival: Survival, power: int) -> _Area:
    ages = np.concatenate(([0.0], survival.at_ms.astype(np.float64)))
    share = np.concatenate(([1.0], survival.share))
    areas = share[:-1] * np.diff(ages**power)
    usual = 1 / survival.rate if survival.rate > 0 else 0.0
    tail = survival.left * (usual if power == 1 else 2 * usual * (ages[-1] + usual))
    return _Area(np.concatenate((np.cumsum(areas[::-1])[::-1], [0.0])), tail)


def _variation(survival: Survival, first: _Area, second: _Area, table: str) -> Number:
    samples = survival.watched.total
    bounded = second.tail > _MOST_TAIL * second.seen[0]
    if bounded:
        first, second = first._replace(tail=0.0), second._replace(tail=0.0)
    mean, square = float(first.seen[0]) + first.tail, float(second.seen[0]) + second.tail
    cv = math.sqrt(max(square / mean**2 - 1, 0.0))
    by_square, by_mean = 1 / mean**2, -2 * square / mean**3
    change = _Area(by_square * second.seen + by_mean * first.seen, by_square * second.tail + by_mean * first.tail)
    found = _around(cv, change.error(survival.spread) / max(2 * cv, 1e-9))
    if bounded:
        return at_least(exact(found.low, Unit.RATIO, samples, table))
    return variation(cv, found, (samples, table), How.SURVIVAL)


def _around(value: float, error: float) -> Interval:
    return around(value, NORMAL * error, NORMAL * error)


def survival_sketch(survival: Survival, accuracy: float = ACCURACY) -> Sketch:
    """The durations as a sketch: ends weigh what they stand for, and a few values stand for the rest."""
    total = survival.watched.total
    weights = -np.diff(np.concatenate(([1.0], survival.share))) * total
    values = survival.at_ms.astype(np.float64)
    if survival.left > 0 and survival.rate > 0:
        ranks = (np.arange(_TAIL_VALUES) + 0.5) / _TAIL_VALUES
        values = np.concatenate((values, survival.last_ms - np.log(ranks) / survival.rate))
        weights = np.concatenate((weights, np.full(_TAIL_VALUES, survival.left * total / _TAIL_VALUES)))
    return sketch_of(values, weights, accuracy)
