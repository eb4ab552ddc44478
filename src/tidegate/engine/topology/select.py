"""Selects the domains that take the pods: the level at which they fit, and as few as possible on the way down."""

from __future__ import annotations

from tidegate.engine.topology.columns import answers, choice, domain_capacity, questions
from tidegate.engine.topology.count import slices_below
from tidegate.engine.topology.order import (
    LEAST,
    LED,
    LIKED,
    first_place,
    heap_up,
    lead_place,
    precedes,
    take_top,
    tightest,
)
from tidegate.engine.topology.search_buffers import LIKES, MIXED, DomainSearch, TopologyAnswer
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64
from tidegate.model.topology_failures import TopologyFailure
from tidegate.state.topology import TopologyArrays

NO_DOMAINS = int(TopologyFailure.NO_DOMAINS)
LACKS_ROOM = int(TopologyFailure.LACKS_ROOM)
LACKS_LEADER = int(TopologyFailure.LACKS_LEADER)

#: What is dealt out: single pods, whole slices, or units of the layer below.
BY_PODS, BY_SLICES, BY_UNITS = range(3)


@kernel
def way_of(q: I64, options: int) -> int:
    """The order of domains for a question."""
    way = 0
    if q[questions.UNCONSTRAINED] == 1 and options & MIXED:
        way |= LEAST
    if options & LIKES:
        way |= LIKED
    return way


@kernel
def find_level(arrays: TopologyArrays, search: DomainSearch, q: I64, options: int, out: TopologyAnswer) -> int:
    """Choose the domains that hold all pods, at the requested level or above; 0, or the TopologyFailure.

    The level, and how many domains were chosen, are in `said`.
    """
    t, room, order = q[questions.TREE], search.room, search.order
    way = way_of(q, options)
    needed = q[questions.COUNT] // q[questions.SIZE]
    leaders = int(q[questions.LEADER_KIND] >= 0)
    level = q[questions.LEVEL]
    while True:
        first, n = arrays.level_start[t, level], arrays.level_start[t, level + 1] - arrays.level_start[t, level]
        out.numbers[answers.LEVEL] = level
        out.numbers[answers.NEEDED] = needed
        out.numbers[answers.SIZE] = q[questions.SIZE]
        if n == 0:
            return NO_DOMAINS
        top = first
        for i in range(n):
            order[i] = first + i
            if precedes(room, first + i, top, way | LED):
                top = first + i
        found = one_domain(room, order, n, top, needed, leaders, way, q[questions.REQUIRED])
        if found >= 0:
            search.chosen[0], search.said[choice.LEVEL], search.said[choice.CHOSEN] = found, level, 1
            return 0
        if q[questions.REQUIRED] == 1:
            return refuse(arrays, search, q, level, room[top, domain_capacity.SLICES], out)
        if level == 0 or q[questions.UNCONSTRAINED] == 1:
            return spread(arrays, search, q, level, n, way, out)
        level -= 1


@kernel
def one_domain(room: I64, order: I64, n: int, top: int, needed: int, leaders: int, way: int, must: int) -> int:
    """The one domain that takes all pods, given the one that goes first; -1: none does.

    The first sufficient one where the least free goes first, else the tightest of those preferred as much as the first.
    Pods that must not be spread also take one that is preferred less.
    """
    found = -1
    if way & LEAST or (must == 1 and way & LIKED):
        for i in range(n):
            d = order[i]
            if room[d, domain_capacity.SLICES_LED] >= needed and room[d, domain_capacity.LEADERS] >= leaders:
                if found < 0 or precedes(room, d, found, way | LED):
                    found = d
    elif room[top, domain_capacity.SLICES_LED] >= needed and room[top, domain_capacity.LEADERS] >= leaders:
        found = top
    if found < 0 or way & LEAST:
        return int(found)
    return tightest(room, order, n, found, needed, leaders, domain_capacity.SLICES_LED, way | LED)


@kernel
def spread(
    arrays: TopologyArrays, search: DomainSearch, q: I64, level: int, n: int, way: int, out: TopologyAnswer
) -> int:
    """Choose several domains of a level, in order, the last one the tightest; the leader's first. 0, or the failure."""
    room, order, chosen = search.room, search.order, search.chosen
    needed, leaders = q[questions.COUNT] // q[questions.SIZE], int(q[questions.LEADER_KIND] >= 0)
    left, taken, best_fit = needed, 0, way & LEAST == 0
    if leaders > 0:
        at = lead_place(room, order, n, needed, leaders, domain_capacity.SLICES, domain_capacity.SLICES_LED, way | LED)
        if at < 0:
            at = first_place(room, order, n, way | LED)
        d = order[at]
        if room[d, domain_capacity.LEADERS] == 0:
            refuse(arrays, search, q, level, 0, out)
            return LACKS_LEADER
        n -= 1
        order[at] = order[n]
        others = n
        if (
            way & LIKED
            and n > 0
            and room[d, domain_capacity.LIKING]
            != room[order[first_place(room, order, n, way | LED)], domain_capacity.LIKING]
        ):
            others = 0  # it went before more preferred ones: none is preferred as much as it is
        if best_fit and room[d, domain_capacity.SLICES_LED] >= left:
            d = tightest(room, order, others, d, left, leaders, domain_capacity.SLICES_LED, way | LED)
        chosen[0], taken = d, 1
        left -= room[d, domain_capacity.SLICES_LED]
    if leaders == 0:  # otherwise a part of an empty domain may yet take the leader
        n = drop_empty(room, order, n, domain_capacity.SLICES)
    heap_up(room, order, n, way)
    while left > 0 and n > 0:
        d = take_top(room, order, n, way)
        n -= 1
        if best_fit and room[d, domain_capacity.SLICES] >= left:
            d = tightest(room, order, n, d, left, 0, domain_capacity.SLICES, way)
        chosen[taken] = d
        taken += 1
        left -= room[d, domain_capacity.SLICES]
    if left > 0:
        return refuse(arrays, search, q, level, needed - left, out)
    search.said[choice.LEVEL], search.said[choice.CHOSEN] = level, taken
    return 0


