"""How long work takes from submission until all its pods are bound, and until all of them run.

It counts the pods of each workload that has not started yet. Work that ran before it was first seen is left out: nobody
saw when it started. Work that is evicted and starts again counts once.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.model.facts import ALL_PODS, EventBatch, EventKind
from tidegate.state.cluster import ClusterState
from tidegate.state.granted import pods_to_be
from tidegate.state.numbers import UNKNOWN

#: Called when all pods are bound, or run: the queue that the work names, and the seconds since its submission.
Observe = Callable[[str, float], None]


class StartLatency:
    """Follows workloads until they run."""

    def __init__(self, bound: Observe, running: Observe) -> None:
        self._observe = {EventKind.POD_BOUND: bound, EventKind.POD_STARTED: running}
        self._pods: dict[EventKind, dict[int, set[int]]] = {kind: {} for kind in self._observe}

    def note(self, state: ClusterState, events: EventBatch) -> None:
        """Facts were applied to the state."""
        fresh: set[int] = set()
        rows = zip(events.kind.tolist(), events.subject.tolist(), events.pod.tolist(), strict=True)
        for kind, number, pod in rows:
            if kind == EventKind.WORKLOAD_SUBMITTED:
                fresh.add(number)
                for pods in self._pods.values():
                    pods[number] = set()
            elif kind in (EventKind.WORKLOAD_FINISHED, EventKind.WORKLOAD_CANCELLED):
                self._forget(number)
            elif kind in self._observe and number in fresh:
                self._forget(number)  # it had started before it was seen
            elif kind in self._observe:
                self._count(state, EventKind(kind), number, pod)

    def _count(self, state: ClusterState, kind: EventKind, number: int, pod: int) -> None:
        pods, row = self._pods[kind].get(number), state.workload_numbers.row(number)
        if pods is None or row == UNKNOWN:
            return
        pods.add(pod)
        if pod == ALL_PODS or len(pods) >= pods_to_be(state, row):
            del self._pods[kind][number]
            waited_ms = max(state.now_ms - int(state.workloads.submitted_ms[row]), 0)
            self._observe[kind](state.works[int(state.workloads.work_class[row])].queue, waited_ms / 1000)

    def _forget(self, number: int) -> None:
        for pods in self._pods.values():
            pods.pop(number, None)
