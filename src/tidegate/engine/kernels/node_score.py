"""How good a place is, by each placement rule; the openb rules are exactly those of the published experiment.

A score is an integer, the higher the better; it is computed from floats by + - * / in the order written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tidegate.engine.kernels.node_fit import (
    FRACTION,
    WHOLE,
    WHOLE_GPU,
    best_fit_device,
    has_equal_before,
    memory_wanted,
)
from tidegate.engine.kernels.placement_rule import BEST_FIT, CLUSTERING, DOT_PRODUCT, FGD, PACKING, SPREAD, TIDE, Rule
from tidegate.engine.kernels.placement_tide import tide_best
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import F64, I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import nodes, pod_classes

MOST_SCORE = 100


@inlined
def sums_part(rule: Rule, cpu: Any, gpu: Any, cpu_free: Any, gpu_free: Any) -> Any:
    """The score, from 0 to 1, by the rules that read only a node's sums; of one pod on one node, or of many."""
    if rule.kind == BEST_FIT:
        return 1 - (cpu_free - cpu) / (2 * rule.cpu_scale) - (gpu_free - gpu) / (2 * rule.gpu_scale)
    if rule.kind == DOT_PRODUCT:
        cpu_part = cpu_free / rule.cpu_scale * cpu / rule.cpu_scale
        return 1 - 0.5 * (cpu_part + gpu_free / rule.gpu_scale * gpu / rule.gpu_scale)
    if rule.kind == SPREAD:
        return 0.5 * cpu_free / rule.cpu_scale + 0.5 * gpu_free / rule.gpu_scale + 0.0 * cpu
    return 0.0 * cpu_free + 0.0 * cpu  # first fit, random: all the same


@inlined
def sums_score(rule: Rule, node: I64, pod: I64) -> int:
    """The score by the rules that read only a node's sums, from the rows of the node and of the class."""
    gpu, cpu_free = pod[pod_classes.GPUS] * pod[pod_classes.MILLI], max(node[nodes.CPU_FREE], 0)
    return int(MOST_SCORE * max(sums_part(rule, pod[pod_classes.CPU], gpu, cpu_free, node[nodes.LEFT_TOTAL]), 0.0))


@inlined
def devices_score(hot: Hot, rule: Rule, k: int, n: int) -> int:
    """The score by the rules that read single devices."""
    if rule.kind == CLUSTERING:
        return clustering_score(hot, k, n)
    if rule.kind == PACKING:
        return packing_score(hot, k, n)
    scores, size, now = hot.scores, hot.pod_classes[k, pod_classes.SIZE], hot.nodes[n, nodes.CHANGED_AT] + 1
    if scores.shared_at[size, n] != now:
        score = fgd_best(hot, rule, k, n)[0] if rule.kind == FGD else tide_best(hot, rule.tide, k, n)[0]
        scores.shared[size, n] = score
        scores.shared_at[size, n] = now
    return int(scores.shared[size, n])


@inlined
def looks_at_devices(kind: int) -> bool:
    """Whether a rule reads single devices."""
    return kind in (CLUSTERING, PACKING, FGD, TIDE)


@kernel
def clustering_score(hot: Hot, k: int, n: int) -> int:
    """Keep pods of one GPU kind together."""
    share = hot.pod_classes[k, pod_classes.SHARE]
    if share == 0:
        return 0
    kind = 0 if share == FRACTION else hot.pod_classes[k, pod_classes.GPUS]
    base = 25 * (8 * WHOLE_GPU - hot.nodes[n, nodes.LEFT_TOTAL]) // (8 * WHOLE_GPU)
    kinds = 0
    for other in range(hot.hosted.shape[1]):
        if hot.hosted[n, other] > 0:
            kinds += 1
    if hot.hosted[n, kind] > 0:
        return int(base + (75 if kinds == 1 else 50))
    return int(base + (25 if kinds == 0 else 0))


