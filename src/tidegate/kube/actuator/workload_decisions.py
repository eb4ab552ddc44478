"""Decisions by workload: the rows of one admission or placement in one object, for Events and logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tidegate.model.decisions import NOBODY, DecisionBatch, DecisionKind
from tidegate.model.reasons.catalogue import Reason

#: Rows of one decision about a workload: admission, topology domains and nodes.
_STARTS = (DecisionKind.ADMIT, DecisionKind.ASSIGN, DecisionKind.PLACE)


_ADMITTED = (Reason.ADMITTED_BORROWING, Reason.ADMITTED_PARTLY)  # more specific than a plain admission


@dataclass(slots=True)
class WorkloadDecision:
    """One decision about a workload."""

    number: int
    kind: DecisionKind  # of a start: PLACE if its pods have nodes, else ADMIT
    reason: Reason
    evidence: tuple[int, ...]
    cause: int = NOBODY  # number of the workload that it was preempted for
    nodes: dict[int, int] = field(default_factory=dict)  # number of the node: pods
    grants: list[tuple[int, int, int, int]] = field(default_factory=list)  # pod set, flavor-resource, amount, pods
    partly: bool = False  # it starts with fewer pods than it requests
    again: bool = False  # it starts after an eviction

    @property
    def starts(self) -> bool:
        """Whether it lets the workload start."""
        return self.kind in _STARTS

    @property
    def failed(self) -> bool:
        """Whether it takes a start back that could not be written."""
        return self.kind is DecisionKind.EVICT and self.reason is Reason.BIND_FAILED

    @property
    def word(self) -> str:
        """The decision in one word."""
        return "requeue" if self.failed else self.kind.name.lower()

    @property
    def stops(self) -> bool:
        """Whether it stops the workload."""
        return self.kind in (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE)


def decisions_by_workload(decisions: DecisionBatch) -> list[WorkloadDecision]:
    """The decisions about each workload except holds, in order; one that is stopped and starts again has two."""
    latest: dict[int, WorkloadDecision] = {}
    found: list[WorkloadDecision] = []
    for kind, number, pod, node, code, evidence, cause in _rows(decisions):
        known = latest.get(number)
        if known is None or not (kind in _STARTS and known.starts):
            known = WorkloadDecision(number, kind, Reason(code), tuple(evidence), cause)
            found.append(known)
        latest[number] = known
        if kind is DecisionKind.ADMIT:
            known.grants.append((pod, evidence[0], evidence[1], evidence[2]))
            known.reason = Reason(code) if known.reason not in _ADMITTED else known.reason
            known.partly |= code == Reason.ADMITTED_PARTLY
        elif kind is DecisionKind.PLACE:
            known.nodes[node] = known.nodes.get(node, 0) + 1
            known.kind, known.again = kind, known.again or code == Reason.PLACED_AGAIN
    return found


def partial_grants(decisions: DecisionBatch) -> Iterator[tuple[int, int, int]]:
    """Pod sets that are admitted with fewer pods than they ask for: number of the workload, pod set, pods."""
    kind, code = decisions.kind, decisions.code
    rows = np.flatnonzero((kind == DecisionKind.ADMIT) & (code == Reason.ADMITTED_PARTLY))
    columns = (decisions.workload, decisions.pod, decisions.evidence[:, 2])
    yield from zip(*(column[rows].tolist() for column in columns), strict=True)


def _rows(decisions: DecisionBatch) -> Iterator[tuple[DecisionKind, int, int, int, int, list[int], int]]:
    columns = (
        decisions.kind, decisions.workload, decisions.pod, decisions.node,
        decisions.code, decisions.evidence, decisions.cause,
    )  # fmt: skip
    rows = np.flatnonzero(decisions.kind != DecisionKind.HOLD)
    for kind, *row in zip(*(column[rows].tolist() for column in columns), strict=True):
        yield DecisionKind(kind), *row
