"""Places for work that has quota: its pods as granted, on nodes of the flavors that it was given.

Must not know: how quota was found.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, entries
from tidegate.engine.kernels.cycle_scratch import Heads
from tidegate.engine.kernels.gang_placement import Output, place_sets
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import Book
from tidegate.state.tables import (
    claims,
    flavor_options,
    flavor_resources,
    pod_set_needs,
    pod_sets,
    queue_requests,
    quota_nodes,
    quota_reservations,
    resource_groups,
    resource_requests,
    work_classes,
    workloads,
)


@kernel
def plan_pods(book: Book, heads: Heads, e: int) -> int:
    """Write down which pods entry e starts, and of which class on the flavors it gets; return how many sets."""
    w, q = heads.entries[e, entries.CLASS], heads.entries[e, entries.QUEUE]
    first, sets = book.held.work_classes[w, work_classes.FIRST_SET], book.held.work_classes[w, work_classes.SETS]
    for ordinal in range(sets):
        blend = blend_of(book, heads.choice[e, choices.LOT], w, q, ordinal)
        heads.plan[ordinal, pod_sets.POD_CLASS] = book.asked.flavored[first + ordinal, blend]
        heads.plan[ordinal, pod_sets.COUNT] = heads.pods[e, ordinal]
    return int(sets)


@entry
def plan_granted(book: Book, plan: I64, j: int) -> int:
    """Write down which pods workload j starts with the quota that it holds; return how many sets."""
    w, q = book.held.workloads[j, workloads.WORK_CLASS], book.held.tickets[j, quota_reservations.BRANCH]
    first, sets = book.held.work_classes[w, work_classes.FIRST_SET], book.held.work_classes[w, work_classes.SETS]
    for ordinal in range(sets):
        blend = blend_of(book, book.held.claims[j, claims.LOT], w, q, ordinal)
        plan[ordinal, pod_sets.POD_CLASS] = book.asked.flavored[first + ordinal, blend]
        plan[ordinal, pod_sets.COUNT] = book.asked.counts[j, 0, ordinal]
    return int(sets)


@inlined
def blend_of(book: Book, lots: I64, w: int, q: int, ordinal: int) -> int:
    """The number of the flavors, one a group, that a pod set was given."""
    tree, asked = book.tree, book.asked
    first = asked.demands[w, queue_requests.FIRST_ASK]
    blend, scale = 0, 1
    for group in range(
        tree.branches[q, quota_nodes.FIRST_GROUP],
        tree.branches[q, quota_nodes.FIRST_GROUP] + tree.branches[q, quota_nodes.GROUPS],
    ):
        chosen = 0
        for a in range(asked.demands[w, queue_requests.ASKS]):
            ask = asked.asks[first + a]
            if lots[a] == 0 or asked.needs[ask[resource_requests.POD_SET], pod_set_needs.ORDINAL] != ordinal:
                continue
            if asked.covered[group, ask[resource_requests.RESOURCE]] == 1:
                chosen = option_number(book, group, tree.lots[lots[a] - 1, flavor_resources.FLAVOR])
        blend += chosen * scale
        scale *= asked.groups[group, resource_groups.OPTIONS] + 1
    return blend


@inlined
def option_number(book: Book, group: int, flavor: int) -> int:
    """The place of a flavor in its group, counted from 1."""
    first = book.asked.groups[group, resource_groups.FIRST_OPTION]
    for at in range(book.asked.groups[group, resource_groups.OPTIONS]):
        if book.asked.options[first + at, flavor_options.FLAVOR] == flavor:
            return at + 1
    return 0


@entry
def place_plan(hot: Hot, rule: Rule, j: int, plan: I64, sets: int, out: Output) -> int:
    """Place every pod of a plan for workload j, or none. Return -1, or the pod set that did not fit."""
    return place_sets(hot, rule, j, plan[:sets], out)
