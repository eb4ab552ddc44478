"""The fact builder: collects the facts of one batch of updates, and sorts them by kind.

Only the latest state of each object is known, so facts about different objects may be reported in any order.
"""

from __future__ import annotations

from array import array

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.facts import ALL_PODS, FactBatch, FactKind, Facts, Submissions, WriteOutcome
from tidegate.model.hardware import Node
from tidegate.model.observed_status import DecayedUsage, ObservedStatus, UnmanagedPods
from tidegate.model.policy import Policy
from tidegate.model.work import Work

#: Columns of a fact about a workload: its number, the pod's ordinal, and an argument.
_WIDE = 3

_ENDINGS = (FactKind.POD_GONE, FactKind.POD_FAILED, FactKind.WORKLOAD_FINISHED, FactKind.WORKLOAD_CANCELLED)


class FactBuilder:
    """The facts of one batch, by kind."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []
        self.nodes: list[tuple[int, Node, bool]] = []  # number, node, and whether it was known before
        self.removed_nodes: list[int] = []
        self.unmanaged: list[tuple[int, UnmanagedPods]] = []  # what pods of others hold of a node
        self._submitted: tuple[array[int], array[int], list[str], list[Work]] = (array("q"), array("q"), [], [])
        self.changed: list[tuple[int, Work]] = []  # what workloads ask for now
        self.changed_after_failure: list[tuple[int, Work]] = []  # the same, after the decisions about them failed
        self._rows: dict[FactKind, array[int]] = {}  # as plain numbers, as there are many after a restart
        self.usage: list[DecayedUsage] = []  # decayed usage of LocalQueues, as the previous leader counted it
        self.standings: list[
            tuple[int, ObservedStatus]
        ] = []  # observed status of workloads, as the previous leader left it

    def submitted(self, number: int, workload_id: str, work: Work, submitted_ms: int) -> None:
        """Add a submitted workload."""
        numbers, times, ids, works = self._submitted
        numbers.append(number)
        times.append(submitted_ms)
        ids.append(workload_id)
        works.append(work)

    def about(self, kind: FactKind, number: int, pod: int = ALL_PODS, arg: int = 0) -> None:
        """Add a fact about a workload, or about one of its pods."""
        rows = self._rows.get(kind)
        if rows is None:
            rows = self._rows[kind] = array("q")
        rows.extend((number, pod, arg))

    def done(self, number: int, pod: int) -> None:
        """Add a pod that is done and not created again, and remove the facts about its node."""
        for kind in (FactKind.POD_BOUND, FactKind.POD_ABSENT):
            self.take_back(kind, number, pod)
        self.about(FactKind.POD_DONE, number, pod)

    def take_back(self, kind: FactKind, number: int, pod: int = ALL_PODS) -> None:
        """Remove a fact about a workload, or one of its pods, that is outdated."""
        if kind in self._rows:
            told = _columns(self._rows[kind])
            mine = (told[:, 0] == number) & ((told[:, 1] == pod) | (pod == ALL_PODS))
            if mine.any():
                self._rows[kind] = array("q", told[~mine].tobytes())

    def outcome(self, decision: int, outcome: WriteOutcome) -> None:
        """Add the outcome of a decision."""
        self.about(FactKind.OUTCOME, decision, arg=int(outcome))

    def batch(self, now_ms: int) -> FactBatch:
        """All facts, in order."""
        facts = Facts()
        for policy in self.policies:
            facts.policy(policy, now_ms)
        for number, node, changed in self.nodes:
            facts.node(number, node, now_ms, changed=changed)
        for kind in _ENDINGS:
            self._add_rows(facts, kind, now_ms)
        facts.add_payloads(FactKind.UNMANAGED_OBSERVED, self.unmanaged, now_ms)
        self._add_submissions(facts, now_ms)
        for number, work in self.changed:
            facts.changed(number, work, now_ms)
        for kind in (FactKind.POD_DONE, FactKind.POD_BOUND, FactKind.POD_ABSENT):
            self._add_rows(facts, kind, now_ms)
        facts.add_payloads(FactKind.WORKLOAD_OBSERVED, self.standings, now_ms)  # once all pods are on their nodes
        for used in self.usage:
            facts.decayed_usage(used)
        for kind in (FactKind.POD_STARTED, FactKind.OUTCOME):
            self._add_rows(facts, kind, now_ms)
        for number, work in self.changed_after_failure:
            facts.changed(number, work, now_ms)
        for number in self.removed_nodes:
            facts.add(FactKind.NODE_REMOVED, now_ms, number)
        return facts.batch()

    def _add_rows(self, facts: Facts, kind: FactKind, now_ms: int) -> None:
        if self._rows.get(kind):
            columns = _columns(self._rows[kind])
            facts.add_many(kind, now_ms, columns[:, 0], pod=columns[:, 1].astype(np.int32), arg=columns[:, 2])

    def _add_submissions(self, facts: Facts, now_ms: int) -> None:
        numbers, times, ids, asked = self._submitted
        if not ids:
            return
        works = {work: row for row, work in enumerate(dict.fromkeys(asked))}
        none = np.zeros(len(ids), np.int64)
        submissions = Submissions(
            work=np.array([works[work] for work in asked], np.int32),
            submitted_ms=np.minimum(np.array(times, np.int64), now_ms),
            estimate_ms=none,
            ids=ids,
        )
        facts.submit_many(np.array(numbers, np.int64), tuple(works), submissions, now_ms)


def _columns(rows: array[int]) -> I64:
    columns: I64 = np.array(rows, np.int64).reshape(-1, _WIDE)
    return columns
