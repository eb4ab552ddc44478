"""Quota that is taken, or kept for somebody, only until the end of a cycle over the queues."""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import (
    F_DOOMED,
    F_REMOVED,
    F_VICTIM,
    H_STACK,
    R_AMOUNT,
    R_LOT,
    REQUESTED,
    UNDONE,
    VICTIMS,
    X_AGAIN,
    X_BORROW,
    X_FIRST_TARGET,
    X_QUEUE,
    X_REPLACES,
    X_TARGETS,
    X_WORKLOAD,
    Desk,
    Pool,
    Turn,
)
from tidegate.engine.kernels.domain_assignment import take_found
from tidegate.engine.kernels.nominate import (
    request_assigned,
)
from tidegate.engine.kernels.pending_queue import is_ahead
from tidegate.engine.kernels.quota import add_usage, available, minus, plus, remove_usage
from tidegate.engine.kernels.quota_removal import C_AMOUNT, C_LOT, put_back, take_out
from tidegate.engine.kernels.starvation import INFERENCE
from tidegate.engine.topology.cycle_view import Grove
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import (
    B_FIRST_HOLDER,
    B_IS_QUEUE,
    B_PARENT,
    B_ROOT,
    Q_BORROW_LIMIT,
    Q_NOMINAL,
    Q_USAGE,
    T_NEXT,
    Book,
    Tree,
)
from tidegate.state.tables import J_PASSED, J_WORK_CLASS, W_KIND

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
    if d.heads.entries[e, X_AGAIN] > 0:
        return
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        use_for_now(book.tree, d, d.heads.entries[e, X_QUEUE], d.wish.lots[i, R_LOT], d.wish.lots[i, R_AMOUNT], 0)


@kernel
def reserve(book: Book, d: Desk, grove: Grove | None, e: int) -> None:
    """Reserve what the queue is entitled to for a head that has nobody to preempt, so that others don't take it."""
    q = d.heads.entries[e, X_QUEUE]
    take_found(grove, d.heads.entries[e])
    if d.heads.entries[e, X_AGAIN] > 0:
        return
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        lot, amount = d.wish.lots[i, R_LOT], d.wish.lots[i, R_AMOUNT]
        quota = book.tree.quota[q]
        limit = quota[Q_BORROW_LIMIT, lot]
        if d.heads.entries[e, X_BORROW] == 0:
            amount = max(0, min(amount, minus(quota[Q_NOMINAL, lot], quota[Q_USAGE, lot])))
        elif limit >= 0:
            amount = max(0, min(amount, minus(plus(quota[Q_NOMINAL, lot], limit), quota[Q_USAGE, lot])))
        use_for_now(book.tree, d, q, lot, amount, 0)


@kernel
def is_owed(hot: Hot, book: Book, d: Desk, turn: Turn, e: int) -> bool:
    """Whether quota may be kept from other queues for entry e: up to what its queue owns, or for one that is larger.

    What those of its queue use that are ahead of it counts, and what is kept for its queue in this cycle already. But
    not for ever: inference does not end, and other work may not either.
    """
    tree, held, q, j = book.tree, book.held, d.heads.entries[e, X_QUEUE], d.heads.entries[e, X_WORKLOAD]
    passed_ms = hot.workloads[j, J_PASSED]
    if tree.branches[q, B_PARENT] < 0 or (passed_ms >= 0 and turn.now_ms - passed_ms >= MOST_LIMITS * turn.limit_ms):
        return True
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        lot, amount = d.wish.lots[i, R_LOT], d.wish.lots[i, R_AMOUNT]
        left = max(0, minus(tree.quota[q, Q_NOMINAL, lot], amount))
        for k in range(d.wish.marks[UNDONE]):
            if d.undo[k, 0] == q and d.undo[k, 1] == lot:
                left -= d.undo[k, 2]
        other = tree.branches[q, B_FIRST_HOLDER]
        while other >= 0 and left >= 0:
            for a in range(held.claims.shape[2]):
                if held.claims[other, C_LOT, a] == lot + 1 and may_end_before(hot, other, j):
                    left -= held.claims[other, C_AMOUNT, a]
            other = held.tickets[other, T_NEXT]
        if left < 0:
            return False
    return True


@inlined
def may_end_before(hot: Hot, other: int, j: int) -> bool:
    """Whether another workload is ahead of workload j and is to end."""
    return is_ahead(hot, other, j) and hot.work_classes[hot.workloads[other, J_WORK_CLASS], W_KIND] != INFERENCE


@kernel
def is_within_reach(book: Book, d: Desk, e: int) -> bool:
    """Whether entry e would have quota if its queue used nothing, and the others of its tree no more than they own.

    What is used or kept for this cycle only does not count: else the answer would be another in the next one.
    """
    tree, q = book.tree, d.heads.entries[e, X_QUEUE]
    root, borrowed, reached = tree.branches[q, B_ROOT], d.pool.branches[:, H_STACK], True
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[UNDONE]):
        remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    for i in range(d.wish.marks[REQUESTED]):
        lot = d.wish.lots[i, R_LOT]
        for b in range(len(tree.branches)):
            borrowed[b] = 0
            if tree.branches[b, B_IS_QUEUE] == 1 and tree.branches[b, B_ROOT] == root:
                owned = 0 if b == q else tree.quota[b, Q_NOMINAL, lot]
                borrowed[b] = max(0, minus(tree.quota[b, Q_USAGE, lot], owned))
                remove_usage(tree, b, lot, borrowed[b])
        reached = reached and available(tree, q, lot) >= d.wish.lots[i, R_AMOUNT]
        for b in range(len(tree.branches) - 1, -1, -1):
            add_usage(tree, b, lot, borrowed[b])
    for i in range(d.wish.marks[UNDONE]):
        add_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    return reached


@inlined
def doom(entry: I64, pool: Pool, marks: I64) -> None:
    """Note the targets of an entry as victims of this cycle."""
    for i in range(entry[X_FIRST_TARGET], entry[X_FIRST_TARGET] + entry[X_TARGETS]):
        j = pool.targets[i, 0]
        pool.flags[j, F_DOOMED] = 1
        pool.flags[marks[VICTIMS], F_VICTIM] = j
        marks[VICTIMS] += 1


@kernel
def move_replaced(book: Book, pool: Pool, entry: I64, out: int) -> None:
    """Take what a slice held out of the tree for the rest of the cycle, as another holds it now; or put it back.

    Until the world shows that it is gone it holds what it holds. Nobody else can preempt it in the meantime.
    """
    replaced = entry[X_REPLACES] - 1
    pool.flags[replaced, F_DOOMED], pool.flags[replaced, F_REMOVED] = out, out
    if out == 1:
        take_out(book.tree, book.held, replaced)
    else:
        put_back(book.tree, book.held, replaced)
