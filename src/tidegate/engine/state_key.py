"""A key of what the decisions of queues depend on: from two states with the same key the engine decides alike.

Times count by their order and by how far they are from now, epochs by whether they are the current ones; mere counters
and names do not count. A column that is not listed here counts as it is.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tidegate.engine.preemption_guard import protected_for_ms
from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE, ColumnTable
from tidegate.state.tables.queue_requests import QueueRequests
from tidegate.state.tables.quota_nodes import QuotaNodes
from tidegate.state.tables.quota_reservations import QuotaReservations
from tidegate.state.tables.workloads import Workloads

#: Counters that decisions depend on; the others count what happened, or number epochs.
_COUNTERS = (Counter.RANDOM, Counter.PENDING_EVICTIONS, Counter.UNREPORTED)


def state_key(state: ClusterState) -> bytes:
    """The key of a state with queues."""
    tables, works = state.quota, state.work_classes.copy()
    works.held_epoch[:] = works.held_epoch == state.counters[Counter.ROOM_EPOCH]
    quota_nodes = tables.quota_nodes.copy()
    demands = tables.queue_requests.copy()
    reservations = tables.reservations.copy()
    _settle_reservations(state, quota_nodes, demands, reservations)
    known = demands.queue != NONE
    demands.held[known] = demands.held[known] == quota_nodes.epoch[quota_nodes.root[demands.queue[known]]]
    quota_nodes.epoch[:] = quota_nodes.generation[:] = 0
    key = hashlib.blake2b(digest_size=16)
    for table in (_settled_workloads(state), works, quota_nodes, demands, reservations, tables.local_queues):
        for column in (table.block, *(getattr(table, name) for name in (*table.grids, *table.stacks))):
            key.update(column[: table.top].tobytes())
    for column in (_pods(state), _assignments(state), state.counters[list(_COUNTERS)], protected_for_ms(state)):
        key.update(column.tobytes())
    return key.digest()


def _settled_workloads(state: ClusterState) -> Workloads:
    table: Workloads = state.workloads.copy()
    for column in (table.preempted_in, table.started_in):
        column[:] = column == state.counters[Counter.EXTERNAL]
    for column in (table.since_ms, table.progress_ms, table.evictions, table.first_pod):
        column[:] = 0
    if state.policy.admission is AdmissionKind.KUEUE:
        table.passed_ms[:] = 0  # nothing is ever reserved
    return table


def _settle_reservations(
    state: ClusterState, quota_nodes: QuotaNodes, demands: QueueRequests, reservations: QuotaReservations
) -> None:
    """Reduce quota reservations to what grants, refusals and tries of the past mean now."""
    top = min(reservations.top, state.workloads.top)
    queue = demands.queue[state.workloads.work_class[:top]]
    root = quota_nodes.root[queue]
    outdated = reservations.tried_generation[:top] < quota_nodes.generation[root]
    outdated &= state.quota.cycle + 1 - reservations.tried_cycle[:top] > 1
    reservations.tried[:top][outdated] = 0
    reservations.tried_generation[:], reservations.tried_cycle[:] = 0, 0
    reservations.tried_cycle[:top] = ~outdated
    reservations.held[:top] = reservations.held[:top] == quota_nodes.epoch[root]
    reservations.granted_ms[:] = np.unique(
        np.where(reservations.queue != NONE, reservations.granted_ms, 0), return_inverse=True
    )[1]
    reservations.not_before_ms[:] = np.maximum(reservations.not_before_ms - state.now_ms, 0)
    reservations.unplaced_epoch[:] = reservations.unplaced_epoch == state.counters[Counter.ROOM_EPOCH]
    reservations.decision[:] = reservations.first_assignment[:] = reservations.failed_ms[:] = 0


def _pods(state: ClusterState) -> I64:
    """The pods that hold something, by workload and ordinal: their rows mean nothing."""
    pods = state.pods
    rows = np.flatnonzero(pods.workload[: pods.top] != NONE)
    rows = rows[np.lexsort((pods.ordinal[rows], pods.workload[rows]))]
    found: I64 = np.stack([pods.workload[rows], pods.ordinal[rows], pods.node[rows], pods.devices[rows]])
    return found


def _assignments(state: ClusterState) -> I64:
    """The domain assignments that workloads hold, by workload: their rows mean nothing."""
    assignments: ColumnTable = state.quota.assignments
    workload = state.quota.assignments.workload[: assignments.top]
    found: I64 = assignments.block[: assignments.top][np.argsort(workload, kind="stable")]
    return found
