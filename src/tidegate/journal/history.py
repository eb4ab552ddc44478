"""The history of one workload: facts about it and decisions on it, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.journal.quota_names import QuotaNames, quota_names_of
from tidegate.journal.store import JournalStep
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionBatch, DecisionKind, StepResult
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.hardware import Node
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import Policy
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Work


class HistoryEntry(NamedTuple):
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
    names: QuotaNames = QuotaNames()  # what the numbers meant then


class PreemptedWorkload(NamedTuple):
    """A workload that was preempted for the one in question."""

    at_ms: int
    number: int
    reason: Reason


class WorkloadHistory(NamedTuple):
    """The life of one workload."""

    id: str
    number: int
    work: Work
    submitted_ms: int
    estimate_ms: int
    entries: tuple[HistoryEntry, ...]
    until_ms: int  # the end of the journal
    victims: tuple[PreemptedWorkload, ...] = ()
    waiting_ms: int = 0  # since when it waits, where that is not its submission; 0: it is


class JournalNames(NamedTuple):
    """The names that a journal speaks of."""

    nodes: dict[int, Node]
    workloads: dict[int, str]
    queues: dict[int, str]  # that workloads were submitted to


def read_names(steps: Iterable[JournalStep]) -> JournalNames:
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
    return JournalNames(nodes, workloads, queues)


def read_workload_history(steps: Iterable[JournalStep], number: int) -> WorkloadHistory | None:
    """The life of the workload with this number; None if the journal does not know it."""
    history: WorkloadHistory | None = None
    entries: list[HistoryEntry] = []
    victims: list[PreemptedWorkload] = []
    until_ms, names = 0, QuotaNames()
    for step in steps:
        until_ms, names = step.now_ms, names_after(step.events, names)
        about = np.flatnonzero(step.events.subject == number)
        for at in about.tolist():
            if step.events.kind[at] == FactKind.WORKLOAD_SUBMITTED:
                history = _opening(step.events, at, number)
            elif step.events.kind[at] == FactKind.WORKLOAD_CHANGED and history is not None:
                history = _changed(history, step.events, at)
        if history is not None:
            entries += _facts(step.events, about)
            entries += [entry._replace(names=names) for entry in decision_entries(step.result, number, step.now_ms)]
            victims += _victims(step.result.decisions, number, step.now_ms)
    if history is None:
        return None
    return history._replace(entries=tuple(entries), until_ms=until_ms, victims=tuple(victims))


def without_proposals(history: WorkloadHistory) -> tuple[WorkloadHistory, HistoryEntry | None]:
    """A story of who only watched, without what was proposed and not done; and the proposal that stands at its end."""
    kept = tuple(one for one in history.entries if one.decision in (None, DecisionKind.HOLD, DecisionKind.REJECT))
    proposed = None
    for entry in history.entries:
        if entry.decision in (DecisionKind.PLACE, DecisionKind.PREEMPT, DecisionKind.EVICT):
            proposed = entry
        elif entry.decision is DecisionKind.HOLD or entry.fact in (FactKind.POD_BOUND, FactKind.WORKLOAD_FINISHED):
            proposed = None
    return history._replace(entries=kept, victims=()), proposed


def with_object_times(history: WorkloadHistory, waiting_ms: int, bound_ms: int) -> WorkloadHistory:
    """A story that was told in one look, with the times that objects tell; 0: they do not."""
    since_ms = max(waiting_ms, history.submitted_ms)
    entries = []
    for entry in history.entries:
        at_ms = since_ms if entry.decision is DecisionKind.HOLD else entry.at_ms
        if entry.fact in (FactKind.POD_BOUND, FactKind.POD_STARTED) and bound_ms:
            at_ms = bound_ms
        entries.append(entry._replace(at_ms=at_ms))
    return history._replace(entries=tuple(entries), waiting_ms=since_ms)


def names_after(events: FactBatch, before: QuotaNames) -> QuotaNames:
    """What numbers mean after these facts."""
    for at in np.flatnonzero(events.kind == FactKind.POLICY_CHANGED).tolist():
        policy = events.payloads[int(events.arg[at])]
        assert isinstance(policy, Policy)
        before = quota_names_of(policy.shares)
    return before


def _opening(events: FactBatch, at: int, number: int) -> WorkloadHistory:
    row = int(events.arg[at])
    told = events.submissions
    return WorkloadHistory(
        id=told.ids[row],
        number=number,
        work=events.works[int(told.work[row])],
        submitted_ms=int(told.submitted_ms[row]),
        estimate_ms=int(told.estimate_ms[row]),
        entries=(),
        until_ms=0,
    )


def _changed(history: WorkloadHistory, events: FactBatch, at: int) -> WorkloadHistory:
    work = events.payloads[int(events.arg[at])]
    assert isinstance(work, Work)
    return history._replace(work=work)


#: Facts whose subject is a workload.
_OF_WORKLOADS = frozenset(kind for kind in FactKind if kind.name.startswith(("WORKLOAD_", "POD_", "USE_", "PROGRESS_")))


def _facts(events: FactBatch, about: I64) -> list[HistoryEntry]:
    entries = []
    for at in about.tolist():
        kind = FactKind(int(events.kind[at]))
        if kind not in _OF_WORKLOADS:
            continue
        standing = events.payloads[int(events.arg[at])] if kind is FactKind.WORKLOAD_OBSERVED else None
        assert standing is None or isinstance(standing, ObservedStatus)
        entries.append(
            HistoryEntry(int(events.at_ms[at]), fact=kind, values=tuple(events.values[at].tolist()), standing=standing)
        )
    return entries


def _victims(decisions: DecisionBatch, number: int, now_ms: int) -> list[PreemptedWorkload]:
    """Workloads that were preempted for this one."""
    told = np.flatnonzero((decisions.kind == DecisionKind.PREEMPT) & (decisions.cause == number))
    return [
        PreemptedWorkload(now_ms, int(decisions.workload[at]), Reason(int(decisions.code[at]))) for at in told.tolist()
    ]


def decision_entries(result: StepResult, number: int, now_ms: int) -> list[HistoryEntry]:
    """The decisions on a workload in one step, an entry each; the rows of one PLACE, ADMIT or ASSIGN are one entry."""
    decisions = result.decisions
    entries: list[HistoryEntry] = []
    for at in np.flatnonzero(decisions.workload == number).tolist():
        kind = DecisionKind(int(decisions.kind[at]))
        place = (int(decisions.pod[at]), int(decisions.node[at]), int(decisions.devices[at]))
        if kind is DecisionKind.PLACE and entries and entries[-1].decision is DecisionKind.PLACE:
            entries[-1] = entries[-1]._replace(pods=(*entries[-1].pods, place))
            continue
        evidence = tuple(decisions.evidence[at].tolist())
        if kind is DecisionKind.ADMIT and entries and entries[-1].decision is DecisionKind.ADMIT:
            entries[-1] = entries[-1]._replace(grants=(*entries[-1].grants, evidence))
            continue
        spot = (place[0], place[1], evidence[0])
        if kind is DecisionKind.ASSIGN and entries and entries[-1].decision is DecisionKind.ASSIGN:
            entries[-1] = entries[-1]._replace(spots=(*entries[-1].spots, spot))
            continue
        entries.append(
            HistoryEntry(
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
    return entries


def _tally(result: StepResult, decision: int) -> tuple[tuple[Reason, int], ...]:
    at = result.tally.decision == decision
    pairs = zip(result.tally.code[at].tolist(), result.tally.nodes[at].tolist(), strict=True)
    return tuple((Reason(code), nodes) for code, nodes in pairs)
