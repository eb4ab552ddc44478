"""Granted pods of a workload, by pod set: they may be fewer than it requests.

Pods are numbered set by set over what was granted. One that is done keeps its number.
"""

from __future__ import annotations

from tidegate.state.cluster import ClusterState


def granted_pods(state: ClusterState, row: int) -> list[int]:
    """The pods of each set that a workload was granted, done ones included; without a grant all it requests."""
    if state.quota.holds_quota(row):
        counts: list[int] = state.quota.reservations.pods[row].tolist()
        for pod_set, _ in state.done.get(row, ()):
            counts[pod_set] += 1
        return counts
    return list(state.granted.get(row, ())) or asked_pods(state, row)


def asked_pods(state: ClusterState, row: int) -> list[int]:
    """The pods of each set that a workload requests."""
    works, w = state.work_classes, int(state.workloads.work_class[row])
    first = int(works.first_set[w])
    counts: list[int] = state.pod_sets.count[first : first + int(works.sets[w])].tolist()
    return counts


def pods_to_be(state: ClusterState, row: int) -> int:
    """How many pods of a workload hold a place: those it was granted that are neither done nor missing."""
    missing = len(state.missing.get(row, ()))
    if state.quota.holds_quota(row):
        return int(state.quota.reservations.pods[row].sum()) - missing
    if row in state.granted:
        return sum(state.granted[row]) - len(state.done.get(row, ())) - missing
    return int(state.work_classes.pods[state.workloads.work_class[row]]) - len(state.done.get(row, ())) - missing


def set_of_pod(state: ClusterState, row: int, ordinal: int) -> int:
    """The index of the pod set of a workload's pod; -1 if it has no such pod."""
    if ordinal < 0:
        return -1
    for pod_set, count in enumerate(granted_pods(state, row)):
        if ordinal < count:
            return pod_set
        ordinal -= count
    return -1


def done_in_sets(state: ClusterState, row: int, sets: int) -> list[int]:
    """How many pods of each set are done."""
    counts = [0] * sets
    for pod_set, _ in state.done.get(row, ()):
        counts[pod_set] += 1
    return counts
