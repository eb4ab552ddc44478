"""Topology leaves: one row for each domain of the narrowest level, in the order of the domains."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable


class TopologyLeaves(ColumnTable):
    """Topology leaves as a table."""

    fills: ClassVar = {"node_class": NONE}
    grids: ClassVar = {"allocatable": "resource", "empty": "resource", "unassigned": "resource", "free": "resource"}

    domain: I64
    node_class: I64  # of its node, where the level is the host; NONE: every pod matches
    twin: I64  # the next leaf, in the tree of another flavor, that is the same host: a ring, often of one
    allocatable: I64  # (rows, resources): what its nodes have for pods
    empty: I64  # that, without what unmanaged and unassigned pods hold
    unassigned: I64  # what our unassigned pods hold
    free: I64  # that, without what assignments hold


DOMAIN, NODE_CLASS, TWIN = range(len(TopologyLeaves.columns))
