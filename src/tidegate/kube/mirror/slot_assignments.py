"""Which pod is assigned to which slot of which workload, by the uid of the pod."""

from __future__ import annotations

from tidegate.kube.mirror.workload_pods import WorkloadPods


class SlotAssignments:
    """Pods and their slots."""

    def __init__(self) -> None:
        self.slots: dict[str, tuple[WorkloadPods, int]] = {}

    def assign(self, workload: WorkloadPods, pod: str, pod_set: str) -> bool:
        """Assign a pod to a free slot of its set; False if there is none."""
        ordinal = workload.seat(pod, pod_set)
        if ordinal >= 0:
            self.slots[pod] = (workload, ordinal)
        return ordinal >= 0

    def free(self, pod: str) -> None:
        """Empty the slot of a pod."""
        workload, ordinal = self.slots.pop(pod)
        workload.slots[ordinal].empty()

    def clear(self, workload: WorkloadPods) -> list[str]:
        """Forget the slots of a workload's pods; return the pods' uids."""
        filled = [slot.pod for slot in workload.slots if slot.pod]
        for pod in filled:
            del self.slots[pod]
        return filled
