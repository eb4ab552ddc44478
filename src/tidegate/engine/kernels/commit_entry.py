"""What a settled entry changes: quota granted, victims told to go, and the decisions that say so.

Must not know: why an entry may have it.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import (
    I_LEVEL,
    I_LOT,
    X_AGAIN,
    X_BORROW,
    X_CLASS,
    X_CODE,
    X_FIRST_TARGET,
    X_QUEUE,
    X_REPLACES,
    X_TARGETS,
    X_WORKLOAD,
    Heads,
    Pool,
)
from tidegate.engine.kernels.domain_assignment import hold_found
from tidegate.engine.kernels.entry_request import whole_amount
from tidegate.engine.kernels.gang_placement import NEXT_DECISION, O_CAUSE, O_EVIDENCE, O_NODE, O_POD, Output, write
from tidegate.engine.kernels.node_fit import ASSUMED
from tidegate.engine.kernels.pending_queue import unlink
from tidegate.engine.kernels.quota import add_usage
from tidegate.engine.kernels.quota_removal import C_AMOUNT, C_LOT, take_out
from tidegate.engine.topology.cycle_view import Grove
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Claims, Counter, Hot
from tidegate.state.quota_tables import (
    A_POD_SET,
    B_EPOCH,
    B_FIRST_HOLDER,
    B_GENERATION,
    B_PARENT,
    B_ROOT,
    B_STICKY,
    B_STIRRED,
    D_ASKS,
    D_BRANCH,
    D_ENTRANCE,
    D_FIRST_ASK,
    M_ORDINAL,
    SPOT_COUNT,
    SPOT_LEAF,
    SPOT_SET,
    T_AGAIN,
    T_BRANCH,
    T_DECISION,
    T_ENTRANCE,
    T_FIRST_SPOT,
    T_GRANTED,
    T_HELD,
    T_LEAVING,
    T_NEXT,
    T_PREV,
    T_SPOTS,
    Again,
    Asked,
    Book,
    Held,
    Tree,
)
from tidegate.state.tables import (
    J_ENDING,
    J_EVICTIONS,
    J_HELD_CODE,
    J_NUMBER,
    J_PHASE,
    J_PREEMPTED_IN,
    J_SINCE,
    J_STARTED_IN,
    J_WORK_CLASS,
    S_COUNT,
    W_FIRST_SET,
    W_SETS,
    Phase,
)

ADMIT, PREEMPT, RELEASE = int(DecisionKind.ADMIT), int(DecisionKind.PREEMPT), int(DecisionKind.RELEASE)
ASSIGN, EVICT = int(DecisionKind.ASSIGN), int(DecisionKind.EVICT)
DOMAIN_ASSIGNED, DOMAIN_REPLACED = int(Reason.DOMAIN_ASSIGNED), int(Reason.DOMAIN_REPLACED)
FAILED = int(Again.FAILED)
ADMITTED = int(Reason.ADMITTED)
ADMITTED_BORROWING = int(Reason.ADMITTED_BORROWING)
ADMITTED_PARTLY = int(Reason.ADMITTED_PARTLY)
REPLACED = int(Reason.REPLACED)
LEAVING = int(Phase.LEAVING)
SHIFTED, ROOM_TAKEN = int(Claims.SHIFTED), int(Claims.ROOM_TAKEN)
OUTSIDE, REPEATS, CLAIMS = int(Counter.OUTSIDE), int(Counter.REPEATS), int(Counter.CLAIMS)
NOBODY = -1


@kernel
def grant(hot: Hot, book: Book, heads: Heads, grove: Grove | None, now_ms: int, e: int, out: Output) -> None:
    """Let entry e hold what it was assigned, and write it down, one row an ask."""
    asked, choice = book.asked, heads.choice[e]
    q, j, w = heads.entries[e, X_QUEUE], heads.entries[e, X_WORKLOAD], heads.entries[e, X_CLASS]
    first, asks, claims = asked.demands[w, D_FIRST_ASK], asked.demands[w, D_ASKS], book.held.claims[j]
    code, start = admission_code(book.held, asked, heads, e), out.written[0]
    for a in range(asks):
        ordinal = asked.needs[asked.asks[first + a, A_POD_SET], M_ORDINAL]
        count, lot = heads.pods[e, ordinal], choice[I_LOT, a]
        amount = whole_amount(asked, heads, e, first + a) if lot != 0 else 0
        claims[C_LOT, a], claims[C_AMOUNT, a] = lot, amount
        if lot != 0 and count > 0:
            row = out.rows[write(out, ADMIT, j, code)]
            row[O_POD], row[O_EVIDENCE], row[O_EVIDENCE + 1] = ordinal, lot - 1, amount
            row[O_EVIDENCE + 2], row[O_EVIDENCE + 3] = count, choice[I_LEVEL, a]
            add_usage(book.tree, q, lot - 1, amount)
    if out.written[0] == start:  # it asks for nothing that is counted
        out.rows[write(out, ADMIT, j, code), O_EVIDENCE] = NOBODY
    for ordinal in range(book.held.work_classes[w, W_SETS]):
        asked.counts[j, 0, ordinal] = heads.pods[e, ordinal]
    unlink(hot, j)
    enlist(book.tree, book.held, q, j, asked.demands[w, D_ENTRANCE], now_ms)
    grant_spots(book, heads, grove, e, DOMAIN_ASSIGNED, out)
    book.held.tickets[j, T_DECISION] = hot.counters[NEXT_DECISION] + start  # ids are given in the order of writing
    hot.workloads[j, J_PHASE], hot.workloads[j, J_SINCE], hot.workloads[j, J_HELD_CODE] = ASSUMED, now_ms, 0
    hot.workloads[j, J_STARTED_IN] = hot.counters[OUTSIDE]


@inlined
def grant_spots(book: Book, heads: Heads, grove: Grove | None, e: int, code: int, out: Output) -> None:
    """Let entry e hold the spots that were found for it, if there is a topology, and write them down."""
    if grove is not None:
        hold_found(book, heads, grove, e)
        tell_spots(book.held, grove, heads.entries[e, X_WORKLOAD], code, out)


@kernel
def tell_spots(held: Held, grove: Grove, j: int, code: int, out: Output) -> None:
    """Write down the spots of workload j, one row each."""
    first = held.tickets[j, T_FIRST_SPOT]
    for i in range(first, first + held.tickets[j, T_SPOTS]):
        row, leaf = out.rows[write(out, ASSIGN, j, code)], grove.spots[i, SPOT_LEAF]
        row[O_POD] = grove.spots[i, SPOT_SET]
        if leaf >= 0:
            row[O_NODE] = grove.hosts.rows[grove.hosts.start[leaf]]
        row[O_EVIDENCE] = grove.spots[i, SPOT_COUNT]


@inlined
def grant_again(hot: Hot, book: Book, heads: Heads, grove: Grove | None, e: int, out: Output) -> None:
    """Let entry e, which holds quota, hold other spots than before."""
    ticket = book.held.tickets[heads.entries[e, X_WORKLOAD]]
    code = DOMAIN_REPLACED if heads.entries[e, X_AGAIN] == FAILED else DOMAIN_ASSIGNED
    grant_spots(book, heads, grove, e, code, out)
    ticket[T_AGAIN], ticket[T_HELD] = 0, NOBODY
    hot.workloads[heads.entries[e, X_WORKLOAD], J_HELD_CODE] = 0


@kernel
def evict(hot: Hot, tickets: I64, entry: I64, now_ms: int, out: Output) -> None:
    """Tell the workload of an entry to go: it holds what it holds until it is gone."""
    j, code = entry[X_WORKLOAD], entry[X_CODE]
    tickets[j, T_LEAVING], tickets[j, T_AGAIN] = 1, 0
    write(out, EVICT, j, code)
    row = hot.workloads[j]
    row[J_PHASE], row[J_SINCE], row[J_HELD_CODE] = LEAVING, now_ms, code
    row[J_EVICTIONS] += 1
    hot.counters[CLAIMS] |= SHIFTED


@kernel
def admission_code(held: Held, asked: Asked, heads: Heads, e: int) -> int:
    """The Reason of an admission: whole or partly, borrowing or not."""
    w = heads.entries[e, X_CLASS]
    first = held.work_classes[w, W_FIRST_SET]
    for s in range(first, first + held.work_classes[w, W_SETS]):
        if heads.pods[e, asked.needs[s, M_ORDINAL]] < asked.pod_sets[s, S_COUNT]:
            return ADMITTED_PARTLY
    return ADMITTED_BORROWING if heads.entries[e, X_BORROW] > 0 else ADMITTED


@kernel
def enlist(tree: Tree, held: Held, q: int, j: int, entrance: int, granted_ms: int) -> None:
    """Put workload j among the holders of a queue's quota."""
    after, ticket = tree.branches[q, B_FIRST_HOLDER], held.tickets[j]
    ticket[T_BRANCH], ticket[T_GRANTED], ticket[T_ENTRANCE] = q, granted_ms, entrance
    ticket[T_NEXT], ticket[T_PREV], ticket[T_LEAVING], ticket[T_DECISION] = after, NOBODY, 0, NOBODY
    if after >= 0:
        held.tickets[after, T_PREV] = j
    tree.branches[q, B_FIRST_HOLDER] = j
    tree.branches[tree.branches[q, B_ROOT], B_GENERATION] += 1
    if tree.branches[q, B_STICKY] == j:
        tree.branches[q, B_STICKY] = NOBODY


