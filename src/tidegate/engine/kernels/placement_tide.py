"""The placement rule `tide`: the place that costs the cluster the least of what it can still do.

A node is worth what it can still be used for; a pod goes where that falls least. The worth of a node is a sum: the
copies it could take of each typical pod, dearer the fewer such places the cluster has left; what each device's rest is
worth by the best way to cut it up; the GPU milli that its free CPU can still feed; where expected demand for a GPU
model or for blocks of idle GPUs approaches what is free, those; and the more work ends, the more idle GPUs together on
one node are worth, so that whole nodes drain. Only + - * / and square roots, so that compiled and plain runs agree.
docs/adr/0003-tide.md has the reasons and numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.node_fit import FRACTION, WHOLE, WHOLE_GPU, has_equal_before, memory_wanted
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import F64, I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import nodes, pod_classes
from tidegate.state.tide_prices import TidePrices

#: What a whole device is worth, next to one GPU milli that can be fed, which is worth FED.
DEVICE = 40_000.0
FED = 4.0

#: Scores are this much less the rise of the cost, so that they are not negative.
LEVEL = 1 << 29


class TideRule(NamedTuple):
    """Prices, and look-up tables."""

    prices: TidePrices
    kinds: I64  # (node classes, pods): the kinds of pod that may go there, then -1
    size: I64  # (pods,): row of the copies, for fractions; -1
    per_cpu: F64  # (pods,): one over its milli-cores
    copies: I64  # (sizes, 1001): how often a size fits into so many milli
    roots: F64  # square roots of whole numbers


class Rest(NamedTuple):
    """What a place would leave of a node."""

    cpu: int
    gpu: int  # milli
    idle: int
    value: float  # of its devices
    was: int  # milli left on the devices that change, before
    now: int  # and after
    times: int  # how many change


@inlined
def tide_best(hot: Hot, tide: TideRule, k: int, n: int) -> tuple[int, int]:
    """The score of node n for class k, and the device that gives it (fractions only)."""
    before = node_worth(hot, tide, n)
    classes, value = hot.pod_classes, tide.prices.device
    cpu, gpu = max(hot.nodes[n, nodes.CPU_FREE], 0) - classes[k, pod_classes.CPU], hot.nodes[n, nodes.LEFT_TOTAL]
    idle, worth = hot.nodes[n, nodes.IDLE], hot.scores.device_worth[n]
    if classes[k, pod_classes.SHARE] == FRACTION:
        milli, vram = classes[k, pod_classes.MILLI], memory_wanted(hot, k)
        best, best_device = -1, -1
        for d in range(hot.left.shape[1]):
            left = hot.left[n, d]
            if left < milli or hot.vram_left[n, d] < vram or has_equal_before(hot, n, d, vram):
                continue
            after = value[left - milli] - value[left]
            opened = 1 if left == WHOLE_GPU else 0
            rest = Rest(cpu, gpu - milli, idle - opened, worth + after, left, left - milli, 1)
            score = score_of_fall(before - worth_of(hot, tide, n, rest))
            if score > best:
                best, best_device = score, d
        return best, best_device
    gpus = classes[k, pod_classes.GPUS] if classes[k, pod_classes.SHARE] == WHOLE else 0
    rest = Rest(cpu, gpu - gpus * WHOLE_GPU, idle - gpus, worth - gpus * value[WHOLE_GPU], WHOLE_GPU, 0, gpus)
    return score_of_fall(before - worth_of(hot, tide, n, rest)), -1


@inlined
def score_of_fall(fall: float) -> int:
    """A score from what a place costs, rounded; ties in integers help, as they help FGD."""
    return LEVEL - math.floor(min(max(fall, -1e8), 1e8) + 0.5)


@kernel
def worth_of(hot: Hot, tide: TideRule, n: int, rest: Rest) -> float:
    """What a node is worth with this rest."""
    prices, node_class, fractions = tide.prices, hot.nodes[n, nodes.NODE_CLASS], hot.scores.fractions
    worth = DEVICE * rest.value + prices.model[node_class] * rest.gpu + prices.whole[0] * rest.idle * rest.idle
    for i in range(len(prices.cpu)):
        t = tide.kinds[node_class, i]
        if t < 0:
            break
        if prices.gpus[t] > 0:
            places = rest.idle // prices.gpus[t]
        else:
            z = tide.size[t]
            places = fractions[n, z] + rest.times * (tide.copies[z, rest.now] - tide.copies[z, rest.was])
        if places > 0:
            places = min(places, int((rest.cpu + 0.5) * tide.per_cpu[t]))
            worth += prices.headroom[t] * tide.roots[min(places, len(tide.roots) - 1)]
    if rest.cpu > 0 and rest.gpu > 0:
        # A smooth minimum of what is free and what the free CPU can feed.
        fed, free = rest.cpu / prices.cpu_per_gpu[0], float(rest.gpu)
        fed, free = fed * fed, free * free
        worth += FED * math.sqrt(fed * free / math.sqrt(fed * fed + free * free))
    for g in range(2, len(prices.block)):
        if prices.block[g] > 0:
            worth += prices.block[g] * min(rest.idle // g, int((rest.cpu + 0.5) / prices.block_cpu[g]))
    return float(worth)


@inlined
def node_worth(hot: Hot, tide: TideRule, n: int) -> float:
    """What node n is worth as it is, computed once for each change."""
    scores, changed_at = hot.scores, hot.nodes[n, nodes.CHANGED_AT]
    if scores.worth_at[n] != changed_at + 1:
        value = 0.0
        for z in range(len(tide.copies)):
            scores.fractions[n, z] = 0
        for d in range(hot.left.shape[1]):
            left = max(hot.left[n, d], 0)
            value += tide.prices.device[left]
            for z in range(len(tide.copies)):
                scores.fractions[n, z] += tide.copies[z, left]
        scores.device_worth[n] = value
        cpu = max(hot.nodes[n, nodes.CPU_FREE], 0)
        rest = Rest(cpu, hot.nodes[n, nodes.LEFT_TOTAL], hot.nodes[n, nodes.IDLE], value, 0, 0, 0)
        scores.worth[n] = worth_of(hot, tide, n, rest)
        scores.worth_at[n] = changed_at + 1
    return float(scores.worth[n])


class Cutting(NamedTuple):
    """Scratch for the value of a device's rest."""

    sizes: I64  # of the requested fractions, in steps
    counts: F64  # how many of each
    price: F64  # of each
    packed: F64  # of each, in the pattern of the round
    best: F64  # (steps + 1,): the value found
    value: F64  # (steps + 1,): the value of the round
    taken: I64  # (steps + 1,): the fraction that gives it, -1 for none


