"""Taking a workload's quota out of the tree and putting it back: for good, or to see what would be.

Must not know: why.
"""

from __future__ import annotations

from tidegate.engine.kernels.quota import add_usage, remove_usage
from tidegate.jit.registry import kernel
from tidegate.state.quota_tables import Held, Tree
from tidegate.state.tables import claims, quota_reservations


@kernel
def take_out(tree: Tree, held: Held, j: int) -> None:
    """Take what workload j holds out of the tree's usage."""
    b = held.tickets[j, quota_reservations.BRANCH]
    for a in range(held.claims.shape[2]):
        lot = held.claims[j, claims.LOT, a]
        if lot != 0:
            remove_usage(tree, b, lot - 1, held.claims[j, claims.AMOUNT, a])


@kernel
def put_back(tree: Tree, held: Held, j: int) -> None:
    """Put what workload j holds back into the tree's usage."""
    b = held.tickets[j, quota_reservations.BRANCH]
    for a in range(held.claims.shape[2]):
        lot = held.claims[j, claims.LOT, a]
        if lot != 0:
            add_usage(tree, b, lot - 1, held.claims[j, claims.AMOUNT, a])
