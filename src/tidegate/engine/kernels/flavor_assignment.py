"""Flavor assignment: group by group, each flavor in order, by how well it fits.

The order of fits, from worst to best: none, quota that others use without candidates to preempt, preemption without
candidates, preemption, reclaim, fit.
"""

from __future__ import annotations

from tidegate.engine.kernels.classic_victims import find_targets
from tidegate.engine.kernels.columns import choices, counters, entries, flavor_tries, modes, requested
from tidegate.engine.kernels.cycle_scratch import CycleParams, CycleScratch, Heads, request
from tidegate.engine.kernels.entry_request import amount_of, may_have, whole_amount
from tidegate.engine.kernels.quota import available, borrow_level, minus, move_usage, plus, potential
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.queues import PreemptWhom
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.quota_tables import QuotaTree, QuotaView, Requirements
from tidegate.state.tables import (
    claims,
    flavor_options,
    flavor_resources,
    flavors,
    pod_set_needs,
    queue_requests,
    quota_nodes,
    quota_reservations,
    quotas,
    resource_groups,
    resource_requests,
    work_classes,
)

#: Fits, finer than an assignment's mode.
NONE, WAITS, NO_VICTIMS, PREEMPTS, RECLAIMS, FITS = range(6)
WORST_LEVEL = 1 << 30

#: The mode of a request that was not tried.
UNTRIED = -1

NEVER = list(PreemptWhom).index(PreemptWhom.NEVER)
NO_FLAVOR = int(Reason.NO_FLAVOR)
UNDECLARED = int(Reason.RESOURCE_UNDECLARED)
ABOVE_QUOTA = int(Reason.ABOVE_QUOTA)
WAITS_FOR_QUOTA = int(Reason.WAITS_FOR_QUOTA)
TOPOLOGIES_MIXED = int(Reason.TOPOLOGIES_MIXED)
FLAVOR_REPLACED = int(Reason.FLAVOR_REPLACED)


@kernel
def assign(view: QuotaView, d: CycleScratch, params: CycleParams, e: int) -> int:
    """Find flavors for entry e with the pod counts in its scratch; return how well it fits, topology aside."""
    entry = d.heads.entries[e]
    if entry[entries.AGAIN] > 0:
        entry[entries.MODE] = take_granted(view, d.heads, e)
    else:
        entry[entries.MODE] = assign_flavors(view, d, params, e)
    return int(entry[entries.MODE])


@inlined
def take_granted(view: QuotaView, heads: Heads, e: int) -> int:
    """Keep the flavors of an entry that holds quota."""
    entry, choice = heads.entries[e], heads.choice[e]
    entry[entries.MODE], entry[entries.BORROW], entry[entries.TRYING] = modes.NO_FIT, 0, 0
    entry[entries.CODE], entry[entries.FLAVOR_RESOURCE], entry[entries.MISSING] = 0, 0, 0
    for a in range(view.asked.queue_requests[entry[entries.CLASS], queue_requests.ASKS]):
        choice[choices.FLAVOR_RESOURCE, a] = view.held.claims[entry[entries.WORKLOAD], claims.FLAVOR_RESOURCE, a]
        choice[choices.MODE, a], choice[choices.LEVEL, a] = modes.FIT, 0
    return modes.FIT


@kernel
def assign_flavors(view: QuotaView, d: CycleScratch, params: CycleParams, e: int) -> int:
    """Find flavors for entry e with the pod counts in its scratch; return how well it fits."""
    asked, heads, tree = view.asked, d.heads, view.tree
    entry, choice = heads.entries[e], heads.choice[e]
    first = asked.queue_requests[entry[entries.CLASS], queue_requests.FIRST_ASK]
    asks = asked.queue_requests[entry[entries.CLASS], queue_requests.ASKS]
    clear_assignment(entry, choice, d.requests.frs, asks)
    for a in range(asks):
        if choice[choices.FLAVOR_RESOURCE, a] != 0:
            continue
        leader = asked.pod_set_needs[
            asked.resource_requests[first + a, resource_requests.POD_SET], pod_set_needs.LEADER
        ]
        group = group_of(
            tree, asked, entry[entries.QUEUE], asked.resource_requests[first + a, resource_requests.RESOURCE]
        )
        if group < 0:
            uncounted = (
                params.ignore_undeclared == 1
                or asked.resource_requests[first + a, resource_requests.RESOURCE] == params.pods
            )
            if uncounted or whole_amount(asked, heads, e, first + a) == 0:
                continue
            entry[entries.CODE] = UNDECLARED
        if group < 0 or not find_flavor(view, d, params, e, leader, group, a):
            leave_without(asked, choice, first, asks, leader)
            return modes.NO_FIT
        for other in range(asks):
            if choice[choices.FLAVOR_RESOURCE, other] != 0 and is_asked_with(asked, first + other, leader, group):
                fr = choice[choices.FLAVOR_RESOURCE, other] - 1
                taken = amount_of(view, heads, e, first + other)
                d.requests.frs[fr, requested.ASSUMED] = plus(d.requests.frs[fr, requested.ASSUMED], taken)
    if mixes_topologies(view, choice, first, asks):
        entry[entries.CODE] = TOPOLOGIES_MIXED
        return modes.NO_FIT
    mode = modes.FIT
    for a in range(asks):
        if choice[choices.FLAVOR_RESOURCE, a] != 0:
            mode = min(mode, choice[choices.MODE, a])
            entry[entries.BORROW] = max(entry[entries.BORROW], choice[choices.LEVEL, a])
    return int(mode)


