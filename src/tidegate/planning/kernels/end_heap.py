"""A binary heap of running jobs by their end."""

from __future__ import annotations

from typing import Any

from tidegate.jit.registry import kernel

Column = Any


@kernel
def push_end(end_ms: Column, ender: Column, count: int, at_ms: int, size: int) -> None:
    """Add one that ends at a time to a heap of so many."""
    at = count
    while at > 0 and end_ms[(at - 1) // 2] > at_ms:
        above = (at - 1) // 2
        end_ms[at], ender[at] = end_ms[above], ender[above]
        at = above
    end_ms[at], ender[at] = at_ms, size


@kernel
def pop_end(end_ms: Column, ender: Column, count: int) -> None:
    """Take the first away from a heap of so many."""
    last = count - 1
    at_ms, size = end_ms[last], ender[last]
    at = 0
    while 2 * at + 1 < last:
        below = 2 * at + 1
        if below + 1 < last and end_ms[below + 1] < end_ms[below]:
            below += 1
        if end_ms[below] >= at_ms:
            break
        end_ms[at], ender[at] = end_ms[below], ender[below]
        at = below
    if last > 0:
        end_ms[at], ender[at] = at_ms, size
