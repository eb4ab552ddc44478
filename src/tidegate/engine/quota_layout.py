"""The quota tree laid out from the policy: quota nodes, flavor-resources, groups, and requests of work classes.

Done again when the policy changes; what workloads hold is carried over by name.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from tidegate.engine.flavor_match import flavor_mismatch, on_flavors, refuse_work
from tidegate.engine.quota_reservations import Holding, holdings, write_holdings
from tidegate.model.arrays import I64
from tidegate.model.queues import (
    LARGEST_CLAIM,
    MULTI_CLUSTER,
    PROVISIONING,
    UNLIMITED,
    Cohort,
    Flavor,
    FlavorMove,
    FlavorPreference,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
    StopPolicy,
    charge_of,
    in_any_namespace,
)
from tidegate.model.units import bounded
from tidegate.model.work import PodSet, Work
from tidegate.state.classes import PodClassKey
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import asked_pods, done_in_sets
from tidegate.state.quota_tables import QuotaTables, carry_reservations
from tidegate.state.tables.quota_nodes import NO_LIMIT
from tidegate.state.tables.workloads import Phase

_WHOM = list(PreemptWhom)
_PODS = "pods"


def lay_out(state: ClusterState) -> None:
    """Build the tables of the policy's queues, and carry over what is held."""
    held: list[Holding] = holdings(state) if state.quota else []
    decayed_usage, reservations, quota = usage_by_name(state.quota), state.quota.reservations, state.policy.shares
    refused = _refusals(state)
    tables = state.quota = QuotaTables()
    if quota.queues:
        _make_tree(state, decayed_usage)
        write_holdings(state, sorted(held, key=lambda holding: (holding.granted_ms, holding.row)))
    carry_reservations(reservations, tables)
    _keep_counts(state, held)
    _forget_reasons(state, np.flatnonzero(_refusals(state) != refused))
    sum_up(tables)


def _refusals(state: ClusterState) -> I64:
    """Why the queue of each work class does not consider it."""
    found = np.zeros(state.work_classes.top, np.int64)
    known = state.quota.queue_requests.refused[: state.quota.queue_requests.top]
    found[: len(known)] = known
    return found


def _forget_reasons(state: ClusterState, classes: I64) -> None:
    """Report reasons again in queues that came, went, opened or closed."""
    works, table = state.work_classes, state.workloads
    waiting = table.phase[: table.top] == Phase.PENDING
    rows = np.flatnonzero(waiting & np.isin(table.work_class[: table.top], classes))
    table.held_code[rows] = 0
    works.unreported[classes] = works.waiting[classes]
    state.counters[Counter.UNREPORTED] += len(rows)


def _make_tree(state: ClusterState, decayed_usage: dict[str, tuple[int, dict[str, int]]]) -> None:
    tables, quota = state.quota, state.policy.shares
    for name, resource in quota.flavor_resources():
        tables.flavor_resource(name, resource)
    for flavor in quota.flavors:
        tables.flavor(flavor.name)
        tables.flavors.topology[tables.flavor_rows[flavor.name]] = bool(flavor.topology) and quota.topology.enabled
    _build(tables, quota)
    _open_local_queues(tables, quota, decayed_usage)
    describe_work(state)


def _keep_counts(state: ClusterState, held: list[Holding]) -> None:
    """Keep the granted pod counts of workloads whose queue is gone: no quota reservation has them any more."""
    for holding in held:
        if state.quota.holds_quota(holding.row):
            continue
        asked = asked_pods(state, holding.row)
        done = done_in_sets(state, holding.row, len(asked))
        counts = [count + more for count, more in zip(holding.pods, done, strict=False)]
        if counts != asked:
            state.granted[holding.row] = tuple(counts)


def usage_by_name(tables: QuotaTables) -> dict[str, tuple[int, dict[str, int]]]:
    """The decayed usage of each local queue, by name."""
    found = {}
    for name, row in tables.local_queue_rows.items():
        used = dict(zip(tables.resources, tables.local_queues.decayed_usage[row].tolist(), strict=False))
        found[name] = (int(tables.local_queues.at_ms[row]), used)
    return found


