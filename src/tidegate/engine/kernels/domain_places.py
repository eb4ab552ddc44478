"""Places in assigned domains: every pod of a set on a node of its leaf.

A leaf is counted by amounts, so the devices of its nodes may not take what it has room for: then other domains are
searched.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries
from tidegate.engine.kernels.cycle_scratch import Heads
from tidegate.engine.kernels.domain_assignment import found_fits, keep_found, search_assignments
from tidegate.engine.kernels.gang_placement import (
    NEXT_DECISION,
    Output,
    choose_devices,
    give_back,
    place_sets,
    write_place,
)
from tidegate.engine.kernels.node_fit import copies_on, refusal, take_place
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.score_cache import best_node
from tidegate.engine.topology.cycle_view import LeafNodes, TopologyView
from tidegate.engine.topology.search_buffers import LIMITED
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.column_table import NONE
from tidegate.state.quota_tables import QuotaView
from tidegate.state.tables import domain_assignments, pod_sets

#: Searches with limited leaves, each with less room where two sets of pods were in each other's way.
MOST_SEARCHES = 8


@entry
def place_at_assignments(
    hot: Hot, rule: Rule, hosts: LeafNodes, assignments: I64, j: int, plan: I64, out: Output
) -> int:
    """Place every pod of a plan for workload j, in its assigned domains if any. Return -1, or the set that is unfit."""
    start, ordinal = out.written[0], 0
    for s in range(len(plan)):
        k, left = plan[s, pod_sets.POD_CLASS], plan[s, pod_sets.COUNT]
        for i in range(len(assignments)):
            row = assignments[i]
            for _ in range(min(row[domain_assignments.COUNT], left) if row[domain_assignments.POD_SET] == s else 0):
                n = node_in(hot, hosts, k, row[domain_assignments.LEAF])
                if n == NONE:
                    give_back(hot, j)
                    out.written[0] = start
                    return s
                put_pod(hot, rule, k, n, j, ordinal, out)
                ordinal += 1
                left -= 1
        for _ in range(left):
            n = best_node(hot, rule, k)
            if n == NONE:
                give_back(hot, j)
                out.written[0] = start
                return s
            put_pod(hot, rule, k, n, j, ordinal, out)
            ordinal += 1
    return -1


@inlined
def put_pod(hot: Hot, rule: Rule, k: int, n: int, j: int, ordinal: int, out: Output) -> None:
    """Place a pod on node n, and write the decision."""
    devices = choose_devices(hot, rule, k, n)
    take_place(hot, k, n, devices, j, ordinal, hot.counters[NEXT_DECISION] + out.written[0])
    write_place(hot, out, j, ordinal, n, devices)


@kernel
def node_in(hot: Hot, hosts: LeafNodes, k: int, leaf: int) -> int:
    """The first node of a leaf that takes a pod of class k now; NONE: none, or the leaf is gone."""
    if leaf < 0:
        return NONE
    for i in range(hosts.start[leaf], hosts.start[leaf + 1]):
        if refusal(hot, k, hosts.rows[i]) == 0:
            return int(hosts.rows[i])
    return NONE


@kernel
def place_entry(
    hot: Hot, rule: Rule, view: QuotaView, heads: Heads, topology: TopologyView | None, e: int, sets: int, out: Output
) -> int:
    """Place every pod of an entry's plan, or none. Return -1, or the pod set that does not fit.

    With a topology pods go to the domains that were found; to others if those are taken or their devices do not fit.
    The topology's current questions must be those of the entry.
    """
    if topology is not None:
        if heads.entries[e, entries.ASSIGNMENTS] > 0:
            unfit = 0
            if found_fits(topology, heads.entries[e]):
                unfit = place_found(hot, rule, heads, topology, e, sets, out)
            return unfit if unfit < 0 else place_limited(hot, rule, view, heads, topology, e, sets, unfit, out)
    return place_sets(hot, rule, heads.entries[e, entries.WORKLOAD], heads.plan[:sets], out)


@inlined
def place_found(hot: Hot, rule: Rule, heads: Heads, topology: TopologyView, e: int, sets: int, out: Output) -> int:
    """Place every pod of an entry's plan in the domains that were found for it."""
    entry = heads.entries[e]
    first = entry[entries.FIRST_ASSIGNMENT]
    found = topology.found[first : first + entry[entries.ASSIGNMENTS]]
    return place_at_assignments(hot, rule, topology.hosts, found, entry[entries.WORKLOAD], heads.plan[:sets], out)


@kernel
def place_limited(
    hot: Hot,
    rule: Rule,
    view: QuotaView,
    heads: Heads,
    topology: TopologyView,
    e: int,
    sets: int,
    unfit: int,
    out: Output,
) -> int:
    """Place every pod of an entry's plan in domains found with each leaf limited to what its devices take."""
    for s in range(sets):
        for leaf in range(len(topology.hosts.start) - 1):
            topology.search.most[s, leaf] = copies_in(hot, topology.hosts, heads.plan[s, pod_sets.POD_CLASS], leaf)
    for _ in range(MOST_SEARCHES):
        if search_assignments(topology, LIMITED) != 0:
            return unfit
        keep_found(view, heads, topology, e)
        unfit = place_found(hot, rule, heads, topology, e, sets, out)
        if unfit < 0 or not limit_shared(heads, topology, e, unfit):
            return unfit
    return unfit


@inlined
def copies_in(hot: Hot, hosts: LeafNodes, k: int, leaf: int) -> int:
    """How many pods of class k the nodes of a leaf take now."""
    copies = 0
    for i in range(hosts.start[leaf], hosts.start[leaf + 1]):
        n = hosts.rows[i]
        if refusal(hot, k, n) == 0:
            copies += copies_on(hot, k, n, hot.nodes[n], hot.pod_classes[k])
    return copies


@kernel
def limit_shared(heads: Heads, topology: TopologyView, e: int, unfit: int) -> bool:
    """Limit the leaves that a set which does not fit shares with sets before it by one pod; False: it shares none."""
    first, found, most, quota = heads.entries[e, entries.FIRST_ASSIGNMENT], topology.found, topology.search.most, False
    end = first + heads.entries[e, entries.ASSIGNMENTS]
    for i in range(first, end):
        if found[i, domain_assignments.POD_SET] == unfit and found[i, domain_assignments.LEAF] >= 0:
            for other in range(first, end):
                if (
                    found[other, domain_assignments.POD_SET] < unfit
                    and found[other, domain_assignments.LEAF] == found[i, domain_assignments.LEAF]
                ):
                    most[unfit, found[i, domain_assignments.LEAF]] = found[i, domain_assignments.COUNT] - 1
                    quota = True
    return quota
