"""Summary of a run in numbers: waits, completion times, GPU use and fairness; in all, by queue, by kind of work.

Allocated is not busy. Busy time comes from observations alone; what was not observed is not idle.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tidegate.measure.job_records import Fate, JobRecords
from tidegate.measure.loops import Loop
from tidegate.measure.queues import QueueShare
from tidegate.measure.requests import KINDS
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import GPU_HOUR_MILLI_MS, HOUR_MS
from tidegate.stats.quantile import quantiles

#: Fates of work that was not over.
_OPEN = (Fate.RUNNING, Fate.WAITING)

Mask = npt.NDArray[np.bool_]


class TimeSpread(Spec, frozen=True):
    """How values are spread, in milliseconds."""

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class WorkloadGroup(Spec, frozen=True):
    """What became of some workloads."""

    name: str
    workloads: int
    finished: int
    running: int
    waiting: int
    rejected: int
    cancelled: int
    wait: TimeSpread | None  # of all that were not rejected; of those that wait still, so far
    completion: (
        TimeSpread | None
    )  # from submission to the end, of those neither rejected nor cancelled; so far, if not over
    censored: int  # neither finished nor rejected nor cancelled: how long they take is not known yet
    allocated_gpu_h: float
    observed_gpu_h: float  # of which it is known whether they were busy
    busy_gpu_h: float
    idle_gpu_h: float  # held and observed, and not busy
    busy_share: float | None  # busy/observed; None: nothing was observed
    waited_gpu_h: float  # GPUs asked for, times the wait
    served_share: float | None  # allocated/(allocated + waited); None: no GPUs were asked for
    evictions: int
    preemptions: int  # evictions in favour of another workload
    lost_gpu_h: float  # held for nothing, because allocations were cut short
    open_ms: float | None = None  # the shortest wait that had not ended: quantiles from there on are lower bounds
    completion_open_ms: float | None = None  # the same of completion times

    def is_bound(self, wait_ms: float) -> bool:
        """Whether a quantile of the waits is at least so long, because some had not ended."""
        return self.open_ms is not None and wait_ms >= self.open_ms

    def is_completion_bound(self, taken_ms: float) -> bool:
        """The same of completion times, because some work had not finished."""
        return self.completion_open_ms is not None and taken_ms >= self.completion_open_ms


class RunSummary(Spec, frozen=True, omit_defaults=False):
    """How good a run was."""

    start_ms: int
    end_ms: int
    makespan_ms: int | None  # from the first submission to the last end; None: nothing finished
    capacity_gpu_h: float
    allocation_share: float | None  # allocated/capacity; None: there were no GPUs
    useful_share: float | None  # of all that was paid for, what did work, if the rest was as busy as what was observed
    fragmented_share: float | None  # of capacity, free and too scattered; None: it was not looked at
    fairness: float | None  # Jain's index over the queues' served shares: 1 is even, 1/queues is one takes all
    total: WorkloadGroup
    queues: tuple[WorkloadGroup, ...]
    kinds: tuple[WorkloadGroup, ...]
    shares: tuple[QueueShare, ...] = ()  # of each queue of the policy; none: no quota of GPUs was given
    loops: tuple[Loop, ...] = ()  # work that was preempted and came back, again and again
    other_model_share: float | None = None  # of capacity, free and of models that are not asked for; None: as above
    idle_wanted_gpu_h: float = 0.0  # held, seen idle, and waited for at the same time
    unsettled_steps: int = 0  # steps that were cut off before they came to rest

    def due_share(self) -> float | None:
        """Of what queues wanted within their own quota, what they had; None: nothing was due."""
        due = sum(share.due_gpu_h for share in self.shares)
        return _share(sum(share.due_gpu_h * (share.due_share or 0.0) for share in self.shares), due)

    def due_fairness(self) -> float | None:
        """Jain's index over the queues' shares of what was due to them."""
        return jain_index([share.due_share for share in self.shares if share.due_share is not None])

    def use_fairness(self) -> float | None:
        """Jain's index over what queues used against what they own, of those that own and wanted anything."""
        wanted = [share for share in self.shares if share.due_gpu_h > 0]
        return jain_index([share.use_of_quota for share in wanted if share.use_of_quota is not None])

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if self.shares:
            plain |= {"due_share": self.due_share(), "due_fairness": self.due_fairness()}
            plain["use_fairness"] = self.use_fairness()
        return plain


