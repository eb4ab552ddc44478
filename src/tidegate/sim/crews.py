"""How many of its pods each workload was granted: fewer hold less, and take longer for the same work.

Must not know: time, places.
"""

from __future__ import annotations

import numpy as np

from tidegate.model.columns import I64
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.reasons import Reason
from tidegate.sim.jobs import Jobs, gpu_milli

_ADMIT, _PARTLY = int(DecisionKind.ADMIT), int(Reason.ADMITTED_PARTLY)


class Crews:
    """The pods that workloads run with: all of them, unless they were admitted partly."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._pods, self._milli = jobs.pods(), jobs.gpu_milli()  # that they ask for
        self.pods, self.milli = self._pods.copy(), self._milli.copy()  # that they were granted
        self._partly = False  # whether anybody ever was

    def note(self, decisions: DecisionBatch) -> None:
        """Take in what was granted."""
        admitted = decisions.kind == _ADMIT
        partly = admitted & (decisions.code == _PARTLY)
        if self._partly:
            numbers = decisions.workload[admitted]
            self.pods[numbers], self.milli[numbers] = self._pods[numbers], self._milli[numbers]
        if partly.any():
            self._partly = True
            self._shrink(decisions, np.flatnonzero(partly))

    def _shrink(self, decisions: DecisionBatch, rows: I64) -> None:
        """Leave out what was not granted, once for each pod set; those of which nothing is counted stay whole."""
        seen: set[tuple[int, int]] = set()
        for row in rows.tolist():
            number, ordinal = int(decisions.workload[row]), int(decisions.pod[row])
            if ordinal < 0 or (number, ordinal) in seen:
                continue
            seen.add((number, ordinal))
            pod_set = self._jobs.works[self._jobs.work[number]].pod_sets[ordinal]
            short = pod_set.count - int(decisions.evidence[row, 2])
            self.pods[number] -= short
            self.milli[number] -= short * gpu_milli(pod_set)

    def time_ms(self, numbers: I64, work_ms: I64) -> I64:
        """How long these workloads take for so much work, which is told for all of their pods."""
        if not self._partly:
            return work_ms
        time: I64 = -(-work_ms * self._pods[numbers] // np.maximum(self.pods[numbers], 1))
        return time

    def work_ms(self, number: int, time_ms: int) -> int:
        """How much work a workload does in so much time."""
        return time_ms * int(self.pods[number]) // int(self._pods[number])
