"""The share tree laid out from the policy: branches, lots, groups, and what every kind of work asks of its queue.

Done anew when the policy changes; what workloads hold is carried over by name.
Must not know: usage beyond carrying it over, cycles, decisions.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from tidegate.engine.flavor_match import flavor_mismatch, on_flavors, refuse_work
from tidegate.engine.quota_reservations import Holding, hold_again, holdings
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
    Quota,
    Shares,
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
from tidegate.state.quota_tables import ShareTables, carry_tickets
from tidegate.state.tables.quota_nodes import NO_LIMIT
from tidegate.state.tables.workloads import Phase

_WHOM = list(PreemptWhom)
_PODS = "pods"


def lay_out(state: ClusterState) -> None:
    """Build the tables of the policy's shares, and carry over what is held."""
    held: list[Holding] = holdings(state) if state.shares else []
    consumed, tickets, shares = consumption(state.shares), state.shares.tickets, state.policy.shares
    refused = _refusals(state)
    tables = state.shares = ShareTables()
    if shares.queues:
        _make_tree(state, consumed)
        hold_again(state, held)
    carry_tickets(tickets, tables)
    _keep_counts(state, held)
    _forget_reasons(state, np.flatnonzero(_refusals(state) != refused))
    sum_up(tables)


def _refusals(state: ClusterState) -> I64:
    """Why the queue of each work class cannot even look at it."""
    found = np.zeros(state.work_classes.top, np.int64)
    known = state.shares.demands.refused[: state.shares.demands.top]
    found[: len(known)] = known
    return found


def _forget_reasons(state: ClusterState, classes: I64) -> None:
    """Whoever waits in a queue that came, went, opened or closed is told again why."""
    works, table = state.work_classes, state.workloads
    waiting = table.phase[: table.top] == Phase.PENDING
    rows = np.flatnonzero(waiting & np.isin(table.work_class[: table.top], classes))
    table.held_code[rows] = 0
    works.untold[classes] = works.waiting[classes]
    state.counters[Counter.UNTOLD] += len(rows)


def _make_tree(state: ClusterState, consumed: dict[str, tuple[int, dict[str, int]]]) -> None:
    tables, shares = state.shares, state.policy.shares
    for name, resource in shares.flavor_resources():
        tables.lot(name, resource)
    for flavor in shares.flavors:
        tables.flavor(flavor.name)
        tables.flavors.topology[tables.flavor_rows[flavor.name]] = bool(flavor.topology) and shares.topology.enabled
    _plant(tables, shares)
    _open_entrances(tables, shares, consumed)
    describe_work(state)


def _keep_counts(state: ClusterState, held: list[Holding]) -> None:
    """Remember how many pods those were granted whose queue is gone: they have no ticket that says so any more."""
    for holding in held:
        if state.shares.holds_quota(holding.row):
            continue
        asked = asked_pods(state, holding.row)
        done = done_in_sets(state, holding.row, len(asked))
        counts = [count + more for count, more in zip(holding.pods, done, strict=False)]
        if counts != asked:
            state.granted[holding.row] = tuple(counts)


def consumption(tables: ShareTables) -> dict[str, tuple[int, dict[str, int]]]:
    """What each entrance used of late, by name."""
    found = {}
    for name, row in tables.entrance_rows.items():
        used = dict(zip(tables.resources, tables.entrances.consumed[row].tolist(), strict=False))
        found[name] = (int(tables.entrances.at_ms[row]), used)
    return found


# -- the tree --------------------------------------------------------------------------------------------------


def _plant(tables: ShareTables, shares: Shares) -> None:
    """Make a row of every cohort and queue, linked into a tree; cohorts that are only named exist too."""
    cohorts = {cohort.name: cohort for cohort in shares.cohorts}
    named = {queue.cohort for queue in shares.queues} | {cohort.parent for cohort in shares.cohorts} | set(cohorts)
    for name in sorted(named - {""}):
        _add_branch(tables, f"cohort/{name}", cohorts.get(name, Cohort(name=name)))
    for queue in sorted(shares.queues, key=lambda queue: queue.name):
        row = _add_branch(tables, f"queue/{queue.name}", queue)
        _set_rules(tables, row, queue)
        _add_groups(tables, row, queue, shares)
    _link(tables, shares, cohorts)


