"""Release of workloads: pods give back what they held, a workload without pods is requeued or its rows are released."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tidegate.engine.kernels.node_fit import free_pod, move_pod
from tidegate.engine.kernels.pending_queue import link
from tidegate.engine.place_reservations import drop_reservations
from tidegate.engine.progress import note_stop
from tidegate.engine.quota_reservations import forget_reservations, mark_dirty, release_quota
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Recovery
from tidegate.state.cluster import Claims, ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import set_of_pod
from tidegate.state.tables.workloads import Phase


def pods_of(state: ClusterState, row: int) -> I64:
    """The pods that a workload holds, latest first."""
    pods: list[int] = []
    pod = int(state.workloads.first_pod[row])
    while pod >= 0:
        pods.append(pod)
        pod = int(state.pods.next[pod])
    return np.array(pods, np.int64)


def remove_pods(state: ClusterState, row: int, gone: I64, pending_eviction: Reason) -> None:
    """Remove pods of a workload. One that terminates is requeued after its last pod; others recover, or are evicted."""
    ordinals = state.pods.ordinal[gone].tolist()
    kept = free_pods(state, row, gone)
    if state.workloads.phase[row] == Phase.TERMINATING:
        if not kept:
            requeue_if_gone(state, row)
    elif kept and recovers_by_pod(state, row):
        note_missing(state, row, ordinals)
    else:
        state.note_pending_eviction(np.array([row]), pending_eviction)


def free_pods(state: ClusterState, row: int, gone: I64) -> int:
    """Release what pods of a workload hold; return how many pods still hold something."""
    table, pods = state.workloads, state.pods
    hot = state.hot()
    terminating = set(gone.tolist())
    kept = [pod for pod in pods_of(state, row).tolist() if pod not in terminating]
    table.first_pod[row] = kept[0] if kept else NONE
    for pod, following in pairwise([*kept, NONE]):
        pods.next[pod] = following
    for pod in gone.tolist():
        k, n, devices = int(pods.pod_class[pod]), int(pods.node[pod]), int(pods.devices[pod])
        active(move_pod)(hot, k, n, devices, 1)
        active(free_pod)(hot, pod)
    state.counters[Counter.ROOM_EPOCH] += 1
    return len(kept)


def requeue_if_gone(state: ClusterState, row: int) -> None:
    """Requeue a workload whose last pod is gone, or forget it if it is over."""
    requeue_all(state, np.array([row], np.int64))


def requeue_all(state: ClusterState, rows: I64) -> None:
    """Requeue workloads without pods, or forget them if they are over."""
    ends = state.workloads.ending[rows] == 1
    forget(state, rows[ends])
    rows = rows[~ends]
    release_quota(state, rows)
    state.forget_done(rows)
    state.workloads.since_ms[rows] = state.now_ms
    state.workloads.passed_ms[rows] = -1
    state.workloads.held_code[rows] = 0  # the reason of its eviction is reported; its reason to wait is not
    state.workloads.pending_eviction[rows] = 0  # what was wrong with its places ends with them
    state.counters[Counter.ORDER_EPOCH] += 1
    active(link)(state.hot(), rows)
    mark_dirty(state, rows)


def forget(state: ClusterState, rows: I64) -> None:
    """Forget workloads that are over: release their quota and their rows."""
    drop_reservations(state, rows)
    forget_reservations(state, rows)
    state.forget_workloads(rows)


def evict(state: ClusterState, row: int, code: Reason) -> None:
    """Evict a workload: it holds what it holds until it is gone."""
    table = state.workloads
    note_stop(state, row)
    table.phase[row] = Phase.TERMINATING
    table.since_ms[row] = state.now_ms
    table.evictions[row] += 1
    table.held_code[row] = code
    state.counters[Counter.CLAIMS] |= Claims.SHIFTED
    if state.quota.holds_quota(row):
        state.quota.reservations.terminating[row] = 1  # no other entry needs to evict it
    if table.first_pod[row] < 0:
        requeue_if_gone(state, row)


def recovers_by_pod(state: ClusterState, row: int) -> bool:
    """Whether a lost pod of a workload is placed again while the others run on; a topology is placed whole."""
    work = state.works[int(state.workloads.work_class[row])]
    return work.recovery is Recovery.PODS and not any(pods.topology for pods in work.pod_sets)


def note_missing(state: ClusterState, row: int, ordinals: list[int]) -> None:
    """Note pods of a running workload that are to be placed again."""
    known = set(state.missing.get(row, ()))
    found = {(set_of_pod(state, row, ordinal), ordinal) for ordinal in ordinals}
    state.missing[row] = tuple(sorted(known | {pod for pod in found if pod[0] >= 0}))


def note_found(state: ClusterState, row: int, ordinal: int) -> None:
    """Note that a missing pod has a place, or needs none any more."""
    left = tuple(pod for pod in state.missing.get(row, ()) if pod[1] != ordinal)
    if left:
        state.missing[row] = left
    else:
        state.missing.pop(row, None)
