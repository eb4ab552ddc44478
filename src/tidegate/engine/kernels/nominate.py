"""What the head of a queue would take: flavors, victims, fewer pods if it may; nothing is changed by asking.

Must not know: who else is asking in this cycle.
"""

from __future__ import annotations

from tidegate.engine.kernels.classic_victims import find_targets
from tidegate.engine.kernels.columns import choices, entries, flavor_tries
from tidegate.engine.kernels.cycle_scratch import (
    FIT,
    NO_FIT,
    PREEMPT,
    REQUESTED,
    TARGETS,
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
from tidegate.state.quota_tables import Asked, Book, Held, Tree
from tidegate.state.tables import (
    pod_set_needs,
    pod_sets,
    queue_requests,
    quota_nodes,
    quota_reservations,
    work_classes,
    workloads,
)
from tidegate.state.tables.quota_reservations import Again

CHECK_FAILED, OUTSIDE_LIMITS = int(Reason.CHECK_FAILED), int(Reason.OUTSIDE_LIMITS)
NOBODY = -1
FAILED = int(Again.FAILED)


@kernel
def head_of(tree: Tree, held: Held, demands: I64, now_ms: int, q: int) -> int:
    """The workload of a queue that is tried next; NOBODY: none."""
    if tree.branches[q, quota_nodes.CLOSED] == 1:
        return NOBODY
    epoch, strict = (
        tree.branches[tree.branches[q, quota_nodes.ROOT], quota_nodes.EPOCH],
        tree.branches[q, quota_nodes.STRICT],
    )
    best = NOBODY
    w = tree.branches[q, quota_nodes.FIRST_CLASS]
    while w >= 0:
        if demands[w, queue_requests.REFUSED] == 0 and demands[w, queue_requests.HELD] != epoch:
            j = held.work_classes[w, work_classes.HEAD]
            while j >= 0 and not (
                held.workloads[j, workloads.RESERVES] == 0 and may_be_tried(held.tickets[j], strict, now_ms, epoch)
            ):
                j = held.workloads[j, workloads.NEXT]
            if j >= 0 and (best < 0 or goes_first(tree, held, demands, q, j, best)):
                best = j
        w = demands[w, queue_requests.NEXT_CLASS]
    sticky = tree.branches[q, quota_nodes.STICKY]
    if (
        sticky >= 0
        and tree.branches[q, quota_nodes.USAGE_BASED] == 0
        and held.workloads[sticky, workloads.RESERVES] == 0
    ):
        is_held = demands[held.workloads[sticky, workloads.WORK_CLASS], queue_requests.HELD] == epoch
        if not is_held and may_be_tried(held.tickets[sticky], strict, now_ms, epoch):
            best = sticky
    return int(best)


@inlined
def may_be_tried(ticket: I64, strict: int, now_ms: int, epoch: int) -> bool:
    """Whether a waiting workload may be tried now.

    In a strict queue one that no queue may take keeps its place in the line, and those behind it wait.
    """
    if ticket[quota_reservations.BLOCKED] != 0 and (
        strict == 0 or ticket[quota_reservations.BLOCKED] not in (CHECK_FAILED, OUTSIDE_LIMITS)
    ):
        return False
    return bool(ticket[quota_reservations.HELD] != epoch and ticket[quota_reservations.NOT_BEFORE_MS] <= now_ms)


@inlined
def goes_first(tree: Tree, held: Held, demands: I64, q: int, a: int, b: int) -> bool:
    """Whether workload a of a queue goes before workload b."""
    v, w = held.workloads[a, workloads.WORK_CLASS], held.workloads[b, workloads.WORK_CLASS]
    if tree.branches[q, quota_nodes.USAGE_BASED] == 1:
        used_a, used_b = (
            held.used[demands[v, queue_requests.ENTRANCE], 0],
            held.used[demands[w, queue_requests.ENTRANCE], 0],
        )
        if used_a != used_b:
            return bool(used_a < used_b)
        sticky = tree.branches[q, quota_nodes.STICKY]
        if sticky in (a, b):
            return bool(a == sticky)
    if held.work_classes[v, work_classes.PRIORITY] != held.work_classes[w, work_classes.PRIORITY]:
        return bool(held.work_classes[v, work_classes.PRIORITY] > held.work_classes[w, work_classes.PRIORITY])
    if held.workloads[a, workloads.SUBMITTED_MS] != held.workloads[b, workloads.SUBMITTED_MS]:
        return bool(held.workloads[a, workloads.SUBMITTED_MS] < held.workloads[b, workloads.SUBMITTED_MS])
    return bool(held.workloads[a, workloads.TIE] < held.workloads[b, workloads.TIE])


@kernel
def open_entry(book: Book, heads: Heads, cycle: int, e: int, q: int, j: int) -> None:
    """Put a head, or one that holds quota, on the desk, with the flavors it goes on with where that is not outdated."""
    held, entry = book.held, heads.entries[e]
    entry[:] = 0
    w = held.workloads[j, workloads.WORK_CLASS]
    entry[entries.QUEUE], entry[entries.WORKLOAD], entry[entries.CLASS], entry[entries.AGAIN] = (
        q,
        j,
        w,
        held.tickets[j, quota_reservations.AGAIN],
    )
    entry[entries.PRIORITY] = held.work_classes[w, work_classes.PRIORITY]
    entry[entries.SUBMITTED], entry[entries.TIE] = (
        held.workloads[j, workloads.SUBMITTED_MS],
        held.workloads[j, workloads.TIE],
    )
    replaced = held.tickets[j, quota_reservations.REPLACES]
    if (
        replaced >= 0
        and held.tickets[replaced, quota_reservations.BRANCH] == q
        and held.workloads[replaced, workloads.ENDING] == 0
    ):
        entry[entries.REPLACES] = replaced + 1
    ticket, root = held.tickets[j], book.tree.branches[q, quota_nodes.ROOT]
    outdated = ticket[quota_reservations.TRIED_GENERATION] < book.tree.branches[root, quota_nodes.GENERATION]
    if cycle - ticket[quota_reservations.TRIED_CYCLE] <= 1:
        outdated = False
    for slot in range(book.asked.tried.shape[1]):
        heads.tries[e, flavor_tries.RESUME, slot] = 0 if outdated else book.asked.tried[j, slot]
        heads.tries[e, flavor_tries.TRIED, slot] = 0  # of the entry that was here before


@kernel
def nominate(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find what entry e would take: all its pods if they fit, with preemption if need be, or as many as it may."""
    entry = d.heads.entries[e]
    entry[entries.FIRST_TARGET], entry[entries.TARGETS] = d.wish.marks[TARGETS], 0
    if book.held.tickets[entry[entries.WORKLOAD], quota_reservations.BLOCKED] != 0:
        entry[entries.MODE], entry[entries.CODE] = (
            NO_FIT,
            book.held.tickets[entry[entries.WORKLOAD], quota_reservations.BLOCKED],
        )
        return
    find_assignment(book, d, grove, turn, e)
    if entry[entries.MODE] == PREEMPT:
        reserve_spots(book, d, grove, e)


@kernel
def find_assignment(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find what entry e would take, but for the spots of one that must preempt."""
    entry, asked = d.heads.entries[e], book.asked
    if entry[entries.AGAIN] > 0:
        keep_counts(book, d.heads, e)
        try_counts(book, d, grove, turn, e)
        return
    scale(book.held, asked, d.heads, e, 0, 0)
    if try_counts(book, d, grove, turn, e) or asked.demands[entry[entries.CLASS], queue_requests.PARTIAL] == 0:
        return
    spare = spare_pods(book.held, asked, entry[entries.CLASS])
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
        if d.heads.entries[e, entries.AGAIN] != FAILED:
            find_claim(book, d, grove, e)


@kernel
def find_claim(book: Book, d: Desk, grove: Grove, e: int) -> None:
    """Find the spots of an entry that must preempt, for the rest of the cycle."""
    entry, targets = d.heads.entries[e], d.pool.targets
    first, end = entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]
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
    j, counts = heads.entries[e, entries.WORKLOAD], book.asked.counts
    w = heads.entries[e, entries.CLASS]
    first = book.held.work_classes[w, work_classes.FIRST_SET]
    for ordinal in range(book.held.work_classes[w, work_classes.SETS]):
        left = max(0, book.asked.pod_sets[first + ordinal, pod_sets.COUNT] - counts[j, 1, ordinal])
        heads.pods[e, ordinal] = min(counts[j, 0, ordinal], left)


@inlined
def spare_pods(held: Held, asked: Asked, w: int) -> int:
    """Pods that a work could do without."""
    spare, first = 0, held.work_classes[w, work_classes.FIRST_SET]
    for s in range(first, first + held.work_classes[w, work_classes.SETS]):
        spare += asked.pod_sets[s, pod_sets.COUNT] - asked.needs[s, pod_set_needs.LEAST]
    return spare


@kernel
def scale(held: Held, asked: Asked, heads: Heads, e: int, part: int, spare: int) -> None:
    """Set the pod counts: all that still need quota, or all less this part of those it could do without."""
    j, w = heads.entries[e, entries.WORKLOAD], heads.entries[e, entries.CLASS]
    first = held.work_classes[w, work_classes.FIRST_SET]
    for s in range(first, first + held.work_classes[w, work_classes.SETS]):
        ordinal, count = asked.needs[s, pod_set_needs.ORDINAL], asked.pod_sets[s, pod_sets.COUNT]
        if spare > 0:
            heads.pods[e, ordinal] = count - (count - asked.needs[s, pod_set_needs.LEAST]) * part // spare
        else:
            heads.pods[e, ordinal] = max(0, count - asked.counts[j, 1, ordinal])


@kernel
def try_counts(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> bool:
    """Assign flavors for the counts on the desk, and find victims where that takes some."""
    entry = d.heads.entries[e]
    d.wish.marks[TARGETS], entry[entries.TARGETS] = entry[entries.FIRST_TARGET], 0
    assign(book, d, turn, e)
    weigh_topology(book, d, grove, e)
    mode = entry[entries.MODE]
    if mode == FIT:
        return True
    if mode != PREEMPT:
        return False
    request_assigned(book, d.heads, d.wish, e)
    q, j = entry[entries.QUEUE], entry[entries.WORKLOAD]
    if turn.places == 1:  # places are seen when the entry is settled: here it is enough that quota could be had
        entry[entries.TARGETS] = find_targets(book.tree, book.held, d.pool, d.wish, None, turn.fair, q, j)
    else:
        entry[entries.TARGETS] = find_targets(book.tree, book.held, d.pool, d.wish, grove, turn.fair, q, j)
    return bool(entry[entries.TARGETS] > 0)


@kernel
def request_assigned(book: Book, heads: Heads, wish: Wish, e: int) -> None:
    """Request everything that entry e was assigned."""
    wish.marks[REQUESTED] = 0
    w, choice = heads.entries[e, entries.CLASS], heads.choice[e]
    first = book.asked.demands[w, queue_requests.FIRST_ASK]
    for a in range(book.asked.demands[w, queue_requests.ASKS]):
        if choice[choices.LOT, a] != 0:
            need = 1 if choice[choices.MODE, a] == PREEMPT else 0
            request(wish, choice[choices.LOT, a] - 1, amount_of(book, heads, e, first + a), need)


@kernel
def nominate_again(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find anew what entry e would take, bound to the flavors it was nominated for."""
    choice = d.heads.choice[e]
    for a in range(choice.shape[1]):
        choice[choices.NOMINATED, a] = choice[choices.LOT, a]
    nominate_bound(book, d, grove, turn, e)


@kernel
def nominate_bound(book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int) -> None:
    """Find anew what entry e would take, bound to the flavors that are noted as those of a first nomination."""
    for slot in range(d.heads.tries.shape[2]):
        d.heads.tries[e, flavor_tries.RESUME, slot] = 0
    d.heads.entries[e, entries.RESTRICTED] = 1
    nominate(book, d, grove, turn, e)
    d.heads.entries[e, entries.RESTRICTED] = 0
