"""The topology search: the domains for the pods of a workload, as Kueue decides, one question after the other."""

from __future__ import annotations

from tidegate.engine.topology.balanced import find_balanced
from tidegate.engine.topology.columns import answers, choice, domain_capacity, questions
from tidegate.engine.topology.count import add_up, count_leaves, note_layers
from tidegate.engine.topology.search_buffers import (
    ALONE,
    ANYWHERE_TOO,
    BALANCED,
    GROW,
    KEEP,
    REPLACE,
    DomainSearch,
    TopologyAnswer,
)
from tidegate.engine.topology.select import BY_PODS, BY_SLICES, BY_UNITS, deal, deal_chosen, find_level
from tidegate.engine.topology.usage import assume_assignments
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.model.topology_failures import TopologyFailure
from tidegate.state.tables import domain_assignments, topology_domains, topology_leaves, topology_trees
from tidegate.state.topology import TopologyArrays

NO_DOMAINS = int(TopologyFailure.NO_DOMAINS)
NO_LEVEL = int(TopologyFailure.NO_LEVEL)
UNEVEN = int(TopologyFailure.UNEVEN)
STALE = int(TopologyFailure.STALE)
NO_REPLACEMENT = int(TopologyFailure.NO_REPLACEMENT)
UNSETTLED = int(TopologyFailure.UNSETTLED)
TOO_LARGE = int(TopologyFailure.TOO_LARGE)


@entry
def find_gang(
    arrays: TopologyArrays, search: DomainSearch, question_rows: I64, held: I64, options: int, out: TopologyAnswer
) -> int:
    """Find assignments for all pod sets of a workload, each seeing what those before took. 0, or the first failure.

    `held` has what pod sets hold already. Nothing is taken: what was assumed on the way is withdrawn.
    """
    out.written[0], assumed, code, changed = 0, 0, 0, search.question
    out.numbers[:] = 0
    out.lacking[:] = 0
    for i in range(len(question_rows)):
        q = question_rows[i]
        start = out.written[0]
        first = q[questions.FIRST_HELD]
        end = q[questions.FIRST_HELD] + q[questions.HELD] + q[questions.LEADER_HELD]
        pods = max(q[questions.COUNT], 0) + 1 + end - first
        code = int(q[questions.CODE])
        if start + pods > len(out.assignments) or assumed + 2 * pods > len(search.assumed):
            code = TOO_LARGE
        elif code == 0:
            code = ask_for_rest(arrays, search, q, held)
        if code == 0 and q[questions.MODE] != KEEP:
            assume_assignments(arrays, held, first, end, int(q[questions.MODE] == GROW))
            note_there(arrays, search, q, held, 1)
            code = find_assignments(
                arrays, search, changed, search.said[choice.WITHIN], search.said[choice.WITHIN_LEVEL], options, out
            )
            if code != 0 and q[questions.SPREAD_MOST] > 0 and q[questions.SPREAD_MUST] == 0:
                changed[questions.SPREAD_MOST] = 0
                within, at = search.said[choice.WITHIN], search.said[choice.WITHIN_LEVEL]
                code = find_assignments(arrays, search, changed, within, at, options, out)
            note_there(arrays, search, q, held, 0)
            assume_assignments(arrays, held, first, end, -int(q[questions.MODE] == GROW))
        if code != 0:
            out.numbers[answers.QUESTION] = i
            break
        write_assignments(arrays, search, q, held, out)
        fresh = assume_found(search, held, q, start, assumed, out)
        assume_assignments(arrays, search.assumed, assumed, fresh, 1)
        assumed = fresh
    assume_assignments(arrays, search.assumed, 0, assumed, -1)
    return code


@kernel
def note_there(arrays: TopologyArrays, search: DomainSearch, q: I64, held: I64, sign: int) -> None:
    """Note how many pods of a set that is to be spread stay in each domain (sign 1), or forget it (0)."""
    if q[questions.SPREAD_MOST] == 0:
        return
    lowest = arrays.trees[q[questions.TREE], topology_trees.LEVELS] - 1
    for h in range(q[questions.FIRST_HELD], q[questions.FIRST_HELD] + q[questions.HELD]):
        d = arrays.leaves[held[h, domain_assignments.LEAF], topology_leaves.DOMAIN]
        for level in range(lowest, q[questions.SPREAD_LEVEL] - 1, -1):
            search.there[d] = sign * (search.there[d] + held[h, domain_assignments.COUNT])
            if level > 0:
                d = arrays.domains[d, topology_domains.PARENT]


