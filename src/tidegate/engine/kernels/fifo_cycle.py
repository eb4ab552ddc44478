"""One cycle of the non-preemptive order: all pending workloads by priority and time, each class until one must wait.

A workload with the same requests as one that was just refused is not tried: it would be refused too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.gang_placement import Output, count_fitting, give_back, place_workload, write
from tidegate.engine.kernels.node_fit import (
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
from tidegate.engine.kernels.pending_queue import (
    drop_first,
    enter,
    first_of,
    goes_before,
    is_ahead,
    note_reported,
    sink_first,
    unlink,
)
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.score_cache import DRAWS, count_nodes, fits_somewhere, refresh
from tidegate.engine.kernels.starvation import (
    are_open,
    are_reserved,
    is_another_new,
    is_passed_over,
    note_passed_over,
    reserve_for_passed_over,
    stay_chosen,
)
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.withhold_places import (
    RESERVED,
    drop_reservation,
    enforce,
    place_reserved,
    release_all,
    release_of,
    withhold_all,
    withhold_place,
    withholds_room,
)
from tidegate.jit.registry import COMPILED, entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import CATALOGUE, NODE_REFUSALS, Reason, ReasonKind, codes_of
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import pod_classes, pod_sets, reserved_places, work_classes, workloads
from tidegate.state.tables.workloads import Phase

HOLD = int(DecisionKind.HOLD)
REJECT = int(DecisionKind.REJECT)
NO_NODES = int(Reason.NO_NODES)
GANG_PARTIAL = int(Reason.GANG_PARTIAL)
BEHIND_HEAD = int(Reason.BEHIND_HEAD)
BEHIND_EQUAL = int(Reason.BEHIND_EQUAL)
PLACES_RESERVED, RESERVED_FOR_OTHERS = int(Reason.PLACES_RESERVED), int(Reason.RESERVED_FOR_OTHERS)
ANY_PASSED_OVER = int(Counter.PASSED_OVER)
REFUSED_AT_FIRST_TRY = int(Reason.REFUSED_AT_FIRST_TRY)
NO_PHASE = int(Phase.NONE)

REFUSALS = codes_of(*NODE_REFUSALS)
LACKS = codes_of(ReasonKind.NODE_LACKS)

#: Kinds of reasons by their codes, as far as refusals go.
KINDS = tuple(int(CATALOGUE[Reason(code)].kind) if code in REFUSALS else 0 for code in range(max(REFUSALS) + 1))

DONE, MORE_ROOM = 0, 1


class CycleOptions(NamedTuple):
    """Options of a cycle."""

    now_ms: int
    strict: int  # 1: no workload passes a head that must wait
    waits: int  # 0: a workload that does not fit is rejected
    heap: I64  # one entry for every work class
    limit_ms: int  # a head that was passed over for so long gets a reservation; 0: none does
    victims: VictimSearch


@entry
def try_heads(hot: Hot, rule: Rule, options: CycleOptions, out: Output) -> int:
    """Try workloads in order until each class is empty or held. MORE_ROOM: call again with more rows."""
    works, epoch = hot.work_classes, int(hot.counters[ROOM_EPOCH])
    heap: Any = options.heap if COMPILED else []
    size, placed = 0, -1  # the last in order of the placed ones: it passed all pending ones ahead of it
    for w in range(len(options.heap)):
        if works[w, work_classes.WAITING] > 0 and (options.strict == 1 or works[w, work_classes.HELD_EPOCH] != epoch):
            enter(hot, heap, size, w)
            size += 1
    while size > 0:
        w = first_of(heap)
        if works[w, work_classes.HELD_EPOCH] == epoch:  # strict, and its head was refused already
            return DONE
        j, pods = int(works[w, work_classes.HEAD]), int(works[w, work_classes.PODS])
        is_cramped = out.written[0] + pods + 1 > len(out.rows) or hot.counters[SPARE_PODS] < pods
        if is_cramped or lacks_search(hot, options, j):
            note_passed(hot, options, placed)
            return MORE_ROOM
        unfit = try_head(hot, rule, j, out)
        if unfit >= 0 and works[w, work_classes.SETS] > 1:
            unfit = hardest_set(hot, rule, w, unfit)
        if unfit >= 0 and options.waits == 1:
            works[w, work_classes.HELD_EPOCH], works[w, work_classes.HELD_SET] = epoch, unfit
            works[w, work_classes.HELD_CODE] = refusal_of(hot, rule, unfit)
            if options.strict == 1:
                return DONE
            if reserve_if_passed(hot, rule, options, j):
                works[w, work_classes.HELD_CODE] = PLACES_RESERVED
            elif fits_unreserved(hot, rule, j, out):
                works[w, work_classes.HELD_CODE] = RESERVED_FOR_OTHERS
        else:
            works[w, work_classes.HELD_EPOCH] = -1
            settle(hot, rule, options, j, unfit, out)
            if unfit < 0 and (placed < 0 or is_ahead(hot, placed, j)):
                placed = j
        if works[w, work_classes.WAITING] == 0 or works[w, work_classes.HELD_EPOCH] == epoch:
            size -= 1
            drop_first(hot, heap, size)
        else:
            sink_first(hot, heap, size)
    note_passed(hot, options, placed)
    return DONE


@kernel
def note_passed(hot: Hot, options: CycleOptions, placed: int) -> None:
    """Note all pending heads ahead of a workload that was placed as passed over."""
    if options.strict == 1 or placed < 0:
        return
    for w in range(len(options.heap)):
        if hot.work_classes[w, work_classes.WAITING] > 0:
            j = hot.work_classes[w, work_classes.HEAD]
            if hot.workloads[j, workloads.PASSED_MS] < 0 and is_ahead(hot, j, placed):
                note_passed_over(hot, j, options.now_ms, options.limit_ms)


@inlined
def try_head(hot: Hot, rule: Rule, j: int, out: Output) -> int:
    """Place workload j, or return the row of the pod set that does not fit; places of those ahead of it stay theirs."""
    reserving = hot.workloads[j, workloads.RESERVES] > 0
    for i in range(hot.counters[RESERVED]):
        other = hot.reserved[i, reserved_places.WORKLOAD]
        if other != j and hot.reserved[i, reserved_places.IN_FORCE] == 0 and is_ahead(hot, other, j):
            hot.reserved[i, reserved_places.IN_FORCE] = 1
            withhold_place(hot, i)
    if reserving:
        release_of(hot, j)
    unfit = place_workload(hot, rule, j, out)
    if unfit >= 0 and reserving and place_reserved(hot, j, out):
        unfit = -1
    if unfit < 0 and reserving:
        drop_reservation(hot, j)
    return unfit


@kernel
def fits_unreserved(hot: Hot, rule: Rule, j: int, out: Output) -> bool:
    """Whether workload j, which fits nowhere, would fit if nothing were reserved for others; nothing is changed."""
    if hot.counters[RESERVED] == 0 or not withholds_room(hot, j):
        return False
    start, draws = out.written[0], hot.counters[DRAWS]
    release_all(hot)
    fits = place_workload(hot, rule, j, out) < 0
    give_back(hot, j)
    withhold_all(hot, -1, 0)
    out.written[0], hot.counters[DRAWS] = start, draws
    return fits


@inlined
def lacks_search(hot: Hot, options: CycleOptions, j: int) -> bool:
    """Whether workload j may need a reservation, and there are no rows to search its places yet."""
    if hot.counters[ANY_PASSED_OVER] == 1 or not is_passed_over(hot, j, options.now_ms, options.limit_ms):
        return False
    hot.counters[ANY_PASSED_OVER] = 1
    return True


@kernel
def reserve_if_passed(hot: Hot, rule: Rule, options: CycleOptions, j: int) -> bool:
    """Reserve places for workload j, which must wait, if it was passed over for too long; one workload at a time."""
    w = hot.workloads[j, workloads.WORK_CLASS]
    first = hot.work_classes[w, work_classes.FIRST_SET]
    sets = hot.pod_sets[first : first + hot.work_classes[w, work_classes.SETS]]
    if options.limit_ms == 0:
        return False
    stands = hot.workloads[j, workloads.RESERVES] > 0 and are_reserved(hot, j, sets) and are_open(hot, j)
    if stands and stay_chosen(hot, j, options.now_ms, options.limit_ms):
        enforce(hot, j)
        return True
    if not is_passed_over(hot, j, options.now_ms, options.limit_ms):
        return False
    if not stands and is_another_new(hot, j, options.now_ms, options.limit_ms):
        return False
    if reserve_for_passed_over(hot, rule, options.victims, j, sets, options.now_ms, options.limit_ms) or stands:
        enforce(hot, j)
        return True
    drop_reservation(hot, j)
    return False


@kernel
def settle(hot: Hot, rule: Rule, options: CycleOptions, j: int, unfit: int, out: Output) -> None:
    """Note that workload j was placed, or rejected because it may not wait."""
    workload_rows = hot.workloads
    unlink(hot, j)
    workload_rows[j, workloads.HELD_CODE] = 0
    workload_rows[j, workloads.SINCE_MS] = options.now_ms
    workload_rows[j, workloads.PHASE] = ASSUMED
    if unfit >= 0:
        workload_rows[j, workloads.PHASE] = NO_PHASE
        row = write(out, REJECT, j, REFUSED_AT_FIRST_TRY)
        out.rows[row, decision_columns.EVIDENCE] = refusal_of(hot, rule, unfit)


@entry
def hardest_set(hot: Hot, rule: Rule, w: int, unfit: int) -> int:
    """The first pod set of a work class that fits nowhere at all; else the one that did not fit."""
    first = int(hot.work_classes[w, work_classes.FIRST_SET])
    for s in range(first, first + int(hot.work_classes[w, work_classes.SETS])):
        k = int(hot.pod_sets[s, pod_sets.POD_CLASS])
        refresh(hot, rule, k)
        if not fits_somewhere(hot, k):
            return s
    return unfit


@entry
def refusal_of(hot: Hot, rule: Rule, s: int) -> int:
    """The Reason that best says why pod set s does not fit."""
    return lack_of(hot, rule, int(hot.pod_sets[s, pod_sets.POD_CLASS]))


@entry
def lack_of(hot: Hot, rule: Rule, k: int) -> int:
    """The Reason that best says why pods of class k do not fit: the most frequent among those of the highest kind."""
    refresh(hot, rule, k)  # what was tried has been given back
    if fits_somewhere(hot, k):
        return GANG_PARTIAL
    count_nodes(hot, k)
    tally = hot.scores.tally[k] if COMPILED else hot.scores.tally[k].tolist()
    best = 0
    for code in REFUSALS:
        is_of_more = KINDS[code] == KINDS[best] and tally[code] > tally[best]
        if tally[code] > 0 and (KINDS[code] > KINDS[best] or is_of_more):
            best = code
    return best if best > 0 else NO_NODES


@entry
def write_holds(hot: Hot, rule: Rule, options: CycleOptions, out: Output) -> int:
    """Write HOLD for workloads with a new reason to wait: the head of each class, and the unreported ones."""
    works = hot.work_classes
    first = first_class(hot, options) if options.strict == 1 else -1
    for w in range(len(options.heap)):
        if works[w, work_classes.WAITING] == 0:
            continue
        code = BEHIND_HEAD
        if works[w, work_classes.HELD_EPOCH] >= 0 and (options.strict == 0 or w == first):
            code = works[w, work_classes.HELD_CODE]
        j = works[w, work_classes.HEAD]
        if hot.workloads[j, workloads.HELD_CODE] != code:
            if out.written[0] >= len(out.rows):
                return MORE_ROOM
            write_hold(hot, rule, j, code, out)
        if not write_equals(hot, w, out):
            return MORE_ROOM
    return DONE


@kernel
def first_class(hot: Hot, options: CycleOptions) -> int:
    """The work class whose head goes before all others; -1 if nothing is pending."""
    best = -1
    for w in range(len(options.heap)):
        if hot.work_classes[w, work_classes.WAITING] > 0 and (best < 0 or goes_before(hot, w, best)):
            best = w
    return best


@kernel
def write_equals(hot: Hot, w: int, out: Output) -> bool:
    """Write HOLD for unreported workloads behind the head of a class, the last first; False: out of rows."""
    works, workload_rows = hot.work_classes, hot.workloads
    j, ahead = works[w, work_classes.TAIL], works[w, work_classes.WAITING] - 1
    while works[w, work_classes.UNREPORTED] > 0:
        if workload_rows[j, workloads.HELD_CODE] == 0:
            if out.written[0] >= len(out.rows):
                return False
            row = write(out, HOLD, j, BEHIND_EQUAL)
            out.rows[row, decision_columns.EVIDENCE] = ahead
            note_reported(works, workload_rows, j, BEHIND_EQUAL)
        ahead -= 1
        j = workload_rows[j, workloads.PREV]
    return True


@kernel
def write_hold(hot: Hot, rule: Rule, j: int, code: int, out: Output) -> None:
    """Write why workload j, the head of its class, waits."""
    note_reported(hot.work_classes, hot.workloads, j, code)
    row = write(out, HOLD, j, code)
    if code != BEHIND_HEAD:
        write_evidence(hot, rule, j, code, out.rows[row, decision_columns.EVIDENCE :])


@entry
def write_evidence(hot: Hot, rule: Rule, j: int, code: int, evidence: I64) -> None:
    """Write why workload j does not fit, in numbers: those of the pod set that its class was refused for.

    The last number is the pod class plus one, for the tally.
    """
    w = hot.workloads[j, workloads.WORK_CLASS]
    s, first = int(hot.work_classes[w, work_classes.HELD_SET]), int(hot.work_classes[w, work_classes.FIRST_SET])
    sets = hot.pod_sets[first : first + hot.work_classes[w, work_classes.SETS]]
    k = int(hot.pod_sets[s, pod_sets.POD_CLASS])
    write_lack(hot, rule, j, code, sets, s - first, evidence)
    refresh(hot, rule, k)
    count_nodes(hot, k)
    evidence[3] = k + 1


@entry
def write_lack(hot: Hot, rule: Rule, j: int, code: int, sets: I64, s: int, evidence: I64) -> None:
    """Write the numbers of a refusal for set s of these: the request, how many pods fit, of how many."""
    if code == GANG_PARTIAL:
        evidence[0], evidence[1] = count_fitting(hot, rule, j, sets), 0
        for other in range(len(sets)):
            evidence[1] += sets[other, pod_sets.COUNT]
    elif code in LACKS:
        k = int(sets[s, pod_sets.POD_CLASS])
        evidence[0], evidence[1], evidence[2] = amount_asked(hot, k, code), 0, sets[s, pod_sets.COUNT]


@kernel
def amount_asked(hot: Hot, k: int, code: int) -> int:
    """How much a pod of class k requests of what it lacks."""
    classes = hot.pod_classes
    if code == LACKS_GPU:
        return int(classes[k, pod_classes.GPUS])
    if code == LACKS_FRACTION:
        return int(classes[k, pod_classes.MILLI])
    if code == LACKS_GPU_MEMORY:
        return int(classes[k, pod_classes.VRAM])
    if code == LACKS_CPU:
        return int(classes[k, pod_classes.CPU])
    if code == LACKS_MEMORY:
        return int(classes[k, pod_classes.MEMORY])
    most = 1
    if code == LACKS_RESOURCE:
        for e in range(hot.extra.shape[1]):
            most = max(most, hot.extra[k, e])
    return int(most)
