"""What nodes that close, go or come back mean for the pods of workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidegate.kube.mirror.fact_builder import FactBuilder
from tidegate.kube.mirror.node_registry import NodeRegistry
from tidegate.kube.mirror.pods import SeenPod
from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods, WorkloadStage
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import EventKind


class PodReconciler(Protocol):
    """Reconciles the pods of workloads."""

    facts: FactBuilder
    node_registry: NodeRegistry
    pods: dict[str, SeenPod]
    workloads: dict[int, WorkloadPods]

    def seat_again(self, uids: list[str]) -> None:
        """Look again at pods."""


class NodeChanges:
    """Reports which pods are not where they are expected, and which are there again."""

    def __init__(self, reconciler: PodReconciler, slots: Mapping[str, tuple[WorkloadPods, int]]) -> None:
        self._reconciler, self._slots = reconciler, slots

    def leave_closed(self) -> None:
        """Report pods that are expected on nodes that were closed since the last time, and are not there."""
        closed = self._reconciler.node_registry.take_closed()
        for workload in self._reconciler.workloads.values() if closed else ():
            if workload.stage is WorkloadStage.PLACED:
                for ordinal, slot in enumerate(workload.slots):
                    if slot.node in closed:
                        self.report_absent(workload, ordinal)

    def report_absent(self, workload: WorkloadPods, ordinal: int) -> None:
        """Report a pod that is not on its node: where the node takes no new pods, another one is decided.

        A pod whose binding is under way is left alone, and so is one that nobody would make again.
        """
        slot, pod = workload.slots[ordinal], self._reconciler.pods.get(workload.slots[ordinal].pod)
        binding = slot.told and slot.lifted_to == NOBODY
        made_again = workload.kind is WorkloadKind.JOB or (pod is not None and pod.owner is not None)
        if not (slot.bound or slot.spare or binding) and made_again:
            self._reconciler.facts.about(EventKind.POD_ABSENT, workload.number, ordinal)

    def find_returned(self) -> None:
        """Report pods on nodes that are there again: a node that is made again under its name has its pods.

        Those of a workload that leaves hold room like anybody's: they have no place any more.
        """
        returned = self._reconciler.node_registry.take_returned()
        there = [uid for uid, pod in self._reconciler.pods.items() if pod.node in returned] if returned else []
        for uid in there:
            workload, ordinal = self._slots.get(uid, (None, 0))
            if workload is not None and workload.stage is WorkloadStage.PLACED:
                workload.slots[ordinal].bound = False  # it is bound to another node of the same name now
        self._reconciler.seat_again(there)
