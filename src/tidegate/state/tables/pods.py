"""Pods: one row for each pod that has, or is assumed to have, a place."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class Pods(ColumnTable):
    """Pods as a table."""

    fills: ClassVar = {"workload": -1, "pod_class": -1, "node": -1, "next": NONE, "decision": -1}

    workload: I64
    ordinal: I64  # its place in the workload
    pod_class: I64
    node: I64
    devices: I64  # bit mask of its GPUs; fewer than it requests where the world reports more pods than GPUs
    phase: I64
    next: I64  # chain of its workload, or of spare rows
    decision: I64  # the PLACE that put it there, until the world reports it there; -1: the world's


WORKLOAD, ORDINAL, POD_CLASS, NODE, DEVICES, PHASE, NEXT, DECISION = range(len(Pods.columns))
