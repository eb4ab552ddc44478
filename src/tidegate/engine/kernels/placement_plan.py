"""Placement plan of work that has quota: its pods as granted, on nodes of its flavors."""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, entries
from tidegate.engine.kernels.cycle_scratch import Heads
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.quota_tables import QuotaView
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
def plan_pods(view: QuotaView, heads: Heads, e: int) -> int:
    """Write the pods that entry e starts, with their class on its flavors; return how many sets."""
    w, q = heads.entries[e, entries.CLASS], heads.entries[e, entries.QUEUE]
    first, sets = view.held.work_classes[w, work_classes.FIRST_SET], view.held.work_classes[w, work_classes.SETS]
    for ordinal in range(sets):
        combination = combination_of(view, heads.choice[e, choices.FLAVOR_RESOURCE], w, q, ordinal)
        heads.plan[ordinal, pod_sets.POD_CLASS] = view.asked.flavored[first + ordinal, combination]
        heads.plan[ordinal, pod_sets.COUNT] = heads.pods[e, ordinal]
    return int(sets)


@entry
def plan_granted(view: QuotaView, plan: I64, j: int) -> int:
    """Write the pods that workload j starts with the quota that it holds; return how many sets."""
    w, q = view.held.workloads[j, workloads.WORK_CLASS], view.held.reservations[j, quota_reservations.QUEUE]
    first, sets = view.held.work_classes[w, work_classes.FIRST_SET], view.held.work_classes[w, work_classes.SETS]
    for ordinal in range(sets):
        combination = combination_of(view, view.held.claims[j, claims.FLAVOR_RESOURCE], w, q, ordinal)
        plan[ordinal, pod_sets.POD_CLASS] = view.asked.flavored[first + ordinal, combination]
        plan[ordinal, pod_sets.COUNT] = view.asked.counts[j, 0, ordinal]
    return int(sets)


@inlined
def combination_of(view: QuotaView, frs: I64, w: int, q: int, ordinal: int) -> int:
    """The number of the combination of flavors, one a group, that a pod set was given."""
    tree, asked = view.tree, view.asked
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    combination, scale = 0, 1
    for group in range(
        tree.quota_nodes[q, quota_nodes.FIRST_GROUP],
        tree.quota_nodes[q, quota_nodes.FIRST_GROUP] + tree.quota_nodes[q, quota_nodes.GROUPS],
    ):
        chosen = 0
        for a in range(asked.queue_requests[w, queue_requests.ASKS]):
            ask = asked.resource_requests[first + a]
            if frs[a] == 0 or asked.pod_set_needs[ask[resource_requests.POD_SET], pod_set_needs.ORDINAL] != ordinal:
                continue
            if asked.covered[group, ask[resource_requests.RESOURCE]] == 1:
                chosen = option_number(view, group, tree.flavor_resources[frs[a] - 1, flavor_resources.FLAVOR])
        combination += chosen * scale
        scale *= asked.resource_groups[group, resource_groups.OPTIONS] + 1
    return combination


@inlined
def option_number(view: QuotaView, group: int, flavor: int) -> int:
    """The position of a flavor in its group, counted from 1."""
    first = view.asked.resource_groups[group, resource_groups.FIRST_OPTION]
    for at in range(view.asked.resource_groups[group, resource_groups.OPTIONS]):
        if view.asked.flavor_options[first + at, flavor_options.FLAVOR] == flavor:
            return at + 1
    return 0
