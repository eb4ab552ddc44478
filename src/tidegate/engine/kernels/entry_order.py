"""The order in which the entries of a cycle are committed, the classic way, and that of the entries of one queue."""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64


@inlined
def comes_before(entry_rows: I64, a: int, b: int) -> bool:
    """Whether entry a is committed before b: holders of quota, then those with evicted victims, then by the order."""
    one, other = entry_rows[a], entry_rows[b]
    if (one[entries.AGAIN] > 0) != (other[entries.AGAIN] > 0):
        return bool(one[entries.AGAIN] > 0)
    if one[entries.AWAITED] != other[entries.AWAITED]:
        return bool(one[entries.AWAITED] == 1)
    return is_in_order_before(entry_rows, a, b)


@kernel
def is_in_order_before(entry_rows: I64, a: int, b: int) -> bool:
    """Whether entry a is before b, victims aside: less borrowing, then priority, overdue, time."""
    one, other = entry_rows[a], entry_rows[b]
    level = max(one[entries.BORROW], one[entries.BEHIND])
    other_level = max(other[entries.BORROW], other[entries.BEHIND])
    if level != other_level:
        return bool(level < other_level)
    if one[entries.PRIORITY] != other[entries.PRIORITY]:
        return bool(one[entries.PRIORITY] > other[entries.PRIORITY])
    if one[entries.OVERDUE] != other[entries.OVERDUE]:
        return bool(one[entries.OVERDUE] == 1)
    if one[entries.SUBMITTED] != other[entries.SUBMITTED]:
        return bool(one[entries.SUBMITTED] < other[entries.SUBMITTED])
    return bool(one[entries.TIE] < other[entries.TIE])


@inlined
def competes_before(entry_rows: I64, a: int, b: int) -> bool:
    """Whether entry a competes for its queue before entry b."""
    one, other = entry_rows[a], entry_rows[b]
    if one[entries.AWAITED] != other[entries.AWAITED]:
        return bool(one[entries.AWAITED] == 1)
    if one[entries.PRIORITY] != other[entries.PRIORITY]:
        return bool(one[entries.PRIORITY] > other[entries.PRIORITY])
    if one[entries.SUBMITTED] != other[entries.SUBMITTED]:
        return bool(one[entries.SUBMITTED] < other[entries.SUBMITTED])
    return bool(one[entries.TIE] < other[entries.TIE])


@kernel
def sort_entries(entry_rows: I64, count: int) -> None:
    """Sort the entries into a column with a heap whose root is the last one."""
    order = entry_rows[:, entries.ORDER]
    for i in range(count):
        order[i] = i
        child = i
        while child > 0 and comes_before(entry_rows, order[(child - 1) // 2], order[child]):
            order[child], order[(child - 1) // 2] = order[(child - 1) // 2], order[child]
            child = (child - 1) // 2
    for size in range(count - 1, 0, -1):
        order[0], order[size] = order[size], order[0]
        at = 0
        while True:
            last = at
            for child in range(2 * at + 1, min(2 * at + 3, size)):
                if comes_before(entry_rows, order[last], order[child]):
                    last = child
            if last == at:
                break
            order[at], order[last] = order[last], order[at]
            at = last
