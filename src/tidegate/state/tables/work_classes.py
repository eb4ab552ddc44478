"""Work classes: one row for each kind of work. Pending workloads of a class form a chain, oldest first."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable

#: Work that is never preempted is protected for this long.
ALWAYS = 1 << 60


class WorkClasses(ColumnTable):
    """Work classes as a table."""

    fills: ClassVar = {"head": NONE, "tail": NONE, "held_epoch": -1, "held_set": -1}

    queue: I64
    kind: I64
    priority: I64
    first_set: I64
    sets: I64
    malformed: I64  # Reason why it can never be placed; 0: it can. Such a class has no sets
    pods: I64  # in all its sets
    gpu_milli: I64  # of all its pods
    head: I64
    tail: I64
    waiting: I64
    held_code: I64  # why its head was refused last; 0: not refused
    held_epoch: I64  # the room epoch at which it was refused: it is not tried again without new room
    held_set: I64  # the pod set that did not fit then
    unreported: I64  # how many in the chain have not reported why they wait
    protected_ms: I64  # how long work is protected from preemption once it has its place; ALWAYS: as long as it runs
    tolerated_ms: I64  # how long it may be passed over; 0: not declared
    checkpoint_ms: I64  # from checkpoint to checkpoint; 0: never
    restart_ms: I64  # what a restart costs


(
    QUEUE, KIND, PRIORITY, FIRST_SET, SETS, MALFORMED, PODS, GPU_MILLI, HEAD, TAIL, WAITING, HELD_CODE, HELD_EPOCH,
    HELD_SET, UNREPORTED, PROTECTED_MS, TOLERATED_MS, CHECKPOINT_MS, RESTART_MS,
) = range(len(WorkClasses.columns))  # fmt: skip