# -- the tree --------------------------------------------------------------------------------------------------


def _build(tables: QuotaTables, quota: QueueSetup) -> None:
    """Make a row of every cohort and queue, linked into a tree; cohorts that are only named exist too."""
    cohorts = {cohort.name: cohort for cohort in quota.cohorts}
    named = {queue.cohort for queue in quota.queues} | {cohort.parent for cohort in quota.cohorts} | set(cohorts)
    for name in sorted(named - {""}):
        _add_quota_node(tables, f"cohort/{name}", cohorts.get(name, Cohort(name=name)))
    for queue in sorted(quota.queues, key=lambda queue: queue.name):
        row = _add_quota_node(tables, f"queue/{queue.name}", queue)
        _set_rules(tables, row, queue)
        _add_groups(tables, row, queue, quota)
    _link(tables, quota, cohorts)


def _add_quota_node(tables: QuotaTables, name: str, spec: Cohort | Queue) -> int:
    row = int(tables.quota_nodes.take(1)[0])
    tables.quota_node_rows[name] = row
    tables.quota_nodes.rank[row] = row
    tables.quota_nodes.weight_milli[row] = bounded(spec.weight_milli)
    tables.quota_nodes.borrow_limit[row] = tables.quota_nodes.lend_limit[row] = NO_LIMIT
    for quota in spec.quotas:
        fr = tables.flavor_resource(quota.flavor, quota.resource)  # first: it may replace the columns
        tables.quota_nodes.defined[row, fr] = 1
        set_amounts(tables, row, fr, quota)
    return row


def set_amounts(tables: QuotaTables, row: int, fr: int, quota: Quota) -> None:
    """Write the nominal quota of a quota node for a flavor-resource, with its borrowing and lending limits."""
    quota_nodes = tables.quota_nodes
    quota_nodes.nominal[row, fr] = bounded(quota.nominal)
    for limits, limit in ((quota_nodes.borrow_limit, quota.borrow_limit), (quota_nodes.lend_limit, quota.lend_limit)):
        limits[row, fr] = NO_LIMIT if limit is None else bounded(limit)


def _set_rules(tables: QuotaTables, row: int, queue: Queue) -> None:
    quota_nodes, rule, moves = tables.quota_nodes, queue.preemption, queue.fungibility
    quota_nodes.is_queue[row] = 1
    quota_nodes.within[row] = _WHOM.index(rule.within_queue)
    quota_nodes.reclaim[row] = _WHOM.index(rule.reclaim_in_cohort)
    quota_nodes.borrow[row] = _WHOM.index(rule.borrow_in_cohort)
    threshold = rule.borrow_priority_threshold
    quota_nodes.threshold[row] = UNLIMITED if threshold is None else bounded(threshold, -UNLIMITED)
    quota_nodes.borrow_moves[row] = moves.when_can_borrow is FlavorMove.NEXT
    quota_nodes.preempt_moves[row] = moves.when_can_preempt is FlavorMove.NEXT
    quota_nodes.prefers_preempting[row] = moves.preference is FlavorPreference.PREEMPT
    quota_nodes.strict[row] = queue.strict_fifo
    quota_nodes.closed[row] = queue.stop is not StopPolicy.NONE
    quota_nodes.usage_based[row] = queue.usage_based


