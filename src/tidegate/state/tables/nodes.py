"""Nodes: one row for each node."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.struct import Spec
from tidegate.state.column_table import ColumnTable

#: Subtracted from what is left of a broken device, so that nothing fits until it recovers.
BROKEN_MILLI = 1 << 24


class Taken(Spec, frozen=True):
    """What unmanaged pods hold of a node: its devices, and how many of them could not be given."""

    unmanaged: UnmanagedPods
    devices: int = 0  # bit mask
    short: int = 0


class Nodes(ColumnTable):
    """Nodes as a table."""

    fills: ClassVar = {"number": -1, "rank": -1, "node_class": -1, "changed_at": -1}
    grids: ClassVar = {
        "left": "device", "vram_left": "device", "hosted": "gpu_kind", "extra_free": "extra", "extra": "extra",
    }  # fmt: skip

    rank: I64  # rank of its name among all nodes: the last tie-break
    node_class: I64
    up: I64  # 1: ready and open for new work
    cpu_free: I64  # milli
    memory_free: I64  # MiB
    slots_free: I64  # pods
    idle: I64  # GPUs with nothing on them, less those that are short
    left_total: I64  # milli left on all working GPUs
    most_left: I64  # milli left on the GPU with most
    changed_at: I64  # its latest entry in the change log
    number: I64  # the world's number for it
    cpu: I64  # what it has when empty
    memory: I64
    slots: I64
    devices: I64  # how many GPUs it has
    vram: I64  # MiB of memory of each GPU
    overdrawn: I64  # 1: the world reports more in use than it has; what is free is below zero until work ends
    linked: I64  # GPUs that reach each other over NVLink, counted from the first; 0: all, or unknown
    short: I64  # GPUs that pods there request and do not have: the next that are free are theirs
    left: I64  # (rows, devices): milli left on each
    vram_left: I64  # (rows, devices): MiB left on each
    hosted: I64  # (rows, kinds): pods by GPU kind; 0 fractions, n whole requests of n
    extra_free: I64  # (rows, extras): other resources
    extra: I64


(
    RANK, NODE_CLASS, UP, CPU_FREE, MEMORY_FREE, SLOTS_FREE, IDLE, LEFT_TOTAL, MOST_LEFT, CHANGED_AT, NUMBER, CPU,
    MEMORY, SLOTS, DEVICES, VRAM, OVERDRAWN, LINKED, SHORT,
) = range(len(Nodes.columns))  # fmt: skip
