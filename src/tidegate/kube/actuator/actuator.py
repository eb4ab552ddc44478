"""The actuator: turns decisions into pending writes that start and stop jobs, remove gates, allocate devices and bind.

The reconciler decides when; outcomes are handled in `write_outcomes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidegate.journal.quota_names import FlavorResourceName, QuotaNames
from tidegate.kube.actuator.pending_writes import (
    PendingWrite,
    allocating,
    binding,
    needs_tolerations,
    noting_size,
    reporting,
    starting,
    stopping_job,
    stopping_pod,
    trimming,
    undoing,
    ungating,
)
from tidegate.kube.actuator.provisioning import NodeRequestOptions, asking, asking_no_more
from tidegate.kube.mirror.dra import DeviceClaims
from tidegate.kube.mirror.handover_annotation import read_note
from tidegate.kube.mirror.job_patch import HOST, JobStart, PodSetHosts
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.mirror.node_registry import NodeRegistry
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.pods import GateOwner, SeenPod
from tidegate.kube.mirror.workload_pods import NodesRequested, WorkloadPods, WorkloadStage
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.manifests.selectors import toleration_object
from tidegate.model.decisions import NOBODY
from tidegate.model.queues import Flavor
from tidegate.model.work import Recovery


class Actuator:
    """Makes the pending writes that start work, and that stop it."""

    def __init__(
        self, ownership: Ownership, node_registry: NodeRegistry, pods: Mapping[str, SeenPod], claims: DeviceClaims
    ) -> None:
        self._ownership, self._node_registry, self._pods, self._claims = ownership, node_registry, pods, claims
        self.node_requests = NodeRequestOptions()
        self._lots: tuple[FlavorResourceName, ...] = ()  # by number in decisions
        self._flavors: Mapping[str, Flavor] = {}  # by name
        self.writes: list[PendingWrite] = []
        self.failed: list[int] = []  # decisions that cannot be written

    def take_writes(self) -> list[PendingWrite]:
        """The pending writes since the last call."""
        writes, self.writes = self.writes, []
        return writes

    def take_failed(self) -> list[int]:
        """Decisions that cannot be written, since the last call."""
        failed, self.failed = self.failed, []
        return failed

    def name_quota(self, names: QuotaNames, flavors: Iterable[Flavor]) -> None:
        """Use these names for the quota numbers in decisions from now on, and these flavors."""
        self._lots, self._flavors = names.lots, {flavor.name: flavor for flavor in flavors}

    def admit(self, workload: WorkloadPods, pod_set: int, lot: int) -> None:
        """Note the flavor that a pod set is admitted with for one of its resources."""
        if 0 <= lot < len(self._lots):
            workload.admit(workload.work.pod_sets[pod_set].name, self._lots[lot].flavor)

    # -- jobs --------------------------------------------------------------------------------------------------

    def ask_for_nodes(self, workload: WorkloadPods) -> None:
        """Request nodes for a pending job, which has no pods that node autoscalers could see."""
        if (
            self.node_requests.kind
            and workload.suspended
            and workload.job is not None
            and workload.asked is not NodesRequested.YES
        ):
            workload.asked = NodesRequested.YES
            self.writes += map(reporting, asking(workload.job, dict(workload.sizes()), self.node_requests))

    def start(self, workload: WorkloadPods) -> list[int]:
        """Start a workload on its nodes, once earlier changes to its job are undone.

        Return its pods whose node takes no new pods any more: it may have been decided long ago, or by another leader.
        """
        if workload.asked and workload.job is not None:
            workload.asked = NodesRequested.NO
            self.writes += map(reporting, asking_no_more(workload.job, dict(workload.sizes()), self.node_requests))
        if workload.undoing:
            workload.starts_after = True
        else:
            self._unsuspend(workload)
        closed = []
        for ordinal, slot in enumerate(workload.slots):
            pod = self._pods.get(slot.pod)
            if pod is None or pod.node or slot.node == NOBODY:
                continue
            if self._is_taken(workload, ordinal, pod):
                self.bind(workload, ordinal, pod)
            else:
                closed.append(ordinal)
        return closed

    def _is_taken(self, workload: WorkloadPods, ordinal: int, pod: SeenPod) -> bool:
        """Whether the node of a slot accepts the pod with the tolerations of its flavors."""
        flavors = self._flavors_with(workload, workload.set_at(ordinal))
        added = (one for flavor in flavors for one in flavor.tolerations)
        tolerations = (*pod.shape.work.pod_sets[0].tolerations, *added)
        return self._node_registry.takes(workload.slots[ordinal].node, tolerations)

    def _unsuspend(self, workload: WorkloadPods) -> None:
        job = workload.job
        if job is not None and job.suspended and workload.stage is WorkloadStage.PLACED:
            binds = self._ownership.binds_job(job)
            counts = bool(workload.granted) and any(pods.min_count for pods in workload.work.pod_sets)
            places = {name: self._place(workload, name, pods, binds=binds) for name, pods in workload.sizes()}
            gated = workload.work.recovery is Recovery.PODS
            self.writes.append(starting(workload, job, JobStart(places, counts, not binds, gated)))

    def _place(self, workload: WorkloadPods, pod_set: str, pods: int, *, binds: bool) -> PodSetHosts:
        """Where the pods of a set run; pods that Tidegate binds, or with persistent volumes, get no host."""
        labels, tolerations = self._flavors_of(workload, pod_set)
        place = PodSetHosts(pods, (), {} if binds else labels, tolerations)
        if binds or (workload.job is not None and workload.job.unbound):
            return place
        nodes = sorted({workload.slots[ordinal].node for ordinal in workload.ordinals(pod_set)})
        hosts = [self._node_registry.host_of(node) for node in nodes if node != NOBODY]
        return place._replace(hosts=tuple(hosts)) if all(hosts) else place

    def _flavors_of(self, workload: WorkloadPods, pod_set: str) -> tuple[dict[str, str], tuple[dict[str, str], ...]]:
        """The node labels and tolerations of the flavors that a pod set was admitted with."""
        there = self._flavors_with(workload, pod_set)
        labels = {key: value for flavor in there for key, value in flavor.node_labels}
        tolerations = dict.fromkeys(one for flavor in there for one in flavor.tolerations)
        return labels, tuple(map(toleration_object, tolerations))

    def _flavors_with(self, workload: WorkloadPods, pod_set: str) -> list[Flavor]:
        return [self._flavors[name] for name in workload.flavors.get(pod_set, ()) if name in self._flavors]

    def undo(self, workload: WorkloadPods) -> None:
        """Undo our changes to a suspended job."""
        job = workload.job
        if job is not None and job.suspended and job.started and not workload.undoing:
            workload.undoing = job.version
            self.writes += undoing(workload, job)

    def end_undoing(self, workload: WorkloadPods) -> None:
        """End an undo that was observed or failed; a start that waited for it follows."""
        workload.undoing = ""
        if workload.starts_after:
            workload.starts_after = False
            self._unsuspend(workload)

    def stop(self, workload: WorkloadPods, decision: int) -> None:
        """Evict a workload: suspend its job, or evict its pods."""
        if workload.job is not None and not workload.is_gated:
            workload.stopping = True
            self.writes.append(stopping_job(workload, workload.job, decision))
            return
        for ordinal, slot in enumerate(workload.slots):
            if slot.holds:
                pod = self._pods[slot.pod].ref
                self.writes.append(stopping_pod(workload, ordinal, pod, decision))

    def stop_again(self, workload: WorkloadPods) -> None:
        """Suspend an evicted job again that its owner unsuspended, after a growing backoff."""
        if workload.job is not None and not workload.stopping:
            workload.stopping, workload.stops = True, workload.stops + 1
            write = stopping_job(workload, workload.job, NOBODY)
            self.writes.append(write._replace(decisions=(), again=workload.stops))

    def start_again(self, workload: WorkloadPods, failed: PendingWrite) -> None:
        """Retry the write that starts a job, from the job as last observed."""
        before = len(self.writes)
        self._unsuspend(workload)
        self.writes[before:] = [write._replace(again=failed.again + 1) for write in self.writes[before:]]

    def trim(self, workload: WorkloadPods, job: SeenJob, size: int) -> None:
        """Set a running job back to the size that it holds quota for."""
        self.writes.append(trimming(workload, job, size))

    def note_size(self, workload: WorkloadPods, job: SeenJob, reclaimed_slots: Collection[int] = ()) -> bool:
        """Write into a job's annotation that it holds less, without these slots; False if it says so already.

        Only a smaller spec needs that: the status tells the next leader of pods that are done. A shadow writes nothing.
        """
        text = "" if job.work is None or self._ownership.watches else job.annotation(HANDOVER_NOTE)
        note = read_note(text) if text else None
        if note is None or job.work is None or note.pods() <= sum(pods.count for pods in job.work.pod_sets):
            return False
        kept = workload.kept(reclaimed_slots)
        slots = [workload.slots[ordinal] for ordinals in kept.values() for ordinal in ordinals]
        if note.pods() > len(slots) and workload.noted != (job.generation, len(slots)):
            workload.noted = (job.generation, len(slots))
            names = [self._node_registry.name_of(slot.node) if slot.node != NOBODY else "" for slot in slots]
            fewer = note.with_fewer({name: len(ordinals) for name, ordinals in kept.items()}, names)
            self.writes.append(noting_size(workload, job, fewer))
        return note.pods() > len(slots)

    def delete_misdirected(self, workload: WorkloadPods, ordinal: int, node: int) -> None:
        """Delete a pod whose node selector names another node than is decided now, and that is not bound."""
        slot = workload.slots[ordinal]
        if slot.pod and not slot.bound and slot.ungated_to not in (NOBODY, node):
            self.writes.append(stopping_pod(workload, ordinal, self._pods[slot.pod].ref, NOBODY))

    # -- pods --------------------------------------------------------------------------------------------------

    def bind(self, workload: WorkloadPods, ordinal: int, pod: SeenPod) -> None:
        """Bind a pod or remove its gate, unless that is done or in flight, or another gate holds it."""
        slot = workload.slots[ordinal]
        if slot.node == NOBODY or pod.node or slot.requested or pod.gate is GateOwner.OTHERS:
            return
        binds = self._ownership.binds_pod(pod)
        slot.requested = binds or pod.gate is GateOwner.OURS
        labels, tolerations = self._flavors_of(workload, workload.set_at(ordinal))
        if pod.gate is GateOwner.OURS or (binds and needs_tolerations(pod, tolerations)):
            slot.ungated_to = NOBODY if binds else slot.node
            host = "" if pod.shape.unbound else self._node_registry.host_of(slot.node)
            selector = {} if binds else {**labels, **({HOST: host} if host else {})}
            self.writes.append(ungating(workload, ordinal, pod, selector, tolerations))
        if binds and pod.claims:
            self._allocate(workload, ordinal, pod)
        elif binds:
            self.writes.append(binding(workload, ordinal, pod.ref, self._node_registry.name_of(slot.node)))

    def _allocate(self, workload: WorkloadPods, ordinal: int, pod: SeenPod) -> None:
        """Allocate devices of the node to a pod's claims; it is bound after that."""
        slot = workload.slots[ordinal]
        writes = self._claims.allocate(pod.ref, pod.claims, self._node_registry.name_of(slot.node))
        if writes is None:
            self.fail_to_allocate(workload, ordinal)
            slot.clear_decision()
        else:
            slot.claims = len(writes)
            self.writes += allocating(workload, ordinal, writes)

    def count_allocated(self, workload: WorkloadPods, ordinal: int) -> None:
        """Count a write to a pod's claims; after the last one the pod is bound."""
        slot = workload.slots[ordinal]
        slot.claims -= 1
        if not slot.claims and workload.stage is WorkloadStage.PLACED and slot.node != NOBODY:
            pod = self._pods[slot.pod]
            self.writes.append(binding(workload, ordinal, pod.ref, self._node_registry.name_of(slot.node)))

    def fail_to_allocate(self, workload: WorkloadPods, ordinal: int) -> None:
        """Fail the decision about a pod whose claims get no devices."""
        slot, pod = workload.slots[ordinal], self._pods[workload.slots[ordinal].pod]
        self._claims.forget_promises(pod.namespace, pod.claims)
        if slot.decision != NOBODY:
            self.failed.append(slot.decision)
