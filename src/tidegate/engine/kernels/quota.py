"""Quota arithmetic on the quota tree: available and borrowed quota, how usage climbs, and dominant resource shares.

Usage is an exact sum, so that what was added can be subtracted again; what is read of it stops at UNLIMITED and never
wraps.
"""

from __future__ import annotations

from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model import queues
from tidegate.state.quota_tables import QuotaTree, Reserved
from tidegate.state.tables import claims, flavor_resources, quota_nodes, quota_reservations, quotas

UNLIMITED = queues.UNLIMITED
INFINITE = float("inf")


@inlined
def plus(a: int, b: int) -> int:
    """A sum that stops at UNLIMITED."""
    if a >= UNLIMITED or b >= UNLIMITED:
        return UNLIMITED
    return min(a + b, UNLIMITED)


@inlined
def minus(a: int, b: int) -> int:
    """A difference: UNLIMITED less anything stays so, and two of them cancel out."""
    if a >= UNLIMITED:
        return 0 if b >= UNLIMITED else UNLIMITED
    if b >= UNLIMITED:
        return -UNLIMITED
    return a - b


@inlined
def own_quota(tree: QuotaTree, b: int, fr: int) -> int:
    """Quota that a quota node never lends to its parent."""
    limit = tree.quota[b, quotas.LEND_LIMIT, fr]
    if limit < 0:
        return 0
    return max(0, minus(tree.quota[b, quotas.SUBTREE, fr], limit))


@inlined
def own_left(tree: QuotaTree, b: int, fr: int) -> int:
    """What is left of the quota that a quota node never lends."""
    return max(0, minus(own_quota(tree, b, fr), tree.quota[b, quotas.USAGE, fr]))


@entry
def available(tree: QuotaTree, b: int, fr: int) -> int:
    """What a quota node could use now, its own and borrowed; below zero where more is in use than there is."""
    # own + min(limit, own of the parent + min(limit, ...)) is the least of the sums up to each limit: a loop will do.
    climbed, least = 0, UNLIMITED
    while tree.quota_nodes[b, quota_nodes.PARENT] >= 0:
        own = own_quota(tree, b, fr)
        usage = tree.quota[b, quotas.USAGE, fr]
        limit = tree.quota[b, quotas.BORROW_LIMIT, fr]
        climbed = plus(climbed, max(0, minus(own, usage)))
        if limit >= 0:
            stored, used = minus(tree.quota[b, quotas.SUBTREE, fr], own), max(0, minus(usage, own))
            least = min(least, plus(climbed, plus(minus(stored, used), limit)))
        b = tree.quota_nodes[b, quota_nodes.PARENT]
    return int(min(least, plus(climbed, minus(tree.quota[b, quotas.SUBTREE, fr], tree.quota[b, quotas.USAGE, fr]))))


@kernel
def potential(tree: QuotaTree, b: int, fr: int) -> int:
    """The most a quota node could ever use, if nothing were in use."""
    climbed, least = 0, UNLIMITED
    while tree.quota_nodes[b, quota_nodes.PARENT] >= 0:
        limit = tree.quota[b, quotas.BORROW_LIMIT, fr]
        if limit >= 0:
            least = min(least, plus(climbed, plus(tree.quota[b, quotas.SUBTREE, fr], limit)))
        climbed = plus(climbed, own_quota(tree, b, fr))
        b = tree.quota_nodes[b, quota_nodes.PARENT]
    return int(min(least, plus(climbed, tree.quota[b, quotas.SUBTREE, fr])))


@kernel
def add_usage(tree: QuotaTree, b: int, fr: int, amount: int) -> None:
    """Use more of a flavor-resource; what a quota node has no quota of its own for is used at its parent too."""
    while True:
        left = max(0, own_quota(tree, b, fr) - tree.quota[b, quotas.USAGE, fr])
        tree.quota[b, quotas.USAGE, fr] += amount
        b = tree.quota_nodes[b, quota_nodes.PARENT]
        if b < 0 or amount <= left:
            return
        amount -= left


@entry
def remove_usage(tree: QuotaTree, b: int, fr: int, amount: int) -> None:
    """Use less of a flavor-resource: the inverse of `add_usage`."""
    while True:
        at_parent = tree.quota[b, quotas.USAGE, fr] - own_quota(tree, b, fr)
        tree.quota[b, quotas.USAGE, fr] -= amount
        b = tree.quota_nodes[b, quota_nodes.PARENT]
        if at_parent <= 0 or b < 0:
            return
        amount = min(amount, at_parent)


@inlined
def change_usage(tree: QuotaTree, b: int, fr: int, amount: int, sign: int) -> None:
    """Use more of a flavor-resource (sign 1), or less (-1)."""
    if sign > 0:
        add_usage(tree, b, fr, amount)
    else:
        remove_usage(tree, b, fr, amount)


