"""What the decisions of queues depend on, as bytes: from two states with the same key the engine decides alike.

Times count by their order and by how far they are from now, epochs by whether they are the current ones; what only
counts or names things counts for nothing. A column that is not spoken of here counts as it is.
Must not know: what is made of it.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tidegate.engine.preemption_guard import protected_for_ms
from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE, Table
from tidegate.state.tables.queue_requests import QueueRequests
from tidegate.state.tables.quota_nodes import QuotaNodes
from tidegate.state.tables.quota_reservations import QuotaReservations
from tidegate.state.tables.workloads import Workloads

#: Counters that decisions depend on; the others count what happened, or number epochs.
_COUNTERS = (Counter.RANDOM, Counter.TROUBLES, Counter.UNTOLD)


def state_key(state: ClusterState) -> bytes:
    """The key of a state with queues."""
    tables, works = state.shares, state.work_classes.copy()
    works.held_epoch[:] = works.held_epoch == state.counters[Counter.ROOM_EPOCH]
    branches, demands, tickets = tables.branches.copy(), tables.demands.copy(), tables.tickets.copy()
    _settle_tickets(state, branches, demands, tickets)
    known = demands.branch != NONE
    demands.held[known] = demands.held[known] == branches.epoch[branches.root[demands.branch[known]]]
    branches.epoch[:] = branches.generation[:] = 0
    key = hashlib.blake2b(digest_size=16)
    for table in (_settled_workloads(state), works, branches, demands, tickets, tables.entrances):
        for column in (table.block, *(getattr(table, name) for name in (*table.grids, *table.stacks))):
            key.update(column[: table.top].tobytes())
    for column in (_pods(state), _spots(state), state.counters[list(_COUNTERS)], protected_for_ms(state)):
        key.update(column.tobytes())
    return key.digest()


def _settled_workloads(state: ClusterState) -> Workloads:
    table: Workloads = state.workloads.copy()
    for column in (table.preempted_in, table.started_in):
        column[:] = column == state.counters[Counter.OUTSIDE]
    for column in (table.since_ms, table.progress_ms, table.evictions, table.first_pod):
        column[:] = 0
    if state.policy.admission is AdmissionKind.KUEUE:
        table.passed_ms[:] = 0  # nothing is ever reserved
    return table


def _settle_tickets(
    state: ClusterState, branches: QuotaNodes, demands: QueueRequests, tickets: QuotaReservations
) -> None:
    """Let tickets say what it means now that they were granted, held or tried at some time."""
    top = min(tickets.top, state.workloads.top)
    queue = demands.branch[state.workloads.work_class[:top]]
    root = branches.root[queue]
    outdated = tickets.tried_generation[:top] < branches.generation[root]
    outdated &= state.shares.cycle + 1 - tickets.tried_cycle[:top] > 1
    tickets.tried[:top][outdated] = 0
    tickets.tried_generation[:], tickets.tried_cycle[:] = 0, 0
    tickets.tried_cycle[:top] = ~outdated
    tickets.held[:top] = tickets.held[:top] == branches.epoch[root]
    tickets.granted_ms[:] = np.unique(np.where(tickets.branch != NONE, tickets.granted_ms, 0), return_inverse=True)[1]
    tickets.not_before_ms[:] = np.maximum(tickets.not_before_ms - state.now_ms, 0)
    tickets.unhoused[:] = tickets.unhoused == state.counters[Counter.ROOM_EPOCH]
    tickets.decision[:] = tickets.first_spot[:] = tickets.failed_ms[:] = 0


def _pods(state: ClusterState) -> I64:
    """The pods that hold something, by workload and ordinal: their rows say nothing."""
    pods = state.pods
    rows = np.flatnonzero(pods.workload[: pods.top] != NONE)
    rows = rows[np.lexsort((pods.ordinal[rows], pods.workload[rows]))]
    found: I64 = np.stack([pods.workload[rows], pods.ordinal[rows], pods.node[rows], pods.devices[rows]])
    return found


def _spots(state: ClusterState) -> I64:
    """The spots that workloads hold, by workload: their rows say nothing."""
    spots: Table = state.shares.spots
    workload = state.shares.spots.workload[: spots.top]
    found: I64 = spots.block[: spots.top][np.argsort(workload, kind="stable")]
    return found
