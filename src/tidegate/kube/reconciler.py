"""Compares what was decided with what is seen of nodes, jobs and pods: what differs becomes facts and writes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.journal.lots import Names
from tidegate.kube.actuator.actuator import Actuator
from tidegate.kube.actuator.event_recorder import SCALE_UP_DELAY_MS, EventRecorder, EventTarget
from tidegate.kube.actuator.event_text import EventText
from tidegate.kube.actuator.pending_writes import PendingWrite, saying
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
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.decisions import NOBODY, DecisionBatch, DecisionKind
from tidegate.model.facts import ALL_PODS, EventKind, Outcome
from tidegate.model.hardware import Node
from tidegate.model.reasons import Reason
from tidegate.model.shares import Flavor
from tidegate.model.work import Work

_SAID = (DecisionKind.HOLD, DecisionKind.REJECT)
_OF_PODS = (
    EventKind.POD_BOUND, EventKind.POD_ABSENT, EventKind.POD_DONE, EventKind.POD_STARTED, EventKind.POD_GONE,
    EventKind.POD_FAILED,
)  # fmt: skip
_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT, DecisionKind.RELEASE)


class Reconciler:
    """Follows the cluster."""

    def __init__(
        self,
        ownership: Ownership,
        patience_ms: int = SCALE_UP_DELAY_MS,
        nodes_by: NodeRequestOptions = NO_NODE_REQUESTS,
    ) -> None:
        self.ownership = ownership
        self.node_registry = NodeRegistry()
        self.refused: dict[str, tuple[str, ...]] = {}  # by uid: work that names us and that we cannot do, and why
        self.guard = ObjectGuard(lambda failure: self.story.unreadable(failure.ref, failure.error))
        self.past: dict[str, Ref] = {}  # by uid: work that was not held at the door, and runs without us
        self.facts = FactBuilder()
        self._next_number = 0
        self.pods: dict[str, SeenPod] = {}
        self.workloads: dict[int, WorkloadPods] = {}
        self._of_job: dict[str, WorkloadPods] = {}  # by uid of the job
        self.assigned = SlotAssignments()
        self._owners, self._groups, self._claims = OwnerIndex(), PodGroups(), DeviceClaims()
        self._claiming: dict[str, SeenPod] = {}  # by uid: pods with claims, as they were seen
        self._pod_specs = PodSpecCache()  # of pods with claims, and of what pods take beyond their workload
        self._events = EventRecorder(patience_ms)
        view = ClusterView(
            ownership=ownership, nodes=self.node_registry, pods=self.pods, workloads=self.workloads,
            seats=self.assigned.slots, groups=self._groups, refused=self.refused, bypassed=self.past,
        )  # fmt: skip
        self.story = WorkloadEvents(view, self._events)
        self.actuator = Actuator(ownership, self.node_registry, self.pods, self._claims)
        self.actuator.nodes_by = nodes_by
        self._outcomes, self._node_changes = WriteOutcomes(self), NodeChanges(self, self.assigned.slots)

    def take_facts(self) -> FactBuilder:
        """What there is to tell since the last time."""
        self._node_changes.find_returned()
        self._node_changes.leave_closed()
        self.node_registry.tell_rooms(self.facts)
        for decision in self.actuator.take_failed():
            self.facts.outcome(decision, Outcome.FAILED)
        facts, self.facts = self.facts, FactBuilder()
        return facts

    def take_writes(self) -> list[PendingWrite]:
        """What is to be written since the last time."""
        return self.actuator.take_writes()

    def take_events(self, most: int, now_ms: int) -> list[PendingWrite]:
        """What is to be said of work that waits: so much at a time, as nothing depends on it."""
        writes = [saying(write) for write in self.story.take(most, now_ms)]
        for number in self._events.take_lasting():
            if (workload := self.workloads.get(number)) is not None:
                self.actuator.ask_for_nodes(workload)
        return writes

    def _refuse(self, target: EventTarget, why: tuple[str, ...]) -> None:
        self.refused[target.ref.uid] = why
        self.story.refuse(target, why)

    def say(self, ref: Ref, text: EventText) -> None:
        """Say something with an object, as an Event."""
        self._events.tell(EventTarget(ref, has_condition=False), text)

    def _let_pass(self, ref: Ref) -> None:
        self.past[ref.uid] = ref
        self.story.bypass(ref)

    def has_job(self, uid: str) -> bool:
        """Whether a job is ours, or would be if it could be read."""
        return uid in self._of_job or uid in self.refused

    def name_quota(self, names: Names, flavors: Iterable[Flavor] = ()) -> None:
        """What decisions mean by their numbers of quota, from now on, and the flavors there are."""
        self._events.names = names
        self.actuator.name_quota(names, flavors)

    # -- what is seen ------------------------------------------------------------------------------------------

    def see_node(self, uid: str, node: Node | None) -> None:
        """A node is as it is now, or gone."""
        self.node_registry.see(uid, node, self.facts)

    def see_job(self, uid: str, job: SeenJob | None) -> None:
        """A job is as it is now, or gone."""
        if job is None:
            self._owners.forget(uid)
        elif job.owner is not None:
            self.seat_again(self._owners.own(uid, job.owner.uid))
            return
        workload = self._of_job.get(uid)
        if job is None or not self.ownership.is_past(job):
            self.past.pop(uid, None)
        if job is None or job.over or job.leaving:
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
            self.follow_job(workload, job)

    def follow_job(self, workload: WorkloadPods, job: SeenJob) -> None:
        """A job of ours has changed."""
        waits = workload.stage is WorkloadStage.WAITING
        if workload.is_stopped(job) or (waits and (self.ownership.is_past(job) or self._why_not(job))):
            self._finish(workload)  # somebody else suspended it, and it begins anew; or let it go, and it is past us
            self._take_job(job)  # or it asks for what cannot be done now
            return
        workload.job = job
        self._follow_change(workload, job)
        self.follow_size(workload, job)
        self.give_back(workload)
        if workload.undoing and workload.undoing != job.version:
            self.actuator.end_undoing(workload)
        if workload.stage is WorkloadStage.LEAVING:
            if job.handling.suspend and not job.suspended:
                self.actuator.stop_again(workload)
            self.settle_leaving(workload)
        self._end_at_none(workload)

    def see_claim(self, resource: Resource, uid: str, thing: ClaimObject | None) -> None:
        """A slice, class or claim of devices is as it is now, or gone; what follows is settled later."""
        self._claims.see(resource, uid, thing)

    def settle_claims(self) -> None:
        """Look again at nodes and pods, as devices by claim or what is asked of them changed."""
        self.node_registry.see_devices(self._claims.counts(), self.facts)
        for uid, pod in list(self._claiming.items()):
            with self.guard.over(pod.ref):
                self.see_pod(uid, pod)

    def see_pod(self, uid: str, pod: SeenPod | UnmanagedPod | None) -> None:
        """A pod is as it is now, or gone."""
        seat, known = self.assigned.slots.get(uid), self.pods.get(uid)
        if isinstance(pod, UnmanagedPod):
            if known is None:
                self.node_registry.count_in(uid, pod)
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
            edited = known is not None and (ours.is_edited_since(known) or self.ownership.is_pod_past(ours))
            if edited and seat is not None and seat[0].may_be_edited:
                self._finish(seat[0], EventKind.WORKLOAD_CANCELLED)
                seat = self.assigned.slots.get(uid)
            if seat is None and (known is None or not ours.life.is_over):
                self._find_seat(ours)
                seat = self.assigned.slots.get(uid)
        if seat is not None:
            self._follow_pod(uid, pod, *seat)
        self._count(uid, pod)

    def hear(self, pending: PendingWrite, outcome: Outcome) -> None:
        """An order was carried out, or not."""
        self._outcomes.settle(pending, outcome)

    # -- jobs --------------------------------------------------------------------------------------------------

    def _take_job(self, job: SeenJob) -> None:
        uid, why = job.ref.uid, self._why_not(job)
        if self.ownership.is_past(job):
            self._let_pass(job.ref)
        elif why:
            self._refuse(EventTarget(job.ref, has_condition=False), why)
        elif job.work is not None:
            self.refused.pop(uid, None)
            workload = self._enrol(WorkloadKind.JOB, job.ref, job.work, job.created_ms)
            workload.job = job
            self._of_job[uid] = workload
            self.seat_again(self._owners.claim(uid))

    def _why_not(self, job: SeenJob) -> tuple[str, ...]:
        """Why a job cannot be done, each with the field and what to do."""
        return job.refusals + excess(job.work) + (job.unbound if self.ownership.binds_job(job) else ())

    def _follow_change(self, workload: WorkloadPods, job: SeenJob) -> None:
        """A job that waits may change what it asks for; one that has its place keeps it as it is."""
        if job.work is None or job.work == workload.work or workload.stage is not WorkloadStage.WAITING:
            return
        self.resize(workload, job.work)
        self.facts.changed(workload.number, job.work)

    def resize(self, workload: WorkloadPods, work: Work) -> None:
        """Give a workload the slots that it asks for now, and its pods slots among them."""
        filled = self.unseat(workload)
        workload.resize(work)
        self.seat_again(filled)

    def forget_places(self, workload: WorkloadPods, work: Work) -> None:
        """Give a workload the slots of this work, all without nodes, and report nothing of where its pods are."""
        for kind in _OF_PODS:
            self.facts.take_back(kind, workload.number)
        self.resize(workload, work)

    def follow_size(self, workload: WorkloadPods, job: SeenJob) -> None:
        """A running job that asks for more pods than it holds quota for is set back, or its new pods wait."""
        if workload.stage is not WorkloadStage.PLACED or job.suspended:
            return
        have, want = len(workload.slots) - workload.spares(), sum(job.wanted().values())
        if want <= have or workload.trimmed == job.generation:
            return
        workload.trimmed = job.generation
        if job.handling.size:
            self.actuator.trim(workload, job, have)
        self.story.grown(job, have, want)

    # -- workloads ---------------------------------------------------------------------------------------------

    def _enrol(self, kind: WorkloadKind, ref: Ref, work: Work, created_ms: int) -> WorkloadPods:
        workload = WorkloadPods(self._next_number, kind, ref, work)
        self._next_number += 1
        self.workloads[workload.number] = workload
        self.facts.submitted(workload.number, workload.id, work, created_ms)
        self.story.queued(workload)
        return workload

    def _finish(self, workload: WorkloadPods, kind: EventKind = EventKind.WORKLOAD_FINISHED) -> None:
        """A workload is over; pods of it that are still there take up room like anybody's."""
        del self.workloads[workload.number]
        self._events.forget(workload.number)
        if workload.kind is WorkloadKind.JOB:
            del self._of_job[workload.ref.uid]
        self.facts.about(kind, workload.number)
        broken = workload.kind is WorkloadKind.GROUP and not workload.is_done
        for uid in dict.fromkeys((*self.unseat(workload), *workload.ended)):
            pod = self.pods.get(uid)
            if pod is not None and broken and (not pod.node or pod.life is PodPhase.SUCCEEDED):
                self._find_seat(pod)  # it waits for its group to be whole again
            self._count(uid, pod)

    def unseat(self, workload: WorkloadPods) -> list[str]:
        """Take the pods of a workload out of their slots; their uids, and those of its pods that have none."""
        return self.assigned.clear(workload)

    def seat_again(self, uids: list[str]) -> None:
        """Look for slots of pods that had one."""
        for uid in filter(self.pods.__contains__, uids):
            self.see_pod(uid, self._claiming.get(uid, self.pods[uid]))

    # -- pods --------------------------------------------------------------------------------------------------

    def _find_seat(self, pod: SeenPod) -> None:
        """Let a pod fill a slot of its workload, which is made for it if it is one of its own.

        One that was over before we came still shows which place its workload holds. One that its owner's suspension is
        about to take away holds no quota any more, only room on its node.
        """
        if not pod.node and (pod.life.is_over or pod.leaving):
            return
        owner, is_ours = pod.owner, self.ownership.has_pod(pod)
        if owner is not None and owner.group_kind in OWNERS and not (pod.group and is_ours):
            eldest = self._owners.eldest(owner.uid)
            workload = self._of_job.get(eldest)
            if workload is None:
                self._owners.await_job(eldest, pod.uid)
                if eldest in self.refused and self.ownership.binds_pod(pod):
                    self.story.refuse(self.story.pod_target(pod), self.refused[eldest])
            elif not (
                pod.node and self.story.looked and workload.suspended and workload.stage is WorkloadStage.WAITING
            ):
                self._seat(workload, pod, workload.set_of(pod.traits.role, pod.shape.work.pod_sets[0]))
        elif is_ours:
            self._take_alone(pod)
        elif self.ownership.is_pod_past(pod):
            self._let_pass(pod.ref)
        elif why := self.ownership.why_ungated(pod):
            self._refuse(self.story.pod_target(pod), why)

    def _take_alone(self, pod: SeenPod) -> None:
        """A pod that is work of its own, or one of a group: that is work once it is whole."""
        binds = self.ownership.binds_pod(pod)
        why = pod.shape.refusals + pod.shape.excess + (pod.shape.unbound if binds else ())
        if why:
            self._refuse(self.story.pod_target(pod), why)
        elif not pod.group and pod.life.is_over:
            return
        elif not pod.group:
            self._seat(self._enrol(WorkloadKind.POD, pod.ref, pod.shape.work, pod.created_ms), pod, "")
        else:
            self._take_member(pod)

    def _take_member(self, pod: SeenPod) -> None:
        """A pod of a group has come; the group is work once it is whole."""
        whole = self._groups.join(pod)
        if whole is None:
            self.story.incomplete(pod)
        elif whole.refusals:
            for member, _ in whole.members:
                self._refuse(self.story.pod_target(member), whole.refusals)
        elif not all(member.life.is_over for member, _ in whole.members):
            workload = self._enrol(WorkloadKind.GROUP, whole.ref, whole.work, whole.created_ms)
            for member, pod_set in whole.members:
                self._seat(workload, member, pod_set)
            for member, _ in whole.members:
                if member.uid != pod.uid and member.uid in self.assigned.slots:
                    self._follow_pod(member.uid, member, *self.assigned.slots[member.uid])
                    self._count(member.uid, member)

    def _seat(self, workload: WorkloadPods, pod: SeenPod, pod_set: str) -> None:
        if self.assigned.assign(workload, pod.uid, pod_set):
            self._events.touch(workload.number)

    def _count(self, uid: str, pod: SeenPod | None) -> None:
        """Count a pod with a node as somebody else's if it has no slot there; else only what it takes beyond that."""
        counted, seat = pod.unmanaged() if pod is not None else None, self.assigned.slots.get(uid)
        if counted is not None and seat is not None and pod is not None and self._is_at_place(pod, *seat):
            workload, ordinal = seat
            beyond = self._pod_specs.beyond(pod.shape, workload.request_at(ordinal))
            counted = None if beyond is None else UnmanagedPod(counted.node, beyond)
        self.node_registry.count_in(uid, counted)

    def _is_at_place(self, pod: SeenPod, workload: WorkloadPods, ordinal: int) -> bool:
        """Whether a pod is where its slot is; not so if its node was lost and is there again."""
        return workload.slots[ordinal].node == self.node_registry.number_of(pod.node)

    def _follow_pod(self, uid: str, pod: SeenPod | None, workload: WorkloadPods, ordinal: int) -> None:
        slot = workload.slots[ordinal]
        if pod is None or (pod.leaving and not pod.node):
            self._lose(uid, workload, ordinal)
            return
        if pod.claims and pod.shape.refusals and not pod.node and workload.kind is not WorkloadKind.JOB:
            self._finish(workload, EventKind.WORKLOAD_CANCELLED)  # its claim went to somebody else
            self._take_alone(pod)
            return
        if pod.node and not slot.bound:
            slot.bound, slot.node = True, self.node_registry.number_for(pod.node)
            self.facts.take_back(EventKind.POD_ABSENT, workload.number, ordinal)
            if workload.stage is WorkloadStage.WAITING:
                workload.stage = WorkloadStage.PLACED  # bound before we came, or by somebody else
            self.facts.about(EventKind.POD_BOUND, workload.number, ordinal, slot.node)
        if pod.life is PodPhase.RUNNING and not slot.started:
            slot.started = True
            whole = len(workload.slots) == 1  # which is told of at once for all such
            self.facts.about(EventKind.POD_STARTED, workload.number, ALL_PODS if whole else ordinal)
        if pod.life.is_over:
            self._end_pod(uid, pod, workload, ordinal)
        elif slot.node != NOBODY and workload.stage is WorkloadStage.PLACED:
            self._send(workload, ordinal, pod)

    def _send(self, workload: WorkloadPods, ordinal: int, pod: SeenPod) -> None:
        """Send a pod to the node of its slot, or have another node decided where that takes no new pods."""
        if self.node_registry.is_open(workload.slots[ordinal].node):
            self.actuator.bind(workload, ordinal, pod)
        else:
            self._node_changes.report_absent(workload, ordinal)

    def _end_pod(self, uid: str, pod: SeenPod, workload: WorkloadPods, ordinal: int) -> None:
        """A pod has done its work, or failed at it; a job's controller knows what follows."""
        slot = workload.slots[ordinal]
        slot.done = pod.life is PodPhase.SUCCEEDED
        workload.end(uid, done=slot.done)
        if workload.kind is WorkloadKind.POD:
            self._finish(workload)
        elif workload.kind is WorkloadKind.JOB or workload.stage is WorkloadStage.LEAVING:
            self._lose(uid, workload, ordinal)
        elif workload.is_done:
            self._finish(workload)
        else:
            self.assigned.free(uid)
            if slot.done:
                self.spare(workload, ordinal)
            else:
                self.facts.about(EventKind.POD_FAILED, workload.number, ordinal)

    def _lose(self, uid: str, workload: WorkloadPods, ordinal: int) -> None:
        """A pod of a workload is gone, or as good as gone."""
        was_bound = workload.slots[ordinal].bound
        self.assigned.free(uid)
        self.give_back(workload)
        if workload.stage is WorkloadStage.LEAVING:
            self._refill(workload, ordinal)
            self.settle_leaving(workload)
        elif workload.kind is WorkloadKind.POD:
            waits = workload.stage is WorkloadStage.WAITING
            self._finish(workload, EventKind.WORKLOAD_CANCELLED if waits else EventKind.WORKLOAD_FINISHED)
        elif workload.kind is WorkloadKind.GROUP:
            if workload.stage is WorkloadStage.WAITING:
                self._finish(workload, EventKind.WORKLOAD_CANCELLED)
            else:
                self.facts.about(EventKind.POD_GONE, workload.number, ordinal)
        else:
            if was_bound and workload.stage is WorkloadStage.PLACED:
                self._node_changes.report_absent(workload, ordinal)
            self._refill(workload, ordinal)
            self._end_at_none(workload)

    def _refill(self, workload: WorkloadPods, ordinal: int) -> None:
        """Let a pod that found no slot take one that is empty now, unless nobody is to fill it any more."""
        slot = workload.slots[ordinal]
        for uid in self.assigned.waiting(workload, ordinal):
            if slot.pod or slot.spare:
                return
            self.seat_again([uid])

    def _end_at_none(self, workload: WorkloadPods) -> None:
        """End work that cannot be suspended once it is scaled to none: scaled up, it is queued with its new size."""
        job = workload.job
        if workload.number not in self.workloads or workload.stage is WorkloadStage.LEAVING or job is None:
            return
        has_pods = any(slot.pod for slot in workload.slots) or self.assigned.has_waiting(workload)
        if workload.is_gated and not has_pods and not any(job.wanted().values()):
            self._finish(workload)

    def give_back(self, workload: WorkloadPods) -> None:
        """Let pods that a job does not make again give back what they held, but for the last: it may grow again.

        What a job that was made smaller held it gives back once its annotation says so: else the next leader would
        believe that it holds all, should it have grown again.
        """
        job = workload.job
        if workload.stage is not WorkloadStage.PLACED or job is None or job.suspended:
            return
        wanted, spared = job.wanted(), list[int]()
        for pod_set, have in workload.sizes():
            left = max(wanted.get(pod_set, have), 1 if len(workload.slots) == have else 0)
            spared += workload.to_spare(pod_set, have - left)
        if spared and self.actuator.note_size(workload, job, spared):
            return
        for ordinal in spared:
            self.spare(workload, ordinal)

    def spare(self, workload: WorkloadPods, ordinal: int) -> None:
        """Let a slot be filled by nobody any more, and give back what it held."""
        workload.slots[ordinal].spare = True
        self.facts.done(workload.number, ordinal)

    def settle_leaving(self, workload: WorkloadPods) -> None:
        """Once nobody of a workload that was told to go holds anything it waits again, unless pods of it are gone.

        A job makes its pods again; nobody makes others again.
        """
        if any(workload.holders()) or (
            workload.kind is WorkloadKind.JOB and not (workload.suspended or workload.is_gated)
        ):
            return
        if workload.kind is not WorkloadKind.JOB and not all(slot.pod for slot in workload.slots):
            self._finish(workload)
        elif workload.comes_back:
            self._come_back(workload)
        else:
            self._wait_again(workload)
            self.facts.about(EventKind.POD_GONE, workload.number)

    def _come_back(self, workload: WorkloadPods) -> None:
        """Start a workload that was placed anew while it left, with as many pods as it was admitted with then."""
        workload.stage, filled = WorkloadStage.PLACED, list[str]()
        if workload.granted != workload.next_granted:
            filled = self.unseat(workload)
            workload.grant_next()
        workload.take_next_places()
        self.seat_again(filled)
        self.start(workload)

    def _wait_again(self, workload: WorkloadPods) -> None:
        workload.give_up_places()
        if workload.granted or self.assigned.has_waiting(workload):
            self.resize(workload, workload.work)
        if workload.job is not None:
            self._follow_change(workload, workload.job)
        self.actuator.undo(workload)
        self.story.requeued(workload)

    # -- what is decided ---------------------------------------------------------------------------------------

    def decide(self, decisions: DecisionBatch) -> None:
        """Turn decisions into orders."""
        self.story.decided(decisions)
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
                    self.facts.take_back(EventKind.POD_GONE, number)  # it was sent away and placed in one step
                self._place(workload, ordinal, node, decision)
                placed[number] = workload
            elif kind in _AWAY:
                placed.pop(number, None)
                with self.guard.over(workload.ref):
                    self._send_away(workload, decision)
            elif kind in _SAID:
                self._events.hold(number, workload.work, code, tuple(evidence))
        for workload in placed.values():
            if workload.stage is WorkloadStage.LEAVING:
                workload.comes_back = True
            else:
                self._start_or_fail(workload)

    def _grant_parts(self, decisions: DecisionBatch) -> None:
        """Have fewer slots where fewer pods are admitted; where pods are to leave first, once they have left."""
        for number, pod_set, pods in partial_grants(decisions):
            workload = self.workloads.get(number)
            if workload is not None and not any(workload.holders()):
                filled = self.unseat(workload)
                workload.grant(pod_set, pods)
                self.seat_again(filled)

    def _place(self, workload: WorkloadPods, ordinal: int, node: int, decision: int) -> None:
        """Let a slot have its place, or have it once the pods of before have left."""
        if workload.stage is WorkloadStage.LEAVING:
            workload.place_next(ordinal, node, decision)
        elif ordinal < len(workload.slots):
            self.actuator.make_way(workload, ordinal, node)
            workload.slots[ordinal].node, workload.slots[ordinal].decision = node, decision

    def _start_or_fail(self, workload: WorkloadPods) -> None:
        """Start a workload; where that cannot be done its decisions failed, and what they hold is given back."""
        with self.guard.over(workload.ref):
            self.start(workload)
            return
        self.actuator.failed += [slot.decision for slot in workload.slots if slot.decision != NOBODY]
        workload.give_up_places()

    def start(self, workload: WorkloadPods) -> None:
        """Let a workload go to its places."""
        workload.stage = WorkloadStage.PLACED
        self._events.forget(workload.number)
        for ordinal in self.actuator.start(workload):
            self._node_changes.report_absent(workload, ordinal)

    def _send_away(self, workload: WorkloadPods, decision: int) -> None:
        workload.leave()
        self.actuator.stop(workload, decision)
        self.settle_leaving(workload)
