"""Removal of a workload's quota from the tree, and its return: for good, or to see what would happen."""

from __future__ import annotations

from tidegate.engine.kernels.quota import add_usage, remove_usage
from tidegate.jit.registry import kernel
from tidegate.state.quota_tables import Reserved, Tree
from tidegate.state.tables import claims, quota_reservations


@kernel
def take_out(tree: Tree, held: Reserved, j: int) -> None:
    """Take what workload j holds out of the tree's usage."""
    b = held.reservations[j, quota_reservations.QUEUE]
    for a in range(held.claims.shape[2]):
        fr = held.claims[j, claims.FLAVOR_RESOURCE, a]
        if fr != 0:
            remove_usage(tree, b, fr - 1, held.claims[j, claims.AMOUNT, a])


@kernel
def put_back(tree: Tree, held: Reserved, j: int) -> None:
    """Put what workload j holds back into the tree's usage."""
    b = held.reservations[j, quota_reservations.QUEUE]
    for a in range(held.claims.shape[2]):
        fr = held.claims[j, claims.FLAVOR_RESOURCE, a]
        if fr != 0:
            add_usage(tree, b, fr - 1, held.claims[j, claims.AMOUNT, a])