@entry
def cut_devices(cutting: Cutting, rounds: int) -> None:
    """The value of every rest of a device, from the best ways to cut devices into the requested fractions.

    Duals of the cutting-stock problem by multiplicative weights: each round packs one device at the current prices and
    lowers the price of what it covers; the prices with the best bound are kept.
    """
    sizes, counts, price, steps = cutting.sizes, cutting.counts, cutting.price, len(cutting.best) - 1
    best_bound = -1.0
    for params in range(rounds):
        pack_device(cutting)
        whole = cutting.value[steps]
        bound = 0.0
        for s in range(len(sizes)):
            bound += counts[s] * price[s]
        if bound / whole > best_bound:
            best_bound = bound / whole
            for step in range(steps + 1):
                cutting.best[step] = cutting.value[step] / whole
        fewest = 1e18
        for s in range(len(sizes)):
            if cutting.packed[s] > 0:
                fewest = min(fewest, counts[s] / cutting.packed[s])
        pace = 0.5
        if params >= rounds // 4:
            pace = 0.2
        if params >= rounds // 2:
            pace = 0.05
        if params >= 3 * rounds // 4:
            pace = 0.02
        for s in range(len(sizes)):
            if cutting.packed[s] > 0:
                price[s] *= 1.0 - pace * fewest * cutting.packed[s] / counts[s]


@inlined
def pack_device(cutting: Cutting) -> None:
    """The most valuable way to cut a device at the current prices."""
    sizes, price, value, taken = cutting.sizes, cutting.price, cutting.value, cutting.taken
    for step in range(1, len(value)):
        value[step], taken[step] = value[step - 1], -1
        for s in range(len(sizes)):
            if sizes[s] <= step and price[s] > 0 and value[step - sizes[s]] + price[s] > value[step]:
                value[step], taken[step] = value[step - sizes[s]] + price[s], s
    for s in range(len(sizes)):
        cutting.packed[s] = 0.0
    step = len(value) - 1
    while step > 0:
        s = taken[step]
        if s < 0:
            step -= 1
        else:
            cutting.packed[s] += 1.0
            step -= sizes[s]


def empty_cutting(sizes: I64, counts: F64, steps: int) -> Cutting:
    """An initial cutting: a fraction costs its part of a device."""
    return Cutting(
        sizes=sizes,
        counts=counts,
        price=sizes / steps,
        packed=np.zeros(len(sizes)),
        best=np.zeros(steps + 1),
        value=np.zeros(steps + 1),
        taken=np.zeros(steps + 1, np.int64),
    )
