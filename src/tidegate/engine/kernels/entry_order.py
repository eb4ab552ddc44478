"""The order in which the entries of a cycle are settled, the classic way, and that of the entries of one queue.

Must not know: what an entry would take.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import (
    X_AGAIN,
    X_AWAITED,
    X_BEHIND,
    X_BORROW,
    X_ORDER,
    X_OVERDUE,
    X_PRIORITY,
    X_SUBMITTED,
    X_TIE,
)
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64


@inlined
def comes_before(entries: I64, a: int, b: int) -> bool:
    """Whether entry a is settled before b: holders of quota, then those others were evicted for, then by the order."""
    one, other = entries[a], entries[b]
    if (one[X_AGAIN] > 0) != (other[X_AGAIN] > 0):
        return bool(one[X_AGAIN] > 0)
    if one[X_AWAITED] != other[X_AWAITED]:
        return bool(one[X_AWAITED] == 1)
    return is_in_order_before(entries, a, b)


@kernel
def is_in_order_before(entries: I64, a: int, b: int) -> bool:
    """Whether entry a comes before b, whoever others were evicted for: who borrows less, priority, overdue, time."""
    one, other = entries[a], entries[b]
    level, other_level = max(one[X_BORROW], one[X_BEHIND]), max(other[X_BORROW], other[X_BEHIND])
    if level != other_level:
        return bool(level < other_level)
    if one[X_PRIORITY] != other[X_PRIORITY]:
        return bool(one[X_PRIORITY] > other[X_PRIORITY])
    if one[X_OVERDUE] != other[X_OVERDUE]:
        return bool(one[X_OVERDUE] == 1)
    if one[X_SUBMITTED] != other[X_SUBMITTED]:
        return bool(one[X_SUBMITTED] < other[X_SUBMITTED])
    return bool(one[X_TIE] < other[X_TIE])


@inlined
def is_put_up_before(entries: I64, a: int, b: int) -> bool:
    """Whether a queue puts up its entry a before its entry b."""
    one, other = entries[a], entries[b]
    if one[X_AWAITED] != other[X_AWAITED]:
        return bool(one[X_AWAITED] == 1)
    if one[X_PRIORITY] != other[X_PRIORITY]:
        return bool(one[X_PRIORITY] > other[X_PRIORITY])
    if one[X_SUBMITTED] != other[X_SUBMITTED]:
        return bool(one[X_SUBMITTED] < other[X_SUBMITTED])
    return bool(one[X_TIE] < other[X_TIE])


@kernel
def sort_entries(entries: I64, count: int) -> None:
    """Put the entries in order, written into a column, by a heap with the last one on top."""
    order = entries[:, X_ORDER]
    for i in range(count):
        order[i] = i
        child = i
        while child > 0 and comes_before(entries, order[(child - 1) // 2], order[child]):
            order[child], order[(child - 1) // 2] = order[(child - 1) // 2], order[child]
            child = (child - 1) // 2
    for size in range(count - 1, 0, -1):
        order[0], order[size] = order[size], order[0]
        at = 0
        while True:
            last = at
            for child in range(2 * at + 1, min(2 * at + 3, size)):
                if comes_before(entries, order[last], order[child]):
                    last = child
            if last == at:
                break
            order[at], order[last] = order[last], order[at]
            at = last
