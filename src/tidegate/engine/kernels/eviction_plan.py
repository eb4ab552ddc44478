"""Room for an entry that finds no place: victims are evicted for it, and the places they leave are reserved.

Work that is leaving already is as good as gone, and what it leaves is reserved for those it was evicted for.
"""

from __future__ import annotations

from tidegate.engine.kernels.candidates import STAYS
from tidegate.engine.kernels.chain import is_ahead
from tidegate.engine.kernels.cycle_quota import shift_claimed, shift_promised
from tidegate.engine.kernels.desk import (
    CANDIDATES,
    K_CLAIM,
    R_NEED,
    REQUESTED,
    TARGETS,
    X_FIRST_TARGET,
    X_QUEUE,
    X_TARGETS,
    X_WORKLOAD,
    Desk,
    Turn,
)
from tidegate.engine.kernels.fair_victims import stays_fair
from tidegate.engine.kernels.fit import move_pod
from tidegate.engine.kernels.granted import plan_pods
from tidegate.engine.kernels.grove import G_ASKED, Grove
from tidegate.engine.kernels.moves import find_moves, open_moves
from tidegate.engine.kernels.nominate import request_assigned
from tidegate.engine.kernels.passed_over import are_reserved
from tidegate.engine.kernels.place import Output
from tidegate.engine.kernels.refill import is_free
from tidegate.engine.kernels.registry import inlined, kernel
from tidegate.engine.kernels.removal import put_back, take_out
from tidegate.engine.kernels.reservations import (
    RESERVED,
    drop_reservation,
    release_all,
    reserve_places,
    withhold_all,
    withhold_all_in_full,
)
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.shown import more_devices
from tidegate.engine.kernels.spots import ask_topology
from tidegate.engine.kernels.victim_domains import fits_topology, search_domains, spots_of_reserved
from tidegate.engine.kernels.victim_quota import (
    NO_WAY,
    close_quota,
    eviction_reason,
    fits_quota,
    open_candidates,
    open_quota,
    shift_quota,
    ways_to_search,
)
from tidegate.engine.kernels.victim_scratch import (
    BEST_PLANNED,
    BEST_TAKEN,
    CANDIDATE,
    LEVELS,
    MOST_LEVEL,
    VictimSearch,
)
from tidegate.engine.kernels.victim_search import list_levels, list_pods, open_search, search_victims, shift_pods
from tidegate.model.columns import I64
from tidegate.model.reasons import Reason
from tidegate.state import reserved_places
from tidegate.state.cluster import Hot
from tidegate.state.shares import D_BRANCH, T_BRANCH, Book
from tidegate.state.tables import J_ENDING, J_HELD_CODE, J_RESERVES, J_WORK_CLASS, Reserves

NOBODY = -1
PREEMPTED_FOR = int(Reserves.PREEMPTED_FOR)

#: Why work leaves that is to start again at once: something of it broke.
BROKEN = tuple(int(code) for code in (Reason.NODE_LOST, Reason.DEVICE_LOST, Reason.GANG_BROKEN, Reason.BIND_FAILED))

#: What came of it: nothing; places are reserved and only those who leave are waited for; there are victims to evict.
NO_ROOM, AWAITED, EVICTIONS = range(3)


@kernel
def plan_evictions(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, turn: Turn, e: int, out: Output
) -> int:
    """Find whom to evict so that entry e has quota and places, and reserve these; its targets are the victims."""
    entry, s = d.heads.entries[e], d.victims
    j, sets = entry[X_WORKLOAD], plan_pods(book, d.heads, e)
    plan = d.heads.plan[:sets]
    request_assigned(book, d.heads, d.wish, e)
    for i in range(d.wish.marks[REQUESTED]):
        d.wish.lots[i, R_NEED] = 1  # of whatever it asks for, somebody may be in its way
    entry[X_FIRST_TARGET], entry[X_TARGETS] = d.wish.marks[TARGETS], 0
    awaits = may_await(hot, book, d, turn, entry[X_QUEUE], j)
    release_all(hot)
    lift_leaving(hot, book, grove, s, j, 1)
    shift_promised(book.tree, d, 1)
    shift_claimed(book.tree, d, 1)
    withhold_all_in_full(hot, j)
    came = look_for_room(hot, rule, book, d, grove, turn, e, plan, awaits, out)
    release_all(hot)
    shift_claimed(book.tree, d, -1)
    shift_promised(book.tree, d, -1)
    lift_leaving(hot, book, grove, s, j, -1)
    if came == NO_ROOM and hot.workloads[j, J_RESERVES] == PREEMPTED_FOR:
        drop_reservation(hot, j)
    withhold_all(hot, j)
    return came


