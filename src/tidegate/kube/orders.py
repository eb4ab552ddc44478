"""What the ledger wants written, and for which decisions.

Must not know: how it is carried out.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.jobs import SeenJob
from tidegate.kube.kinds import Path, find
from tidegate.kube.pins import BEFORE, HOST, Start, is_noted, start_steps, undo_steps
from tidegate.kube.rosters import Roster
from tidegate.kube.writes import Ref, Write, bind, delete, edit, evict, looked_up, merge
from tidegate.model.decisions import NOBODY


class Purpose(IntEnum):
    """What an order is for."""

    BIND = 0
    START = 1  # let a job make its pods
    STOP = 2  # a job, or one pod, is told to go
    SAY = 3  # why work waits
    LIFT = 4  # let a pod go that we hold by a gate
    UNDO = 5  # take back what we wrote into a job that is suspended
    ALLOCATE = 6  # give the claims of a pod devices, before it is bound


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
    return Order(Purpose.BIND, bind(pod, node), _decisions(roster, ordinal), roster.number, ordinal)


def allocating(roster: Roster, ordinal: int, writes: list[Write]) -> list[Order]:
    """Give the claims of a slot's pod devices; the last write tells of the decision."""
    return [Order(Purpose.ALLOCATE, write, (), roster.number, ordinal) for write in writes]


def lifting(roster: Roster, ordinal: int, pod: Ref, host: str) -> Order:
    """Let the pod of a slot go, to its node if that has a name that it can be sent to."""
    spec: dict[str, object] = {"schedulingGates": None}
    if host:
        spec["nodeSelector"] = {HOST: host}
    write = merge(pod, {"metadata": {"annotations": {BEFORE: "{}"}}, "spec": spec})
    return Order(Purpose.LIFT, write, _decisions(roster, ordinal), roster.number, ordinal)


def starting(roster: Roster, job: SeenJob, start: Start) -> Order:
    """Let a job make its pods: the decisions stand and fall with that."""
    decisions = tuple(slot.decision for slot in roster.slots if slot.decision != NOBODY)
    steps = start_steps(job.handling, msgspec.json.decode(job.thing), start)
    suspend = job.handling.suspend
    write = looked_up(edit(job.ref, [_unchanged(job), *steps]), job.ref, lambda thing: not find(thing, suspend))
    return Order(Purpose.START, write, decisions, roster.number)


def undoing(roster: Roster, job: SeenJob) -> list[Order]:
    """Take back what we wrote into a job that is suspended; when it began must be forgotten for that."""
    orders = []
    if job.begun:
        forget = merge(job.ref, {"status": {"startTime": None}}, part="status")
        orders.append(Order(Purpose.UNDO, forget, (), roster.number))
    steps = undo_steps(job.handling, msgspec.json.decode(job.thing))
    write = looked_up(edit(job.ref, [_unchanged(job), *steps]), job.ref, lambda thing: not is_noted(thing))
    return [*orders, Order(Purpose.UNDO, write, (), roster.number)]


def stopping_job(roster: Roster, job: SeenJob, decision: int) -> Order:
    """Suspend a job: its controller takes its pods away."""
    return Order(Purpose.STOP, merge(job.ref, _nested(job.handling.suspend, value=True)), (decision,), roster.number)


def stopping_pod(roster: Roster, ordinal: int, pod: Ref, decision: int, *, gently: bool) -> Order:
    """Take a pod away: gently, as its disruption budget allows, or because it must not stay."""
    return Order(Purpose.STOP, evict(pod) if gently else delete(pod), (decision,), roster.number, ordinal)


def saying(write: Write) -> Order:
    """Say something of work that does not run; nothing depends on it."""
    return Order(Purpose.SAY, write, (), NOBODY)


def _decisions(roster: Roster, ordinal: int) -> tuple[int, ...]:
    decision = roster.slots[ordinal].decision
    return () if decision == NOBODY else (decision,)  # none: decided by who led before us


def _unchanged(job: SeenJob) -> dict[str, Any]:
    """The step that fails if somebody has changed what the job asks for since we read it."""
    return {"op": "test", "path": "/metadata/generation", "value": job.generation}


def _nested(path: Path, *, value: object) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value
