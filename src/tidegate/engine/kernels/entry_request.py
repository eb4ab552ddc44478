"""How much an entry asks for: its pods times what each is charged, or what that is more than the slice it replaces.

A job that grows submits a larger slice of itself: it is charged for the difference, on the flavors that it has.
Must not know: what is available.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries
from tidegate.engine.kernels.cycle_scratch import Heads
from tidegate.jit.registry import inlined, kernel
from tidegate.state.quota_tables import Asked, Book
from tidegate.state.tables import claims, flavor_resources, pod_set_needs, queue_requests, resource_requests, workloads

NOTHING = -1


@inlined
def pods_of_ask(asked: Asked, heads: Heads, e: int, ask: int) -> int:
    """Pods that an ask is for."""
    return int(heads.pods[e, asked.needs[asked.asks[ask, resource_requests.POD_SET], pod_set_needs.ORDINAL]])


@inlined
def whole_amount(asked: Asked, heads: Heads, e: int, ask: int) -> int:
    """What an ask comes to; one pod is charged so little that all of them stay within UNLIMITED."""
    return int(pods_of_ask(asked, heads, e, ask) * asked.asks[ask, resource_requests.AMOUNT])


@inlined
def amount_of(book: Book, heads: Heads, e: int, ask: int) -> int:
    """What an ask comes to beyond what is held for it already."""
    amount = whole_amount(book.asked, heads, e, ask)
    if heads.entries[e, entries.REPLACES] == 0:
        return amount
    before = claim_before(book, heads, e, ask)
    if before == NOTHING:
        return amount
    return int(max(0, amount - book.held.claims[heads.entries[e, entries.REPLACES] - 1, claims.AMOUNT, before]))


@kernel
def claim_before(book: Book, heads: Heads, e: int, ask: int) -> int:
    """What the slice that is replaced holds for the same resource of the same pod set; NOTHING: nothing."""
    asked, replaced = book.asked, heads.entries[e, entries.REPLACES] - 1
    w = book.held.workloads[replaced, workloads.WORK_CLASS]
    first, ordinal = (
        asked.demands[w, queue_requests.FIRST_ASK],
        asked.needs[asked.asks[ask, resource_requests.POD_SET], pod_set_needs.ORDINAL],
    )
    for a in range(asked.demands[w, queue_requests.ASKS]):
        row = asked.asks[first + a]
        if (
            row[resource_requests.RESOURCE] == asked.asks[ask, resource_requests.RESOURCE]
            and asked.needs[row[resource_requests.POD_SET], pod_set_needs.ORDINAL] == ordinal
        ):
            return a if book.held.claims[replaced, claims.LOT, a] != 0 else NOTHING
    return NOTHING


@inlined
def may_have(book: Book, heads: Heads, e: int, ask: int, flavor: int) -> bool:
    """Whether an ask may be given a flavor: a slice that replaces another stays where that one is."""
    if heads.entries[e, entries.REPLACES] == 0:
        return True
    before = claim_before(book, heads, e, ask)
    if before == NOTHING:
        return True
    lot = book.held.claims[heads.entries[e, entries.REPLACES] - 1, claims.LOT, before] - 1
    return bool(book.tree.lots[lot, flavor_resources.FLAVOR] == flavor)
