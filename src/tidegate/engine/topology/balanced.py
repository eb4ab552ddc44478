"""Balanced placement: the pods of a set spread evenly over as few domains as possible. Off by default.

Of the domains around the requested ones, one that holds everything with the highest *threshold*: the fewest slices that
any of its parts gets. Parts that cannot take that many are left out.
"""

from __future__ import annotations

from tidegate.engine.topology.columns import balanced_steps, choice, domain_capacity, questions
from tidegate.engine.topology.count import add_up, span_below
from tidegate.engine.topology.order import LED, LIKED, first_place, heap_up, take_top
from tidegate.engine.topology.search_buffers import LIKES, DomainSearch
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64
from tidegate.state.tables import topology_domains, topology_trees
from tidegate.state.topology import TopologyArrays

#: Binary places of a logarithm.
LOG_BITS = 24


@kernel
def find_balanced(arrays: TopologyArrays, search: DomainSearch, q: I64, options: int) -> bool:
    """Choose domains and share the slices out between them; False, with the room as it was, if that is not possible.

    The level, and how many domains were chosen, are in `said`; the room of each says what it gets.
    """
    t, level = q[questions.TREE], q[questions.LEVEL]
    first = arrays.trees[t, topology_trees.FIRST_DOMAIN]
    end = first + arrays.trees[t, topology_trees.DOMAINS]
    copy_room(search.room, search.spare, first, end)
    way = LIKED if options & LIKES else 0
    if find_parts(arrays, search, q, way):
        threshold, low, high = search.said[choice.THRESHOLD], search.said[choice.FIRST], search.said[choice.END]
        n = high - low
        for i in range(n):
            search.chosen[i] = low + i
        if level < q[questions.SLICE_LEVEL]:
            n = fewest_domains(arrays.domains, search, q, n, 1, way)
            n = list_below(arrays.domains, search.chosen, search.after, n)
            level += 1
        if n > 0:
            n = fewest_domains(arrays.domains, search, q, n, 0, way)
        if n > 0 and share_out(search, q, n, threshold, way):
            search.said[choice.LEVEL], search.said[choice.CHOSEN] = level, n
            return True
    copy_room(search.spare, search.room, first, end)
    return False


@kernel
def copy_room(source: I64, target: I64, first: int, end: int) -> None:
    """Copy the room of consecutive domains."""
    for d in range(first, end):
        for column in range(source.shape[1]):
            target[d, column] = source[d, column]


@kernel
def list_below(domains: I64, chosen: I64, after: I64, n: int) -> int:
    """Replace the chosen domains by their children."""
    end = 0
    for i in range(n):
        first = domains[chosen[i], topology_domains.FIRST_CHILD]
        for c in range(first, first + domains[chosen[i], topology_domains.CHILDREN]):
            after[end] = c
            end += 1
    for i in range(end):
        chosen[i] = after[i]
    return end


@kernel
def find_parts(arrays: TopologyArrays, search: DomainSearch, q: I64, way: int) -> bool:
    """Find the siblings at the requested level that hold everything with the highest threshold, in the fewest domains.

    The threshold and the siblings are in `said`; domains below the threshold have no room any more.
    """
    t, level, best, best_taken, is_found = q[questions.TREE], q[questions.LEVEL], 0, 0, False
    groups = 1
    if level > 0:
        groups = arrays.level_start[t, level] - arrays.level_start[t, level - 1]
    for group in range(groups):
        low, high = arrays.level_start[t, level], arrays.level_start[t, level + 1]
        if level > 0:
            parent = arrays.level_start[t, level - 1] + group
            low = arrays.domains[parent, topology_domains.FIRST_CHILD]
            high = low + arrays.domains[parent, topology_domains.CHILDREN]
        threshold = try_parts(arrays, search, q, low, high, best, way)
        taken = search.said[choice.TAKEN]
        if threshold > best or (is_found and threshold == best and taken < best_taken):
            best, best_taken, is_found = threshold, taken, True
            search.said[choice.THRESHOLD], search.said[choice.FIRST], search.said[choice.END] = threshold, low, high
    return is_found