@kernel
def move_usage(tree: QuotaTree, held: Reserved, j: int, sign: int) -> None:
    """Take what workload j holds out of the tree's usage (sign 1), or put it back (-1): for good, or as a trial."""
    b = held.reservations[j, quota_reservations.QUEUE]
    for a in range(held.claims.shape[2]):
        fr = held.claims[j, claims.FLAVOR_RESOURCE, a]
        if fr != 0:
            change_usage(tree, b, fr - 1, held.claims[j, claims.AMOUNT, a], -sign)


@inlined
def borrows_with(tree: QuotaTree, b: int, fr: int, amount: int) -> bool:
    """Whether a quota node uses more than its quota once this much is added."""
    return bool(tree.quota[b, quotas.SUBTREE, fr] < plus(tree.quota[b, quotas.USAGE, fr], amount))


@kernel
def borrow_level(tree: QuotaTree, q: int, fr: int, amount: int) -> int:
    """How high in the tree a queue must borrow, times two; odd where that is below the root.

    Zero levels: its own quota is enough. Otherwise the height of the lowest cohort whose quota has room for the rest.
    """
    b = tree.quota_nodes[q, quota_nodes.PARENT]
    if b < 0:
        return 0
    if not borrows_with(tree, q, fr, amount):
        return 1
    rest = minus(amount, own_left(tree, q, fr))
    while b >= 0:
        parent = tree.quota_nodes[b, quota_nodes.PARENT]
        if not borrows_with(tree, b, fr, rest):
            return int(2 * tree.quota_nodes[b, quota_nodes.HEIGHT] + (1 if parent >= 0 else 0))
        rest = minus(rest, own_left(tree, b, fr))
        b = parent
    return int(2 * tree.quota_nodes[tree.quota_nodes[q, quota_nodes.ROOT], quota_nodes.HEIGHT])


@entry
def share_ratio(tree: QuotaTree, b: int) -> float:
    """A quota node's dominant resource share, weight aside: the largest `resource_ratio`; -1: borrows nothing."""
    if tree.quota_nodes[b, quota_nodes.PARENT] < 0:
        return -1.0
    ratio = -1.0
    for fr in range(tree.quota.shape[2]):
        if is_first_of_resource(tree, fr):
            ratio = max(ratio, resource_ratio(tree, b, fr))
    return ratio


@inlined
def resource_ratio(tree: QuotaTree, b: int, fr: int) -> float:
    """What a quota node borrows of a resource, per mille of what could be lent, in all its flavors; -1: nothing.

    The lender's view: what the parent could lend at the most.
    """
    parent = tree.quota_nodes[b, quota_nodes.PARENT]
    root = tree.quota_nodes[b, quota_nodes.ROOT]
    resource = tree.flavor_resources[fr, flavor_resources.RESOURCE]
    borrowed, lendable, frs = 0, 0, tree.quota.shape[2]
    for other in range(frs):
        if (
            tree.flavor_resources[other, flavor_resources.RESOURCE] == resource
            and tree.quota[b, quotas.DEFINED, other] == 1
        ):
            over = minus(tree.quota[b, quotas.USAGE, other], tree.quota[b, quotas.SUBTREE, other])
            borrowed = plus(borrowed, max(0, over))
    if borrowed <= 0 or parent < 0:
        return -1.0
    for other in range(frs):
        if (
            tree.flavor_resources[other, flavor_resources.RESOURCE] == resource
            and tree.quota[root, quotas.DEFINED, other] == 1
        ):
            lendable = plus(lendable, potential(tree, parent, other))
    return borrowed * 1000.0 / lendable if lendable > 0 else 0.0


@inlined
def is_first_of_resource(tree: QuotaTree, fr: int) -> bool:
    """Whether no flavor-resource before this one is of the same resource."""
    for other in range(fr):
        if (
            tree.flavor_resources[other, flavor_resources.RESOURCE]
            == tree.flavor_resources[fr, flavor_resources.RESOURCE]
        ):
            return False
    return True


@inlined
def share_for_weight(tree: QuotaTree, b: int, ratio: float) -> float:
    """The share of a quota node with this ratio for its weight: without any weight it is infinite."""
    if ratio <= 0:
        return 0.0
    weight = tree.quota_nodes[b, quota_nodes.WEIGHT_MILLI]
    return ratio / (weight / 1000.0) if weight > 0 else INFINITE


@kernel
def compare_shares(tree: QuotaTree, a: int, ratio_a: float, b: int, ratio_b: float) -> int:
    """-1, 0 or 1: which of two quota nodes has the lower share for its weight; infinite ones are compared by ratio."""
    share_a, share_b = share_for_weight(tree, a, ratio_a), share_for_weight(tree, b, ratio_b)
    if share_a == INFINITE and share_b == INFINITE:
        share_a, share_b = ratio_a, ratio_b
    if share_a == share_b:
        return 0
    return -1 if share_a < share_b else 1
