"""Queues that are told to send away what they have admitted.

Must not know: how anything was admitted, or how it leaves.
"""

from __future__ import annotations

import numpy as np

from tidegate.model.queues import StopPolicy
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.workloads import Phase


def drain_stopped(state: ClusterState) -> None:
    """Note who must leave, because its queue or entrance is drained."""
    tables, shares = state.shares, state.policy.shares
    queues = [f"queue/{queue.name}" for queue in shares.queues if queue.stop is StopPolicy.DRAIN]
    entrances = [entrance.id for entrance in shares.entrances if entrance.stop is StopPolicy.DRAIN]
    if not tables or not (queues or entrances):
        return  # without any queue nobody holds quota
    tickets = tables.tickets
    rows = np.flatnonzero((tickets.branch != NONE) & (tickets.leaving == 0))
    told = np.isin(tickets.branch[rows], [tables.branch_rows[name] for name in queues])
    told |= np.isin(tickets.entrance[rows], [tables.entrance_rows[name] for name in entrances])
    state.note_trouble(rows[told & (state.workloads.phase[rows] != Phase.LEAVING)], Reason.QUEUE_DRAINED)