@kernel
def try_parts(arrays: TopologyArrays, search: DomainSearch, q: I64, low: int, high: int, least: int, way: int) -> int:
    """The threshold at which consecutive siblings hold everything, if it is not below the least; 0: they do not.

    Domains below the threshold lose their room. How many siblings are taken is in `said`.
    """
    room, is_led = search.room, q[questions.LEADER_KIND] >= 0
    first, end = low, high
    if q[questions.LEVEL] < q[questions.SLICE_LEVEL]:
        first = arrays.domains[low, topology_domains.FIRST_CHILD]
        end = (
            arrays.domains[high - 1, topology_domains.FIRST_CHILD] + arrays.domains[high - 1, topology_domains.CHILDREN]
        )
    if not try_greedily(search, q, list_range(search.order, first, end), way) or search.said[choice.TAKEN] == 0:
        return 0
    threshold, last = q[questions.COUNT] // q[questions.SIZE] // search.said[choice.TAKEN], search.said[choice.LAST]
    if search.said[choice.LAST_LED] >= 0:
        threshold = min(threshold, room[search.said[choice.LAST_LED], domain_capacity.SLICES_LED])
    if last >= 0:
        threshold = min(threshold, room[last, domain_capacity.SLICES])
    lower = threshold  # as if the last one held a leader too
    if last >= 0 and is_led:
        lower = min(threshold, room[last, domain_capacity.SLICES_LED])
    if threshold < least or threshold <= 0:
        return 0
    prune(arrays, search, q, low, high, threshold)
    if not try_greedily(search, q, list_range(search.order, low, high), way):
        if lower == threshold or lower <= 0 or lower < least:
            return 0
        levels = arrays.trees[q[questions.TREE], topology_trees.LEVELS]
        span_below(arrays.domains, search.span, levels, q[questions.LEVEL], low, high)
        for level in range(q[questions.LEVEL], levels):
            copy_room(search.spare, room, search.span[level, 0], search.span[level, 1])
        threshold = lower
        prune(arrays, search, q, low, high, threshold)
        if not try_greedily(search, q, list_range(search.order, low, high), way):
            return 0
    return int(threshold)


@kernel
def list_range(order: I64, first: int, end: int) -> int:
    """List consecutive domains to choose from; return how many."""
    for d in range(first, end):
        order[d - first] = d
    return end - first


@kernel
def try_greedily(search: DomainSearch, q: I64, n: int, way: int) -> bool:
    """Whether the listed domains hold everything, the leader's first and then those with the most slices.

    How many it takes, and the last of both kinds, are in `said`.
    """
    room, order = search.room, search.order
    left = q[questions.COUNT] // q[questions.SIZE]
    search.said[choice.TAKEN], search.said[choice.LAST_LED], search.said[choice.LAST] = 0, -1, -1
    if q[questions.LEADER_KIND] >= 0:
        at = first_place(room, order, n, way | LED)
        d = order[at]
        if room[d, domain_capacity.LEADERS] == 0:
            return False
        n -= 1
        order[at] = order[n]
        search.said[choice.TAKEN], search.said[choice.LAST_LED] = 1, d
        left -= room[d, domain_capacity.SLICES_LED]
    heap_up(room, order, n, way)
    while left > 0 and n > 0 and room[order[0], domain_capacity.SLICES] > 0:
        d = take_top(room, order, n, way)
        n -= 1
        search.said[choice.TAKEN] += 1
        search.said[choice.LAST] = d
        left -= room[d, domain_capacity.SLICES]
    return bool(left <= 0)


@kernel
def prune(arrays: TopologyArrays, search: DomainSearch, q: I64, low: int, high: int, threshold: int) -> None:
    """Clear the room of consecutive domains and of their children where that is below the threshold."""
    levels, is_led = arrays.trees[q[questions.TREE], topology_trees.LEVELS], int(q[questions.LEADER_KIND] >= 0)
    if q[questions.LEVEL] < levels - 1:
        first = arrays.domains[low, topology_domains.FIRST_CHILD]
        end = (
            arrays.domains[high - 1, topology_domains.FIRST_CHILD] + arrays.domains[high - 1, topology_domains.CHILDREN]
        )
        for d in range(first, end):
            prune_one(arrays.domains, search.span, search.room, d, q[questions.LEVEL] + 1, levels, threshold, is_led)
    add_up(arrays, search, q, q[questions.LEVEL], low, high, 0)
    for d in range(low, high):
        prune_one(arrays.domains, search.span, search.room, d, q[questions.LEVEL], levels, threshold, is_led)