def _add_groups(tables: QuotaTables, row: int, queue: Queue, quota: QueueSetup) -> None:
    known = {flavor.name: flavor for flavor in quota.flavors}
    rows = tables.resource_groups.take(len(queue.groups))
    tables.quota_nodes.first_group[row] = rows[0] if len(rows) else 0
    tables.quota_nodes.groups[row] = len(rows)
    place, by_topology = 0, []
    for at, group in zip(rows.tolist(), queue.groups, strict=True):
        for resource in group.resources:
            number = tables.resource(resource)  # first: it may replace the columns
            tables.resource_groups.covered[at, number] = 1
        options = tables.flavor_options.take(len(group.flavors))
        tables.resource_groups.first_option[at] = options[0] if len(options) else 0
        tables.resource_groups.options[at] = len(options)
        for option, name in zip(options.tolist(), group.flavors, strict=True):
            tables.flavor_options.flavor[option] = tables.flavor(name)
            tables.flavor_options.place[option] = place
            tables.flavor_options.delays[option] = _delay(queue, name)
            place += 1
            by_topology.append(name in known and bool(known[name].topology) and quota.topology.enabled)
    tables.quota_nodes.topology_only[row] = bool(by_topology) and all(by_topology)
    tables.pod_set_needs.widen("option", place)


def _delay(queue: Queue, flavor: str) -> int:
    """When assignments on a flavor are found: 0 at once, 1 when a check has brought its nodes, 2 in another cluster."""
    if any(check.controller == MULTI_CLUSTER for check in queue.checks):
        return 2
    brings = [check for check in queue.checks if check.controller == PROVISIONING]
    return int(any(not check.flavors or flavor in check.flavors for check in brings))


def _link(tables: QuotaTables, quota: QueueSetup, cohorts: dict[str, Cohort]) -> None:
    """Link parents and children; children are chained in the order of their names."""
    quota_nodes, rows = tables.quota_nodes, tables.quota_node_rows
    parents = {f"queue/{queue.name}": queue.cohort for queue in quota.queues}
    parents |= {name: cohorts[name[7:]].parent for name in rows if name.startswith("cohort/") and name[7:] in cohorts}
    for name in sorted(rows, reverse=True):
        row, parent = rows[name], rows.get(f"cohort/{parents.get(name, '')}", NONE)
        quota_nodes.parent[row] = parent
        if parent != NONE:
            first = quota_nodes.first_queue if quota_nodes.is_queue[row] else quota_nodes.first_cohort
            quota_nodes.next[row], first[parent] = first[parent], row
    for row in rows.values():
        root, height = row, 0
        while quota_nodes.parent[root] != NONE:
            root, height = int(quota_nodes.parent[root]), height + 1
            quota_nodes.height[root] = max(int(quota_nodes.height[root]), height)
        quota_nodes.root[row] = root
    for row in rows.values():
        quota_nodes.dirty[row] = quota_nodes.parent[row] == NONE


def sum_up(tables: QuotaTables) -> None:
    """Sum quota and usage up the tree, from the leaves to the roots."""
    quota_nodes = tables.quota_nodes
    top = quota_nodes.top
    quota_nodes.subtree[:top] = quota_nodes.nominal[:top]
    for row in range(top):
        if not quota_nodes.is_queue[row]:
            quota_nodes.usage[row] = 0
    for row in sorted(range(top), key=lambda row: (int(quota_nodes.height[row]), row)):
        parent = int(quota_nodes.parent[row])
        if parent == NONE:
            continue
        for fr in range(tables.flavor_resources.top):
            subtree, limit = int(quota_nodes.subtree[row, fr]), int(quota_nodes.lend_limit[row, fr])
            own = 0 if limit == NO_LIMIT else max(0, subtree - limit)
            quota_nodes.defined[parent, fr] |= quota_nodes.defined[row, fr]
            quota_nodes.subtree[parent, fr] = min(int(quota_nodes.subtree[parent, fr]) + subtree - own, UNLIMITED)
            kept = UNLIMITED if own and subtree >= UNLIMITED else own  # as `own_quota` has it
            quota_nodes.usage[parent, fr] += max(0, int(quota_nodes.usage[row, fr]) - kept)


# -- local queues ----------------------------------------------------------------------------------------------


