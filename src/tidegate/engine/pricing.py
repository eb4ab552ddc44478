"""Finding the prices of `tide`: what is usually asked for, set against what is free now.

Must not know: the pods to come; who waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.registry import active
from tidegate.engine.kernels.tide import TideRule, cut_devices, empty_cutting
from tidegate.model.columns import F64, I64
from tidegate.model.reasons import Reason
from tidegate.model.units import WHOLE_MILLI
from tidegate.state.cluster import ClusterState
from tidegate.state.prices import Prices, no_prices
from tidegate.state.tables import ShareCode

#: Kinds of pods are priced until they make up this part of the GPU demand.
_CUT = 0.99

#: GPU milli on which contended models and blocks of idle GPUs are charged.
_MODEL = 3.0
_BLOCK = 0.6

#: Fractions are rounded up to this many milli where devices are cut up.
_STEP_MILLI = 10
_ROUNDS = 1000

_MOST_ROOT = 4096


class _Kinds(NamedTuple):
    """Kinds of GPU pods, memory aside, with how often each is asked for."""

    cpu: I64
    gpus: I64  # 0: a fraction
    milli: I64
    allowed: npt.NDArray[np.bool_]  # (kinds, node classes)
    asked: F64  # how often

    def gpu_milli(self) -> I64:
        """GPU milli that one of each takes."""
        return np.maximum(self.gpus, 1) * self.milli


def find_prices(state: ClusterState, device: F64 | None = None) -> Prices:
    """Prices for the cluster as it is; the value of devices, which depends on what is asked alone, may be known."""
    kinds = _kinds_asked(state)
    if not len(kinds.asked):
        return no_prices()
    demand = kinds.asked * kinds.gpu_milli()
    priced = _priced(demand)
    free = _Free(state)
    block, block_cpu = _block_prices(kinds, demand, free)
    return Prices(
        cpu=kinds.cpu[priced],
        gpus=kinds.gpus[priced],
        milli=kinds.milli[priced],
        allowed=kinds.allowed[priced].astype(np.int64),
        headroom=_headroom_prices(state, kinds, priced, free),
        device=_device_values(kinds) if device is None else device,
        model=_model_prices(kinds, demand, free),
        block=block,
        block_cpu=block_cpu,
        cpu_per_gpu=np.array([max(float((kinds.asked * kinds.cpu).sum() / demand.sum()), 1e-3)]),
    )


class _Free:
    """What is free on the nodes that are up."""

    def __init__(self, state: ClusterState) -> None:
        nodes, live = state.nodes, state.live_nodes()
        rows = live[nodes.up[live] == 1]
        self.node_class, self.idle = nodes.node_class[rows], nodes.idle[rows]
        self.cpu, self.gpu = nodes.cpu_free[rows], nodes.left_total[rows]
        self.left = np.maximum(nodes.left[rows], 0)
        self.node_classes = len(state.node_classes)
        self.gpu_total = float(nodes.devices[rows].sum()) * WHOLE_MILLI


def _kinds_asked(state: ClusterState) -> _Kinds:
    classes = state.pod_classes
    counts: dict[tuple[int, int, int, tuple[bool, ...]], int] = {}
    node_classes = len(state.node_classes)
    for row in np.flatnonzero(classes.typical[: classes.top]).tolist():
        if classes.share[row] != ShareCode.NONE:
            gpus = int(classes.gpus[row]) if classes.share[row] == ShareCode.WHOLE else 0
            allowed = tuple((classes.match[row, :node_classes] == Reason.NONE).tolist())
            kind = (int(classes.cpu[row]), gpus, int(classes.milli[row]), allowed)
            counts[kind] = counts.get(kind, 0) + int(classes.typical[row])
    ordered = sorted(counts)
    return _Kinds(
        cpu=np.maximum(np.array([kind[0] for kind in ordered], np.int64), 1),
        gpus=np.array([kind[1] for kind in ordered], np.int64),
        milli=np.array([kind[2] for kind in ordered], np.int64),
        allowed=np.array([kind[3] for kind in ordered], bool).reshape(len(ordered), node_classes),
        asked=np.array([counts[kind] for kind in ordered], np.float64),
    )


def _priced(demand: F64) -> I64:
    """The kinds that make up most of the demand, in their own order."""
    order = np.argsort(-demand, kind="stable")
    before = np.cumsum(demand[order]) - demand[order]
    return np.sort(order[before < _CUT * demand.sum()])


def _headroom_prices(state: ClusterState, kinds: _Kinds, priced: I64, free: _Free) -> F64:
    """The fewer places a kind of pod has left, the dearer they are: the slope of a logarithmic barrier."""
    classes = state.pod_classes
    asked = float(classes.typical[: classes.top].sum())
    prices = np.zeros(len(priced))
    for at, t in enumerate(priced.tolist()):
        nodes = kinds.allowed[t][free.node_class]
        if kinds.gpus[t]:
            places = free.idle[nodes] // kinds.gpus[t]
        else:
            places = (free.left[nodes] // kinds.milli[t]).sum(axis=1)
        left = np.minimum(places, free.cpu[nodes] // kinds.cpu[t]).sum()
        prices[at] = free.gpu_total * kinds.asked[t] / asked / (float(left) + 1.0)
    return prices


def _device_values(kinds: _Kinds) -> F64:
    """What a device with so many milli left is worth, by the best way to cut it into what is asked for."""
    fractions = kinds.gpus == 0
    if not fractions.any():
        return no_prices().device
    steps = WHOLE_MILLI // _STEP_MILLI
    sizes, at = np.unique(-(-kinds.milli[fractions] // _STEP_MILLI), return_inverse=True)
    cutting = empty_cutting(sizes, np.bincount(at, kinds.asked[fractions]).astype(np.float64), steps)
    active(cut_devices)(cutting, _ROUNDS)
    values: F64 = cutting.best[np.arange(WHOLE_MILLI + 1) // _STEP_MILLI]
    return values


def _contention(future: float, demand: float, supply: float) -> float:
    """How close the demand to come, until all that is free is taken, comes to what is free for it; sharply rising."""
    ratio = min(1.0, future * demand / (supply + 1.0))
    return ratio * ratio * ratio * ratio


def _model_prices(kinds: _Kinds, demand: F64, free: _Free) -> F64:
    """Charge for GPUs of models that some pods cannot do without."""
    prices = np.zeros(max(free.node_classes, 1))
    future = float(free.gpu.sum()) / float(demand.sum())
    for allowed in np.unique(kinds.allowed, axis=0):
        if allowed.all():
            continue
        only_there = ~(kinds.allowed & ~allowed).any(axis=1)
        supply = float(free.gpu[allowed[free.node_class]].sum())
        price = _MODEL * _contention(future, float(demand[only_there].sum()), supply)
        prices[: len(allowed)] = np.where(allowed, np.maximum(prices[: len(allowed)], price), prices[: len(allowed)])
    return prices


def _block_prices(kinds: _Kinds, demand: F64, free: _Free) -> tuple[F64, F64]:
    """Charge for blocks of idle GPUs on one node that larger pods need."""
    sizes = free.left.shape[1] + 1
    prices, cpu = np.zeros(sizes), np.ones(sizes)
    future = float(free.gpu.sum()) / float(demand.sum())
    for gpus in range(2, sizes):
        same = kinds.gpus == gpus
        if same.any():
            cpu[gpus] = max(float((kinds.asked[same] * kinds.cpu[same]).sum() / kinds.asked[same].sum()), 1.0)
            blocks = np.minimum(free.idle // gpus, ((free.cpu + 0.5) / cpu[gpus]).astype(np.int64))
            supply = float(blocks.sum()) * gpus * WHOLE_MILLI
            asked = float(demand[kinds.gpus >= gpus].sum())
            prices[gpus] = _BLOCK * _contention(future, asked, supply) * gpus * WHOLE_MILLI
    return prices, cpu


def tide_rule(prices: Prices) -> TideRule:
    """Prices with what kernels look up."""
    sizes, at = np.unique(prices.milli[prices.gpus == 0], return_inverse=True)
    size = np.full(len(prices.cpu), -1, np.int64)
    size[prices.gpus == 0] = at
    return TideRule(
        prices=prices,
        size=size,
        per_cpu=1.0 / prices.cpu,
        copies=np.arange(WHOLE_MILLI + 1)[None, :] // np.maximum(sizes, 1)[:, None],
        roots=np.sqrt(np.arange(_MOST_ROOT, dtype=np.float64)),
    )
