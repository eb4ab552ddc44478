"""Prices of the placement rule `tide` for what is becoming scarce: set from time to time, and kept until then.

Part of the state: a replica that takes over must charge what its predecessor charged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.units import WHOLE_MILLI


class TidePrices(NamedTuple):
    """Prices by kind of pod, by what is left on a device, by node class and by size of a block of idle GPUs."""

    cpu: I64  # (pods,): milli-cores of each kind of pod that is priced
    gpus: I64  # (pods,): devices it takes whole; 0: it takes a fraction
    milli: I64  # (pods,): of each device
    allowed: I64  # (pods, node classes): 1 where it may go
    headroom: F64  # (pods,): for the last places it could go
    device: F64  # (1001,): value of a device with so many milli left, in devices
    model: F64  # (node classes,): for a free GPU milli of a contended model
    block: F64  # (devices + 1,): for a block of so many idle GPUs on one node
    block_cpu: F64  # (devices + 1,): milli-cores that a pod with so many GPUs takes along
    whole: F64  # (1,): for idle GPUs together on one node, by their number squared
    cpu_per_gpu: F64  # (1,): milli-cores for each GPU milli that are usually requested


def no_prices(node_classes: int = 1) -> TidePrices:
    """Prices without scarcity."""
    none, free = np.zeros(0, np.int64), np.zeros(1, np.float64)
    return TidePrices(
        cpu=none,
        gpus=none,
        milli=none,
        allowed=np.zeros((0, node_classes), np.int64),
        headroom=np.zeros(0, np.float64),
        device=np.arange(WHOLE_MILLI + 1) / WHOLE_MILLI,
        model=np.zeros(node_classes, np.float64),
        block=free,
        block_cpu=free,
        whole=free,
        cpu_per_gpu=np.ones(1, np.float64),
    )