def _open_local_queues(
    tables: QuotaTables, quota: QueueSetup, decayed_usage: dict[str, tuple[int, dict[str, int]]]
) -> None:
    """Make a local queue for each that is declared, and one for each queue that work names directly."""
    declared = [
        (local_queue.id, local_queue.queue, local_queue.weight_milli, local_queue.stop)
        for local_queue in quota.entrances
    ]
    direct = [(queue.name, queue.name, 1000, StopPolicy.NONE) for queue in quota.queues]
    for name, queue, weight, stop in (*declared, *direct):
        if name in tables.local_queue_rows:
            continue
        row = tables.local_queue_rows[name] = int(tables.local_queues.take(1)[0])
        tables.local_queues.queue[row] = tables.quota_node_rows.get(f"queue/{queue}", NONE)
        tables.local_queues.weight_milli[row] = bounded(weight)
        tables.local_queues.closed[row] = stop is not StopPolicy.NONE
        at_ms, used = decayed_usage.get(name, (0, {}))
        tables.local_queues.at_ms[row] = at_ms
        for resource, amount in used.items():
            number = tables.resource(resource)
            tables.local_queues.decayed_usage[row, number] = amount


# -- work ------------------------------------------------------------------------------------------------------


def describe_work(state: ClusterState) -> None:
    """Describe what new work classes request of their queues."""
    tables, first = state.quota, state.quota.queue_requests.top
    tables.follow(tables.queue_requests, state.work_classes.top)
    tables.follow(tables.pod_set_needs, state.pod_sets.top)
    if first == state.work_classes.top:
        return
    for row in range(first, state.work_classes.top):
        _describe(state, row, state.works[row])


def _describe(state: ClusterState, row: int, work: Work) -> None:
    tables = state.quota
    local_queue = tables.local_queue_rows.get(
        work.queue, tables.local_queue_rows.get(in_any_namespace(work.queue), NONE)
    )
    quota_node = int(tables.local_queues.queue[local_queue]) if local_queue != NONE else NONE
    tables.queue_requests.local_queue[row], tables.queue_requests.queue[row] = local_queue, quota_node
    tables.queue_requests.refused[row] = refuse_work(state, work, local_queue, quota_node)
    if state.work_classes.malformed[row]:
        return
    tables.chain_class(row)
    covers_pods = _PODS in tables.resources  # somewhere; a queue that does not count pods skips the request
    sets = range(int(state.work_classes.first_set[row]), int(state.work_classes.first_set[row]) + len(work.pod_sets))
    asks: list[tuple[int, int, int]] = []
    for s, pod_set in zip(sets, work.pod_sets, strict=True):
        amounts = {**dict(charge_of(pod_set)), **({_PODS: 1} if covers_pods else {})}
        most = LARGEST_CLAIM // max(pod_set.count, 1)  # so that no sum of workloads can wrap
        asks += [(s, tables.resource(name), min(amount, most)) for name, amount in sorted(amounts.items())]
    _write_asks(tables, row, _scarcest_first(tables, quota_node, asks))
    _write_needs(state, work, quota_node, sets)
    shrinks = any(0 < pod_set.min_count < pod_set.count for pod_set in work.pod_sets)
    tables.queue_requests.partial[row] = shrinks and state.policy.shares.partial
    tables.reservations.widen("ask", int(tables.queue_requests.asks[row]))
    tables.reservations.widen("set", len(work.pod_sets))
    if quota_node != NONE:
        tables.reservations.widen("try", len(work.pod_sets) * int(tables.quota_nodes.groups[quota_node]))


def _scarcest_first(
    tables: QuotaTables, quota_node: int, asks: list[tuple[int, int, int]]
) -> list[tuple[int, int, int]]:
    """Requests in order: of each set first what the fewest groups of its queue give, so that the rest can follow it.

    A pod set without a request for a resource gets a flavor for it where the queue has one.
    """
    first = int(tables.quota_nodes.first_group[quota_node]) if quota_node != NONE else 0
    last = first + int(tables.quota_nodes.groups[quota_node]) if quota_node != NONE else 0
    groups = tables.resource_groups.covered[first:last].sum(axis=0)
    counted = [ask for ask in asks if ask[2] > 0 or groups[ask[1]] > 0]
    return sorted(counted, key=lambda ask: (ask[0], int(groups[ask[1]])))


