"""Reservations for work that was passed over for too long: it waits at places that nobody after it is given.

The places are those that the fewest running workloads must end for. Nobody is evicted.
"""

from __future__ import annotations

from tidegate.engine.kernels.registry import inlined, kernel
from tidegate.engine.kernels.reservations import RESERVED, reserve_places
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.victim_scratch import (
    BEST_PLANNED,
    CANDIDATES,
    LEVEL,
    LOSS,
    MOST_LEVEL,
    VictimSearch,
)
from tidegate.engine.kernels.victim_search import is_closed, list_pods, open_search, search_victims
from tidegate.model.columns import I64
from tidegate.state import reserved_places
from tidegate.state.cluster import Hot
from tidegate.state.tables import (
    J_FIRST_POD,
    J_PASSED,
    J_RESERVES,
    J_SINCE,
    J_WORK_CLASS,
    S_COUNT,
    S_POD_CLASS,
    W_TOLERATED,
    Reserves,
)

PASSED_OVER = int(Reserves.PASSED_OVER)


@kernel
def are_reserved(hot: Hot, j: int, plan: I64) -> bool:
    """Whether the places that are reserved for workload j are those of the pods that are planned."""
    at, left = 0, 0
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] != j:
            continue
        while at < len(plan) and left == plan[at, S_COUNT]:
            at, left = at + 1, 0
        if at == len(plan) or hot.reserved[i, reserved_places.POD_CLASS] != plan[at, S_POD_CLASS]:
            return False
        left += 1
    while at < len(plan) and left == plan[at, S_COUNT]:
        at, left = at + 1, 0
    return at == len(plan)


@inlined
def is_passed_over(hot: Hot, j: int, now_ms: int, limit_ms: int) -> bool:
    """Whether workload j was passed over for longer than the limit, or has waited longer than it tolerates."""
    tolerated, passed_ms = hot.work_classes[hot.workloads[j, J_WORK_CLASS], W_TOLERATED], hot.workloads[j, J_PASSED]
    if limit_ms == 0 or passed_ms < 0:
        return False
    if tolerated > 0:
        return bool(now_ms - hot.workloads[j, J_SINCE] >= tolerated)
    return bool(now_ms - passed_ms >= limit_ms)


@kernel
def are_open(hot: Hot, j: int) -> bool:
    """Whether every node with a place that is reserved for workload j would take its pod if it were empty."""
    for i in range(hot.counters[RESERVED]):
        row = hot.reserved[i]
        if row[reserved_places.WORKLOAD] == j:
            n = row[reserved_places.NODE]
            if n < 0 or is_closed(hot, row[reserved_places.POD_CLASS], n):
                return False
    return True


@kernel
def reserve_nothing_yet(hot: Hot, j: int) -> None:
    """Note that quota is kept for workload j, which was passed over; places are reserved once it has quota."""
    if hot.workloads[j, J_RESERVES] == 0:
        at = hot.counters[RESERVED]
        row = hot.reserved[at]
        row[:] = 0
        row[reserved_places.WORKLOAD], row[reserved_places.POD_CLASS], row[reserved_places.NODE] = j, -1, -1
        hot.counters[RESERVED] = at + 1
        hot.workloads[j, J_RESERVES] = PASSED_OVER


@kernel
def reserve_for_passed_over(hot: Hot, rule: Rule, s: VictimSearch, j: int, plan: I64) -> bool:
    """Reserve the places for workload j that the fewest workloads must end for; False: it fits nowhere even then.

    What others have reserved stays theirs; the caller has withheld it.
    """
    open_search(s)
    for other in range(len(s.workloads)):
        if hot.workloads[other, J_FIRST_POD] >= 0:
            row = s.workloads[other]
            row[LOSS : LEVEL + 1] = 1
            s.members[s.numbers[CANDIDATES]] = other
            s.numbers[CANDIDATES] += 1
    list_pods(hot, s)
    s.numbers[MOST_LEVEL] = 1
    if not search_victims(hot, rule, None, None, None, s, plan):
        return False
    reserve_places(hot, j, s.best_plan[: s.numbers[BEST_PLANNED]], PASSED_OVER)
    return True
