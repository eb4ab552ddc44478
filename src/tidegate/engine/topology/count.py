"""How many pods, slices and leaders fit in each domain: counted in the leaves, added up level by level."""

from __future__ import annotations

from tidegate.engine.topology.columns import answers, domain_capacity, questions
from tidegate.engine.topology.search_buffers import AS_IF_EMPTY, LIMITED, DomainSearch, TopologyAnswer
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.tables import topology_domains, topology_leaves, topology_trees
from tidegate.state.topology import TopologyArrays

NODE_TAINT = int(Reason.NODE_TAINT)

#: More than any count: 32 bits, as in Kueue's types.
MOST = (1 << 31) - 1


@kernel
def fits_in(free: I64, amounts: I64, leaf: int, kind: int, beside: int) -> int:
    """How many pods of a kind fit in a leaf next to one pod of another kind; -1: next to nothing."""
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
        span[below, 0] = domains[lowest, topology_domains.FIRST_CHILD]
        span[below, 1] = domains[highest, topology_domains.FIRST_CHILD] + domains[highest, topology_domains.CHILDREN]


@kernel
def count_leaves(
    arrays: TopologyArrays, search: DomainSearch, q: I64, within: int, level: int, options: int, out: TopologyAnswer
) -> None:
    """Count what fits in each leaf; `within` is a domain of the level that all pods must be in, -1: anywhere."""
    t, room, numbers = q[questions.TREE], search.room, out.numbers
    start = arrays.trees[t, topology_trees.FIRST_DOMAIN]
    room[start : start + arrays.trees[t, topology_trees.DOMAINS], :] = 0
    leaves, first_leaf = arrays.trees[t, topology_trees.LEAVES], arrays.trees[t, topology_trees.FIRST_LEAF]
    bottom = start + arrays.trees[t, topology_trees.DOMAINS] - leaves
    low, high = bottom, bottom + leaves
    if within >= 0:
        span_below(arrays.domains, search.span, arrays.trees[t, topology_trees.LEVELS], level, within, within + 1)
        lowest = arrays.trees[t, topology_trees.LEVELS] - 1
        low, high = search.span[lowest, 0], search.span[lowest, 1]
    free = arrays.empty if options & AS_IF_EMPTY else arrays.free
    amounts, kind, leader = arrays.amounts, q[questions.KIND], q[questions.LEADER_KIND]
    numbers[answers.NODES] = leaves
    numbers[answers.TAINTED] = 0
    numbers[answers.UNMATCHED] = 0
    numbers[answers.EXTERNAL] = 0
    out.lacking[:] = 0
    for i in range(leaves):
        d, leaf = bottom + i, first_leaf + i
        node_class = arrays.leaves[leaf, topology_leaves.NODE_CLASS]
        if node_class >= 0:
            code = arrays.match[q[questions.FILTER], node_class]
            if code != 0:
                numbers[answers.TAINTED if code == NODE_TAINT else answers.UNMATCHED] += 1
                continue
            room[d, domain_capacity.LIKING] = arrays.liking[q[questions.FILTER], node_class]
        if d < low or d >= high:
            numbers[answers.EXTERNAL] += 1
            continue
        pods = fits_in(free, amounts, leaf, kind, -1)
        if pods == 0:
            out.lacking[lacks_in(free, amounts, leaf, kind)] += 1
        most = search.most[q[questions.SET], leaf] if options & LIMITED else pods
        room[d, domain_capacity.PODS], room[d, domain_capacity.PODS_LED] = min(pods, most), min(pods, most)
        leads = leader >= 0 and lacks_in(free, amounts, leaf, leader) < 0
        if leads and (options & LIMITED == 0 or search.most[q[questions.LEADER_SET], leaf] > 0):
            room[d, domain_capacity.LEADERS] = 1
            room[d, domain_capacity.PODS_LED] = min(fits_in(free, amounts, leaf, kind, leader), most)


