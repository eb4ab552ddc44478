"""Topology domains: one row for each domain, tree by tree and level by level, from the widest."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class TopologyDomains(ColumnTable):
    """Topology domains as a table."""

    fills: ClassVar = {"parent": NONE, "first_child": NONE}

    parent: I64
    first_child: I64
    children: I64  # consecutive rows; 0: a leaf


PARENT, FIRST_CHILD, CHILDREN = range(len(TopologyDomains.columns))
