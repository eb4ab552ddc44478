"""Topology assignments: pods of a pod set in one leaf; the rows of a workload are consecutive."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class DomainAssignments(ColumnTable):
    """Topology assignments as a table."""

    fills: ClassVar = {"leaf": NONE, "kind": NONE}

    leaf: I64  # NONE: its domain does not exist any more
    count: I64
    pod_set: I64  # ordinal in its work
    kind: I64  # of pod: what one takes
    name: I64  # of the leaf: it stays when the leaf goes and comes back
    workload: I64
    lost: I64  # 1: on the node that has failed; 2: on another that has


LEAF, COUNT, POD_SET, KIND, NAME, WORKLOAD, LOST = range(len(DomainAssignments.columns))
