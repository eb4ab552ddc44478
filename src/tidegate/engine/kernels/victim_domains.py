"""Victim search of an entry whose pods are placed by topology: domain by domain, the one that loses least.

In each domain victims are found node by node, as without a topology. The topology's own search then checks whether the
pods fit, with the victims out of the way.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries, losses, planned, search
from tidegate.engine.kernels.cycle_scratch import Cycle, Heads
from tidegate.engine.kernels.domain_assignment import keep_found, search_assignments, tree_for
from tidegate.engine.kernels.domain_places import place_entry
from tidegate.engine.kernels.gang_placement import give_back
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.starvation import open_ending
from tidegate.engine.kernels.victim_quota import fits_quota
from tidegate.engine.kernels.victim_scratch import MOST_CANDIDATES, NEVER, ORDERS, VictimSearch
from tidegate.engine.kernels.victim_search import (
    fill_quota,
    forget_plan,
    keep_if_best,
    move_victim,
    next_to_spare,
    plan_sets,
    put_back_since,
    remove_taken,
    search_victims,
    take_all,
)
from tidegate.engine.kernels.withhold_places import RESERVED
from tidegate.engine.topology.columns import questions
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaView
from tidegate.state.tables import (
    domain_assignments,
    pod_sets,
    pods,
    reserved_places,
    topology_domains,
    topology_leaves,
    topology_trees,
    work_classes,
    workloads,
)


@kernel
def fits_topology(c: Cycle, topology: TopologyView, e: int, sets: int) -> int:
    """Find domains and places for entry e as things are now; how many pods were planned, 0: it does not fit."""
    hot, view, d, out = c.hot, c.quota, c.scratch, c.out
    s, j, start = d.victims, d.heads.entries[e, entries.WORKLOAD], out.written[0]
    if search_assignments(topology, 0) != 0:
        return 0
    keep_found(view, d.heads, topology, e)
    if place_entry(hot, c.rule, view, d.heads, topology, e, sets, out) >= 0:
        return 0
    pod_count, p = 0, hot.workloads[j, workloads.FIRST_POD]
    while p >= 0:
        row = s.plan[hot.pods[p, pods.ORDINAL]]
        row[planned.POD_CLASS] = hot.pods[p, pods.POD_CLASS]
        row[planned.NODE] = hot.pods[p, pods.NODE]
        row[planned.DEVICES] = hot.pods[p, pods.DEVICES]
        pod_count += 1
        p = hot.pods[p, pods.NEXT]
    give_back(hot, j)
    out.written[0] = start
    return pod_count


@kernel
def assignments_of_reserved(hot: Hot, view: QuotaView, heads: Heads, topology: TopologyView, e: int, plan: I64) -> None:
    """Write the places that are reserved for entry e as what was found for it, leaf by leaf."""
    entry, ordinal, left = heads.entries[e], 0, 0
    j, first = entry[entries.WORKLOAD], entry[entries.FIRST_ASSIGNMENT]
    end, sets = first, view.held.work_classes[entry[entries.CLASS], work_classes.FIRST_SET]
    for i in range(hot.counters[RESERVED]):
        if hot.reserved[i, reserved_places.WORKLOAD] != j:
            continue
        while left == plan[ordinal, pod_sets.COUNT]:
            ordinal, left = ordinal + 1, 0
        left += 1
        tree = tree_for(view, heads, topology.assignments, e, ordinal)
        leaf = leaf_in(topology, tree, hot.reserved[i, reserved_places.NODE]) if tree >= 0 else -1
        if leaf >= 0:
            end = add_found(
                topology, first, end, ordinal, leaf, topology.questions[sets + ordinal, tree, questions.KIND]
            )
    entry[entries.ASSIGNMENTS] = entry[entries.NETS] = end - first
    entry[entries.FIRST_NET] = first


@inlined
def leaf_in(topology: TopologyView, tree: int, n: int) -> int:
    """The leaf of node n in a tree; -1: it is in none."""
    start = topology.arrays.trees[tree, topology_trees.FIRST_LEAF]
    for i in range(topology.leaves.start[n], topology.leaves.start[n + 1]):
        if start <= topology.leaves.rows[i] < start + topology.arrays.trees[tree, topology_trees.LEAVES]:
            return int(topology.leaves.rows[i])
    return -1


@inlined
def add_found(topology: TopologyView, first: int, end: int, ordinal: int, leaf: int, kind: int) -> int:
    """Add a pod in a leaf to what was found; return where the rows end."""
    for at in range(first, end):
        if (
            topology.found[at, domain_assignments.POD_SET] == ordinal
            and topology.found[at, domain_assignments.LEAF] == leaf
        ):
            topology.found[at, domain_assignments.COUNT] += 1
            return end
    row = topology.found[end]
    row[domain_assignments.POD_SET], row[domain_assignments.LEAF], row[domain_assignments.COUNT] = ordinal, leaf, 1
    row[domain_assignments.KIND], row[domain_assignments.NAME] = kind, topology.names[leaf]
    return end + 1


@kernel
def allow_domain(topology: TopologyView, s: VictimSearch, tree: int, domain: int, level: int) -> None:
    """Allow the nodes of a domain and no others; a negative level: all nodes of the tree."""
    arrays = topology.arrays
    s.allowed[:] = 0
    first = arrays.trees[tree, topology_trees.FIRST_LEAF]
    for leaf in range(first, first + arrays.trees[tree, topology_trees.LEAVES]):
        at = arrays.leaves[leaf, topology_leaves.DOMAIN]
        while level >= 0 and at >= arrays.level_start[tree, level + 1]:
            at = arrays.domains[at, topology_domains.PARENT]
        if level < 0 or at == domain:
            for i in range(topology.hosts.start[leaf], topology.hosts.start[leaf + 1]):
                s.allowed[topology.hosts.rows[i]] = 1


@inlined
def domains_of_question(topology: TopologyView) -> tuple[int, int, int, int]:
    """The tree of the current question, and the level and domains of which one must hold all pods; -1: any."""
    question = topology.asked[0]
    tree, level = question[questions.TREE], question[questions.LEVEL] if question[questions.REQUIRED] == 1 else -1
    first = topology.arrays.level_start[tree, max(level, 0)]
    return tree, level, first, topology.arrays.level_start[tree, level + 1] if level >= 0 else first + 1


@kernel
def search_domains(c: Cycle, topology: TopologyView, s: VictimSearch, plan: I64, e: int) -> bool:
    """Find the victims for entry e up to the highest allowed level, in the domain that loses least."""
    hot = c.hot
    tree, level, first, end = domains_of_question(topology)
    s.numbers[search.BEST_LOSS], s.numbers[search.RESTRICTED], s.numbers[search.ANY_ORDER] = (NEVER, 1, 0)
    for domain in range(first, end):
        allow_domain(topology, s, tree, domain, level)
        s.numbers[search.FORCES_FIRST] = 0
        if plan_sets(hot, c.rule, c, topology, s, plan):
            forget_plan(hot, s)
            settle_domain(c, topology, s, plan, e)
        forget_plan(hot, s)
        put_back_since(hot, c, topology, s, 0)
    s.numbers[search.RESTRICTED], s.numbers[search.ANY_ORDER] = 0, 1
    if s.numbers[search.BEST_LOSS] == NEVER and s.numbers[search.CANDIDATES] <= MOST_CANDIDATES:
        for order in range(ORDERS):
            take_all(hot, c, topology, s, order)
            settle_domain(c, topology, s, plan, e)
            forget_plan_rows(s)
            put_back_since(hot, c, topology, s, 0)
    return bool(s.numbers[search.BEST_LOSS] < NEVER)


@kernel
def plan_if_all_ended(hot: Hot, rule: Rule, topology: TopologyView, s: VictimSearch, plan: I64, now_ms: int) -> bool:
    """Plan the pods of the current questions in the domain that is free soonest."""
    tree, level, first, end = domains_of_question(topology)
    best, least = -1, NEVER
    for domain in range(first, end):
        if (
            plan_in_domain(hot, rule, topology, s, plan, now_ms, tree, domain, level)
            and s.numbers[search.BEST_LOSS] < least
        ):
            best, least = domain, s.numbers[search.BEST_LOSS]
    return best >= 0 and plan_in_domain(hot, rule, topology, s, plan, now_ms, tree, best, level)


@kernel
def plan_in_domain(
    hot: Hot,
    rule: Rule,
    topology: TopologyView,
    s: VictimSearch,
    plan: I64,
    now_ms: int,
    tree: int,
    domain: int,
    level: int,
) -> bool:
    """Plan pods in one domain, counting all work there as ended that is in the way."""
    open_ending(hot, s, now_ms)
    allow_domain(topology, s, tree, domain, level)
    s.numbers[search.RESTRICTED] = 1
    return bool(search_victims(hot, rule, None, None, s, plan))


@kernel
def settle_domain(c: Cycle, topology: TopologyView, s: VictimSearch, plan: I64, e: int) -> None:
    """With victims taken, check topology and quota; spare victims that are not needed; keep it if it loses least."""
    if not fill_quota(c.hot, c, topology, s):
        return
    pod_count = fits_topology(c, topology, e, len(plan))
    if pod_count == 0:
        return
    spare_in_domain(c, topology, s, plan, e)
    pod_count = fits_topology(c, topology, e, len(plan))
    keep_if_best(s, pod_count)
    forget_plan_rows(s)


@kernel
def forget_plan_rows(s: VictimSearch) -> None:
    """Forget a plan whose pods are on no node."""
    s.plan[:, planned.NODE] = -1


@kernel
def spare_in_domain(c: Cycle, topology: TopologyView, s: VictimSearch, plan: I64, e: int) -> None:
    """Put back victims that are not needed, the largest loss first."""
    hot = c.hot
    ceiling, index = NEVER, 0
    while True:
        at = next_to_spare(s, ceiling, index)
        if at < 0:
            return
        j = s.taken[at]
        ceiling, index = s.workloads[j, losses.LOSS], at + 1
        move_victim(hot, c, topology, s, j, -1)
        fits = fits_quota(c.quota, c.scratch, s.numbers)
        if fits and fits_topology(c, topology, e, len(plan)) > 0:
            remove_taken(s, at)
            index = at
        else:
            move_victim(hot, c, topology, s, j, 1)
        forget_plan_rows(s)
