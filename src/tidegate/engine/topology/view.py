"""The topology in the form that a cycle reads: the trees, what is asked of them, and search buffers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.build import compact_assignments
from tidegate.engine.topology.columns import questions, view_counters
from tidegate.engine.topology.cycle_view import LeafNodes, TopologyView
from tidegate.engine.topology.query import options_of
from tidegate.engine.topology.search_buffers import (
    ASSIGNMENT_COLUMNS,
    DomainSearch,
    TopologyAnswer,
    TopologyExtent,
    empty_answer,
    empty_search,
)
from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.topology import Topology

#: No workload is searched again.
NONE_AGAIN: I64 = np.zeros(0, np.int64)


class SearchBuffers(NamedTuple):
    """Buffers of searches, kept from one cycle to the next."""

    extent: TopologyExtent
    search: DomainSearch
    answer: TopologyAnswer


def rows_again(state: ClusterState) -> I64:
    """Holders of quota whose assignment is searched again: the highest priority first."""
    reservations, table, works = state.quota.reservations, state.workloads, state.work_classes
    top = min(reservations.top, table.top)
    rows = np.flatnonzero(
        (reservations.again[:top] > 0) & (reservations.queue[:top] != NONE) & (reservations.terminating[:top] == 0)
    )
    if not len(rows):
        return rows
    quota_nodes = state.quota.quota_nodes
    rows = rows[reservations.held[rows] != quota_nodes.epoch[quota_nodes.root[reservations.queue[rows]]]]
    priority = -works.priority[table.work_class[rows]]
    ordered: I64 = rows[np.lexsort((table.tie[rows], table.submitted_ms[rows], priority))]
    return ordered


def topology_view_for(
    state: ClusterState, topology: Topology, buffers: SearchBuffers | None, again: I64, pods: int
) -> tuple[SearchBuffers, TopologyView]:
    """The topology view of a cycle whose heads have this many pods in all, with buffers that are large enough."""
    tables, works = state.quota, state.work_classes
    compact_assignments(state)
    held = int(tables.reservations.assignments[again].sum())
    pods_again = int(works.pods[state.workloads.work_class[again]].sum())
    sets = max(tables.reservations.axes["set"], 1)
    most = 2 * (pods + pods_again + held) + sets * (tables.quota_nodes.top + 2 * len(again)) + 1
    tables.assignments.reserve(tables.assignments.top + most)
    buffers = _buffers_for(topology, buffers, most, sets)
    topology_view = TopologyView(
        arrays=topology.arrays(),
        search=buffers.search,
        answer=buffers.answer,
        assignments=tables.assignments.block,
        names=topology.leaf_names,
        hosts=leaf_nodes(topology),
        questions=topology.questions,
        asked=np.zeros((sets, questions.COLUMNS), np.int64),
        kept=np.zeros((held + 1, ASSIGNMENT_COLUMNS), np.int64),
        found=np.zeros((most, ASSIGNMENT_COLUMNS + 1), np.int64),
        again=again,
        marks=np.zeros(view_counters.COLUMNS, np.int64),
        leaves=node_leaves(topology, state.nodes.top),
        unassigned=topology.leaves.unassigned,
        amounts=_amounts(state, topology),
    )
    reset(state, topology_view)
    return buffers, topology_view


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
    """What one unassigned pod of each class takes of a leaf."""
    amounts = np.zeros((state.pod_classes.top, len(topology.resources)), np.int64)
    for pod_class, vector in topology.unassigned_pods.items():
        amounts[pod_class, : len(vector)] = vector  # resources that came after it are none that it takes
    return amounts


def reset(state: ClusterState, topology: TopologyView) -> None:
    """Nothing is found, and nothing more is held than before."""
    topology.marks[:] = 0
    topology.marks[view_counters.FOUND], topology.marks[view_counters.ASSIGNMENTS] = 0, state.quota.assignments.top
    topology.marks[view_counters.OPTIONS] = options_of(state.policy.shares.topology)
    topology.marks[view_counters.PLACES] = state.policy.admission is AdmissionKind.TIDEGATE


def _buffers_for(topology: Topology, buffers: SearchBuffers | None, pods: int, sets: int) -> SearchBuffers:
    wanted = TopologyExtent(
        topology.domains.top,
        topology.leaves.top,
        topology.trees.axes["level"],
        len(topology.resources),
        2 * pods + 64,
        sets,
    )
    if buffers is not None and all(has >= needs for has, needs in zip(buffers.extent, wanted, strict=True)):
        return buffers
    roomy = wanted._replace(assignments=2 * wanted.assignments)
    return SearchBuffers(roomy, empty_search(roomy), empty_answer(roomy))
