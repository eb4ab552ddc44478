"""Slot assignments: the slot of each pod, and the pods that wait for a slot, by uid.

A job's controller may create more pods than its workload has slots, when a new pod precedes the deletion of an old one
or the job grew. Such a pod has no more updates, so it waits here until a slot is free.
"""

from __future__ import annotations

from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods


class SlotAssignments:
    """The slots of pods, and pods that wait for one."""

    def __init__(self) -> None:
        self.slots: dict[str, tuple[WorkloadPods, int]] = {}
        self._waiting: dict[
            int, dict[str, str]
        ] = {}  # by number of the workload: its waiting pods, each with its pod set
        self._waits_for: dict[str, int] = {}  # by pod: number of its workload

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
        """Remove a pod that waits for a slot."""
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
        """Pods that may take a slot once it is free, in order of arrival."""
        pods = self._waiting.get(workload.number, {})
        return [pod for pod, pod_set in pods.items() if ordinal in workload.ordinals(pod_set)]

    def clear(self, workload: WorkloadPods) -> list[str]:
        """Remove all pods of a workload, with or without a slot; return their uids."""
        filled = [slot.pod for slot in workload.slots if slot.pod]
        for pod in filled:
            del self.slots[pod]
        waiting = list(self._waiting.get(workload.number, ()))
        for pod in waiting:
            self.forget(pod)
        return filled + waiting
