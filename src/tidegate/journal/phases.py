"""A workload's life cut into spells: waiting for a reason, holding its place, over.

Must not know: how to say it in words.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidegate.journal.history import Moment, Story
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.reasons.catalogue import Reason


class Doing(StrEnum):
    """What a workload does during a spell."""

    WAITING = "waiting"
    ADMITTED = "holding quota"  # without a place, as Kueue has it
    HOLDING = "holding its place"
    LEAVING = "leaving"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class Spell(NamedTuple):
    """A stretch of a life during which nothing changed."""

    doing: Doing
    start_ms: int
    end_ms: int
    cause: Moment | None  # the decision that began it


def cut_spells(story: Story) -> list[Spell]:
    """The spells of a life, in order; the last one ends where the journal does, or where the life did."""
    spells = [Spell(Doing.WAITING, story.waiting_ms or story.submitted_ms, story.until_ms, None)]
    for moment in story.moments:
        doing = _begins(moment, spells[-1].doing)
        if doing is None:
            continue
        spells[-1] = spells[-1]._replace(end_ms=moment.at_ms)
        spells.append(Spell(doing, moment.at_ms, story.until_ms, moment))
    if spells[-1].doing in (Doing.FINISHED, Doing.CANCELLED, Doing.REJECTED):
        spells[-1] = spells[-1]._replace(end_ms=spells[-1].start_ms)
    return [spell for spell in spells if spell.end_ms > spell.start_ms or spell is spells[-1]]


_BY_DECISION = {
    DecisionKind.ADMIT: Doing.ADMITTED,
    DecisionKind.PLACE: Doing.HOLDING,
    DecisionKind.HOLD: Doing.WAITING,
    DecisionKind.PREEMPT: Doing.LEAVING,
    DecisionKind.EVICT: Doing.LEAVING,
    DecisionKind.REJECT: Doing.REJECTED,
}


def _begins(moment: Moment, doing: Doing) -> Doing | None:  # noqa: PLR0911 - one answer for each kind of moment
    """What begins with a moment; None if it goes on as before."""
    if moment.decision is not None:
        return _decided(moment.decision, doing)
    if moment.standing is not None:
        return _observed(moment.standing, doing)
    if moment.fact is FactKind.WORKLOAD_FINISHED:
        return Doing.FINISHED
    if moment.fact is FactKind.POD_STARTED and doing is Doing.ADMITTED:
        return Doing.HOLDING
    if moment.fact is FactKind.POD_BOUND and doing is Doing.WAITING:
        return Doing.HOLDING  # by somebody else, or by who led before
    if moment.fact is FactKind.WORKLOAD_CANCELLED and doing is Doing.WAITING:
        return Doing.CANCELLED
    if moment.fact is FactKind.POD_GONE and doing is Doing.LEAVING:
        return Doing.WAITING
    return None


def _decided(decision: DecisionKind, doing: Doing) -> Doing | None:
    if decision is DecisionKind.ADMIT and doing is Doing.HOLDING:
        return None  # quota and place in one transaction
    if decision is DecisionKind.HOLD and doing is Doing.HOLDING:
        return None  # it runs on while it waits for a spot instead of one that failed
    if decision is DecisionKind.HOLD and doing is Doing.ADMITTED:
        return Doing.ADMITTED  # it keeps its quota while it waits for a place
    return _BY_DECISION.get(decision)


def _observed(standing: ObservedStatus, doing: Doing) -> Doing | None:
    """What begins with what the world shows of a workload; None if that is known already."""
    if standing.finished:
        return Doing.FINISHED
    if standing.evicted and standing.grants:
        shown = Doing.LEAVING
    elif standing.grants:
        shown = Doing.HOLDING if doing is Doing.HOLDING else Doing.ADMITTED
    else:
        shown = Doing.WAITING
    return None if shown is doing else shown


def waits_by_reason(spells: list[Spell]) -> dict[Reason, int]:
    """Milliseconds waited, by reason, the longest first. Spells without a told reason count as behind the others."""
    waits: dict[Reason, int] = {}
    for spell in spells:
        told = spell.cause is not None and spell.cause.decision is DecisionKind.HOLD
        if spell.doing is Doing.WAITING or (spell.doing is Doing.ADMITTED and told):
            reason = spell.cause.reason if told and spell.cause is not None else Reason.NONE
            waits[reason] = waits.get(reason, 0) + spell.end_ms - spell.start_ms
    return dict(sorted(waits.items(), key=lambda item: (-item[1], item[0])))
