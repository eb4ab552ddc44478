"""Settles holders once all facts of a batch are applied: a pod with a place holds quota, a gang is there whole.

Facts contradict each other while they arrive: a gang is reported pod by pod, its quota reservation comes after its
places, and a queue is deleted before it is created again. Only the end of the batch counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine.release import note_missing, pods_of, recovers_by_pod
from tidegate.engine.unmanaged_quota import charge_unmanaged
from tidegate.model.arrays import I64
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.policy import AdmissionKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import granted_pods, pods_to_be
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.workloads import Phase

#: Facts after which a workload may have places without quota, or quota without places.
_UNSETTLING = (FactKind.POLICY_CHANGED, FactKind.WORKLOAD_CHANGED, FactKind.WORKLOAD_OBSERVED, FactKind.POD_BOUND)
_HOLDS = (int(Phase.ASSUMED), int(Phase.RUNNING))


def settle_holders(state: ClusterState, events: FactBatch) -> None:
    """Bring quota in line with places, as far as these facts changed either."""
    kinds = np.unique(events.kind)
    if np.isin(_UNSETTLING, kinds).any():
        if np.isin((FactKind.POD_BOUND, FactKind.WORKLOAD_OBSERVED), kinds).any():
            _check_gangs(state, events)
        _settle_quota(state)
    _settle_counts(state)


def _check_gangs(state: ClusterState, events: FactBatch) -> None:
    """Note a pending eviction for gangs that are there in part."""
    told = (events.kind == FactKind.POD_BOUND) | (events.kind == FactKind.WORKLOAD_OBSERVED)
    rows = np.unique(state.workload_numbers.rows(events.subject[told]))
    rows = rows[rows != UNKNOWN]
    table = state.workloads
    rows = rows[np.isin(table.phase[rows], _HOLDS) & (table.first_pod[rows] != NONE)]
    for row in rows[~_are_whole(state, rows)].tolist():
        _check_gang(state, row)


def _are_whole(state: ClusterState, rows: I64) -> Any:
    """Whether workloads are one pod, which is there: most are, and need no more checks."""
    if state.done or state.missing:
        return np.zeros(len(rows), bool)
    first, pods = state.workloads.first_pod[rows], state.work_classes.pods[state.workloads.work_class[rows]]
    whole, reservations = (pods == 1) & (state.pods.next[first] < 0), state.quota.reservations
    whole &= ~np.isin(rows, list(state.granted))
    known = np.flatnonzero(rows < reservations.top)
    holds = known[reservations.queue[rows[known]] != NONE]
    whole[holds] &= reservations.pods[rows[holds]].sum(axis=1) == 1
    return whole


def _check_gang(state: ClusterState, row: int) -> None:
    """Note a pending eviction for a gang that is there in part; finished pods that are there again are not finished."""
    pods = pods_of(state, row)
    if row in state.done and not state.quota.holds_quota(row):
        there = set(state.pods.ordinal[pods].tolist())
        left = tuple(pod for pod in state.done.pop(row) if pod[1] not in there)
        if left:
            state.done[row] = left
    if row in state.missing or recovers_by_pod(state, row):
        _note_missing(state, row, set(state.pods.ordinal[pods].tolist()))
    if len(pods) != pods_to_be(state, row):
        state.note_pending_eviction(np.array([row]), Reason.GANG_BROKEN)


def _note_missing(state: ClusterState, row: int, there: set[int]) -> None:
    """Note the pods without a place as missing, and no others, of work that recovers pod by pod."""
    state.missing.pop(row, None)
    absent = set(range(sum(granted_pods(state, row)))) - there - {pod[1] for pod in state.done.get(row, ())}
    if absent and recovers_by_pod(state, row):
        note_missing(state, row, sorted(absent))


def _settle_quota(state: ClusterState) -> None:
    """Charge placed workloads without quota to their queue; evict those that lack a pod they were granted.

    Where admission takes a place, quota without one is no admission.
    """
    table, reservations, top = state.workloads, state.quota.reservations, state.workloads.top
    rows = np.flatnonzero((table.phase[:top] == Phase.ASSUMED) | (table.phase[:top] == Phase.RUNNING))
    unpaid = np.ones(len(rows), bool)
    if state.quota:
        known = rows < reservations.top
        unpaid[known] = reservations.queue[rows[known]] == NONE
        charge_unmanaged(state, rows[unpaid & (table.first_pod[rows] != NONE)].tolist())
    placeless = table.first_pod[rows] == NONE
    if state.policy.admission is AdmissionKind.KUEUE and state.quota:
        placeless &= unpaid
    lost = [
        row for row in rows[placeless].tolist() if pods_to_be(state, row)
    ]  # a workload whose pods are all done is complete
    state.note_pending_eviction(np.array(lost, np.int64), Reason.RESERVATION_LOST)


def _settle_counts(state: ClusterState) -> None:
    """Drop reported counts of work that turned out to be pending; others follow their quota reservation."""
    phase = state.workloads.phase
    for of_rows in (state.done, state.missing):
        for row in [row for row in of_rows if phase[row] not in _HOLDS]:
            del of_rows[row]
    for row in [row for row in state.granted if phase[row] not in (*_HOLDS, Phase.TERMINATING)]:
        del state.granted[row]
    for row in [row for row in state.granted if state.quota.holds_quota(row)]:
        del state.granted[row]
