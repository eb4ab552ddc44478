"""Quota reservations: the quota that a workload holds, at the row of the workload."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class Again(IntEnum):
    """Why the assignment of a workload that holds quota is searched again."""

    NO = 0
    AWAITS = 1  # its checks are ready, and its nodes exist by now
    FAILED = 2  # a node that it has pods on has failed


class QuotaReservations(ColumnTable):
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
    terminating: I64  # 1: evicted; holds until it is gone
    held: I64  # epoch of the tree at which this one alone was refused
    not_before_ms: I64
    blocked: I64  # Reason why it is not to be tried at all; 0: none
    gated: I64  # 1: may not preempt yet
    tried_cycle: I64  # cycle in which flavors were tried last
    tried_generation: I64
    local_queue: I64  # that it was granted, while it holds quota
    unplaced_epoch: I64  # room epoch at which no place was found for it, though it holds quota
    decision: I64  # id of the first ADMIT that its quota is from; -1: the world's
    replaces: I64  # the workload that it replaces, as a larger slice of the same job
    replaced_by: I64  # and its inverse
    first_assignment: I64  # its assignments are consecutive rows
    assignments: I64  # how many
    again: I64  # Again: why its assignment is searched once more
    pinned: I64  # 1: it cannot move
    tries: I64  # times that other flavors were tried at once since the epoch of the tree changed
    tries_epoch: I64  # to which one
    failed_starts: I64  # times in a row that its start failed
    failed_ms: I64  # when it failed the last time
    claims: I64  # (rows, 3, requests): the three that follow
    flavor_resource: I64  # (rows, requests): flavor-resource plus one that each request was granted; 0: none
    amount: I64  # (rows, requests)
    reserved_flavor_resource: (
        I64  # (rows, requests): flavor-resource plus one in which places are reserved while pending; 0: none
    )
    counts: I64  # (rows, 3, sets): the three that follow
    pods: I64  # (rows, sets): granted
    reclaimed: I64  # (rows, sets): pods that are done and need no quota
    awaits: I64  # (rows, sets): 1 if its assignment is found once its checks are ready
    tried: I64  # (rows, tries): flavors tried so far, by leader and group


(
    QUEUE, GRANTED_MS, NEXT, PREV, TERMINATING, HELD, NOT_BEFORE_MS, BLOCKED, GATED, TRIED_CYCLE, TRIED_GENERATION,
    LOCAL_QUEUE, UNPLACED_EPOCH, DECISION, REPLACES, REPLACED_BY, FIRST_ASSIGNMENT, ASSIGNMENTS, AGAIN, PINNED,
    TRIES, TRIES_EPOCH, FAILED_STARTS, FAILED_MS,
) = range(len(QuotaReservations.columns))  # fmt: skip
