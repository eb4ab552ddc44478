"""Room for an entry that finds no place: victims are evicted, and the places they leave are reserved.

Terminating work counts as gone, and what it leaves is reserved for the entries it was evicted for.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import candidates, counters, entries, losses, requested, search
from tidegate.engine.kernels.cycle_quota import shift_claimed, shift_promised
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleParams, CycleScratch
from tidegate.engine.kernels.domain_assignment import ask_topology
from tidegate.engine.kernels.fair_victims import stays_fair
from tidegate.engine.kernels.moves import find_moves, open_moves
from tidegate.engine.kernels.node_fit import move_pod
from tidegate.engine.kernels.nominate import request_assigned
from tidegate.engine.kernels.observe_bound import more_devices
from tidegate.engine.kernels.pending_queue import is_ahead
from tidegate.engine.kernels.placement_plan import plan_pods
from tidegate.engine.kernels.preemption_candidates import STAYS
from tidegate.engine.kernels.quota import move_usage
from tidegate.engine.kernels.replan import is_free
from tidegate.engine.kernels.starvation import are_reserved
from tidegate.engine.kernels.victim_domains import assignments_of_reserved, fits_topology, search_domains
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
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.victim_search import list_levels, list_pods, open_search, search_victims, shift_pods
from tidegate.engine.kernels.withhold_places import (
    RESERVED,
    drop_reservation,
    release_all,
    reserve_places,
    withhold_all,
)
from tidegate.engine.topology.columns import view_counters
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaView
from tidegate.state.tables import queue_requests, quota_reservations, reserved_places, workloads
from tidegate.state.tables.workloads import Reserves

NOBODY = -1
PREEMPTED_FOR = int(Reserves.PREEMPTED_FOR)

#: Reasons of an eviction after which work starts again at once: something of it broke.
BROKEN = tuple(int(code) for code in (Reason.NODE_LOST, Reason.DEVICE_LOST, Reason.GANG_BROKEN, Reason.BIND_FAILED))

#: Outcomes: nothing; places are reserved and only terminating work is waited for; there are victims to evict.
NO_ROOM, AWAITED, EVICTIONS = range(3)


@kernel
def plan_evictions(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> int:
    """Find victims so that entry e has quota and places, and reserve these; its targets are the victims."""
    hot, view, d = c.hot, c.quota, c.scratch
    entry, s = d.heads.entries[e], d.victims
    j, sets = entry[entries.WORKLOAD], plan_pods(view, d.heads, e)
    plan = d.heads.plan[:sets]
    request_assigned(view, d.heads, d.requests, e)
    for i in range(d.requests.marks[counters.REQUESTED]):
        d.requests.frs[i, requested.NEED] = 1  # whatever it requests, other work may be in its way
    entry[entries.FIRST_TARGET], entry[entries.TARGETS] = d.requests.marks[counters.TARGETS], 0
    awaits = may_await(c, params, entry[entries.QUEUE], j)
    release_all(hot)
    lift_terminating(hot, view, topology, s, j, 1)
    shift_promised(view.tree, d, 1)
    shift_claimed(view.tree, d, 1)
    withhold_all(hot, j, 1)
    came = look_for_room(c, topology, params, e, plan, awaits)
    release_all(hot)
    shift_claimed(view.tree, d, -1)
    shift_promised(view.tree, d, -1)
    lift_terminating(hot, view, topology, s, j, -1)
    if came == NO_ROOM and hot.workloads[j, workloads.RESERVES] == PREEMPTED_FOR:
        drop_reservation(hot, j)
    withhold_all(hot, j, 0)
    return came


@kernel
def may_await(c: Cycle, params: CycleParams, q: int, j: int) -> bool:
    """Whether workload j may wait for terminating work: that was evicted for it, or it could have evicted some."""
    d = c.scratch
    if c.hot.workloads[j, workloads.RESERVES] == PREEMPTED_FOR:
        return True
    if d.victims.terminating[0] == 0 or ways_to_search(c.quota, d, params.fair, q, j, 0) == NO_WAY:
        return False
    for i in range(d.requests.marks[counters.CANDIDATES]):
        if d.preemption.candidates[i, candidates.CLAIM] < STAYS:
            return True
    return False


@kernel
def look_for_room(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int, plan: I64, awaits: bool) -> int:  # noqa: FBT001 - kernels take no keywords
    """`plan_evictions`, with terminating work out of the way."""
    hot, view, d = c.hot, c.quota, c.scratch
    entry, s = d.heads.entries[e], d.victims
    q, j, by_topology = entry[entries.QUEUE], entry[entries.WORKLOAD], asks_topology(view, d, topology, e)
    open_search(s)
    open_quota(view, d, s, 0, q, 1)
    if fits_quota(view, d, s.numbers):
        if are_reserved(hot, j, plan) and are_free(hot, j):
            keep_reserved_assignments(c, topology, e, plan)
            return AWAITED
        if awaits and search_at_level(c, topology, s, plan, e if by_topology else NOBODY):
            return reserve_best(hot, s, j, AWAITED)
    for again in range(2):
        way = ways_to_search(view, d, params.fair, q, j, again)
        if way == NO_WAY:
            break
        open_search(s)
        open_quota(view, d, s, params.fair, q, way)
        open_candidates(hot, d, s)
        found = find_victims(c, topology, s, plan, e if by_topology else NOBODY)
        close_quota(view, d, s)
        if found and note_victims(c, topology, s, params.fair, e):
            return reserve_best(hot, s, j, EVICTIONS)
    if params.fair == 0 and topology is None and open_moves(c, s, q, j):
        found = find_victims(c, topology, s, plan, NOBODY) and find_moves(c, s, q)
        if found and note_victims(c, topology, s, params.fair, e):
            return reserve_best(hot, s, j, EVICTIONS)
    return NO_ROOM


@inlined
def reserve_best(hot: Hot, s: VictimSearch, j: int, came: int) -> int:
    """Reserve the places of the best plan for workload j; return the outcome."""
    reserve_places(hot, j, s.best_plan[: s.numbers[search.BEST_PLANNED]], PREEMPTED_FOR)
    return came


@inlined
def asks_topology(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> bool:
    """Whether the pods of entry e are placed by topology; if so, ask for their assignments."""
    if topology is not None:
        return ask_topology(view, d.heads, topology, e) and topology.marks[view_counters.ASKED] > 0
    return False


@inlined
def keep_reserved_assignments(c: Cycle, topology: TopologyView | None, e: int, plan: I64) -> None:
    """Keep the domains of its reserved places as the assignments of entry e, if its pods are placed by topology."""
    if topology is not None:
        assignments_of_reserved(c.hot, c.quota, c.scratch.heads, topology, e, plan)


@inlined
def search_at_level(c: Cycle, topology: TopologyView | None, s: VictimSearch, plan: I64, e: int) -> bool:
    """Search victims up to the highest allowed level: for entry e by topology, for NOBODY without."""
    if topology is not None:
        if e >= 0:
            return search_domains(c, topology, s, plan, e)
    return search_victims(c.hot, c.rule, c, topology, s, plan)


@kernel
def find_victims(c: Cycle, topology: TopologyView | None, s: VictimSearch, plan: I64, e: int) -> bool:
    """Find the victims that lose the least work, from as low a level as possible; they and their plan are the best."""
    list_levels(s)
    list_pods(c.hot, s)
    low, high, found = 0, s.numbers[search.LEVELS], False
    while low < high:
        # The highest first: mostly no victims help, or there is one level.
        middle = high - 1 if not found else (low + high) // 2
        s.numbers[search.MOST_LEVEL] = s.levels[middle]
        if search_at_level(c, topology, s, plan, e):
            found, high = True, middle
        elif not found:
            return False
        else:
            low = middle + 1
    return found


@kernel
def note_victims(c: Cycle, topology: TopologyView | None, s: VictimSearch, fair: int, e: int) -> bool:
    """Write the victims as the targets of entry e, and its assignments; False: evicting them would not be fair."""
    hot, view, d = c.hot, c.quota, c.scratch
    entry, targets, start = d.heads.entries[e], d.preemption.targets, d.requests.marks[counters.TARGETS]
    for i in range(s.numbers[search.BEST_TAKEN]):
        victim = s.best[i]
        targets[start + i, 0] = victim
        targets[start + i, 1] = eviction_reason(d, s.numbers, s.workloads[victim, losses.CANDIDATE])
        shift_pods(hot, victim, 1)
        shift_quota(hot, view, topology, victim, 1)
    d.requests.marks[counters.TARGETS] = start + s.numbers[search.BEST_TAKEN]
    fine = fair == 0 or stays_fair(view, d, fair, entry[entries.QUEUE], start)
    if topology is not None:
        if asks_topology(view, d, topology, e):
            fits_topology(c, topology, e, plan_pods(view, d.heads, e))
    for i in range(s.numbers[search.BEST_TAKEN]):
        shift_pods(hot, s.best[i], -1)
        shift_quota(hot, view, topology, s.best[i], -1)
    if fine:
        entry[entries.FIRST_TARGET], entry[entries.TARGETS] = start, s.numbers[search.BEST_TAKEN]
    else:
        d.requests.marks[counters.TARGETS] = start
    return fine


@kernel
def lift_terminating(
    hot: Hot, view: QuotaView, topology: TopologyView | None, s: VictimSearch, j: int, sign: int
) -> None:
    """Take terminating work, and what it leaves to workload j, out of nodes and quota (sign 1), or put it back (-1)."""
    for i in range(s.terminating[0]):
        if not comes_back_ahead(hot, view, s.terminating[1 + i], j):
            shift_pods(hot, s.terminating[1 + i], sign)
            shift_quota(hot, view, topology, s.terminating[1 + i], sign)


@inlined
def comes_back_ahead(hot: Hot, view: QuotaView, evicted: int, j: int) -> bool:
    """Whether a terminating workload will be pending again ahead of workload j: it broke by itself."""
    if hot.workloads[evicted, workloads.ENDING] == 1 or hot.workloads[evicted, workloads.HELD_CODE] not in BROKEN:
        return False
    classes, demands = hot.workloads[:, workloads.WORK_CLASS], view.asked.queue_requests
    return demands[classes[evicted], queue_requests.QUEUE] == demands[classes[j], queue_requests.QUEUE] and is_ahead(
        hot, evicted, j
    )


@kernel
def reserve_terminating(hot: Hot, j: int, plan: I64, terminating: I64) -> None:
    """Reserve places for workload j on the nodes of a plan: devices that are free once terminating work is gone."""
    for i in range(len(terminating)):
        shift_pods(hot, terminating[i], 1)
    for i in range(len(plan)):
        plan[i, 2] = more_devices(hot, plan[i, 0], plan[i, 1], 0)
        move_pod(hot, plan[i, 0], plan[i, 1], plan[i, 2], -1)
    for i in range(len(plan)):
        move_pod(hot, plan[i, 0], plan[i, 1], plan[i, 2], 1)
    for i in range(len(terminating)):
        shift_pods(hot, terminating[i], -1)
    reserve_places(hot, j, plan, PREEMPTED_FOR)


@kernel
def lift_quota(hot: Hot, view: QuotaView, s: VictimSearch, j: int, sign: int) -> None:
    """Take the quota that terminating work leaves to workload j out of the tree (sign 1), or put it back (-1)."""
    for i in range(s.terminating[0]):
        evicted = s.terminating[1 + i]
        holds = view.held.reservations[evicted, quota_reservations.QUEUE] >= 0
        if holds and not comes_back_ahead(hot, view, evicted, j):
            move_usage(view.tree, view.held, evicted, sign)


@kernel
def are_free(hot: Hot, j: int) -> bool:
    """Whether all places that are reserved for workload j are free at once."""
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