def _add_branch(tables: ShareTables, name: str, spec: Cohort | Queue) -> int:
    row = int(tables.branches.take(1)[0])
    tables.branch_rows[name] = row
    tables.branches.rank[row] = row
    tables.branches.weight_milli[row] = bounded(spec.weight_milli)
    tables.branches.borrow_limit[row] = tables.branches.lend_limit[row] = NO_LIMIT
    for quota in spec.quotas:
        _set_quota(tables, row, quota)
    return row


def _set_quota(tables: ShareTables, row: int, quota: Quota) -> None:
    lot = tables.lot(quota.flavor, quota.resource)  # first: it may replace the columns
    tables.branches.defined[row, lot] = 1
    set_amounts(tables, row, lot, quota)


def set_amounts(tables: ShareTables, row: int, lot: int, quota: Quota) -> None:
    """Write what a branch owns of a lot, and what it may borrow and lend."""
    branches = tables.branches
    branches.nominal[row, lot] = bounded(quota.nominal)
    for limits, limit in ((branches.borrow_limit, quota.borrow_limit), (branches.lend_limit, quota.lend_limit)):
        limits[row, lot] = NO_LIMIT if limit is None else bounded(limit)


def _set_rules(tables: ShareTables, row: int, queue: Queue) -> None:
    branches, rule, moves = tables.branches, queue.preemption, queue.fungibility
    branches.is_queue[row] = 1
    branches.within[row] = _WHOM.index(rule.within_queue)
    branches.reclaim[row] = _WHOM.index(rule.reclaim_in_cohort)
    branches.borrow[row] = _WHOM.index(rule.borrow_in_cohort)
    threshold = rule.borrow_priority_threshold
    branches.threshold[row] = UNLIMITED if threshold is None else bounded(threshold, -UNLIMITED)
    branches.borrow_moves[row] = moves.when_can_borrow is FlavorMove.NEXT
    branches.preempt_moves[row] = moves.when_can_preempt is FlavorMove.NEXT
    branches.prefers_preempting[row] = moves.preference is FlavorPreference.PREEMPT
    branches.strict[row] = queue.strict_fifo
    branches.closed[row] = queue.stop is not StopPolicy.NONE
    branches.usage_based[row] = queue.usage_based


def _add_groups(tables: ShareTables, row: int, queue: Queue, shares: Shares) -> None:
    known = {flavor.name: flavor for flavor in shares.flavors}
    rows = tables.groups.take(len(queue.groups))
    tables.branches.first_group[row] = rows[0] if len(rows) else 0
    tables.branches.groups[row] = len(rows)
    place, by_topology = 0, []
    for at, group in zip(rows.tolist(), queue.groups, strict=True):
        for resource in group.resources:
            number = tables.resource(resource)  # first: it may replace the columns
            tables.groups.covered[at, number] = 1
        options = tables.options.take(len(group.flavors))
        tables.groups.first_option[at] = options[0] if len(options) else 0
        tables.groups.options[at] = len(options)
        for option, name in zip(options.tolist(), group.flavors, strict=True):
            tables.options.flavor[option] = tables.flavor(name)
            tables.options.place[option] = place
            tables.options.delays[option] = _delay(queue, name)
            place += 1
            by_topology.append(name in known and bool(known[name].topology) and shares.topology.enabled)
    tables.branches.topology_only[row] = bool(by_topology) and all(by_topology)
    tables.needs.widen("option", place)


def _delay(queue: Queue, flavor: str) -> int:
    """When spots on a flavor are found: 0 at once, 1 when a check has brought its nodes, 2 in another cluster."""
    if any(check.controller == MULTI_CLUSTER for check in queue.checks):
        return 2
    brings = [check for check in queue.checks if check.controller == PROVISIONING]
    return int(any(not check.flavors or flavor in check.flavors for check in brings))


def _link(tables: ShareTables, shares: Shares, cohorts: dict[str, Cohort]) -> None:
    """Link parents and children; children are chained in the order of their names."""
    branches, rows = tables.branches, tables.branch_rows
    parents = {f"queue/{queue.name}": queue.cohort for queue in shares.queues}
    parents |= {name: cohorts[name[7:]].parent for name in rows if name.startswith("cohort/") and name[7:] in cohorts}
    for name in sorted(rows, reverse=True):
        row, parent = rows[name], rows.get(f"cohort/{parents.get(name, '')}", NONE)
        branches.parent[row] = parent
        if parent != NONE:
            first = branches.first_queue if branches.is_queue[row] else branches.first_cohort
            branches.next[row], first[parent] = first[parent], row
    for row in rows.values():
        root, height = row, 0
        while branches.parent[root] != NONE:
            root, height = int(branches.parent[root]), height + 1
            branches.height[root] = max(int(branches.height[root]), height)
        branches.root[row] = root
    for row in rows.values():
        branches.stirred[row] = branches.parent[row] == NONE


