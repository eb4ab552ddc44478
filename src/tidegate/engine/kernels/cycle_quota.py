"""Quota that is taken, or kept for somebody, only until the end of a cycle over the queues."""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries, quota_node_flags, requested, workload_flags
from tidegate.engine.kernels.cycle_scratch import REQUESTED, UNDONE, VICTIMS, Desk, Pool, Turn
from tidegate.engine.kernels.domain_assignment import take_found
from tidegate.engine.kernels.nominate import (
    request_assigned,
)
from tidegate.engine.kernels.pending_queue import is_ahead
from tidegate.engine.kernels.quota import add_usage, available, minus, plus, remove_usage
from tidegate.engine.kernels.quota_removal import put_back, take_out
from tidegate.engine.kernels.starvation import INFERENCE
from tidegate.engine.topology.cycle_view import Grove
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import Book, Tree
from tidegate.state.tables import claims, quota_nodes, quota_reservations, quotas, work_classes, workloads

#: So many times the limit after which work was passed over, and quota is kept from other queues whatever its own uses.
MOST_LIMITS = 168


@inlined
def use_for_now(tree: Tree, d: Desk, q: int, lot: int, amount: int, promised: int) -> None:
    """Use a lot until the end of the cycle; so much more is promised of what those who leave will give back."""
    add_usage(tree, q, lot, amount)
    at = d.wish.marks[UNDONE]
    d.undo[at, 0], d.undo[at, 1], d.undo[at, 2], d.undo[at, 3], d.undo[at, 4] = q, lot, amount, promised, 0
    d.wish.marks[UNDONE] = at + 1


@kernel
def shift_promised(tree: Tree, d: Desk, sign: int) -> None:
    """Use what is promised of the quota of those who leave (sign 1) while they are out of the tree, or not (-1)."""
    for i in range(d.wish.marks[UNDONE]):
        if sign > 0:
            add_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 3])
        else:
            remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 3])


@kernel
def shift_claimed(tree: Tree, d: Desk, sign: int) -> None:
    """Leave what is claimed for this cycle only out of the tree (sign 1), or put it back: nobody is evicted for it."""
    for i in range(d.wish.marks[UNDONE]):
        if d.undo[i, 4] == 1 and sign > 0:
            remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
        elif d.undo[i, 4] == 1:
            add_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])


@kernel
def take_for_now(book: Book, d: Desk, grove: Grove | None, e: int) -> None:
    """Let an entry that must wait for victims keep its claim against those behind it."""
    take_found(grove, d.heads.entries[e])
    if d.heads.entries[e, entries.AGAIN] > 0:
        return
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        use_for_now(
            book.tree,
            d,
            d.heads.entries[e, entries.QUEUE],
            d.wish.lots[i, requested.LOT],
            d.wish.lots[i, requested.AMOUNT],
            0,
        )


@kernel
def reserve(book: Book, d: Desk, grove: Grove | None, e: int) -> None:
    """Reserve what the queue is entitled to for a head that has nobody to preempt, so that others don't take it."""
    q = d.heads.entries[e, entries.QUEUE]
    take_found(grove, d.heads.entries[e])
    if d.heads.entries[e, entries.AGAIN] > 0:
        return
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        lot, amount = d.wish.lots[i, requested.LOT], d.wish.lots[i, requested.AMOUNT]
        quota = book.tree.quota[q]
        limit = quota[quotas.BORROW_LIMIT, lot]
        if d.heads.entries[e, entries.BORROW] == 0:
            amount = max(0, min(amount, minus(quota[quotas.NOMINAL, lot], quota[quotas.USAGE, lot])))
        elif limit >= 0:
            amount = max(0, min(amount, minus(plus(quota[quotas.NOMINAL, lot], limit), quota[quotas.USAGE, lot])))
        use_for_now(book.tree, d, q, lot, amount, 0)


