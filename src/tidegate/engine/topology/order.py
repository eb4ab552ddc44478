"""Orders over domains, kept as heaps, and the tightest domain that still fits.

Best fit: the most slices first, then the fewest pods left over, then by name. Least free: the fewest slices first.
"""

from __future__ import annotations

from tidegate.engine.topology.columns import domain_capacity
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64

#: Orders, as bits: leaders first and room next to them; the least free first; the most preferred first.
LED, LEAST, LIKED = 1, 2, 4


@kernel
def precedes(room: I64, a: int, b: int, way: int) -> bool:
    """Whether domain a goes before b."""
    slices, pods = domain_capacity.SLICES, domain_capacity.PODS
    if way & LED:
        slices, pods = domain_capacity.SLICES_LED, domain_capacity.PODS_LED
        if room[a, domain_capacity.LEADERS] != room[b, domain_capacity.LEADERS]:
            return bool(room[a, domain_capacity.LEADERS] > room[b, domain_capacity.LEADERS])
    if way & LIKED and room[a, domain_capacity.LIKING] != room[b, domain_capacity.LIKING]:
        return bool(room[a, domain_capacity.LIKING] > room[b, domain_capacity.LIKING])
    if room[a, slices] != room[b, slices]:
        return bool((room[a, slices] < room[b, slices]) == (way & LEAST != 0))
    if room[a, pods] != room[b, pods]:
        return bool(room[a, pods] < room[b, pods])
    return a < b


@kernel
def first_place(room: I64, order: I64, n: int, way: int) -> int:
    """The index of the domain in a list that goes first."""
    first = 0
    for i in range(1, n):
        if precedes(room, order[i], order[first], way):
            first = i
    return first


@kernel
def sink(room: I64, order: I64, at: int, n: int, way: int) -> None:
    """Move an entry of the heap down to its place."""
    moved = order[at]
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and precedes(room, order[child + 1], order[child], way):
            child += 1
        if not precedes(room, order[child], moved, way):
            break
        order[at] = order[child]
        at = child
    order[at] = moved


@kernel
def heap_up(room: I64, order: I64, n: int, way: int) -> None:
    """Make a list a heap: the first domain is its root."""
    for at in range(n // 2 - 1, -1, -1):
        sink(room, order, at, n, way)


@kernel
def take_top(room: I64, order: I64, n: int, way: int) -> int:
    """Take the first of a heap; the heap is one shorter then."""
    first = order[0]
    order[0] = order[n - 1]
    sink(room, order, 0, n - 1, way)
    return int(first)


@kernel
def tightest(room: I64, order: I64, n: int, d: int, needed: int, leaders: int, column: int, way: int) -> int:
    """The domain with the least sufficient room: d, which goes first, or one of a list of later ones.

    Of equals the one that goes first. Where preference counts, only domains that are preferred as much as d.
    """
    best = d
    for i in range(n):
        other = order[i]
        if room[other, domain_capacity.LEADERS] < leaders or (
            way & LIKED and room[other, domain_capacity.LIKING] != room[d, domain_capacity.LIKING]
        ):
            continue
        if needed <= room[other, column] <= room[best, column]:
            if room[other, column] < room[best, column] or (best != d and precedes(room, other, best, way)):
                best = other
    return int(best)


@kernel
def lead_place(room: I64, order: I64, n: int, needed: int, leaders: int, column: int, led: int, way: int) -> int:
    """The index of the first domain in a list that can take the leader and leave enough for all workers; -1: none."""
    total, first = 0, -1
    for i in range(n):
        total += room[order[i], column]
    for i in range(n):
        d = order[i]
        if room[d, domain_capacity.LEADERS] < leaders or total - room[d, column] + room[d, led] < needed:
            continue
        if first < 0 or precedes(room, d, order[first], way):
            first = i
    return first
