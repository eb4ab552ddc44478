"""The phases of a workload: waiting for a reason, holding its place, over."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidegate.journal.history import HistoryEntry, WorkloadHistory
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import EventKind
from tidegate.model.observed_status import Standing
from tidegate.model.reasons.catalogue import Reason


class PhaseKind(StrEnum):
    """What a workload does during a spell."""

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


def split_phases(story: WorkloadHistory) -> list[WorkloadPhase]:
    """The spells of a life, in order; the last one ends where the journal does, or where the life did."""
    spells = [WorkloadPhase(PhaseKind.WAITING, story.waiting_ms or story.submitted_ms, story.until_ms, None)]
    for moment in story.moments:
        doing = _begins(moment, spells[-1].doing)
        if doing is None:
            continue
        spells[-1] = spells[-1]._replace(end_ms=moment.at_ms)
        spells.append(WorkloadPhase(doing, moment.at_ms, story.until_ms, moment))
    if spells[-1].doing in (PhaseKind.FINISHED, PhaseKind.CANCELLED, PhaseKind.REJECTED):
        spells[-1] = spells[-1]._replace(end_ms=spells[-1].start_ms)
    return [spell for spell in spells if spell.end_ms > spell.start_ms or spell is spells[-1]]


_BY_DECISION = {
    DecisionKind.ADMIT: PhaseKind.ADMITTED,
    DecisionKind.PLACE: PhaseKind.HOLDING,
    DecisionKind.HOLD: PhaseKind.WAITING,
    DecisionKind.PREEMPT: PhaseKind.LEAVING,
    DecisionKind.EVICT: PhaseKind.LEAVING,
    DecisionKind.REJECT: PhaseKind.REJECTED,
}


def _begins(moment: HistoryEntry, doing: PhaseKind) -> PhaseKind | None:  # noqa: PLR0911 - one answer for each kind of moment
    """What begins with a moment; None if it goes on as before."""
    if moment.decision is not None:
        return _decided(moment.decision, doing)
    if moment.standing is not None:
        return _observed(moment.standing, doing)
    if moment.fact is EventKind.WORKLOAD_FINISHED:
        return PhaseKind.FINISHED
    if moment.fact is EventKind.POD_STARTED and doing is PhaseKind.ADMITTED:
        return PhaseKind.HOLDING
    if moment.fact is EventKind.POD_BOUND and doing is PhaseKind.WAITING:
        return PhaseKind.HOLDING  # by somebody else, or by who led before
    if moment.fact is EventKind.WORKLOAD_CANCELLED and doing is PhaseKind.WAITING:
        return PhaseKind.CANCELLED
    if moment.fact is EventKind.POD_GONE and doing is PhaseKind.LEAVING:
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


def _observed(standing: Standing, doing: PhaseKind) -> PhaseKind | None:
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


def waits_by_reason(spells: list[WorkloadPhase]) -> dict[Reason, int]:
    """Milliseconds waited, by reason, the longest first. Spells without a told reason count as behind the others."""
    waits: dict[Reason, int] = {}
    for spell in spells:
        told = spell.cause is not None and spell.cause.decision is DecisionKind.HOLD
        if spell.doing is PhaseKind.WAITING or (spell.doing is PhaseKind.ADMITTED and told):
            reason = spell.cause.reason if told and spell.cause is not None else Reason.NONE
            waits[reason] = waits.get(reason, 0) + spell.end_ms - spell.start_ms
    return dict(sorted(waits.items(), key=lambda item: (-item[1], item[0])))
