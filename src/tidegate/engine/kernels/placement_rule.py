"""The placement rule in the form that kernels read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.placement_tide import TideRule
from tidegate.model.arrays import F64, I64
from tidegate.model.policy import PlacementKind

#: Placement kinds as numbers, for kernels.
KIND_CODES = {kind: code for code, kind in enumerate(PlacementKind)}
RANDOM = KIND_CODES[PlacementKind.RANDOM]
FIRST_FIT = KIND_CODES[PlacementKind.FIRST_FIT]
SPREAD = KIND_CODES[PlacementKind.SPREAD]
DOT_PRODUCT = KIND_CODES[PlacementKind.DOT_PRODUCT]
CLUSTERING = KIND_CODES[PlacementKind.CLUSTERING]
PACKING = KIND_CODES[PlacementKind.PACKING]
BEST_FIT = KIND_CODES[PlacementKind.BEST_FIT]
FGD = KIND_CODES[PlacementKind.FGD]
TIDE = KIND_CODES[PlacementKind.TIDE]


class Typical(NamedTuple):
    """Typically requested pods, as columns."""

    cpu: I64
    gpus: I64
    milli: I64
    share: F64  # how often, as a share of all; sums to one
    allowed: I64  # (typical, node classes): 1 if its GPU models include the node's


class Rule(NamedTuple):
    """How one of the nodes that fit is chosen."""

    kind: int
    seed: int
    cpu_scale: float  # milli-cores of the largest node
    gpu_scale: float  # GPU milli of the largest node
    typical: Typical
    tide: TideRule
    steps: F64  # fgd: the smallest gain that scores 1, 2, … 100


def no_typical() -> Typical:
    """No typical pods."""
    none = np.zeros(0, np.int64)
    return Typical(none, none, none, np.zeros(0, np.float64), np.zeros((0, 1), np.int64))
