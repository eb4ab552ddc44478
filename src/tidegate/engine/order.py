"""Who goes first under the preemptive orders.

Every tie ends in priority, time of submission and rank of the id.
Must not know: whether anything fits.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.model.columns import F64, I64
from tidegate.model.policy import OrderKind
from tidegate.state.cluster import ClusterState
from tidegate.state.tables import Phase


def rank_workloads(state: ClusterState) -> I64:
    """All workloads that want to run or do, the first one first."""
    table = state.workloads
    phase = table.phase[: table.top]
    rows = np.flatnonzero((phase != Phase.NONE) & (table.ending[: table.top] == 0))
    if state.policy.order.kind is OrderKind.LAS:
        demote(state, rows)
        keys: tuple[F64 | I64, ...] = (table.place_in_level[rows], table.level[rows])
    elif state.policy.order.kind is OrderKind.SRSF:
        keys = (table.remaining_s[rows] * gpus_of(state, rows),)
    else:
        keys = (table.remaining_s[rows],)
    priority = -state.work_classes.priority[table.work_class[rows]]
    return rows[np.lexsort((table.tie[rows], table.submitted_ms[rows], priority, *keys))]


def gpus_of(state: ClusterState, rows: I64) -> F64:
    """GPUs that each workload asks for."""
    milli = state.work_classes.gpu_milli[state.workloads.work_class[rows]]
    gpus: F64 = milli / 1000
    return gpus


def demote(state: ClusterState, rows: I64) -> None:
    """Least attained service: work that has had enough goes to the tail of the next level."""
    table, limits = state.workloads, state.policy.order.las_limits_gpu_s
    service = table.attained_s[rows] * gpus_of(state, rows)
    bounds = np.array([*limits, math.inf])
    down = rows[service >= bounds[np.minimum(table.level[rows], len(limits))]]
    table.level[down] += 1
    table.place_in_level[down] = 1 << 40


def settle_levels(state: ClusterState, ranked: I64) -> None:
    """Least attained service: within a level those who run stay ahead, those who wait go to the tail."""
    table = state.workloads
    waits = ~np.isin(table.phase[ranked], (Phase.ASSUMED, Phase.RUNNING))
    order = ranked[np.lexsort((np.arange(len(ranked)), waits, table.level[ranked]))]
    table.place_in_level[order] = np.arange(len(order))


def next_demotion_ms(state: ClusterState) -> int | None:
    """When the next running workload will have had enough; None if never."""
    table, limits = state.workloads, state.policy.order.las_limits_gpu_s
    rows = np.flatnonzero((table.phase[: table.top] == Phase.RUNNING) & (table.level[: table.top] < len(limits)))
    gpus = gpus_of(state, rows)
    rows, gpus = rows[gpus > 0], gpus[gpus > 0]
    if not len(rows):
        return None
    missing_s = np.array(limits, np.float64)[table.level[rows]] / gpus - table.attained_s[rows]
    return state.now_ms + max(1, math.ceil(float(missing_s.min()) * 1000))
