"""Resource flavors: one row for each flavor."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class Flavors(ColumnTable):
    """Resource flavors as a table."""

    fills: ClassVar = {"tree": NONE}
    grids: ClassVar = {"flavor_resource_of": "resource"}

    topology: I64  # 1: it has one
    tree: I64  # its tree; NONE: none
    flavor_resource_of: I64  # (rows, resources): flavor-resource plus one; 0: none


TOPOLOGY, TREE = range(len(Flavors.columns))
