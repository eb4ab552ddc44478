"""GPU capacity that is free and yet of no use to the pods that are usually asked for.

Must not know: policies, time.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.kernels.registry import active
from tidegate.engine.kernels.rule import FGD, Rule
from tidegate.engine.kernels.score import fragmentation
from tidegate.engine.place import typical_pods
from tidegate.engine.pricing import tide_rule
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
