"""Ratios of mean times between two runs over the same workloads, with confidence intervals (paired comparison).

Waits are not independent: a long queue makes all jobs in it wait, and two runs that diverge stay apart until both
queues are empty. The interval is the wider one of two: from differences by blocks of submission time (`stats.blocks`),
and from the shocks that drive the runs apart (`stats.shocks`). Several seeds add the spread between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tidegate.measure.job_records import Fate, JobRecords
from tidegate.measure.summary import completion_ms
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.stats.blocks import Blocks, count_units, linear_interval, sum_by
from tidegate.stats.interval import LEAST_PARTS, Interval, NoInterval, around, narrow, student, widest
from tidegate.stats.shocks import cut_periods, shock_interval

#: Units of time that blocks are made of, at least: both runs have the same days and nights, so parts of days will do.
_LEAST_UNITS = 24

#: Units of time: to see which run is ahead, and for shocks.
_SIDES, _SHOCKS = 96, 24

#: The values of one policy's workloads, by run; the runs differ in their seeds alone.
Runs = Sequence[JobRecords]


class RatioInterval(Spec, frozen=True):
    """Where a ratio lies, nine times of ten, if work like this came again; or why that cannot be said."""

    low: float | None
    high: float | None
    workloads: int  # that could be compared
    blocks: int = 0  # of time
    block_ms: int = 0
    none: NoInterval | None = None  # why there is no interval
    this_work: bool = False  # only of this work with other seeds: of other work like it, the window tells nothing

    def excludes_one(self) -> bool:
        """Say whether chance alone hardly explains the difference."""
        return self.low is not None and self.high is not None and (self.high < 1 or self.low > 1)


class Parting(NamedTuple):
    """How two policies' runs part ways, whatever is measured of them."""

    mine_ms: F64  # the wait of each workload, the mean over seeds: queues carry on what happened, runtimes do not
    first_ms: F64
    rest_ms: float  # runs that do not differ for so long are the same again


def waits(lives: JobRecords, until_ms: int | None = None) -> F64:
    """How long each workload waited; NaN for those that were rejected.

    Who waits at the end of a run would wait on: until a time that is the same for all runs that are compared.
    """
    longer_ms = 0 if until_ms is None else until_ms - lives.end_ms
    waited = lives.waited_ms + np.where(lives.fate == Fate.WAITING, longer_ms, 0)
    return np.where(lives.fate == Fate.REJECTED, np.nan, waited)


def completions(lives: JobRecords) -> F64:
    """From submission to the end; NaN for those that did not finish."""
    return np.where(lives.fate == Fate.FINISHED, completion_ms(lives), np.nan)


def by_seed(runs: Runs, ids: Sequence[str], values_of: Callable[[JobRecords], F64]) -> F64:
    """(seeds, workloads): the values of workloads in the order of their ids; NaN for those that a run has not."""
    found = np.full((len(runs), len(ids)), np.nan)
    for lives, values in zip(runs, found, strict=True):
        row = {name: at for at, name in enumerate(lives.ids)}
        rows = np.array([row.get(name, -1) for name in ids], np.int64)
        values[rows >= 0] = values_of(lives)[rows[rows >= 0]]
    return found


def parting_of(mine: F64, first: F64, taken: F64) -> Parting:
    """How runs part ways, by their waits; they rest when work of that time is gone, which takes as long as it stays."""
    known = taken[np.isfinite(taken)]
    mine, first = (np.nan_to_num(waited.mean(axis=0)) for waited in (mine, first))
    return Parting(mine, first, float(known.mean()) if known.size else math.inf)


def ratio_interval(mine: F64, first: F64, submitted_ms: I64, parting: Parting | None = None) -> RatioInterval:
    """The interval of mean(mine)/mean(first) for paired values, by workload or by (seed, workload).

    Workloads with a value that is missing (NaN) are left out. Where nobody says how the runs part ways, it is taken
    from the values, and runs do not rest.
    """
    mine, first = np.atleast_2d(mine), np.atleast_2d(first)
    known = np.flatnonzero(np.isfinite(mine).all(axis=0) & np.isfinite(first).all(axis=0))
    known = known[np.argsort(submitted_ms[known], kind="stable")]
    mine, first, at_ms = mine[:, known], first[:, known], submitted_ms[known]
    if known.size < 2 or first.sum() <= 0 or mine.sum() <= 0:
        return _none(known.size, NoInterval.NOTHING)
    if np.array_equal(mine, first):  # the same runs twice: nothing is estimated
        return RatioInterval(low=1.0, high=1.0, workloads=known.size)
    means = mine.mean(axis=0), first.mean(axis=0)
    if parting is None:
        parting = Parting(*means, math.inf)
    else:
        parting = Parting(parting.mine_ms[known], parting.first_ms[known], parting.rest_ms)
    found, blocks = _over_time(*means, at_ms, parting)
    seeds = _over_seeds(mine.sum(axis=1), first.sum(axis=1))
    alone = seeds is not None and isinstance(found, NoInterval) and found is not NoInterval.FEW
    if seeds is not None and found is not NoInterval.FEW:
        found = seeds if alone or isinstance(seeds, NoInterval) else widest(found, seeds)
    if isinstance(found, NoInterval):
        return _none(known.size, found)
    number = blocks.number if blocks is not None and not alone else 0
    return RatioInterval(
        low=found.low,
        high=found.high,
        workloads=known.size,
        blocks=number,
        block_ms=int(at_ms[-1] - at_ms[0] + 1) // number if number else 0,
        this_work=alone,
    )


def _none(workloads: int, why: NoInterval) -> RatioInterval:
    return RatioInterval(low=None, high=None, workloads=workloads, none=why)


def _over_time(mine: F64, first: F64, at_ms: I64, parting: Parting) -> tuple[Interval | NoInterval, Blocks | None]:
    """What the window tells: by blocks of time and by shocks, the wider; both hold the truth on their own terms.

    Where differences last as long as the window, blocks tell nothing, and shocks that are not forgotten do.
    """
    total = float(first.sum())
    ratio = float(mine.sum()) / total
    length_ms = int(at_ms[-1] - at_ms[0]) + 1
    units = max(count_units(length_ms), _LEAST_UNITS)
    unit, sides, parts = ((at_ms - at_ms[0]) * count // length_ms for count in (units, _SIDES, _SHOCKS))
    if np.unique(unit[mine + first > 0]).size < LEAST_PARTS:  # a few that wait tell nothing about others, however alike
        return NoInterval.FEW, None
    effects = (mine - ratio * first) / total
    found, blocks = linear_interval(ratio, sum_by(unit, effects, units), sum_by(unit, np.abs(mine - first), units))
    stretch = cut_periods(parting.mine_ms - parting.first_ms, at_ms, sides, parting.rest_ms)
    lasting = (parting.mine_ms - ratio * parting.first_ms) / total
    shocks = shock_interval(ratio, lasting, effects - lasting, stretch, parts)
    if isinstance(blocks, NoInterval):
        return (shocks if blocks is NoInterval.TREND else blocks), None
    return widest(found, shocks), blocks


def _over_seeds(mine: F64, first: F64) -> Interval | NoInterval | None:
    """What the spread between seeds tells (Student), of sums by seed; None: there is none."""
    seeds, ratio = mine.size, float(mine.sum() / first.sum())
    effects = (mine - ratio * first) / first.mean()
    spread = float((effects * effects).sum())
    if seeds < 2 or spread <= 0:
        return None
    half = student(seeds - 1) * math.sqrt(spread / (seeds - 1) / seeds)
    return narrow(around(ratio, half, half))
