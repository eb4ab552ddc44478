"""What a pod set needs of flavors, at the row of the pod set."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class PodSetNeeds(ColumnTable):
    """What a pod set needs of flavors, at the row of the pod set."""

    grids: ClassVar = {"mismatch": "option", "flavored": "blend"}

    least: I64  # pods it may start with
    leader: I64  # first pod set that must get the same flavors
    ordinal: I64  # place in its work
    topology: I64  # 1: it requests placement by topology
    mismatch: I64  # (rows, options of its queue): Reason why the flavor does not match; 0: it does
    flavored: I64  # (rows, combinations): class of its pods on the nodes of these flavors, one a group


LEAST, LEADER, ORDINAL, TOPOLOGY = range(len(PodSetNeeds.columns))
