"""What happened, laid flat: the facts and decisions of many steps as single columns, in one running order.

What measures need is kept and the rest (holds, progress) is dropped, so that a long journal fits in memory.
Must not know: what any of it says about how good a run was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.journal.store import Step
from tidegate.model.arrays import F64, I16, I32, I64, U8
from tidegate.model.decisions import NO_DECISIONS, DecisionBatch, DecisionKind, StepResult
from tidegate.model.facts import EMPTY_EVENTS, EventBatch, EventKind
from tidegate.model.hardware import Node
from tidegate.model.observed_status import Standing
from tidegate.model.policy import Policy
from tidegate.model.step_batch import StepBatch
from tidegate.model.work import Work

#: Rows that may wait before they are joined and thinned out: few joins, and little memory for what is dropped.
_MOST_PENDING = 1 << 19

_FACTS_KEPT = np.zeros(256, np.bool_)
_FACTS_KEPT[
    [
        EventKind.WORKLOAD_SUBMITTED,
        EventKind.WORKLOAD_CANCELLED,
        EventKind.WORKLOAD_FINISHED,
        EventKind.POD_STARTED,
        EventKind.POD_GONE,
        EventKind.POD_FAILED,
        EventKind.NODE_REMOVED,
        EventKind.DEVICE_FAILED,
        EventKind.DEVICE_RECOVERED,
        EventKind.OUTCOME,
        EventKind.USE_OBSERVED,
        EventKind.LOOP_FOUND,
    ]
] = True

_DECISIONS_KEPT = np.zeros(256, np.bool_)
_DECISIONS_KEPT[
    [
        DecisionKind.ADMIT,
        DecisionKind.PLACE,
        DecisionKind.PREEMPT,
        DecisionKind.EVICT,
        DecisionKind.RELEASE,
        DecisionKind.REJECT,
    ]
] = True


_WITH_PAYLOAD = (
    EventKind.NODE_ADDED,
    EventKind.NODE_CHANGED,
    EventKind.WORKLOAD_CHANGED,
    EventKind.POLICY_CHANGED,
    EventKind.WORKLOAD_OBSERVED,
)


class FlatFacts(NamedTuple):
    """Facts in columns. `order` grows over facts and decisions alike; `arg` of a submission counts over all of them."""

    order: I64
    kind: U8
    at_ms: I64
    subject: I64
    pod: I32
    arg: I64
    value: F64  # the first two values, as told with each kind
    second_value: F64

    def of(self, *kinds: EventKind) -> FlatFacts:
        """The facts of some kinds."""
        return self.where(np.isin(self.kind, np.array(kinds, np.uint8)))

    def where(self, wanted: npt.NDArray[np.bool_]) -> FlatFacts:
        """Some of the rows."""
        columns: list[Any] = [column[wanted] for column in self]
        return FlatFacts(*columns)


class FlatDecisions(NamedTuple):
    """Decisions in columns."""

    order: I64
    now_ms: I64
    id: I64
    kind: U8
    workload: I64
    pod: I32
    node: I64
    devices: I64
    code: I16
    evidence: I64  # (rows, 4)
    cause: I64

    def of(self, *kinds: DecisionKind) -> FlatDecisions:
        """The decisions of some kinds."""
        return self.where(np.isin(self.kind, np.array(kinds, np.uint8)))

    def where(self, wanted: npt.NDArray[np.bool_]) -> FlatDecisions:
        """Some of the rows."""
        columns: list[Any] = [column[wanted] for column in self]
        return FlatDecisions(*columns)


class Submitted(NamedTuple):
    """Workloads in columns, in the order they were told."""

    number: I64
    work: I64  # row of the works
    submitted_ms: I64
    ids: list[str]


class NodeTold(NamedTuple):
    """A node was added or changed."""

    order: int
    at_ms: int
    number: int
    node: Node


class WorkTold(NamedTuple):
    """A workload was changed."""

    order: int
    number: int
    work: int  # row of the works


class PolicyTold(NamedTuple):
    """A policy came into force."""

    at_ms: int
    policy: Policy
    order: int = 0


class StandingTold(NamedTuple):
    """A workload was seen to hold quota that this engine did not grant."""

    order: int
    at_ms: int
    number: int
    standing: Standing


class Flat(NamedTuple):
    """A run, laid flat."""

    start_ms: int
    end_ms: int
    facts: FlatFacts
    decisions: FlatDecisions
    submitted: Submitted
    works: tuple[Work, ...]
    nodes: tuple[NodeTold, ...]
    changes: tuple[WorkTold, ...]
    policies: tuple[PolicyTold, ...]
    standings: tuple[StandingTold, ...]


class Timeline:
    """Takes steps one by one, as a journal does, and lays them flat."""

    def __init__(self) -> None:
        self._start_ms: int | None = None
        self._end_ms = 0
        self._order = 0
        self._pending = 0
        self._events: list[_Pending] = []
        self._results: list[tuple[int, int, DecisionBatch]] = []
        self._facts: list[FlatFacts] = [_flat_facts([_Pending(0, 0, EMPTY_EVENTS)])]
        self._decisions: list[FlatDecisions] = [_flat_decisions([(0, 0, NO_DECISIONS)])]
        self._ids: list[str] = []
        self._work: list[int] = []
        self._submitted_ms: list[I64] = [np.zeros(0, np.int64)]
        self._works: dict[Work, int] = {}
        self._nodes: list[NodeTold] = []
        self._changes: list[WorkTold] = []
        self._policies: list[PolicyTold] = []
        self._standings: list[StandingTold] = []

    def append(self, now_ms: int, events: EventBatch, result: StepResult) -> None:
        """Take the next step. Steps are many and small: what can wait until they are joined does."""
        if self._start_ms is None:
            self._start_ms = now_ms
        self._end_ms = max(self._end_ms, now_ms)
        if count := len(events.kind):
            self._take_events(events, count)
        if count := len(result.decisions.id):
            self._results.append((self._order, now_ms, result.decisions))
            self._order += count
            self._pending += count
        if self._pending > _MOST_PENDING:
            self._settle()

    def append_batch(self, stretch: StepBatch) -> None:
        """Take many steps at once."""
        self._settle()
        if self._start_ms is None:
            self._start_ms = int(stretch.now_ms[0])
        self._end_ms = max(self._end_ms, int(stretch.now_ms[-1]))
        before, submitted, events = self._order, len(self._ids), stretch.events
        if count := len(events.kind):
            self._take_events(events, count)
            self._facts.append(_facts_among(stretch, before, _flat_facts([_Pending(0, submitted, events)])))
        if len(stretch.decisions.id):
            self._decisions.append(_decisions_among(stretch, before, _flat_decisions([(0, 0, stretch.decisions)])))
        self._events, self._pending = [], 0
        self._order = before + len(events.kind) + len(stretch.decisions.id)

    def flat(self) -> Flat:
        """Everything so far."""
        self._settle()
        facts = FlatFacts(*_joined(self._facts))
        return Flat(
            self._start_ms or 0,
            self._end_ms,
            facts,
            FlatDecisions(*_joined(self._decisions)),
            self._submitted(facts),
            tuple(self._works),
            tuple(self._nodes),
            tuple(self._changes),
            tuple(self._policies),
            tuple(self._standings),
        )

    def _take_events(self, events: EventBatch, count: int) -> None:
        self._events.append(_Pending(self._order, len(self._ids), events))
        told = events.submissions
        if len(told.ids):
            # Only the works that are asked for: a world may tell all it knows in every batch.
            works, known = events.works, self._works
            self._work.extend([known.setdefault(works[row], len(known)) for row in told.work.tolist()])
            self._submitted_ms.append(told.submitted_ms)
            self._ids.extend(told.ids)
        if events.payloads:
            self._take_payloads(events)
        self._order += count
        self._pending += count

    def _take_payloads(self, events: EventBatch) -> None:
        for at in np.flatnonzero(np.isin(events.kind, _WITH_PAYLOAD)).tolist():
            payload, number = events.payloads[int(events.arg[at])], int(events.subject[at])
            if isinstance(payload, Node):
                self._nodes.append(NodeTold(self._order + at, int(events.at_ms[at]), number, payload))
            elif isinstance(payload, Work):
                work = self._works.setdefault(payload, len(self._works))
                self._changes.append(WorkTold(self._order + at, number, work))
            elif isinstance(payload, Policy):
                self._policies.append(PolicyTold(int(events.at_ms[at]), payload, self._order + at))
            elif isinstance(payload, Standing) and payload.queue and payload.grants:
                self._standings.append(StandingTold(self._order + at, int(events.at_ms[at]), number, payload))

    def _submitted(self, facts: FlatFacts) -> Submitted:
        told = facts.of(EventKind.WORKLOAD_SUBMITTED)
        work, submitted_ms = np.array(self._work, np.int64), np.concatenate(self._submitted_ms)
        return Submitted(
            told.subject, work[told.arg], submitted_ms[told.arg], [self._ids[at] for at in told.arg.tolist()]
        )

    def _settle(self) -> None:
        """Join what is pending, and drop what no measure needs."""
        if self._events:
            self._facts.append(_flat_facts(self._events))
        if self._results:
            self._decisions.append(_flat_decisions(self._results))
        self._events, self._results, self._pending = [], [], 0


class _Pending(NamedTuple):
    """Facts that are not laid flat yet."""

    order: int  # of the first
    submitted: int  # submissions before them
    events: EventBatch


def lay_flat(steps: Iterable[Step]) -> Flat:
    """A journal, laid flat."""
    timeline = Timeline()
    for step in steps:
        timeline.append(step.now_ms, step.events, step.result)
    return timeline.flat()


def _joined(parts: list[FlatFacts] | list[FlatDecisions]) -> list[Any]:
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _orders(firsts: list[int], lengths: list[int]) -> I64:
    """The running order of rows that come in batches: from the first of each batch upwards."""
    ends = np.cumsum(lengths)
    within: I64 = np.arange(ends[-1], dtype=np.int64) - np.repeat(ends - lengths, lengths)
    return within + np.repeat(np.array(firsts, np.int64), lengths)


def _facts_among(stretch: StepBatch, before: int, facts: FlatFacts) -> FlatFacts:
    """Facts that are numbered among themselves, in the running order of facts and decisions."""
    step = np.searchsorted(stretch.facts_end, facts.order, side="right")
    decided = np.append(0, stretch.decisions_end)[step]
    return facts._replace(order=before + facts.order + decided)


def _decisions_among(stretch: StepBatch, before: int, decisions: FlatDecisions) -> FlatDecisions:
    """Decisions that are numbered among themselves, in the running order of facts and decisions."""
    step = np.searchsorted(stretch.decisions_end, decisions.order, side="right")
    order = before + decisions.order + stretch.facts_end[step]
    return decisions._replace(order=order, now_ms=stretch.now_ms[step])


def _flat_facts(pending: list[_Pending]) -> FlatFacts:
    batches = [each.events for each in pending]
    lengths = [len(batch.kind) for batch in batches]
    kind = np.concatenate([batch.kind for batch in batches])
    kept = _FACTS_KEPT[kind]
    values = np.concatenate([batch.values for batch in batches])[kept]
    before = np.repeat(np.array([each.submitted for each in pending], np.int64), lengths)
    arg = np.concatenate([batch.arg for batch in batches]) + before * (kind == int(EventKind.WORKLOAD_SUBMITTED))
    return FlatFacts(
        _orders([each.order for each in pending], lengths)[kept],
        kind[kept],
        np.concatenate([batch.at_ms for batch in batches])[kept],
        np.concatenate([batch.subject for batch in batches])[kept],
        np.concatenate([batch.pod for batch in batches])[kept],
        arg[kept],
        values[:, 0],
        values[:, 1],
    )


def _flat_decisions(batches: list[tuple[int, int, DecisionBatch]]) -> FlatDecisions:
    made = [batch for _, _, batch in batches]
    lengths = [len(batch.id) for batch in made]
    kind = np.concatenate([batch.kind for batch in made])
    kept = _DECISIONS_KEPT[kind]
    return FlatDecisions(
        _orders([first for first, _, _ in batches], lengths)[kept],
        np.repeat(np.array([now_ms for _, now_ms, _ in batches], np.int64), lengths)[kept],
        np.concatenate([batch.id for batch in made])[kept],
        kind[kept],
        np.concatenate([batch.workload for batch in made])[kept],
        np.concatenate([batch.pod for batch in made])[kept],
        np.concatenate([batch.node for batch in made])[kept],
        np.concatenate([batch.devices for batch in made])[kept],
        np.concatenate([batch.code for batch in made])[kept],
        np.concatenate([batch.evidence for batch in made])[kept],
        np.concatenate([batch.cause for batch in made])[kept],
    )