def sum_up(tables: ShareTables) -> None:
    """Sum quota and usage up the tree, from the leaves to the roots."""
    branches = tables.branches
    top = branches.top
    branches.subtree[:top] = branches.nominal[:top]
    for row in range(top):
        if not branches.is_queue[row]:
            branches.usage[row] = 0
    for row in sorted(range(top), key=lambda row: (int(branches.height[row]), row)):
        parent = int(branches.parent[row])
        if parent == NONE:
            continue
        for lot in range(tables.lots.top):
            subtree, limit = int(branches.subtree[row, lot]), int(branches.lend_limit[row, lot])
            own = 0 if limit == NO_LIMIT else max(0, subtree - limit)
            branches.defined[parent, lot] |= branches.defined[row, lot]
            branches.subtree[parent, lot] = min(int(branches.subtree[parent, lot]) + subtree - own, UNLIMITED)
            kept = UNLIMITED if own and subtree >= UNLIMITED else own  # as `own_quota` has it
            branches.usage[parent, lot] += max(0, int(branches.usage[row, lot]) - kept)


# -- entrances -------------------------------------------------------------------------------------------------


def _open_entrances(tables: ShareTables, shares: Shares, consumed: dict[str, tuple[int, dict[str, int]]]) -> None:
    """An entrance for each that is declared, and one for each queue that work names directly."""
    declared = [(entrance.id, entrance.queue, entrance.weight_milli, entrance.stop) for entrance in shares.entrances]
    direct = [(queue.name, queue.name, 1000, StopPolicy.NONE) for queue in shares.queues]
    for name, queue, weight, stop in (*declared, *direct):
        if name in tables.entrance_rows:
            continue
        row = tables.entrance_rows[name] = int(tables.entrances.take(1)[0])
        tables.entrances.branch[row] = tables.branch_rows.get(f"queue/{queue}", NONE)
        tables.entrances.weight_milli[row] = bounded(weight)
        tables.entrances.closed[row] = stop is not StopPolicy.NONE
        at_ms, used = consumed.get(name, (0, {}))
        tables.entrances.at_ms[row] = at_ms
        for resource, amount in used.items():
            number = tables.resource(resource)
            tables.entrances.consumed[row, number] = amount


# -- work ------------------------------------------------------------------------------------------------------


def describe_work(state: ClusterState) -> None:
    """Write down what kinds of work that are new ask of their queues."""
    tables, first = state.shares, state.shares.demands.top
    tables.follow(tables.demands, state.work_classes.top)
    tables.follow(tables.needs, state.pod_sets.top)
    if first == state.work_classes.top:
        return
    for row in range(first, state.work_classes.top):
        _describe(state, row, state.works[row])


def _describe(state: ClusterState, row: int, work: Work) -> None:
    tables = state.shares
    entrance = tables.entrance_rows.get(work.queue, tables.entrance_rows.get(in_any_namespace(work.queue), NONE))
    branch = int(tables.entrances.branch[entrance]) if entrance != NONE else NONE
    tables.demands.entrance[row], tables.demands.branch[row] = entrance, branch
    tables.demands.refused[row] = refuse_work(state, work, entrance, branch)
    if state.work_classes.malformed[row]:
        return
    tables.chain_class(row)
    covers_pods = _PODS in tables.resources  # somewhere; a queue that does not count pods passes the ask over
    sets = range(int(state.work_classes.first_set[row]), int(state.work_classes.first_set[row]) + len(work.pod_sets))
    asks: list[tuple[int, int, int]] = []
    for s, pod_set in zip(sets, work.pod_sets, strict=True):
        amounts = {**dict(charge_of(pod_set)), **({_PODS: 1} if covers_pods else {})}
        most = LARGEST_CLAIM // max(pod_set.count, 1)  # so that no sum of workloads can wrap
        asks += [(s, tables.resource(name), min(amount, most)) for name, amount in sorted(amounts.items())]
    _write_asks(tables, row, _scarcest_first(tables, branch, asks))
    _write_needs(state, work, branch, sets)
    shrinks = any(0 < pod_set.min_count < pod_set.count for pod_set in work.pod_sets)
    tables.demands.partial[row] = shrinks and state.policy.shares.partial
    tables.tickets.widen("ask", int(tables.demands.asks[row]))
    tables.tickets.widen("set", len(work.pod_sets))
    if branch != NONE:
        tables.tickets.widen("try", len(work.pod_sets) * int(tables.branches.groups[branch]))


