"""Room for a workload that fits nowhere, on a scratch copy: the workloads with the least loss are removed."""

from __future__ import annotations

from tidegate.engine.kernels.columns import planned, search
from tidegate.engine.kernels.gang_placement import Output, give_back, place_workload, write_place
from tidegate.engine.kernels.node_fit import take_place
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.victim_quota import list_victim
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.victim_search import list_pods, open_search, search_victims
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import work_classes, workloads

#: What may be removed: workloads that are not planned to run, or also those that then run on other nodes.
UNWANTED, WANTED = 0, 1


@entry
def place_until_unfit(hot: Hot, rule: Rule, order: I64, out: Output) -> int:
    """Place workloads in order until one does not fit; return how many were placed."""
    for i in range(len(order)):
        if place_workload(hot, rule, order[i], out) >= 0:
            return i
    return len(order)


@entry
def clear_for(hot: Hot, rule: Rule, s: VictimSearch, j: int, rows: I64, levels: I64, now_ms: int, out: Output) -> int:
    """Place workload j where removing others loses the least work, and remove those: the first of `s.best`.

    The rows may be removed, each with its level: the lowest sufficient level is taken, and of equals the last. Return
    how many were removed; -1: it fits nowhere even then.
    """
    w, found = hot.workloads[j, workloads.WORK_CLASS], False
    first = hot.work_classes[w, work_classes.FIRST_SET]
    sets = hot.pod_sets[first : first + hot.work_classes[w, work_classes.SETS]]
    open_clearing(hot, s, rows, levels, now_ms)
    for level in range(UNWANTED, WANTED + 1):
        s.numbers[search.MOST_LEVEL] = level
        found = found or search_victims(hot, rule, None, None, s, sets)
    if not found:
        return -1
    for i in range(s.numbers[search.BEST_TAKEN]):
        give_back(hot, s.best[i])
    for ordinal in range(s.numbers[search.BEST_PLANNED]):
        place = s.best_plan[ordinal]
        k, n, devices = (int(place[planned.POD_CLASS]), int(place[planned.NODE]), int(place[planned.DEVICES]))
        take_place(hot, k, n, devices, j, ordinal, -1)
        write_place(hot, out, j, ordinal, n, devices)
    return int(s.numbers[search.BEST_TAKEN])


@kernel
def open_clearing(hot: Hot, s: VictimSearch, rows: I64, levels: I64, now_ms: int) -> None:
    """Begin a search in which these workloads may be removed."""
    open_search(s)
    for i in range(len(rows)):
        list_victim(hot, s, rows[i], now_ms - hot.workloads[rows[i], workloads.SINCE_MS], len(rows) - 1 - i, levels[i])
    list_pods(hot, s)
