"""Partial admission: a workload with fewer pods holds less, and takes longer for the same work.

With half the pods of a set it takes twice the time; of several sets the one that was cut most sets the pace.
"""

from __future__ import annotations

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.reasons.catalogue import Reason
from tidegate.sim.submissions import TwinJobs, gpu_milli

_ADMIT, _PARTLY = int(DecisionKind.ADMIT), int(Reason.ADMITTED_PARTLY)


class PartialAdmissions:
    """The pods that workloads run with: all of them, unless they were admitted partially."""

    def __init__(self, jobs: TwinJobs) -> None:
        self._jobs = jobs
        self._pods, self._milli = jobs.pods(), jobs.gpu_milli()  # that they request
        self.pods, self.milli = self._pods.copy(), self._milli.copy()  # that they were granted
        self._asked, self._granted = np.ones((2, len(self._pods)), np.int64)  # pods of the set that was cut most
        self._short: dict[int, dict[int, int]] = {}  # pods that were left out, by workload and set
        self._partly = False  # whether any was ever granted fewer

    def note(self, decisions: DecisionBatch) -> None:
        """Note what was granted."""
        admitted = decisions.kind == _ADMIT
        partly = admitted & (decisions.code == _PARTLY)
        if self._partly:
            numbers = decisions.workload[admitted]
            self.pods[numbers], self.milli[numbers] = self._pods[numbers], self._milli[numbers]
            self._asked[numbers] = self._granted[numbers] = 1
            for number in numbers.tolist():
                self._short.pop(number, None)
        if partly.any():
            self._shrink(decisions, np.flatnonzero(partly))

    def are_partial(self) -> bool:
        """Whether any workload was ever granted fewer pods."""
        return self._partly

    def note_granted(self, number: int, standing: ObservedStatus) -> None:
        """Note what was granted before the run began."""
        pod_sets = self._jobs.works[self._jobs.work[number]].pod_sets
        counts = {grant.pod_set: grant.count for grant in standing.grants}
        for ordinal, pod_set in enumerate(pod_sets):
            self._leave_out(number, ordinal, counts.get(pod_set.name, pod_set.count))

    def _shrink(self, decisions: DecisionBatch, rows: I64) -> None:
        """Leave out what was not granted, once for each pod set; sets without counted resources stay whole."""
        seen: set[tuple[int, int]] = set()
        for row in rows.tolist():
            number, ordinal = int(decisions.workload[row]), int(decisions.pod[row])
            if ordinal >= 0 and (number, ordinal) not in seen:
                seen.add((number, ordinal))
                self._leave_out(number, ordinal, int(decisions.evidence[row, 2]))

    def _leave_out(self, number: int, ordinal: int, granted: int) -> None:
        """Let a workload run with so many pods of a set."""
        pod_set = self._jobs.works[self._jobs.work[number]].pod_sets[ordinal]
        short = pod_set.count - granted
        if short <= 0:
            return
        self._partly = True
        self._short.setdefault(number, {})[ordinal] = short
        self.pods[number] -= short
        self.milli[number] -= short * gpu_milli(pod_set)
        if pod_set.count * self._granted[number] > granted * self._asked[number]:
            self._asked[number], self._granted[number] = pod_set.count, max(granted, 1)

    def milli_of(self, number: int, pods: I64) -> int:
        """GPU milli that these pods of a workload hold, by their ordinals among those that were granted."""
        pod_sets, short = self._jobs.works[self._jobs.work[number]].pod_sets, self._short.get(number, {})
        counts = [pod_set.count - short.get(ordinal, 0) for ordinal, pod_set in enumerate(pod_sets)]
        milli = np.repeat([gpu_milli(pod_set) for pod_set in pod_sets], counts)
        return int(milli[pods].sum())

    def time_ms(self, numbers: I64, work_ms: I64) -> I64:
        """How long these workloads take for so much work, which is measured for all of their pods."""
        if not self._partly:
            return work_ms
        time: I64 = -(-work_ms * self._asked[numbers] // self._granted[numbers])
        return time

    def work_ms(self, number: int, time_ms: int) -> int:
        """How much work a workload does in so much time."""
        return time_ms * int(self._granted[number]) // int(self._asked[number])
