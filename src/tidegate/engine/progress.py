"""Progress of workloads: how long they have run, and what is left.

A world may report both. Otherwise they follow from how long the work runs: the time that its pods have run is the
service that it has attained, as in Tiresias, and what is left is its estimate less that time.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase


def first_remaining_s(estimate_ms: I64) -> F64:
    """Remaining service of work that has not begun; infinite: unknown."""
    left: F64 = np.where(estimate_ms > 0, estimate_ms / 1000, math.inf)
    return left


def attained_s(state: ClusterState, rows: I64) -> F64:
    """How long these workloads have run in all."""
    attained: F64 = state.workloads.attained_s[rows] + _running_ms(state, rows) / 1000
    return attained


def remaining_s(state: ClusterState, rows: I64) -> F64:
    """Remaining service of these workloads; 0: they run longer than estimated; infinite: unknown."""
    left: F64 = np.maximum(state.workloads.remaining_s[rows] - _running_ms(state, rows) / 1000, 0)
    return left


def note_progress(state: ClusterState, rows: I64, remaining_s: F64, attained_s: F64) -> None:
    """Note the reported progress of workloads."""
    table = state.workloads
    table.remaining_s[rows], table.attained_s[rows] = remaining_s, attained_s
    table.progress_ms[rows] = state.now_ms


def note_stop(state: ClusterState, row: int) -> None:
    """Note that an evicted workload ran until now; what it did since its last checkpoint is lost."""
    table, rows = state.workloads, np.array([row], np.int64)
    ran_ms = int(_running_ms(state, rows)[0])
    every_ms = state.works[int(table.work_class[row])].checkpoint_every_ms
    saved_ms = ran_ms // every_ms * every_ms if every_ms else 0
    note_progress(
        state, rows, np.maximum(table.remaining_s[rows] - saved_ms / 1000, 0), table.attained_s[rows] + ran_ms / 1000
    )


def _running_ms(state: ClusterState, rows: I64) -> I64:
    """How long these workloads have run since their progress was noted."""
    table = state.workloads
    since_ms = np.maximum(table.since_ms[rows], table.progress_ms[rows])
    running: I64 = np.where(table.phase[rows] == Phase.RUNNING, np.maximum(state.now_ms - since_ms, 0), 0)
    return running
