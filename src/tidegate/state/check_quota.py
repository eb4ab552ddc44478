"""Consistency checks of quota: usage must equal what workloads hold, all the way up the tree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.queues import UNLIMITED
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.quota_nodes import NO_LIMIT
from tidegate.state.tables.workloads import Phase


def share_violations(state: ClusterState) -> Iterator[str]:
    """All inconsistencies of quota."""
    yield from _holders(state)
    yield from _usage(state)
    yield from _assignments(state)


def _holders(state: ClusterState) -> Iterator[str]:
    """Holders of quota are in their queue's chain, once, and are not pending; no other workload is."""
    tables, reservations = state.quota, state.quota.reservations
    chained: list[int] = []
    for row in range(tables.quota_nodes.top):
        at = int(tables.quota_nodes.first_holder[row])
        while at != NONE and len(chained) <= reservations.top:
            chained.append(at)
            if reservations.queue[at] != row:
                yield f"workload row {at}: in the chain of quota node {row}, holds quota of {reservations.queue[at]}"
            at = int(reservations.next[at])
    holds = np.flatnonzero(reservations.queue[: reservations.top] != NONE)
    if sorted(chained) != holds.tolist():
        yield f"holders in chains {sorted(chained)}, expected {holds.tolist()}"
    for row in holds[state.workloads.phase[holds] == Phase.PENDING].tolist():
        yield f"workload row {row}: waits and holds quota"


def _usage(state: ClusterState) -> Iterator[str]:
    """A queue uses what its holders claim; a cohort uses what its children use beyond what they keep to themselves."""
    tables = state.quota
    quota_nodes, frs = tables.quota_nodes, tables.flavor_resources.top
    expected = np.zeros((quota_nodes.top, frs), np.int64)
    for row in np.flatnonzero(tables.reservations.queue[: tables.reservations.top] != NONE).tolist():
        for fr, amount in zip(
            tables.reservations.flavor_resource[row].tolist(), tables.reservations.amount[row].tolist(), strict=True
        ):
            if fr:
                expected[tables.reservations.queue[row], fr - 1] += amount
    for row in sorted(range(quota_nodes.top), key=lambda row: (int(quota_nodes.height[row]), row)):
        parent = int(quota_nodes.parent[row])
        if parent != NONE:
            expected[parent] += np.maximum(
                0, expected[row] - _own(quota_nodes.subtree[row], quota_nodes.lend_limit[row], frs)
            )
    for row, fr in zip(*np.nonzero(expected != quota_nodes.usage[: quota_nodes.top, :frs]), strict=True):
        used, counted = quota_nodes.usage[row, fr], expected[row, fr]
        yield f"quota node {row}: uses {used} of flavor-resource {fr}, expected {counted}"


def _assignments(state: ClusterState) -> Iterator[str]:
    """Holders of quota hold assignments, each row by one; what is free in the topology is what they leave."""
    tables, held = state.quota, list[int]()
    for row in np.flatnonzero(tables.reservations.assignments[: tables.reservations.top]).tolist():
        first = int(tables.reservations.first_assignment[row])
        held += range(first, first + int(tables.reservations.assignments[row]))
        if tables.reservations.queue[row] == NONE:
            yield f"workload row {row}: has spots and holds no quota"
        if (tables.assignments.workload[first : first + int(tables.reservations.assignments[row])] != row).any():
            yield f"workload row {row}: its spots are not its own"
    if len(set(held)) != len(held) or max(held, default=-1) >= tables.assignments.top:
        yield "spots are held twice, or do not exist"
    if tables.topology is None or tables.topology_stale:
        return
    leaves, assignments = tables.topology.leaves, tables.assignments
    expected = leaves.empty[: leaves.top].copy()
    for at in held:
        leaf = start = int(assignments.leaf[at])
        while leaf >= 0:
            expected[leaf] -= int(assignments.count[at]) * tables.topology.kinds.amounts[assignments.kind[at]]
            leaf = int(leaves.twin[leaf])
            leaf = NONE if leaf == start else leaf
    for leaf in np.flatnonzero((expected != leaves.free[: leaves.top]).any(axis=1)).tolist():
        yield f"leaf {leaf}: {leaves.free[leaf].tolist()} is free, expected {expected[leaf].tolist()}"


def _own(subtree: I64, lend_limit: I64, frs: int) -> I64:
    own: I64 = np.where(lend_limit[:frs] == NO_LIMIT, 0, np.maximum(0, subtree[:frs] - lend_limit[:frs]))
    return np.where((own > 0) & (subtree[:frs] >= UNLIMITED), UNLIMITED, own)  # without a limit less some has no limit
