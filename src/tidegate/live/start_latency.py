"""Start latency: the time from submission until all pods of a workload are bound, and until all of them run.

Work that ran before it was first observed is left out. Work that is evicted and starts again counts once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tidegate.model.facts import ALL_PODS, FactBatch, FactKind
from tidegate.state.cluster import ClusterState
from tidegate.state.granted_pods import pods_to_be
from tidegate.state.id_map import UNKNOWN

#: Called when all pods are bound, or run: the queue that the work names, and the seconds since its submission.
Observe = Callable[[str, float], None]

#: Facts that a workload starts, or that it never will.
_TOLD = np.array(
    [
        FactKind.POD_BOUND,
        FactKind.POD_STARTED,
        FactKind.WORKLOAD_FINISHED,
        FactKind.WORKLOAD_CANCELLED,
    ],
    np.uint8,
)


class StartLatency:
    """Follows workloads until they run."""

    def __init__(self, bound: Observe, running: Observe) -> None:
        self._observe = {FactKind.POD_BOUND: bound, FactKind.POD_STARTED: running}
        self._pods: dict[FactKind, dict[int, set[int] | None]] = {kind: {} for kind in self._observe}
        # By number of the workload; None: no pod yet.

    def note(self, state: ClusterState, events: FactBatch) -> None:
        """Note the facts of a step; work that was bound in the batch that submitted it had started before."""
        fresh = events.subject[events.kind == FactKind.WORKLOAD_SUBMITTED]
        at = np.flatnonzero(np.isin(events.kind, _TOLD))
        for number in fresh[~np.isin(fresh, events.subject[at])].tolist():
            for pods in self._pods.values():
                pods[number] = None
        at = at[~np.isin(events.subject[at], fresh)]
        rows = zip(events.kind[at].tolist(), events.subject[at].tolist(), events.pod[at].tolist(), strict=True)
        for kind, number, pod in rows:
            if kind in self._observe:
                self._count(state, FactKind(kind), number, pod)
            else:
                self._forget(number)

    def _count(self, state: ClusterState, kind: FactKind, number: int, pod: int) -> None:
        row = state.workload_numbers.row(number)
        if number not in self._pods[kind] or row == UNKNOWN:
            return
        pods = self._pods[kind][number] = self._pods[kind][number] or set()
        pods.add(pod)
        if pod == ALL_PODS or len(pods) >= pods_to_be(state, row):
            del self._pods[kind][number]
            waited_ms = max(state.now_ms - int(state.workloads.submitted_ms[row]), 0)
            self._observe[kind](state.works[int(state.workloads.work_class[row])].queue, waited_ms / 1000)

    def _forget(self, number: int) -> None:
        for pods in self._pods.values():
            pods.pop(number, None)