def _scarcest_first(tables: ShareTables, branch: int, asks: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Asks in order: of each pod set first what the fewest groups of its queue give, so that the rest can follow it.

    Who asks for none of a resource gets a flavor for it where the queue has one.
    """
    first = int(tables.branches.first_group[branch]) if branch != NONE else 0
    last = first + int(tables.branches.groups[branch]) if branch != NONE else 0
    groups = tables.groups.covered[first:last].sum(axis=0)
    counted = [ask for ask in asks if ask[2] > 0 or groups[ask[1]] > 0]
    return sorted(counted, key=lambda ask: (ask[0], int(groups[ask[1]])))


def _write_asks(tables: ShareTables, row: int, asks: list[tuple[int, int, int]]) -> None:
    rows = tables.asks.take(len(asks))
    tables.demands.first_ask[row], tables.demands.asks[row] = rows[0] if len(rows) else 0, len(rows)
    for ask, (s, resource, amount) in zip(rows.tolist(), asks, strict=True):
        tables.asks.pod_set[ask], tables.asks.resource[ask], tables.asks.amount[ask] = s, resource, amount


def _write_needs(state: ClusterState, work: Work, branch: int, sets: range) -> None:
    tables, leaders = state.shares, dict[str, int]()
    options = flavor_options(tables, branch) if branch != NONE else []
    for ordinal, (s, pod_set) in enumerate(zip(sets, work.pod_sets, strict=True)):
        tables.needs.ordinal[s] = ordinal
        tables.needs.least[s] = pod_set.min_count if 0 < pod_set.min_count < pod_set.count else pod_set.count
        group = pod_set.topology.group or f"/{ordinal}"
        tables.needs.leader[s] = leaders.setdefault(group, s)
        implied = branch != NONE and bool(tables.branches.topology_only[branch])
        tables.needs.topology[s] = state.policy.shares.topology.enabled and (bool(pod_set.topology) or implied)
        for place, (name, resources) in enumerate(options):
            tables.needs.mismatch[s, place] = flavor_mismatch(state, branch, pod_set, name, resources)
        if branch != NONE:
            _write_flavored(state, branch, s, pod_set)


def _write_flavored(state: ClusterState, branch: int, s: int, pod_set: PodSet) -> None:
    """Write down the class of a set's pods for every blend of flavors, one or none of each group."""
    tables, known = state.shares, {flavor.name: flavor for flavor in state.policy.shares.flavors}
    first, names = int(tables.branches.first_group[branch]), list(tables.flavor_rows)
    groups: list[list[Flavor | None]] = []
    for group in range(first, first + int(tables.branches.groups[branch])):
        start = int(tables.groups.first_option[group])
        rows = tables.options.flavor[start : start + int(tables.groups.options[group])].tolist()
        groups.append([None, *(known.get(names[row]) for row in rows)])
    tables.needs.widen("blend", math.prod(len(flavors) for flavors in groups))
    for blend, chosen in enumerate(product(*reversed(groups))):
        flavors = [flavor for flavor in reversed(chosen) if flavor is not None]
        row = state.intern_pod_class(PodClassKey.of(on_flavors(pod_set, flavors)))  # first: it may replace the columns
        tables.needs.flavored[s, blend] = row
        if pod_set.count > 1 and not state.pod_classes.gang[row]:
            state.pod_classes.gang[row] = 1
            state.forget_scores_of(row)


def flavor_options(tables: ShareTables, branch: int) -> list[tuple[str, frozenset[str]]]:
    """The flavors of a queue in order, each with the resources that its group gives."""
    names = list(tables.flavor_rows)
    found = []
    first = int(tables.branches.first_group[branch])
    for group in range(first, first + int(tables.branches.groups[branch])):
        resources = frozenset(name for r, name in enumerate(tables.resources) if tables.groups.covered[group, r])
        start = int(tables.groups.first_option[group])
        flavors = tables.options.flavor[start : start + int(tables.groups.options[group])].tolist()
        found += [(names[flavor], resources) for flavor in flavors]
    return found
