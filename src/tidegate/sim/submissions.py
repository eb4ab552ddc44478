"""The submissions of a twin, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import I32, I64
from tidegate.model.simulation import PlannedWorkload
from tidegate.model.work import PodSet, Share, Work


class TwinJobs(NamedTuple):
    """Workloads in the order they are submitted; the row is the workload's number."""

    ids: Sequence[str]
    works: tuple[Work, ...]
    work: I32  # row of the works
    submit_ms: I64
    runtime_ms: I64
    estimate_ms: I64  # 0: unknown
    load_ms: I64
    idle_tail_ms: I64
    busy_milli: I64
    daily_swing_milli: I64
    vram_mib: I64
    fails_every_ms: I64

    def gpu_milli(self) -> I64:
        """GPU milli that each workload holds while it has its place."""
        return self._by_work(
            [sum(pod_set.count * gpu_milli(pod_set) for pod_set in work.pod_sets) for work in self.works]
        )

    def pods(self) -> I64:
        """Pods of each workload."""
        return self._by_work([sum(pod_set.count for pod_set in work.pod_sets) for work in self.works])

    def checkpoint_every_ms(self) -> I64:
        """How often each workload saves its progress; 0 never."""
        return self._by_work([work.checkpoint_every_ms for work in self.works])

    def restart_cost_ms(self) -> I64:
        """What a restart costs each workload before it goes on."""
        return self._by_work([work.restart_cost_ms for work in self.works])

    def ties(self) -> I64:
        """The rank of each among those submitted in the same millisecond, in the order of their ids."""
        at = np.arange(len(self.submit_ms))
        first = np.append(True, self.submit_ms[1:] != self.submit_ms[:-1])[: len(at)]
        places: I64 = at - np.maximum.accumulate(np.where(first, at, 0))
        return places

    def _by_work(self, values: list[int]) -> I64:
        column: I64 = np.array(values, np.int64)[self.work]
        return column


def gpu_milli(pod_set: PodSet) -> int:
    """GPU milli that one pod holds."""
    gpu = pod_set.gpu
    return gpu.milli if gpu.share is Share.FRACTION else 1000 * gpu.count


def jobs_of(planned: Sequence[PlannedWorkload]) -> TwinJobs:
    """Planned workloads as columns, sorted by time of submission and id."""
    ordered = sorted(planned, key=lambda p: (p.workload.submitted_ms, p.workload.id))
    works: dict[Work, int] = {}
    rows = [works.setdefault(p.workload.work, len(works)) for p in ordered]

    def column(values: list[int]) -> I64:
        return np.array(values, np.int64)

    return TwinJobs(
        ids=[p.workload.id for p in ordered],
        works=tuple(works),
        work=np.array(rows, np.int32),
        submit_ms=column([p.workload.submitted_ms for p in ordered]),
        runtime_ms=column([p.run.runtime_ms for p in ordered]),
        estimate_ms=column([p.workload.estimate_ms for p in ordered]),
        load_ms=column([p.run.load_ms for p in ordered]),
        idle_tail_ms=column([p.run.idle_tail_ms for p in ordered]),
        busy_milli=column([p.run.busy_milli for p in ordered]),
        daily_swing_milli=column([p.run.daily_swing_milli for p in ordered]),
        vram_mib=column([p.run.vram_mib for p in ordered]),
        fails_every_ms=column([p.run.fails_every_ms for p in ordered]),
    )
