"""Settling an entry in Tidegate's own mode: quota and places together, or victims for them, or a reservation."""

from __future__ import annotations

from tidegate.engine.kernels.candidates import NEVER
from tidegate.engine.kernels.cycle import lack_of, write_lack
from tidegate.engine.kernels.cycle_quota import (
    doom,
    is_owed,
    is_within_reach,
    move_replaced,
    reserve,
    shift_promised,
    use_for_now,
)
from tidegate.engine.kernels.desk import (
    ADMITTED,
    AWAITING,
    CLAIMED,
    ENTRIES,
    EPOCH_BOUND,
    FIT,
    I_LOT,
    I_NOMINATED,
    NO_FIT,
    PREEMPTING,
    R_AMOUNT,
    R_LOT,
    R_REST,
    REFUSED,
    REQUESTED,
    SKIPPED,
    UNDONE,
    WAIT,
    X_CLASS,
    X_CODE,
    X_FIRST_TARGET,
    X_LOT,
    X_MODE,
    X_PENDING,
    X_QUEUE,
    X_REPLACES,
    X_SPOTS,
    X_STATUS,
    X_TARGETS,
    X_WORKLOAD,
    Desk,
    Heads,
    Turn,
)
from tidegate.engine.kernels.eviction_plan import (
    AWAITED,
    EVICTIONS,
    NO_ROOM,
    PREEMPTED_FOR,
    asks_topology,
    keep_reserved_spots,
    lift_quota,
    plan_evictions,
)
from tidegate.engine.kernels.granted import plan_pods
from tidegate.engine.kernels.grove import Grove
from tidegate.engine.kernels.nominate import nominate_bound, request_assigned
from tidegate.engine.kernels.passed_over import (
    are_open,
    are_reserved,
    could_be_placed_before,
    is_new,
    is_passed_over,
    note_found,
    open_ending,
    reserve_nothing_yet,
    stay_chosen,
)
from tidegate.engine.kernels.place import Output, give_back
from tidegate.engine.kernels.quota import available, minus
from tidegate.engine.kernels.registry import inlined, kernel
from tidegate.engine.kernels.removal import C_RESERVED
from tidegate.engine.kernels.reservations import (
    PASSED_OVER,
    RESERVED,
    drop_reservation,
    enforce,
    enforce_ahead,
    let_pass,
    place_reserved,
    release_all,
    release_of,
    reserve_places,
    withhold_all,
    withhold_all_in_full,
)
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.settle import grant, release_replaced, send_off
from tidegate.engine.kernels.spot_places import place_entry
from tidegate.engine.kernels.spots import forget_found, found_fits, take_found
from tidegate.engine.kernels.table import DRAWS
from tidegate.engine.kernels.targets import has_quota
from tidegate.engine.kernels.victim_domains import plan_if_all_ended
from tidegate.engine.kernels.victim_scratch import BEST_PLANNED, VictimSearch
from tidegate.engine.kernels.victim_search import search_victims
from tidegate.model.columns import I64
from tidegate.model.reasons import Reason
from tidegate.model.shares import PreemptWhom
from tidegate.state.cluster import Counter, Hot
from tidegate.state.shares import (
    B_FIRST_GROUP,
    B_GROUPS,
    B_RECLAIM,
    B_STRICT,
    B_WITHIN,
    D_ASKS,
    G_OPTIONS,
    T_TRIES,
    T_TRIES_EPOCH,
    Book,
    Tree,
)
from tidegate.state.tables import J_RESERVES, S_POD_CLASS, W_SETS

ANY = list(PreemptWhom).index(PreemptWhom.ANY)
AWAITS_VICTIMS = int(Reason.AWAITS_VICTIMS)
OUTPACED = int(Reason.OUTPACED)
TOPOLOGY_OUTPACED = int(Reason.TOPOLOGY_OUTPACED)
PLACES_RESERVED, RESERVED_FOR_OTHERS = int(Reason.PLACES_RESERVED), int(Reason.RESERVED_FOR_OTHERS)
NOBODY = -1
OUTSIDE_EPOCH = int(Counter.OUTSIDE)

#: Times that a workload is tried between two outside facts, and once for each flavor and pod set.
MOST_TRIES = 8

#: What it counts for to look for victims, of which a few times are enough.
PLANNING_TRIES = 2

#: What an entry lacks.
ENOUGH, NO_QUOTA, NO_SPOTS = range(3)


@kernel
def admit(hot: Hot, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, out: Output) -> None:
    """Let an entry have its quota; where it takes over from another slice, that one goes."""
    entry = d.heads.entries[e]
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
    asks_topology(book, d, grove, e)
    unfit = place_entry(hot, rule, book, heads, grove, e, sets, out)
    if unfit < 0:
        return True
    if entry[X_SPOTS] > 0:
        entry[X_STATUS], entry[X_CODE] = SKIPPED, TOPOLOGY_OUTPACED
        return False
    entry[X_STATUS], entry[X_CODE] = REFUSED, lack_of(hot, rule, heads.plan[unfit, S_POD_CLASS])
    write_lack(hot, rule, entry[X_WORKLOAD], entry[X_CODE], heads.plan[:sets], unfit, entry[X_LOT:])
    return False


