"""The tables of the state: what each row is and what each column means.

A column has a name for Python (`nodes.idle[row]`) and a place in its table's block for kernels (`nodes[row, N_IDLE]`).
The first letter says the table: N nodes, C pod classes, S pod sets, W work classes, J workloads, P pods.
Must not know: how rows come to change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from tidegate.model.arrays import F64, I64
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.struct import Spec
from tidegate.state.column_table import Table

#: End of a chain of rows.
END = -1

#: Work that is never preempted is protected for so long.
ALWAYS = 1 << 60

#: Subtracted from what is left of a broken device, so that nothing fits until it recovers.
BROKEN_MILLI = 1 << 24


class Taken(Spec, frozen=True):
    """What pods of others hold of a node: its devices, and how many they have that are still ours to leave."""

    foreign: UnmanagedPods
    devices: int = 0  # bit mask
    short: int = 0


class Phase(IntEnum):
    """Where a workload, or a pod, is in its life."""

    NONE = 0  # the row is not in use
    PENDING = 1
    ASSUMED = 2  # placed by us, not yet shown by the world
    RUNNING = 3
    LEAVING = 4  # told to go; holds what it holds until it is gone


class Reserves(IntEnum):
    """Why places are reserved for a workload that waits."""

    NOTHING = 0
    PREEMPTED_FOR = 1  # victims were evicted for it
    PASSED_OVER = 2  # it was passed over for longer than the limit


class ShareCode(IntEnum):
    """Share as a number, for kernels."""

    NONE = 0
    WHOLE = 1
    FRACTION = 2


class Nodes(Table):
    """One row a node."""

    columns = (  # what every score needs first: one row's worth of cache
        "rank", "node_class", "up", "cpu_free", "memory_free", "slots_free", "idle", "left_total", "most_left",
        "changed_at", "number", "cpu", "memory", "slots", "devices", "vram", "overdrawn", "linked", "short",
    )  # fmt: skip
    fills: ClassVar = {"number": -1, "rank": -1, "node_class": -1, "changed_at": -1}
    grids: ClassVar = {
        "left": "device", "vram_left": "device", "hosted": "gpu_kind", "extra_free": "extra", "extra": "extra",
    }  # fmt: skip

    number: I64  # the world's number for it
    rank: I64  # rank of its name among all nodes: the last tie-break
    node_class: I64
    up: I64  # 1: ready and open for new work
    cpu_free: I64  # milli
    memory_free: I64  # MiB
    slots_free: I64  # pods
    cpu: I64  # what it has when empty
    memory: I64
    slots: I64
    devices: I64  # how many GPUs it has
    idle: I64  # GPUs with nothing on them, less those that are short
    left_total: I64  # milli left on all working GPUs
    most_left: I64  # milli left on the GPU with most
    vram: I64  # MiB of memory of each GPU
    overdrawn: I64  # 1: the world shows more in use than it has; what is free is below zero until work leaves
    linked: I64  # GPUs that reach each other over NVLink, counted from the first; 0: all, or unknown
    short: I64  # GPUs that pods shown there ask for and do not have: the next that are free are theirs
    changed_at: I64  # its latest entry in the change log
    left: I64  # (rows, devices): milli left on each
    vram_left: I64  # (rows, devices): MiB left on each
    hosted: I64  # (rows, kinds): pods by GPU kind; 0 fractions, n whole requests of n
    extra_free: I64  # (rows, extras): other resources
    extra: I64


(
    N_RANK, N_NODE_CLASS, N_UP, N_CPU_FREE, N_MEMORY_FREE, N_SLOTS_FREE, N_IDLE, N_LEFT_TOTAL, N_MOST_LEFT,
    N_CHANGED_AT, N_NUMBER, N_CPU, N_MEMORY, N_SLOTS, N_DEVICES, N_VRAM, N_OVERDRAWN, N_LINKED, N_SHORT,
) = range(len(Nodes.columns))  # fmt: skip


class PodClasses(Table):
    """One row for each kind of pod: everything that decides where a pod can go."""

    columns = ("cpu", "memory", "share", "gpus", "milli", "vram", "gang", "size", "seen", "typical")
    grids: ClassVar = {"extra": "extra", "match": "node_class"}

    cpu: I64  # milli
    memory: I64  # MiB
    share: I64  # ShareCode
    gpus: I64  # devices
    milli: I64  # of each device
    vram: I64  # MiB of each device; 0: any
    gang: I64  # 1: asked for by a pod set of two or more, so its headroom is kept
    size: I64  # number of what it takes of a node, memory aside: classes of one size leave the same behind
    seen: I64  # pods of this class submitted so far
    typical: I64  # how often it is asked for, as the placement rule has it
    extra: I64  # (rows, extras)
    match: I64  # (rows, node classes): Reason why a node class can never take it; 0: it can


C_CPU, C_MEMORY, C_SHARE, C_GPUS, C_MILLI, C_VRAM, C_GANG, C_SIZE, C_SEEN, C_TYPICAL = range(len(PodClasses.columns))


class PodSets(Table):
    """One row a pod set of a work class; a work class has consecutive rows."""

    columns = ("pod_class", "count", "work_class")

    pod_class: I64
    count: I64
    work_class: I64


S_POD_CLASS, S_COUNT, S_WORK_CLASS = range(len(PodSets.columns))


class WorkClasses(Table):
    """One row for each kind of work. Waiting workloads of a class form a chain, the first submitted first."""

    columns = (
        "queue", "kind", "priority", "first_set", "sets", "malformed", "pods", "gpu_milli", "head", "tail", "waiting",
        "held_code", "held_epoch", "held_set", "untold", "protected_ms", "tolerated_ms", "checkpoint_ms", "restart_ms",
    )  # fmt: skip
    fills: ClassVar = {"head": END, "tail": END, "held_epoch": -1, "held_set": -1}

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
    held_epoch: I64  # the room epoch at which it was refused: no new room, no new try
    held_set: I64  # the pod set that did not fit then
    untold: I64  # how many in the chain have not been told why they wait
    protected_ms: I64  # how long work is safe from preemption once it has its place; ALWAYS: as long as it runs
    tolerated_ms: I64  # how long it may be passed over; 0: not declared
    checkpoint_ms: I64  # from checkpoint to checkpoint; 0: never
    restart_ms: I64  # what a restart costs


(
    W_QUEUE, W_KIND, W_PRIORITY, W_FIRST_SET, W_SETS, W_MALFORMED, W_PODS, W_GPU_MILLI, W_HEAD, W_TAIL, W_WAITING,
    W_HELD_CODE, W_HELD_EPOCH, W_HELD_SET, W_UNTOLD, W_PROTECTED, W_TOLERATED, W_CHECKPOINT, W_RESTART,
) = range(len(WorkClasses.columns))  # fmt: skip


class Workloads(Table):
    """One row a workload that is not over."""

    columns = (
        "number", "work_class", "phase", "submitted_ms", "tie", "since_ms", "next", "prev", "first_pod", "held_code",
        "estimate_ms", "progress_ms", "level", "place_in_level", "evictions", "trouble", "ending", "preempted_in",
        "started_in", "passed_ms", "reserves",
    )  # fmt: skip
    fills: ClassVar = {
        "number": -1, "work_class": -1, "next": END, "prev": END, "first_pod": END, "preempted_in": -1,
        "started_in": -1, "passed_ms": -1,
    }  # fmt: skip
    reals = ("remaining_s", "attained_s")

    number: I64  # the world's number for it
    work_class: I64
    phase: I64
    submitted_ms: I64
    tie: I64  # rank of its id among those submitted in the same millisecond
    since_ms: I64  # when its phase changed
    next: I64  # chain of its class, while it waits
    prev: I64
    first_pod: I64  # chain of the pods it holds
    held_code: I64  # Reason of its latest HOLD; 0: none
    estimate_ms: I64  # the runtime that its owner tells; 0: unknown
    progress_ms: I64  # up to when remaining_s and attained_s count; 0: up to its latest start
    level: I64  # las: the queue it was demoted to
    place_in_level: I64  # las: its place there; lower goes first
    evictions: I64
    trouble: I64  # Reason why it cannot go on as it is; 0: none. A decision follows
    ending: I64  # 1: it is over once its last pod is gone
    preempted_in: I64  # the outside epoch in which it was preempted last; -1: never
    started_in: I64  # the outside epoch in which it was given what it holds; -1: the world's
    passed_ms: I64  # when it was first passed over since it began to wait; -1: not yet
    reserves: I64  # Reserves: why places are reserved for it while it waits
    remaining_s: F64  # work left at progress_ms; infinite: unknown
    attained_s: F64  # how long it had run until progress_ms


(
    J_NUMBER, J_WORK_CLASS, J_PHASE, J_SUBMITTED, J_TIE, J_SINCE, J_NEXT, J_PREV, J_FIRST_POD, J_HELD_CODE,
    J_ESTIMATE, J_PROGRESS, J_LEVEL, J_PLACE_IN_LEVEL, J_EVICTIONS, J_TROUBLE, J_ENDING, J_PREEMPTED_IN, J_STARTED_IN,
    J_PASSED, J_RESERVES,
) = range(len(Workloads.columns))  # fmt: skip


class Pods(Table):
    """One row a pod that has, or is assumed to have, a place. Kernels hand out rows from the chain of spare ones."""

    columns = ("workload", "ordinal", "pod_class", "node", "devices", "phase", "next", "decision")
    fills: ClassVar = {"workload": -1, "pod_class": -1, "node": -1, "next": END, "decision": -1}

    workload: I64
    ordinal: I64  # its place in the workload
    pod_class: I64
    node: I64
    devices: I64  # bit mask of the GPUs it has; fewer than it asks for where the world shows more pods than GPUs
    phase: I64
    next: I64  # chain of its workload, or of spare rows
    decision: I64  # the PLACE that put it there, until the world shows it there; -1: the world's


P_WORKLOAD, P_ORDINAL, P_POD_CLASS, P_NODE, P_DEVICES, P_PHASE, P_NEXT, P_DECISION = range(len(Pods.columns))
