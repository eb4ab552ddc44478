"""Equivalence classes: everything feasibility depends on becomes a small number, and work is done per class."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.model.hardware import MOST_DEVICES, Node, Taint, TaintEffect
from tidegate.model.queues import UNLIMITED
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import Labels, Resources
from tidegate.model.units import LARGEST_AMOUNT, WHOLE_MILLI
from tidegate.model.work import GpuRequest, NodeTerm, PodSet, Share, Toleration, Work

#: Resources with columns of their own; all others share the `extra` axis.
CORE_RESOURCES = ("cpu", "memory", "pods")

#: Pods a workload may have: more is a mistake, and would stall all others.
MOST_PODS = 100_000


class PodClassKey(NamedTuple):
    """What makes two pods the same to the engine."""

    request: Resources
    gpu: GpuRequest
    selector: Labels
    terms: tuple[NodeTerm, ...]
    tolerations: tuple[Toleration, ...]

    @classmethod
    def of(cls, pod_set: PodSet) -> PodClassKey:
        """The class of a pod set's pods."""
        return cls(pod_set.request, pod_set.gpu, pod_set.selector, pod_set.terms, pod_set.tolerations)

    def label_keys(self) -> set[str]:
        """The node labels it reads."""
        asked = {key for key, _ in self.selector}
        return asked | {requirement.key for term in self.terms for requirement in term.requirements}


class NodeClassKey(NamedTuple):
    """What makes two nodes the same to every pod class, apart from what is free."""

    gpu_model: str
    gpu_memory_mib: int
    labels: Labels  # only those that some pod class reads
    taints: tuple[Taint, ...]

    @classmethod
    def of(cls, node: Node, label_keys: frozenset[str]) -> NodeClassKey:
        """The class of a node, given the labels that matter."""
        labels = tuple(pair for pair in node.labels if pair[0] in label_keys)
        taints = tuple(taint for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE)
        return cls(node.shape.gpu_model, node.shape.gpu_memory_mib, labels, taints)


def mismatch(pod: PodClassKey, node: NodeClassKey) -> Reason:
    """Why a node class can never take a pod class; NONE if it can."""
    if pod.gpu.count and pod.gpu.models and node.gpu_model not in pod.gpu.models:
        return Reason.GPU_MODEL
    if pod.gpu.share is Share.WHOLE and pod.gpu.memory_mib > node.gpu_memory_mib:
        return Reason.GPU_MODEL
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in pod.selector):
        return Reason.NODE_TERMS
    if pod.terms and not any(term.holds(labels) for term in pod.terms):
        return Reason.NODE_TERMS
    for taint in node.taints:
        if not any(toleration.tolerates(taint) for toleration in pod.tolerations):
            return Reason.NODE_TAINT
    return Reason.NONE


def malformed(work: Work) -> Reason:
    """Why work can never be placed, whatever the cluster; NONE if it can."""
    if not 0 < sum(pod_set.count for pod_set in work.pod_sets) <= MOST_PODS:
        return Reason.MALFORMED
    times = (work.protected_ms, work.tolerated_wait_ms, work.checkpoint_every_ms, work.restart_cost_ms)
    if any(abs(number) > 1 << 62 for number in (work.priority, *times)):  # more than a column holds
        return Reason.MALFORMED
    if any(pod_set.gpu.share is Share.MIG for pod_set in work.pod_sets):
        return Reason.SHARE_UNSUPPORTED
    return Reason.NONE if all(_is_sound(pod_set) for pod_set in work.pod_sets) else Reason.MALFORMED


def _is_sound(pod_set: PodSet) -> bool:
    """Whether a pod of the set requests something that can exist."""
    gpu = pod_set.gpu
    amounts = (gpu.memory_mib, *(amount for _, amount in pod_set.request))
    counted = (*(pod_set.charge or ()), *(pod_set.footprint or ()))
    if pod_set.count < 0 or any(not 0 <= amount <= LARGEST_AMOUNT for amount in amounts):
        return False
    if any(not 0 <= amount <= UNLIMITED for _, amount in counted):
        return False
    if gpu.share is Share.WHOLE:
        return 0 < gpu.count <= MOST_DEVICES
    if gpu.share is Share.FRACTION:
        return gpu.count == 1 and 0 < gpu.milli <= WHOLE_MILLI
    return gpu.count == 0