@kernel
def may_await(hot: Hot, book: Book, d: Desk, turn: Turn, q: int, j: int) -> bool:
    """Whether workload j may keep the room of those who leave: they leave for it, or it could have evicted one."""
    if hot.workloads[j, J_RESERVES] == PREEMPTED_FOR:
        return True
    if d.victims.leaving[0] == 0 or ways_to_search(book, d, turn.fair, q, j, 0) == NO_WAY:
        return False
    for c in range(d.wish.marks[CANDIDATES]):
        if d.pool.candidates[c, K_CLAIM] < STAYS:
            return True
    return False


@kernel
def look_for_room(
    hot: Hot,
    rule: Rule,
    book: Book,
    d: Desk,
    grove: Grove | None,
    turn: Turn,
    e: int,
    plan: I64,
    awaits: bool,  # noqa: FBT001 - kernels take no keywords
    out: Output,
) -> int:
    """`plan_evictions`, with those who leave out of the way."""
    entry, s = d.heads.entries[e], d.victims
    q, j, by_topology = entry[X_QUEUE], entry[X_WORKLOAD], asks_topology(book, d, grove, e)
    open_search(s)
    open_quota(book, d, s, 0, q, 1)
    if fits_quota(book, d, s.numbers):
        if are_reserved(hot, j, plan) and are_free(hot, j):
            keep_reserved_spots(hot, book, d, grove, e, plan)
            return AWAITED
        if awaits and search_at_level(hot, rule, book, d, grove, s, plan, e if by_topology else NOBODY, out):
            reserve_places(hot, j, s.best_plan[: s.numbers[BEST_PLANNED]], PREEMPTED_FOR)
            return AWAITED
    for again in range(2):
        way = ways_to_search(book, d, turn.fair, q, j, again)
        if way == NO_WAY:
            break
        open_search(s)
        open_quota(book, d, s, turn.fair, q, way)
        open_candidates(hot, d, s)
        found = find_victims(hot, rule, book, d, grove, s, plan, e if by_topology else NOBODY, out)
        close_quota(book, d, s)
        if found and note_victims(hot, rule, book, d, grove, s, turn.fair, e, out):
            reserve_places(hot, j, s.best_plan[: s.numbers[BEST_PLANNED]], PREEMPTED_FOR)
            return EVICTIONS
    if turn.fair == 0 and grove is None and open_moves(hot, book, d, s, q, j):
        found = find_victims(hot, rule, book, d, grove, s, plan, NOBODY, out) and find_moves(hot, rule, book, d, s, q)
        if found and note_victims(hot, rule, book, d, grove, s, turn.fair, e, out):
            reserve_places(hot, j, s.best_plan[: s.numbers[BEST_PLANNED]], PREEMPTED_FOR)
            return EVICTIONS
    return NO_ROOM


@inlined
def asks_topology(book: Book, d: Desk, grove: Grove | None, e: int) -> bool:
    """Whether the pods of entry e are placed by topology; if so, they are asked for."""
    if grove is not None:
        return ask_topology(book, d.heads, grove, e) and grove.marks[G_ASKED] > 0
    return False


@inlined
def keep_reserved_spots(hot: Hot, book: Book, d: Desk, grove: Grove | None, e: int, plan: I64) -> None:
    """Keep as the spots of entry e, where its pods are placed by topology, those of its reserved places."""
    if grove is not None:
        spots_of_reserved(hot, book, d.heads, grove, e, plan)


@inlined
def search_at_level(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, s: VictimSearch, plan: I64, e: int, out: Output
) -> bool:
    """Search victims up to the highest level that may be taken: for entry e by topology, for NOBODY without."""
    if grove is not None:
        if e >= 0:
            return search_domains(hot, rule, book, d, grove, s, plan, e, out)
    return search_victims(hot, rule, book, d, grove, s, plan)


@kernel
def find_victims(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, s: VictimSearch, plan: I64, e: int, out: Output
) -> bool:
    """Find the victims, from as low a level as will do, that lose the least work; they and their plan are the best."""
    list_levels(s)
    list_pods(hot, s)
    low, high, found = 0, s.numbers[LEVELS], False
    while low < high:
        # The highest first: mostly nobody can be helped, or there is one level.
        middle = high - 1 if not found else (low + high) // 2
        s.numbers[MOST_LEVEL] = s.levels[middle]
        if search_at_level(hot, rule, book, d, grove, s, plan, e, out):
            found, high = True, middle
        elif not found:
            return False
        else:
            low = middle + 1
    return found