@kernel
def settle_with_places(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, lack: int, out: Output
) -> None:
    """Admit an entry with its places, or evict whoever is in its way and reserve the places, or say why not."""
    entry = d.heads.entries[e]
    j, before = entry[X_WORKLOAD], hot.workloads[entry[X_WORKLOAD], J_RESERVES]
    enforce_ahead(hot, d.heads.entries, d.wish.marks[ENTRIES], e)
    if before == PASSED_OVER and are_open(hot, j) and is_elsewhere(book, d.heads, e):
        if entry[X_MODE] == FIT and lack != NO_QUOTA and starts_at_once(hot, rule, book, d, grove, turn, e, out):
            return
        lack = nominate_where_reserved(hot, book, d, grove, turn, e)
        if entry[X_MODE] in (NO_FIT, WAIT):
            entry[X_STATUS] = REFUSED
            drop_reservation(hot, j)
            return
    fits = entry[X_MODE] == FIT
    if fits and lack == NO_QUOTA:
        entry[X_STATUS], entry[X_CODE] = SKIPPED, OUTPACED
        if hot.counters[RESERVED] > 0 and d.wish.marks[CLAIMED] == 0:
            entry[X_STATUS], entry[X_CODE] = REFUSED, RESERVED_FOR_OTHERS
        return
    if fits and starts_at_once(hot, rule, book, d, grove, turn, e, out):
        return
    if before == PREEMPTED_FOR:
        let_pass(hot, j)  # to the places that were cleared for it, and no others
    release_of(hot, j)
    came = NO_ROOM
    if may_preempt(book.tree, entry[X_QUEUE]) and (
        hot.workloads[j, J_RESERVES] == PREEMPTED_FOR
        or tries_on(book, d.wish.marks, entry, hot.counters[OUTSIDE_EPOCH], PLANNING_TRIES)
    ):
        came = plan_evictions(hot, rule, book, d, grove, turn, e, out)
    if came == EVICTIONS:
        entry[X_STATUS], entry[X_CODE] = PREEMPTING, AWAITS_VICTIMS
        doom(entry, d.pool, d.wish.marks)
        entry[X_PENDING] = send_off(hot, book.held.tickets, d.pool, entry, turn.now_ms, out)
        note_leaving(d.victims, d.pool.targets, entry)
    elif came == AWAITED and fits and place_reserved(hot, j, out):
        drop_reservation(hot, j)
        admit(hot, book, d, grove, turn, e, out)
        return
    elif came == AWAITED:
        entry[X_STATUS], entry[X_CODE] = AWAITING, AWAITS_VICTIMS
    elif lack != NO_QUOTA and reserve_if_passed_over(hot, rule, book, d, grove, turn, e):
        entry[X_STATUS], entry[X_CODE] = AWAITING, PLACES_RESERVED
        keep_reserved_spots(hot, book, d, grove, e, d.heads.plan[: plan_pods(book, d.heads, e)])
    else:
        entry[X_STATUS] = REFUSED
        if lack == NO_QUOTA:
            refuse_quota(hot, rule, book, d, grove, turn, e)
        elif fits and fits_without_reservations(hot, rule, book, d, grove, e, out):
            entry[X_CODE] = RESERVED_FOR_OTHERS
        return
    entry[X_PENDING] += before == 0  # from now on another is the head of its queue
    asks = book.asked.demands[entry[X_CLASS], D_ASKS]
    for a in range(book.held.claims.shape[2]):
        book.held.claims[j, C_RESERVED, a] = d.heads.choice[e, I_LOT, a] if a < asks else 0
    enforce(hot, j)
    take_found(grove, entry)
    reserve_quota(hot, book, d, e)


@kernel
def starts_at_once(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, out: Output
) -> bool:
    """Admit an entry that has quota where there is room for it, or at the places that are reserved for it."""
    j = d.heads.entries[e, X_WORKLOAD]
    release_of(hot, j)
    if not find_places(hot, rule, book, d, grove, e, out):
        if hot.workloads[j, J_RESERVES] != PASSED_OVER or d.heads.entries[e, X_SPOTS] > 0:
            return False
        # The places of other flavors, or of another number of pods, are not what its quota is for.
        plan = d.heads.plan[: plan_pods(book, d.heads, e)]
        if not are_reserved(hot, j, plan) or not place_reserved(hot, j, out):
            return False
    drop_reservation(hot, j)
    admit(hot, book, d, grove, turn, e, out)
    return True


