"""What the head of a queue would take: flavors, victims, fewer pods if it may; nothing is changed by asking.

Must not know: who else is asking in this cycle.
"""

from __future__ import annotations

from tidegate.engine.kernels.classic_victims import find_targets
from tidegate.engine.kernels.cycle_scratch import (
    FIT,
    I_LOT,
    I_MODE,
    I_NOMINATED,
    NO_FIT,
    PREEMPT,
    REQUESTED,
    TARGETS,
    X_AGAIN,
    X_CLASS,
    X_CODE,
    X_FIRST_TARGET,
    X_MODE,
    X_PRIORITY,
    X_QUEUE,
    X_REPLACES,
    X_RESTRICTED,
    X_SUBMITTED,
    X_TARGETS,
    X_TIE,
    X_WORKLOAD,
    Y_RESUME,
    Y_TRIED,
    Desk,
    Heads,
    Turn,
    Wish,
    request,
)
from tidegate.engine.kernels.domain_assignment import (
    ask_topology,
    forget_found,
    keep_found,
    search_as_if_empty,
    search_spots,
)
from tidegate.engine.kernels.domain_fit import weigh_topology
from tidegate.engine.kernels.entry_request import amount_of
from tidegate.engine.kernels.flavor_assignment import assign
from tidegate.engine.topology.cycle_view import Grove
from tidegate.engine.topology.held_domains import fill_spots, free_spots
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.quota_tables import (
    B_CLOSED,
    B_EPOCH,
    B_FIRST_CLASS,
    B_GENERATION,
    B_ROOT,
    B_STICKY,
    B_STRICT,
    B_USAGE_BASED,
    D_ASKS,
    D_ENTRANCE,
    D_FIRST_ASK,
    D_HELD,
    D_NEXT_CLASS,
    D_PARTIAL,
    D_REFUSED,
    M_LEAST,
    M_ORDINAL,
    T_AGAIN,
    T_BLOCKED,
    T_BRANCH,
    T_HELD,
    T_NOT_BEFORE,
    T_REPLACES,
    T_TRIED_CYCLE,
    T_TRIED_GENERATION,
    Again,
    Asked,
    Book,
    Held,
    Tree,
)
from tidegate.state.tables import (
    J_ENDING,
    J_NEXT,
    J_RESERVES,
    J_SUBMITTED,
    J_TIE,
    J_WORK_CLASS,
    S_COUNT,
    W_FIRST_SET,
    W_HEAD,
    W_PRIORITY,
    W_SETS,
)

CHECK_FAILED, OUTSIDE_LIMITS = int(Reason.CHECK_FAILED), int(Reason.OUTSIDE_LIMITS)
NOBODY = -1
FAILED = int(Again.FAILED)


@kernel
def head_of(tree: Tree, held: Held, demands: I64, now_ms: int, q: int) -> int:
    """The workload of a queue that is tried next; NOBODY: none."""
    if tree.branches[q, B_CLOSED] == 1:
        return NOBODY
    epoch, strict = tree.branches[tree.branches[q, B_ROOT], B_EPOCH], tree.branches[q, B_STRICT]
    best = NOBODY
    w = tree.branches[q, B_FIRST_CLASS]
    while w >= 0:
        if demands[w, D_REFUSED] == 0 and demands[w, D_HELD] != epoch:
            j = held.work_classes[w, W_HEAD]
            while j >= 0 and not (
                held.workloads[j, J_RESERVES] == 0 and may_be_tried(held.tickets[j], strict, now_ms, epoch)
            ):
                j = held.workloads[j, J_NEXT]
            if j >= 0 and (best < 0 or goes_first(tree, held, demands, q, j, best)):
                best = j
        w = demands[w, D_NEXT_CLASS]
    sticky = tree.branches[q, B_STICKY]
    if sticky >= 0 and tree.branches[q, B_USAGE_BASED] == 0 and held.workloads[sticky, J_RESERVES] == 0:
        is_held = demands[held.workloads[sticky, J_WORK_CLASS], D_HELD] == epoch
        if not is_held and may_be_tried(held.tickets[sticky], strict, now_ms, epoch):
            best = sticky
    return int(best)


@inlined
def may_be_tried(ticket: I64, strict: int, now_ms: int, epoch: int) -> bool:
    """Whether a waiting workload may be tried now.

    In a strict queue one that no queue may take keeps its place in the line, and those behind it wait.
    """
    if ticket[T_BLOCKED] != 0 and (strict == 0 or ticket[T_BLOCKED] not in (CHECK_FAILED, OUTSIDE_LIMITS)):
        return False
    return bool(ticket[T_HELD] != epoch and ticket[T_NOT_BEFORE] <= now_ms)


