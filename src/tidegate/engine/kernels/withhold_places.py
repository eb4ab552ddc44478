"""Reserved places in a cycle: what is free of them is withheld from other workloads, and given back at its end.

A reservation is made for a workload that victims were evicted for, or that was passed over for too long. It is dropped
when the workload starts, when it is gone, or when other places are reserved for it.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries
from tidegate.engine.kernels.entry_order import is_in_order_before
from tidegate.engine.kernels.gang_placement import NEXT_DECISION, Output, give_back, write_place
from tidegate.engine.kernels.node_fit import (
    FRACTION,
    ROOM_EPOCH,
    WHOLE,
    WHOLE_GPU,
    log_change,
    refusal,
    take_place,
    write_sums,
)
from tidegate.engine.kernels.replan import is_free
from tidegate.jit.registry import COMPILED, entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import nodes, pod_classes, pod_sets, reserved_places, work_classes, workloads
from tidegate.state.tables.workloads import Reserves

RESERVED, FLEET = int(Counter.RESERVED), int(Counter.FLEET)
PREEMPTED_FOR, PASSED_OVER = int(Reserves.PREEMPTED_FOR), int(Reserves.PASSED_OVER)
FOR_AWAITED = 2


@kernel
def withhold_place(hot: Hot, i: int) -> None:
    """Withhold what is free now of reserved place i."""
    row = hot.reserved[i]
    n = row[reserved_places.NODE]
    if n < 0 or row[reserved_places.IS_WITHHELD] == 1:
        return
    pod, node = hot.pod_classes[row[reserved_places.POD_CLASS]], hot.nodes[n]
    row[reserved_places.IS_WITHHELD] = 1
    row[reserved_places.CPU] = max(0, min(node[nodes.CPU_FREE], pod[pod_classes.CPU]))
    row[reserved_places.MEMORY] = max(0, min(node[nodes.MEMORY_FREE], pod[pod_classes.MEMORY]))
    row[reserved_places.SLOTS] = max(0, min(node[nodes.SLOTS_FREE], 1))
    for e in range(hot.extra.shape[1]):
        asked = hot.extra[row[reserved_places.POD_CLASS], e]
        hot.reserved_extra[i, e] = max(0, min(hot.extra_free[n, e], asked))
    choose_withheld(hot, i, pod)
    move_withheld(hot, i, -1)


@kernel
def withhold_in_full(hot: Hot, i: int) -> None:
    """Withhold all of reserved place i, also what others hold there now: it is theirs only until they are gone."""
    row = hot.reserved[i]
    k, n = row[reserved_places.POD_CLASS], row[reserved_places.NODE]
    if n < 0 or row[reserved_places.IS_WITHHELD] == 1:
        return
    pod = hot.pod_classes[k]
    row[reserved_places.IS_WITHHELD] = 1
    row[reserved_places.CPU] = pod[pod_classes.CPU]
    row[reserved_places.MEMORY] = pod[pod_classes.MEMORY]
    row[reserved_places.SLOTS] = 1
    row[reserved_places.VRAM] = pod[pod_classes.VRAM] if pod[pod_classes.SHARE] == FRACTION else 0
    for e in range(hot.extra.shape[1]):
        hot.reserved_extra[i, e] = hot.extra[k, e]
    for d in range(hot.left.shape[1]):
        hot.reserved_left[i, d] = pod[pod_classes.MILLI] if row[reserved_places.DEVICES] >> d & 1 == 1 else 0
    move_withheld(hot, i, -1)


@inlined
def choose_withheld(hot: Hot, i: int, pod: I64) -> None:
    """The GPUs to withhold of the planned ones: what they have left, of a fraction no more than it requests."""
    row = hot.reserved[i]
    n, most = row[reserved_places.NODE], WHOLE_GPU if pod[pod_classes.SHARE] == WHOLE else pod[pod_classes.MILLI]
    row[reserved_places.VRAM] = 0
    for d in range(hot.left.shape[1]):
        is_planned = row[reserved_places.DEVICES] >> d & 1 == 1
        hot.reserved_left[i, d] = max(0, min(hot.left[n, d], most)) if is_planned else 0
        if is_planned and pod[pod_classes.SHARE] == FRACTION and hot.left[n, d] > 0:
            row[reserved_places.VRAM] = max(0, min(hot.vram_left[n, d], pod[pod_classes.VRAM]))


@inlined
def move_withheld(hot: Hot, i: int, sign: int) -> None:
    """Take (sign -1) or give back (sign 1) what is withheld for reserved place i."""
    move_withheld_amounts(hot, i, sign)
    log_change(hot, hot.reserved[i, reserved_places.NODE])


@kernel
def move_withheld_amounts(hot: Hot, i: int, sign: int) -> None:
    """Move what is withheld without logging it: for a trial that is undone before scores are read."""
    row = hot.reserved[i]
    n, changed = row[reserved_places.NODE], False
    node = hot.nodes[n]
    node[nodes.CPU_FREE] += sign * row[reserved_places.CPU]
    node[nodes.MEMORY_FREE] += sign * row[reserved_places.MEMORY]
    node[nodes.SLOTS_FREE] += sign * row[reserved_places.SLOTS]
    for e in range(hot.extra.shape[1]):
        hot.extra_free[n, e] += sign * hot.reserved_extra[i, e]
    for d in range(hot.left.shape[1]):
        if hot.reserved_left[i, d] > 0:
            hot.left[n, d] += sign * hot.reserved_left[i, d]
            hot.vram_left[n, d] += sign * row[reserved_places.VRAM]
            changed = True
    if changed:
        write_sums(node, hot.left[n] if COMPILED else hot.left[n].tolist(), node[nodes.SHORT])


@kernel
def release_place(hot: Hot, i: int) -> None:
    """Give back what is withheld for reserved place i."""
    row = hot.reserved[i]
    if row[reserved_places.IS_WITHHELD] == 1:
        move_withheld(hot, i, 1)
        row[reserved_places.IS_WITHHELD] = 0
        hot.reserved_left[i, :] = 0
        hot.reserved_extra[i, :] = 0
        for column in range(reserved_places.VRAM, reserved_places.SLOTS + 1):
            row[column] = 0


@kernel
def begin_reservations(hot: Hot) -> None:
    """Begin a cycle: withhold from all others the places that victims were evicted for."""
    for i in range(hot.counters[RESERVED]):
        if hot.workloads[hot.reserved[i, reserved_places.WORKLOAD], workloads.RESERVES] == PREEMPTED_FOR:
            hot.reserved[i, reserved_places.IN_FORCE] = 1
            withhold_place(hot, i)


@kernel
def enforce(hot: Hot, j: int) -> None:
    """Withhold what is reserved for workload j from all that are tried after it."""
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            hot.reserved[i, reserved_places.IN_FORCE] = 1
            withhold_place(hot, i)


@kernel
def enforce_ahead(hot: Hot, entry_rows: I64, count: int, e: int) -> None:
    """Withhold what is reserved for those ahead of entry e, which goes first because others were evicted for it.

    The others are refused it in order: by the entries tried before them.
    """
    for i in range(hot.counters[RESERVED]):
        row = hot.reserved[i]
        if row[reserved_places.IN_FORCE] == FOR_AWAITED:
            row[reserved_places.IN_FORCE] = 0
            release_place(hot, i)
    for other in range(count if entry_rows[e, entries.AWAITED] == 1 else 0):
        if entry_rows[other, entries.AWAITED] == 0 and is_in_order_before(entry_rows, other, e):
            j = entry_rows[other, entries.WORKLOAD]
            for i in range(hot.counters[RESERVED]):
                row = hot.reserved[i]
                if row[reserved_places.WORKLOAD] == j and row[reserved_places.IN_FORCE] == 0:
                    row[reserved_places.IN_FORCE] = FOR_AWAITED
                    withhold_place(hot, i)


@kernel
def let_pass(hot: Hot, j: int) -> None:
    """Give workload j, for which others were evicted, the nodes where room was made for it.

    A passed-over workload may have chosen places there before, or be tried before it: it gives way until `take_again`.
    Otherwise the eviction would have been in vain.
    """
    for i in range(hot.counters[RESERVED]):
        row = hot.reserved[i]
        may_wait = hot.workloads[row[reserved_places.WORKLOAD], workloads.RESERVES] == PASSED_OVER
        if may_wait and row[reserved_places.IN_FORCE] > 0 and reserves_on(hot, j, row[reserved_places.NODE]):
            release_place(hot, i)
            row[reserved_places.IN_FORCE] *= -1


@kernel
def take_again(hot: Hot) -> None:
    """Withhold again what gave way to a workload for which others were evicted."""
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.IN_FORCE] < 0:
            hot.reserved[i, reserved_places.IN_FORCE] *= -1
            withhold_place(hot, i)


@kernel
def reserves_on(hot: Hot, j: int, n: int) -> bool:
    """Whether a place on node n is reserved for workload j."""
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j and hot.reserved[i, reserved_places.NODE] == n:
            return True
    return False


@kernel
def withhold_all(hot: Hot, but: int, in_full: int) -> None:
    """Withhold every reservation in force, except that of one workload; the first made takes first.

    A search withholds them in full (1): what it frees of a place that is reserved for another workload would go to that
    one.
    """
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] != but and hot.reserved[i, reserved_places.IN_FORCE] > 0:
            if in_full == 1:
                withhold_in_full(hot, i)
            else:
                withhold_place(hot, i)


@kernel
def release_all(hot: Hot) -> None:
    """Give back all that is withheld."""
    for i in range(hot.counters[RESERVED]):
        release_place(hot, i)


@kernel
def withholds_room(hot: Hot, j: int) -> bool:
    """Whether a pod of workload j would fit on a node where something is withheld, if it were not."""
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.IS_WITHHELD] == 1:
            move_withheld_amounts(hot, i, 1)
    fits = False
    for i in range(hot.counters[RESERVED]):
        if not fits and hot.reserved[i, reserved_places.IS_WITHHELD] == 1:
            fits = fits_pod_of(hot, j, hot.reserved[i, reserved_places.NODE])
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.IS_WITHHELD] == 1:
            move_withheld_amounts(hot, i, -1)
    return fits


@kernel
def fits_pod_of(hot: Hot, j: int, n: int) -> bool:
    """Whether a pod of workload j, of whichever set, fits on node n now."""
    work = hot.work_classes[hot.workloads[j, workloads.WORK_CLASS]]
    for s in range(work[work_classes.FIRST_SET], work[work_classes.FIRST_SET] + work[work_classes.SETS]):
        if refusal(hot, hot.pod_sets[s, pod_sets.POD_CLASS], n) == 0:
            return True
    return False


@entry
def end_reservations(hot: Hot) -> None:
    """End a cycle: nodes show what is true."""
    release_all(hot)
    for i in range(hot.counters[RESERVED]):
        hot.reserved[i, reserved_places.IN_FORCE] = 0


@kernel
def release_of(hot: Hot, j: int) -> None:
    """Give back what is withheld for workload j."""
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            release_place(hot, i)


@entry
def drop_reservation(hot: Hot, j: int) -> None:
    """Drop the reservation of workload j; what was withheld may let others in."""
    before = hot.counters[RESERVED]
    remove_places(hot, j)
    hot.counters[ROOM_EPOCH] += int(hot.counters[RESERVED] < before)
    hot.workloads[j, workloads.RESERVES] = 0


@kernel
def remove_places(hot: Hot, j: int) -> None:
    """Remove the reserved places of workload j."""
    kept = 0
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] == j:
            release_place(hot, i)
            continue
        for column in range(hot.reserved.shape[1] if kept < i else 0):
            hot.reserved[kept, column] = hot.reserved[i, column]
        for device in range(hot.reserved_left.shape[1] if kept < i else 0):
            hot.reserved_left[kept, device] = hot.reserved_left[i, device]
        for e in range(hot.reserved_extra.shape[1] if kept < i else 0):
            hot.reserved_extra[kept, e] = hot.reserved_extra[i, e]
        kept += 1
    for i in range(kept, hot.counters[RESERVED]):
        hot.reserved[i, :] = 0
        hot.reserved_left[i, :] = 0
        hot.reserved_extra[i, :] = 0
    hot.counters[RESERVED] = kept


@kernel
def reserve_places(hot: Hot, j: int, plan: I64, reason: int) -> None:
    """Reserve these places, rows of pod class, node and devices, for workload j, in place of those it has."""
    hot.counters[ROOM_EPOCH] += int(gives_up(hot, j, plan))
    remove_places(hot, j)
    hot.workloads[j, workloads.RESERVES] = reason
    at = hot.counters[RESERVED]
    for i in range(len(plan)):
        row = hot.reserved[at + i]
        row[:] = 0
        row[reserved_places.WORKLOAD], row[reserved_places.POD_CLASS] = j, plan[i, 0]
        row[reserved_places.NODE], row[reserved_places.DEVICES] = plan[i, 1], plan[i, 2]
        row[reserved_places.FLEET] = hot.counters[FLEET]
    hot.counters[RESERVED] = at + len(plan)


@kernel
def gives_up(hot: Hot, j: int, plan: I64) -> bool:
    """Whether a place that is reserved for workload j is not in this plan: others may have it."""
    for i in range(hot.counters[RESERVED]):
        row, stays = hot.reserved[i], False
        if row[reserved_places.WORKLOAD] != j or row[reserved_places.NODE] < 0:
            continue
        for at in range(len(plan)):
            is_there = plan[at, 1] == row[reserved_places.NODE] and plan[at, 2] == row[reserved_places.DEVICES]
            stays = stays or (is_there and plan[at, 0] == row[reserved_places.POD_CLASS])
        if not stays:
            return True
    return False


@kernel
def place_reserved(hot: Hot, j: int, out: Output) -> bool:
    """Give workload j exactly the places that are reserved for it, if all of them are free now."""
    start, ordinal = out.written[0], 0
    for i in range(hot.counters[RESERVED]):
        row = hot.reserved[i]
        if row[reserved_places.WORKLOAD] != j:
            continue
        k, n, devices = row[reserved_places.POD_CLASS], row[reserved_places.NODE], row[reserved_places.DEVICES]
        if n < 0 or not is_free(hot, k, n, devices):
            give_back(hot, j)
            out.written[0] = start
            return False
        take_place(hot, k, n, devices, j, ordinal, hot.counters[NEXT_DECISION] + out.written[0])
        write_place(hot, out, j, ordinal, n, devices)
        ordinal += 1
    return ordinal > 0


@entry
def place_all_reserved(hot: Hot, rows: I64, out: Output) -> None:
    """Give each of these workloads exactly the places that are reserved for it, where all of them are free now."""
    for i in range(len(rows)):
        place_reserved(hot, rows[i], out)
