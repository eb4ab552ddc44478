"""One cycle over the queues with quota: one head of each, nominated together, settled one by one.

What an entry takes is taken from the tree at once, so that the next one sees it. What is only reserved for the rest of
the cycle is noted and taken back at its end. The same steps as Kueue's, so that its decisions come out.
Must not know: facts.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_quota import doom, move_replaced, take_for_now
from tidegate.engine.kernels.desk import (
    ADMITTED,
    AWAITING,
    BLOCKED,
    CLAIMED,
    DEFERRED,
    ENTRIES,
    EVICTED,
    F_DOOMED,
    F_REMOVED,
    F_VICTIM,
    FIT,
    I_NOMINATED,
    NO_FIT,
    OVERFLOW,
    PREEMPT,
    PREEMPTING,
    REFUSED,
    SKIPPED,
    TARGETS,
    UNDONE,
    VICTIMS,
    WAIT,
    X_AGAIN,
    X_AWAITED,
    X_BEHIND,
    X_BORROW,
    X_CLASS,
    X_CODE,
    X_FIRST_TARGET,
    X_MODE,
    X_ORDER,
    X_OVERDUE,
    X_PENDING,
    X_QUEUE,
    X_REPLACES,
    X_RESTRICTED,
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
from tidegate.engine.kernels.entry_order import is_put_up_before, sort_entries
from tidegate.engine.kernels.eviction_plan import PREEMPTED_FOR
from tidegate.engine.kernels.grove import Grove
from tidegate.engine.kernels.held_spots import fill_spots, free_spots
from tidegate.engine.kernels.nominate import (
    head_of,
    nominate,
    nominate_again,
    open_entry,
    request_assigned,
)
from tidegate.engine.kernels.passed_over import note_passed_over
from tidegate.engine.kernels.place import Output
from tidegate.engine.kernels.quota import remove_usage
from tidegate.engine.kernels.registry import entry, inlined, kernel
from tidegate.engine.kernels.removal import C_RESERVED, put_back, take_out
from tidegate.engine.kernels.reservations import (
    PASSED_OVER,
    RESERVED,
    begin_reservations,
    drop_reservation,
    end_reservations,
    take_again,
)
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.settle import CLAIMS, ROOM_TAKEN, SHIFTED, evict, grant_again, send_off
from tidegate.engine.kernels.settle_places import (
    ENOUGH,
    NO_QUOTA,
    NO_SPOTS,
    OUTSIDE_EPOCH,
    admit,
    lack_beside_promised,
    refuse_quota,
    settle_with_places,
    tries_on,
)
from tidegate.engine.kernels.spots import found_fits, give_back_found, open_spots
from tidegate.engine.kernels.targets import has_quota
from tidegate.engine.kernels.tournament import pick_fairly
from tidegate.model.columns import I64
from tidegate.model.reasons import Reason
from tidegate.state import reserved_places
from tidegate.state.cluster import Hot
from tidegate.state.shares import (
    B_EPOCH,
    B_GENERATION,
    B_IS_QUEUE,
    B_ROOT,
    B_STICKY,
    B_STIRRED,
    B_STRICT,
    D_ASKS,
    D_BRANCH,
    D_HELD,
    D_HELD_CODE,
    T_BRANCH,
    T_GATED,
    T_HELD,
    T_TRIED_CYCLE,
    T_TRIED_GENERATION,
    Again,
    Book,
    Tree,
)
from tidegate.state.tables import J_PASSED, J_RESERVES, J_WORK_CLASS

AWAITS_VICTIMS = int(Reason.AWAITS_VICTIMS)
OUTPACED = int(Reason.OUTPACED)
SHARED_VICTIMS = int(Reason.SHARED_VICTIMS)
GATED = int(Reason.PREEMPTION_GATED)
TOPOLOGY_OUTPACED = int(Reason.TOPOLOGY_OUTPACED)
NO_SPOT_LEFT = int(Reason.NO_SPOT_LEFT)
FAILED = int(Again.FAILED)
DONE, MORE_ROOM = 0, 1
NOBODY = -1


@entry
def cycle_queues(hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, out: Output) -> int:
    """Run one cycle; MORE_ROOM: nothing was changed, and it needs room for more targets."""
    marks, branches, entries = d.wish.marks, book.tree.branches, d.heads.entries
    marks[TARGETS], marks[OVERFLOW], marks[VICTIMS], marks[UNDONE], marks[CLAIMED] = 0, 0, 0, 0, 0
    count = nominate_heads(hot, book, d, grove, turn)
    if marks[OVERFLOW] == 1 or (turn.places == 1 and marks[TARGETS] + len(d.pool.flags) > len(d.pool.targets)):
        return MORE_ROOM
    begin_reservations(hot)
    for b in range(len(branches)):
        branches[b, B_STIRRED] = 0
    if turn.fair == 0:
        put_behind_reserved(hot, entries, count)
        sort_entries(entries, count)
    nominated = marks[TARGETS]
    for i in range(count):
        e = entries[i, X_ORDER] if turn.fair == 0 else pick_fairly(book, d, count)
        marks[TARGETS] = nominated  # targets found again are of use only until the entry is settled
        settle_entry(hot, rule, book, d, grove, turn, e, out)
    take_back(book.tree, d, grove)
    end_reservations(hot)
    for e in range(count):
        if entries[e, X_STATUS] == ADMITTED and entries[e, X_REPLACES] > 0:
            move_replaced(book, d.pool, entries[e], 0)
        if entries[e, X_STATUS] == ADMITTED and entries[e, X_AGAIN] > 0:
            grant_again(hot, book, d.heads, grove, e, out)
        requeue(hot, book, d, turn, e)
    stir_outpaced(branches, entries, count, marks[CLAIMED])
    return DONE


@kernel
def put_behind_reserved(hot: Hot, entries: I64, count: int) -> None:
    """Let nobody go before one that is ahead in its queue, and that something is reserved for, as it borrows less.

    What is reserved goes to nobody who borrows as high and has as much priority, also if it waits for longer.
    """
    for r in range(count if hot.counters[RESERVED] > 0 else 0):
        if hot.workloads[entries[r, X_WORKLOAD], J_RESERVES] != PASSED_OVER:
            continue
        entries[r, X_OVERDUE] = 1
        for e in range(count):
            if entries[e, X_QUEUE] == entries[r, X_QUEUE] and is_put_up_before(entries, r, e):
                entries[e, X_BEHIND] = max(entries[e, X_BEHIND], entries[r, X_BORROW])


@inlined
def stir_outpaced(branches: I64, entries: I64, count: int, claimed: int) -> None:
    """Let those be tried again who lost to others of this cycle, in whatever tree: nodes are shared by all trees."""
    for e in range(count):
        claimed += int(entries[e, X_STATUS] == ADMITTED)
    for e in range(count if claimed > 0 else 0):
        if entries[e, X_STATUS] == SKIPPED:
            branches[branches[entries[e, X_QUEUE], B_ROOT], B_STIRRED] = 1


@kernel
def nominate_heads(hot: Hot, book: Book, d: Desk, grove: Grove | None, turn: Turn) -> int:
    """Nominate the head of every queue whose tree was stirred; return how many."""
    branches, count = book.tree.branches, nominate_those_again(book, d, grove, turn)
    count = nominate_those_with_reservation(hot, book, d, grove, turn, count)
    for q in range(len(branches)):
        if branches[q, B_IS_QUEUE] == 0 or branches[branches[q, B_ROOT], B_STIRRED] == 0:
            continue
        j = head_of(book.tree, book.held, book.asked.demands, turn.now_ms, q)
        if j < 0:
            continue
        if branches[q, B_STRICT] == 1 and has_entry(d.heads.entries, count, q):
            continue  # one for whom places are reserved: nobody passes it
        nominate_one(book, d, grove, turn, count, q, j)
        count += 1
    d.wish.marks[ENTRIES] = count
    return count


@inlined
def has_entry(entries: I64, count: int, q: int) -> bool:
    """Whether one of so many entries is of a queue, and holds nothing yet."""
    for e in range(count):
        if entries[e, X_QUEUE] == q and entries[e, X_AGAIN] == 0:
            return True
    return False


@inlined
def nominate_those_with_reservation(hot: Hot, book: Book, d: Desk, grove: Grove | None, turn: Turn, count: int) -> int:
    """Nominate those for whom places are reserved, in whatever tree they wait; return how many entries there are."""
    before = NOBODY
    for i in range(hot.counters[RESERVED] if turn.places == 1 else 0):
        j = hot.reserved[i, reserved_places.WORKLOAD]
        q = book.asked.demands[hot.workloads[j, J_WORK_CLASS], D_BRANCH]
        if j != before and q >= 0:
            nominate_one(book, d, grove, turn, count, q, j)
            count += 1
        before = j
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
    if book.held.workloads[j, J_RESERVES] == PREEMPTED_FOR:
        entry[X_AWAITED] = 1  # room goes to whom it was made for
        restrict_to_reserved(book, d.heads, e)
    open_spots(grove, book.held, entry)
    nominate(book, d, grove, turn, e)
    d.wish.marks[TARGETS] = entry[X_FIRST_TARGET] + entry[X_TARGETS]


@inlined
def restrict_to_reserved(book: Book, heads: Heads, e: int) -> None:
    """Let entry e have the flavors that its places are reserved in, and no others."""
    entry = heads.entries[e]
    for a in range(book.asked.demands[entry[X_CLASS], D_ASKS]):
        lot = book.held.claims[entry[X_WORKLOAD], C_RESERVED, a]
        heads.choice[e, I_NOMINATED, a] = lot
        if lot != 0:
            entry[X_RESTRICTED] = 1


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
    lack = look_again(hot, book, d, grove, turn, e)
    entry = d.heads.entries[e]
    mode = entry[X_MODE]
    if entry[X_AGAIN] == FAILED and turn.fails_fast == 1 and mode != FIT:
        entry[X_STATUS], entry[X_CODE] = EVICTED, NO_SPOT_LEFT
        evict(hot, book.held.tickets, entry, turn.now_ms, out)
    elif mode in (NO_FIT, WAIT):
        entry[X_STATUS] = REFUSED
        if hot.workloads[entry[X_WORKLOAD], J_RESERVES] == PREEMPTED_FOR:
            drop_reservation(hot, entry[X_WORKLOAD])
        if mode == WAIT:
            refuse_quota(hot, rule, book, d, grove, turn, e)
    elif mode == PREEMPT and entry[X_TARGETS] == 0 and (turn.places == 0 or entry[X_AGAIN] > 0):
        entry[X_STATUS] = REFUSED
        refuse_quota(hot, rule, book, d, grove, turn, e)
    elif mode == PREEMPT and book.held.tickets[entry[X_WORKLOAD], T_GATED] == 1:
        entry[X_STATUS], entry[X_CODE] = BLOCKED, GATED
    elif turn.places == 1 and entry[X_AGAIN] == 0 and mode != DEFERRED:
        settle_with_places(hot, rule, book, d, grove, turn, e, lack, out)
        take_again(hot)
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
    else:
        admit(hot, book, d, grove, turn, e, out)


@kernel
def look_again(hot: Hot, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> int:
    """What an entry lacks after those before it; nominated anew where they took its victims or its spots."""
    entry, flags = d.heads.entries[e], d.pool.flags
    if entry[X_MODE] == NO_FIT:
        return NO_QUOTA
    if turn.places == 1 and entry[X_AGAIN] == 0:
        return lack_beside_promised(hot, book, d, grove, e)
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
def requeue(hot: Hot, book: Book, d: Desk, turn: Turn, e: int) -> None:
    """Decide when an entry that was not admitted is tried again, and with which flavor it goes on."""
    entry, branches = d.heads.entries[e], book.tree.branches
    status, q, j, w = entry[X_STATUS], entry[X_QUEUE], entry[X_WORKLOAD], entry[X_CLASS]
    root = branches[q, B_ROOT]
    if status == ADMITTED or (status in (PREEMPTING, AWAITING) and entry[X_PENDING] > 0):
        branches[root, B_STIRRED] = 1
        if turn.places == 1:
            shifts = status != ADMITTED or entry[X_BORROW] > 0 or turn.fair != 0
            hot.counters[CLAIMS] |= SHIFTED if shifts else ROOM_TAKEN
    if status == ADMITTED:
        return
    if entry[X_AGAIN] > 0:
        book.held.tickets[j, T_HELD] = branches[root, B_EPOCH]  # until something changes
        return
    if status == REFUSED and book.held.workloads[j, J_PASSED] < 0:
        note_passed_over(hot, j, turn.now_ms, turn.limit_ms if turn.places == 1 else 0)
    epoch = hot.counters[OUTSIDE_EPOCH] if turn.places == 1 else branches[root, B_EPOCH]
    goes_on = status in (REFUSED, SKIPPED) and entry[X_TRYING] == 1 and tries_on(book, d.wish.marks, entry, epoch, 1)
    for slot in range(book.asked.tried.shape[1]):
        book.asked.tried[j, slot] = d.heads.tries[e, Y_TRIED, slot] if goes_on else 0
    ticket = book.held.tickets[j]
    ticket[T_TRIED_CYCLE], ticket[T_TRIED_GENERATION] = turn.cycle, branches[root, B_GENERATION]
    if status in (PREEMPTING, AWAITING) and branches[q, B_STRICT] == 0 and book.held.workloads[j, J_RESERVES] == 0:
        branches[q, B_STICKY] = j
    if goes_on:
        branches[root, B_STIRRED] = 1
    elif branches[q, B_STRICT] == 0 and status == REFUSED:
        if book.asked.demands[w, D_HELD] != branches[root, B_EPOCH]:  # else it is one with a reservation, again
            branches[root, B_STIRRED] = 1
        book.asked.demands[w, D_HELD] = branches[root, B_EPOCH]
        book.asked.demands[w, D_HELD_CODE] = entry[X_CODE]
    elif branches[q, B_STRICT] == 0 and status == BLOCKED:
        ticket[T_HELD] = branches[root, B_EPOCH]
        branches[root, B_STIRRED] = 1
