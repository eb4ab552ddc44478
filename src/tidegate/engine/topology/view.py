"""The topology in the form that a cycle takes: the trees, what is asked of them, and room to look for spots in.

Must not know: quota, cycles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.build import compact_spots
from tidegate.engine.topology.columns import questions, view_counters
from tidegate.engine.topology.cycle_view import Grove, LeafNodes
from tidegate.engine.topology.query import options_of
from tidegate.engine.topology.search_buffers import SPOT_COLUMNS, Answer, Extent, Search, empty_answer, empty_search
from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.topology import Topology

#: Nobody is looked at again.
NOBODY_AGAIN: I64 = np.zeros(0, np.int64)


class Bed(NamedTuple):
    """Room for searches, kept from one cycle to the next."""

    extent: Extent
    search: Search
    answer: Answer


def rows_again(state: ClusterState) -> I64:
    """Workloads that hold quota and whose spots are to be looked at again: the highest priority first."""
    tickets, table, works = state.shares.tickets, state.workloads, state.work_classes
    top = min(tickets.top, table.top)
    rows = np.flatnonzero((tickets.again[:top] > 0) & (tickets.branch[:top] != NONE) & (tickets.leaving[:top] == 0))
    if not len(rows):
        return rows
    branches = state.shares.branches
    rows = rows[tickets.held[rows] != branches.epoch[branches.root[tickets.branch[rows]]]]
    priority = -works.priority[table.work_class[rows]]
    ordered: I64 = rows[np.lexsort((table.tie[rows], table.submitted_ms[rows], priority))]
    return ordered


def grove_for(state: ClusterState, topology: Topology, bed: Bed | None, again: I64, pods: int) -> tuple[Bed, Grove]:
    """The grove of a cycle whose heads have this many pods in all, with a bed that is large enough."""
    tables, works = state.shares, state.work_classes
    compact_spots(state)
    held = int(tables.tickets.spots[again].sum())
    pods_again = int(works.pods[state.workloads.work_class[again]].sum())
    sets = max(tables.tickets.axes["set"], 1)
    most = 2 * (pods + pods_again + held) + sets * (tables.branches.top + 2 * len(again)) + 1
    tables.spots.reserve(tables.spots.top + most)
    bed = _bed_for(topology, bed, most, sets)
    grove = Grove(
        forest=topology.forest(),
        search=bed.search,
        answer=bed.answer,
        spots=tables.spots.block,
        names=topology.leaf_names,
        hosts=leaf_nodes(topology),
        questions=topology.questions,
        asked=np.zeros((sets, questions.COLUMNS), np.int64),
        kept=np.zeros((held + 1, SPOT_COLUMNS), np.int64),
        found=np.zeros((most, SPOT_COLUMNS + 1), np.int64),
        again=again,
        marks=np.zeros(view_counters.COLUMNS, np.int64),
        leaves=node_leaves(topology, state.nodes.top),
        spotless=topology.leaves.spotless,
        amounts=_amounts(state, topology),
    )
    reset(state, grove)
    return bed, grove


def leaf_nodes(topology: Topology) -> LeafNodes:
    """The nodes of every leaf."""
    if topology.leaf_nodes is None:
        start = np.cumsum([0, *(len(rows) for rows in topology.nodes)], dtype=np.int64)
        rows = [row for nodes in topology.nodes for row in nodes]
        topology.leaf_nodes = (start, np.array(rows or [NONE], np.int64))
    return LeafNodes(*topology.leaf_nodes)


def node_leaves(topology: Topology, nodes: int) -> LeafNodes:
    """The leaves of every node."""
    if topology.node_leaves is None or len(topology.node_leaves[0]) != nodes + 1:
        of_node = [topology.leaves_of.get(row, ()) for row in range(nodes)]
        start = np.cumsum([0, *map(len, of_node)], dtype=np.int64)
        topology.node_leaves = (start, np.array([leaf for leaves in of_node for leaf in leaves] or [NONE], np.int64))
    return LeafNodes(*topology.node_leaves)


def _amounts(state: ClusterState, topology: Topology) -> I64:
    """What one pod of each class takes of a leaf, where such pods stand without a spot."""
    amounts = np.zeros((state.pod_classes.top, len(topology.resources)), np.int64)
    for pod_class, vector in topology.spotless_pods.items():
        amounts[pod_class, : len(vector)] = vector  # resources that came after it are none that it takes
    return amounts


def reset(state: ClusterState, grove: Grove) -> None:
    """Nothing is found, and nothing more is held than before."""
    grove.marks[:] = 0
    grove.marks[view_counters.FOUND], grove.marks[view_counters.SPOTS] = 0, state.shares.spots.top
    grove.marks[view_counters.OPTIONS] = options_of(state.policy.shares.topology)
    grove.marks[view_counters.PLACES] = state.policy.admission is AdmissionKind.TIDEGATE


def _bed_for(topology: Topology, bed: Bed | None, pods: int, sets: int) -> Bed:
    wanted = Extent(
        topology.domains.top,
        topology.leaves.top,
        topology.trees.axes["level"],
        len(topology.resources),
        2 * pods + 64,
        sets,
    )
    if bed is not None and all(has >= needs for has, needs in zip(bed.extent, wanted, strict=True)):
        return bed
    roomy = wanted._replace(spots=2 * wanted.spots)
    return Bed(roomy, empty_search(roomy), empty_answer(roomy))
