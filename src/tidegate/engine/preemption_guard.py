"""Protection from preemption: work that is never preempted, has not run long enough, or was just preempted.

Between two external events no workload is preempted twice: every preemption leaves one fewer candidate, so that
preemption ends whatever the rules are (docs/adr/0006-no-preemption-loops.md).
"""

from __future__ import annotations

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.policy import AdmissionKind
from tidegate.model.queues import PreemptWhom
from tidegate.state.cluster import Claims, ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.tables.work_classes import ALWAYS
from tidegate.state.tables.workloads import Phase

_NEVER = list(PreemptWhom).index(PreemptWhom.NEVER)


def safe_holders(state: ClusterState, rows: I64) -> I64:
    """Those of these workloads that hold a place and may not be preempted now."""
    table = state.workloads
    holds = np.isin(table.phase[rows], (Phase.ASSUMED, Phase.RUNNING))
    again = table.preempted_in[rows] == state.counters[Counter.EXTERNAL]
    safe: I64 = rows[holds & (again | (_until_ms(state, rows) > state.now_ms))]
    return safe


def next_end_ms(state: ClusterState) -> int | None:
    """When the next protection ends that pending work may wait for; None: none does."""
    works = state.work_classes
    if not works.waiting[: works.top].any():
        return None
    until = _until_ms(state, _protected(state))
    later = until[(until > state.now_ms) & (until < ALWAYS)]
    return int(later.min()) if len(later) else None


def protected_for_ms(state: ClusterState) -> I64:
    """How long each workload that is protected for a time still is, with its row."""
    rows = _protected(state)
    found: I64 = np.stack([rows, np.maximum(_until_ms(state, rows) - state.now_ms, 0)])
    return found


def notice_ends(state: ClusterState) -> None:
    """Retry pending work if protection has ended since the last look."""
    since, state.counters[Counter.LOOKED_MS] = int(state.counters[Counter.LOOKED_MS]), state.now_ms
    rows = _protected(state)
    until = _until_ms(state, rows)
    rows = rows[(until > since) & (until <= state.now_ms)]
    if not len(rows):
        return
    state.counters[Counter.ORDER_EPOCH] += 1
    if state.quota:
        quota_nodes, holders = state.quota.quota_nodes, state.quota.reservations.queue[rows]
        roots = np.unique(quota_nodes.root[holders[holders != NONE]])
        quota_nodes.epoch[roots] += 1
        quota_nodes.dirty[roots] = 1


def retry_spared(state: ClusterState) -> None:
    """Retry all pending work: what was placed in the step before can be preempted in this one."""
    if state.counters[Counter.SPARED] and state.counters[Counter.SPARED] <= state.now_ms:
        state.counters[Counter.SPARED] = 0
        quota_nodes = state.quota.quota_nodes
        roots = np.flatnonzero(quota_nodes.parent[: quota_nodes.top] == NONE)
        quota_nodes.epoch[roots] += 1
        quota_nodes.dirty[roots] = 1


def is_retry_due(state: ClusterState) -> bool:
    """Whether workloads that may preempt are to be tried again though no room was made."""
    if not state.node_specs or state.policy.admission is not AdmissionKind.TIDEGATE:
        return False
    claims, table = int(state.counters[Counter.CLAIMS]), state.workloads
    if claims & Claims.SHIFTED or 0 < state.counters[Counter.EPOCH_BOUND] < state.counters[Counter.EXTERNAL]:
        return True
    return bool(claims) and bool((table.phase[: table.top] == Phase.TERMINATING).any())


def retry_preemptors(state: ClusterState) -> None:
    """Retry workloads that may preempt: other victims may be available, or sufficient, than at the last try.

    Work began to terminate, and counts as gone; places were reserved; a queue borrows now; or there was an external
    event.
    """
    if not is_retry_due(state):
        return
    tables, counters = state.quota, state.counters
    counters[Counter.CLAIMS] = 0
    if counters[Counter.EPOCH_BOUND] < counters[Counter.EXTERNAL]:
        counters[Counter.EPOCH_BOUND] = 0
    waits = np.flatnonzero(state.work_classes.waiting[: tables.queue_requests.top] > 0)
    quota_nodes, queues = tables.quota_nodes, tables.queue_requests.queue[waits]
    may = (queues != NONE) & ((quota_nodes.within[queues] != _NEVER) | (quota_nodes.reclaim[queues] != _NEVER))
    tables.queue_requests.held[waits[may]] = -1
    quota_nodes.dirty[quota_nodes.root[queues[may]]] = 1


def _protected(state: ClusterState) -> I64:
    """Holders that are protected for a time."""
    works, table = state.work_classes, state.workloads
    limited = (works.protected_ms[: works.top] > 0) & (works.protected_ms[: works.top] < ALWAYS)
    if not limited.any():
        return np.zeros(0, np.int64)
    holds = np.flatnonzero((table.phase[: table.top] == Phase.ASSUMED) | (table.phase[: table.top] == Phase.RUNNING))
    found: I64 = holds[limited[table.work_class[holds]]]
    return found


def _until_ms(state: ClusterState, rows: I64) -> I64:
    """Until when each of these workloads is protected, from when it got its place, or its quota."""
    table, reservations = state.workloads, state.quota.reservations
    since = table.since_ms[rows]
    if state.quota:
        known = rows < reservations.top
        at = np.where(known, rows, 0)
        since = np.where(known & (reservations.queue[at] != NONE), reservations.granted_ms[at], since)
    protected = state.work_classes.protected_ms[table.work_class[rows]]
    until: I64 = np.where(protected > 0, np.minimum(since + protected, ALWAYS), 0)
    return until
