"""Ownership: which work is managed. Pods that name our scheduler, their jobs, and, with gates, work that names a queue.

Work that names a queue and bypassed admission gets an Event and is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.kube.mirror.job_adapters import OWNERS
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.mirror.namespaces import ManagedNamespaces
from tidegate.kube.mirror.pods import GateOwner, PodTraits, SeenPod

#: The schedulerName of pods that choose no scheduler.
_USUAL = frozenset(("", "default-scheduler"))


@dataclass(frozen=True)
class Ownership:
    """Which work is managed; with `gates`, also work that names a queue and has another scheduler.

    With `watches` (shadow mode), all work is followed as if it were managed.
    """

    scheduler: str = "tidegate"  # empty: Tidegate binds no pods
    gates: bool = False
    watches: bool = False
    unqueued: bool = True  # with watches: also work that names no queue
    namespaces: ManagedNamespaces = field(
        default_factory=ManagedNamespaces
    )  # work in other namespaces is never managed

    def manages(self, namespace: str) -> bool:
        """Whether work in a namespace may be managed."""
        return self.namespaces.manages(namespace)

    def binds_job(self, job: SeenJob) -> bool:
        """Whether Tidegate binds the pods of a job."""
        return bool(self.scheduler) and self.scheduler in job.schedulers and self.manages(job.ref.namespace)

    def binds_pod(self, pod: SeenPod) -> bool:
        """Whether Tidegate binds a pod."""
        return bool(self.scheduler) and pod.scheduler == self.scheduler and self.manages(pod.namespace)

    def has_job(self, job: SeenJob) -> bool:
        """Whether a job is managed, if it did not bypass admission."""
        watched = self.watches and (self.unqueued or job.queued)
        wanted = watched or self.binds_job(job) or (self.gates and job.queued)
        return job.owner is None and wanted and self.manages(job.ref.namespace)

    def why_unstarted(self, job: SeenJob) -> tuple[str, ...]:
        """Why a job that is held for its queue is never started: its pods name another scheduler."""
        if job.owner is not None or not (job.suspended and job.queued and self.manages(job.ref.namespace)):
            return ()
        return self._unbound() if not (self.has_job(job) or job.schedulers - _USUAL) else ()

    def why_ungated(self, pod: SeenPod) -> tuple[str, ...]:
        """Why our gate is never removed from a pod: it names another scheduler."""
        held = pod.queued and pod.gate is GateOwner.OURS and self.manages(pod.namespace)
        return self._unbound() if held and pod.scheduler in _USUAL and not self.has_pod(pod) else ()

    def _unbound(self) -> tuple[str, ...]:
        if self.watches or self.gates or not self.scheduler:
            return ()
        held = f"schedulerName: work that names a queue is held, and only {self.scheduler} starts it here"
        return (f"{held}; write schedulerName: {self.scheduler} and submit it again, or leave the queue out",)

    def is_bypassed(self, job: SeenJob) -> bool:
        """Whether a job runs without having been admitted."""
        held = job.suspended or job.started or not job.adapter.suspend
        return not (held or self.watches or self.binds_job(job))

    def has_pod(self, pod: SeenPod) -> bool:
        """Whether a pod without a job is managed."""
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
        """Whether pods with these traits are never managed, in any namespace."""
        owner, watched = traits.owner, self.watches and self.unqueued
        if owner is not None and owner.group_kind in OWNERS:
            return False
        ours = traits.queued or traits.gate is GateOwner.OURS or (watched and owner is None)
        return not (ours or (bool(self.scheduler) and traits.scheduler == self.scheduler))

    def is_pod_bypassed(self, pod: SeenPod) -> bool:
        """Whether a pod without a job runs without having been admitted."""
        named = self.gates and pod.queued and not (self.watches or self.binds_pod(pod)) and self.manages(pod.namespace)
        return named and pod.gate is GateOwner.OPEN and not pod.started and not pod.life.is_over
