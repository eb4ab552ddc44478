"""Pods that lost their node while the rest of their workload runs on: they are missing, and keep their quota.

Work whose pods depend on each other is a gang: it is evicted whole instead (`Recovery.GANG`).
"""

from __future__ import annotations

from tidegate.model.work import Recovery
from tidegate.state.cluster import ClusterState
from tidegate.state.granted_pods import set_of_pod


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
