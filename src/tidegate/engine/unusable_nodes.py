"""Places on nodes that take no new pods: a pod that the world reports as absent is placed on another node.

A pod that the world reports on its node stays there, whatever happens to the node. A cordon, a taint, a node that is
not ready or a changed label counts only for pods that have not started.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.engine.release import remove_pods
from tidegate.engine.replace_pods import granted_plan
from tidegate.model.arrays import I32, I64
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.granted_pods import set_of_pod
from tidegate.state.tables import pod_sets
from tidegate.state.tables.workloads import Phase

#: Facts after which a node may take no new pods, or a pod may be missing from its node.
_CHANGES = (FactKind.NODE_CHANGED, FactKind.POD_ABSENT, FactKind.WORKLOAD_OBSERVED)


def leave_unusable(state: ClusterState, events: FactBatch) -> None:
    """Remove the places of absent pods on nodes that would refuse them."""
    if not np.isin(_CHANGES, events.kind).any():
        return
    pods, expected = state.pods, _expected(state)
    refused = expected[_are_refused(state, expected, pods.pod_class[expected])]
    for row in np.unique(pods.workload[refused]).tolist():
        mine = refused[pods.workload[refused] == row]
        if state.quota.holds_quota(row):  # its flavors may bring tolerations that its pods do not have yet
            mine = mine[_are_refused(state, mine, _granted_classes(state, row, mine))]
        if len(mine):
            remove_pods(state, row, mine, Reason.NODE_LOST)


def _granted_classes(state: ClusterState, row: int, pods: I64) -> I64:
    """The classes of pods of a workload on the flavors that it was granted."""
    sets = [set_of_pod(state, row, ordinal) for ordinal in state.pods.ordinal[pods].tolist()]
    return granted_plan(state, row)[sets, pod_sets.POD_CLASS]


def _are_refused(state: ClusterState, pods: I64, classes: I64 | I32) -> npt.NDArray[np.bool_]:
    """Whether the nodes of pods take no new pods, or none of these classes, whatever is free there."""
    nodes = state.pods.node[pods]
    mismatch = state.pod_classes.match[classes, state.nodes.node_class[nodes]]
    refused: npt.NDArray[np.bool_] = (state.nodes.up[nodes] == 0) | (mismatch != 0)
    return refused


def _expected(state: ClusterState) -> I64:
    """Pods that are not on their node and are expected there."""
    pods, top = state.pods, state.pods.top
    rows = np.flatnonzero((pods.workload[:top] >= 0) & (pods.phase[:top] == Phase.PENDING))
    return rows[np.isin(state.workloads.phase[pods.workload[rows]], (Phase.ASSUMED, Phase.RUNNING))]
