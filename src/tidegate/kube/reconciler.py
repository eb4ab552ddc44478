"""The reconciler: compares decisions with the observed nodes, jobs and pods; differences become facts and writes.

Unlike a controller's expectations, slots keep what was written and not yet observed (`PodSlot`, `PendingWrite`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.journal.quota_names import QuotaNames
from tidegate.kube.actuator.actuator import Actuator
from tidegate.kube.actuator.event_recorder import SCALE_UP_DELAY_MS, EventRecorder, EventTarget
from tidegate.kube.actuator.event_text import EventText
from tidegate.kube.actuator.pending_writes import PendingWrite, reporting
from tidegate.kube.actuator.provisioning import NO_NODE_REQUESTS, NodeRequestOptions
from tidegate.kube.actuator.workload_decisions import partial_grants
from tidegate.kube.actuator.workload_events import ClusterView, WorkloadEvents
from tidegate.kube.mirror.dra import ClaimObject, DeviceClaims
from tidegate.kube.mirror.fact_builder import FactBuilder
from tidegate.kube.mirror.job_adapters import OWNERS
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.mirror.limits import excess
from tidegate.kube.mirror.node_registry import NodeRegistry
from tidegate.kube.mirror.object_guard import ObjectGuard
from tidegate.kube.mirror.owner_index import OwnerIndex
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.pod_groups import PodGroups
from tidegate.kube.mirror.pod_spec_cache import PodSpecCache
from tidegate.kube.mirror.pods import PodPhase, SeenPod, UnmanagedPod
from tidegate.kube.mirror.slot_assignments import SlotAssignments
from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods, WorkloadStage
from tidegate.kube.node_changes import NodeChanges
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.writes import Ref
from tidegate.model.decisions import NOBODY, DecisionBatch, DecisionKind
from tidegate.model.facts import ALL_PODS, FactKind, WriteOutcome
from tidegate.model.hardware import Node
from tidegate.model.queues import Flavor
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Work

_SAID = (DecisionKind.HOLD, DecisionKind.REJECT)
_OF_PODS = (
    FactKind.POD_BOUND, FactKind.POD_ABSENT, FactKind.POD_DONE, FactKind.POD_STARTED, FactKind.POD_GONE,
    FactKind.POD_FAILED,
)  # fmt: skip
_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE)


class Reconciler:
    """Reconciles nodes, jobs and pods with the decisions about them."""

    def __init__(
        self,
        ownership: Ownership,
        scale_up_delay_ms: int = SCALE_UP_DELAY_MS,
        node_requests: NodeRequestOptions = NO_NODE_REQUESTS,
    ) -> None:
        self.ownership = ownership
        self.node_registry = NodeRegistry()
        self.refused: dict[str, tuple[str, ...]] = {}  # by uid: why work that names Tidegate is not supported
        self.guard = ObjectGuard(lambda failure: self.lifecycle.unreadable(failure.ref, failure.error))
        self.past: dict[str, Ref] = {}  # by uid: work that bypassed admission
        self.facts = FactBuilder()
        self._next_number = 0
        self.pods: dict[str, SeenPod] = {}
        self.workloads: dict[int, WorkloadPods] = {}
        self._of_job: dict[str, WorkloadPods] = {}  # by uid of the job
        self.assigned = SlotAssignments()
        self._owners, self._groups, self._claims = OwnerIndex(), PodGroups(), DeviceClaims()
        self._claiming: dict[str, SeenPod] = {}  # by uid: pods with claims, as last observed
        self._pod_specs = PodSpecCache()  # for pods with claims, and for what pods take beyond their workload
        self._events = EventRecorder(scale_up_delay_ms)
        view = ClusterView(
            ownership=ownership, nodes=self.node_registry, pods=self.pods, workloads=self.workloads,
            assigned=self.assigned.slots, groups=self._groups, refused=self.refused, bypassed=self.past,
        )  # fmt: skip
        self.lifecycle = WorkloadEvents(view, self._events)
        self.actuator = Actuator(ownership, self.node_registry, self.pods, self._claims)
        self.actuator.node_requests = node_requests
        self._node_changes = NodeChanges(self, self.assigned.slots)

    def take_facts(self) -> FactBuilder:
        """The facts since the last call."""
        self._node_changes.find_returned()
        self._node_changes.leave_closed()
        self.node_registry.report_unmanaged(self.facts)
        for decision in self.actuator.take_failed():
            self.facts.outcome(decision, WriteOutcome.FAILED)
        facts, self.facts = self.facts, FactBuilder()
        return facts

    def take_writes(self) -> list[PendingWrite]:
        """The pending writes since the last call."""
        return self.actuator.take_writes()

    def take_events(self, most: int, now_ms: int) -> list[PendingWrite]:
        """Writes of Events and conditions, at most so many: no decision depends on them."""
        writes = [reporting(write) for write in self.lifecycle.take(most, now_ms)]
        for number in self._events.take_lasting():
            if (workload := self.workloads.get(number)) is not None:
                self.actuator.ask_for_nodes(workload)
        return writes

    def _refuse(self, target: EventTarget, why: tuple[str, ...]) -> None:
        self.refused[target.ref.uid] = why
        self.lifecycle.refuse(target, why)

    def say(self, ref: Ref, text: EventText) -> None:
        """Record an Event about an object."""
        self._events.record(EventTarget(ref, has_condition=False), text)

    def _record_bypass(self, ref: Ref) -> None:
        self.past[ref.uid] = ref
        self.lifecycle.bypass(ref)

    def has_job(self, uid: str) -> bool:
        """Whether a job is managed, or would be if it could be decoded."""
        return uid in self._of_job or uid in self.refused

    def name_quota(self, names: QuotaNames, flavors: Iterable[Flavor] = ()) -> None:
        """Use these names for the quota numbers in decisions from now on, and these flavors."""
        self._events.names = names
        self.actuator.name_quota(names, flavors)

    # -- observed objects --------------------------------------------------------------------------------------

    def see_node(self, uid: str, node: Node | None) -> None:
        """Handle an update of a node; None: it was deleted."""
        self.node_registry.see(uid, node, self.facts)

    def see_job(self, uid: str, job: SeenJob | None) -> None:
        """Handle an update of a job; None: it was deleted."""
        if job is None:
            self._owners.forget(uid)
        elif job.owner is not None:
            self.assign_again(self._owners.own(uid, job.owner.uid))
            return
        workload = self._of_job.get(uid)
        if job is None or not self.ownership.is_bypassed(job):
            self.past.pop(uid, None)
        if job is None or job.over or job.terminating:
            self.refused.pop(uid, None)
            if workload is not None:
                self._finish(workload)
        elif workload is None:
            if self.ownership.has_job(job):
                self._take_job(job)
            elif why := self.ownership.why_unstarted(job):
                self._refuse(EventTarget(job.ref, has_condition=False), why)
            else:
                self.refused.pop(uid, None)
        else:
            self.update_job(workload, job)

    def update_job(self, workload: WorkloadPods, job: SeenJob) -> None:
        """Handle a change of a managed job."""
        waits = workload.stage is WorkloadStage.WAITING
        if workload.is_stopped(job) or (waits and (self.ownership.is_bypassed(job) or self._why_not(job))):
            self._finish(
                workload
            )  # its owner suspended it, so it queues again; or its owner started it, so it bypasses admission
            self._take_job(job)  # or it is not supported any more
            return
        workload.job = job
        self._update_work(workload, job)
        self.update_size(workload, job)
        self.release_reclaimable(workload)
        if workload.undoing and workload.undoing != job.version:
            self.actuator.end_undoing(workload)
        if workload.stage is WorkloadStage.EVICTED:
            if job.adapter.suspend and not job.suspended:
                self.actuator.stop_again(workload)
            self.settle_eviction(workload)
        self._end_if_scaled_to_zero(workload)

    def see_claim(self, resource: Resource, uid: str, thing: ClaimObject | None) -> None:
        """Handle an update of a ResourceSlice, DeviceClass or ResourceClaim; `settle_claims` applies it."""
        self._claims.see(resource, uid, thing)

    def settle_claims(self) -> None:
        """Update nodes and pods after the devices of nodes, or claims for them, changed."""
        self.node_registry.see_devices(self._claims.counts(), self.facts)
        for uid, pod in list(self._claiming.items()):
            with self.guard.over(pod.ref):
                self.see_pod(uid, pod)

    def see_pod(self, uid: str, pod: SeenPod | UnmanagedPod | None) -> None:
        """Handle an update of a pod; None: it was deleted."""
        seat, known = self.assigned.slots.get(uid), self.pods.get(uid)
        if isinstance(pod, UnmanagedPod):
            if known is None:
                self.node_registry.count_unmanaged(uid, pod)
                return
            pod = msgspec.structs.replace(known, node=pod.node, shape=pod.shape, life=PodPhase.RUNNING)
        if pod is not None and pod.claims:
            self._claiming[uid] = pod
            pod = self._claims.with_devices(pod, self._pod_specs)
        ours = pod if pod and (seat or pod.claims or not self.ownership.ignores(pod.traits)) else None
        if known is not None and known.group and (ours is None or ours.group != known.group):
            self._groups.leave(known)
        if ours is None:
            for kept in (self.pods, self.refused, self.past, self._claiming):
                kept.pop(uid, None)
            self.assigned.forget(uid)
        else:
            self.pods[uid] = ours
            edited = known is not None and (ours.is_edited_since(known) or self.ownership.is_pod_bypassed(ours))
            if edited and seat is not None and seat[0].may_be_edited:
                self._finish(seat[0], FactKind.WORKLOAD_CANCELLED)
                seat = self.assigned.slots.get(uid)
            if seat is None and (known is None or not ours.life.is_over):
                self._assign_pod(ours)
                seat = self.assigned.slots.get(uid)
        if seat is not None:
            self._update_pod(uid, pod, *seat)
        self._count(uid, pod)

    # -- jobs --------------------------------------------------------------------------------------------------

    def _take_job(self, job: SeenJob) -> None:
        uid, why = job.ref.uid, self._why_not(job)
        if self.ownership.is_bypassed(job):
            self._record_bypass(job.ref)
        elif why:
            self._refuse(EventTarget(job.ref, has_condition=False), why)
        elif job.work is not None:
            self.refused.pop(uid, None)
            workload = self._register(WorkloadKind.JOB, job.ref, job.work, job.created_ms)
            workload.job = job
            self._of_job[uid] = workload
            self.assign_again(self._owners.claim(uid))

    def _why_not(self, job: SeenJob) -> tuple[str, ...]:
        """Why a job is not supported, each with the field and what to do."""
        return job.refusals + excess(job.work) + (job.unbound if self.ownership.binds_job(job) else ())

    def _update_work(self, workload: WorkloadPods, job: SeenJob) -> None:
        """Take new requests of a pending job; an admitted one keeps those it was admitted with."""
        if job.work is None or job.work == workload.work or workload.stage is not WorkloadStage.WAITING:
            return
        self.resize(workload, job.work)
        self.facts.changed.append((workload.number, job.work))

    def resize(self, workload: WorkloadPods, work: Work) -> None:
        """Give a workload the slots that it requests now, and assign its pods to them."""
        filled = self.unassign(workload)
        workload.resize(work)
        self.assign_again(filled)

    def forget_places(self, workload: WorkloadPods, work: Work) -> None:
        """Give a workload the slots of this work, all without nodes, and report nothing of where its pods are."""
        for kind in _OF_PODS:
            self.facts.take_back(kind, workload.number)
        self.resize(workload, work)

    def update_size(self, workload: WorkloadPods, job: SeenJob) -> None:
        """Set a running job back that requests more pods than it holds quota for, or let its new pods wait."""
        if workload.stage is not WorkloadStage.PLACED or job.suspended:
            return
        have, want = len(workload.slots) - workload.reclaimable(), sum(job.wanted().values())
        if want <= have or workload.trimmed == job.generation:
            return
        workload.trimmed = job.generation
        if job.adapter.size:
            self.actuator.trim(workload, job, have)
        self.lifecycle.grown(job, have, want)

    # -- workloads ---------------------------------------------------------------------------------------------

    def _register(self, kind: WorkloadKind, ref: Ref, work: Work, created_ms: int) -> WorkloadPods:
        workload = WorkloadPods(self._next_number, kind, ref, work)
        self._next_number += 1
        self.workloads[workload.number] = workload
        self.facts.submitted(workload.number, workload.id, work, created_ms)
        self.lifecycle.queued(workload)
        return workload

    def _finish(self, workload: WorkloadPods, kind: FactKind = FactKind.WORKLOAD_FINISHED) -> None:
        """End a workload; its remaining pods count as unmanaged pods on their nodes."""
        del self.workloads[workload.number]
        self._events.forget(workload.number)
        if workload.kind is WorkloadKind.JOB:
            del self._of_job[workload.ref.uid]
        self.facts.about(kind, workload.number)
        broken = workload.kind is WorkloadKind.GROUP and not workload.is_done
        for uid in dict.fromkeys((*self.unassign(workload), *workload.ended)):
            pod = self.pods.get(uid)
            if pod is not None and broken and (not pod.node or pod.life is PodPhase.SUCCEEDED):
                self._assign_pod(pod)  # it waits until its group is complete again
            self._count(uid, pod)

    def unassign(self, workload: WorkloadPods) -> list[str]:
        """Empty the slots of a workload; the uids of its pods, with and without a slot."""
        return self.assigned.clear(workload)

    def assign_again(self, uids: list[str]) -> None:
        """Assign slots again to pods that had one."""
        for uid in filter(self.pods.__contains__, uids):
            self.see_pod(uid, self._claiming.get(uid, self.pods[uid]))

    # -- pods --------------------------------------------------------------------------------------------------

    def _assign_pod(self, pod: SeenPod) -> None:
        """Assign a pod to a slot of its workload; a pod without an owner becomes a workload.

        A pod that had ended before Tidegate started still shows which node its workload holds. A pod that its job's
        suspension is about to delete holds no quota, only room on its node.
        """
        if not pod.node and (pod.life.is_over or pod.terminating):
            return
        owner, is_ours = pod.owner, self.ownership.has_pod(pod)
        if owner is not None and owner.group_kind in OWNERS and not (pod.group and is_ours):
            root = self._owners.root(owner.uid)
            workload = self._of_job.get(root)
            if workload is None:
                self._owners.await_job(root, pod.uid)
                if root in self.refused and self.ownership.binds_pod(pod):
                    self.lifecycle.refuse(self.lifecycle.pod_target(pod), self.refused[root])
            elif not (
                pod.node and self.lifecycle.synced and workload.suspended and workload.stage is WorkloadStage.WAITING
            ):
                self._assign(workload, pod, workload.set_of(pod.traits.role, pod.shape.work.pod_sets[0]))
        elif is_ours:
            self._take_alone(pod)
        elif self.ownership.is_pod_bypassed(pod):
            self._record_bypass(pod.ref)
        elif why := self.ownership.why_ungated(pod):
            self._refuse(self.lifecycle.pod_target(pod), why)

    def _take_alone(self, pod: SeenPod) -> None:
        """Register a pod without an owner as a workload, or as a member of its group."""
        binds = self.ownership.binds_pod(pod)
        why = pod.shape.refusals + pod.shape.excess + (pod.shape.unbound if binds else ())
        if why:
            self._refuse(self.lifecycle.pod_target(pod), why)
        elif not pod.group and pod.life.is_over:
            return
        elif not pod.group:
            self._assign(self._register(WorkloadKind.POD, pod.ref, pod.shape.work, pod.created_ms), pod, "")
        else:
            self._take_member(pod)

    def _take_member(self, pod: SeenPod) -> None:
        """Handle a new member of a group; a complete group becomes a workload."""
        whole = self._groups.join(pod)
        if whole is None:
            self.lifecycle.incomplete(pod)
        elif whole.refusals:
            for member, _ in whole.members:
                self._refuse(self.lifecycle.pod_target(member), whole.refusals)
        elif not all(member.life.is_over for member, _ in whole.members):
            workload = self._register(WorkloadKind.GROUP, whole.ref, whole.work, whole.created_ms)
            for member, pod_set in whole.members:
                self._assign(workload, member, pod_set)
            for member, _ in whole.members:
                if member.uid != pod.uid and member.uid in self.assigned.slots:
                    self._update_pod(member.uid, member, *self.assigned.slots[member.uid])
                    self._count(member.uid, member)

    def _assign(self, workload: WorkloadPods, pod: SeenPod, pod_set: str) -> None:
        if self.assigned.assign(workload, pod.uid, pod_set):
            self._events.touch(workload.number)

    def _count(self, uid: str, pod: SeenPod | None) -> None:
        """Count a bound pod without a slot there as unmanaged; of one with a slot, what it takes beyond its request."""
        counted, seat = pod.unmanaged() if pod is not None else None, self.assigned.slots.get(uid)
        if counted is not None and seat is not None and pod is not None and self._is_at_place(pod, *seat):
            workload, ordinal = seat
            beyond = self._pod_specs.beyond(pod.shape, workload.request_at(ordinal))
            counted = None if beyond is None else UnmanagedPod(counted.node, beyond)
        self.node_registry.count_unmanaged(uid, counted)

    def _is_at_place(self, pod: SeenPod, workload: WorkloadPods, ordinal: int) -> bool:
        """Whether a pod is where its slot is; not so if its node was lost and is there again."""
        return workload.slots[ordinal].node == self.node_registry.number_of(pod.node)

    def _update_pod(self, uid: str, pod: SeenPod | None, workload: WorkloadPods, ordinal: int) -> None:
        slot = workload.slots[ordinal]
        if pod is None or (pod.terminating and not pod.node):
            self._pod_gone(uid, workload, ordinal)
            return
        if pod.claims and pod.shape.refusals and not pod.node and workload.kind is not WorkloadKind.JOB:
            self._finish(workload, FactKind.WORKLOAD_CANCELLED)  # another pod took its claim
            self._take_alone(pod)
            return
        if pod.node and not slot.bound:
            slot.bound, slot.node = True, self.node_registry.number_for(pod.node)
            self.facts.take_back(FactKind.POD_ABSENT, workload.number, ordinal)
            if workload.stage is WorkloadStage.WAITING:
                workload.stage = WorkloadStage.PLACED  # bound before Tidegate started, or by another scheduler
            self.facts.about(FactKind.POD_BOUND, workload.number, ordinal, slot.node)
        if pod.life is PodPhase.RUNNING and not slot.started:
            slot.started = True
            whole = len(workload.slots) == 1  # such facts are reported in one batch
            self.facts.about(FactKind.POD_STARTED, workload.number, ALL_PODS if whole else ordinal)
        if pod.life.is_over:
            self._end_pod(uid, pod, workload, ordinal)
        elif slot.node != NOBODY and workload.stage is WorkloadStage.PLACED:
            self._send(workload, ordinal, pod)

    def _send(self, workload: WorkloadPods, ordinal: int, pod: SeenPod) -> None:
        """Bind a pod to the node of its slot, or report it absent where that node takes no new pods."""
        if self.node_registry.is_open(workload.slots[ordinal].node):
            self.actuator.bind(workload, ordinal, pod)
        else:
            self._node_changes.report_absent(workload, ordinal)

    def _end_pod(self, uid: str, pod: SeenPod, workload: WorkloadPods, ordinal: int) -> None:
        """Handle a pod that succeeded or failed; a job's controller decides what follows."""
        slot = workload.slots[ordinal]
        slot.done = pod.life is PodPhase.SUCCEEDED
        workload.end(uid, done=slot.done)
        if workload.kind is WorkloadKind.POD:
            self._finish(workload)
        elif workload.kind is WorkloadKind.JOB or workload.stage is WorkloadStage.EVICTED:
            self._pod_gone(uid, workload, ordinal)
        elif workload.is_done:
            self._finish(workload)
        else:
            self.assigned.free(uid)
            if slot.done:
                self.reclaim(workload, ordinal)
            else:
                self.facts.about(FactKind.POD_FAILED, workload.number, ordinal)

    def _pod_gone(self, uid: str, workload: WorkloadPods, ordinal: int) -> None:
        """Handle a pod that was deleted, or is about to be."""
        was_bound = workload.slots[ordinal].bound
        self.assigned.free(uid)
        self.release_reclaimable(workload)
        if workload.stage is WorkloadStage.EVICTED:
            self._fill_slot(workload, ordinal)
            self.settle_eviction(workload)
        elif workload.kind is WorkloadKind.POD:
            waits = workload.stage is WorkloadStage.WAITING
            self._finish(workload, FactKind.WORKLOAD_CANCELLED if waits else FactKind.WORKLOAD_FINISHED)
        elif workload.kind is WorkloadKind.GROUP:
            if workload.stage is WorkloadStage.WAITING:
                self._finish(workload, FactKind.WORKLOAD_CANCELLED)
            else:
                self.facts.about(FactKind.POD_GONE, workload.number, ordinal)
        else:
            if was_bound and workload.stage is WorkloadStage.PLACED:
                self._node_changes.report_absent(workload, ordinal)
            self._fill_slot(workload, ordinal)
            self._end_if_scaled_to_zero(workload)

    def _fill_slot(self, workload: WorkloadPods, ordinal: int) -> None:
        """Assign a waiting pod to a slot that is free now, unless the slot's quota was reclaimed."""
        slot = workload.slots[ordinal]
        for uid in self.assigned.waiting(workload, ordinal):
            if slot.pod or slot.reclaimed:
                return
            self.assign_again([uid])

    def _end_if_scaled_to_zero(self, workload: WorkloadPods) -> None:
        """End work that cannot be suspended once it is scaled to zero: scaled up, it queues with its new size."""
        job = workload.job
        if workload.number not in self.workloads or workload.stage is WorkloadStage.EVICTED or job is None:
            return
        has_pods = any(slot.pod for slot in workload.slots) or self.assigned.has_waiting(workload)
        if workload.is_gated and not has_pods and not any(job.wanted().values()):
            self._finish(workload)

    def release_reclaimable(self, workload: WorkloadPods) -> None:
        """Release the quota of reclaimable pods, which their job does not create again, except the last one.

        A job that was scaled down releases quota once its annotation says so: otherwise the next leader would believe
        that it holds all of it, if it has grown again by then.
        """
        job = workload.job
        if workload.stage is not WorkloadStage.PLACED or job is None or job.suspended:
            return
        wanted, reclaimed_slots = job.wanted(), list[int]()
        for pod_set, have in workload.sizes():
            left = max(wanted.get(pod_set, have), 1 if len(workload.slots) == have else 0)
            reclaimed_slots += workload.to_reclaim(pod_set, have - left)
        if reclaimed_slots and self.actuator.note_size(workload, job, reclaimed_slots):
            return
        for ordinal in reclaimed_slots:
            self.reclaim(workload, ordinal)

    def reclaim(self, workload: WorkloadPods, ordinal: int) -> None:
        """Let a slot be filled by nobody any more, and give back what it held."""
        workload.slots[ordinal].reclaimed = True
        self.facts.done(workload.number, ordinal)

    def settle_eviction(self, workload: WorkloadPods) -> None:
        """Requeue an evicted workload once its pods hold nothing; end it if pods are gone for good."""
        if any(workload.holders()) or (
            workload.kind is WorkloadKind.JOB and not (workload.suspended or workload.is_gated)
        ):
            return
        if workload.kind is not WorkloadKind.JOB and not all(slot.pod for slot in workload.slots):
            self._finish(workload)
        elif workload.starts_again:
            self._come_back(workload)
        else:
            self._requeue(workload)
            self.facts.about(FactKind.POD_GONE, workload.number)

    def _come_back(self, workload: WorkloadPods) -> None:
        """Start a workload that was placed again while it was evicted, with the pods of its latest admission."""
        workload.stage, filled = WorkloadStage.PLACED, list[str]()
        if workload.granted != workload.next_granted:
            filled = self.unassign(workload)
            workload.grant_next()
        workload.take_next_places()
        self.assign_again(filled)
        self.start(workload)

    def _requeue(self, workload: WorkloadPods) -> None:
        workload.clear_decisions()
        if workload.granted or self.assigned.has_waiting(workload):
            self.resize(workload, workload.work)
        if workload.job is not None:
            self._update_work(workload, workload.job)
        self.actuator.undo(workload)
        self.lifecycle.requeued(workload)

    # -- decisions ---------------------------------------------------------------------------------------------

    def decide(self, decisions: DecisionBatch) -> None:
        """Turn decisions into pending writes."""
        self.lifecycle.decided(decisions)
        rows = zip(
            decisions.id.tolist(), decisions.kind.tolist(), decisions.workload.tolist(), decisions.pod.tolist(),
            decisions.node.tolist(), decisions.code.tolist(), decisions.evidence.tolist(), strict=True,
        )  # fmt: skip
        self._grant_parts(decisions)
        placed: dict[int, WorkloadPods] = {}
        for decision, kind, number, ordinal, node, code, evidence in rows:
            if (workload := self.workloads.get(number)) is None:
                continue
            if kind == DecisionKind.ADMIT:
                self.actuator.admit(workload, ordinal, evidence[0])
                workload.note_grant(ordinal, evidence[2], partly=code == Reason.ADMITTED_PARTLY)
            elif kind == DecisionKind.PLACE:
                if number not in placed:
                    self.facts.take_back(FactKind.POD_GONE, number)  # it was evicted and placed in one step
                self._place(workload, ordinal, node, decision)
                placed[number] = workload
            elif kind in _AWAY:
                placed.pop(number, None)
                with self.guard.over(workload.ref):
                    self._evict(workload, decision)
            elif kind in _SAID:
                self._events.hold(number, workload.work, code, tuple(evidence))
        for workload in placed.values():
            if workload.stage is WorkloadStage.EVICTED:
                workload.starts_again = True
            else:
                self._start_or_fail(workload)

    def _grant_parts(self, decisions: DecisionBatch) -> None:
        """Have fewer slots where fewer pods are admitted; where pods are to leave first, once they have left."""
        for number, pod_set, pods in partial_grants(decisions):
            workload = self.workloads.get(number)
            if workload is not None and not any(workload.holders()):
                filled = self.unassign(workload)
                workload.grant(pod_set, pods)
                self.assign_again(filled)

    def _place(self, workload: WorkloadPods, ordinal: int, node: int, decision: int) -> None:
        """Assign a slot its node, or note the node until the evicted pods are gone."""
        if workload.stage is WorkloadStage.EVICTED:
            workload.place_next(ordinal, node, decision)
        elif ordinal < len(workload.slots):
            self.actuator.delete_misdirected(workload, ordinal, node)
            workload.slots[ordinal].node, workload.slots[ordinal].decision = node, decision

    def _start_or_fail(self, workload: WorkloadPods) -> None:
        """Start a workload; on an error its decisions fail, and their reservations are released."""
        with self.guard.over(workload.ref):
            self.start(workload)
            return
        self.actuator.failed += [slot.decision for slot in workload.slots if slot.decision != NOBODY]
        workload.clear_decisions()

    def start(self, workload: WorkloadPods) -> None:
        """Start a workload on its nodes."""
        workload.stage = WorkloadStage.PLACED
        self._events.forget(workload.number)
        for ordinal in self.actuator.start(workload):
            self._node_changes.report_absent(workload, ordinal)

    def _evict(self, workload: WorkloadPods, decision: int) -> None:
        workload.leave()
        self.actuator.stop(workload, decision)
        self.settle_eviction(workload)
