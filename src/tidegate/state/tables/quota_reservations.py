"""Quota reservations: the quota that a workload holds, at the row of the workload."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, Table


class Again(IntEnum):
    """Why a workload that holds quota is looked at again."""

    NO = 0
    AWAITS = 1  # its checks are ready, and its nodes are there by now
    FAILED = 2  # a node that it has pods on has failed


class QuotaReservations(Table):
    """Quota reservations as a table."""

    fills: ClassVar = {
        "queue": NONE, "next": NONE, "prev": NONE, "held": -1, "tried_cycle": -9, "unplaced_epoch": -1, "decision": -1,
        "replaces": NONE, "replaced_by": NONE, "tries_epoch": -1,
    }  # fmt: skip
    grids: ClassVar = {"tried": "try"}
    stacks: ClassVar = {
        "claims": (("flavor_resource", "amount", "reserved_flavor_resource"), "ask"),
        "counts": (("pods", "reclaimed", "awaits"), "set"),
    }

    queue: I64  # the queue whose quota it holds; NONE: none
    granted_ms: I64
    next: I64  # chain of the queue's holders
    prev: I64
    leaving: I64  # 1: told to go; holds until it is gone
    held: I64  # epoch of the tree at which this one alone was refused
    not_before_ms: I64
    blocked: I64  # Reason why it is not to be tried at all; 0: none
    gated: I64  # 1: may not preempt yet
    tried_cycle: I64  # cycle in which flavors were tried last
    tried_generation: I64
    local_queue: I64  # that it came by, while it holds quota
    unplaced_epoch: I64  # room epoch at which there was no place for it, though it holds quota
    decision: I64  # id of the first ADMIT that its quota is from; -1: the world's
    replaces: I64  # the workload that it takes over from, as a larger slice of the same job
    replaced_by: I64  # and the other way round
    first_assignment: I64  # its spots are consecutive rows
    assignments: I64  # how many
    again: I64  # Again: why its spots are to be looked at once more
    pinned: I64  # 1: it cannot move
    tries: I64  # times that other flavors were tried at once since the epoch of the tree changed
    tries_epoch: I64  # to which one
    failed_starts: I64  # times in a row that its start could not be carried out
    failed_ms: I64  # when it could not the last time
    claims: I64  # (rows, 3, asks): the three that follow
    flavor_resource: I64  # (rows, asks): lot plus one that each ask was granted; 0: none
    amount: I64  # (rows, asks)
    reserved_flavor_resource: I64  # (rows, asks): lot plus one that places are reserved in while it waits; 0: in none
    counts: I64  # (rows, 3, sets): the three that follow
    pods: I64  # (rows, sets): granted
    reclaimed: I64  # (rows, sets): pods that are done and need no quota
    awaits: I64  # (rows, sets): 1 if its spots are found once its checks are ready
    tried: I64  # (rows, tries): flavors tried so far, by leader and group


(
    QUEUE, GRANTED_MS, NEXT, PREV, LEAVING, HELD, NOT_BEFORE_MS, BLOCKED, GATED, TRIED_CYCLE, TRIED_GENERATION,
    LOCAL_QUEUE, UNPLACED_EPOCH, DECISION, REPLACES, REPLACED_BY, FIRST_ASSIGNMENT, ASSIGNMENTS, AGAIN, PINNED,
    TRIES, TRIES_EPOCH, FAILED_STARTS, FAILED_MS,
) = range(len(QuotaReservations.columns))  # fmt: skip