@kernel
def give_up(book: Book, j: int) -> None:
    """Workload j holds no quota any more; what it had of the topology is free already."""
    tree, held = book.tree, book.held
    ticket = held.tickets[j]
    q = ticket[T_BRANCH]
    if q < 0:
        return
    take_out(tree, held, j)
    before, after = ticket[T_PREV], ticket[T_NEXT]
    if before >= 0:
        held.tickets[before, T_NEXT] = after
    else:
        tree.branches[q, B_FIRST_HOLDER] = after
    if after >= 0:
        held.tickets[after, T_PREV] = before
    held.claims[j, :, :] = 0
    book.asked.counts[j, 0, :] = 0
    book.asked.counts[j, 2, :] = 0
    ticket[T_BRANCH], ticket[T_NEXT], ticket[T_PREV], ticket[T_LEAVING] = NOBODY, NOBODY, NOBODY, 0
    ticket[T_FIRST_SPOT], ticket[T_SPOTS], ticket[T_AGAIN] = 0, 0, 0
    tree.branches[tree.branches[q, B_ROOT], B_GENERATION] += 1


@entry
def give_up_all(book: Book, rows: I64) -> None:
    """Workloads hold no quota any more; who waits in their trees may be tried again."""
    branches = book.tree.branches
    for i in range(len(rows)):
        j = rows[i]
        q = book.held.tickets[j, T_BRANCH]
        if q >= 0:
            if book.held.tickets[j, T_SPOTS] > 0:
                stir_all(branches)
            give_up(book, j)
            branches[branches[q, B_ROOT], B_EPOCH] += 1
            branches[branches[q, B_ROOT], B_STIRRED] = 1
        q = book.asked.demands[book.held.workloads[j, J_WORK_CLASS], D_BRANCH]
        if q >= 0 and branches[q, B_STICKY] == j:
            branches[q, B_STICKY] = NOBODY


