"""Prices of `tide`: typical demand, set against what is free now."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.placement_tide import TideRule, cut_devices, empty_cutting
from tidegate.jit.registry import active
from tidegate.model.arrays import F64, I64
from tidegate.model.units import WHOLE_MILLI
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables.pod_classes import ShareCode
from tidegate.state.tide_prices import TidePrices, no_prices

#: Kinds of pods are priced until they make up this part of the GPU demand.
_CUT = 0.95

#: GPU milli on which contended models and blocks of idle GPUs are charged.
_MODEL = 3.0
_BLOCK = 0.6

#: The value of idle GPUs together on one node: while nothing ends, and the increase when everything does.
_WHOLE_LEAST = 50.0
_WHOLE_MORE = 750.0

#: Fractions are rounded up to this many milli where devices are cut up.
_STEP_MILLI = 10
_ROUNDS = 1000

_MOST_ROOT = 4096

_NO_GPU, _WHOLE = int(ShareCode.NONE), int(ShareCode.WHOLE)


class _Kinds(NamedTuple):
    """Kinds of GPU pods, memory aside, with how often each is requested."""

    cpu: I64
    gpus: I64  # 0: a fraction
    milli: I64
    allowed: npt.NDArray[np.bool_]  # (kinds, node classes)
    asked: F64  # how often

    def gpu_milli(self) -> I64:
        """GPU milli that one of each takes."""
        return np.maximum(self.gpus, 1) * self.milli


def find_prices(state: ClusterState, device: F64 | None = None) -> TidePrices:
    """Prices for the cluster as it is; the value of devices, which depends on demand alone, may be known."""
    kinds = _kinds_asked(state)
    if not len(kinds.asked):
        return no_prices(max(len(state.node_classes), 1))
    demand = kinds.asked * kinds.gpu_milli()
    priced = _priced(demand)
    free = _Free(state)
    block, block_cpu = _block_prices(kinds, demand, free)
    return TidePrices(
        cpu=kinds.cpu[priced],
        gpus=kinds.gpus[priced],
        milli=kinds.milli[priced],
        allowed=kinds.allowed[priced].astype(np.int64),
        headroom=_headroom_prices(state, kinds, priced, free),
        device=_device_values(kinds) if device is None else device,
        model=_model_prices(kinds, demand, free),
        block=block,
        block_cpu=block_cpu,
        whole=np.array([_WHOLE_LEAST + _WHOLE_MORE * _turnover(state)]),
        cpu_per_gpu=np.array([max(float((kinds.asked * kinds.cpu).sum() / demand.sum()), 1e-3)]),
    )


def _turnover(state: ClusterState) -> float:
    """The part of the pods requested so far that is over: 0 in a cluster that only fills up, near 1 in a steady one."""
    seen = state.pods_seen()
    return min(1.0, int(state.counters[Counter.PODS_FINISHED]) / seen) if seen else 0.0


class _Free:
    """What is free on the nodes that are up."""

    def __init__(self, state: ClusterState) -> None:
        nodes, live = state.nodes, state.live_nodes()
        rows = live[nodes.up[live] == 1]
        self.node_class, self.idle = nodes.node_class[rows], nodes.idle[rows]
        self.cpu, self.gpu = np.maximum(nodes.cpu_free[rows], 0), nodes.left_total[rows]
        self.left = np.maximum(nodes.left[rows], 0)
        self.node_classes = len(state.node_classes)
        self.gpu_total = float(nodes.devices[rows].sum()) * WHOLE_MILLI


def _kinds_asked(state: ClusterState) -> _Kinds:
    """The typical GPU pods; classes that differ in memory alone are one kind."""
    classes = state.pod_classes
    rows = np.flatnonzero((classes.typical[: classes.top] > 0) & (classes.share[: classes.top] != _NO_GPU))
    gpus = np.where(classes.share[rows] == _WHOLE, classes.gpus[rows], 0)
    allowed = classes.match[rows, : len(state.node_classes)] == 0
    keys = np.column_stack([np.maximum(classes.cpu[rows], 1), gpus, classes.milli[rows], allowed])
    kinds, at = np.unique(keys, axis=0, return_inverse=True)
    asked = np.bincount(at.ravel(), classes.typical[rows], minlength=len(kinds)).astype(np.float64)
    return _Kinds(kinds[:, 0], kinds[:, 1], kinds[:, 2], kinds[:, 3:].astype(bool), asked)


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
    """The value of a device with so many milli left, by the best way to cut it into typical requests."""
    fractions = kinds.gpus == 0
    if not fractions.any():
        return no_prices().device
    rounded = -(-kinds.milli[fractions] // _STEP_MILLI) * _STEP_MILLI
    step_milli = math.gcd(WHOLE_MILLI, *rounded.tolist())
    sizes, at = np.unique(rounded // step_milli, return_inverse=True)
    asked = np.bincount(at, kinds.asked[fractions]).astype(np.float64)
    cutting = empty_cutting(sizes, asked, WHOLE_MILLI // step_milli)
    active(cut_devices)(cutting, _ROUNDS)
    values: F64 = cutting.best[np.arange(WHOLE_MILLI + 1) // step_milli]
    return values


def _contention(future: float, demand: float, supply: float) -> float:
    """How close expected demand, until all that is free is taken, is to what is free for it; sharply rising."""
    ratio = min(1.0, future * demand / (supply + 1.0))
    return ratio * ratio * ratio * ratio


def _model_prices(kinds: _Kinds, demand: F64, free: _Free) -> F64:
    """Prices of GPUs of models that some pods require."""
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
    """Prices of blocks of idle GPUs on one node that larger pods need."""
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


def _kinds_by_node_class(allowed: I64) -> I64:
    kinds = np.full(allowed.T.shape, -1, np.int64)
    for node_class, may in enumerate(allowed.T):
        there = np.flatnonzero(may)
        kinds[node_class, : len(there)] = there
    return kinds


def tide_rule(prices: TidePrices) -> TideRule:
    """Prices with what kernels look up."""
    sizes, at = np.unique(prices.milli[prices.gpus == 0], return_inverse=True)
    size = np.full(len(prices.cpu), -1, np.int64)
    size[prices.gpus == 0] = at
    return TideRule(
        prices=prices,
        kinds=_kinds_by_node_class(prices.allowed),
        size=size,
        per_cpu=1.0 / prices.cpu,
        copies=np.arange(WHOLE_MILLI + 1)[None, :] // np.maximum(sizes, 1)[:, None],
        roots=np.sqrt(np.arange(_MOST_ROOT, dtype=np.float64)),
    )
