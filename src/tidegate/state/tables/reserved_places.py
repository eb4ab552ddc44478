"""Reserved places: one row a pod of a pending workload, on the node that is kept for it.

Room on that node goes to no workload after it. What is free of it is withheld while a cycle runs, and given back at the
cycle's end, so that between cycles nodes show what is true. Kernels name the columns of the block by this module:
`reserved_places.NODE`.
"""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class ReservedPlaces(ColumnTable):
    """Rows of one workload are consecutive, in the order of its pods; the first reservation made stands first."""

    fills: ClassVar = {"workload": -1, "pod_class": -1, "node": -1}
    grids: ClassVar = {"withheld_left": "device", "withheld_extra": "extra"}

    workload: I64
    pod_class: I64
    node: I64  # -1: it is gone
    devices: I64  # bit mask of the GPUs it is to have
    fleet: I64  # what Counter.FLEET was when a search last found places
    found_ms: I64  # when that was; of passed-over work
    in_force: I64  # 1: withheld from workloads that are tried from now on in the cycle; 2: from this one
    is_withheld: I64  # 1: the amounts below are withheld right now
    vram: I64  # MiB of each GPU that something is withheld of
    cpu: I64  # milli
    memory: I64  # MiB
    slots: I64
    withheld_left: I64  # (rows, devices): milli of each GPU
    withheld_extra: I64  # (rows, extras)


WORKLOAD, POD_CLASS, NODE, DEVICES, FLEET, FOUND_MS, IN_FORCE, IS_WITHHELD, VRAM, CPU, MEMORY, SLOTS = range(
    len(ReservedPlaces.columns)
)