@kernel
def note_victims(
    hot: Hot, rule: Rule, book: Book, d: Desk, grove: Grove | None, s: VictimSearch, fair: int, e: int, out: Output
) -> bool:
    """Write the victims down as the targets of entry e, and its spots; False: it would not be fair to evict them."""
    entry, targets, start = d.heads.entries[e], d.pool.targets, d.wish.marks[TARGETS]
    for i in range(s.numbers[BEST_TAKEN]):
        victim = s.best[i]
        targets[start + i, 0] = victim
        targets[start + i, 1] = eviction_reason(d, s.numbers, s.workloads[victim, CANDIDATE])
        shift_pods(hot, victim, 1)
        shift_quota(hot, book, grove, victim, 1)
    d.wish.marks[TARGETS] = start + s.numbers[BEST_TAKEN]
    fine = fair == 0 or stays_fair(book.tree, book.held, d.pool, d.wish, fair, entry[X_QUEUE], start)
    if grove is not None:
        if asks_topology(book, d, grove, e):
            fits_topology(hot, rule, book, d, grove, e, plan_pods(book, d.heads, e), out)
    for i in range(s.numbers[BEST_TAKEN]):
        shift_pods(hot, s.best[i], -1)
        shift_quota(hot, book, grove, s.best[i], -1)
    if fine:
        entry[X_FIRST_TARGET], entry[X_TARGETS] = start, s.numbers[BEST_TAKEN]
    else:
        d.wish.marks[TARGETS] = start
    return fine


@kernel
def lift_leaving(hot: Hot, book: Book, grove: Grove | None, s: VictimSearch, j: int, sign: int) -> None:
    """Take those who are leaving, and leave room to workload j, out of nodes and quota (sign 1), or put them back."""
    for i in range(s.leaving[0]):
        if not comes_back_ahead(hot, book, s.leaving[1 + i], j):
            shift_pods(hot, s.leaving[1 + i], sign)
            shift_quota(hot, book, grove, s.leaving[1 + i], sign)


@inlined
def comes_back_ahead(hot: Hot, book: Book, leaver: int, j: int) -> bool:
    """Whether a workload that leaves will wait again in the queue of workload j, ahead of it: it broke by itself."""
    if hot.workloads[leaver, J_ENDING] == 1 or hot.workloads[leaver, J_HELD_CODE] not in BROKEN:
        return False
    classes, demands = hot.workloads[:, J_WORK_CLASS], book.asked.demands
    return demands[classes[leaver], D_BRANCH] == demands[classes[j], D_BRANCH] and is_ahead(hot, leaver, j)


@kernel
def reserve_leaving(hot: Hot, j: int, plan: I64, leaving: I64) -> None:
    """Reserve places for workload j on the nodes of a plan: devices that are free once those are gone who leave."""
    for i in range(len(leaving)):
        shift_pods(hot, leaving[i], 1)
    for i in range(len(plan)):
        plan[i, 2] = more_devices(hot, plan[i, 0], plan[i, 1], 0)
        move_pod(hot, plan[i, 0], plan[i, 1], plan[i, 2], -1)
    for i in range(len(plan)):
        move_pod(hot, plan[i, 0], plan[i, 1], plan[i, 2], 1)
    for i in range(len(leaving)):
        shift_pods(hot, leaving[i], -1)
    reserve_places(hot, j, plan, PREEMPTED_FOR)


@kernel
def lift_quota(hot: Hot, book: Book, s: VictimSearch, j: int, sign: int) -> None:
    """Take the quota of those who are leaving, and leave it to workload j, out of the tree (sign 1), or put it back."""
    for i in range(s.leaving[0]):
        leaver = s.leaving[1 + i]
        if book.held.tickets[leaver, T_BRANCH] < 0 or comes_back_ahead(hot, book, leaver, j):
            continue
        if sign > 0:
            take_out(book.tree, book.held, leaver)
        else:
            put_back(book.tree, book.held, leaver)


@kernel
def are_free(hot: Hot, j: int) -> bool:
    """Whether all places that are reserved for workload j could be had at once."""
    taken, free = 0, True
    for sign in (-1, 1):
        for i in range(hot.counters[RESERVED]):
            row = hot.reserved[i]
            if row[reserved_places.WORKLOAD] != j:
                continue
            k, n, devices = row[reserved_places.POD_CLASS], row[reserved_places.NODE], row[reserved_places.DEVICES]
            if sign < 0:
                free = free and n >= 0 and is_free(hot, k, n, devices)
                taken += int(free)
            if (sign < 0 and free) or (sign > 0 and taken > 0):
                move_pod(hot, k, n, devices, sign)
                taken -= int(sign > 0)
    return free
