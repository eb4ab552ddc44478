"""Reservations for work that was passed over for too long: its places are given to no workload after it.

The places are those that are free soonest, as far as is known: work that has run for long is expected to run for long,
unless its owner estimates it. They are chosen again from time to time. Nothing is evicted.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import losses, search
from tidegate.engine.kernels.node_fit import ROOM_EPOCH
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.victim_search import is_closed, list_pods, open_search, search_victims
from tidegate.engine.kernels.withhold_places import (
    FLEET,
    PASSED_OVER,
    RESERVED,
    release_all,
    reserve_places,
    withhold_all,
)
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.work import WorkKind
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import pod_sets, queue_requests, quota_nodes, reserved_places, work_classes, workloads
from tidegate.state.tables.nodes import BROKEN_MILLI
from tidegate.state.tables.workloads import Phase

PENDING = int(Phase.PENDING)
PASSED_DUE = int(Counter.PASSED_DUE)
INFERENCE = list(WorkKind).index(WorkKind.INFERENCE)

#: A device with less left is broken.
BROKEN = -BROKEN_MILLI // 2

#: The expected rest of work that does not end.
ENDLESS_MS = 1 << 40


@kernel
def are_reserved(hot: Hot, j: int, plan: I64) -> bool:
    """Whether the places that are reserved for workload j are those of the planned pods."""
    at, left = 0, 0
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] != j:
            continue
        while at < len(plan) and left == plan[at, pod_sets.COUNT]:
            at, left = at + 1, 0
        if at == len(plan) or hot.reserved[i, reserved_places.POD_CLASS] != plan[at, pod_sets.POD_CLASS]:
            return False
        left += 1
    while at < len(plan) and left == plan[at, pod_sets.COUNT]:
        at, left = at + 1, 0
    return at == len(plan)


@kernel
def note_passed_over(hot: Hot, j: int, now_ms: int, limit_ms: int) -> None:
    """Note that workload j is passed over from now on, and when that reaches the limit."""
    hot.workloads[j, workloads.PASSED_MS] = now_ms
    if limit_ms > 0:
        wake_at(hot, max(now_ms + 1, passed_over_at(hot, j, limit_ms)))


@inlined
def wake_at(hot: Hot, due_ms: int) -> None:
    """Schedule a look at passed-over workloads at that time, at the latest."""
    if hot.counters[PASSED_DUE] == 0 or due_ms < hot.counters[PASSED_DUE]:
        hot.counters[PASSED_DUE] = due_ms


@kernel
def passed_over_at(hot: Hot, j: int, limit_ms: int) -> int:
    """When workload j, which is passed over, reaches the limit, or waits longer than it tolerates."""
    tolerated = hot.work_classes[hot.workloads[j, workloads.WORK_CLASS], work_classes.TOLERATED_MS]
    if tolerated == 0:
        return int(hot.workloads[j, workloads.PASSED_MS] + limit_ms)
    return int(
        hot.workloads[j, workloads.SUBMITTED_MS if hot.workloads[j, workloads.EVICTIONS] == 0 else workloads.SINCE_MS]
        + tolerated
    )


@kernel
def is_passed_over(hot: Hot, j: int, now_ms: int, limit_ms: int) -> bool:
    """Whether workload j was passed over for longer than the limit, or has waited longer than it tolerates."""
    if limit_ms == 0 or hot.workloads[j, workloads.PASSED_MS] < 0:
        return False
    return bool(now_ms >= passed_over_at(hot, j, limit_ms))


@kernel
def wake_passed_over(hot: Hot, quota_nodes: I64, demands: I64, now_ms: int, limit_ms: int) -> None:
    """Retry workloads that reached the passed-over limit, or that may choose other places now."""
    due_ms, before = hot.counters[PASSED_DUE], -1
    hot.counters[PASSED_DUE] = 0
    for j in range(len(hot.workloads)):
        if (
            hot.workloads[j, workloads.PHASE] == PENDING
            and hot.workloads[j, workloads.PASSED_MS] >= 0
            and hot.workloads[j, workloads.RESERVES] == 0
        ):
            at_ms = max(hot.workloads[j, workloads.PASSED_MS] + 1, passed_over_at(hot, j, limit_ms))
            wake_when_due(hot, quota_nodes, demands, j, due_ms, at_ms, now_ms)
    for i in range(hot.counters[RESERVED]):
        j, found_ms = hot.reserved[i, reserved_places.WORKLOAD], hot.reserved[i, reserved_places.FOUND_MS]
        if j != before and hot.workloads[j, workloads.RESERVES] == PASSED_OVER:
            wake_when_due(hot, quota_nodes, demands, j, due_ms, found_ms + limit_ms, now_ms)
            wake_when_due(hot, quota_nodes, demands, j, due_ms, stays_until(hot, j, found_ms, limit_ms), now_ms)
        before = j


@kernel
def wake_when_due(hot: Hot, node_rows: I64, demands: I64, j: int, due_ms: int, at_ms: int, now_ms: int) -> None:
    """Retry workload j, and its tree, if one of its times has come since the last look; else schedule the next look."""
    if at_ms > now_ms:
        wake_at(hot, at_ms)
        return
    if at_ms < due_ms:
        return
    w = hot.workloads[j, workloads.WORK_CLASS]
    hot.work_classes[w, work_classes.HELD_EPOCH] = -1
    queue = demands[w, queue_requests.QUEUE] if w < len(demands) else -1
    if queue >= 0:
        node_rows[node_rows[queue, quota_nodes.ROOT], quota_nodes.EPOCH] += 1
        node_rows[node_rows[queue, quota_nodes.ROOT], quota_nodes.DIRTY] = 1
    elif hot.workloads[j, workloads.RESERVES] > 0:
        hot.counters[ROOM_EPOCH] += 1  # another workload may choose its places, whichever it is


@kernel
def are_open(hot: Hot, j: int) -> bool:
    """Whether every node with a place that is reserved for workload j would take its pod there if it were empty."""
    for i in range(hot.counters[RESERVED]):
        row = hot.reserved[i]
        if row[reserved_places.WORKLOAD] == j:
            n = row[reserved_places.NODE]
            if n < 0 or is_closed(hot, row[reserved_places.POD_CLASS], n):
                return False
            for device in range(hot.left.shape[1]):
                if row[reserved_places.DEVICES] >> device & 1 == 1 and hot.left[n, device] < BROKEN:
                    return False
    return True


@kernel
def reserve_nothing_yet(hot: Hot, j: int, reason: int) -> None:
    """Note that workload j goes first, passed over or preempted for; places are reserved once it has quota."""
    if hot.workloads[j, workloads.RESERVES] == 0:
        at = hot.counters[RESERVED]
        row = hot.reserved[at]
        row[:] = 0
        row[reserved_places.WORKLOAD], row[reserved_places.POD_CLASS], row[reserved_places.NODE] = j, -1, -1
        row[reserved_places.FLEET] = hot.counters[FLEET]
        hot.counters[RESERVED] = at + 1
        hot.workloads[j, workloads.RESERVES] = reason


@kernel
def could_be_placed_before(hot: Hot, j: int) -> bool:
    """Whether workload j has a reservation, and no node or device changed since its places were found."""
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            return bool(hot.reserved[i, reserved_places.FLEET] == hot.counters[FLEET])
    return False


@kernel
def note_found(hot: Hot, j: int, now_ms: int, limit_ms: int) -> None:
    """Note that workload j would find places on the nodes as they are, and when that was found."""
    wake_at(hot, now_ms + limit_ms)
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            hot.reserved[i, reserved_places.FLEET] = hot.counters[FLEET]
            hot.reserved[i, reserved_places.FOUND_MS] = now_ms


@kernel
def stay_chosen(hot: Hot, j: int, now_ms: int, limit_ms: int) -> bool:
    """Whether the places of workload j are not searched again yet.

    They stay for the limit, and for as long as it had been passed over when they were found. So each choice lasts twice
    as long as the one before, in the end longer than any work that runs there: a new choice gives up what has become
    free of the old one.
    """
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            return bool(now_ms < stays_until(hot, j, hot.reserved[i, reserved_places.FOUND_MS], limit_ms))
    return False


@inlined
def stays_until(hot: Hot, j: int, found_ms: int, limit_ms: int) -> int:
    """Until when the places of workload j, found at some time, stay as they are."""
    return int(found_ms + max(limit_ms, found_ms - hot.workloads[j, workloads.PASSED_MS]))


@kernel
def is_new(hot: Hot, j: int, now_ms: int, limit_ms: int) -> bool:
    """Whether workload j has had a reservation for less than the limit: so long it is the only one of its queue.

    Its places may never be free, so others must not wait until it has started.
    """
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            return bool(now_ms < hot.reserved[i, reserved_places.FOUND_MS] + limit_ms)
    return False


@kernel
def is_another_new(hot: Hot, j: int, now_ms: int, limit_ms: int) -> bool:
    """Whether a workload other than j has had a reservation for less than the limit."""
    for i in range(hot.counters[RESERVED]):
        row = hot.reserved[i]
        if row[reserved_places.WORKLOAD] != j and now_ms < row[reserved_places.FOUND_MS] + limit_ms:
            return True
    return False


@kernel
def reserve_for_passed_over(
    hot: Hot, rule: Rule, s: VictimSearch, j: int, plan: I64, now_ms: int, limit_ms: int
) -> bool:
    """Reserve the places for workload j that are free soonest; False: it fits nowhere even if all work ended.

    What is reserved for those ahead of it stays theirs.
    """
    release_all(hot)
    withhold_all(hot, j, 1)
    open_ending(hot, s, now_ms)
    found = search_victims(hot, rule, None, None, s, plan)
    release_all(hot)
    withhold_all(hot, j, 0)
    if not found:
        return False
    reserve_places(hot, j, s.best_plan[: s.numbers[search.BEST_PLANNED]], PASSED_OVER)
    note_found(hot, j, now_ms, limit_ms)
    return True


@kernel
def open_ending(hot: Hot, s: VictimSearch, now_ms: int) -> None:
    """Begin a search in which all running work may end, weighed by how long that is expected to take."""
    open_search(s)
    for other in range(len(s.workloads)):
        if hot.workloads[other, workloads.FIRST_POD] >= 0:
            row = s.workloads[other]
            row[losses.LOSS : losses.LEVEL], row[losses.LEVEL] = (expected_left_ms(hot, other, now_ms), 1)
            s.members[s.numbers[search.CANDIDATES]] = other
            s.numbers[search.CANDIDATES] += 1
    list_pods(hot, s)
    s.numbers[search.MOST_LEVEL] = 1


@kernel
def expected_left_ms(hot: Hot, j: int, now_ms: int) -> int:
    """How long workload j is expected to run on: as its owner estimates, else as long as it has run so far."""
    row = hot.workloads[j]
    if hot.work_classes[row[workloads.WORK_CLASS], work_classes.KIND] == INFERENCE:
        return ENDLESS_MS
    ran_ms = max(1, now_ms - row[workloads.SINCE_MS])
    return int(row[workloads.ESTIMATE_MS] - ran_ms if row[workloads.ESTIMATE_MS] > ran_ms else min(ran_ms, ENDLESS_MS))
