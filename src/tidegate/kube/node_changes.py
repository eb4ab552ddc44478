"""Nodes that close, go or return: what each change means for the pods of workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidegate.kube.mirror.fact_builder import FactBuilder
from tidegate.kube.mirror.node_registry import NodeRegistry
from tidegate.kube.mirror.pods import SeenPod
from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods, WorkloadStage
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import FactKind


class PodReconciler(Protocol):
    """Reconciles the pods of workloads."""

    facts: FactBuilder
    node_registry: NodeRegistry
    pods: dict[str, SeenPod]
    workloads: dict[int, WorkloadPods]

    def assign_again(self, uids: list[str]) -> None:
        """Find slots for pods that have none."""


class NodeChanges:
    """Reports which pods are not on the node that was decided, and which are on a node that exists again."""

    def __init__(self, reconciler: PodReconciler, slots: Mapping[str, tuple[WorkloadPods, int]]) -> None:
        self._reconciler, self._slots = reconciler, slots

    def leave_closed(self) -> None:
        """Report pods that are decided for nodes which closed since the last call, and are not bound to them."""
        closed = self._reconciler.node_registry.take_closed()
        for workload in self._reconciler.workloads.values() if closed else ():
            if workload.stage is WorkloadStage.PLACED:
                for ordinal, slot in enumerate(workload.slots):
                    if slot.node in closed:
                        self.report_absent(workload, ordinal)

    def report_absent(self, workload: WorkloadPods, ordinal: int) -> None:
        """Report a pod that is not on its node, so that another node is decided where this one takes no new pods.

        A pod whose binding is in flight is left alone, and so is one that no controller would create again.
        """
        slot, pod = workload.slots[ordinal], self._reconciler.pods.get(workload.slots[ordinal].pod)
        binding = slot.requested and slot.ungated_to == NOBODY
        made_again = workload.kind is WorkloadKind.JOB or (pod is not None and pod.owner is not None)
        if not (slot.bound or slot.reclaimed or binding) and made_again:
            self._reconciler.facts.about(FactKind.POD_ABSENT, workload.number, ordinal)

    def find_returned(self) -> None:
        """Report pods on nodes that exist again: a node that is created again under its name still has its pods.

        Pods of an evicted workload count as unmanaged: they have no slot any more.
        """
        returned = self._reconciler.node_registry.take_returned()
        there = [uid for uid, pod in self._reconciler.pods.items() if pod.node in returned] if returned else []
        for uid in there:
            workload, ordinal = self._slots.get(uid, (None, 0))
            if workload is not None and workload.stage is WorkloadStage.PLACED:
                workload.slots[ordinal].bound = False  # it is bound to the earlier node of this name
        self._reconciler.assign_again(there)
