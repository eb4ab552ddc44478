"""Planning on a scratch copy: fill a cluster in order, and put a workload exactly where a plan says."""

from __future__ import annotations

from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.gang_placement import NEXT_DECISION, Output, give_back, place_workload, write_place
from tidegate.engine.kernels.node_fit import ASSUMED, SPARE_PODS, memory_wanted, refusal, take_place
from tidegate.engine.kernels.pending_queue import unlink
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import pod_classes, pod_sets, work_classes, workloads


@entry
def vacate(hot: Hot, rows: I64) -> None:
    """Take away everything that these workloads hold."""
    for i in range(len(rows)):
        give_back(hot, rows[i])


@entry
def refill(hot: Hot, rule: Rule, order: I64, out: Output) -> None:
    """Place workloads in order; those that do not fit are passed over."""
    for i in range(len(order)):
        place_workload(hot, rule, order[i], out)


@kernel
def is_free(hot: Hot, k: int, n: int, devices: int) -> bool:
    """Whether a pod of class k could have exactly this place now."""
    if refusal(hot, k, n) != 0:
        return False
    for d in range(hot.left.shape[1]):
        if devices >> d & 1:
            milli, vram = hot.pod_classes[k, pod_classes.MILLI], memory_wanted(hot, k)
            if hot.left[n, d] < milli or hot.vram_left[n, d] < vram:
                return False
    return True


@entry
def place_at(hot: Hot, plan: I64, now_ms: int, out: Output) -> bool:
    """Give a workload exactly the places of its rows in a plan, if all of them are free now."""
    j = plan[0, decision_columns.WORKLOAD]
    sets, s = hot.pod_sets, hot.work_classes[hot.workloads[j, workloads.WORK_CLASS], work_classes.FIRST_SET]
    start, in_set = out.written[0], 0
    if hot.counters[SPARE_PODS] < len(plan):
        return False
    for i in range(len(plan)):
        while in_set == sets[s, pod_sets.COUNT]:
            s, in_set = s + 1, 0
        in_set += 1
        k, n, devices = sets[s, pod_sets.POD_CLASS], plan[i, decision_columns.NODE], plan[i, decision_columns.DEVICES]
        if not is_free(hot, k, n, devices):
            give_back(hot, j)
            out.written[0] = start
            return False
        take_place(hot, k, n, devices, j, plan[i, decision_columns.POD], hot.counters[NEXT_DECISION] + out.written[0])
        write_place(hot, out, j, plan[i, decision_columns.POD], n, devices)
    unlink(hot, j)
    hot.workloads[j, workloads.PHASE] = ASSUMED
    hot.workloads[j, workloads.SINCE_MS] = now_ms
    hot.workloads[j, workloads.HELD_CODE] = 0
    return True