@kernel
def prune_one(domains: I64, span: I64, room: I64, d: int, at: int, levels: int, threshold: int, is_led: int) -> None:
    """Clear the room of a domain below the threshold, or only that next to a leader."""
    is_out = room[d, domain_capacity.SLICES] < threshold
    if not is_out and (
        is_led == 0 or room[d, domain_capacity.LEADERS] == 0 or room[d, domain_capacity.SLICES_LED] >= threshold
    ):
        return
    span_below(domains, span, levels, at, d, d + 1)
    for level in range(at, levels):
        for part in range(span[level, 0], span[level, 1]):
            room[part, domain_capacity.PODS_LED] = 0
            room[part, domain_capacity.SLICES_LED] = 0
            room[part, domain_capacity.LEADERS] = 0
            if is_out:
                room[part, domain_capacity.PODS], room[part, domain_capacity.SLICES] = 0, 0


@kernel
def share_out(search: DomainSearch, q: I64, n: int, threshold: int, way: int) -> bool:
    """Give each chosen domain the threshold, and the remainder to the first ones; False if that is not possible."""
    room, chosen, order, size = search.room, search.chosen, search.order, q[questions.SIZE]
    left, leaders = q[questions.COUNT] // size - n * threshold, int(q[questions.LEADER_KIND] >= 0)
    if left < 0:
        return False
    for i in range(n):
        order[i] = chosen[i]
    heap_up(room, order, n, way | LED)
    for i in range(n):  # giving changes no comparison: a domain that was given something has left the heap
        d = take_top(room, order, n - i, way | LED)
        more = 0
        if leaders > 0:
            more = min(room[d, domain_capacity.SLICES_LED] - threshold, left)
        elif left > 0:
            more = min(room[d, domain_capacity.SLICES] - threshold, left)
        room[d, domain_capacity.LEADERS] = leaders
        leaders = 0
        room[d, domain_capacity.SLICES], room[d, domain_capacity.SLICES_LED] = threshold + more, threshold + more
        room[d, domain_capacity.PODS] = (threshold + more) * size
        room[d, domain_capacity.PODS_LED] = room[d, domain_capacity.PODS] - room[d, domain_capacity.LEADERS]
        left -= more
        chosen[i] = d
    return left == 0 and leaders == 0


@kernel
def log2_of(value: int) -> int:
    """The logarithm of an integer, in 2**-LOG_BITS: by squaring, so that it is the same everywhere."""
    whole, rest = 0, value
    while rest > 1:
        rest >>= 1
        whole += 1
    result = whole << LOG_BITS
    mantissa = value << (30 - whole) if whole <= 30 else value >> (whole - 30)  # in [1, 2), 30 places
    for bit in range(LOG_BITS - 1, -1, -1):
        mantissa = (mantissa * mantissa) >> 30
        if mantissa >= 1 << 31:
            mantissa >>= 1
            result += 1 << bit
    return result


