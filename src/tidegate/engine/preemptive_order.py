"""The order of workloads under the preemptive policies.

Every tie ends in priority, time of submission and rank of the id.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.engine.progress import attained_s, remaining_s
from tidegate.model.arrays import F64, I64
from tidegate.model.policy import BY_ESTIMATE, OrderKind
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables.workloads import Phase


def rank_workloads(state: ClusterState) -> I64:
    """All workloads that run or are pending, the first one first."""
    table = state.workloads
    phase = table.phase[: table.top]
    rows = np.flatnonzero((phase != Phase.NONE) & (table.ending[: table.top] == 0))
    keys = _by_level(state, rows) if state.policy.order.kind is OrderKind.LAS else _by_what_is_left(state, rows)
    priority = -state.work_classes.priority[table.work_class[rows]]
    return rows[np.lexsort((table.tie[rows], table.submitted_ms[rows], priority, *keys))]


def without_estimate(state: ClusterState, rows: I64) -> I64:
    """Those of these workloads whose remaining service is unknown, where the order goes by that."""
    if state.policy.order.kind not in BY_ESTIMATE:
        return np.zeros(0, np.int64)
    unknown: I64 = rows[np.isinf(state.workloads.remaining_s[rows])]
    return unknown


def _by_level(state: ClusterState, rows: I64) -> tuple[I64, ...]:
    table = state.workloads
    demote(state, rows)
    return table.place_in_level[rows], table.level[rows]


def _by_what_is_left(state: ClusterState, rows: I64) -> tuple[F64 | I64, ...]:
    """Least remaining service first, unknown last; among unknown ones those with a place keep it."""
    left = remaining_s(state, rows)
    unknown = np.isinf(left)
    service = np.where(unknown, 0, left)
    if state.policy.order.kind is OrderKind.SRSF:
        service *= gpus_of(state, rows)
    waits = ~np.isin(state.workloads.phase[rows], (Phase.ASSUMED, Phase.RUNNING))
    return (unknown & waits).astype(np.int64), service, unknown.astype(np.int64)


def gpus_of(state: ClusterState, rows: I64) -> F64:
    """GPUs that each workload requests."""
    milli = state.work_classes.gpu_milli[state.workloads.work_class[rows]]
    gpus: F64 = milli / 1000
    return gpus


def demote(state: ClusterState, rows: I64) -> None:
    """Least attained service: work that has had enough goes to the tail of the level that its service belongs to."""
    table, limits = state.workloads, state.policy.order.las_limits_gpu_s
    level = np.searchsorted(np.array(limits, np.float64), attained_s(state, rows) * gpus_of(state, rows), side="right")
    down = level > table.level[rows]
    table.level[rows[down]] = level[down]
    table.place_in_level[rows[down]] = 1 << 40


def settle_levels(state: ClusterState, ranked: I64, wanted: I64) -> None:
    """Least attained service: within a level planned workloads stay ahead, the others go to the tail.

    A planned workload that waits for a victim to terminate keeps its place too.
    """
    table = state.workloads
    order = ranked[np.lexsort((np.arange(len(ranked)), ~np.isin(ranked, wanted), table.level[ranked]))]
    table.place_in_level[order] = np.arange(len(order))


def next_demotion_ms(state: ClusterState) -> int | None:
    """When the next running workload is demoted; None if never."""
    missing_s = _until_demotion_s(state)
    return state.now_ms + max(1, math.ceil(float(missing_s.min()) * 1000)) if len(missing_s) else None


def notice_demotions(state: ClusterState) -> None:
    """Count a new order if running work reached its demotion since the last look."""
    if state.policy.order.kind is OrderKind.LAS and (_until_demotion_s(state) <= 0).any():
        state.counters[Counter.ORDER_EPOCH] += 1


def _until_demotion_s(state: ClusterState) -> F64:
    """How long each running workload that can be demoted has to run until it is."""
    table, limits = state.workloads, state.policy.order.las_limits_gpu_s
    rows = np.flatnonzero((table.phase[: table.top] == Phase.RUNNING) & (table.level[: table.top] < len(limits)))
    gpus = gpus_of(state, rows)
    rows, gpus = rows[gpus > 0], gpus[gpus > 0]
    missing: F64 = (np.array(limits, np.float64)[table.level[rows]] - attained_s(state, rows) * gpus) / gpus
    return missing  # no more than 0 exactly where `demote` demotes
