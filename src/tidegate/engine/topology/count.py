"""How many pods, slices and leaders fit in each domain: counted in the leaves, added up level by level.

Must not know: which domain is better.
"""

from __future__ import annotations

from tidegate.engine.topology.search_buffers import (
    A_NODES,
    A_OUTSIDE,
    A_TAINTED,
    A_UNMATCHED,
    AS_IF_EMPTY,
    LIMITED,
    Q_FILTER,
    Q_KIND,
    Q_LAYERS,
    Q_LEADER_KIND,
    Q_LEADER_SET,
    Q_SET,
    Q_SIZE,
    Q_SLICE_LEVEL,
    Q_SPREAD_LEVEL,
    Q_SPREAD_MOST,
    Q_TREE,
    R_LEADERS,
    R_LIKING,
    R_PODS,
    R_PODS_LED,
    R_SLICES,
    R_SLICES_LED,
    Answer,
    Search,
)
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.topology import (
    F_DOMAINS,
    F_FIRST_DOMAIN,
    F_FIRST_LEAF,
    F_LEAVES,
    F_LEVELS,
    H_NODE_CLASS,
    Z_CHILDREN,
    Z_FIRST_CHILD,
    Forest,
)

NODE_TAINT = int(Reason.NODE_TAINT)

#: More than any count: 32 bits, as in Kueue's types.
MOST = (1 << 31) - 1


