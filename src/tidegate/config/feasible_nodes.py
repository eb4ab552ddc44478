"""Computes how many pods of a kind an empty node can host, and why it hosts none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.model.hardware import Node, TaintEffect
from tidegate.model.units import WHOLE_MILLI, cpu_text, gpus_text, memory_text
from tidegate.model.work import GpuRequest, PodSet, Share


class PodLimit(NamedTuple):
    """How many pods of a kind one property of an empty node allows, and what it is."""

    pods: int
    text: str


#: As good as no limit.
_MANY = 1 << 30


def room(node: Node, pod: PodSet) -> int:
    """How many such pods the empty node holds."""
    return min(limit.pods for limit in _limits(node, pod))


def obstacle(node: Node, pod: PodSet) -> str:
    """Why the node holds no such pod; empty if it does."""
    return next((limit.text for limit in _limits(node, pod) if limit.pods == 0), "")


def _limits(node: Node, pod: PodSet) -> Iterator[PodLimit]:
    yield _labels_limit(node, pod)
    yield _taints_limit(node, pod)
    yield from _gpu_limits(node, pod.gpu)
    capacity, reserved = dict(node.shape.capacity), dict(node.shape.reserved)
    for name, asked in (*pod.request, ("pods", 1)):
        there = max(capacity.get(name, 0) - reserved.get(name, 0), 0)
        yield PodLimit(there // asked, f"asks for {_amount(name, asked)}, a node has {_amount(name, there)}")


def _labels_limit(node: Node, pod: PodSet) -> PodLimit:
    labels = dict(node.labels)
    for key, value in pod.selector:
        if labels.get(key) != value:
            return PodLimit(0, f"selects {key}={value}, which nodes do not have")
    return PodLimit(_MANY, "")


def _taints_limit(node: Node, pod: PodSet) -> PodLimit:
    for taint in node.taints:
        repels = taint.effect is not TaintEffect.PREFER_NO_SCHEDULE
        if repels and not any(toleration.tolerates(taint) for toleration in pod.tolerations):
            return PodLimit(0, f"does not tolerate the taint {taint.key}={taint.value}:{taint.effect}")
    return PodLimit(_MANY, "")


def _gpu_limits(node: Node, gpu: GpuRequest) -> Iterator[PodLimit]:
    if gpu.share is Share.NONE:
        return
    shape = node.shape
    asked = gpu.milli if gpu.share is Share.FRACTION else gpu.count * WHOLE_MILLI
    there = shape.gpu_count * WHOLE_MILLI
    text = f"asks for {gpus_text(asked)} GPUs, a node has {shape.gpu_count}"
    per_device = WHOLE_MILLI // gpu.milli if gpu.milli else 0
    yield PodLimit(shape.gpu_count * per_device if gpu.milli else there // asked, text)
    if gpu.models and shape.gpu_model not in gpu.models:
        yield PodLimit(0, f"asks for {' or '.join(gpu.models)}, a node has {shape.gpu_model or 'an unnamed model'}")
    if gpu.memory_mib:
        fitting = shape.gpu_memory_mib // gpu.memory_mib
        text = f"asks for {memory_text(gpu.memory_mib)} of GPU memory, a GPU has {memory_text(shape.gpu_memory_mib)}"
        yield PodLimit(shape.gpu_count * fitting if gpu.milli else _MANY * min(fitting, 1), text)


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{cpu_text(amount)} CPU"
    return f"{memory_text(amount)} of memory" if name == "memory" else f"{amount} {name}"
