"""What a cycle over the queues knows of the topology, and what it writes on while it looks for spots.

A cycle without any topology has no grove: kernels that take one, or None, are compiled without what they do with it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.engine.topology.search_buffers import Answer, Search
from tidegate.model.arrays import I64
from tidegate.state.topology import TopologyArrays


class LeafNodes(NamedTuple):
    """The nodes of every leaf, one where a leaf is a host; or the leaves of every node."""

    start: I64  # (leaves + 1,): where those of each begin
    rows: I64


class TopologyView(NamedTuple):
    """The topology, for a cycle."""

    arrays: TopologyArrays
    search: Search
    answer: Answer
    assignments: I64  # (rows, columns): the spots that workloads hold
    names: I64  # (leaves,): number of the name of each leaf
    hosts: LeafNodes
    questions: I64  # (pod sets, trees, QUESTION_COLUMNS): what pod sets ask of each tree, counts aside
    asked: I64  # (sets, QUESTION_COLUMNS): what is asked right now
    kept: I64  # (rows, SPOT_COLUMNS): spots that stay while others are replaced
    found: I64  # (rows, SPOT_COLUMNS + 1): what was found for the entries of the cycle, with the names of the leaves
    again: I64  # workloads that hold quota and are looked at again
    marks: I64  # (GROVE_MARKS,)
    leaves: LeafNodes  # of every node: where its leaves begin, and their rows
    unassigned: I64  # (leaves, resources): what pods of ours hold that have no spots
    amounts: I64  # (pod classes, resources): what one pod of those takes
