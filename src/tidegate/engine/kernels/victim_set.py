"""Targets of a preemption: taken out of the tree one by one, and put back where the request fits without them.

Must not know: which candidates come first, or why.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import requested
from tidegate.engine.kernels.cycle_scratch import OVERFLOW, REQUESTED, TARGETS, Pool, Wish
from tidegate.engine.kernels.domain_assignment import asked_fits
from tidegate.engine.kernels.quota import available, borrows_with
from tidegate.engine.kernels.quota_removal import put_back, take_out
from tidegate.engine.topology.cycle_view import Grove
from tidegate.engine.topology.held_domains import fill_spots, free_spots
from tidegate.jit.registry import kernel
from tidegate.state.quota_tables import Held, Tree


@kernel
def take_target(tree: Tree, held: Held, pool: Pool, wish: Wish, grove: Grove | None, j: int, code: int) -> bool:
    """Take workload j out as a target; False: there is no room to note it."""
    at = wish.marks[TARGETS]
    if at >= len(pool.targets):
        wish.marks[OVERFLOW] = 1
        return False
    take_out(tree, held, j)
    free_spots(grove, held, j)
    pool.targets[at, 0], pool.targets[at, 1] = j, code
    wish.marks[TARGETS] = at + 1
    return True


@kernel
def fill_back(
    tree: Tree, held: Held, pool: Pool, wish: Wish, grove: Grove | None, q: int, start: int, borrowing: int
) -> None:
    """Put targets back, the latest first, where the request fits without them; the last one taken is needed."""
    i = wish.marks[TARGETS] - 2
    while i >= start:
        put_back(tree, held, pool.targets[i, 0])
        fill_spots(grove, held, pool.targets[i, 0])
        if fits(tree, wish, grove, q, borrowing):
            last = wish.marks[TARGETS] - 1
            pool.targets[i, 0], pool.targets[i, 1] = pool.targets[last, 0], pool.targets[last, 1]
            wish.marks[TARGETS] = last
        else:
            take_out(tree, held, pool.targets[i, 0])
            free_spots(grove, held, pool.targets[i, 0])
        i -= 1


@kernel
def restore(tree: Tree, held: Held, pool: Pool, wish: Wish, grove: Grove | None, start: int) -> None:
    """Put all targets from `start` on back into the tree; they stay noted."""
    for i in range(start, wish.marks[TARGETS]):
        put_back(tree, held, pool.targets[i, 0])
        fill_spots(grove, held, pool.targets[i, 0])


@kernel
def fits(tree: Tree, wish: Wish, grove: Grove | None, q: int, borrowing: int) -> bool:
    """Whether all that is requested is available to a queue now, and there are spots for all that asks for them."""
    return has_quota(tree, wish, q, borrowing) and asked_fits(grove)


@kernel
def has_quota(tree: Tree, wish: Wish, q: int, borrowing: int) -> bool:
    """Whether all that is requested is available to a queue now, without borrowing where that is not allowed."""
    for i in range(wish.marks[REQUESTED]):
        lot, amount = wish.lots[i, requested.LOT], wish.lots[i, requested.AMOUNT]
        if amount == 0:
            continue
        if borrowing == 0 and borrows_with(tree, q, lot, amount):
            return False
        if amount > max(0, available(tree, q, lot)):
            return False
    return True
