"""Pod classes: one row for each kind of pod, with everything that decides where a pod can go."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class ShareCode(IntEnum):
    """Share as a number, for kernels."""

    NONE = 0
    WHOLE = 1
    FRACTION = 2


class PodClasses(ColumnTable):
    """Pod classes as a table."""

    grids: ClassVar = {"extra": "extra", "match": "node_class"}

    cpu: I64  # milli
    memory: I64  # MiB
    share: I64  # ShareCode
    gpus: I64  # devices
    milli: I64  # of each device
    vram: I64  # MiB of each device; 0: any
    gang: I64  # 1: requested by a pod set of two or more, so its headroom is kept
    size: I64  # number of what it takes of a node, memory aside: classes of one size leave the same behind
    seen: I64  # pods of this class submitted so far
    typical: I64  # how often it is requested, as the placement rule has it
    extra: I64  # (rows, extras)
    match: I64  # (rows, node classes): Reason why a node class can never take it; 0: it can


CPU, MEMORY, SHARE, GPUS, MILLI, VRAM, GANG, SIZE, SEEN, TYPICAL = range(len(PodClasses.columns))
