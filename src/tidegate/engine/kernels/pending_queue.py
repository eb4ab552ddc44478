"""Pending workloads: a chain for each work class, and a heap that merges the chains into one order."""

from __future__ import annotations

import heapq
from typing import Any

from tidegate.jit.registry import COMPILED, entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import work_classes, workloads
from tidegate.state.tables.workloads import Phase

PENDING = int(Phase.PENDING)
#: The reason that the head of a class reports, where there are no queues.
HEAD_CODES = (*ROOM_CODES, int(Reason.BEHIND_HEAD))
UNREPORTED = int(Counter.UNREPORTED)
NO_ROW = -1


@inlined
def is_older(hot: Hot, a: int, b: int) -> bool:
    """Whether workload a was submitted before b; equal times go by id."""
    workload_rows = hot.workloads
    if workload_rows[a, workloads.SUBMITTED_MS] != workload_rows[b, workloads.SUBMITTED_MS]:
        return bool(workload_rows[a, workloads.SUBMITTED_MS] < workload_rows[b, workloads.SUBMITTED_MS])
    return bool(workload_rows[a, workloads.TIE] < workload_rows[b, workloads.TIE])


@inlined
def is_ahead(hot: Hot, a: int, b: int) -> bool:
    """Whether workload a goes before b: priority, then time, then id."""
    v, w = hot.workloads[a, workloads.WORK_CLASS], hot.workloads[b, workloads.WORK_CLASS]
    if hot.work_classes[v, work_classes.PRIORITY] != hot.work_classes[w, work_classes.PRIORITY]:
        return bool(hot.work_classes[v, work_classes.PRIORITY] > hot.work_classes[w, work_classes.PRIORITY])
    return is_older(hot, a, b)


@inlined
def goes_before(hot: Hot, v: int, w: int) -> bool:
    """Whether the head of work class v goes before that of w: priority, then time, then id."""
    works = hot.work_classes
    if works[v, work_classes.PRIORITY] != works[w, work_classes.PRIORITY]:
        return bool(works[v, work_classes.PRIORITY] > works[w, work_classes.PRIORITY])
    return is_older(hot, works[v, work_classes.HEAD], works[w, work_classes.HEAD])


@entry
def link(hot: Hot, rows: I64) -> None:
    """Add workloads to the pending ones, each at its place in the chain of its class."""
    works, workload_rows = hot.work_classes, hot.workloads
    for i in range(len(rows)):
        j = rows[i]
        w = workload_rows[j, workloads.WORK_CLASS]
        before, after = works[w, work_classes.TAIL], NO_ROW
        while before != NO_ROW and is_older(hot, j, before):
            before, after = workload_rows[before, workloads.PREV], before
        workload_rows[j, workloads.PREV], workload_rows[j, workloads.NEXT] = before, after
        if before == NO_ROW:
            works[w, work_classes.HEAD] = j
            if after != NO_ROW and workload_rows[after, workloads.HELD_CODE] in HEAD_CODES:
                works[w, work_classes.UNREPORTED] += (
                    1  # it was the head, and the reason reported for it is no longer its own
                )
                workload_rows[after, workloads.HELD_CODE] = 0
        else:
            workload_rows[before, workloads.NEXT] = j
        if after == NO_ROW:
            works[w, work_classes.TAIL] = j
        else:
            workload_rows[after, workloads.PREV] = j
        works[w, work_classes.WAITING] += 1
        if workload_rows[j, workloads.HELD_CODE] == 0:
            works[w, work_classes.UNREPORTED] += 1
        workload_rows[j, workloads.PHASE] = PENDING
    hot.counters[UNREPORTED] += len(rows)


@inlined
def unlink(hot: Hot, j: int) -> None:
    """Remove workload j from the chain of its class."""
    works, workload_rows = hot.work_classes, hot.workloads
    w = workload_rows[j, workloads.WORK_CLASS]
    before, after = workload_rows[j, workloads.PREV], workload_rows[j, workloads.NEXT]
    if before == NO_ROW:
        works[w, work_classes.HEAD] = after
    else:
        workload_rows[before, workloads.NEXT] = after
    if after == NO_ROW:
        works[w, work_classes.TAIL] = before
    else:
        workload_rows[after, workloads.PREV] = before
    workload_rows[j, workloads.PREV], workload_rows[j, workloads.NEXT] = NO_ROW, NO_ROW
    works[w, work_classes.WAITING] -= 1
    if workload_rows[j, workloads.HELD_CODE] == 0:
        works[w, work_classes.UNREPORTED] -= 1


@inlined
def note_reported(works: I64, workload_rows: I64, j: int, code: int) -> None:
    """Note the reason that is reported for pending workload j."""
    if workload_rows[j, workloads.HELD_CODE] == 0:
        works[workload_rows[j, workloads.WORK_CLASS], work_classes.UNREPORTED] -= 1
    workload_rows[j, workloads.HELD_CODE] = code


@inlined
def enter(hot: Hot, heap: Any, size: int, w: int) -> None:
    """Push work class w onto a heap of this size."""
    if not COMPILED:
        heapq.heappush(heap, _key(hot, w))
        return
    heap[size] = w
    sift_up(hot, heap, size)


@inlined
def first_of(heap: Any) -> int:
    """The work class whose head goes before all others."""
    return int(heap[0] if COMPILED else heap[0][-1])


@inlined
def drop_first(hot: Hot, heap: Any, size: int) -> None:
    """Drop the first work class of a heap that has this size afterwards."""
    if not COMPILED:
        heapq.heappop(heap)
        return
    heap[0] = heap[size]
    sift_down(hot, heap, size)


@inlined
def sink_first(hot: Hot, heap: Any, size: int) -> None:
    """Move the first work class of a heap of this size, which has a new head, to its place."""
    if not COMPILED:
        heapq.heapreplace(heap, _key(hot, heap[0][-1]))
        return
    sift_down(hot, heap, size)


def _key(hot: Hot, w: int) -> tuple[int, ...]:
    """What `goes_before` compares, for the plain run: Python's own heap is far quicker there, and no two are equal."""
    work = hot.work_classes[w].tolist()
    head = hot.workloads[work[work_classes.HEAD]].tolist()
    return -work[work_classes.PRIORITY], head[workloads.SUBMITTED_MS], head[workloads.TIE], w


@kernel
def sift_up(hot: Hot, heap: I64, at: int) -> None:
    """Move an entry of the heap up to its place."""
    while at > 0 and goes_before(hot, heap[at], heap[(at - 1) // 2]):
        parent = (at - 1) // 2
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


@kernel
def sift_down(hot: Hot, heap: I64, size: int) -> None:
    """Move the first entry of the heap down to its place."""
    at = 0
    while True:
        best = at
        for child in range(2 * at + 1, min(2 * at + 3, size)):
            if goes_before(hot, heap[child], heap[best]):
                best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best
