"""What spots take of the leaves: taken, given back, and checked again.

A host can be a leaf in the trees of several flavors: what is taken of it is taken in all of them.
Must not know: why somebody is there.
"""

from __future__ import annotations

from tidegate.engine.topology.count import fits_in
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.state.tables import domain_assignments, topology_leaves
from tidegate.state.topology import Forest


@kernel
def move(forest: Forest, grid: I64, leaf: int, kind: int, count: int) -> None:
    """Give pods of a kind back to a leaf, and to the same host in other trees; a negative count takes."""
    at = leaf
    while True:
        for r in range(forest.amounts.shape[1]):
            grid[at, r] += count * forest.amounts[kind, r]
        at = forest.leaves[at, topology_leaves.TWIN]
        if at == leaf:
            return


@entry
def add_spots(forest: Forest, spots: I64, first: int, end: int) -> None:
    """Pods have these spots now. Rows without a leaf, on nodes that are gone, take nothing."""
    for i in range(first, end):
        if spots[i, domain_assignments.LEAF] >= 0:
            move(
                forest,
                forest.free,
                spots[i, domain_assignments.LEAF],
                spots[i, domain_assignments.KIND],
                -spots[i, domain_assignments.COUNT],
            )


@entry
def remove_spots(forest: Forest, spots: I64, first: int, end: int) -> None:
    """Pods have left these spots."""
    for i in range(first, end):
        if spots[i, domain_assignments.LEAF] >= 0:
            move(
                forest,
                forest.free,
                spots[i, domain_assignments.LEAF],
                spots[i, domain_assignments.KIND],
                spots[i, domain_assignments.COUNT],
            )


@kernel
def assume_spots(forest: Forest, spots: I64, first: int, end: int, sign: int) -> None:
    """Take spots while a search goes on (sign 1) or withdraw that (-1): also where it looks as if all were empty."""
    for i in range(first, end):
        if spots[i, domain_assignments.LEAF] >= 0:
            move(
                forest,
                forest.free,
                spots[i, domain_assignments.LEAF],
                spots[i, domain_assignments.KIND],
                -sign * spots[i, domain_assignments.COUNT],
            )
            move(
                forest,
                forest.empty,
                spots[i, domain_assignments.LEAF],
                spots[i, domain_assignments.KIND],
                -sign * spots[i, domain_assignments.COUNT],
            )


@kernel
def spots_fit(forest: Forest, spots: I64, first: int, end: int) -> bool:
    """Whether spots found before are still free, all of them at once."""
    fits = True
    taken = first
    while taken < end and fits:
        leaf, kind = spots[taken, domain_assignments.LEAF], spots[taken, domain_assignments.KIND]
        fits = (
            leaf >= 0 and fits_in(forest.free, forest.amounts, leaf, kind, -1) >= spots[taken, domain_assignments.COUNT]
        )
        if fits:
            add_spots(forest, spots, taken, taken + 1)
            taken += 1
    remove_spots(forest, spots, first, taken)
    return fits