@kernel
def assume_found(search: DomainSearch, held: I64, q: I64, start: int, end: int, out: TopologyAnswer) -> int:
    """Write down what later pod sets must see: what was found, without what is held and counted already."""
    assumed = search.assumed
    for i in range(start, out.written[0]):
        copy_row(out.assignments[i], assumed[end])
        if q[questions.MODE] == REPLACE:
            for h in range(q[questions.FIRST_HELD], q[questions.FIRST_HELD] + q[questions.HELD]):
                if held[h, domain_assignments.LEAF] == out.assignments[i, domain_assignments.LEAF]:
                    assumed[end, domain_assignments.COUNT] -= held[h, domain_assignments.COUNT]
        end += 1
    return end


@kernel
def copy_row(source: I64, target: I64) -> None:
    """Copy a row of numbers."""
    for i in range(len(source)):
        target[i] = source[i]


@kernel
def write_assignments(arrays: TopologyArrays, search: DomainSearch, q: I64, held: I64, out: TopologyAnswer) -> None:
    """Write what was found, with what is held: the workers' assignments by leaf, then the leader's."""
    first, t = q[questions.FIRST_HELD], q[questions.TREE]
    last, end = first + q[questions.HELD], first + q[questions.HELD] + q[questions.LEADER_HELD]
    for h in range(first, last):
        search.pods_at[held[h, domain_assignments.LEAF]] += held[h, domain_assignments.COUNT]
    for leaf in range(
        arrays.trees[t, topology_trees.FIRST_LEAF],
        arrays.trees[t, topology_trees.FIRST_LEAF] + arrays.trees[t, topology_trees.LEAVES],
    ):
        if search.pods_at[leaf] > 0:
            write_assignment(out, leaf, search.pods_at[leaf], q[questions.SET], q[questions.KIND])
            search.pods_at[leaf] = 0
    if q[questions.MODE] != KEEP and search.question[questions.LEADER_KIND] >= 0:
        write_assignment(out, search.said[choice.LEADER], 1, q[questions.LEADER_SET], q[questions.LEADER_KIND])
    for h in range(last, end):
        write_assignment(
            out,
            held[h, domain_assignments.LEAF],
            held[h, domain_assignments.COUNT],
            q[questions.LEADER_SET],
            q[questions.LEADER_KIND],
        )


@kernel
def write_assignment(out: TopologyAnswer, leaf: int, count: int, pod_set: int, kind: int) -> None:
    """Write one assignment."""
    row = out.assignments[out.written[0]]
    row[domain_assignments.LEAF] = leaf
    row[domain_assignments.COUNT] = count
    row[domain_assignments.POD_SET] = pod_set
    row[domain_assignments.KIND] = kind
    out.written[0] += 1


@kernel
def ask_for_rest(arrays: TopologyArrays, search: DomainSearch, q: I64, held: I64) -> int:
    """Make the question for the unassigned pods, in its mode. 0, or the TopologyFailure.

    The domain that they must be in, -1 for anywhere, and its level are in `said`.
    """
    changed, first = search.question, q[questions.FIRST_HELD]
    last = first + q[questions.HELD]
    copy_row(q, changed)
    search.said[choice.WITHIN], search.said[choice.WITHIN_LEVEL] = -1, 0
    for h in range(first, last + q[questions.LEADER_HELD]):
        if held[h, domain_assignments.LEAF] < 0:
            return STALE
    if q[questions.MODE] == GROW:
        for h in range(first, last):
            changed[questions.COUNT] -= held[h, domain_assignments.COUNT]
        if q[questions.LEADER_HELD] > 0:
            changed[questions.LEADER_KIND] = -1
    elif q[questions.MODE] == REPLACE:
        return ask_for_lost(arrays, search, q, held, first, last)
    return 0


