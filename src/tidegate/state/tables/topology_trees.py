"""Topology trees: one row for each flavor that has topology levels."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import ColumnTable


class TopologyTrees(ColumnTable):
    """Topology trees as a table."""

    grids: ClassVar = {"level_start": "level"}

    first_domain: I64
    domains: I64
    levels: I64  # number of levels
    hosts: I64  # 1: the narrowest level is the host
    first_leaf: I64
    leaves: I64
    level_start: I64  # (rows, levels + 1): first domain of each level, and the end of the last


FIRST_DOMAIN, DOMAINS, LEVELS, HOSTS, FIRST_LEAF, LEAVES = range(len(TopologyTrees.columns))