@kernel
def entropy_of(domains: I64, room: I64, d: int) -> int:
    """How evenly the room of a domain is spread over its children, in 2**-LOG_BITS."""
    first, total, spread = domains[d, topology_domains.FIRST_CHILD], 0, 0
    for c in range(first, first + domains[d, topology_domains.CHILDREN]):
        total += room[c, domain_capacity.PODS]
    if total == 0:
        return 0
    whole = log2_of(total)
    for c in range(first, first + domains[d, topology_domains.CHILDREN]):
        if room[c, domain_capacity.PODS] > 0:
            spread += room[c, domain_capacity.PODS] * (whole - log2_of(room[c, domain_capacity.PODS]))
    return int(spread // total)


@kernel
def is_before(room: I64, a: int, b: int, by_entropy: int) -> bool:
    """Whether domain a is visited before b: by name, or the larger and more even first."""
    if by_entropy == 1:
        if room[a, domain_capacity.LEADERS] != room[b, domain_capacity.LEADERS]:
            return bool(room[a, domain_capacity.LEADERS] > room[b, domain_capacity.LEADERS])
        if room[a, domain_capacity.SLICES_LED] != room[b, domain_capacity.SLICES_LED]:
            return bool(room[a, domain_capacity.SLICES_LED] > room[b, domain_capacity.SLICES_LED])
        if room[a, domain_capacity.UNITS] != room[b, domain_capacity.UNITS]:
            return bool(room[a, domain_capacity.UNITS] > room[b, domain_capacity.UNITS])
    return a < b


@kernel
def fewest_domains(domains: I64, search: DomainSearch, q: I64, n: int, by_entropy: int, way: int) -> int:
    """The fewest of the chosen domains that hold everything, with the least room to spare; of equals the first found.

    Return how many, -1: they do not, or there are too many combinations.
    """
    room, chosen, steps, heads = search.room, search.chosen, search.steps, search.heads
    for i in range(n):
        search.order[i] = chosen[i]
        if by_entropy == 1:
            room[chosen[i], domain_capacity.UNITS] = entropy_of(domains, room, chosen[i])
    if not try_greedily(search, q, n, way):
        return -1
    most = search.said[choice.TAKEN]
    for i in range(1, n):
        d, at = chosen[i], i
        while at > 0 and is_before(room, d, chosen[at - 1], by_entropy):
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = d
    heads[: 2 * most + 2] = -1
    search.buckets[:] = -1
    made = reach(search, 0, int(q[questions.LEADER_KIND] >= 0), q[questions.COUNT], -1, -1)
    for i in range(n):
        d = chosen[i]
        for taken in range(most, 0, -1):  # from the most domains down, so that none is taken twice
            made = extend(search, made, d, 2 * taken - 2, 0)
            made = extend(search, made, d, 2 * taken - 1, 1)
        if made < 0:
            return -1
    best, step = -1, heads[2 * most]
    while step >= 0:
        if steps[step, balanced_steps.PODS] <= 0 and (
            best < 0 or steps[step, balanced_steps.PODS] > steps[best, balanced_steps.PODS]
        ):
            best = step
        step = steps[step, balanced_steps.NEXT]
    if best < 0:
        return -1
    for i in range(most - 1, -1, -1):
        chosen[i] = steps[best, balanced_steps.DOMAIN]
        best = steps[best, balanced_steps.BACK]
    return int(most)


@kernel
def extend(search: DomainSearch, made: int, d: int, kind: int, leaders: int) -> int:
    """Take a domain beyond each step of a kind, with the leader or without. Return the steps made, -1: too many."""
    room, steps = search.room, search.steps
    step = search.heads[kind]
    while step >= 0 and made >= 0:
        pods = steps[step, balanced_steps.PODS]
        if leaders > 0 and room[d, domain_capacity.LEADERS] > 0:
            made = reach(search, made, kind + 1, pods - room[d, domain_capacity.PODS_LED], d, step)
        if (leaders > 0 or pods > 0) and room[d, domain_capacity.SLICES] > 0:
            made = reach(search, made, kind + 2, pods - room[d, domain_capacity.PODS], d, step)
        step = steps[step, balanced_steps.NEXT]
    return made


@kernel
def reach(search: DomainSearch, made: int, kind: int, pods: int, d: int, back: int) -> int:
    """Note a step, unless one of its kind with as many pods left was found before. Return the steps, -1: too many.

    The kind is two for each domain taken, and one more while the leader is not placed.
    """
    if made < 0:
        return -1
    steps = search.steps
    bucket = (pods * 31 + kind * 7919) & (len(search.buckets) - 1)
    step = search.buckets[bucket]
    while step >= 0:
        if steps[step, balanced_steps.KIND] == kind and steps[step, balanced_steps.PODS] == pods:
            return made
        step = steps[step, balanced_steps.LINK]
    if made == len(steps):
        return -1
    row = steps[made]
    row[balanced_steps.PODS] = pods
    row[balanced_steps.DOMAIN] = d
    row[balanced_steps.BACK] = back
    row[balanced_steps.KIND] = kind
    row[balanced_steps.NEXT], row[balanced_steps.LINK] = search.heads[kind], search.buckets[bucket]
    search.heads[kind], search.buckets[bucket] = made, made
    return made + 1