def summarise(
    lives: JobRecords,
    capacity_milli_ms: int,
    fragmented_share: float | None = None,
    shares: tuple[QueueShare, ...] = (),
) -> RunSummary:
    """Say in numbers how good a run was."""
    total = _group(lives, "all", np.ones(len(lives.number), np.bool_))
    queues = tuple(_group(lives, name, lives.queue == row) for row, name in enumerate(lives.queues))
    kinds = tuple(_group(lives, kind.value, lives.kind == row) for row, kind in enumerate(KINDS))
    allocation = _share(float(lives.held_milli_ms.sum()), capacity_milli_ms)
    return RunSummary(
        start_ms=lives.start_ms,
        end_ms=lives.end_ms,
        makespan_ms=_makespan_ms(lives),
        capacity_gpu_h=capacity_milli_ms / GPU_HOUR_MILLI_MS,
        allocation_share=allocation,
        useful_share=None if allocation is None or total.busy_share is None else allocation * total.busy_share,
        fragmented_share=fragmented_share,
        fairness=jain_index([group.served_share for group in queues if group.served_share is not None]),
        total=total,
        queues=tuple(group for group in queues if group.workloads),
        kinds=tuple(group for group in kinds if group.workloads),
        shares=shares,
    )


def jain_index(shares: list[float]) -> float | None:
    """Jain's index of fairness: 1 when all shares are equal, 1/n when one has everything; None if there is nothing."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def _group(lives: JobRecords, name: str, mine: Mask) -> WorkloadGroup:
    fates = np.bincount(lives.fate[mine], minlength=len(Fate)).tolist()
    held, lost = (float(column[mine].sum()) for column in (lives.held_milli_ms, lives.lost_milli_ms))
    busy, observed = (float(column[mine].sum()) for column in (lives.busy_gpu_ms, lives.observed_gpu_ms))
    taken_ms, is_open = completion_ms(lives), mine & np.isin(lives.fate, _OPEN)
    waited = float((lives.gpu_milli[mine].astype(np.float64) * lives.waited_ms[mine]).sum())
    return WorkloadGroup(
        name=name,
        workloads=int(mine.sum()),
        finished=fates[Fate.FINISHED],
        running=fates[Fate.RUNNING],
        waiting=fates[Fate.WAITING],
        rejected=fates[Fate.REJECTED],
        cancelled=fates[Fate.CANCELLED],
        wait=spread_of(lives.waited_ms[mine & (lives.fate != Fate.REJECTED)]),
        completion=spread_of(taken_ms[is_open | mine & (lives.fate == Fate.FINISHED)]),
        censored=fates[Fate.RUNNING] + fates[Fate.WAITING],
        allocated_gpu_h=held / GPU_HOUR_MILLI_MS,
        observed_gpu_h=observed / HOUR_MS,
        busy_gpu_h=busy / HOUR_MS,
        idle_gpu_h=max(observed - busy, 0.0) / HOUR_MS,
        busy_share=_share(busy, observed),
        waited_gpu_h=waited / GPU_HOUR_MILLI_MS,
        served_share=_share(held, held + waited),
        evictions=int(lives.evictions[mine].sum()),
        preemptions=int(lives.preemptions[mine].sum()),
        lost_gpu_h=lost / GPU_HOUR_MILLI_MS,
        open_ms=_shortest_ms(lives.waited_ms[mine & (lives.fate == Fate.WAITING)]),
        completion_open_ms=_shortest_ms(taken_ms[is_open]),
    )


def _shortest_ms(waits_ms: I64) -> float | None:
    return float(waits_ms.min()) if waits_ms.size else None


def completion_ms(lives: JobRecords) -> I64:
    """From submission to the end; of work that was not over, so far. Of no use where it was rejected or cancelled."""
    taken: I64 = np.where(lives.fate == Fate.FINISHED, lives.finished_ms, lives.end_ms) - lives.submitted_ms
    return taken


def idle_gpu_ms(lives: JobRecords) -> F64:
    """GPU-ms that each workload held without using them, as far as it was observed."""
    idle: F64 = np.maximum(lives.observed_gpu_ms - lives.busy_gpu_ms, 0)
    return idle


def spread_of(values_ms: I64 | F64) -> TimeSpread | None:
    """How values are spread; None: there are none."""
    if not len(values_ms):
        return None
    p50, p90, p95, p99, most = quantiles(values_ms, np.array([0.5, 0.9, 0.95, 0.99, 1.0])).tolist()
    mean = float(values_ms.mean())
    return TimeSpread(count=len(values_ms), mean_ms=mean, p50_ms=p50, p90_ms=p90, p95_ms=p95, p99_ms=p99, max_ms=most)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _makespan_ms(lives: JobRecords) -> int | None:
    finished = lives.finished_ms[lives.fate == Fate.FINISHED]
    return int(finished.max() - lives.submitted_ms.min()) if len(finished) else None