@inlined
def is_elsewhere(book: Book, heads: Heads, e: int) -> bool:
    """Whether places are reserved for entry e in other flavors than those it was nominated for."""
    reserved, differs = book.held.claims[heads.entries[e, X_WORKLOAD], C_RESERVED], False
    for a in range(book.asked.demands[heads.entries[e, X_CLASS], D_ASKS]):
        differs = differs or (reserved[a] != 0 and reserved[a] != heads.choice[e, I_LOT, a])
    return bool(differs)


@kernel
def nominate_where_reserved(hot: Hot, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> int:
    """Nominate entry e anew, for the flavors that its places are reserved in; return what it lacks."""
    for a in range(book.asked.demands[d.heads.entries[e, X_CLASS], D_ASKS]):
        d.heads.choice[e, I_NOMINATED, a] = book.held.claims[d.heads.entries[e, X_WORKLOAD], C_RESERVED, a]
    nominate_bound(book, d, grove, turn, e)
    return lack_beside_promised(hot, book, d, grove, e)


@kernel
def lack_beside_promised(hot: Hot, book: Book, d: Desk, grove: Grove | None, e: int) -> int:
    """What an entry lacks now, with those still there who leave, and later, when what they leave is as promised."""
    entry = d.heads.entries[e]
    q = entry[X_QUEUE]
    request_assigned(book, d.heads, d.wish, e)
    fits = has_quota(book.tree, d.wish, q, 1)
    if fits and d.wish.marks[UNDONE] > 0:
        lift_quota(hot, book, d.victims, entry[X_WORKLOAD], 1)
        shift_promised(book.tree, d, 1)
        fits = has_quota(book.tree, d.wish, q, 1)
        shift_promised(book.tree, d, -1)
        lift_quota(hot, book, d.victims, entry[X_WORKLOAD], -1)
    if not fits:
        return NO_QUOTA
    return ENOUGH if found_fits(grove, entry) else NO_SPOTS


@kernel
def tries_on(book: Book, marks: I64, entry: I64, epoch: int, times: int) -> bool:
    """Whether an entry goes on trying in an epoch: what it finds and loses in turn, it could try for ever."""
    ticket, queue, flavors = book.held.tickets[entry[X_WORKLOAD]], book.tree.branches[entry[X_QUEUE]], 0
    if ticket[T_TRIES_EPOCH] != epoch:
        ticket[T_TRIES_EPOCH], ticket[T_TRIES] = epoch, 0
    ticket[T_TRIES] += times
    for group in range(queue[B_FIRST_GROUP], queue[B_FIRST_GROUP] + queue[B_GROUPS]):
        flavors += book.asked.groups[group, G_OPTIONS]
    if ticket[T_TRIES] <= MOST_TRIES + flavors * book.held.work_classes[entry[X_CLASS], W_SETS]:
        return True
    marks[EPOCH_BOUND] = 1
    return False


@kernel
def fits_without_reservations(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, e: int, out: Output
) -> bool:
    """Whether an entry that finds no place would find one if nothing were reserved for others."""
    if hot.counters[RESERVED] == 0:
        return False
    start, draws, sets = out.written[0], hot.counters[DRAWS], plan_pods(book, d.heads, e)
    release_all(hot)
    fits = place_entry(hot, rule, book, d.heads, grove, e, sets, out) < 0
    give_back(hot, d.heads.entries[e, X_WORKLOAD])
    withhold_all(hot, NOBODY)
    out.written[0], hot.counters[DRAWS] = start, draws
    return fits


@kernel
def reserve_quota(hot: Hot, book: Book, d: Desk, e: int) -> None:
    """Keep quota for an entry until the end of the cycle: what it asks for, less what those who leave will leave it."""
    q, j = d.heads.entries[e, X_QUEUE], d.heads.entries[e, X_WORKLOAD]
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        d.wish.lots[i, R_REST] = available(book.tree, q, d.wish.lots[i, R_LOT])
    lift_quota(hot, book, d.victims, j, 1)
    shift_promised(book.tree, d, 1)
    for i in range(d.wish.marks[REQUESTED]):
        later = available(book.tree, q, d.wish.lots[i, R_LOT])
        d.wish.lots[i, R_REST] = minus(later, d.wish.lots[i, R_REST])
    shift_promised(book.tree, d, -1)
    lift_quota(hot, book, d.victims, j, -1)
    for i in range(d.wish.marks[REQUESTED]):
        lot, amount = d.wish.lots[i, R_LOT], d.wish.lots[i, R_AMOUNT]
        promised = max(0, min(amount, d.wish.lots[i, R_REST]))
        use_for_now(book.tree, d, q, lot, minus(amount, promised), promised)


@inlined
def may_preempt(tree: Tree, q: int) -> bool:
    """Whether the work of a queue may preempt anybody."""
    return bool(tree.branches[q, B_WITHIN] != NEVER or tree.branches[q, B_RECLAIM] != NEVER)


@inlined
def note_leaving(s: VictimSearch, targets: I64, entry: I64) -> None:
    """Note the targets of an entry among those who are leaving."""
    for i in range(entry[X_FIRST_TARGET], entry[X_FIRST_TARGET] + entry[X_TARGETS]):
        s.leaving[0] += 1
        s.leaving[s.leaving[0]] = targets[i, 0]


@kernel
def reserve_if_passed_over(hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> bool:
    """Reserve places for an entry that has quota and was passed over for too long; one of a queue at a time."""
    entry = d.heads.entries[e]
    j, plan = entry[X_WORKLOAD], d.heads.plan[: plan_pods(book, d.heads, e)]
    if not is_owed(hot, book, d, turn, e):
        drop_reservation(hot, j)
        return False
    stands = hot.workloads[j, J_RESERVES] == PASSED_OVER and are_reserved(hot, j, plan) and are_open(hot, j)
    if stands and stay_chosen(hot, j, turn.now_ms, turn.limit_ms):
        return True
    if not is_passed_over(hot, j, turn.now_ms, turn.limit_ms) or reserves_already(hot, d, turn, e):
        return bool(stands)
    if not could_be_placed(hot, rule, book, d, grove, turn, e):
        return bool(stands)
    reserve_places(hot, j, d.victims.best_plan[: d.victims.numbers[BEST_PLANNED]], PASSED_OVER)
    note_found(hot, j, turn.now_ms, turn.limit_ms)
    return True


@kernel
def could_be_placed(hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> bool:
    """Whether there would be places for an entry if everybody who runs had ended, but for what others reserve.

    The best plan of the search has these places: those that are free soonest.
    """
    plan, j = d.heads.plan[: plan_pods(book, d.heads, e)], d.heads.entries[e, X_WORKLOAD]
    release_all(hot)
    withhold_all_in_full(hot, j)
    found = plans_if_all_ended(hot, rule, book, d, grove, turn, e, plan)
    release_all(hot)
    withhold_all(hot, j)
    return found


@inlined
def plans_if_all_ended(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, plan: I64
) -> bool:
    """`could_be_placed`, with what others reserve out of the way."""
    if grove is not None:
        if asks_topology(book, d, grove, e):
            return bool(plan_if_all_ended(hot, rule, grove, d.victims, plan, turn.now_ms))
    open_ending(hot, d.victims, turn.now_ms)
    return bool(search_victims(hot, rule, None, None, None, d.victims, plan))


@kernel
def reserves_already(hot: Hot, d: Desk, turn: Turn, e: int) -> bool:
    """Whether something is newly reserved for another workload of the queue of entry e that was passed over."""
    entries = d.heads.entries
    for other in range(d.wish.marks[ENTRIES]):
        if other != e and entries[other, X_QUEUE] == entries[e, X_QUEUE]:
            j = entries[other, X_WORKLOAD]
            if hot.workloads[j, J_RESERVES] == PASSED_OVER and is_new(hot, j, turn.now_ms, turn.limit_ms):
                return True
    return False


@kernel
def refuse_quota(hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Keep quota for a head that nobody can be preempted for: what its queue is entitled to, as Kueue does.

    In Tidegate's own mode one that was passed over for too long keeps it from cycle to cycle.
    """
    entry = d.heads.entries[e]
    j = entry[X_WORKLOAD]
    if (
        turn.places == 1
        and is_passed_over(hot, j, turn.now_ms, turn.limit_ms)
        and not reserves_already(hot, d, turn, e)
    ):
        known = could_be_placed_before(hot, j)
        owed = is_owed(hot, book, d, turn, e) and is_within_reach(book, d, e)
        if owed and (known or could_be_placed(hot, rule, book, d, grove, turn, e)):
            reserve_nothing_yet(hot, j, PASSED_OVER)
            if not known:
                note_found(hot, j, turn.now_ms, turn.limit_ms)
        else:
            drop_reservation(hot, j)
    claims = entry[X_MODE] != WAIT and book.tree.branches[entry[X_QUEUE], B_RECLAIM] != ANY
    if turn.places == 1:
        forget_found(entry)  # nodes are of all trees, and it is not nominated in every cycle: it keeps quota only
    if claims or hot.workloads[j, J_RESERVES] == PASSED_OVER:
        first = d.wish.marks[UNDONE]
        reserve(book, d, grove, e)
        if turn.places == 1 and hot.workloads[j, J_RESERVES] == 0 and book.tree.branches[entry[X_QUEUE], B_STRICT] == 0:
            d.wish.marks[CLAIMED] = 1  # it is held from now on, and claims nothing in the next cycle
            d.undo[first : d.wish.marks[UNDONE], 4] = 1
