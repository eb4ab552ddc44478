"""Starts, stops and pod places that a batch of decisions makes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionBatch, DecisionKind

_PREEMPT, _EVICT = int(DecisionKind.PREEMPT), int(DecisionKind.EVICT)


class Places:
    """Pods and nodes of running work; kept only where nodes can fail."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[I64, I64]] = {}

    def note(self, decisions: DecisionBatch, placed: npt.NDArray[np.bool_]) -> None:
        """Note where pods were placed."""
        for number in np.unique(decisions.workload[placed]).tolist():
            rows = placed & (decisions.workload == number)
            self._places[number] = (decisions.pod[rows].astype(np.int64), decisions.node[rows])

    def forget(self, numbers: I64) -> None:
        """Forget workloads that are over, or evicted."""
        for number in numbers.tolist() if self._places else ():
            self._places.pop(number, None)

    def lose(self, number: int, lost: I64) -> None:
        """Pods of a workload are gone."""
        if number in self._places:
            pods, nodes = self._places[number]
            kept = ~np.isin(pods, lost)
            self._places[number] = (pods[kept], nodes[kept])

    def nodes_of(self, number: int) -> I64:
        """The nodes that a workload has pods on."""
        return self._places[number][1] if number in self._places else np.zeros(0, np.int64)

    def on(self, node: int) -> list[tuple[int, I64]]:
        """The workloads that have pods on a node, and which pods."""
        there = sorted(number for number, (_, nodes) in self._places.items() if (nodes == node).any())
        return [(number, pods[nodes == node]) for number in there for pods, nodes in [self._places[number]]]


def started_and_stopped(decisions: DecisionBatch, starts: int) -> I64:
    """Workloads that one step started and, cycles later, evicted again."""
    kind, workload = decisions.kind, decisions.workload
    rows = np.flatnonzero(kind == starts)
    last = dict(zip(workload[rows].tolist(), rows.tolist(), strict=True))  # of equal ones the last stands
    evicted = np.flatnonzero((kind == _PREEMPT) | (kind == _EVICT)).tolist()
    return np.array([number for at in evicted if last.get(number := int(workload[at]), at) < at], np.int64)


def each_once(numbers: I64) -> I64:
    """The numbers, each once, in order. Equal ones are mostly adjacent: what is left of them is quickly sorted."""
    return _without_repeats(np.sort(_without_repeats(numbers)))


def _without_repeats(numbers: I64) -> I64:
    return np.concatenate([numbers[:-1][numbers[1:] != numbers[:-1]], numbers[-1:]])
