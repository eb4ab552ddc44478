"""What the ledger wants written, and for which decisions.

Must not know: how it is carried out.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tidegate.kube.rosters import Roster
from tidegate.kube.sayings import Saying, condition
from tidegate.kube.writes import Ref, Write, bind, delete, evict, merge
from tidegate.model.decisions import NOBODY


class Purpose(IntEnum):
    """What an order is for."""

    BIND = 0
    START = 1  # let a job make its pods
    STOP = 2  # a job, or one pod, is told to go
    SAY = 3  # why a pod waits


class Order(NamedTuple):
    """A write, and the decisions that it carries out."""

    purpose: Purpose
    write: Write
    decisions: tuple[int, ...]
    workload: int  # number
    slot: int = -1
    again: int = 0  # times that it was ordered before, to no avail


def binding(roster: Roster, ordinal: int, pod: Ref, node: str) -> Order:
    """Bind the pod of a slot to its node."""
    decision = roster.slots[ordinal].decision
    decisions = () if decision == NOBODY else (decision,)  # decided by who led before us
    return Order(Purpose.BIND, bind(pod, node), decisions, roster.number, ordinal)


def starting(roster: Roster) -> Order:
    """Let a job make its pods: the decisions stand and fall with that."""
    decisions = tuple(slot.decision for slot in roster.slots if slot.decision != NOBODY)
    return Order(Purpose.START, _suspend(roster, wanted=False), decisions, roster.number)


def stopping_job(roster: Roster, decision: int) -> Order:
    """Suspend a job: its controller takes its pods away."""
    return Order(Purpose.STOP, _suspend(roster, wanted=True), (decision,), roster.number)


def stopping_pod(roster: Roster, ordinal: int, pod: Ref, decision: int, *, gently: bool) -> Order:
    """Take a pod away: gently, as its disruption budget allows, or because it must not stay."""
    return Order(Purpose.STOP, evict(pod) if gently else delete(pod), (decision,), roster.number, ordinal)


def saying_why(pod: Ref, said: Saying) -> Order:
    """Say with a pod why it waits; nothing depends on it."""
    return Order(Purpose.SAY, condition(pod, said), (), NOBODY)


def _suspend(roster: Roster, *, wanted: bool) -> Write:
    return merge(roster.ref, {"spec": {"suspend": wanted}})