@kernel
def is_owed(hot: Hot, book: Book, d: Desk, turn: Turn, e: int) -> bool:
    """Whether quota may be kept from other queues for entry e: up to what its queue owns, or for one that is larger.

    What those of its queue use that are ahead of it counts, and what is kept for its queue in this cycle already. But
    not for ever: inference does not end, and other work may not either.
    """
    tree, held, q, j = book.tree, book.held, d.heads.entries[e, entries.QUEUE], d.heads.entries[e, entries.WORKLOAD]
    passed_ms = hot.workloads[j, workloads.PASSED_MS]
    if tree.branches[q, quota_nodes.PARENT] < 0 or (
        passed_ms >= 0 and turn.now_ms - passed_ms >= MOST_LIMITS * turn.limit_ms
    ):
        return True
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        lot, amount = d.wish.lots[i, requested.LOT], d.wish.lots[i, requested.AMOUNT]
        left = max(0, minus(tree.quota[q, quotas.NOMINAL, lot], amount))
        for k in range(d.wish.marks[UNDONE]):
            if d.undo[k, 0] == q and d.undo[k, 1] == lot:
                left -= d.undo[k, 2]
        other = tree.branches[q, quota_nodes.FIRST_HOLDER]
        while other >= 0 and left >= 0:
            for a in range(held.claims.shape[2]):
                if held.claims[other, claims.LOT, a] == lot + 1 and may_end_before(hot, other, j):
                    left -= held.claims[other, claims.AMOUNT, a]
            other = held.tickets[other, quota_reservations.NEXT]
        if left < 0:
            return False
    return True


@inlined
def may_end_before(hot: Hot, other: int, j: int) -> bool:
    """Whether another workload is ahead of workload j and is to end."""
    return (
        is_ahead(hot, other, j)
        and hot.work_classes[hot.workloads[other, workloads.WORK_CLASS], work_classes.KIND] != INFERENCE
    )


@kernel
def is_within_reach(book: Book, d: Desk, e: int) -> bool:
    """Whether entry e would have quota if its queue used nothing, and the others of its tree no more than they own.

    What is used or kept for this cycle only does not count: else the answer would be another in the next one.
    """
    tree, q = book.tree, d.heads.entries[e, entries.QUEUE]
    root, borrowed, reached = tree.branches[q, quota_nodes.ROOT], d.pool.branches[:, quota_node_flags.STACK], True
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[UNDONE]):
        remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    for i in range(d.wish.marks[REQUESTED]):
        lot = d.wish.lots[i, requested.LOT]
        for b in range(len(tree.branches)):
            borrowed[b] = 0
            if tree.branches[b, quota_nodes.IS_QUEUE] == 1 and tree.branches[b, quota_nodes.ROOT] == root:
                owned = 0 if b == q else tree.quota[b, quotas.NOMINAL, lot]
                borrowed[b] = max(0, minus(tree.quota[b, quotas.USAGE, lot], owned))
                remove_usage(tree, b, lot, borrowed[b])
        reached = reached and available(tree, q, lot) >= d.wish.lots[i, requested.AMOUNT]
        for b in range(len(tree.branches) - 1, -1, -1):
            add_usage(tree, b, lot, borrowed[b])
    for i in range(d.wish.marks[UNDONE]):
        add_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    return reached


@inlined
def doom(entry: I64, pool: Pool, marks: I64) -> None:
    """Note the targets of an entry as victims of this cycle."""
    for i in range(entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]):
        j = pool.targets[i, 0]
        pool.flags[j, workload_flags.DOOMED] = 1
        pool.flags[marks[VICTIMS], workload_flags.VICTIM] = j
        marks[VICTIMS] += 1


@kernel
def move_replaced(book: Book, pool: Pool, entry: I64, out: int) -> None:
    """Take what a slice held out of the tree for the rest of the cycle, as another holds it now; or put it back.

    Until the world shows that it is gone it holds what it holds. Nobody else can preempt it in the meantime.
    """
    replaced = entry[entries.REPLACES] - 1
    pool.flags[replaced, workload_flags.DOOMED], pool.flags[replaced, workload_flags.REMOVED] = out, out
    if out == 1:
        take_out(book.tree, book.held, replaced)
    else:
        put_back(book.tree, book.held, replaced)
