"""The same workloads under several policies: which of them can be compared, and their waits and completion times.

A policy that finishes more also finishes the work that waited longest, so a mean over what each policy finished would
compare different work. Waits are of the work that no run rejected, completion times of what finished in every run.
Waits that had not ended count until the same time under every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.measure.job_records import Fate, JobRecords
from tidegate.measure.ratios import RatioInterval, Runs, by_seed, completions, parting_of, ratio_interval, waits
from tidegate.measure.summary import Mask, TimeSpread, spread_of
from tidegate.model.arrays import F64, I64


class Matched(NamedTuple):
    """Workloads of the first policy, and their values by policy: (seeds, workloads) each."""

    submitted_ms: I64
    queues: tuple[F64, ...]  # by policy, the row of each workload's queue in the names below
    names: tuple[str, ...]
    waits: tuple[F64, ...]  # NaN: rejected, or not in that run
    completions: tuple[F64, ...]  # NaN: did not finish
    waiting: tuple[Mask, ...]  # whose waits had not ended

    def of_queue(self, name: str) -> Mask:
        """The workloads that are of a queue under any policy."""
        row = self.names.index(name) if name in self.names else -1
        found: Mask = np.any([queue == row for queue in self.queues], axis=0)
        return found


class Cut(NamedTuple):
    """One kind of time of the same work: how it is spread under each policy, by seed, and the ratios of means."""

    workloads: int  # that can be compared
    spreads: tuple[tuple[TimeSpread | None, ...], ...]
    open_ms: tuple[tuple[float | None, ...], ...]  # the shortest wait that had not ended; None: all had
    intervals: tuple[RatioInterval | None, ...]


def match(policies: Sequence[Runs]) -> Matched:
    """Match the workloads of all runs by their ids."""
    ids, until_ms = policies[0][0].ids, max(lives.end_ms for runs in policies for lives in runs)
    names = tuple(dict.fromkeys(name for runs in policies for name in runs[0].queues))

    def until(lives: JobRecords) -> F64:
        return waits(lives, until_ms)

    def queue(lives: JobRecords) -> F64:
        rows = np.array([names.index(name) for name in lives.queues], np.float64)
        return np.asarray(rows[lives.queue], np.float64)

    def still(lives: JobRecords) -> F64:
        return np.where(lives.fate == Fate.WAITING, 1.0, 0.0)

    return Matched(
        submitted_ms=policies[0][0].submitted_ms,
        queues=tuple(by_seed(runs[:1], ids, queue)[0] for runs in policies),
        names=names,
        waits=tuple(by_seed(runs, ids, until) for runs in policies),
        completions=tuple(by_seed(runs, ids, completions) for runs in policies),
        waiting=tuple(by_seed(runs, ids, still) == 1 for runs in policies),
    )


def cut_waits(matched: Matched, mine: Mask | None = None) -> Cut:
    """Waits of the work that no run rejected, or of some of it."""
    known = _known(matched.waits, mine)
    shortest = tuple(
        tuple(_shortest(waited[known & waits_on]) for waited, waits_on in zip(by_run, still, strict=True))
        for by_run, still in zip(matched.waits, matched.waiting, strict=True)
    )
    return _cut(matched, matched.waits, known, shortest)


def cut_completions(matched: Matched, mine: Mask | None = None) -> Cut:
    """Completion times of the work that finished in every run, or of some of it."""
    known = _known(matched.completions, mine)
    return _cut(matched, matched.completions, known, tuple((None,) * len(runs) for runs in matched.completions))


def finished_by(matched: Matched) -> tuple[int, tuple[int, ...]]:
    """How much work finished in every run; and how much more under each policy, with every seed."""
    under = [np.isfinite(taken).all(axis=0) for taken in matched.completions]
    everywhere = int(np.all(under, axis=0).sum())
    return everywhere, tuple(int(finished.sum()) - everywhere for finished in under)


def _known(values: tuple[F64, ...], mine: Mask | None) -> Mask:
    known: Mask = np.all([np.isfinite(by_run).all(axis=0) for by_run in values], axis=0)
    return known if mine is None else known & mine


def _shortest(values: F64) -> float | None:
    return float(values.min()) if values.size else None


def _cut(matched: Matched, values: tuple[F64, ...], known: Mask, open_ms: tuple[tuple[float | None, ...], ...]) -> Cut:
    intervals: list[RatioInterval | None] = [None]
    first = np.where(known, values[0], np.nan)
    for by_run, waited in zip(values[1:], matched.waits[1:], strict=True):
        parting = parting_of(waited, matched.waits[0], matched.completions[0])
        intervals.append(ratio_interval(np.where(known, by_run, np.nan), first, matched.submitted_ms, parting))
    spreads = tuple(tuple(spread_of(run[known]) for run in by_run) for by_run in values)
    return Cut(int(known.sum()), spreads, open_ms, tuple(intervals))
