"""The life of one workload: what was told of it and what was decided about it, in order.

Must not know: how to say it in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.journal.store import Step
from tidegate.model.columns import I64
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import EventBatch, EventKind
from tidegate.model.hardware import Node
from tidegate.model.reasons import Reason
from tidegate.model.work import Work


class Moment(NamedTuple):
    """Something that happened to a workload: a fact, or a decision with its reason."""

    at_ms: int
    fact: EventKind | None = None
    decision: DecisionKind | None = None
    decision_id: int = -1
    reason: Reason = Reason.NONE
    evidence: tuple[int, ...] = ()
    cause: int = -1
    pods: tuple[tuple[int, int, int], ...] = ()  # ordinal, number of the node, devices: of a PLACE
    tally: tuple[tuple[Reason, int], ...] = ()  # nodes by reason: of a HOLD
    values: tuple[float, ...] = ()  # of a fact


class Story(NamedTuple):
    """The life of one workload."""

    id: str
    number: int
    work: Work
    submitted_ms: int
    estimate_ms: int
    moments: tuple[Moment, ...]
    until_ms: int  # the end of the journal


class Cast(NamedTuple):
    """The names that a journal speaks of."""

    nodes: dict[int, Node]
    workloads: dict[int, str]


def read_cast(steps: Iterable[Step]) -> Cast:
    """All names of a journal."""
    nodes: dict[int, Node] = {}
    workloads: dict[int, str] = {}
    for step in steps:
        events = step.events
        for at in np.flatnonzero((events.kind == EventKind.NODE_ADDED) | (events.kind == EventKind.NODE_CHANGED)):
            payload = events.payloads[int(events.arg[at])]
            assert isinstance(payload, Node)
            nodes[int(events.subject[at])] = payload
        submitted = events.kind == EventKind.WORKLOAD_SUBMITTED
        if submitted.any():
            ids = events.submissions.ids
            pairs = zip(events.subject[submitted].tolist(), events.arg[submitted].tolist(), strict=True)
            workloads.update((number, ids[at]) for number, at in pairs)
    return Cast(nodes, workloads)


def tell_story(steps: Iterable[Step], number: int) -> Story | None:
    """The life of the workload with this number; None if the journal does not know it."""
    story: Story | None = None
    moments: list[Moment] = []
    until_ms = 0
    for step in steps:
        until_ms = step.now_ms
        about = np.flatnonzero(step.events.subject == number)
        for at in about.tolist():
            if step.events.kind[at] == EventKind.WORKLOAD_SUBMITTED:
                story = _opening(step.events, at, number)
        if story is not None:
            moments += _facts(step.events, about)
            moments += _decisions(step.result, number, step.now_ms)
    return None if story is None else story._replace(moments=tuple(moments), until_ms=until_ms)


def _opening(events: EventBatch, at: int, number: int) -> Story:
    row = int(events.arg[at])
    told = events.submissions
    return Story(
        id=told.ids[row],
        number=number,
        work=events.works[int(told.work[row])],
        submitted_ms=int(told.submitted_ms[row]),
        estimate_ms=int(told.estimate_ms[row]),
        moments=(),
        until_ms=0,
    )


#: Facts whose subject is a workload.
_OF_WORKLOADS = frozenset(
    kind
    for kind in EventKind
    if kind.name.startswith(("WORKLOAD_", "POD_", "USE_", "PROGRESS_", "CHECKPOINTED", "LOAD_"))
)


def _facts(events: EventBatch, about: I64) -> list[Moment]:
    return [
        Moment(int(events.at_ms[at]), fact=kind, values=tuple(events.values[at].tolist()))
        for at in about.tolist()
        if (kind := EventKind(int(events.kind[at]))) in _OF_WORKLOADS
    ]


def _decisions(result: StepResult, number: int, now_ms: int) -> list[Moment]:
    """One moment a decision; the pods of one placing together."""
    decisions = result.decisions
    moments: list[Moment] = []
    for at in np.flatnonzero(decisions.workload == number).tolist():
        kind = DecisionKind(int(decisions.kind[at]))
        place = (int(decisions.pod[at]), int(decisions.node[at]), int(decisions.devices[at]))
        if kind is DecisionKind.PLACE and moments and moments[-1].decision is DecisionKind.PLACE:
            moments[-1] = moments[-1]._replace(pods=(*moments[-1].pods, place))
            continue
        moments.append(
            Moment(
                now_ms,
                decision=kind,
                decision_id=int(decisions.id[at]),
                reason=Reason(int(decisions.code[at])),
                evidence=tuple(decisions.evidence[at].tolist()),
                cause=int(decisions.cause[at]),
                pods=(place,) if kind is DecisionKind.PLACE else (),
                tally=_tally(result, int(decisions.id[at])),
            )
        )
    return moments


def _tally(result: StepResult, decision: int) -> tuple[tuple[Reason, int], ...]:
    at = result.tally.decision == decision
    pairs = zip(result.tally.code[at].tolist(), result.tally.nodes[at].tolist(), strict=True)
    return tuple((Reason(code), nodes) for code, nodes in pairs)