@kernel
def drop_empty(room: I64, order: I64, n: int, column: int) -> int:
    """Leave out of a list the domains where nothing fits; return how many are left."""
    kept = 0
    for i in range(n):
        if room[order[i], column] > 0:
            order[kept] = order[i]
            kept += 1
    return kept


@kernel
def refuse(arrays: TopologyArrays, search: DomainSearch, q: I64, level: int, fits: int, out: TopologyAnswer) -> int:
    """Note how much would fit; with several layers of slices, how many of each in the domain with the most."""
    room, t, needed = search.room, q[questions.TREE], q[questions.COUNT] // q[questions.SIZE]
    out.numbers[answers.FITS] = fits
    if q[questions.LAYERS] > 1:
        best = arrays.level_start[t, level]
        for d in range(best + 1, arrays.level_start[t, level + 1]):
            if room[d, domain_capacity.SLICES] > room[best, domain_capacity.SLICES]:
                best = d
        for layer in range(q[questions.LAYERS]):
            below = q[questions.SLICE_LEVEL + layer]
            out.numbers[answers.LAYER + layer] = slices_below(
                arrays, search, t, level, best, q[questions.SIZE + layer], below
            )
    return LACKS_LEADER if fits >= needed else LACKS_ROOM


@kernel
def deal(
    search: DomainSearch, n: int, at: int, q: I64, count: int, leaders: int, size: int, by: int, options: int
) -> int:
    """Deal pods and leader out to as few domains of a list as possible, and append these to `after`.

    Pods stay in groups of `size`. Return the end of `after`, or -1 if they do not all fit.
    """
    room, order, after = search.room, search.order, search.after
    way = way_of(q, options)
    have, have_led = domain_capacity.PODS, domain_capacity.PODS_LED
    if by == BY_SLICES:
        have, have_led = domain_capacity.SLICES, domain_capacity.SLICES_LED
    elif by == BY_UNITS:
        have, have_led = domain_capacity.UNITS, domain_capacity.UNITS_LED
    left, leaders_left, best_fit, front = count // size, leaders, way & LEAST == 0, -1
    if leaders > 0:
        place = lead_place(room, order, n, left, leaders, have, have_led, way)
        if place >= 0:
            n -= 1
            front = order[place]
            order[place] = order[n]
    else:  # with a leader, a part of an empty domain may yet take it
        n = drop_empty(room, order, n, have)
    heap_up(room, order, n, way)
    while left > 0 or leaders_left > 0:
        others = n
        if front >= 0:
            d = front
            front = -1
            if way & LIKED and n > 0 and room[d, domain_capacity.LIKING] != room[order[0], domain_capacity.LIKING]:
                others = 0  # it went before more preferred ones: none is preferred as much as it is
        elif n > 0:
            d = take_top(room, order, n, way)
            n -= 1
            others = n
        else:
            return -1
        column = have_led if leaders_left > 0 else have
        if best_fit and room[d, column] >= left and room[d, domain_capacity.LEADERS] >= leaders_left:
            d = tightest(room, order, others, d, left, leaders_left, column, way)
        give(room, d, min(left, room[d, column]), min(leaders_left, room[d, domain_capacity.LEADERS]), size)
        left -= room[d, domain_capacity.PODS] // size
        leaders_left -= room[d, domain_capacity.LEADERS]
        after[at] = d
        at += 1
    return at


@kernel
def give(room: I64, d: int, groups: int, leaders: int, size: int) -> None:
    """Write what a domain gets: from now on its room is what it has to place."""
    room[d, domain_capacity.PODS], room[d, domain_capacity.LEADERS] = groups * size, leaders


@kernel
def deal_chosen(search: DomainSearch, n: int, count: int, leaders: int, size: int) -> int:
    """Deal slices out to the chosen domains, one after the other: they were chosen to be enough. Return -1 if not."""
    room = search.room
    left, leaders_left = count // size, leaders
    for i in range(n):
        d = search.chosen[i]
        column = domain_capacity.SLICES_LED if leaders_left > 0 else domain_capacity.SLICES
        give(room, d, min(left, room[d, column]), min(leaders_left, room[d, domain_capacity.LEADERS]), size)
        left -= room[d, domain_capacity.PODS] // size
        leaders_left -= room[d, domain_capacity.LEADERS]
    return -1 if left > 0 or leaders_left > 0 else n
