"""Pods at the places that the world reports, many at a time: after a restart there are a hundred thousand.

The report stands: a node takes them whatever it refuses to new pods, and may have more in use than it has.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import bound_pods
from tidegate.engine.kernels.node_fit import ASSUMED, FRACTION, WHOLE, best_fit_device, idle_mask, take_place
from tidegate.engine.kernels.pending_queue import UNREPORTED, unlink
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import pod_classes, workloads
from tidegate.state.tables.workloads import Phase

PENDING = int(Phase.PENDING)


@entry
def place_reported(hot: Hot, shown: I64, now_ms: int) -> None:
    """Give pods without a place the one that the world reports."""
    for i in range(len(shown)):
        j, n, k = shown[i, bound_pods.WORKLOAD], shown[i, bound_pods.NODE], shown[i, bound_pods.CLASS]
        if k < 0:
            continue
        if hot.workloads[j, workloads.PHASE] == PENDING:
            unlink(hot, j)
            hot.counters[UNREPORTED] += 1
            hot.workloads[j, workloads.PHASE], hot.workloads[j, workloads.SINCE_MS] = ASSUMED, now_ms
        take_place(hot, k, n, more_devices(hot, k, n, 0), j, shown[i, bound_pods.ORDINAL], -1)


@entry
def more_devices(hot: Hot, k: int, n: int, devices: int) -> int:
    """Devices of node n for a pod of class k that has some: as many as it is short of, if so many are free."""
    share, missing = hot.pod_classes[k, pod_classes.SHARE], int(hot.pod_classes[k, pod_classes.GPUS])
    while devices > 0:
        missing -= devices & 1
        devices >>= 1
    if share == WHOLE and missing > 0:
        return idle_mask(hot, n, missing)
    if share == FRACTION and missing > 0:
        d = best_fit_device(hot, k, n)
        d = roomiest_device(hot, k, n) if d < 0 else d
        return 1 << d if d >= 0 else 0
    return 0


@kernel
def roomiest_device(hot: Hot, k: int, n: int) -> int:
    """The device of node n with the most memory left that fits a fraction of class k, memory aside; -1: none."""
    best = -1
    for d in range(hot.left.shape[1]):
        if hot.left[n, d] >= hot.pod_classes[k, pod_classes.MILLI]:
            if best < 0 or hot.vram_left[n, d] > hot.vram_left[n, best]:
                best = d
    return best