@inlined
def clear_assignment(entry: I64, choice: I64, frs: I64, asks: int) -> None:
    """Clear the assignment of an entry."""
    entry[entries.MODE], entry[entries.BORROW], entry[entries.TRYING] = modes.NO_FIT, 0, 0
    entry[entries.CODE], entry[entries.FLAVOR_RESOURCE], entry[entries.MISSING] = 0, 0, 0
    for a in range(asks):
        choice[choices.FLAVOR_RESOURCE, a], choice[choices.MODE, a], choice[choices.LEVEL, a] = (0, modes.FIT, 0)
    for fr in range(len(frs)):
        frs[fr, requested.ASSUMED] = 0


@inlined
def leave_without(asked: Requirements, choice: I64, first: int, asks: int, leader: int) -> None:
    """Leave the pod sets of a leader without flavors: not all of their requests can be met."""
    for a in range(asks):
        if (
            asked.pod_set_needs[asked.resource_requests[first + a, resource_requests.POD_SET], pod_set_needs.LEADER]
            == leader
        ):
            choice[choices.FLAVOR_RESOURCE, a] = 0


@inlined
def mixes_topologies(view: QuotaView, choice: I64, first: int, asks: int) -> bool:
    """Whether a pod set that is placed by topology got flavors of two topologies: its pods cannot be in both."""
    asked, frs = view.asked, view.tree.flavor_resources
    for a in range(asks):
        s = asked.resource_requests[first + a, resource_requests.POD_SET]
        if choice[choices.FLAVOR_RESOURCE, a] == 0 or asked.pod_set_needs[s, pod_set_needs.TOPOLOGY] == 0:
            continue
        flavor = frs[choice[choices.FLAVOR_RESOURCE, a] - 1, flavor_resources.FLAVOR]
        for b in range(a):
            if (
                choice[choices.FLAVOR_RESOURCE, b] != 0
                and asked.resource_requests[first + b, resource_requests.POD_SET] == s
            ):
                other = frs[choice[choices.FLAVOR_RESOURCE, b] - 1, flavor_resources.FLAVOR]
                if (
                    other != flavor
                    and asked.flavors[other, flavors.TOPOLOGY] == 1
                    and asked.flavors[flavor, flavors.TOPOLOGY] == 1
                ):
                    return True
    return False


@inlined
def group_of(tree: QuotaTree, asked: Requirements, q: int, resource: int) -> int:
    """The resource group of a queue that gives a resource; -1: none."""
    first = tree.quota_nodes[q, quota_nodes.FIRST_GROUP]
    for group in range(first, first + tree.quota_nodes[q, quota_nodes.GROUPS]):
        if asked.covered[group, resource] == 1:
            return int(group)
    return -1


@inlined
def is_asked_with(asked: Requirements, ask: int, leader: int, group: int) -> bool:
    """Whether a request belongs to the pod sets of a leader and is given by a group."""
    row = asked.resource_requests[ask]
    return bool(
        asked.pod_set_needs[row[resource_requests.POD_SET], pod_set_needs.LEADER] == leader
        and asked.covered[group, row[resource_requests.RESOURCE]] == 1
    )