@inlined
def stir_all(branches: I64) -> None:
    """Spots are free: whoever waits may be tried again, in whatever tree."""
    for b in range(len(branches)):
        if branches[b, B_PARENT] < 0:
            branches[b, B_EPOCH] += 1
            branches[b, B_STIRRED] = 1


@kernel
def send_off(hot: Hot, tickets: I64, pool: Pool, entry: I64, now_ms: int, out: Output) -> int:
    """Tell the victims of an entry to go; those told before are waited for. Return how many were told."""
    told, cause = 0, hot.workloads[entry[X_WORKLOAD], J_NUMBER]
    for i in range(entry[X_FIRST_TARGET], entry[X_FIRST_TARGET] + entry[X_TARGETS]):
        victim, code = pool.targets[i, 0], pool.targets[i, 1]
        if tickets[victim, T_LEAVING] == 1:
            continue
        told += 1
        tickets[victim, T_LEAVING] = 1
        out.rows[write(out, PREEMPT, victim, code), O_CAUSE] = cause
        row = hot.workloads[victim]
        row[J_PHASE], row[J_SINCE], row[J_HELD_CODE] = LEAVING, now_ms, code
        row[J_EVICTIONS] += 1
        if row[J_PREEMPTED_IN] == hot.counters[OUTSIDE]:
            hot.counters[REPEATS] += 1
        row[J_PREEMPTED_IN] = hot.counters[OUTSIDE]
    return told


@kernel
def release_replaced(hot: Hot, held: Held, entry: I64, now_ms: int, out: Output) -> None:
    """Let go of the slice that an admitted entry takes over from. It is not to run again when it is gone."""
    replaced = entry[X_REPLACES] - 1
    row, workload = out.rows[write(out, RELEASE, replaced, REPLACED)], hot.workloads[replaced]
    row[O_POD], row[O_CAUSE] = NOBODY, hot.workloads[entry[X_WORKLOAD], J_NUMBER]
    workload[J_ENDING] = 1
    if held.tickets[replaced, T_LEAVING] == 0:
        held.tickets[replaced, T_LEAVING] = 1
        hot.counters[CLAIMS] |= SHIFTED
        workload[J_PHASE], workload[J_SINCE], workload[J_HELD_CODE] = LEAVING, now_ms, REPLACED
