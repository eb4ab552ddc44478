"""One cycle over the queues with quota: one head of each, nominated together, settled one by one.

What an entry takes is taken from the tree at once, so that the next one sees it. What is only reserved for the rest of
the cycle is noted and taken back at its end. The same steps as Kueue's, so that its decisions come out.
Must not know: facts.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle import lack_of, write_lack
from tidegate.engine.kernels.desk import (
    ADMITTED,
    AWAITING,
    BLOCKED,
    DEFERRED,
    ENTRIES,
    EVICTED,
    F_DOOMED,
    F_REMOVED,
    F_VICTIM,
    FIT,
    NO_FIT,
    OVERFLOW,
    PREEMPT,
    PREEMPTING,
    R_AMOUNT,
    R_LOT,
    REFUSED,
    REQUESTED,
    SKIPPED,
    TARGETS,
    UNDONE,
    VICTIMS,
    X_AGAIN,
    X_AWAITED,
    X_BORROW,
    X_CLASS,
    X_CODE,
    X_FIRST_SPOT,
    X_FIRST_TARGET,
    X_LOT,
    X_MODE,
    X_ORDER,
    X_PENDING,
    X_QUEUE,
    X_REPLACES,
    X_SPOTS,
    X_STATUS,
    X_TARGETS,
    X_TRYING,
    X_WORKLOAD,
    Y_TRIED,
    Desk,
    Heads,
    Pool,
    Turn,
)
from tidegate.engine.kernels.granted import place_plan, plan_pods
from tidegate.engine.kernels.grove import Grove
from tidegate.engine.kernels.held_spots import fill_spots, free_spots
from tidegate.engine.kernels.nominate import (
    head_of,
    nominate,
    nominate_again,
    open_entry,
    request_assigned,
    sort_entries,
)
from tidegate.engine.kernels.place import Output
from tidegate.engine.kernels.quota import add_usage, minus, plus, remove_usage
from tidegate.engine.kernels.registry import inlined, kernel
from tidegate.engine.kernels.removal import put_back, take_out
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.settle import evict, grant, grant_again, release_replaced, send_off
from tidegate.engine.kernels.spot_places import place_at_spots
from tidegate.engine.kernels.spots import found_fits, give_back_found, open_spots, take_found
from tidegate.engine.kernels.targets import has_quota
from tidegate.engine.kernels.tournament import pick_fairly
from tidegate.model.columns import I64
from tidegate.model.reasons import Reason
from tidegate.model.shares import PreemptWhom
from tidegate.state.cluster import Hot
from tidegate.state.shares import (
    B_EPOCH,
    B_GENERATION,
    B_IS_QUEUE,
    B_RECLAIM,
    B_ROOT,
    B_STICKY,
    B_STIRRED,
    B_STRICT,
    D_HELD,
    D_HELD_CODE,
    Q_BORROW_LIMIT,
    Q_NOMINAL,
    Q_USAGE,
    T_BRANCH,
    T_GATED,
    T_HELD,
    T_TRIED_CYCLE,
    T_TRIED_GENERATION,
    Again,
    Book,
    Tree,
)
from tidegate.state.tables import S_POD_CLASS

ANY = list(PreemptWhom).index(PreemptWhom.ANY)
AWAITS_VICTIMS = int(Reason.AWAITS_VICTIMS)
OUTPACED = int(Reason.OUTPACED)
SHARED_VICTIMS = int(Reason.SHARED_VICTIMS)
GATED = int(Reason.PREEMPTION_GATED)
TOPOLOGY_OUTPACED = int(Reason.TOPOLOGY_OUTPACED)
NO_SPOT_LEFT = int(Reason.NO_SPOT_LEFT)
FAILED = int(Again.FAILED)
DONE, MORE_ROOM = 0, 1

#: What an entry lacks.
ENOUGH, NO_QUOTA, NO_SPOTS = range(3)


@kernel
def cycle_queues(hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, out: Output) -> int:
    """Run one cycle; MORE_ROOM: nothing was changed, and it needs room for more targets."""
    marks, branches, entries = d.wish.marks, book.tree.branches, d.heads.entries
    marks[TARGETS], marks[OVERFLOW], marks[VICTIMS], marks[UNDONE] = 0, 0, 0, 0
    count = nominate_heads(book, d, grove, turn)
    if marks[OVERFLOW] == 1:
        return MORE_ROOM
    for b in range(len(branches)):
        branches[b, B_STIRRED] = 0
    if turn.fair == 0:
        sort_entries(entries, count)
    nominated = marks[TARGETS]
    for i in range(count):
        e = entries[i, X_ORDER] if turn.fair == 0 else pick_fairly(book, d, count)
        marks[TARGETS] = nominated  # targets found again are of use only until the entry is settled
        settle_entry(hot, rule, book, d, grove, turn, e, out)
    take_back(book.tree, d, grove)
    for e in range(count):
        if entries[e, X_STATUS] == ADMITTED and entries[e, X_REPLACES] > 0:
            move_replaced(book, d.pool, entries[e], 0)
        if entries[e, X_STATUS] == ADMITTED and entries[e, X_AGAIN] > 0:
            grant_again(hot, book, d.heads, grove, e, out)
        requeue(book, d, turn.cycle, e)
    return DONE


@kernel
def nominate_heads(book: Book, d: Desk, grove: Grove | None, turn: Turn) -> int:
    """Nominate the head of every queue whose tree was stirred; return how many."""
    branches, count = book.tree.branches, nominate_those_again(book, d, grove, turn)
    for q in range(len(branches)):
        if branches[q, B_IS_QUEUE] == 0 or branches[branches[q, B_ROOT], B_STIRRED] == 0:
            continue
        j = head_of(book.tree, book.held, book.asked.demands, turn.now_ms, q)
        if j < 0:
            continue
        nominate_one(book, d, grove, turn, count, q, j)
        count += 1
    d.wish.marks[ENTRIES] = count
    return count


@inlined
def nominate_those_again(book: Book, d: Desk, grove: Grove | None, turn: Turn) -> int:
    """Nominate those that hold quota and are looked at again; return how many."""
    count = 0
    if grove is not None:
        for i in range(len(grove.again)):
            j = grove.again[i]
            nominate_one(book, d, grove, turn, count, book.held.tickets[j, T_BRANCH], j)
            count += 1
    return count


@kernel
def nominate_one(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, q: int, j: int) -> None:
    """Nominate workload j of a queue as entry e."""
    entry = d.heads.entries[e]
    open_entry(book, d.heads, turn.cycle, e, q, j)
    if turn.places == 1 and book.tree.branches[q, B_STICKY] == j:
        entry[X_AWAITED] = 1  # in our own mode room goes to whom it was made for
    open_spots(grove, book.held, entry)
    nominate(book, d, grove, turn, e)
    d.wish.marks[TARGETS] = entry[X_FIRST_TARGET] + entry[X_TARGETS]


@kernel
def take_back(tree: Tree, d: Desk, grove: Grove | None) -> None:
    """Take back what was only reserved for the cycle, and forget its victims."""
    for i in range(d.wish.marks[UNDONE]):
        remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    for e in range(d.wish.marks[ENTRIES]):
        give_back_found(grove, d.heads.entries[e])
    for i in range(d.wish.marks[VICTIMS]):
        d.pool.flags[d.pool.flags[i, F_VICTIM], F_DOOMED] = 0


@kernel
def settle_entry(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, out: Output
) -> None:
    """Admit an entry, send its victims away, or say why not."""
    lack = look_again(book, d, grove, turn, e)
    entry = d.heads.entries[e]
    mode = entry[X_MODE]
    if entry[X_AGAIN] == FAILED and turn.fails_fast == 1 and mode != FIT:
        entry[X_STATUS], entry[X_CODE] = EVICTED, NO_SPOT_LEFT
        evict(hot, book.held.tickets, entry, turn.now_ms, out)
    elif mode == NO_FIT:
        entry[X_STATUS] = REFUSED
    elif mode == PREEMPT and entry[X_TARGETS] == 0:
        entry[X_STATUS] = REFUSED
        if book.tree.branches[entry[X_QUEUE], B_RECLAIM] != ANY:
            reserve(book, d, grove, e)
    elif mode == PREEMPT and book.held.tickets[entry[X_WORKLOAD], T_GATED] == 1:
        entry[X_STATUS], entry[X_CODE] = BLOCKED, GATED
    elif mode == DEFERRED:
        entry[X_STATUS], entry[X_CODE] = AWAITING, AWAITS_VICTIMS
        take_for_now(book, d, grove, e)
    elif shares_victims(entry, d.pool):
        entry[X_STATUS], entry[X_CODE] = SKIPPED, SHARED_VICTIMS
    elif lack != ENOUGH:
        entry[X_STATUS], entry[X_CODE] = SKIPPED, OUTPACED if lack == NO_QUOTA else TOPOLOGY_OUTPACED
    elif mode == PREEMPT:
        entry[X_STATUS], entry[X_CODE] = PREEMPTING, AWAITS_VICTIMS
        doom(entry, d.pool, d.wish.marks)
        take_for_now(book, d, grove, e)
        entry[X_PENDING] = send_off(hot, book.held.tickets, d.pool, entry, turn.now_ms, out)
    elif entry[X_AGAIN] > 0:
        entry[X_STATUS] = ADMITTED
        take_for_now(book, d, grove, e)  # what it leaves is not free before the cycle is over
    elif turn.places == 0 or find_places(hot, rule, book, d, grove, e, out):
        entry[X_STATUS] = ADMITTED
        grant(hot, book, d.heads, grove, turn.now_ms, e, out)
        if entry[X_REPLACES] > 0:
            release_replaced(hot, book.held, entry, turn.now_ms, out)
            move_replaced(book, d.pool, entry, 1)


@kernel
def find_places(hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, e: int, out: Output) -> bool:
    """Place all pods of an entry, on its spots where it has some, or say why there is no room for them."""
    heads, entry = d.heads, d.heads.entries[e]
    sets = plan_pods(book, heads, e)
    unfit = place_entry(hot, rule, heads, grove, e, sets, out)
    if unfit < 0:
        return True
    if entry[X_SPOTS] > 0:  # others of ours are there who have no spots: it sees them in the next cycle
        entry[X_STATUS], entry[X_CODE] = SKIPPED, TOPOLOGY_OUTPACED
        return False
    entry[X_STATUS], entry[X_CODE] = REFUSED, lack_of(hot, rule, heads.plan[unfit, S_POD_CLASS])
    write_lack(hot, rule, entry[X_WORKLOAD], entry[X_CODE], heads.plan[:sets], unfit, entry[X_LOT:])
    return False


@inlined
def place_entry(hot: Hot, rule: Rule, heads: Heads, grove: Grove | None, e: int, sets: int, out: Output) -> int:
    """Place every pod of an entry's plan, or none. Return -1, or the pod set that did not fit."""
    entry, j = heads.entries[e], heads.entries[e, X_WORKLOAD]
    if grove is not None:
        if entry[X_SPOTS] > 0:
            first, end = entry[X_FIRST_SPOT], entry[X_FIRST_SPOT] + entry[X_SPOTS]
            return place_at_spots(hot, rule, grove.hosts, grove.found, first, end, j, heads.plan, sets, out)
    return place_plan(hot, rule, j, heads.plan, sets, out)


