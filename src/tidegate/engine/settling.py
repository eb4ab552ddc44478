"""Once all facts of a batch are in: who has its pods at places holds quota for them, and who has neither is in trouble.

Facts contradict each other for as long as they are told: a gang is shown pod by pod, what it was granted comes after
its places, and a queue is gone before it is made again. What they come to is judged at the end.
Must not know: which fact changed what.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine.leaving import pods_of
from tidegate.engine.missing_pods import note_missing, recovers_by_pod
from tidegate.engine.unasked_quota import charge_unasked
from tidegate.model.columns import I64
from tidegate.model.facts import EventBatch, EventKind
from tidegate.model.policy import AdmissionKind
from tidegate.model.reasons import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.granted import granted_pods, pods_to_be
from tidegate.state.numbers import UNKNOWN
from tidegate.state.tables import END, Phase

#: Facts after which somebody may have places without quota, or quota without places.
_UNSETTLING = (
    EventKind.POLICY_CHANGED,
    EventKind.WORKLOAD_CHANGED,
    EventKind.WORKLOAD_OBSERVED,
    EventKind.POD_BOUND,
)
_HOLDS = (int(Phase.ASSUMED), int(Phase.RUNNING))


def settle_holders(state: ClusterState, events: EventBatch) -> None:
    """Bring quota in line with places, as far as these facts changed either."""
    kinds = np.unique(events.kind)
    if np.isin(_UNSETTLING, kinds).any():
        if np.isin((EventKind.POD_BOUND, EventKind.WORKLOAD_OBSERVED), kinds).any():
            _mind_sizes(state, events)
        _settle_quota(state)
    _settle_counts(state)


def _mind_sizes(state: ClusterState, events: EventBatch) -> None:
    """A gang that is there in part is in trouble."""
    told = (events.kind == EventKind.POD_BOUND) | (events.kind == EventKind.WORKLOAD_OBSERVED)
    rows = np.unique(state.workload_numbers.rows(events.subject[told]))
    rows = rows[rows != UNKNOWN]
    table = state.workloads
    rows = rows[np.isin(table.phase[rows], _HOLDS) & (table.first_pod[rows] != END)]
    for row in rows[~_are_whole(state, rows)].tolist():
        _mind_size(state, row)


def _are_whole(state: ClusterState, rows: I64) -> Any:
    """Whether workloads are one pod, which is there: most are, and of those nothing is to be minded."""
    if state.done or state.missing:
        return np.zeros(len(rows), bool)
    first, pods = state.workloads.first_pod[rows], state.work_classes.pods[state.workloads.work_class[rows]]
    whole, tickets = (pods == 1) & (state.pods.next[first] < 0), state.shares.tickets
    whole &= ~np.isin(rows, list(state.granted))
    known = np.flatnonzero(rows < tickets.top)
    holds = known[tickets.branch[rows[known]] != END]
    whole[holds] &= tickets.pods[rows[holds]].sum(axis=1) == 1
    return whole


def _mind_size(state: ClusterState, row: int) -> None:
    """A gang that is there in part is in trouble; pods that had done their part and are there again have not."""
    pods = pods_of(state, row)
    if row in state.done and not state.shares.holds_quota(row):
        there = set(state.pods.ordinal[pods].tolist())
        left = tuple(pod for pod in state.done.pop(row) if pod[1] not in there)
        if left:
            state.done[row] = left
    if row in state.missing or recovers_by_pod(state, row):
        _note_missing(state, row, set(state.pods.ordinal[pods].tolist()))
    if len(pods) != pods_to_be(state, row):
        state.note_trouble(np.array([row]), Reason.GANG_BROKEN)


def _note_missing(state: ClusterState, row: int, there: set[int]) -> None:
    """Of work that recovers pod by pod, those that have no place are missing, and no others."""
    state.missing.pop(row, None)
    absent = set(range(sum(granted_pods(state, row)))) - there - {pod[1] for pod in state.done.get(row, ())}
    if absent and recovers_by_pod(state, row):
        note_missing(state, row, sorted(absent))


def _settle_quota(state: ClusterState) -> None:
    """Whoever has a place and no quota holds quota of its queue; whoever lacks what it was granted for is in trouble.

    Where admission takes a place, quota without one is no admission.
    """
    table, tickets, top = state.workloads, state.shares.tickets, state.workloads.top
    rows = np.flatnonzero((table.phase[:top] == Phase.ASSUMED) | (table.phase[:top] == Phase.RUNNING))
    unpaid = np.ones(len(rows), bool)
    if state.shares:
        known = rows < tickets.top
        unpaid[known] = tickets.branch[rows[known]] == END
        charge_unasked(state, rows[unpaid & (table.first_pod[rows] != END)].tolist())
    placeless = table.first_pod[rows] == END
    if state.policy.admission is AdmissionKind.KUEUE and state.shares:
        placeless &= unpaid
    lost = [row for row in rows[placeless].tolist() if pods_to_be(state, row)]  # those that are all done are all right
    state.note_trouble(np.array(lost, np.int64), Reason.GRANT_LOST)


def _settle_counts(state: ClusterState) -> None:
    """What was told of work that turned out to wait means nothing; and a ticket says what was granted."""
    phase = state.workloads.phase
    for of_rows in (state.done, state.missing):
        for row in [row for row in of_rows if phase[row] not in _HOLDS]:
            del of_rows[row]
    for row in [row for row in state.granted if phase[row] not in (*_HOLDS, Phase.LEAVING)]:
        del state.granted[row]
    for row in [row for row in state.granted if state.shares.holds_quota(row)]:
        del state.granted[row]
