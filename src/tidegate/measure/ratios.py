"""How much longer work takes in one run than in another, with an interval: paired by workload, by blocks of time.

Waits are not independent: a queue that is long makes everybody in it wait, and two runs that part ways stay apart until
both queues are empty. So the differences are added up by blocks of time of submission, as long as their own memory asks
for, and blocks in which runs differ most count for more (`stats`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidegate.measure.lives import Fate, Lives
from tidegate.measure.summary import completion_ms
from tidegate.model.columns import F64, I64
from tidegate.model.spec import Spec
from tidegate.stats.blocks import count_units, linear_interval, sum_by
from tidegate.stats.interval import LEAST_PARTS, NoInterval

#: Units of time that blocks are made of, at least: both runs have the same days and nights, so parts of days will do.
_LEAST_UNITS = 24

#: The values of one policy's workloads, by run; the runs differ in their seeds alone.
Runs = Sequence[Lives]


class RatioInterval(Spec, frozen=True):
    """Where a ratio lies, nine times of ten, if work like this came again; or why that cannot be said."""

    low: float | None
    high: float | None
    workloads: int  # that could be compared
    blocks: int = 0  # of time
    block_ms: int = 0
    none: NoInterval | None = None  # why there is no interval

    def excludes_one(self) -> bool:
        """Say whether chance alone hardly explains the difference."""
        return self.low is not None and self.high is not None and (self.high < 1 or self.low > 1)


def waits(lives: Lives) -> F64:
    """How long each workload waited; NaN for those that were rejected."""
    return np.where(lives.fate == Fate.REJECTED, np.nan, lives.waited_ms)


def completions(lives: Lives) -> F64:
    """From submission to the end; NaN for those that did not finish."""
    return np.where(lives.fate == Fate.FINISHED, completion_ms(lives), np.nan)


def ratio_intervals(policies: Sequence[Runs], values_of: Callable[[Lives], F64]) -> list[RatioInterval | None]:
    """For each policy after the first, the interval of the ratio of means, over workloads that both have."""
    ids = [np.array(runs[0].ids) for runs in policies]
    means = [_mean_of_runs(runs, values_of) for runs in policies]
    intervals: list[RatioInterval | None] = [None]
    for mine, its_ids in zip(means[1:], ids[1:], strict=True):
        _, at, first_at = np.intersect1d(its_ids, ids[0], return_indices=True)
        intervals.append(ratio_interval(mine[at], means[0][first_at], policies[0][0].submitted_ms[first_at]))
    return intervals


def _mean_of_runs(runs: Runs, values_of: Callable[[Lives], F64]) -> F64:
    """The mean over seeds for each workload, in the order of the first run."""
    total = values_of(runs[0])
    for lives in runs[1:]:
        values = values_of(lives)
        if lives.ids != runs[0].ids:
            row = {name: at for at, name in enumerate(lives.ids)}
            values = np.array([values[row[name]] if name in row else np.nan for name in runs[0].ids])
        total = total + values
    return np.asarray(total / len(runs), np.float64)


def ratio_interval(mine: F64, first: F64, submitted_ms: I64) -> RatioInterval:
    """The interval of mean(mine)/mean(first) for paired values; those that are missing (NaN) are left out."""
    known = ~(np.isnan(mine) | np.isnan(first))
    mine, first, at_ms = mine[known], first[known], submitted_ms[known]
    count, total = mine.size, float(first.sum())
    if count < 2 or total <= 0 or mine.sum() <= 0:
        return RatioInterval(low=None, high=None, workloads=count, none=NoInterval.NOTHING)
    ratio = float(mine.sum()) / total
    if (mine == first).all():  # the same run twice: nothing is estimated
        return RatioInterval(low=1.0, high=1.0, workloads=count)
    length_ms = int(at_ms.max() - at_ms.min()) + 1
    units = max(count_units(length_ms), _LEAST_UNITS)
    unit = (at_ms - at_ms.min()) * units // length_ms
    if np.unique(unit[mine + first > 0]).size < LEAST_PARTS:  # a few that wait tell nothing about others, however alike
        return RatioInterval(low=None, high=None, workloads=count, none=NoInterval.FEW)
    effects = sum_by(unit, mine - ratio * first, units) / total
    found, blocks = linear_interval(ratio, effects, sum_by(unit, np.abs(mine - first), units))
    if isinstance(found, NoInterval) or isinstance(blocks, NoInterval):
        none = found if isinstance(found, NoInterval) else None
        return RatioInterval(low=None, high=None, workloads=count, none=none)
    width_ms = length_ms // blocks.number
    return RatioInterval(low=found.low, high=found.high, workloads=count, blocks=blocks.number, block_ms=width_ms)
