"""How much an entry asks for: its pods times what each is charged, or what that is more than the slice it replaces.

A job that grows submits a larger slice of itself: it is charged for the difference, on the flavors that it has.
Must not know: what is available.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import X_REPLACES, Heads
from tidegate.engine.kernels.quota_removal import C_AMOUNT, C_LOT
from tidegate.jit.registry import inlined, kernel
from tidegate.state.quota_tables import (
    A_AMOUNT,
    A_POD_SET,
    A_RESOURCE,
    D_ASKS,
    D_FIRST_ASK,
    L_FLAVOR,
    M_ORDINAL,
    Asked,
    Book,
)
from tidegate.state.tables import J_WORK_CLASS

NOTHING = -1


@inlined
def pods_of_ask(asked: Asked, heads: Heads, e: int, ask: int) -> int:
    """Pods that an ask is for."""
    return int(heads.pods[e, asked.needs[asked.asks[ask, A_POD_SET], M_ORDINAL]])


@inlined
def whole_amount(asked: Asked, heads: Heads, e: int, ask: int) -> int:
    """What an ask comes to; one pod is charged so little that all of them stay within UNLIMITED."""
    return int(pods_of_ask(asked, heads, e, ask) * asked.asks[ask, A_AMOUNT])


@inlined
def amount_of(book: Book, heads: Heads, e: int, ask: int) -> int:
    """What an ask comes to beyond what is held for it already."""
    amount = whole_amount(book.asked, heads, e, ask)
    if heads.entries[e, X_REPLACES] == 0:
        return amount
    before = claim_before(book, heads, e, ask)
    if before == NOTHING:
        return amount
    return int(max(0, amount - book.held.claims[heads.entries[e, X_REPLACES] - 1, C_AMOUNT, before]))


@kernel
def claim_before(book: Book, heads: Heads, e: int, ask: int) -> int:
    """What the slice that is replaced holds for the same resource of the same pod set; NOTHING: nothing."""
    asked, replaced = book.asked, heads.entries[e, X_REPLACES] - 1
    w = book.held.workloads[replaced, J_WORK_CLASS]
    first, ordinal = asked.demands[w, D_FIRST_ASK], asked.needs[asked.asks[ask, A_POD_SET], M_ORDINAL]
    for a in range(asked.demands[w, D_ASKS]):
        row = asked.asks[first + a]
        if row[A_RESOURCE] == asked.asks[ask, A_RESOURCE] and asked.needs[row[A_POD_SET], M_ORDINAL] == ordinal:
            return a if book.held.claims[replaced, C_LOT, a] != 0 else NOTHING
    return NOTHING


@inlined
def may_have(book: Book, heads: Heads, e: int, ask: int, flavor: int) -> bool:
    """Whether an ask may be given a flavor: a slice that replaces another stays where that one is."""
    if heads.entries[e, X_REPLACES] == 0:
        return True
    before = claim_before(book, heads, e, ask)
    if before == NOTHING:
        return True
    lot = book.held.claims[heads.entries[e, X_REPLACES] - 1, C_LOT, before] - 1
    return bool(book.tree.lots[lot, L_FLAVOR] == flavor)
