"""Wait tolerance: how long jobs may wait, and whether waits hold it in all, by size, by tolerance and by GPU-hours.

A share of all jobs would let many small or short jobs hide the few that matter, so each size holds the tolerance on its
own, and so do jobs of each tolerance and the GPU-hours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.demand.concurrency import Mask
from tidegate.model.arrays import F64, I64
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.stats.quantile import quantile

#: The share of jobs that must not wait longer than is tolerated, in thousandths.
HELD_MILLI = 950

#: Sizes of jobs by the most GPUs in them, in thousandths, and their names: each holds the tolerance on its own, so that
#: many small jobs cannot hide a few large ones that wait.
_SIZES = ((1_000, "1"), (7_999, "2-7"), (8_000, "8"))
_LARGEST = "9+"

#: Patience by the longest wait that is tolerated, and its names: each holds on its own, so that those who may wait
#: for hours cannot hide those who may not.
_PATIENCES = ((5 * MINUTE_MS, "5m"), (HOUR_MS, "1h"), (8 * HOUR_MS, "8h"))
_MOST_PATIENT = "8h+"

#: Jobs of a size or patience below which a share of them says nothing.
LEAST_OF_SIZE = 20

#: A share of GPU-hours is a float: what lies this close to the limit is on it.
_ROUNDING = 1e-9


class WaitTolerance(NamedTuple):
    """How long work may wait, and which share of it must not wait longer."""

    wait_ms: int  # work that says nothing of its own
    share_milli: int = HELD_MILLI
    interactive_ms: int | None = None  # sessions of people that say nothing of their own; None: as all others
    as_declared: bool = True  # what jobs declare comes first; else the user gave one for batch work
    soonest_ms: int | None = None  # what burst must be there for, where some may wait less than others; None: wait_ms

    @property
    def tightest_ms(self) -> int:
        """How long those may wait that may wait least."""
        return self.wait_ms if self.soonest_ms is None else self.soonest_ms

    def for_jobs(self, jobs: PlanJobs) -> WaitTolerance:
        """The same, with how long those of the jobs may wait that may wait least."""
        limit_ms = limits_of(jobs, self)
        row = _row(limit_ms, _PATIENCES)
        parts = [limit_ms[row == number] for number in np.unique(row).tolist()]
        # Of each patience, the few that may wait least may be late.
        least = [int(quantile(part, 1 - self.share_milli / 1000)) for part in parts if part.size >= LEAST_OF_SIZE]
        return self._replace(soonest_ms=min(least, default=self.wait_ms))


class PartWaits(NamedTuple):
    """How some of the jobs waited."""

    size: str  # GPUs, or the longest wait that they tolerate
    jobs: int
    wait_ms: int  # that the share of them did not exceed
    late: float  # share that waited longer than is tolerated

    @property
    def counts(self) -> bool:
        """Whether there are enough of them to be held to the tolerance on their own."""
        return self.jobs >= LEAST_OF_SIZE


class ReplayedWaits(NamedTuple):
    """Waits of jobs, with what makes a wait too long and how much a job weighs."""

    wait_ms: I64
    limit_ms: I64  # how long each may wait
    gpus_milli: I64
    run_ms: I64

    @property
    def late(self) -> Mask:
        """Which waited longer than they tolerate."""
        return np.asarray(self.wait_ms > self.limit_ms, np.bool_)

    def take(self, which: I64 | Mask) -> ReplayedWaits:
        """Some of them."""
        return ReplayedWaits(*(column[which] for column in self))

    def hold(self, share_milli: int) -> bool:
        """Whether the share waits no longer than is tolerated: of all, of each size and patience, of GPU-hours."""
        if not len(self.wait_ms):
            return True
        late = self.late
        if not _few(late, share_milli) or late_weight(self, share_milli) > (1000 - share_milli) / 1000 + _ROUNDING:
            return False
        parts = (_row(self.gpus_milli, _SIZES), _row(self.limit_ms, _PATIENCES))
        groups = (late[row == number] for row in parts for number in np.unique(row).tolist())
        return all(_few(group, share_milli) for group in groups if group.size >= LEAST_OF_SIZE)

    def by_size(self, share_milli: int = HELD_MILLI) -> tuple[PartWaits, ...]:
        """How jobs waited, by their size; sizes without jobs are left out."""
        names = (*(name for _, name in _SIZES), _LARGEST)
        return self._parts(_row(self.gpus_milli, _SIZES), names, share_milli)

    def by_patience(self, share_milli: int = HELD_MILLI) -> tuple[PartWaits, ...]:
        """How jobs waited, by how long they may."""
        names = (*(name for _, name in _PATIENCES), _MOST_PATIENT)
        return self._parts(_row(self.limit_ms, _PATIENCES), names, share_milli)

    def _parts(self, row: I64, names: tuple[str, ...], share_milli: int) -> tuple[PartWaits, ...]:
        late, found = self.late, []
        for number, name in enumerate(names):
            mine = np.flatnonzero(row == number)
            if mine.size:
                wait_ms = int(quantile(self.wait_ms[mine], share_milli / 1000))
                found.append(PartWaits(name, mine.size, wait_ms, float(late[mine].mean())))
        return tuple(found)


def late_weight(waits: ReplayedWaits, share_milli: int = HELD_MILLI) -> float:
    """The share of the GPU-hours that is late; of few jobs none.

    One job counts for no more than may be late in all: a single one that is late says nothing about the others.
    """
    gpu_ms: F64 = waits.gpus_milli.astype(np.float64) * waits.run_ms
    total = float(gpu_ms.sum())
    if len(gpu_ms) < LEAST_OF_SIZE or total <= 0:
        return 0.0
    return float(np.minimum(gpu_ms[waits.late], total * (1000 - share_milli) / 1000).sum()) / total


def limits_of(jobs: PlanJobs, tolerance: WaitTolerance) -> I64:
    """How long each job may wait: as it says itself, else as its kind does."""
    limit_ms = np.full(jobs.total, tolerance.wait_ms, np.int64)
    if jobs.declared_ms is None and tolerance.interactive_ms is None:
        return limit_ms
    if tolerance.interactive_ms is not None:
        limit_ms[jobs.interactive] = tolerance.interactive_ms
    if jobs.declared_ms is not None:
        limit_ms = np.where(held_as_declared(jobs, tolerance), jobs.declared_ms, limit_ms)
    return limit_ms


def held_as_declared(jobs: PlanJobs, tolerance: WaitTolerance) -> Mask:
    """Which jobs are held to what they declare: a tolerance that the user gives is one for batch work."""
    if jobs.declared_ms is None:
        return np.zeros(jobs.total, bool)
    return np.asarray((jobs.declared_ms >= 0) & (jobs.interactive | tolerance.as_declared))


def _few(late: Mask, share_milli: int) -> bool:
    """Whether no more are late than may be."""
    return int((~late).sum()) * 1000 >= share_milli * late.size


def _row(value: I64, parts: tuple[tuple[int, str], ...]) -> I64:
    return np.searchsorted(np.array([most for most, _ in parts]), value, side="left")
