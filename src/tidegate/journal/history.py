"""The life of one workload: what was told of it and what was decided about it, in order.

Must not know: how to say it in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.journal.quota_names import Names, names_of
from tidegate.journal.store import Step
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionBatch, DecisionKind, StepResult
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.hardware import Node
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import Policy
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Work


class Moment(NamedTuple):
    """Something that happened to a workload: a fact, or a decision with its reason."""

    at_ms: int
    fact: FactKind | None = None
    decision: DecisionKind | None = None
    decision_id: int = -1
    reason: Reason = Reason.NONE
    evidence: tuple[int, ...] = ()
    cause: int = -1
    pods: tuple[tuple[int, int, int], ...] = ()  # ordinal, number of the node, devices: of a PLACE
    tally: tuple[tuple[Reason, int], ...] = ()  # nodes by reason: of a HOLD
    values: tuple[float, ...] = ()  # of a fact
    spots: tuple[tuple[int, int, int], ...] = ()  # pod set, number of a node of the domain, pods: of an ASSIGN
    grants: tuple[tuple[int, ...], ...] = ()  # lot, amount, pods, level of each row: of an ADMIT
    standing: ObservedStatus | None = None  # of WORKLOAD_OBSERVED
    names: Names = Names()  # what the numbers meant then


class Victim(NamedTuple):
    """A workload that was sent away for the one that the story is about."""

    at_ms: int
    number: int
    reason: Reason


class Story(NamedTuple):
    """The life of one workload."""

    id: str
    number: int
    work: Work
    submitted_ms: int
    estimate_ms: int
    moments: tuple[Moment, ...]
    until_ms: int  # the end of the journal
    victims: tuple[Victim, ...] = ()
    waiting_ms: int = 0  # since when it waits, where that is not its submission; 0: it is


class Cast(NamedTuple):
    """The names that a journal speaks of."""

    nodes: dict[int, Node]
    workloads: dict[int, str]
    queues: dict[int, str]  # that workloads were submitted to


def read_cast(steps: Iterable[Step]) -> Cast:
    """All names of a journal."""
    nodes: dict[int, Node] = {}
    workloads: dict[int, str] = {}
    queues: dict[int, str] = {}
    for step in steps:
        events = step.events
        for at in np.flatnonzero((events.kind == FactKind.NODE_ADDED) | (events.kind == FactKind.NODE_CHANGED)):
            payload = events.payloads[int(events.arg[at])]
            assert isinstance(payload, Node)
            nodes[int(events.subject[at])] = payload
        submitted = events.kind == FactKind.WORKLOAD_SUBMITTED
        if submitted.any():
            told = events.submissions
            for number, at in zip(events.subject[submitted].tolist(), events.arg[submitted].tolist(), strict=True):
                workloads[number], queues[number] = told.ids[at], events.works[int(told.work[at])].queue
    return Cast(nodes, workloads, queues)


def tell_story(steps: Iterable[Step], number: int) -> Story | None:
    """The life of the workload with this number; None if the journal does not know it."""
    story: Story | None = None
    moments: list[Moment] = []
    victims: list[Victim] = []
    until_ms, names = 0, Names()
    for step in steps:
        until_ms, names = step.now_ms, names_after(step.events, names)
        about = np.flatnonzero(step.events.subject == number)
        for at in about.tolist():
            if step.events.kind[at] == FactKind.WORKLOAD_SUBMITTED:
                story = _opening(step.events, at, number)
            elif step.events.kind[at] == FactKind.WORKLOAD_CHANGED and story is not None:
                story = _changed(story, step.events, at)
        if story is not None:
            moments += _facts(step.events, about)
            moments += [moment._replace(names=names) for moment in _decisions(step.result, number, step.now_ms)]
            victims += _victims(step.result.decisions, number, step.now_ms)
    if story is None:
        return None
    return story._replace(moments=tuple(moments), until_ms=until_ms, victims=tuple(victims))


def as_watched(story: Story) -> tuple[Story, Moment | None]:
    """A story of who only watched, without what was proposed and not done; and the proposal that stands at its end."""
    kept = tuple(one for one in story.moments if one.decision in (None, DecisionKind.HOLD, DecisionKind.REJECT))
    proposed = None
    for moment in story.moments:
        if moment.decision in (DecisionKind.PLACE, DecisionKind.PREEMPT, DecisionKind.EVICT):
            proposed = moment
        elif moment.decision is DecisionKind.HOLD or moment.fact in (FactKind.POD_BOUND, FactKind.WORKLOAD_FINISHED):
            proposed = None
    return story._replace(moments=kept, victims=()), proposed


def date_story(story: Story, waiting_ms: int, bound_ms: int) -> Story:
    """A story that was told in one look, with the times that objects tell; 0: they do not."""
    since_ms = max(waiting_ms, story.submitted_ms)
    moments = []
    for moment in story.moments:
        at_ms = since_ms if moment.decision is DecisionKind.HOLD else moment.at_ms
        if moment.fact in (FactKind.POD_BOUND, FactKind.POD_STARTED) and bound_ms:
            at_ms = bound_ms
        moments.append(moment._replace(at_ms=at_ms))
    return story._replace(moments=tuple(moments), waiting_ms=since_ms)


def names_after(events: FactBatch, before: Names) -> Names:
    """What numbers mean after these facts."""
    for at in np.flatnonzero(events.kind == FactKind.POLICY_CHANGED).tolist():
        policy = events.payloads[int(events.arg[at])]
        assert isinstance(policy, Policy)
        before = names_of(policy.shares)
    return before


def _opening(events: FactBatch, at: int, number: int) -> Story:
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


def _changed(story: Story, events: FactBatch, at: int) -> Story:
    work = events.payloads[int(events.arg[at])]
    assert isinstance(work, Work)
    return story._replace(work=work)


#: Facts whose subject is a workload.
_OF_WORKLOADS = frozenset(kind for kind in FactKind if kind.name.startswith(("WORKLOAD_", "POD_", "USE_", "PROGRESS_")))


def _facts(events: FactBatch, about: I64) -> list[Moment]:
    moments = []
    for at in about.tolist():
        kind = FactKind(int(events.kind[at]))
        if kind not in _OF_WORKLOADS:
            continue
        standing = events.payloads[int(events.arg[at])] if kind is FactKind.WORKLOAD_OBSERVED else None
        assert standing is None or isinstance(standing, ObservedStatus)
        moments.append(
            Moment(int(events.at_ms[at]), fact=kind, values=tuple(events.values[at].tolist()), standing=standing)
        )
    return moments


def _victims(decisions: DecisionBatch, number: int, now_ms: int) -> list[Victim]:
    """Who was sent away for a workload."""
    told = np.flatnonzero((decisions.kind == DecisionKind.PREEMPT) & (decisions.cause == number))
    return [Victim(now_ms, int(decisions.workload[at]), Reason(int(decisions.code[at]))) for at in told.tolist()]


def _decisions(result: StepResult, number: int, now_ms: int) -> list[Moment]:
    """One moment a decision; the pods of one placing together, and the lots of one admission."""
    decisions = result.decisions
    moments: list[Moment] = []
    for at in np.flatnonzero(decisions.workload == number).tolist():
        kind = DecisionKind(int(decisions.kind[at]))
        place = (int(decisions.pod[at]), int(decisions.node[at]), int(decisions.devices[at]))
        if kind is DecisionKind.PLACE and moments and moments[-1].decision is DecisionKind.PLACE:
            moments[-1] = moments[-1]._replace(pods=(*moments[-1].pods, place))
            continue
        evidence = tuple(decisions.evidence[at].tolist())
        if kind is DecisionKind.ADMIT and moments and moments[-1].decision is DecisionKind.ADMIT:
            moments[-1] = moments[-1]._replace(grants=(*moments[-1].grants, evidence))
            continue
        spot = (place[0], place[1], evidence[0])
        if kind is DecisionKind.ASSIGN and moments and moments[-1].decision is DecisionKind.ASSIGN:
            moments[-1] = moments[-1]._replace(spots=(*moments[-1].spots, spot))
            continue
        moments.append(
            Moment(
                now_ms,
                decision=kind,
                decision_id=int(decisions.id[at]),
                reason=Reason(int(decisions.code[at])),
                evidence=evidence,
                cause=int(decisions.cause[at]),
                pods=(place,) if kind is DecisionKind.PLACE else (),
                spots=(spot,) if kind is DecisionKind.ASSIGN else (),
                grants=(evidence,) if kind is DecisionKind.ADMIT else (),
                tally=_tally(result, int(decisions.id[at])),
            )
        )
    return moments


def _tally(result: StepResult, decision: int) -> tuple[tuple[Reason, int], ...]:
    at = result.tally.decision == decision
    pairs = zip(result.tally.code[at].tolist(), result.tally.nodes[at].tolist(), strict=True)
    return tuple((Reason(code), nodes) for code, nodes in pairs)
