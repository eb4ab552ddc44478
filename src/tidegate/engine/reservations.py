"""Reservations of the state: room to search for victims in, and places given up by workloads and nodes that go."""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.registry import active
from tidegate.engine.kernels.reservations import drop_reservation, end_reservations
from tidegate.engine.kernels.victim_scratch import VictimSearch, empty_victim_search
from tidegate.model.columns import I64
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables import Phase


def victim_search_for(state: ClusterState, had: VictimSearch | None = None) -> VictimSearch:
    """Room to search for victims among all workloads, pods and nodes, with those noted who are leaving."""
    planned = int(state.work_classes.pods[: state.work_classes.top].max(initial=0))
    sizes = (state.workloads.capacity, state.nodes.top, state.pods.top, planned)
    if had is None or not _is_enough(had, *sizes):
        had = empty_victim_search(*sizes)
    leaving = np.flatnonzero(state.workloads.phase[: state.workloads.top] == Phase.LEAVING)
    had.leaving[0], had.leaving[1 : 1 + len(leaving)] = len(leaving), leaving
    return had


def _is_enough(search: VictimSearch, workloads: int, nodes: int, pods: int, planned: int) -> bool:
    """Whether there is room for so many; of workloads and nodes exactly, for kernels go through all of them."""
    enough = len(search.pods) >= pods and len(search.plan) >= planned
    return enough and len(search.workloads) == workloads and len(search.costs) == nodes


def drop_reservations(state: ClusterState, rows: I64) -> None:
    """Nothing is reserved for these workloads any more: they are gone, or ask for something else."""
    for row in rows[state.workloads.reserves[rows] > 0].tolist():
        active(drop_reservation)(state.hot(), row)
    state.reserved.top = int(state.counters[Counter.RESERVED])


def drop_outdated(state: ClusterState) -> None:
    """Nothing is reserved for workloads that do not wait any more, or that may not be tried, whoever saw to that."""
    if state.counters[Counter.RESERVED]:
        rows = np.unique(state.reserved.workload[: state.counters[Counter.RESERVED]])
        outdated = state.workloads.phase[rows] != Phase.PENDING
        if state.shares:
            tickets = state.shares.tickets
            outdated |= (tickets.blocked[rows] > 0) | (tickets.not_before_ms[rows] > state.now_ms)
        drop_reservations(state, rows[outdated])


def close_reservations(state: ClusterState) -> None:
    """A cycle ends: nodes show what is true."""
    if state.counters[Counter.RESERVED]:
        active(end_reservations)(state.hot())
    state.reserved.top = int(state.counters[Counter.RESERVED])


def drop_all_reservations(state: ClusterState) -> None:
    """The policy has changed: whoever waits is looked at anew."""
    drop_reservations(state, np.flatnonzero(state.workloads.reserves[: state.workloads.top]))


def forget_node(state: ClusterState, row: int) -> None:
    """A node is gone: its row may become another's, and nothing is reserved there."""
    table = state.reserved
    table.node[: table.top][table.node[: table.top] == row] = -1
