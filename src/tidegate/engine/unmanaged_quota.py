"""Quota of unmanaged starts: work that runs and was never granted quota is charged to its queue all the same."""

from __future__ import annotations

import numpy as np

from tidegate.engine.quota_layout import sum_up
from tidegate.engine.quota_reservations import Holding, quota_view_of, write_holdings
from tidegate.engine.release import pods_of
from tidegate.model.queues import LARGEST_CLAIM, Queue, charge_of
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import done_in_sets, granted_pods

_PODS = "pods"


def charge_unmanaged(state: ClusterState, rows: list[int]) -> None:
    """Charge work that another scheduler started to its queue, on the flavors that its nodes belong to."""
    tables = state.quota
    quota_view_of(state)  # makes room for quota reservations
    queues: dict[int, Queue | None] = {}  # by work class
    held = []
    for row in rows:
        w = int(state.workloads.work_class[row])
        if w not in queues:
            queues[w] = _queue_of(state, row)
        queue = queues[w]
        if queue is not None and tables.reservations.queue[row] == NONE:
            held.append(_holding_of_pods(state, row, queue))
    if held:
        write_holdings(state, held)
        sum_up(tables)


def _queue_of(state: ClusterState, row: int) -> Queue | None:
    quota_node = int(state.quota.queue_requests.queue[state.workloads.work_class[row]])
    names = (name for name, at in state.quota.quota_node_rows.items() if at == quota_node and name.startswith("queue/"))
    name = next(names, "queue/")[6:]
    return next((queue for queue in state.policy.shares.queues if queue.name == name), None)


def _holding_of_pods(state: ClusterState, row: int, queue: Queue) -> Holding:
    """What the pods of a workload take of its queue, where they are: all of them, for a gang is charged as a whole."""
    pods = pods_of(state, row)
    ordinals, nodes = state.pods.ordinal[pods], state.pods.node[pods]
    pod_sets = state.works[int(state.workloads.work_class[row])].pod_sets
    granted, done = granted_pods(state, row), done_in_sets(state, row, len(pod_sets))
    claims, counts, first = [], [], 0
    for at, pod_set in enumerate(pod_sets):
        here = np.flatnonzero((ordinals >= first) & (ordinals < first + granted[at]))
        first += granted[at]
        counts.append(granted[at] - done[at])
        if counts[at]:
            labels = dict(state.node_specs[int(nodes[here[0] if len(here) else 0])].labels)
            for resource, amount in (*charge_of(pod_set), (_PODS, 1)):
                claimed = min(amount * counts[at], LARGEST_CLAIM)
                claims += [(at, resource, flavor, claimed) for flavor in _flavor(state, queue, resource, labels)]
    return Holding(row, queue.name, state.now_ms, terminating=False, claims=tuple(claims), pods=tuple(counts))


def _flavor(state: ClusterState, queue: Queue, resource: str, labels: dict[str, str]) -> list[str]:
    """The flavor of a resource that a node belongs to: the first whose labels it has, or else the first; if any."""
    tried = next((group.flavors for group in queue.groups if resource in group.resources), ())
    known = {flavor.name: flavor.node_labels for flavor in state.policy.shares.flavors}
    there = [name for name in tried if name in known]
    fitting = [name for name in there if all(labels.get(key) == value for key, value in known[name])]
    return (fitting or there)[:1]