@kernel
def find_flavor(
    view: QuotaView, d: CycleScratch, params: CycleParams, e: int, leader: int, group: int, ask: int
) -> bool:
    """Find the flavor of a group for the pod sets of a leader; False: none of them fits in any way."""
    tree, asked, entry = view.tree, view.asked, d.heads.entries[e]
    q, options = entry[entries.QUEUE], asked.resource_groups[group, resource_groups.OPTIONS]
    slot = (
        asked.pod_set_needs[leader, pod_set_needs.ORDINAL] * tree.quota_nodes[q, quota_nodes.GROUPS]
        + group
        - tree.quota_nodes[q, quota_nodes.FIRST_GROUP]
    )
    best, best_level, attempted, found = NONE, WORST_LEVEL, -1, False
    for at in range(d.heads.tries[e, flavor_tries.RESUME, slot], options):
        attempted = at
        option = asked.resource_groups[group, resource_groups.FIRST_OPTION] + at
        if entry[entries.RESTRICTED] == 1 and not is_nominated(view, d.heads, e, leader, group, option, ask):
            continue
        code = option_mismatch(view, entry[entries.CLASS], leader, option)
        if code != 0:
            note_refusal(entry, NO_FLAVOR, option, code)
            continue
        fit, level = weigh_flavor(view, d, params, e, leader, group, option)
        stops = not moves_on(tree, q, fit, level)
        if stops or is_better(tree, q, fit, level, best, best_level):
            best, best_level, found = fit, level, True
            take_trial(asked, d.heads, e, leader, group, option)
        if stops:
            break
    d.heads.tries[e, flavor_tries.TRIED, slot] = 0
    if found and attempted != options - 1:
        d.heads.tries[e, flavor_tries.TRIED, slot] = attempted + 1
        entry[entries.TRYING] = 1
    return found


@inlined
def is_nominated(view: QuotaView, heads: Heads, e: int, leader: int, group: int, option: int, ask: int) -> bool:
    """Whether the first nomination of this cycle gave this flavor for the resource in question."""
    asked, w = view.asked, heads.entries[e, entries.CLASS]
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    for a in range(asked.queue_requests[w, queue_requests.ASKS]):
        fr = heads.choice[e, choices.NOMINATED, a] - 1
        if fr < 0 or not is_asked_with(asked, first + a, leader, group):
            continue
        if (
            asked.resource_requests[first + a, resource_requests.RESOURCE]
            == asked.resource_requests[first + ask, resource_requests.RESOURCE]
        ):
            if (
                view.tree.flavor_resources[fr, flavor_resources.FLAVOR]
                == asked.flavor_options[option, flavor_options.FLAVOR]
            ):
                return True
    return False


@inlined
def option_mismatch(view: QuotaView, w: int, leader: int, option: int) -> int:
    """Reason why a flavor does not match the pod sets of a leader; 0: it does."""
    asked, first = view.asked, view.held.work_classes[w, work_classes.FIRST_SET]
    for s in range(first, first + view.held.work_classes[w, work_classes.SETS]):
        code = asked.mismatch[s, asked.flavor_options[option, flavor_options.PLACE]]
        if asked.pod_set_needs[s, pod_set_needs.LEADER] == leader and code != 0:
            return int(code)
    return 0


@inlined
def note_refusal(entry: I64, code: int, fr: int, missing: int) -> None:
    """Note why a flavor was not taken: the reason that is nearest to being lifted is kept."""
    known = entry[entries.CODE]
    if known == 0 or (known == NO_FLAVOR and code != NO_FLAVOR) or (known == ABOVE_QUOTA and code == WAITS_FOR_QUOTA):
        entry[entries.CODE], entry[entries.FLAVOR_RESOURCE], entry[entries.MISSING] = code, fr, missing


@kernel
def weigh_flavor(
    view: QuotaView, d: CycleScratch, params: CycleParams, e: int, leader: int, group: int, option: int
) -> tuple[int, int]:
    """How well a flavor fits all requests for it, and how high that borrows; each request is noted as a trial."""
    asked, heads = view.asked, d.heads
    q, w = heads.entries[e, entries.QUEUE], heads.entries[e, entries.CLASS]
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    asks = asked.queue_requests[w, queue_requests.ASKS]
    trial = heads.trial
    fit, level = FITS, 0
    for a in range(asks):
        trial[0, a] = UNTRIED
    for a in range(asks):
        if trial[0, a] != UNTRIED or not is_asked_with(asked, first + a, leader, group):
            continue
        resource, amount, fits = asked.resource_requests[first + a, resource_requests.RESOURCE], 0, True
        for other in range(a, asks):
            if asked.resource_requests[first + other, resource_requests.RESOURCE] == resource and is_asked_with(
                asked, first + other, leader, group
            ):
                amount = plus(amount, amount_of(view, heads, e, first + other))
                fits = fits and may_have(
                    view, heads, e, first + other, asked.flavor_options[option, flavor_options.FLAVOR]
                )
        if not fits:
            note_refusal(heads.entries[e], NO_FLAVOR, option, FLAVOR_REPLACED)
            return NONE, 0
        fr = asked.flavor_resource_of[asked.flavor_options[option, flavor_options.FLAVOR], resource] - 1
        one, its_level = weigh_flavor_resource(view, d, params, e, fr, amount)
        for other in range(a, asks):
            if asked.resource_requests[first + other, resource_requests.RESOURCE] == resource and is_asked_with(
                asked, first + other, leader, group
            ):
                trial[0, other], trial[1, other] = mode_of(one), its_level
        if is_better(view.tree, q, fit, level, one, its_level):
            fit, level = one, its_level
        if fit == NONE:
            break
    return fit, level


