"""Workloads: one row for each workload that has not ended."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from tidegate.model.arrays import F64, I64
from tidegate.state.column_table import NONE, ColumnTable


class Phase(IntEnum):
    """The phase of a workload, or of a pod."""

    NONE = 0  # the row is not in use
    PENDING = 1
    ASSUMED = 2  # placed by us, not yet reported by the world
    RUNNING = 3
    TERMINATING = 4  # evicted; holds what it holds until it is gone


class Reserves(IntEnum):
    """Why places are reserved for a pending workload."""

    NOTHING = 0
    PREEMPTED_FOR = 1  # victims were evicted for it
    PASSED_OVER = 2  # it was passed over for longer than the limit


class Workloads(ColumnTable):
    """Workloads as a table."""

    fills: ClassVar = {
        "number": -1, "work_class": -1, "next": NONE, "prev": NONE, "first_pod": NONE, "preempted_in": -1,
        "started_in": -1, "passed_ms": -1,
    }  # fmt: skip
    reals = ("remaining_s", "attained_s")

    number: I64  # the world's number for it
    work_class: I64
    phase: I64
    submitted_ms: I64
    tie: I64  # rank of its id among those submitted in the same millisecond
    since_ms: I64  # when its phase changed
    next: I64  # chain of its class, while it is pending
    prev: I64
    first_pod: I64  # chain of the pods it holds
    held_code: I64  # Reason of its latest HOLD; 0: none
    estimate_ms: I64  # the runtime that its owner estimates; 0: unknown
    progress_ms: I64  # up to when remaining_s and attained_s count; 0: up to its latest start
    level: I64  # las: the queue it was demoted to
    place_in_level: I64  # las: its place there; lower goes first
    evictions: I64
    pending_eviction: I64  # Reason why it cannot go on as it is; 0: none. A decision follows
    ending: I64  # 1: it is over once its last pod is gone
    preempted_in: I64  # the external epoch in which it was preempted last; -1: never
    started_in: I64  # the external epoch in which it was given what it holds; -1: the world's
    passed_ms: I64  # when it was first passed over since it became pending; -1: not yet
    reserves: I64  # Reserves: why places are reserved for it while it is pending
    remaining_s: F64  # work left at progress_ms; infinite: unknown
    attained_s: F64  # how long it had run until progress_ms


(
    NUMBER, WORK_CLASS, PHASE, SUBMITTED_MS, TIE, SINCE_MS, NEXT, PREV, FIRST_POD, HELD_CODE, ESTIMATE_MS,
    PROGRESS_MS, LEVEL, PLACE_IN_LEVEL, EVICTIONS, PENDING_EVICTION, ENDING, PREEMPTED_IN, STARTED_IN, PASSED_MS,
    RESERVES,
) = range(len(Workloads.columns))  # fmt: skip