@kernel
def look_again(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> int:
    """What an entry lacks after those before it; nominated anew where they took its victims or its spots."""
    entry, flags = d.heads.entries[e], d.pool.flags
    if entry[X_MODE] == NO_FIT:
        return NO_QUOTA
    overlaps = turn.retargets == 1 and shares_victims(entry, d.pool)
    lack = ENOUGH if overlaps else lack_now(book, d, grove, e)
    if not overlaps and (lack != NO_SPOTS or turn.recomputes == 0):
        return lack
    for i in range(d.wish.marks[VICTIMS] if overlaps else 0):
        take_out(book.tree, book.held, flags[i, F_VICTIM])
        free_spots(grove, book.held, flags[i, F_VICTIM])
        flags[flags[i, F_VICTIM], F_REMOVED] = 1
    nominate_again(book, d, grove, turn, e)
    for i in range(d.wish.marks[VICTIMS] if overlaps else 0):
        put_back(book.tree, book.held, flags[i, F_VICTIM])
        fill_spots(grove, book.held, flags[i, F_VICTIM])
        flags[flags[i, F_VICTIM], F_REMOVED] = 0
    if overlaps and entry[X_MODE] == FIT:
        entry[X_MODE] = DEFERRED
    return lack_now(book, d, grove, e)


@inlined
def shares_victims(entry: I64, pool: Pool) -> bool:
    """Whether an entry wants a victim that was sent away for somebody before it."""
    for i in range(entry[X_FIRST_TARGET], entry[X_FIRST_TARGET] + entry[X_TARGETS]):
        if pool.flags[pool.targets[i, 0], F_DOOMED] == 1:
            return True
    return False


@kernel
def lack_now(book: Book, d: Desk, grove: Grove | None, e: int) -> int:
    """What an entry lacks of what it was assigned, once all victims of the cycle and its own are gone."""
    entry, lack = d.heads.entries[e], ENOUGH
    move_victims(book, d, grove, e, 1)
    request_assigned(book, d.heads, d.wish, e)
    if entry[X_AGAIN] == 0 and not has_quota(book.tree, d.wish, entry[X_QUEUE], 1):
        lack = NO_QUOTA
    elif not found_fits(grove, entry):
        lack = NO_SPOTS
    move_victims(book, d, grove, e, -1)
    return lack


@kernel
def move_victims(book: Book, d: Desk, grove: Grove | None, e: int, sign: int) -> None:
    """Take the victims of the cycle in an entry's tree, and its own targets, out of the tree; or put them back."""
    tree, held, entry, pool = book.tree, book.held, d.heads.entries[e], d.pool
    root, first = tree.branches[entry[X_QUEUE], B_ROOT], entry[X_FIRST_TARGET]
    victims = d.wish.marks[VICTIMS]
    for i in range(victims + entry[X_TARGETS]):
        j = pool.flags[i, F_VICTIM] if i < victims else pool.targets[first + i - victims, 0]
        if i >= victims and pool.flags[j, F_DOOMED] == 1:
            continue  # it is among the victims already
        is_near = tree.branches[held.tickets[j, T_BRANCH], B_ROOT] == root  # else its quota is of no use here
        if sign > 0:
            free_spots(grove, held, j)
            if is_near:
                take_out(tree, held, j)
        else:
            fill_spots(grove, held, j)
            if is_near:
                put_back(tree, held, j)


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


@inlined
def use_for_now(tree: Tree, d: Desk, q: int, lot: int, amount: int) -> None:
    """Use a lot until the end of the cycle."""
    add_usage(tree, q, lot, amount)
    at = d.wish.marks[UNDONE]
    d.undo[at, 0], d.undo[at, 1], d.undo[at, 2] = q, lot, amount
    d.wish.marks[UNDONE] = at + 1


@kernel
def take_for_now(book: Book, d: Desk, grove: Grove | None, e: int) -> None:
    """Let an entry that must wait for victims keep its claim against those behind it."""
    take_found(grove, d.heads.entries[e])
    if d.heads.entries[e, X_AGAIN] > 0:
        return
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        use_for_now(book.tree, d, d.heads.entries[e, X_QUEUE], d.wish.lots[i, R_LOT], d.wish.lots[i, R_AMOUNT])


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
        use_for_now(book.tree, d, q, lot, amount)


@inlined
def doom(entry: I64, pool: Pool, marks: I64) -> None:
    """Note the targets of an entry as victims of this cycle."""
    for i in range(entry[X_FIRST_TARGET], entry[X_FIRST_TARGET] + entry[X_TARGETS]):
        j = pool.targets[i, 0]
        pool.flags[j, F_DOOMED] = 1
        pool.flags[marks[VICTIMS], F_VICTIM] = j
        marks[VICTIMS] += 1


@kernel
def requeue(book: Book, d: Desk, cycle: int, e: int) -> None:
    """Decide when an entry that was not admitted is tried again, and with which flavor it goes on."""
    entry, branches = d.heads.entries[e], book.tree.branches
    status, q, j, w = entry[X_STATUS], entry[X_QUEUE], entry[X_WORKLOAD], entry[X_CLASS]
    root = branches[q, B_ROOT]
    if status == ADMITTED or (status == PREEMPTING and entry[X_PENDING] > 0):
        branches[root, B_STIRRED] = 1
    if status == ADMITTED:
        return
    if entry[X_AGAIN] > 0:
        book.held.tickets[j, T_HELD] = branches[root, B_EPOCH]  # until something changes
        return
    goes_on = status in (REFUSED, SKIPPED) and entry[X_TRYING] == 1
    for slot in range(book.asked.tried.shape[1]):
        book.asked.tried[j, slot] = d.heads.tries[e, Y_TRIED, slot] if goes_on else 0
    ticket = book.held.tickets[j]
    ticket[T_TRIED_CYCLE], ticket[T_TRIED_GENERATION] = cycle, branches[root, B_GENERATION]
    if status in (PREEMPTING, AWAITING) and branches[q, B_STRICT] == 0:
        branches[q, B_STICKY] = j
    if goes_on:
        branches[root, B_STIRRED] = 1
    elif branches[q, B_STRICT] == 0 and status == REFUSED:
        book.asked.demands[w, D_HELD] = branches[root, B_EPOCH]
        book.asked.demands[w, D_HELD_CODE] = entry[X_CODE]
        branches[root, B_STIRRED] = 1
    elif branches[q, B_STRICT] == 0 and status == BLOCKED:
        ticket[T_HELD] = branches[root, B_EPOCH]
        branches[root, B_STIRRED] = 1
