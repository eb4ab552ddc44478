"""How much of a difference between two runs chance could explain: intervals of ratios, by a paired bootstrap.

Must not know: how runs are made, or how anything is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidegate.measure.lives import Fate, Lives
from tidegate.measure.summary import completion_ms
from tidegate.model.columns import F64
from tidegate.model.spec import Spec

RESAMPLES = 1_000

#: More workloads than this are put into as many random groups, and groups are drawn: as good, and quick at any size.
MOST_DRAWN = 20_000
_DRAWN_AT_ONCE = 1 << 22


class Interval(Spec, frozen=True):
    """Where a ratio lies with 95 % certainty, if the trace's workloads were drawn anew."""

    low: float
    high: float
    workloads: int  # that could be compared

    def excludes_one(self) -> bool:
        """Say whether chance alone hardly explains the difference."""
        return self.high < 1 or self.low > 1


def waits(lives: Lives) -> F64:
    """How long each workload waited; NaN for those that were rejected."""
    return np.where(lives.fate == Fate.REJECTED, np.nan, lives.waited_ms)


def completions(lives: Lives) -> F64:
    """From submission to the end; NaN for those that did not finish."""
    return np.where(lives.fate == Fate.FINISHED, completion_ms(lives), np.nan)


def draw_intervals(
    lives: Sequence[Lives], values_of: Callable[[Lives], F64], seed: int, most: int = MOST_DRAWN
) -> list[Interval | None]:
    """For each run after the first, the interval of the ratio of means, over workloads that both runs have."""
    intervals: list[Interval | None] = [None]
    for each in lives[1:]:
        mine, first = _paired(each, lives[0], values_of)
        intervals.append(ratio_interval(mine, first, np.random.default_rng(seed), most))
    return intervals


def _paired(lives: Lives, first: Lives, values_of: Callable[[Lives], F64]) -> tuple[F64, F64]:
    """The values of those workloads that have one in both runs."""
    if lives.ids == first.ids:
        mine, others = values_of(lives), values_of(first)
    else:
        _, at, other_at = np.intersect1d(np.array(lives.ids), np.array(first.ids), return_indices=True)
        mine, others = values_of(lives)[at], values_of(first)[other_at]
    known = ~(np.isnan(mine) | np.isnan(others))
    return mine[known], others[known]


def ratio_interval(mine: F64, first: F64, rng: np.random.Generator, most: int = MOST_DRAWN) -> Interval | None:
    """The 95 % interval of mean(mine)/mean(first) by a paired bootstrap; None if there is too little to draw from."""
    count = len(mine)
    if count < 2 or first.sum() <= 0:
        return None
    if count > most:
        group = rng.permutation(count) % most
        mine, first = (np.bincount(group, values).astype(np.float64) for values in (mine, first))
    tops, bottoms = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    at_once = max(_DRAWN_AT_ONCE // len(mine), 1)
    for begin in range(0, RESAMPLES, at_once):
        end = min(begin + at_once, RESAMPLES)
        drawn = rng.integers(0, len(mine), (end - begin, len(mine)))
        tops[begin:end], bottoms[begin:end] = mine[drawn].sum(axis=1), first[drawn].sum(axis=1)
    if not (bottoms > 0).all():
        return None  # too few have a value at all
    low, high = np.percentile(tops / bottoms, [2.5, 97.5]).tolist()
    return Interval(low=low, high=high, workloads=count)
