"""Place reservations of the state: buffers for the victim search, and reservations that are dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidegate.engine.kernels.eviction_plan import reserve_terminating
from tidegate.engine.kernels.starvation import reserve_nothing_yet, wake_passed_over
from tidegate.engine.kernels.victim_scratch import VictimSearch, empty_victim_search
from tidegate.engine.kernels.withhold_places import drop_reservation, end_reservations
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.tables.workloads import Phase, Reserves


def victim_search_for(state: ClusterState, had: VictimSearch | None = None) -> VictimSearch:
    """Buffers to search victims among all workloads, pods and nodes, with the terminating workloads listed."""
    planned = int(state.work_classes.pods[: state.work_classes.top].max(initial=0))
    sizes = (state.workloads.capacity, state.nodes.top, state.pods.top, planned)
    if had is None or not _is_enough(had, *sizes):
        had = empty_victim_search(*sizes)
    terminating = np.flatnonzero(state.workloads.phase[: state.workloads.top] == Phase.TERMINATING)
    had.terminating[0], had.terminating[1 : 1 + len(terminating)] = len(terminating), terminating
    return had


def _is_enough(search: VictimSearch, workloads: int, nodes: int, pods: int, planned: int) -> bool:
    """Whether the buffers are large enough; of workloads and nodes exactly, for kernels go through all of them."""
    enough = len(search.pods) >= pods and len(search.plan) >= planned
    return enough and len(search.workloads) == workloads and len(search.costs) == nodes


def drop_reservations(state: ClusterState, rows: I64) -> None:
    """Drop the reservations of workloads that are gone, or request something else."""
    for row in rows[state.workloads.reserves[rows] > 0].tolist():
        active(drop_reservation)(state.hot(), row)
    state.reserved.top = int(state.counters[Counter.RESERVED])


def drop_outdated(state: ClusterState) -> None:
    """Drop the reservations of workloads that are no longer pending, or may not be tried, whatever caused it."""
    if state.counters[Counter.RESERVED]:
        rows = np.unique(state.reserved.workload[: state.counters[Counter.RESERVED]])
        outdated = state.workloads.phase[rows] != Phase.PENDING
        if state.quota:
            outdated |= ~_may_be_tried(state, rows)
        drop_reservations(state, rows[outdated])


def _may_be_tried(state: ClusterState, rows: I64) -> Any:
    """Whether nothing keeps these workloads from being tried: no queue is stopped, none backs off."""
    tables, classes = state.quota, state.workloads.work_class[rows]
    reservations, quota_nodes = tables.reservations, tables.queue_requests.queue[classes]
    may = (reservations.blocked[rows] == 0) & (reservations.not_before_ms[rows] <= state.now_ms)
    may &= (quota_nodes != NONE) & (tables.queue_requests.refused[classes] == 0)
    return may & (tables.quota_nodes.closed[np.maximum(quota_nodes, 0)] == 0)


def reserve_again(state: ClusterState, kept: Mapping[int, Sequence[tuple[str, int]]]) -> None:
    """Restore the places that the leader before us reserved for workloads, elsewhere where nodes are gone."""
    rows = {spec.name: row for row, spec in state.node_specs.items()} if kept else {}
    terminating = np.flatnonzero(state.workloads.phase[: state.workloads.top] == Phase.TERMINATING)
    for workload, runs in kept.items():
        work = int(state.workloads.work_class[workload])
        whole = sum(max(count, 0) for _, count in runs) == state.work_classes.pods[work]
        nodes = [rows.get(name, NONE) for name, count in runs for _ in range(count)] if whole else []
        state.reserved.reserve(int(state.counters[Counter.RESERVED]) + len(nodes) + 1)
        state.quota.reservations.reserved_flavor_resource[workload] = 0  # in whatever flavor
        if nodes and NONE not in nodes:
            sets = slice(int(state.work_classes.first_set[work]), None)
            asked = np.repeat(state.pod_sets.pod_class[sets], state.pod_sets.count[sets])[: len(nodes)]
            plan = np.stack([asked, np.array(nodes), np.zeros(len(nodes), np.int64)], axis=1)
            active(reserve_terminating)(state.hot(), workload, plan, terminating)
        else:
            active(reserve_nothing_yet)(state.hot(), workload, Reserves.PREEMPTED_FOR)
    state.reserved.top = int(state.counters[Counter.RESERVED])


def notice_passed_over(state: ClusterState) -> None:
    """Retry workloads that have been passed over for longer than the limit by now."""
    if 0 < state.counters[Counter.PASSED_DUE] <= state.now_ms:
        limit_ms = state.policy.order.reserve_after_ms
        quota_nodes = state.quota.quota_nodes
        demands = state.quota.queue_requests
        described = demands.block[: demands.top if state.quota else 0]
        active(wake_passed_over)(state.hot(), quota_nodes.block, described, state.now_ms, limit_ms)


def close_reservations(state: ClusterState) -> None:
    """End a cycle: nodes show what is true."""
    if state.counters[Counter.RESERVED]:
        active(end_reservations)(state.hot())
    state.reserved.top = int(state.counters[Counter.RESERVED])


def drop_all_reservations(state: ClusterState) -> None:
    """Drop all reservations after a change of policy; what was passed over for too long gets new ones."""
    drop_reservations(state, np.flatnonzero(state.workloads.reserves[: state.workloads.top]))
    own = state.policy.admission is AdmissionKind.TIDEGATE or not state.policy.shares.queues
    state.counters[Counter.PASSED_DUE] = int(own and state.policy.order.reserve_after_ms > 0)  # at once


def forget_node(state: ClusterState, row: int) -> None:
    """Drop what is reserved on a node that is gone: its row may become another's."""
    table = state.reserved
    table.node[: table.top][table.node[: table.top] == row] = -1
