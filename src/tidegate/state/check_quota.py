"""Are the shares whole? Usage must equal what workloads hold, all the way up the tree.

Must not know: whether a decision was good.
"""

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
    """Everything about shares that is not as it must be."""
    yield from _holders(state)
    yield from _usage(state)
    yield from _spots(state)


def _holders(state: ClusterState) -> Iterator[str]:
    """Whoever holds quota is in its queue's chain, once, and does not wait; nobody else is."""
    tables, tickets = state.shares, state.shares.tickets
    chained: list[int] = []
    for row in range(tables.branches.top):
        at = int(tables.branches.first_holder[row])
        while at != NONE and len(chained) <= tickets.top:
            chained.append(at)
            if tickets.branch[at] != row:
                yield f"workload row {at}: in the chain of branch {row}, holds quota of {tickets.branch[at]}"
            at = int(tickets.next[at])
    holds = np.flatnonzero(tickets.branch[: tickets.top] != NONE)
    if sorted(chained) != holds.tolist():
        yield f"holders in chains {sorted(chained)}, expected {holds.tolist()}"
    for row in holds[state.workloads.phase[holds] == Phase.PENDING].tolist():
        yield f"workload row {row}: waits and holds quota"


def _usage(state: ClusterState) -> Iterator[str]:
    """A queue uses what its holders claim; a cohort uses what its children use beyond what they keep to themselves."""
    tables = state.shares
    branches, lots = tables.branches, tables.lots.top
    expected = np.zeros((branches.top, lots), np.int64)
    for row in np.flatnonzero(tables.tickets.branch[: tables.tickets.top] != NONE).tolist():
        for lot, amount in zip(tables.tickets.lot[row].tolist(), tables.tickets.amount[row].tolist(), strict=True):
            if lot:
                expected[tables.tickets.branch[row], lot - 1] += amount
    for row in sorted(range(branches.top), key=lambda row: (int(branches.height[row]), row)):
        parent = int(branches.parent[row])
        if parent != NONE:
            expected[parent] += np.maximum(
                0, expected[row] - _own(branches.subtree[row], branches.lend_limit[row], lots)
            )
    for row, lot in zip(*np.nonzero(expected != branches.usage[: branches.top, :lots]), strict=True):
        yield f"branch row {row}: uses {branches.usage[row, lot]} of lot {lot}, expected {expected[row, lot]}"


def _spots(state: ClusterState) -> Iterator[str]:
    """Spots are held by those who hold quota, each by one; what is free in the topology is what they leave."""
    tables, held = state.shares, list[int]()
    for row in np.flatnonzero(tables.tickets.spots[: tables.tickets.top]).tolist():
        first = int(tables.tickets.first_spot[row])
        held += range(first, first + int(tables.tickets.spots[row]))
        if tables.tickets.branch[row] == NONE:
            yield f"workload row {row}: has spots and holds no quota"
        if (tables.spots.workload[first : first + int(tables.tickets.spots[row])] != row).any():
            yield f"workload row {row}: its spots are not its own"
    if len(set(held)) != len(held) or max(held, default=-1) >= tables.spots.top:
        yield "spots are held twice, or do not exist"
    if tables.topology is None or tables.uprooted:
        return
    leaves, spots = tables.topology.leaves, tables.spots
    expected = leaves.empty[: leaves.top].copy()
    for at in held:
        leaf = start = int(spots.leaf[at])
        while leaf >= 0:
            expected[leaf] -= int(spots.count[at]) * tables.topology.kinds.amounts[spots.kind[at]]
            leaf = int(leaves.twin[leaf])
            leaf = NONE if leaf == start else leaf
    for leaf in np.flatnonzero((expected != leaves.free[: leaves.top]).any(axis=1)).tolist():
        yield f"leaf {leaf}: {leaves.free[leaf].tolist()} is free, expected {expected[leaf].tolist()}"


def _own(subtree: I64, lend_limit: I64, lots: int) -> I64:
    own: I64 = np.where(lend_limit[:lots] == NO_LIMIT, 0, np.maximum(0, subtree[:lots] - lend_limit[:lots]))
    return np.where((own > 0) & (subtree[:lots] >= UNLIMITED), UNLIMITED, own)  # without a limit less some has none
