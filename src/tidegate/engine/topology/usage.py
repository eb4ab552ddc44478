"""What domain assignments use of the leaves: taken, given back, and checked again.

A host can be a leaf in the trees of several flavors: what is taken of it is taken in all of them.
"""

from __future__ import annotations

from tidegate.engine.topology.count import fits_in
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.state.tables import domain_assignments, topology_leaves
from tidegate.state.topology import TopologyArrays


@kernel
def move(arrays: TopologyArrays, grid: I64, leaf: int, kind: int, count: int) -> None:
    """Give pods of a kind back to a leaf, and to the same host in other trees; a negative count takes."""
    at = leaf
    while True:
        for r in range(arrays.amounts.shape[1]):
            grid[at, r] += count * arrays.amounts[kind, r]
        at = arrays.leaves[at, topology_leaves.TWIN]
        if at == leaf:
            return


@kernel
def move_all(arrays: TopologyArrays, grid: I64, assignments: I64, first: int, end: int, sign: int) -> None:
    """Release (sign 1) or take (-1) assignments. Rows without a leaf, on nodes that are gone, take nothing."""
    for i in range(first, end):
        row = assignments[i]
        if row[domain_assignments.LEAF] >= 0:
            count = sign * row[domain_assignments.COUNT]
            move(arrays, grid, row[domain_assignments.LEAF], row[domain_assignments.KIND], count)


@entry
def move_assignments(arrays: TopologyArrays, assignments: I64, first: int, end: int, sign: int) -> None:
    """Release these assignments (sign 1), or take them (-1)."""
    move_all(arrays, arrays.free, assignments, first, end, sign)


@kernel
def assume_assignments(arrays: TopologyArrays, assignments: I64, first: int, end: int, sign: int) -> None:
    """Take assignments during a search (sign 1) or withdraw that (-1): also from what counts as if all were empty."""
    move_all(arrays, arrays.free, assignments, first, end, -sign)
    move_all(arrays, arrays.empty, assignments, first, end, -sign)


@kernel
def assignments_fit(arrays: TopologyArrays, assignments: I64, first: int, end: int) -> bool:
    """Whether assignments found before are still free, all of them at once."""
    fits = True
    taken = first
    while taken < end and fits:
        leaf, kind = assignments[taken, domain_assignments.LEAF], assignments[taken, domain_assignments.KIND]
        fits = (
            leaf >= 0
            and fits_in(arrays.free, arrays.amounts, leaf, kind, -1) >= assignments[taken, domain_assignments.COUNT]
        )
        if fits:
            move_assignments(arrays, assignments, taken, taken + 1, -1)
            taken += 1
    move_assignments(arrays, assignments, first, taken, 1)
    return fits