@inlined
def goes_first(tree: Tree, held: Held, demands: I64, q: int, a: int, b: int) -> bool:
    """Whether workload a of a queue goes before workload b."""
    v, w = held.workloads[a, J_WORK_CLASS], held.workloads[b, J_WORK_CLASS]
    if tree.branches[q, B_USAGE_BASED] == 1:
        used_a, used_b = held.used[demands[v, D_ENTRANCE], 0], held.used[demands[w, D_ENTRANCE], 0]
        if used_a != used_b:
            return bool(used_a < used_b)
        sticky = tree.branches[q, B_STICKY]
        if sticky in (a, b):
            return bool(a == sticky)
    if held.work_classes[v, W_PRIORITY] != held.work_classes[w, W_PRIORITY]:
        return bool(held.work_classes[v, W_PRIORITY] > held.work_classes[w, W_PRIORITY])
    if held.workloads[a, J_SUBMITTED] != held.workloads[b, J_SUBMITTED]:
        return bool(held.workloads[a, J_SUBMITTED] < held.workloads[b, J_SUBMITTED])
    return bool(held.workloads[a, J_TIE] < held.workloads[b, J_TIE])


@kernel
def open_entry(book: Book, heads: Heads, cycle: int, e: int, q: int, j: int) -> None:
    """Put a head, or one that holds quota, on the desk, with the flavors it goes on with where that is not outdated."""
    held, entry = book.held, heads.entries[e]
    entry[:] = 0
    w = held.workloads[j, J_WORK_CLASS]
    entry[X_QUEUE], entry[X_WORKLOAD], entry[X_CLASS], entry[X_AGAIN] = q, j, w, held.tickets[j, T_AGAIN]
    entry[X_PRIORITY] = held.work_classes[w, W_PRIORITY]
    entry[X_SUBMITTED], entry[X_TIE] = held.workloads[j, J_SUBMITTED], held.workloads[j, J_TIE]
    replaced = held.tickets[j, T_REPLACES]
    if replaced >= 0 and held.tickets[replaced, T_BRANCH] == q and held.workloads[replaced, J_ENDING] == 0:
        entry[X_REPLACES] = replaced + 1
    ticket, root = held.tickets[j], book.tree.branches[q, B_ROOT]
    outdated = ticket[T_TRIED_GENERATION] < book.tree.branches[root, B_GENERATION]
    if cycle - ticket[T_TRIED_CYCLE] <= 1:
        outdated = False
    for slot in range(book.asked.tried.shape[1]):
        heads.tries[e, Y_RESUME, slot] = 0 if outdated else book.asked.tried[j, slot]
        heads.tries[e, Y_TRIED, slot] = 0  # of the entry that was here before


