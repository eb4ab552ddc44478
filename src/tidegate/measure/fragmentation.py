"""GPU capacity that is free and yet of no use to the pods that are usually asked for.

Must not know: policies, time.
"""

from __future__ import annotations

import copy

import numpy as np

from tidegate.engine.kernels.registry import active
from tidegate.engine.kernels.rule import FGD, Rule, Typical
from tidegate.engine.kernels.score import fragmentation
from tidegate.engine.place import typical_pods
from tidegate.engine.pricing import tide_rule
from tidegate.model.columns import F64, I64
from tidegate.state.cluster import ClusterState


def fragmented_milli(state: ClusterState) -> float:
    """GPU milli left that a typical pod cannot use, in expectation (the measure of FGD, ATC'23)."""
    rule = Rule(FGD, 0, 1.0, 1.0, typical_pods(state), tide_rule(state.prices), np.zeros(0, np.float64))
    nodes = state.nodes
    total = 0.0
    for row in sorted(state.node_specs):
        left = np.maximum(nodes.left[row], 0)
        total += active(fragmentation)(rule, int(nodes.node_class[row]), int(nodes.cpu_free[row]), left)
    return total


def fragmented_by_node(state: ClusterState, rows: I64, typical: Typical) -> F64:
    """The same measure for many nodes at once; sums are in another order, so that the last bits may differ."""
    nodes = state.nodes
    left = np.maximum(nodes.left[rows], 0)
    total = left.sum(axis=1)
    lost = np.zeros(len(rows), np.float64)
    for t in range(len(typical.cpu)):
        fits = left >= typical.milli[t]
        usable = (nodes.cpu_free[rows] >= typical.cpu[t]) & (fits.sum(axis=1) >= typical.gpus[t])
        usable &= (typical.allowed[t, nodes.node_class[rows]] > 0) & (typical.gpus[t] > 0)
        lost += typical.share[t] * np.where(usable, np.where(fits, 0, left).sum(axis=1), total)
    return lost


def pods_seen(state: ClusterState) -> Typical:
    """The pods asked for so far, taken as typical whatever the policy says. The state stays as it is."""
    twin = copy.copy(state)
    twin.pod_classes = state.pod_classes.copy()
    twin.pod_classes.typical[:] = twin.pod_classes.seen
    return typical_pods(twin)
