"""The chains of waiting workloads, one for each work class, and the heap that merges them into one order.

Must not know: whether anything fits.
"""

from __future__ import annotations

import heapq
from typing import Any

from tidegate.jit.registry import COMPILED, entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import (
    J_HELD_CODE,
    J_NEXT,
    J_PHASE,
    J_PREV,
    J_SUBMITTED,
    J_TIE,
    J_WORK_CLASS,
    W_HEAD,
    W_PRIORITY,
    W_TAIL,
    W_UNTOLD,
    W_WAITING,
    Phase,
)

PENDING = int(Phase.PENDING)
#: What the head of a class is told, where there are no queues.
HEAD_CODES = (*ROOM_CODES, int(Reason.BEHIND_HEAD))
UNTOLD = int(Counter.UNTOLD)
NO_ROW = -1


@inlined
def is_older(hot: Hot, a: int, b: int) -> bool:
    """Whether workload a was submitted before b; equal times are told apart by their ids."""
    workloads = hot.workloads
    if workloads[a, J_SUBMITTED] != workloads[b, J_SUBMITTED]:
        return bool(workloads[a, J_SUBMITTED] < workloads[b, J_SUBMITTED])
    return bool(workloads[a, J_TIE] < workloads[b, J_TIE])


@inlined
def is_ahead(hot: Hot, a: int, b: int) -> bool:
    """Whether workload a goes before b: priority, then time, then id."""
    v, w = hot.workloads[a, J_WORK_CLASS], hot.workloads[b, J_WORK_CLASS]
    if hot.work_classes[v, W_PRIORITY] != hot.work_classes[w, W_PRIORITY]:
        return bool(hot.work_classes[v, W_PRIORITY] > hot.work_classes[w, W_PRIORITY])
    return is_older(hot, a, b)


@inlined
def goes_before(hot: Hot, v: int, w: int) -> bool:
    """Whether the head of work class v goes before that of w: priority, then time, then id."""
    works = hot.work_classes
    if works[v, W_PRIORITY] != works[w, W_PRIORITY]:
        return bool(works[v, W_PRIORITY] > works[w, W_PRIORITY])
    return is_older(hot, works[v, W_HEAD], works[w, W_HEAD])


@entry
def link(hot: Hot, rows: I64) -> None:
    """Let these workloads wait, each at its place in the chain of its class."""
    works, workloads = hot.work_classes, hot.workloads
    for i in range(len(rows)):
        j = rows[i]
        w = workloads[j, J_WORK_CLASS]
        before, after = works[w, W_TAIL], NO_ROW
        while before != NO_ROW and is_older(hot, j, before):
            before, after = workloads[before, J_PREV], before
        workloads[j, J_PREV], workloads[j, J_NEXT] = before, after
        if before == NO_ROW:
            works[w, W_HEAD] = j
            if after != NO_ROW and workloads[after, J_HELD_CODE] in HEAD_CODES:
                works[w, W_UNTOLD] += 1  # it was the head, and what it was told is not why it waits now
                workloads[after, J_HELD_CODE] = 0
        else:
            workloads[before, J_NEXT] = j
        if after == NO_ROW:
            works[w, W_TAIL] = j
        else:
            workloads[after, J_PREV] = j
        works[w, W_WAITING] += 1
        if workloads[j, J_HELD_CODE] == 0:
            works[w, W_UNTOLD] += 1
        workloads[j, J_PHASE] = PENDING
    hot.counters[UNTOLD] += len(rows)


@inlined
def unlink(hot: Hot, j: int) -> None:
    """Take workload j out of the chain of its class."""
    works, workloads = hot.work_classes, hot.workloads
    w = workloads[j, J_WORK_CLASS]
    before, after = workloads[j, J_PREV], workloads[j, J_NEXT]
    if before == NO_ROW:
        works[w, W_HEAD] = after
    else:
        workloads[before, J_NEXT] = after
    if after == NO_ROW:
        works[w, W_TAIL] = before
    else:
        workloads[after, J_PREV] = before
    workloads[j, J_PREV], workloads[j, J_NEXT] = NO_ROW, NO_ROW
    works[w, W_WAITING] -= 1
    if workloads[j, J_HELD_CODE] == 0:
        works[w, W_UNTOLD] -= 1


@inlined
def note_told(works: I64, workloads: I64, j: int, code: int) -> None:
    """Note that workload j, which waits, is told why."""
    if workloads[j, J_HELD_CODE] == 0:
        works[workloads[j, J_WORK_CLASS], W_UNTOLD] -= 1
    workloads[j, J_HELD_CODE] = code


@inlined
def enter(hot: Hot, heap: Any, size: int, w: int) -> None:
    """Put work class w into a heap of so many."""
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
    """Take the first work class out of a heap that is left with so many."""
    if not COMPILED:
        heapq.heappop(heap)
        return
    heap[0] = heap[size]
    sift_down(hot, heap, size)


@inlined
def sink_first(hot: Hot, heap: Any, size: int) -> None:
    """The first work class of a heap of so many has a new head: move it to its place."""
    if not COMPILED:
        heapq.heapreplace(heap, _key(hot, heap[0][-1]))
        return
    sift_down(hot, heap, size)


def _key(hot: Hot, w: int) -> tuple[int, ...]:
    """What `goes_before` compares, for the plain run: Python's own heap is far quicker there, and no two are equal."""
    work = hot.work_classes[w].tolist()
    head = hot.workloads[work[W_HEAD]].tolist()
    return -work[W_PRIORITY], head[J_SUBMITTED], head[J_TIE], w


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