@kernel
def packing_score(hot: Hot, k: int, n: int) -> int:
    """Fill devices in use before idle ones, and nodes in use before idle ones."""
    share, devices = hot.pod_classes[k, pod_classes.SHARE], hot.nodes[n, nodes.DEVICES]
    if share == 0:
        return 0
    if hot.nodes[n, nodes.IDLE] == devices:
        return int(max(33 - devices, devices))
    if share == WHOLE:
        return int(max(50 - hot.pod_classes[k, pod_classes.GPUS], 33))
    left = hot.left[n, best_fit_device(hot, k, n)]
    if left == WHOLE_GPU:
        return 49
    return int(max(100 - left * 100 // WHOLE_GPU // 10, 50))


@entry
def fragmentation(rule: Rule, node_class: int, cpu: int, left: I64) -> float:
    """The GPU milli of a node that a typical pod cannot use, in expectation; the sums in the published order."""
    typical = rule.typical
    total = 0
    for d in range(len(left)):
        total += max(left[d], 0)  # a broken device has far less than nothing
    lack_both, lack_gpu, lack_cpu, cpu_only_ok, cpu_only_lack, no_access = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for t in range(len(typical.cpu)):
        share, milli = typical.share[t], typical.milli[t]
        has_cpu = cpu >= typical.cpu[t]
        if typical.gpus[t] == 0:
            if has_cpu:
                cpu_only_ok += share * total
            else:
                cpu_only_lack += share * total
        elif typical.allowed[t, node_class] == 0:
            no_access += share * total
        else:
            fitting, stranded = 0, 0
            for d in range(len(left)):
                if left[d] >= milli:
                    fitting += 1
                else:
                    stranded += max(left[d], 0)
            if fitting >= typical.gpus[t]:
                if has_cpu:
                    lack_gpu += share * stranded
                else:
                    lack_cpu += share * total
            elif has_cpu:
                lack_gpu += share * total
            else:
                lack_both += share * total
    return lack_both + lack_gpu + lack_cpu + cpu_only_ok + cpu_only_lack + no_access


@kernel
def fgd_best(hot: Hot, rule: Rule, k: int, n: int) -> tuple[int, int]:
    """Descent of fragmentation: the score of node n for class k, and the device that gives it (fractions only)."""
    classes = hot.pod_classes
    left = hot.scores.spread
    for d in range(len(left)):
        left[d] = hot.left[n, d]
    if classes[k, pod_classes.SHARE] == FRACTION:
        milli, vram = classes[k, pod_classes.MILLI], memory_wanted(hot, k)
        best, best_device = -1, -1
        for d in range(len(left)):
            if left[d] < milli or hot.vram_left[n, d] < vram or has_equal_before(hot, n, d, vram):
                continue
            left[d] -= milli
            score = descent(hot, rule, k, n, left)
            left[d] += milli
            if score > best:
                best, best_device = score, d
        return best, best_device
    if classes[k, pod_classes.SHARE] == WHOLE:
        missing = classes[k, pod_classes.GPUS]
        for d in range(len(left)):
            if missing > 0 and left[d] == WHOLE_GPU:
                left[d] = 0
                missing -= 1
    return descent(hot, rule, k, n, left), -1


@kernel
def descent(hot: Hot, rule: Rule, k: int, n: int, left: I64) -> int:
    """How far fragmentation falls when a pod of class k leaves so much on the devices, mapped to 0 to 100."""
    cpu = hot.nodes[n, nodes.CPU_FREE] - hot.pod_classes[k, pod_classes.CPU]
    after = fragmentation(rule, hot.nodes[n, nodes.NODE_CLASS], cpu, left)
    return int(np.searchsorted(rule.steps, (node_fragmentation(hot, rule, n) - after) / 1000, side="right"))


@inlined
def node_fragmentation(hot: Hot, rule: Rule, n: int) -> float:
    """The fragmentation of node n as it is, computed once for each change."""
    scores, changed_at = hot.scores, hot.nodes[n, nodes.CHANGED_AT]
    if scores.worth_at[n] != changed_at + 1:
        scores.worth[n] = fragmentation(rule, hot.nodes[n, nodes.NODE_CLASS], hot.nodes[n, nodes.CPU_FREE], hot.left[n])
        scores.worth_at[n] = changed_at + 1
    return float(scores.worth[n])


def gain_steps() -> F64:
    """For each score from 1 to 100, the smallest gain with int(100 * sigmoid(gain)) at that score or above.

    Found by bisection over doubles, so that no exponential is needed where compiled and plain runs must agree.
    """
    return np.array([_smallest_gain(score) for score in range(1, MOST_SCORE + 1)])


def _smallest_gain(score: int) -> float:
    low, high = -700.0, 700.0
    while (middle := (low + high) / 2) not in (low, high):
        if int(MOST_SCORE * (1 / (1 + math.exp(-middle)))) >= score:
            high = middle
        else:
            low = middle
    return high