@kernel
def add_up(
    arrays: TopologyArrays, search: DomainSearch, q: I64, level: int, first: int, end: int, layered: int
) -> None:
    """Add up the room below consecutive domains of a level, from the leaves; `layered`: inner slices stay whole."""
    t, room = q[questions.TREE], search.room
    lowest, size, slice_level = arrays.trees[t, topology_trees.LEVELS] - 1, q[questions.SIZE], q[questions.SLICE_LEVEL]
    is_led = int(q[questions.LEADER_KIND] >= 0)
    span_below(arrays.domains, search.span, lowest + 1, level, first, end)
    if slice_level == lowest:
        for d in range(search.span[lowest, 0], search.span[lowest, 1]):
            room[d, domain_capacity.SLICES] = room[d, domain_capacity.PODS] // size
            room[d, domain_capacity.SLICES_LED] = room[d, domain_capacity.PODS_LED] // size
    if q[questions.SPREAD_MOST] > 0:
        cap_room(search, q, lowest)
    for at in range(lowest - 1, level - 1, -1):
        inner = search.inner[at + 1] if layered == 1 else 0
        for d in range(search.span[at, 0], search.span[at, 1]):
            add_children(arrays.domains, room, d, inner, is_led)
            if at == slice_level:
                room[d, domain_capacity.SLICES] = room[d, domain_capacity.PODS] // size
                room[d, domain_capacity.SLICES_LED] = room[d, domain_capacity.PODS_LED] // size
        if q[questions.SPREAD_MOST] > 0 and at >= q[questions.SPREAD_LEVEL]:
            cap_room(search, q, at)


@kernel
def cap_room(search: DomainSearch, q: I64, level: int) -> None:
    """Limit the room of domains to the pods of the set that may be in one: at the spread level, and below."""
    room, size = search.room, q[questions.SIZE]
    for d in range(search.span[level, 0], search.span[level, 1]):
        most = max(0, q[questions.SPREAD_MOST] - search.there[d])
        room[d, domain_capacity.PODS] = min(room[d, domain_capacity.PODS], most)
        room[d, domain_capacity.PODS_LED] = min(room[d, domain_capacity.PODS_LED], most)
        if level <= q[questions.SLICE_LEVEL]:
            room[d, domain_capacity.SLICES] = min(room[d, domain_capacity.SLICES], most // size)
            room[d, domain_capacity.SLICES_LED] = min(room[d, domain_capacity.SLICES_LED], most // size)


@kernel
def add_children(domains: I64, room: I64, d: int, inner: int, is_led: int) -> None:
    """Add up the room of a domain's children. A leader takes from the child where it costs the least."""
    pods, slices, leaders, liking = 0, 0, 0, 0
    cost, slice_cost, can_lead = MOST, MOST, False
    first = domains[d, topology_domains.FIRST_CHILD]
    for c in range(first, first + domains[d, topology_domains.CHILDREN]):
        fit, fit_led = room[c, domain_capacity.PODS], room[c, domain_capacity.PODS_LED]
        if inner > 1:
            fit -= fit % inner
            fit_led -= fit_led % inner
        pods += fit
        slices += room[c, domain_capacity.SLICES]
        if is_led == 0 or room[c, domain_capacity.LEADERS] > 0:
            can_lead = True
            cost = min(cost, fit - fit_led)
            slice_cost = min(slice_cost, room[c, domain_capacity.SLICES] - room[c, domain_capacity.SLICES_LED])
        leaders = max(leaders, room[c, domain_capacity.LEADERS])
        liking += room[c, domain_capacity.LIKING]
    room[d, domain_capacity.PODS] = pods
    room[d, domain_capacity.SLICES] = slices
    room[d, domain_capacity.LEADERS] = leaders
    room[d, domain_capacity.LIKING] = liking
    room[d, domain_capacity.PODS_LED] = pods - cost if can_lead else 0
    room[d, domain_capacity.SLICES_LED] = slices - slice_cost if can_lead else 0


@kernel
def slices_below(
    arrays: TopologyArrays, search: DomainSearch, t: int, level: int, d: int, size: int, below: int
) -> int:
    """How many slices of a size fit in the parts of a domain at a deeper level."""
    span_below(arrays.domains, search.span, arrays.trees[t, topology_trees.LEVELS], level, d, d + 1)
    fits = 0
    for part in range(search.span[below, 0], search.span[below, 1]):
        fits += search.room[part, domain_capacity.PODS] // size
    return fits


@kernel
def note_layers(inner: I64, q: I64) -> None:
    """Note which inner slice holds at which level: between two layers that of the inner one."""
    inner[:] = 0
    for layer in range(1, q[questions.LAYERS]):
        for level in range(q[questions.SLICE_LEVEL + layer - 1] + 1, q[questions.SLICE_LEVEL + layer] + 1):
            inner[level] = q[questions.SIZE + layer]