def _write_asks(tables: QuotaTables, row: int, asks: list[tuple[int, int, int]]) -> None:
    rows = tables.resource_requests.take(len(asks))
    tables.queue_requests.first_ask[row], tables.queue_requests.asks[row] = rows[0] if len(rows) else 0, len(rows)
    for ask, (s, resource, amount) in zip(rows.tolist(), asks, strict=True):
        tables.resource_requests.pod_set[ask] = s
        tables.resource_requests.resource[ask] = resource
        tables.resource_requests.amount[ask] = amount


def _write_needs(state: ClusterState, work: Work, quota_node: int, sets: range) -> None:
    tables, leaders = state.quota, dict[str, int]()
    options = flavor_options(tables, quota_node) if quota_node != NONE else []
    for ordinal, (s, pod_set) in enumerate(zip(sets, work.pod_sets, strict=True)):
        tables.pod_set_needs.ordinal[s] = ordinal
        tables.pod_set_needs.least[s] = pod_set.min_count if 0 < pod_set.min_count < pod_set.count else pod_set.count
        group = pod_set.topology.group or f"/{ordinal}"
        tables.pod_set_needs.leader[s] = leaders.setdefault(group, s)
        implied = quota_node != NONE and bool(tables.quota_nodes.topology_only[quota_node])
        tables.pod_set_needs.topology[s] = state.policy.shares.topology.enabled and (bool(pod_set.topology) or implied)
        for place, (name, resources) in enumerate(options):
            tables.pod_set_needs.mismatch[s, place] = flavor_mismatch(state, quota_node, pod_set, name, resources)
        if quota_node != NONE:
            _write_flavored(state, quota_node, s, pod_set)


def _write_flavored(state: ClusterState, quota_node: int, s: int, pod_set: PodSet) -> None:
    """Write the class of a set's pods for every combination of flavors, one or none of each group."""
    tables, known = state.quota, {flavor.name: flavor for flavor in state.policy.shares.flavors}
    first, names = int(tables.quota_nodes.first_group[quota_node]), list(tables.flavor_rows)
    groups: list[list[Flavor | None]] = []
    for group in range(first, first + int(tables.quota_nodes.groups[quota_node])):
        start = int(tables.resource_groups.first_option[group])
        rows = tables.flavor_options.flavor[start : start + int(tables.resource_groups.options[group])].tolist()
        groups.append([None, *(known.get(names[row]) for row in rows)])
    tables.pod_set_needs.widen("blend", math.prod(len(flavors) for flavors in groups))
    for combination, chosen in enumerate(product(*reversed(groups))):
        flavors = [flavor for flavor in reversed(chosen) if flavor is not None]
        row = state.intern_pod_class(PodClassKey.of(on_flavors(pod_set, flavors)))  # first: it may replace the columns
        tables.pod_set_needs.flavored[s, combination] = row
        if pod_set.count > 1 and not state.pod_classes.gang[row]:
            state.pod_classes.gang[row] = 1
            state.forget_scores_of(row)


def flavor_options(tables: QuotaTables, quota_node: int) -> list[tuple[str, frozenset[str]]]:
    """The flavors of a queue in order, each with the resources that its group gives."""
    names = list(tables.flavor_rows)
    found = []
    first = int(tables.quota_nodes.first_group[quota_node])
    for group in range(first, first + int(tables.quota_nodes.groups[quota_node])):
        resources = frozenset(
            name for r, name in enumerate(tables.resources) if tables.resource_groups.covered[group, r]
        )
        start = int(tables.resource_groups.first_option[group])
        flavors = tables.flavor_options.flavor[start : start + int(tables.resource_groups.options[group])].tolist()
        found += [(names[flavor], resources) for flavor in flavors]
    return found