@kernel
def ask_for_lost(arrays: TopologyArrays, search: DomainSearch, q: I64, held: I64, first: int, last: int) -> int:
    """Make the question for the pods of a failed node; the rest stays where it is. 0, or the TopologyFailure."""
    t, lost, changed, level = q[questions.TREE], q[questions.LOST], search.question, q[questions.LEVEL]
    if lost == 0:
        return NO_REPLACEMENT
    changed[questions.COUNT], changed[questions.LEADER_KIND] = lost, -1
    within = -1
    if first < last and lost % q[questions.SIZE] != 0:  # a slice is broken: mend the innermost one, where it was
        layer = q[questions.LAYERS] - 1
        while layer > 0 and lost % q[questions.SIZE + layer] == 0:
            layer -= 1
        level = q[questions.SLICE_LEVEL + layer]
        within = broken_slice(arrays, search, t, held, first, last, lost, level, q[questions.SIZE + layer])
        if within >= 0 and not keep_layer(arrays.trees, changed, lost):
            return NO_LEVEL
    elif first < last and q[questions.REQUIRED] == 1:
        within = climb(arrays, t, held[first, domain_assignments.LEAF], level)
    search.said[choice.WITHIN], search.said[choice.WITHIN_LEVEL] = within, level
    return 0


@kernel
def keep_layer(trees: I64, q: I64, lost: int) -> bool:
    """Request slices of the innermost layer that the lost pods fill, or single pods. False: no level is left."""
    layer = q[questions.LAYERS] - 1
    while layer >= 0 and lost % q[questions.SIZE + layer] != 0:
        layer -= 1
    if layer >= 0:
        q[questions.SIZE] = q[questions.SIZE + layer]
        q[questions.SLICE_LEVEL] = q[questions.SLICE_LEVEL + layer]
        q[questions.LAYERS] = 1
        return True
    lowest = trees[q[questions.TREE], topology_trees.LEVELS] - 1
    q[questions.SIZE], q[questions.SLICE_LEVEL], q[questions.LAYERS] = 1, lowest, 0
    if q[questions.SLICES_ONLY] == ANYWHERE_TOO:
        q[questions.LEVEL] = lowest
    return bool(q[questions.SLICES_ONLY] != ALONE)


@kernel
def climb(arrays: TopologyArrays, t: int, leaf: int, level: int) -> int:
    """The domain of a level that a leaf is in."""
    d = arrays.leaves[leaf, topology_leaves.DOMAIN]
    for _ in range(arrays.trees[t, topology_trees.LEVELS] - 1 - level):
        d = arrays.domains[d, topology_domains.PARENT]
    return int(d)


@kernel
def broken_slice(
    arrays: TopologyArrays,
    search: DomainSearch,
    t: int,
    held: I64,
    first: int,
    last: int,
    lost: int,
    level: int,
    size: int,
) -> int:
    """The first domain of a level where the lost pods would fill up the slices; -1: none."""
    broken = -1
    for h in range(first, last):
        search.mark[climb(arrays, t, held[h, domain_assignments.LEAF], level)] += held[h, domain_assignments.COUNT]
    for h in range(first, last):
        d = climb(arrays, t, held[h, domain_assignments.LEAF], level)
        if (search.mark[d] + lost) % size == 0 and (broken < 0 or d < broken):
            broken = d
    for h in range(first, last):
        search.mark[climb(arrays, t, held[h, domain_assignments.LEAF], level)] = 0
    return broken


@kernel
def find_assignments(
    arrays: TopologyArrays, search: DomainSearch, q: I64, within: int, at: int, options: int, out: TopologyAnswer
) -> int:
    """Find assignments for the pods of one question, in one domain of a level if `within` is one. 0, or the failure.

    The counts are left in `search.pods_at` by leaf of the tree, and the leader's leaf in `said`.
    """
    t = q[questions.TREE]
    count = q[questions.COUNT]
    size = q[questions.SIZE]
    leaders = int(q[questions.LEADER_KIND] >= 0)
    out.numbers[answers.NEEDED] = count // size
    out.numbers[answers.SIZE] = size
    out.numbers[answers.LEVEL] = q[questions.LEVEL]
    if count % size != 0:
        return UNEVEN
    if arrays.level_start[t, 0] == arrays.level_start[t, 1]:
        return NO_DOMAINS
    note_layers(search.inner, q)
    count_leaves(arrays, search, q, within, at, options, out)
    add_up(arrays, search, q, 0, arrays.level_start[t, 0], arrays.level_start[t, 1], 1)
    is_balanced = False
    if options & BALANCED and q[questions.REQUIRED] == 0 and q[questions.UNCONSTRAINED] == 0:
        is_balanced = find_balanced(arrays, search, q, options)
    if not is_balanced:
        code = find_level(arrays, search, q, options, out)
        if code != 0:
            return code
    level, n = search.said[choice.LEVEL], search.said[choice.CHOSEN]
    if deal_chosen(search, n, count, leaders, size) < 0:
        return UNSETTLED
    for upper in range(level, arrays.trees[t, topology_trees.LEVELS] - 1):
        is_capped = q[questions.SPREAD_MOST] > 0 and upper >= q[questions.SPREAD_LEVEL]
        if upper < q[questions.SLICE_LEVEL] and not is_balanced and not is_capped:
            n = descend_freely(arrays, search, q, n, options)
        else:
            n = descend_within(arrays, search, q, n, upper, options)
        if n < 0:
            return UNSETTLED
    return note_counts(arrays, search, q, n)


