"""Workloads over quota: more is held than the quota of the queue allows, borrowing included; the latest is over.

Admission by quota never causes this; a shadow sees it where other schedulers start work.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.quota import available
from tidegate.engine.quota_reservations import quota_view_of, release_quota
from tidegate.jit.registry import active
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE


def find_over_quota(state: ClusterState) -> list[int]:
    """Numbers of workloads that are over quota: without them, all others are within it."""
    if not state.quota or not len(_holders(state)):
        return []
    if not any(_is_over(state, row) for row in _one_of_each_queue(state)):
        return []
    trial, found = state.fork(), []
    for row in _latest_first(trial):
        if _is_over(trial, row):
            found.append(int(trial.workloads.number[row]))
            release_quota(trial, np.array([row], np.int64))
    return found


def _holders(state: ClusterState) -> list[int]:
    """Rows of workloads that hold quota."""
    tickets, top = state.quota.reservations, min(state.quota.reservations.top, state.workloads.top)
    rows: list[int] = np.flatnonzero(tickets.queue[:top] != NONE).tolist()
    return rows


def _one_of_each_queue(state: ClusterState) -> list[int]:
    """For each queue and each set of flavors, one workload that holds them."""
    tickets = state.quota.reservations
    alike = {(int(tickets.queue[row]), tickets.flavor_resource[row].tobytes()): row for row in _holders(state)}
    return list(alike.values())


def _latest_first(state: ClusterState) -> list[int]:
    tickets, table = state.quota.reservations, state.workloads
    return sorted(
        _holders(state),
        key=lambda row: (-int(tickets.granted_ms[row]), -int(table.submitted_ms[row]), -int(table.number[row])),
    )


def _is_over(state: ClusterState, row: int) -> bool:
    """Whether a workload holds of something that its queue uses more of than it may, and more than it owns."""
    tree, branches = quota_view_of(state).tree, state.quota.quota_nodes
    branch = int(state.quota.reservations.queue[row])
    for lot in (int(one) - 1 for one in state.quota.reservations.flavor_resource[row] if one > 0):
        above = branches.usage[branch, lot] > branches.nominal[branch, lot]
        if above and active(available)(tree, branch, lot) < 0:
            return True
    return False
