"""Fragmentation: free GPU capacity that the usual pods cannot use (FGD)."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.node_score import fragmentation
from tidegate.engine.kernels.placement_rule import FGD, Rule, Typical
from tidegate.engine.placement_rule import typical_pods
from tidegate.engine.tide_pricing import tide_rule
from tidegate.jit.registry import active
from tidegate.model.arrays import F64, I64
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


class Lost(NamedTuple):
    """GPU milli of each node that are free and of no use, in expectation over the pods that ask for GPUs."""

    scattered: F64  # too few in one place, or without the CPU cores to use them
    other_model: F64  # of a model that is not asked for: packing better would not help


def lost_by_node(state: ClusterState, rows: I64, typical: Typical) -> Lost:
    """What is of no use, for many nodes at once, and why.

    Published FGD (`fragmented_milli`) counts all that is free as lost to pods without GPUs and to those of other
    models: that tells placements apart, but it is not scattered. Sums are in another order, so that the last bits may
    differ.
    """
    nodes = state.nodes
    left = np.maximum(nodes.left[rows], 0)
    total = left.sum(axis=1)
    scattered, other_model = np.zeros((2, len(rows)), np.float64)
    for t in np.flatnonzero(typical.gpus > 0).tolist():
        fits = left >= typical.milli[t]
        usable = (nodes.cpu_free[rows] >= typical.cpu[t]) & (fits.sum(axis=1) >= typical.gpus[t])
        lost = typical.share[t] * np.where(usable, np.where(fits, 0, left).sum(axis=1), total)
        allowed = typical.allowed[t, nodes.node_class[rows]] > 0
        scattered += np.where(allowed, lost, 0)
        other_model += np.where(allowed, 0, typical.share[t] * total)
    return Lost(scattered, other_model)


def gpu_pods_seen(state: ClusterState) -> Typical:
    """The pods with GPUs that were asked for so far, taken as typical whatever the policy says. The state stays."""
    twin = copy.copy(state)
    twin.pod_classes = state.pod_classes.copy()
    twin.pod_classes.typical[:] = np.where(twin.pod_classes.gpus > 0, twin.pod_classes.seen, 0)
    return typical_pods(twin)
