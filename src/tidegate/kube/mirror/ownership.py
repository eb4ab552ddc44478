"""What is ours: pods that name us as their scheduler, their jobs, and, to be gated, whatever names a queue.

Work that names a queue and was not held at the door is nobody's to touch: it is told of, and left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.kube.mirror.job_adapters import OWNERS
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.mirror.namespaces import ManagedNamespaces
from tidegate.kube.mirror.pods import GateOwner, PodTraits, SeenPod

#: What pods name that name no scheduler of their own.
_USUAL = frozenset(("", "default-scheduler"))


@dataclass(frozen=True)
class Ownership:
    """What is ours; with `gates`, work that names a queue too, whoever binds its pods.

    Who only watches follows work as if it were ours, whoever schedules it.
    """

    scheduler: str = "tidegate"  # empty: nothing is ours to bind
    gates: bool = False
    watches: bool = False
    unqueued: bool = True  # of what others schedule: also what names no queue
    namespaces: ManagedNamespaces = field(default_factory=ManagedNamespaces)  # work in others is never ours

    def manages(self, namespace: str) -> bool:
        """Whether work in a namespace may be ours."""
        return self.namespaces.manages(namespace)

    def binds_job(self, job: SeenJob) -> bool:
        """Whether the pods of a job are ours to bind."""
        return bool(self.scheduler) and self.scheduler in job.schedulers and self.manages(job.ref.namespace)

    def binds_pod(self, pod: SeenPod) -> bool:
        """Whether a pod is ours to bind."""
        return bool(self.scheduler) and pod.scheduler == self.scheduler and self.manages(pod.namespace)

    def has_job(self, job: SeenJob) -> bool:
        """Whether a job is ours, as far as it is not past the door."""
        watched = self.watches and (self.unqueued or job.queued)
        wanted = watched or self.binds_job(job) or (self.gates and job.queued)
        return job.owner is None and wanted and self.manages(job.ref.namespace)

    def why_unstarted(self, job: SeenJob) -> tuple[str, ...]:
        """Why nobody starts a job that is held for its queue: its pods name no scheduler that we are."""
        if job.owner is not None or not (job.suspended and job.queued and self.manages(job.ref.namespace)):
            return ()
        return self._unbound() if not (self.has_job(job) or job.schedulers - _USUAL) else ()

    def why_ungated(self, pod: SeenPod) -> tuple[str, ...]:
        """Why nobody takes our gate off a pod: it names no scheduler that we are."""
        held = pod.queued and pod.gate is GateOwner.OURS and self.manages(pod.namespace)
        return self._unbound() if held and pod.scheduler in _USUAL and not self.has_pod(pod) else ()

    def _unbound(self) -> tuple[str, ...]:
        if self.watches or self.gates or not self.scheduler:
            return ()
        held = f"schedulerName: work that names a queue is held, and only {self.scheduler} starts it here"
        return (f"{held}; write schedulerName: {self.scheduler} and submit it again, or leave the queue out",)

    def is_bypassed(self, job: SeenJob) -> bool:
        """Whether a job that we should have let go runs without us."""
        held = job.suspended or job.started or not job.adapter.suspend
        return not (held or self.watches or self.binds_job(job))

    def has_pod(self, pod: SeenPod) -> bool:
        """Whether a pod that belongs to no job is ours."""
        if not self.manages(pod.namespace):
            return False
        if self.watches and (pod.queued or (self.unqueued and pod.owner is None)):
            return True
        if self.binds_pod(pod):
            return pod.gate is not GateOwner.OTHERS
        return (
            self.gates and pod.queued and (pod.gate is GateOwner.OURS or (pod.started and pod.gate is GateOwner.OPEN))
        )

    def ignores(self, traits: PodTraits) -> bool:
        """Whether pods with these traits are not ours and never come to be, in whatever namespace they are."""
        owner, watched = traits.owner, self.watches and self.unqueued
        if owner is not None and owner.group_kind in OWNERS:
            return False
        ours = traits.queued or traits.gate is GateOwner.OURS or (watched and owner is None)
        return not (ours or (bool(self.scheduler) and traits.scheduler == self.scheduler))

    def is_pod_bypassed(self, pod: SeenPod) -> bool:
        """Whether a pod that we should have let go runs without us."""
        named = self.gates and pod.queued and not (self.watches or self.binds_pod(pod)) and self.manages(pod.namespace)
        return named and pod.gate is GateOwner.OPEN and not pod.started and not pod.life.is_over