@kernel
def descend_freely(arrays: TopologyArrays, search: DomainSearch, q: I64, n: int, options: int) -> int:
    """From the chosen domains to the fewest of their children, wherever slices are whole. -1: they do not all fit."""
    below = 0
    for i in range(n):
        below = list_children(arrays.domains, search.order, search.chosen[i], below)
    leaders = int(q[questions.LEADER_KIND] >= 0)
    end = deal(search, below, 0, q, q[questions.COUNT], leaders, q[questions.SIZE], BY_SLICES, options)
    return choose(search.chosen, search.after, end)


@kernel
def descend_within(arrays: TopologyArrays, search: DomainSearch, q: I64, n: int, level: int, options: int) -> int:
    """From each chosen domain to the fewest of its own children: at the level of slices and below. -1: not all fit."""
    room, end, size = search.room, 0, q[questions.SIZE]
    if level >= q[questions.SLICE_LEVEL]:
        size = max(search.inner[level + 1], 1)
    for i in range(n):
        d = search.chosen[i]
        pods, leaders = room[d, domain_capacity.PODS], room[d, domain_capacity.LEADERS]
        if pods == 0 and leaders == 0:
            continue
        below = list_children(arrays.domains, search.order, d, 0)
        if size > 1:
            for c in range(below):
                child = search.order[c]
                room[child, domain_capacity.UNITS] = room[child, domain_capacity.PODS] // size
                room[child, domain_capacity.UNITS_LED] = room[child, domain_capacity.PODS_LED] // size
        end = deal(search, below, end, q, pods, leaders, size, BY_UNITS if size > 1 else BY_PODS, options)
        if end < 0:
            return -1
    return choose(search.chosen, search.after, end)


@kernel
def list_children(domains: I64, order: I64, d: int, end: int) -> int:
    """Append the children of a domain to the list to choose from."""
    first = domains[d, topology_domains.FIRST_CHILD]
    for c in range(first, first + domains[d, topology_domains.CHILDREN]):
        order[end] = c
        end += 1
    return end


@kernel
def choose(chosen: I64, after: I64, n: int) -> int:
    """Make the domains in `after` the chosen ones."""
    for i in range(n):
        chosen[i] = after[i]
    return n


@kernel
def note_counts(arrays: TopologyArrays, search: DomainSearch, q: I64, n: int) -> int:
    """Note how many pods each leaf gets, and which one the leader. 0, or UNSETTLED if they are not all there."""
    t, room = q[questions.TREE], search.room
    shift = arrays.trees[t, topology_trees.FIRST_LEAF] + arrays.trees[t, topology_trees.LEAVES]
    shift -= arrays.level_start[t, arrays.trees[t, topology_trees.LEVELS]]
    pods, leaders = 0, 0
    search.said[choice.LEADER] = -1
    for i in range(n):
        d = search.chosen[i]
        pods += room[d, domain_capacity.PODS]
        if room[d, domain_capacity.LEADERS] > 0 and q[questions.LEADER_KIND] >= 0:
            leaders += room[d, domain_capacity.LEADERS]
            search.said[choice.LEADER] = d + shift
    if pods != q[questions.COUNT] or leaders != int(q[questions.LEADER_KIND] >= 0):
        return UNSETTLED
    for i in range(n):
        search.pods_at[search.chosen[i] + shift] += room[search.chosen[i], domain_capacity.PODS]
    return 0
