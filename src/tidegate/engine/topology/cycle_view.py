"""The topology as a cycle over the queues reads it, with what it writes while it searches assignments.

Without a topology a cycle has no view: kernels that take one, or None, are compiled without what they do with it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.engine.topology.search_buffers import DomainSearch, TopologyAnswer
from tidegate.engine.topology.usage import move_assignments
from tidegate.jit.registry import inlined
from tidegate.model.arrays import I64
from tidegate.state.quota_tables import Reserved
from tidegate.state.tables import quota_reservations
from tidegate.state.topology import TopologyArrays


class LeafNodes(NamedTuple):
    """The nodes of every leaf, one where a leaf is a host; or the leaves of every node."""

    start: I64  # (leaves + 1,): where those of each begin
    rows: I64


class TopologyView(NamedTuple):
    """The topology, for a cycle."""

    arrays: TopologyArrays
    search: DomainSearch
    answer: TopologyAnswer
    assignments: I64  # (rows, columns): the domain assignments that workloads hold
    names: I64  # (leaves,): number of the name of each leaf
    hosts: LeafNodes
    questions: I64  # (pod sets, trees, questions.COLUMNS): what pod sets ask of each tree, counts aside
    asked: I64  # (sets, questions.COLUMNS): the current questions
    kept: I64  # (rows, ASSIGNMENT_COLUMNS): assignments that stay while others are replaced
    found: (
        I64  # (rows, ASSIGNMENT_COLUMNS + 1): what was found for the entries of the cycle, with the names of the leaves
    )
    again: I64  # workloads that hold quota and whose assignment is searched again
    marks: I64  # (view_counters.COLUMNS,)
    leaves: LeafNodes  # of every node: where its leaves begin, and their rows
    unassigned: I64  # (leaves, resources): what our unassigned pods hold
    amounts: I64  # (pod classes, resources): what one pod of those takes


@inlined
def move_domains(topology: TopologyView | None, held: Reserved, j: int, sign: int) -> None:
    """Take what workload j holds out of the topology, if there is one (sign 1), or put it back (-1)."""
    if topology is not None:
        first = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
        end = first + held.reservations[j, quota_reservations.ASSIGNMENTS]
        move_assignments(topology.arrays, topology.assignments, first, end, sign)
