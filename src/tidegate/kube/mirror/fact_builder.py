"""What one look at the cluster comes to, as facts: who left first, then who came, where they are, and how they fare.

Of each object only the latest is known, so facts of different objects can be told in this order whatever came first.
Must not know: objects of Kubernetes.
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

#: Numbers of a fact about a workload: its own, the pod's, and one that goes with the kind of fact.
_WIDE = 3


class FactBuilder:
    """Facts of one look, collected by kind."""

    def __init__(self) -> None:
        self._policies: list[Policy] = []
        self._nodes: list[tuple[int, Node, bool]] = []
        self._removed: list[int] = []
        self._foreign: list[tuple[int, UnmanagedPods]] = []
        self._submitted: tuple[array[int], array[int], list[str], list[Work]] = (array("q"), array("q"), [], [])
        self._changed: list[tuple[int, Work]] = []
        self._withdrawn: list[tuple[int, Work]] = []
        self._rows: dict[FactKind, array[int]] = {}  # as plain numbers: after a restart there are many
        self._consumed: list[DecayedUsage] = []
        self._standings: list[tuple[int, ObservedStatus]] = []

    def policy(self, policy: Policy) -> None:
        """The policy is this."""
        self._policies.append(policy)

    def node(self, number: int, node: Node, *, changed: bool) -> None:
        """A node came, or changed."""
        self._nodes.append((number, node, changed))

    def node_removed(self, number: int) -> None:
        """A node is gone."""
        self._removed.append(number)

    def unmanaged_pods(self, number: int, foreign: UnmanagedPods) -> None:
        """Others hold this of a node."""
        self._foreign.append((number, foreign))

    def submitted(self, number: int, workload_id: str, work: Work, submitted_ms: int) -> None:
        """A workload came."""
        numbers, times, ids, works = self._submitted
        numbers.append(number)
        times.append(submitted_ms)
        ids.append(workload_id)
        works.append(work)

    def changed(self, number: int, work: Work) -> None:
        """A workload asks for something else now."""
        self._changed.append((number, work))

    def changed_again(self, number: int, work: Work) -> None:
        """A workload whose decisions failed, because it changed, asks for something else now."""
        self._withdrawn.append((number, work))

    def observed_status(self, number: int, standing: ObservedStatus) -> None:
        """A workload stands there, by what a leader before us decided."""
        self._standings.append((number, standing))

    def decayed_usage(self, consumed: DecayedUsage) -> None:
        """An entrance has used so much of late, by the count of a leader before us."""
        self._consumed.append(consumed)

    def about(self, kind: FactKind, number: int, pod: int = ALL_PODS, arg: int = 0) -> None:
        """A fact about a workload, or about one pod of it."""
        rows = self._rows.get(kind)
        if rows is None:
            rows = self._rows[kind] = array("q")
        rows.extend((number, pod, arg))

    def done(self, number: int, pod: int) -> None:
        """A pod is done and not made again; where it was, or is to be, means nothing any more."""
        for kind in (FactKind.POD_BOUND, FactKind.POD_ABSENT):
            self.take_back(kind, number, pod)
        self.about(FactKind.POD_DONE, number, pod)

    def take_back(self, kind: FactKind, number: int, pod: int = ALL_PODS) -> None:
        """A fact about a workload, or one pod of it, need not be told: it has been overtaken."""
        if kind in self._rows:
            told = _columns(self._rows[kind])
            mine = (told[:, 0] == number) & ((told[:, 1] == pod) | (pod == ALL_PODS))
            if mine.any():
                self._rows[kind] = array("q", told[~mine].tobytes())

    def outcome(self, decision: int, outcome: WriteOutcome) -> None:
        """What came of a decision."""
        self.about(FactKind.OUTCOME, decision, arg=int(outcome))

    def batch(self, now_ms: int) -> FactBatch:
        """All of it, in order."""
        facts = Facts()
        for policy in self._policies:
            facts.policy(policy, now_ms)
        for number, node, changed in self._nodes:
            facts.node(number, node, now_ms, changed=changed)
        for kind in (FactKind.POD_GONE, FactKind.POD_FAILED):
            self._add_rows(facts, kind, now_ms)
        self._add_rows(facts, FactKind.WORKLOAD_FINISHED, now_ms)
        self._add_rows(facts, FactKind.WORKLOAD_CANCELLED, now_ms)
        facts.add_payloads(FactKind.UNMANAGED_OBSERVED, self._foreign, now_ms)
        self._add_submissions(facts, now_ms)
        for number, work in self._changed:
            facts.changed(number, work, now_ms)
        for kind in (FactKind.POD_DONE, FactKind.POD_BOUND):
            self._add_rows(facts, kind, now_ms)
        self._add_rows(facts, FactKind.POD_ABSENT, now_ms)
        self._add_standings(facts, now_ms)  # once everybody is at their places
        for kind in (FactKind.POD_STARTED, FactKind.OUTCOME):
            self._add_rows(facts, kind, now_ms)
        for number, work in self._withdrawn:
            facts.changed(number, work, now_ms)
        for number in self._removed:
            facts.add(FactKind.NODE_REMOVED, now_ms, number)
        return facts.batch()

    def _add_rows(self, facts: Facts, kind: FactKind, now_ms: int) -> None:
        if self._rows.get(kind):
            columns = _columns(self._rows[kind])
            facts.add_many(kind, now_ms, columns[:, 0], pod=columns[:, 1].astype(np.int32), arg=columns[:, 2])

    def _add_standings(self, facts: Facts, now_ms: int) -> None:
        facts.add_payloads(FactKind.WORKLOAD_OBSERVED, self._standings, now_ms)
        for used in self._consumed:
            facts.decayed_usage(used)

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
