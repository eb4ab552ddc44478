"""Queues with a stop policy that drains: they evict what they have admitted."""

from __future__ import annotations

import numpy as np

from tidegate.model.queues import StopPolicy
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.workloads import Phase


def drain_stopped(state: ClusterState) -> None:
    """Note a pending eviction for workloads whose queue or local queue is drained."""
    tables, quota = state.quota, state.policy.shares
    queues = [f"queue/{queue.name}" for queue in quota.queues if queue.stop is StopPolicy.DRAIN]
    local_queues = [local_queue.id for local_queue in quota.entrances if local_queue.stop is StopPolicy.DRAIN]
    if not tables or not (queues or local_queues):
        return  # without queues no workload holds quota
    reservations = tables.reservations
    rows = np.flatnonzero((reservations.queue != NONE) & (reservations.terminating == 0))
    told = np.isin(reservations.queue[rows], [tables.quota_node_rows[name] for name in queues])
    told |= np.isin(reservations.local_queue[rows], [tables.local_queue_rows[name] for name in local_queues])
    state.note_pending_eviction(rows[told & (state.workloads.phase[rows] != Phase.TERMINATING)], Reason.QUEUE_DRAINED)