@kernel
def fits_in(free: I64, amounts: I64, leaf: int, kind: int, beside: int) -> int:
    """How many pods of a kind fit in a leaf beside one pod of another kind; -1: beside nothing."""
    most = MOST
    for r in range(amounts.shape[1]):
        asked = amounts[kind, r]
        if asked > 0:
            left = free[leaf, r]
            if beside >= 0:
                left -= amounts[beside, r]
            if left < asked:
                return 0
            most = min(most, left // asked)
    return most


@kernel
def lacks_in(free: I64, amounts: I64, leaf: int, kind: int) -> int:
    """The first resource that keeps even one pod of a kind out of a leaf; -1: none."""
    for r in range(amounts.shape[1]):
        if 0 < amounts[kind, r] > free[leaf, r]:
            return r
    return -1


@kernel
def span_below(domains: I64, span: I64, levels: int, level: int, first: int, end: int) -> None:
    """Note which domains are below consecutive ones, level by level: they are consecutive too."""
    span[level, 0], span[level, 1] = first, end
    for below in range(level + 1, levels):
        lowest, highest = span[below - 1, 0], span[below - 1, 1] - 1
        span[below, 0] = domains[lowest, Z_FIRST_CHILD]
        span[below, 1] = domains[highest, Z_FIRST_CHILD] + domains[highest, Z_CHILDREN]


@kernel
def count_leaves(forest: Forest, search: Search, q: I64, within: int, level: int, options: int, out: Answer) -> None:
    """Count what fits in each leaf; `within` is a domain of the level that all pods must be in, -1: anywhere."""
    t, room, numbers = q[Q_TREE], search.room, out.numbers
    start = forest.trees[t, F_FIRST_DOMAIN]
    room[start : start + forest.trees[t, F_DOMAINS], :] = 0
    leaves, first_leaf = forest.trees[t, F_LEAVES], forest.trees[t, F_FIRST_LEAF]
    bottom = start + forest.trees[t, F_DOMAINS] - leaves
    low, high = bottom, bottom + leaves
    if within >= 0:
        span_below(forest.domains, search.span, forest.trees[t, F_LEVELS], level, within, within + 1)
        lowest = forest.trees[t, F_LEVELS] - 1
        low, high = search.span[lowest, 0], search.span[lowest, 1]
    free = forest.empty if options & AS_IF_EMPTY else forest.free
    amounts, kind, leader = forest.amounts, q[Q_KIND], q[Q_LEADER_KIND]
    numbers[A_NODES], numbers[A_TAINTED], numbers[A_UNMATCHED], numbers[A_OUTSIDE] = leaves, 0, 0, 0
    out.lacking[:] = 0
    for i in range(leaves):
        d, leaf = bottom + i, first_leaf + i
        node_class = forest.leaves[leaf, H_NODE_CLASS]
        if node_class >= 0:
            code = forest.match[q[Q_FILTER], node_class]
            if code != 0:
                numbers[A_TAINTED if code == NODE_TAINT else A_UNMATCHED] += 1
                continue
            room[d, R_LIKING] = forest.liking[q[Q_FILTER], node_class]
        if d < low or d >= high:
            numbers[A_OUTSIDE] += 1
            continue
        pods = fits_in(free, amounts, leaf, kind, -1)
        if pods == 0:
            out.lacking[lacks_in(free, amounts, leaf, kind)] += 1
        most = search.most[q[Q_SET], leaf] if options & LIMITED else pods
        room[d, R_PODS], room[d, R_PODS_LED] = min(pods, most), min(pods, most)
        leads = leader >= 0 and lacks_in(free, amounts, leaf, leader) < 0
        if leads and (options & LIMITED == 0 or search.most[q[Q_LEADER_SET], leaf] > 0):
            room[d, R_LEADERS] = 1
            room[d, R_PODS_LED] = min(fits_in(free, amounts, leaf, kind, leader), most)


@kernel
def add_up(forest: Forest, search: Search, q: I64, level: int, first: int, end: int, layered: int) -> None:
    """Add up the room below consecutive domains of a level, from the leaves; `layered`: inner slices stay whole."""
    t, room = q[Q_TREE], search.room
    lowest, size, slice_level = forest.trees[t, F_LEVELS] - 1, q[Q_SIZE], q[Q_SLICE_LEVEL]
    is_led = int(q[Q_LEADER_KIND] >= 0)
    span_below(forest.domains, search.span, lowest + 1, level, first, end)
    if slice_level == lowest:
        for d in range(search.span[lowest, 0], search.span[lowest, 1]):
            room[d, R_SLICES] = room[d, R_PODS] // size
            room[d, R_SLICES_LED] = room[d, R_PODS_LED] // size
    if q[Q_SPREAD_MOST] > 0:
        cap_room(search, q, lowest)
    for at in range(lowest - 1, level - 1, -1):
        inner = search.inner[at + 1] if layered == 1 else 0
        for d in range(search.span[at, 0], search.span[at, 1]):
            add_children(forest.domains, room, d, inner, is_led)
            if at == slice_level:
                room[d, R_SLICES] = room[d, R_PODS] // size
                room[d, R_SLICES_LED] = room[d, R_PODS_LED] // size
        if q[Q_SPREAD_MOST] > 0 and at >= q[Q_SPREAD_LEVEL]:
            cap_room(search, q, at)


@kernel
def cap_room(search: Search, q: I64, level: int) -> None:
    """Leave a domain no more room than pods of the set may be in one: at the level they are spread over, and below."""
    room, size = search.room, q[Q_SIZE]
    for d in range(search.span[level, 0], search.span[level, 1]):
        most = max(0, q[Q_SPREAD_MOST] - search.there[d])
        room[d, R_PODS] = min(room[d, R_PODS], most)
        room[d, R_PODS_LED] = min(room[d, R_PODS_LED], most)
        if level <= q[Q_SLICE_LEVEL]:
            room[d, R_SLICES] = min(room[d, R_SLICES], most // size)
            room[d, R_SLICES_LED] = min(room[d, R_SLICES_LED], most // size)


@kernel
def add_children(domains: I64, room: I64, d: int, inner: int, is_led: int) -> None:
    """Add up the room of a domain's children. A leader takes from the child where it costs the least."""
    pods, slices, leaders, liking = 0, 0, 0, 0
    cost, slice_cost, can_lead = MOST, MOST, False
    first = domains[d, Z_FIRST_CHILD]
    for c in range(first, first + domains[d, Z_CHILDREN]):
        fit, fit_led = room[c, R_PODS], room[c, R_PODS_LED]
        if inner > 1:
            fit -= fit % inner
            fit_led -= fit_led % inner
        pods += fit
        slices += room[c, R_SLICES]
        if is_led == 0 or room[c, R_LEADERS] > 0:
            can_lead = True
            cost = min(cost, fit - fit_led)
            slice_cost = min(slice_cost, room[c, R_SLICES] - room[c, R_SLICES_LED])
        leaders = max(leaders, room[c, R_LEADERS])
        liking += room[c, R_LIKING]
    room[d, R_PODS], room[d, R_SLICES], room[d, R_LEADERS], room[d, R_LIKING] = pods, slices, leaders, liking
    room[d, R_PODS_LED] = pods - cost if can_lead else 0
    room[d, R_SLICES_LED] = slices - slice_cost if can_lead else 0


@kernel
def slices_below(forest: Forest, search: Search, t: int, level: int, d: int, size: int, below: int) -> int:
    """How many slices of a size fit in the parts of a domain that a deeper level cuts it into."""
    span_below(forest.domains, search.span, forest.trees[t, F_LEVELS], level, d, d + 1)
    fits = 0
    for part in range(search.span[below, 0], search.span[below, 1]):
        fits += search.room[part, R_PODS] // size
    return fits


@kernel
def note_layers(inner: I64, q: I64) -> None:
    """Note which inner slice holds at which level: between two layers that of the inner one."""
    inner[:] = 0
    for layer in range(1, q[Q_LAYERS]):
        for level in range(q[Q_SLICE_LEVEL + layer - 1] + 1, q[Q_SLICE_LEVEL + layer] + 1):
            inner[level] = q[Q_SIZE + layer]
