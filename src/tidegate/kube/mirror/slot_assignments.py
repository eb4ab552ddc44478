"""Which pod is assigned to which slot of which workload, and which pods wait for a slot, by the uid of the pod.

A job's controller may make more pods than its workload has slots: the next pod comes before the last one is gone, or
the job grew. Such a pod changes no more by itself, so it is remembered until a slot is free.
"""

from __future__ import annotations

from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods


class SlotAssignments:
    """Pods, their slots, and pods of jobs that have none."""

    def __init__(self) -> None:
        self.slots: dict[str, tuple[WorkloadPods, int]] = {}
        self._waiting: dict[int, dict[str, str]] = {}  # by number of the workload: its pods, each with its pod set
        self._waits_for: dict[str, int] = {}  # number of the workload, by pod

    def assign(self, workload: WorkloadPods, pod: str, pod_set: str) -> bool:
        """Assign a pod to a free slot of its set; False if there is none."""
        self.forget(pod)
        ordinal = workload.seat(pod, pod_set)
        if ordinal >= 0:
            self.slots[pod] = (workload, ordinal)
        elif workload.kind is WorkloadKind.JOB:
            self._waiting.setdefault(workload.number, {})[pod] = pod_set
            self._waits_for[pod] = workload.number
        return ordinal >= 0

    def forget(self, pod: str) -> None:
        """A pod waits for no slot any more."""
        number = self._waits_for.pop(pod, None)
        if number is not None:
            del self._waiting[number][pod]
            if not self._waiting[number]:
                del self._waiting[number]

    def free(self, pod: str) -> None:
        """Empty the slot of a pod."""
        workload, ordinal = self.slots.pop(pod)
        workload.slots[ordinal].empty()

    def has_waiting(self, workload: WorkloadPods) -> bool:
        """Whether pods of a workload wait for a slot."""
        return workload.number in self._waiting

    def waiting(self, workload: WorkloadPods, ordinal: int) -> list[str]:
        """Pods that may take a slot once it is free, in the order in which they came."""
        pods = self._waiting.get(workload.number, {})
        return [pod for pod, pod_set in pods.items() if ordinal in workload.ordinals(pod_set)]

    def clear(self, workload: WorkloadPods) -> list[str]:
        """Forget the slots of a workload's pods, and those that wait for one; return the pods' uids."""
        filled = [slot.pod for slot in workload.slots if slot.pod]
        for pod in filled:
            del self.slots[pod]
        waiting = list(self._waiting.get(workload.number, ()))
        for pod in waiting:
            self.forget(pod)
        return filled + waiting
