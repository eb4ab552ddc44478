"""Timeline of a run: facts and decisions of all steps as columns, in one running order.

Facts and decisions that no measure needs (holds, progress) are dropped, so that a long journal fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.journal.store import JournalStep
from tidegate.measure.event_joins import Marks
from tidegate.model.arrays import F64, I16, I32, I64, U8
from tidegate.model.decisions import NO_DECISIONS, DecisionBatch, DecisionKind, StepResult
from tidegate.model.facts import NO_FACTS, FactBatch, FactKind
from tidegate.model.hardware import Node
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import Policy
from tidegate.model.step_batch import StepBatch
from tidegate.model.work import Work

#: Rows that may wait before they are joined and thinned out: few joins, and little memory for what is dropped.
_MOST_PENDING = 1 << 19

#: Kinds of facts and of decisions that measures need.
_FACTS_KEPT, _DECISIONS_KEPT = np.zeros((2, 256), np.bool_)
_FACTS_KEPT[[FactKind.WORKLOAD_SUBMITTED, FactKind.WORKLOAD_CANCELLED, FactKind.WORKLOAD_FINISHED]] = True
_FACTS_KEPT[[FactKind.POD_STARTED, FactKind.POD_GONE, FactKind.POD_FAILED, FactKind.NODE_REMOVED]] = True
_FACTS_KEPT[[FactKind.DEVICE_FAILED, FactKind.DEVICE_RECOVERED, FactKind.OUTCOME]] = True
_FACTS_KEPT[[FactKind.USE_OBSERVED, FactKind.LOOP_FOUND]] = True
_DECISIONS_KEPT[[DecisionKind.ADMIT, DecisionKind.PLACE, DecisionKind.RELEASE]] = True
_DECISIONS_KEPT[[DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.REJECT]] = True

_WITH_PAYLOAD = (
    FactKind.NODE_ADDED,
    FactKind.NODE_CHANGED,
    FactKind.WORKLOAD_CHANGED,
    FactKind.POLICY_CHANGED,
    FactKind.WORKLOAD_OBSERVED,
)


class FlatFacts(NamedTuple):
    """Facts in columns. `order` grows over facts and decisions alike; `arg` of a submission counts over all of them."""

    order: I64
    kind: U8
    at_ms: I64
    subject: I64
    pod: I32
    arg: I64
    value: F64  # the first two values, by kind of fact
    second_value: F64

    def of(self, *kinds: FactKind) -> FlatFacts:
        """The facts of some kinds."""
        return self.where(np.isin(self.kind, np.array(kinds, np.uint8)))

    def marks(self) -> Marks:
        """The facts by subject."""
        return Marks(self.subject, self.order, self.at_ms)

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

    def marks(self) -> Marks:
        """The decisions by workload."""
        return Marks(self.workload, self.order, self.now_ms)

    def where(self, wanted: npt.NDArray[np.bool_]) -> FlatDecisions:
        """Some of the rows."""
        columns: list[Any] = [column[wanted] for column in self]
        return FlatDecisions(*columns)


class Submitted(NamedTuple):
    """Workloads in columns, in the order of their submissions."""

    number: I64
    work: I64  # row of the works
    submitted_ms: I64
    ids: list[str]


P = TypeVar("P")


class NewValue(NamedTuple, Generic[P]):
    """A fact that brought a new value: of a node, of a workload, of the policy, or of what a workload holds."""

    order: int
    at_ms: int
    number: int  # of the node or workload
    value: P


class Flat(NamedTuple):
    """A run, laid flat."""

    start_ms: int
    end_ms: int
    facts: FlatFacts
    decisions: FlatDecisions
    submitted: Submitted
    works: tuple[Work, ...]
    nodes: tuple[NewValue[Node], ...]  # added or changed
    changes: tuple[NewValue[int], ...]  # of workloads: the new row of the works
    policies: tuple[NewValue[Policy], ...]
    standings: tuple[NewValue[ObservedStatus], ...]  # workloads that hold quota which this engine did not grant


class Timeline:
    """Takes steps one by one, as a journal does, and lays them flat."""

    def __init__(self) -> None:
        self._start_ms: int | None = None
        self._end_ms = 0
        self._order = 0
        self._pending = 0
        self._events: list[_Pending] = []
        self._results: list[tuple[int, int, DecisionBatch]] = []
        self._facts: list[FlatFacts] = [_flat_facts([_Pending(0, 0, NO_FACTS)])]
        self._decisions: list[FlatDecisions] = [_flat_decisions([(0, 0, NO_DECISIONS)])]
        self._ids: list[str] = []
        self._work: list[int] = []
        self._submitted_ms: list[I64] = [np.zeros(0, np.int64)]
        self._works: dict[Work, int] = {}
        self._nodes: list[NewValue[Node]] = []
        self._changes: list[NewValue[int]] = []
        self._policies: list[NewValue[Policy]] = []
        self._standings: list[NewValue[ObservedStatus]] = []

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
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

    def _take_events(self, events: FactBatch, count: int) -> None:
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

    def _take_payloads(self, events: FactBatch) -> None:
        for at in np.flatnonzero(np.isin(events.kind, _WITH_PAYLOAD)).tolist():
            payload, number = events.payloads[int(events.arg[at])], int(events.subject[at])
            place = (self._order + at, int(events.at_ms[at]), number)
            if isinstance(payload, Node):
                self._nodes.append(NewValue(*place, payload))
            elif isinstance(payload, Work):
                self._changes.append(NewValue(*place, self._works.setdefault(payload, len(self._works))))
            elif isinstance(payload, Policy):
                self._policies.append(NewValue(*place, payload))
            elif isinstance(payload, ObservedStatus) and payload.queue and payload.grants:
                self._standings.append(NewValue(*place, payload))

    def _submitted(self, facts: FlatFacts) -> Submitted:
        told = facts.of(FactKind.WORKLOAD_SUBMITTED)
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
    events: FactBatch


def lay_flat(steps: Iterable[JournalStep]) -> Flat:
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


def _column(batches: Sequence[FactBatch | DecisionBatch], name: str) -> Any:
    return np.concatenate([getattr(batch, name) for batch in batches])


def _flat_facts(pending: list[_Pending]) -> FlatFacts:
    batches = [each.events for each in pending]
    lengths = [len(batch.kind) for batch in batches]
    kind = _column(batches, "kind")
    kept = _FACTS_KEPT[kind]
    order = _orders([each.order for each in pending], lengths)
    before = np.repeat(np.array([each.submitted for each in pending], np.int64), lengths)
    arg = _column(batches, "arg") + before * (kind == int(FactKind.WORKLOAD_SUBMITTED))
    at_ms, subject, pod, values = (_column(batches, name)[kept] for name in ("at_ms", "subject", "pod", "values"))
    return FlatFacts(order[kept], kind[kept], at_ms, subject, pod, arg[kept], values[:, 0], values[:, 1])


def _flat_decisions(batches: list[tuple[int, int, DecisionBatch]]) -> FlatDecisions:
    made = [batch for _, _, batch in batches]
    lengths = [len(batch.id) for batch in made]
    kept = _DECISIONS_KEPT[_column(made, "kind")]
    order = _orders([first for first, _, _ in batches], lengths)
    now_ms = np.repeat(np.array([now_ms for _, now_ms, _ in batches], np.int64), lengths)
    return FlatDecisions(order[kept], now_ms[kept], *(_column(made, name)[kept] for name in FlatDecisions._fields[2:]))
