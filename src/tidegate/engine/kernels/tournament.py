"""The order between queues under fair sharing: at every cohort, the branch whose share stays lowest puts up its head.

Must not know: whether what it puts up is admitted.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import (
    H_FIRST,
    IDLE,
    R_AMOUNT,
    R_LOT,
    REQUESTED,
    X_AGAIN,
    X_AWAITED,
    X_PRIORITY,
    X_QUEUE,
    X_STATUS,
    X_SUBMITTED,
    X_TIE,
    Desk,
    Heads,
    Wish,
)
from tidegate.engine.kernels.entry_order import is_put_up_before
from tidegate.engine.kernels.fair_victims import charge
from tidegate.engine.kernels.nominate import request_assigned
from tidegate.engine.kernels.quota import borrows_with, compare_shares, share_ratio
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.quota_tables import (
    B_FIRST_COHORT,
    B_FIRST_QUEUE,
    B_HEIGHT,
    B_IS_QUEUE,
    B_NEXT,
    B_PARENT,
    B_ROOT,
    Q_DEFINED,
    Book,
    Tree,
)

NOBODY = -1


@kernel
def pick_fairly(book: Book, d: Desk, count: int) -> int:
    """The entry to settle next: the winner of a tournament in the tree of the first entry that is left."""
    branches, entries, puts_up = book.tree.branches, d.heads.entries, d.pool.branches[:, H_FIRST]
    e = 0
    while entries[e, X_STATUS] != IDLE:
        e += 1
    if entries[e, X_AGAIN] > 0:
        return e  # it holds quota already: it takes nothing from anybody's share
    root = branches[entries[e, X_QUEUE], B_ROOT]
    if root == entries[e, X_QUEUE]:
        for other in range(e + 1, count):
            is_rival = entries[other, X_STATUS] == IDLE and entries[other, X_QUEUE] == root
            if is_rival and entries[other, X_AGAIN] == 0 and is_put_up_before(entries, other, e):
                e = other
        return e
    puts_up[:] = NOBODY
    for other in range(e, count):
        if entries[other, X_STATUS] == IDLE and branches[entries[other, X_QUEUE], B_ROOT] == root:
            first = puts_up[entries[other, X_QUEUE]]
            if first >= 0 and not is_put_up_before(entries, other, first):
                continue  # it has another, with a reservation
            request_assigned(book, d.heads, d.wish, other)
            measure_climb(book.tree, d.heads, d.wish, other)
            puts_up[entries[other, X_QUEUE]] = other
    # Lower cohorts first: a cohort is higher than all below it.
    for height in range(1, branches[root, B_HEIGHT] + 1):
        for b in range(len(branches)):
            if branches[b, B_ROOT] == root and branches[b, B_HEIGHT] == height and branches[b, B_IS_QUEUE] == 0:
                puts_up[b] = winner_of(book.tree, d.heads, puts_up, b)
    return int(puts_up[root])


@kernel
def measure_climb(tree: Tree, heads: Heads, wish: Wish, e: int) -> None:
    """Note the share of each branch around an entry if the entry were admitted, from its queue up to below the root."""
    q = heads.entries[e, X_QUEUE]
    charge(tree, wish, q, 1)
    b, step = q, 0
    while tree.branches[b, B_PARENT] >= 0:
        heads.climb[e, 0, step] = share_ratio(tree, b)
        heads.climb[e, 1, step] = 1.0 if borrows_requested(tree, wish, b) else 0.0
        b = tree.branches[b, B_PARENT]
        step += 1
    charge(tree, wish, q, -1)


@inlined
def borrows_requested(tree: Tree, wish: Wish, b: int) -> bool:
    """Whether a branch borrows anything that is requested."""
    for i in range(wish.marks[REQUESTED]):
        lot = wish.lots[i, R_LOT]
        if wish.lots[i, R_AMOUNT] > 0 and tree.quota[b, Q_DEFINED, lot] == 1 and borrows_with(tree, b, lot, 0):
            return True
    return False


@kernel
def winner_of(tree: Tree, heads: Heads, puts_up: I64, cohort: int) -> int:
    """The entry that a cohort puts up; NOBODY: nobody below it has one left."""
    best, best_branch = NOBODY, NOBODY
    for kind in (B_FIRST_COHORT, B_FIRST_QUEUE):
        b = tree.branches[cohort, kind]
        while b >= 0:
            e = puts_up[b]
            if e >= 0 and (best < 0 or wins(tree, heads, e, b, best, best_branch)):
                best, best_branch = e, b
            b = tree.branches[b, B_NEXT]
    return int(best)


@inlined
def step_of(tree: Tree, heads: Heads, e: int, b: int) -> int:
    """How many steps above its queue an entry meets a branch."""
    at, step = heads.entries[e, X_QUEUE], 0
    while at != b:
        at = tree.branches[at, B_PARENT]
        step += 1
    return step


@kernel
def wins(tree: Tree, heads: Heads, e: int, b: int, other: int, other_branch: int) -> bool:
    """Whether an entry put up by branch b beats another: not borrowing, then share, then priority, then time."""
    if heads.entries[e, X_AWAITED] != heads.entries[other, X_AWAITED]:
        return bool(heads.entries[e, X_AWAITED] == 1)
    climb, other_climb = heads.climb[e], heads.climb[other]
    step, other_step = step_of(tree, heads, e, b), step_of(tree, heads, other, other_branch)
    if climb[1, step] != other_climb[1, other_step]:
        return bool(climb[1, step] == 0.0)
    order = compare_shares(tree, b, climb[0, step], other_branch, other_climb[0, other_step])
    if order != 0:
        return bool(order < 0)
    one, two = heads.entries[e], heads.entries[other]
    if one[X_PRIORITY] != two[X_PRIORITY]:
        return bool(one[X_PRIORITY] > two[X_PRIORITY])
    if one[X_SUBMITTED] != two[X_SUBMITTED]:
        return bool(one[X_SUBMITTED] < two[X_SUBMITTED])
    return bool(one[X_TIE] < two[X_TIE])
