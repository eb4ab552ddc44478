"""One cycle of the non-preemptive order: the first of all waiting workloads first, each class until one must wait.

Work that asks for the same as one that was just refused is not tried: it would be refused too.
Must not know: facts, time beyond `now`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.engine.kernels.chain import drop_first, enter, first_of, sink_first, unlink
from tidegate.engine.kernels.fit import (
    ASSUMED,
    LACKS_CPU,
    LACKS_FRACTION,
    LACKS_GPU,
    LACKS_GPU_MEMORY,
    LACKS_MEMORY,
    LACKS_RESOURCE,
    ROOM_EPOCH,
    SPARE_PODS,
)
from tidegate.engine.kernels.place import O_EVIDENCE, Output, place_workload, write
from tidegate.engine.kernels.registry import COMPILED, kernel
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.table import count_nodes, fits_somewhere, refresh
from tidegate.model.columns import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons import Reason
from tidegate.state.cluster import Hot
from tidegate.state.tables import (
    C_CPU,
    C_GPUS,
    C_MEMORY,
    C_MILLI,
    C_VRAM,
    J_HELD_CODE,
    J_PHASE,
    J_PREV,
    J_SINCE,
    J_WORK_CLASS,
    S_COUNT,
    S_POD_CLASS,
    W_FIRST_SET,
    W_HEAD,
    W_HELD_CODE,
    W_HELD_EPOCH,
    W_PODS,
    W_SETS,
    W_TAIL,
    W_WAITING,
    Phase,
)

HOLD = int(DecisionKind.HOLD)
REJECT = int(DecisionKind.REJECT)
NO_NODES = int(Reason.NO_NODES)
NODE_DOWN = int(Reason.NODE_DOWN)
POD_TOO_LARGE = int(Reason.POD_TOO_LARGE)
GANG_PARTIAL = int(Reason.GANG_PARTIAL)
BEHIND_HEAD = int(Reason.BEHIND_HEAD)
BEHIND_EQUAL = int(Reason.BEHIND_EQUAL)
REFUSED_AT_FIRST_TRY = int(Reason.REFUSED_AT_FIRST_TRY)
NO_PHASE = int(Phase.NONE)

DONE, MORE_ROOM = 0, 1


class CycleOptions(NamedTuple):
    """How a cycle goes about it."""

    now_ms: int
    strict: int  # 1: nobody passes a head that must wait
    waits: int  # 0: what does not fit is rejected
    too_large: I64  # by pod class: 1 if no matching node could take it, even empty
    heap: I64  # room for every work class


@kernel
def try_heads(hot: Hot, rule: Rule, options: CycleOptions, out: Output) -> int:
    """Try workloads in order until each class is empty or held. MORE_ROOM: call again with more rows."""
    works, epoch = hot.work_classes, int(hot.counters[ROOM_EPOCH])
    heap: Any = options.heap if COMPILED else []
    size = 0
    for w in range(len(options.heap)):
        if works[w, W_WAITING] > 0 and (options.strict == 1 or works[w, W_HELD_EPOCH] != epoch):
            enter(hot, heap, size, w)
            size += 1
    while size > 0:
        w = first_of(heap)
        if works[w, W_HELD_EPOCH] == epoch:  # strict, and its head was refused already
            return DONE
        j, pods = int(works[w, W_HEAD]), int(works[w, W_PODS])
        if out.written[0] + pods + 1 > len(out.rows) or hot.counters[SPARE_PODS] < pods:
            return MORE_ROOM
        unfit = place_workload(hot, rule, j, out)
        if unfit >= 0 and options.waits == 1:
            works[w, W_HELD_EPOCH] = epoch
            works[w, W_HELD_CODE] = refusal_of(hot, rule, options, unfit)
            if options.strict == 1:
                return DONE
        else:
            works[w, W_HELD_EPOCH] = -1
            settle(hot, rule, options, j, unfit, out)
        if works[w, W_WAITING] == 0 or works[w, W_HELD_EPOCH] == epoch:
            size -= 1
            drop_first(hot, heap, size)
        else:
            sink_first(hot, heap, size)
    return DONE


@kernel
def settle(hot: Hot, rule: Rule, options: CycleOptions, j: int, unfit: int, out: Output) -> None:
    """Note that workload j was placed, or rejected because it may not wait."""
    workloads = hot.workloads
    unlink(hot, j)
    workloads[j, J_HELD_CODE] = 0
    workloads[j, J_SINCE] = options.now_ms
    workloads[j, J_PHASE] = ASSUMED
    if unfit >= 0:
        workloads[j, J_PHASE] = NO_PHASE
        row = write(out, REJECT, j, REFUSED_AT_FIRST_TRY)
        out.rows[row, O_EVIDENCE] = refusal_of(hot, rule, options, unfit)


@kernel
def refusal_of(hot: Hot, rule: Rule, options: CycleOptions, s: int) -> int:
    """The Reason that best says why pod set s does not fit."""
    return lack_of(hot, rule, options.too_large, int(hot.pod_sets[s, S_POD_CLASS]))


@kernel
def lack_of(hot: Hot, rule: Rule, too_large: I64, k: int) -> int:
    """The Reason that best says why pods of class k do not fit: what most of the nodes in question lack."""
    refresh(hot, rule, k)  # what was tried has been given back
    if fits_somewhere(hot, k):
        return GANG_PARTIAL
    count_nodes(hot, k)
    tally = hot.scores.tally[k] if COMPILED else hot.scores.tally[k].tolist()
    best, most = 0, 0
    for code in range(LACKS_GPU, LACKS_RESOURCE + 1):
        if tally[code] > most:
            best, most = code, tally[code]
    if best > 0:
        return POD_TOO_LARGE if too_large[k] == 1 else best
    for code in range(NODE_DOWN, LACKS_GPU):
        if tally[code] > most:
            best, most = code, tally[code]
    return best if best > 0 else NO_NODES


@kernel
def write_holds(hot: Hot, rule: Rule, options: CycleOptions, out: Output) -> int:
    """Write HOLD for whoever waits for a new reason: the head of each class, and those that came behind it."""
    works, workloads = hot.work_classes, hot.workloads
    for w in range(len(options.heap)):
        if works[w, W_WAITING] == 0:
            continue
        j, code = works[w, W_HEAD], BEHIND_HEAD
        if works[w, W_HELD_EPOCH] >= 0:
            code = works[w, W_HELD_CODE]
        if workloads[j, J_HELD_CODE] != code:
            if out.written[0] >= len(out.rows):
                return MORE_ROOM
            write_hold(hot, rule, j, code, out)
        ahead = works[w, W_WAITING] - 1
        j = works[w, W_TAIL]
        while workloads[j, J_HELD_CODE] == 0:
            if out.written[0] >= len(out.rows):
                return MORE_ROOM
            row = write(out, HOLD, j, BEHIND_EQUAL)
            out.rows[row, O_EVIDENCE] = ahead
            workloads[j, J_HELD_CODE] = BEHIND_EQUAL
            ahead -= 1
            j = workloads[j, J_PREV]
    return DONE


@kernel
def write_hold(hot: Hot, rule: Rule, j: int, code: int, out: Output) -> None:
    """Write why workload j, the head of its class, waits. The last number is the pod class plus one, for the tally."""
    hot.workloads[j, J_HELD_CODE] = code
    evidence = out.rows[write(out, HOLD, j, code)][O_EVIDENCE:]
    if code == BEHIND_HEAD:
        return
    s = tightest_set(hot, rule, j)
    k, pods = hot.pod_sets[s, S_POD_CLASS], hot.pod_sets[s, S_COUNT]
    evidence[3] = k + 1
    if code == GANG_PARTIAL:
        evidence[0], evidence[1] = hot.scores.headroom[k], pods
    elif code >= LACKS_GPU and code <= LACKS_RESOURCE:
        evidence[0], evidence[1], evidence[2] = amount_asked(hot, k, code), hot.scores.headroom[k], pods


@kernel
def amount_asked(hot: Hot, k: int, code: int) -> int:
    """How much a pod of class k asks for of what it lacks."""
    classes = hot.pod_classes
    if code == LACKS_GPU:
        return int(classes[k, C_GPUS])
    if code == LACKS_FRACTION:
        return int(classes[k, C_MILLI])
    if code == LACKS_GPU_MEMORY:
        return int(classes[k, C_VRAM])
    if code == LACKS_CPU:
        return int(classes[k, C_CPU])
    if code == LACKS_MEMORY:
        return int(classes[k, C_MEMORY])
    most = 1
    if code == LACKS_RESOURCE:
        for e in range(hot.extra.shape[1]):
            most = max(most, hot.extra[k, e])
    return int(most)


@kernel
def tightest_set(hot: Hot, rule: Rule, j: int) -> int:
    """The pod set of workload j that fits on the fewest nodes."""
    w = hot.workloads[j, J_WORK_CLASS]
    first = hot.work_classes[w, W_FIRST_SET]
    best, fewest = first, 1 << 40
    for s in range(first, first + hot.work_classes[w, W_SETS]):
        k = hot.pod_sets[s, S_POD_CLASS]
        refresh(hot, rule, k)
        count_nodes(hot, k)
        if hot.scores.tally[k, 0] < fewest:
            best, fewest = s, hot.scores.tally[k, 0]
    return int(best)