@inlined
def mode_of(fit: int) -> int:
    """The mode of an assignment with this fit."""
    if fit == NONE:
        return modes.NO_FIT
    if fit == WAITS:
        return modes.WAIT
    return modes.FIT if fit == FITS else modes.PREEMPT


@inlined
def take_trial(asked: Requirements, heads: Heads, e: int, leader: int, group: int, option: int) -> None:
    """Keep the trial of a flavor as the assignment."""
    w = heads.entries[e, entries.CLASS]
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    for a in range(asked.queue_requests[w, queue_requests.ASKS]):
        if is_asked_with(asked, first + a, leader, group):
            fr = asked.flavor_resource_of[
                asked.flavor_options[option, flavor_options.FLAVOR],
                asked.resource_requests[first + a, resource_requests.RESOURCE],
            ]
            heads.choice[e, choices.FLAVOR_RESOURCE, a] = fr
            heads.choice[e, choices.MODE, a], heads.choice[e, choices.LEVEL, a] = heads.trial[0, a], heads.trial[1, a]


@kernel
def weigh_flavor_resource(
    view: QuotaView, d: CycleScratch, params: CycleParams, e: int, fr: int, amount: int
) -> tuple[int, int]:
    """How well one flavor-resource fits, and how high that borrows."""
    tree, entry = view.tree, d.heads.entries[e]
    q = entry[entries.QUEUE]
    amount = plus(amount, d.requests.frs[fr, requested.ASSUMED])
    most = potential(tree, q, fr)
    if amount > most:
        note_refusal(entry, ABOVE_QUOTA, fr, minus(amount, most))
        return NONE, 0
    level = borrow_level(tree, q, fr, amount)
    free = max(0, available(tree, q, fr))
    if amount <= free:
        return FITS, level // 2
    note_refusal(entry, WAITS_FOR_QUOTA, fr, minus(amount, free))
    may_borrow = tree.quota_nodes[q, quota_nodes.BORROW] != NEVER or (
        params.fair != 0 and tree.quota_nodes[q, quota_nodes.RECLAIM] != NEVER
    )
    if tree.quota[q, quotas.NOMINAL, fr] < amount and level % 2 == 0 and not may_borrow:
        return WAITS if params.places == 1 else NONE, level // 2
    return try_preempting(view, d, params, e, fr, amount)


@kernel
def try_preempting(
    view: QuotaView, d: CycleScratch, params: CycleParams, e: int, fr: int, amount: int
) -> tuple[int, int]:
    """Whether preemption makes room in one flavor-resource, in which queues, and how high the queue then borrows."""
    tree, held, marks = view.tree, view.held, d.requests.marks
    q, j = d.heads.entries[e, entries.QUEUE], d.heads.entries[e, entries.WORKLOAD]
    marks[counters.REQUESTED] = 0
    request(d.requests, fr, amount, 1)
    start = marks[counters.TARGETS]
    found = find_targets(view, d, None, params.fair, q, j)
    fit = RECLAIMS if found > 0 else NO_VICTIMS
    for i in range(start, start + found):
        move_usage(tree, held, d.preemption.targets[i, 0], 1)
        if held.reservations[d.preemption.targets[i, 0], quota_reservations.QUEUE] == q:
            fit = PREEMPTS
    level = borrow_level(tree, q, fr, amount) // 2
    for i in range(start, start + found):
        move_usage(tree, held, d.preemption.targets[i, 0], -1)
    marks[counters.TARGETS] = start
    return fit, level


@inlined
def is_better(tree: QuotaTree, q: int, fit: int, level: int, other: int, other_level: int) -> bool:
    """Whether a queue prefers one fit over another."""
    if NONE in (fit, other):
        return fit != NONE
    if (fit == WAITS) != (other == WAITS):
        return other == WAITS
    if (fit == NO_VICTIMS) != (other == NO_VICTIMS):
        return other == NO_VICTIMS
    if tree.quota_nodes[q, quota_nodes.PREFERS_PREEMPTING] == 1:
        return fit > other if level == other_level else level < other_level
    return level < other_level if fit == other else fit > other


@inlined
def moves_on(tree: QuotaTree, q: int, fit: int, level: int) -> bool:
    """Whether a queue tries the next flavor before it takes one with this fit."""
    if fit in (NONE, WAITS, NO_VICTIMS):
        return True
    if fit != FITS and tree.quota_nodes[q, quota_nodes.PREEMPT_MOVES] == 1:
        return True
    return bool(level > 0 and tree.quota_nodes[q, quota_nodes.BORROW_MOVES] == 1)