@kernel
def nominate(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find what entry e would take: all its pods if they fit, with preemption if need be, or as many as it may."""
    entry = d.heads.entries[e]
    entry[X_FIRST_TARGET], entry[X_TARGETS] = d.wish.marks[TARGETS], 0
    if book.held.tickets[entry[X_WORKLOAD], T_BLOCKED] != 0:
        entry[X_MODE], entry[X_CODE] = NO_FIT, book.held.tickets[entry[X_WORKLOAD], T_BLOCKED]
        return
    find_assignment(book, d, grove, turn, e)
    if entry[X_MODE] == PREEMPT:
        reserve_spots(book, d, grove, e)


@kernel
def find_assignment(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find what entry e would take, but for the spots of one that must preempt."""
    entry, asked = d.heads.entries[e], book.asked
    if entry[X_AGAIN] > 0:
        keep_counts(book, d.heads, e)
        try_counts(book, d, grove, turn, e)
        return
    scale(book.held, asked, d.heads, e, 0, 0)
    if try_counts(book, d, grove, turn, e) or asked.demands[entry[X_CLASS], D_PARTIAL] == 0:
        return
    spare = spare_pods(book.held, asked, entry[X_CLASS])
    low, high, good = 0, spare + 1, -1
    while low < high:
        middle = (low + high) // 2
        scale(book.held, asked, d.heads, e, middle, spare)
        if try_counts(book, d, grove, turn, e):
            high = good = middle
        else:
            low = middle + 1
    scale(book.held, asked, d.heads, e, max(good, 0), spare if good >= 0 else 0)
    try_counts(book, d, grove, turn, e)


@inlined
def reserve_spots(book: Book, d: Desk, grove: Grove | None, e: int) -> None:
    """Find the spots that an entry would have without its targets, or if nothing of ours ran: its claim to them."""
    if grove is not None:
        if d.heads.entries[e, X_AGAIN] != FAILED:
            find_claim(book, d, grove, e)


@kernel
def find_claim(book: Book, d: Desk, grove: Grove, e: int) -> None:
    """Find the spots of an entry that must preempt, for the rest of the cycle."""
    entry, targets = d.heads.entries[e], d.pool.targets
    first, end = entry[X_FIRST_TARGET], entry[X_FIRST_TARGET] + entry[X_TARGETS]
    forget_found(entry)
    if not ask_topology(book, d.heads, grove, e):
        return
    for i in range(first, end):
        free_spots(grove, book.held, targets[i, 0])
    if (search_as_if_empty(grove) if first == end else search_spots(grove, 0)) == 0:
        keep_found(book, d.heads, grove, e)
    for i in range(first, end):
        fill_spots(grove, book.held, targets[i, 0])


@inlined
def keep_counts(book: Book, heads: Heads, e: int) -> None:
    """Set the pod counts of an entry that holds quota: those it was granted, less what is done."""
    j, counts = heads.entries[e, X_WORKLOAD], book.asked.counts
    w = heads.entries[e, X_CLASS]
    first = book.held.work_classes[w, W_FIRST_SET]
    for ordinal in range(book.held.work_classes[w, W_SETS]):
        left = max(0, book.asked.pod_sets[first + ordinal, S_COUNT] - counts[j, 1, ordinal])
        heads.pods[e, ordinal] = min(counts[j, 0, ordinal], left)


@inlined
def spare_pods(held: Held, asked: Asked, w: int) -> int:
    """Pods that a work could do without."""
    spare, first = 0, held.work_classes[w, W_FIRST_SET]
    for s in range(first, first + held.work_classes[w, W_SETS]):
        spare += asked.pod_sets[s, S_COUNT] - asked.needs[s, M_LEAST]
    return spare


@kernel
def scale(held: Held, asked: Asked, heads: Heads, e: int, part: int, spare: int) -> None:
    """Set the pod counts: all that still need quota, or all less this part of those it could do without."""
    j, w = heads.entries[e, X_WORKLOAD], heads.entries[e, X_CLASS]
    first = held.work_classes[w, W_FIRST_SET]
    for s in range(first, first + held.work_classes[w, W_SETS]):
        ordinal, count = asked.needs[s, M_ORDINAL], asked.pod_sets[s, S_COUNT]
        if spare > 0:
            heads.pods[e, ordinal] = count - (count - asked.needs[s, M_LEAST]) * part // spare
        else:
            heads.pods[e, ordinal] = max(0, count - asked.counts[j, 1, ordinal])


@kernel
def try_counts(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> bool:
    """Assign flavors for the counts on the desk, and find victims where that takes some."""
    entry = d.heads.entries[e]
    d.wish.marks[TARGETS], entry[X_TARGETS] = entry[X_FIRST_TARGET], 0
    assign(book, d, turn, e)
    weigh_topology(book, d, grove, e)
    mode = entry[X_MODE]
    if mode == FIT:
        return True
    if mode != PREEMPT:
        return False
    request_assigned(book, d.heads, d.wish, e)
    q, j = entry[X_QUEUE], entry[X_WORKLOAD]
    if turn.places == 1:  # places are seen when the entry is settled: here it is enough that quota could be had
        entry[X_TARGETS] = find_targets(book.tree, book.held, d.pool, d.wish, None, turn.fair, q, j)
    else:
        entry[X_TARGETS] = find_targets(book.tree, book.held, d.pool, d.wish, grove, turn.fair, q, j)
    return bool(entry[X_TARGETS] > 0)


@kernel
def request_assigned(book: Book, heads: Heads, wish: Wish, e: int) -> None:
    """Request everything that entry e was assigned."""
    wish.marks[REQUESTED] = 0
    w, choice = heads.entries[e, X_CLASS], heads.choice[e]
    first = book.asked.demands[w, D_FIRST_ASK]
    for a in range(book.asked.demands[w, D_ASKS]):
        if choice[I_LOT, a] != 0:
            need = 1 if choice[I_MODE, a] == PREEMPT else 0
            request(wish, choice[I_LOT, a] - 1, amount_of(book, heads, e, first + a), need)


@kernel
def nominate_again(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find anew what entry e would take, bound to the flavors it was nominated for."""
    choice = d.heads.choice[e]
    for a in range(choice.shape[1]):
        choice[I_NOMINATED, a] = choice[I_LOT, a]
    nominate_bound(book, d, grove, turn, e)


@kernel
def nominate_bound(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find anew what entry e would take, bound to the flavors that are noted as those of a first nomination."""
    for slot in range(d.heads.tries.shape[2]):
        d.heads.tries[e, Y_RESUME, slot] = 0
    d.heads.entries[e, X_RESTRICTED] = 1
    nominate(book, d, grove, turn, e)
    d.heads.entries[e, X_RESTRICTED] = 0
