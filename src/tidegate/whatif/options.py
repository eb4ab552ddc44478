"""Candidates for fixes: the models, flavors, queues, priorities, nodes and running workloads that exist."""

from __future__ import annotations

import numpy as np

from tidegate.journal.queue_position import find_shortages, flavor_resource_row, queue_names, queue_row
from tidegate.journal.quota_names import FlavorResourceName
from tidegate.model.hardware import Node
from tidegate.model.queues import UNLIMITED
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.workloads import Phase
from tidegate.whatif.changes import work_of

#: What a change of the work itself could lift.
_LIFTED_BY_WORK = (Reason.FLAVOR_TAINT, Reason.FLAVOR_TERMS)


def models_refused(state: ClusterState, number: int) -> list[str]:
    """GPU models of the fleet that a workload does not accept."""
    accepted = [set(pods.gpu.models) for pods in work_of(state, number).pod_sets if pods.gpu.models]
    there = {node.shape.gpu_model for node in state.node_specs.values() if node.shape.gpu_count} - {""}
    return sorted(model for model in there if any(model not in models for models in accepted))


def flavors_refused(state: ClusterState, number: int) -> list[str]:
    """Flavors of a workload's queue that its tolerations or node terms keep it from, in the order they are tried."""
    row = state.workload_numbers.row(number)
    tables, branch = state.quota, queue_row(state, row)
    if branch == NONE:
        return []
    w, names, found, place = int(state.workloads.work_class[row]), list(tables.flavor_rows), [], 0
    first = int(state.work_classes.first_set[w])
    sets = np.arange(first, first + int(state.work_classes.sets[w]))
    start = int(tables.quota_nodes.first_group[branch])
    for group in range(start, start + int(tables.quota_nodes.groups[branch])):
        option = int(tables.resource_groups.first_option[group])
        for flavor in tables.flavor_options.flavor[
            option : option + int(tables.resource_groups.options[group])
        ].tolist():
            codes = tables.pod_set_needs.mismatch[sets, place]
            if codes.any() and np.isin(codes[codes > 0], _LIFTED_BY_WORK).all():
                found.append(names[flavor])
            place += 1
    return found


def local_queues_for(state: ClusterState, number: int) -> list[str]:
    """Where else a workload could be submitted: other LocalQueues of its namespace, or other queues."""
    queue, shares = work_of(state, number).queue, state.policy.shares
    entrances = {entrance.id: entrance for entrance in shares.entrances}
    if queue in entrances:
        namespace, _, _ = queue.partition("/")
        same = [e.id for e in shares.entrances if e.id.startswith(f"{namespace}/")]
        return sorted(e for e in same if entrances[e].queue != entrances[queue].queue)
    return sorted(other.name for other in shares.queues if other.name != queue)


def priorities_above(state: ClusterState, number: int) -> list[int]:
    """Priorities that could make a difference to a workload, from low to high: those of others, and just above them."""
    mine, table = work_of(state, number).priority, state.workloads
    classes = np.unique(table.work_class[state.live_workloads()])
    others = set(state.work_classes.priority[classes].tolist())
    if state.quota:
        thresholds = state.quota.quota_nodes.threshold[: state.quota.quota_nodes.top]
        others |= {int(threshold) for threshold in thresholds if threshold < UNLIMITED}
    return sorted(p for p in {*others, *(other + 1 for other in others)} if p > mine)


def node_patterns(state: ClusterState) -> list[tuple[int, Node]]:
    """One node of each kind in the fleet, with its number; of a kind are those alike in all but their names."""
    found: dict[object, tuple[int, Node]] = {}
    for row in sorted(state.node_specs, key=lambda row: state.node_specs[row].name):
        node = state.node_specs[row]
        marks = tuple((key, "" if value == node.name else value) for key, value in node.labels)
        found.setdefault((node.shape, marks, node.taints), (int(state.nodes.number[row]), node))
    return list(found.values())


def quantum_of(state: ClusterState, lot: FlavorResourceName) -> int:
    """What every amount of a lot is a multiple of: all that is asked of its resource, every quota and every limit."""
    tables, at = state.quota, flavor_resource_row(state, lot)
    requests = tables.resource_requests
    of_resource = requests.resource[: requests.top] == tables.flavor_resources.resource[at]
    asks = requests.amount[: requests.top][of_resource]
    branches, top = tables.quota_nodes, tables.quota_nodes.top
    quotas = [branches.nominal[:top, at], branches.borrow_limit[:top, at], branches.lend_limit[:top, at]]
    amounts = np.concatenate([asks, *quotas])
    return max(int(np.gcd.reduce(amounts[(amounts > 0) & (amounts < UNLIMITED)], initial=0)), 1)


def stoppable(state: ClusterState, number: int) -> list[int]:
    """Workloads that hold something, those that hold what another waits for first; then the cheapest to stop.

    Cheap is a low priority, held for a short while.
    """
    table = state.workloads
    running = np.flatnonzero(np.isin(table.phase[: table.top], (Phase.ASSUMED, Phase.RUNNING)))
    near = _near(state, number)
    found = [row for row in running.tolist() if int(table.number[row]) != number]
    found.sort(
        key=lambda row: (row not in near, _priority(state, row), -int(table.since_ms[row]), int(table.number[row]))
    )
    return [int(table.number[row]) for row in found]


def _priority(state: ClusterState, row: int) -> int:
    return int(state.work_classes.priority[state.workloads.work_class[row]])


def _near(state: ClusterState, number: int) -> set[int]:
    """Rows of those who hold of the lots that a workload lacks, in its tree; none where it lacks no quota."""
    wants = [want for want in find_shortages(state, number) if want.missing]
    if not wants:
        return set()
    tables, row = state.quota, state.workload_numbers.row(number)
    root = tables.quota_nodes.root[queue_row(state, row)]
    trees = {name for at, name in queue_names(state).items() if tables.quota_nodes.root[at] == root}
    rows = {name: at for at, name in queue_names(state).items()}
    branches = [rows[name] for name in trees]
    lots = {flavor_resource_row(state, want.lot) + 1 for want in wants}
    top = min(tables.reservations.top, state.workloads.top)
    holds = np.isin(tables.reservations.flavor_resource[:top], list(lots)).any(axis=1) & np.isin(
        tables.reservations.queue[:top], branches
    )
    return set(np.flatnonzero(holds).tolist())
