"""The phases of a workload: waiting for a reason, holding its place, over."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidegate.journal.history import HistoryEntry, WorkloadHistory
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.reasons.catalogue import Reason


class PhaseKind(StrEnum):
    """What a workload does during a phase."""

    WAITING = "waiting"
    ADMITTED = "holding quota"  # without a place, as Kueue has it
    HOLDING = "holding its place"
    LEAVING = "leaving"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class WorkloadPhase(NamedTuple):
    """A stretch of a life during which nothing changed."""

    doing: PhaseKind
    start_ms: int
    end_ms: int
    cause: HistoryEntry | None  # the decision that began it


def split_phases(history: WorkloadHistory) -> list[WorkloadPhase]:
    """The phases of a life, in order; the last one ends where the journal does, or where the life did."""
    phases = [WorkloadPhase(PhaseKind.WAITING, history.waiting_ms or history.submitted_ms, history.until_ms, None)]
    for entry in history.entries:
        doing = _begins(entry, phases[-1].doing)
        if doing is None:
            continue
        phases[-1] = phases[-1]._replace(end_ms=entry.at_ms)
        phases.append(WorkloadPhase(doing, entry.at_ms, history.until_ms, entry))
    if phases[-1].doing in (PhaseKind.FINISHED, PhaseKind.CANCELLED, PhaseKind.REJECTED):
        phases[-1] = phases[-1]._replace(end_ms=phases[-1].start_ms)
    return [phase for phase in phases if phase.end_ms > phase.start_ms or phase is phases[-1]]


_BY_DECISION = {
    DecisionKind.ADMIT: PhaseKind.ADMITTED,
    DecisionKind.PLACE: PhaseKind.HOLDING,
    DecisionKind.HOLD: PhaseKind.WAITING,
    DecisionKind.PREEMPT: PhaseKind.LEAVING,
    DecisionKind.EVICT: PhaseKind.LEAVING,
    DecisionKind.REJECT: PhaseKind.REJECTED,
}


def _begins(entry: HistoryEntry, doing: PhaseKind) -> PhaseKind | None:  # noqa: PLR0911 - one answer for each kind of entry
    """What begins with a entry; None if it goes on as before."""
    if entry.decision is not None:
        return _decided(entry.decision, doing)
    if entry.standing is not None:
        return _observed(entry.standing, doing)
    if entry.fact is FactKind.WORKLOAD_FINISHED:
        return PhaseKind.FINISHED
    if entry.fact is FactKind.POD_STARTED and doing is PhaseKind.ADMITTED:
        return PhaseKind.HOLDING
    if entry.fact is FactKind.POD_BOUND and doing is PhaseKind.WAITING:
        return PhaseKind.HOLDING  # by another scheduler, or by an earlier leader
    if entry.fact is FactKind.WORKLOAD_CANCELLED and doing is PhaseKind.WAITING:
        return PhaseKind.CANCELLED
    if entry.fact is FactKind.POD_GONE and doing is PhaseKind.LEAVING:
        return PhaseKind.WAITING
    return None


def _decided(decision: DecisionKind, doing: PhaseKind) -> PhaseKind | None:
    if decision is DecisionKind.ADMIT and doing is PhaseKind.HOLDING:
        return None  # quota and place in one transaction
    if decision is DecisionKind.HOLD and doing is PhaseKind.HOLDING:
        return None  # it runs on while it waits for a spot instead of one that failed
    if decision is DecisionKind.HOLD and doing is PhaseKind.ADMITTED:
        return PhaseKind.ADMITTED  # it keeps its quota while it waits for a place
    return _BY_DECISION.get(decision)


def _observed(standing: ObservedStatus, doing: PhaseKind) -> PhaseKind | None:
    """What begins with what the world shows of a workload; None if that is known already."""
    if standing.finished:
        return PhaseKind.FINISHED
    if standing.evicted and standing.grants:
        shown = PhaseKind.LEAVING
    elif standing.grants:
        shown = PhaseKind.HOLDING if doing is PhaseKind.HOLDING else PhaseKind.ADMITTED
    else:
        shown = PhaseKind.WAITING
    return None if shown is doing else shown


def waits_by_reason(phases: list[WorkloadPhase]) -> dict[Reason, int]:
    """Milliseconds waited, by reason, the longest first. Spells without a told reason count as behind the others."""
    waits: dict[Reason, int] = {}
    for phase in phases:
        told = phase.cause is not None and phase.cause.decision is DecisionKind.HOLD
        if phase.doing is PhaseKind.WAITING or (phase.doing is PhaseKind.ADMITTED and told):
            reason = phase.cause.reason if told and phase.cause is not None else Reason.NONE
            waits[reason] = waits.get(reason, 0) + phase.end_ms - phase.start_ms
    return dict(sorted(waits.items(), key=lambda item: (-item[1], item[0])))
