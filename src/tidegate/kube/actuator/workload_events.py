"""Lifecycle Events of workloads: queued, admitted, scheduled, preempted, evicted, requeued.

This module chooses the objects; `event_text` makes the texts, and `event_recorder` limits the rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tidegate.journal.decision_text import listed
from tidegate.journal.quota_names import FlavorResourceName, share_text
from tidegate.kube.actuator.event_recorder import EventRecorder, EventTarget
from tidegate.kube.actuator.event_text import (
    PAST,
    EventText,
    Stopped,
    grants_text,
    grown,
    incomplete_text,
    moved_text,
    partial_text,
    queued_text,
    requeued_text,
    scheduled_text,
    start_failed_text,
    started_text,
    stopped_text,
    unreadable,
    unsupported,
)
from tidegate.kube.actuator.workload_decisions import WorkloadDecision, decisions_by_workload
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.mirror.node_registry import NodeRegistry
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.pod_groups import GROUP_KIND, PodGroups, group_ref
from tidegate.kube.mirror.pods import GateOwner, SeenPod
from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods, WorkloadStage
from tidegate.kube.transport.writes import Ref, Write
from tidegate.model.decisions import NOBODY, DecisionBatch, DecisionKind
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment

#: How long the pods of a group may take to be created before the group is reported as incomplete.
_GROUP_MS = 5_000


@dataclass(frozen=True)
class ClusterView:
    """The observed cluster; the reconciler keeps it up to date."""

    ownership: Ownership
    nodes: NodeRegistry
    pods: Mapping[str, SeenPod]
    workloads: Mapping[int, WorkloadPods]
    assigned: Mapping[str, object]  # by uid: pods with a slot
    groups: PodGroups
    refused: Mapping[str, tuple[str, ...]]  # by uid
    bypassed: Mapping[str, Ref]  # by uid


class ObjectCounts(NamedTuple):
    """Counts of objects with faults, and of unmanaged pods."""

    refused: int  # they request what is not supported
    bypassed: int  # they bypassed admission
    gates_left: int  # pods with our scheduling gate that belong to no workload
    unmanaged: int  # bound pods that Tidegate does not manage


class DecisionLine(NamedTuple):
    """One decision about a workload, with names instead of numbers."""

    object: str
    decision: str
    reason: str
    queue: str
    cluster_queue: str
    quota: str  # that it gets or releases
    nodes: dict[str, int]  # pods by node
    preempted_for: str
    victims: tuple[str, ...]  # workloads that were preempted for it


class WorkloadEvents:
    """Records the lifecycle Events of workloads."""

    def __init__(self, view: ClusterView, recorder: EventRecorder) -> None:
        self._view, self._recorder = view, recorder
        self._victims: dict[int, list[str]] = {}  # by number: the workloads preempted for it, until it starts
        self._new: list[int] = []  # numbers of new workloads
        self._evicted: list[int] = []  # numbers of workloads that the previous leader evicted
        self.synced = False  # the first sync is over: work that arrives from now on is new

    @property
    def _silent(self) -> bool:
        return self._view.ownership.watches

    def take(self, most: int, now_ms: int) -> list[Write]:
        """The next writes of Events and conditions, at most so many."""
        for number in self._new:
            if number in self._view.workloads:
                workload = self._view.workloads[number]
                self._record(workload, queued_text(workload.work, self._recorder.names), minor=True)
        for number in self._evicted:
            waiting = self._view.workloads.get(number)
            if waiting is not None and waiting.stage is WorkloadStage.WAITING:
                self._record(waiting, requeued_text(waiting.work, self._recorder.names), minor=True)
        self._new, self._evicted = [], []
        return list(self._recorder.take(most, now_ms, self))

    def describe(self, decisions: DecisionBatch) -> list[DecisionLine]:
        """The decisions about workloads, with names instead of numbers; holds are left out."""
        names, lines = self._recorder.names, list[DecisionLine]()
        for decision in decisions_by_workload(decisions):
            workload = self._view.workloads.get(decision.number)
            if workload is None:
                continue
            cause = self._view.workloads.get(decision.cause) if decision.kind is DecisionKind.PREEMPT else None
            if cause is not None:
                self._victims.setdefault(cause.number, []).append(workload.id)
            lines.append(
                DecisionLine(
                    object=workload.id,
                    decision=decision.word,
                    reason=decision.reason.name,
                    queue=workload.work.queue,
                    cluster_queue=names.queues.get(workload.work.queue, ""),
                    quota=grants_text(decision, names) or workload.quota_text,
                    nodes=self._named(decision.nodes or nodes_of(workload)),
                    preempted_for=cause.id if cause is not None else "",
                    victims=tuple(self._victims.pop(decision.number, ())) if decision.starts else (),
                )
            )
        return lines

    def counts(self) -> ObjectCounts:
        """Count objects with faults, and unmanaged pods."""
        view = self._view
        gated = (uid for uid, pod in view.pods.items() if pod.gate is GateOwner.OURS and not pod.life.is_over)
        left = sum(uid not in view.assigned and not view.groups.has(uid) for uid in gated)
        return ObjectCounts(len(view.refused), len(view.bypassed), left, view.nodes.unmanaged)

    def workloads(self) -> Iterable[WorkloadPods]:
        """All workloads."""
        return self._view.workloads.values()

    # -- objects -----------------------------------------------------------------------------------------------

    def targets(self, number: int) -> Iterator[EventTarget]:
        """The objects of a pending workload: its job, and its pods without a node."""
        workload = self._view.workloads.get(number)
        if workload is None or self._silent:
            return
        if workload.kind is WorkloadKind.JOB:
            yield EventTarget(workload.ref, has_condition=False)
        for slot in workload.slots:
            pod = self._view.pods.get(slot.pod) if slot.pod else None
            if pod is not None and not pod.node:
                yield self.pod_target(pod)

    def lasts(self, uid: str) -> bool:
        """Whether the fault of an object lasts."""
        view = self._view
        pod = view.pods.get(uid)
        of_refused_job = pod is not None and pod.owner is not None and not pod.node
        return uid in view.refused or uid in view.bypassed or view.groups.has(uid) or of_refused_job

    def pod_target(self, pod: SeenPod) -> EventTarget:
        """A pod, with its condition if Tidegate binds or gates it."""
        binds = self._view.ownership.binds_pod(pod)
        gated = not binds and pod.gate is GateOwner.OURS
        return EventTarget(pod.ref, binds or gated, gated)

    def _owners(self, workload: WorkloadPods) -> Iterator[EventTarget]:
        """The objects of a workload: its job, or its pods."""
        if workload.kind is WorkloadKind.JOB:
            yield EventTarget(workload.ref, has_condition=False)
            return
        for slot in workload.slots:
            if slot.pod in self._view.pods:
                yield EventTarget(self._view.pods[slot.pod].ref, has_condition=False)

    def _record(self, workload: WorkloadPods, text: EventText, *, minor: bool = False) -> None:
        for target in self._owners(workload):
            self._recorder.record(target, text, minor=minor)

    # -- lifecycle ---------------------------------------------------------------------------------------------

    def queued(self, workload: WorkloadPods) -> None:
        """Record new work; its pods are observed a moment later."""
        if self.synced and not self._silent:
            self._new.append(workload.number)

    def decided(self, decisions: DecisionBatch) -> None:
        """Record decisions that are about to be written."""
        if self._silent:
            return
        for decision in decisions_by_workload(decisions):
            workload = self._view.workloads.get(decision.number)
            if workload is None:
                continue
            if decision.starts:
                self._started(workload, decision)
            elif decision.failed:
                self.start_failed(workload)
            elif decision.stops:
                self._stopped(workload, decision)

    def _started(self, workload: WorkloadPods, decision: WorkloadDecision) -> None:
        names, nodes = self._recorder.names, self._named(decision.nodes)
        if workload.stage is WorkloadStage.PLACED and not decision.grants:
            self._record(workload, moved_text(nodes))
            return
        workload.admitted_ms, workload.quota_text = self._recorder.now_ms, grants_text(decision, names)
        decision.again = decision.again and not workload.start_failed
        self._record(workload, started_text(workload.work, decision, names, nodes))
        if decision.partly and any(pods.min_count for pods in workload.work.pod_sets):  # else the others are done
            self._record(workload, partial_text(workload.work, decision))

    def _stopped(self, workload: WorkloadPods, decision: WorkloadDecision) -> None:
        ran_ms = self._recorder.now_ms - workload.admitted_ms if workload.admitted_ms else -1
        preempted, workload.start_failed = decision.kind is DecisionKind.PREEMPT, False
        cause = self._view.workloads.get(decision.cause) if preempted else None
        stopped = Stopped(
            workload.work,
            workload.quota_text,
            self._named(nodes_of(workload)),
            ran_ms,
            _whose(cause) if cause is not None else "",
        )
        self._record(workload, stopped_text(stopped, decision.reason, self._recorder.names, preempted=preempted))

    def _named(self, nodes: Mapping[int, int]) -> dict[str, int]:
        return {self._view.nodes.name_of(node): pods for node, pods in nodes.items()}

    def requeued(self, workload: WorkloadPods) -> None:
        """Record evicted work that is pending again."""
        if not (self._silent or workload.start_failed):
            self._record(workload, requeued_text(workload.work, self._recorder.names))

    def waits_again(self, workload: WorkloadPods) -> None:
        """Record that work which the previous leader evicted is pending: that leader may have ended before."""
        if not self._silent:
            self._evicted.append(workload.number)

    def bound(self, pod: Ref, node: int) -> None:
        """Record a pod that Tidegate bound."""
        text = scheduled_text(pod, self._view.nodes.name_of(node))
        self._recorder.record(EventTarget(pod, has_condition=False), text, minor=True)

    def start_failed(self, workload: WorkloadPods) -> None:
        """Record a start that could not be written, or not for all pods."""
        workload.start_failed, workload.admitted_ms, workload.quota_text = True, 0, ""
        if not self._silent:
            self._record(workload, start_failed_text(workload.work, self._recorder.names))

    def grown(self, job: SeenJob, have: int, want: int) -> None:
        """Record a running job that requests more pods than it was admitted with."""
        if not self._silent:
            text = grown(have, want, trimmed=bool(job.adapter.size), suspends=bool(job.adapter.suspend))
            self._recorder.record(EventTarget(job.ref, has_condition=False), text)

    def resumed(self, workload: WorkloadPods, standing: ObservedStatus) -> None:
        """Restore when work was admitted, and with which quota."""
        workload.admitted_ms, workload.quota_text = standing.granted_ms, _quota_text(standing.grants)

    # -- faults ------------------------------------------------------------------------------------------------

    def refuse(self, target: EventTarget, why: tuple[str, ...]) -> None:
        """Record an object that requests what is not supported."""
        if not self._silent:
            self._recorder.warn(target, unsupported(why))

    def bypass(self, ref: Ref) -> None:
        """Record work that bypassed admission."""
        if not self._silent:
            self._recorder.warn(EventTarget(ref, has_condition=False), PAST)

    def unreadable(self, ref: Ref, error: str) -> None:
        """Record an object that cannot be handled; for a pod group, on its pods."""
        workloads = self._view.workloads.values() if ref.resource.kind == GROUP_KIND else ()
        group = next((workload for workload in workloads if workload.ref == ref), None)
        targets = self._owners(group) if group is not None else [EventTarget(ref, has_condition=False)]
        for target in targets if ref.name and not self._silent else ():
            self._recorder.record(target, unreadable(error))

    def incomplete(self, pod: SeenPod) -> None:
        """Record pods that wait for other pods of their group."""
        if not self._silent:
            members = self._view.groups.members(pod)
            text = incomplete_text(group_ref(pod).name, len(members), pod.traits.group_total)
            for member in members:
                if not member.life.is_over:
                    self._recorder.warn(self.pod_target(member), text, _GROUP_MS)


def nodes_of(workload: WorkloadPods) -> dict[int, int]:
    """Pods by the number of their node, bound or decided."""
    return dict(Counter(slot.node for slot in workload.slots if slot.node != NOBODY))


@lru_cache(256)  # many workloads hold equal quota
def _quota_text(grants: tuple[PodSetAssignment, ...]) -> str:
    lots = [
        share_text(FlavorResourceName(flavor, resource), dict(grant.charge).get(resource, 0))
        for grant in grants
        for resource, flavor in grant.flavors
    ]
    return listed(lots, 6) if lots else ""


def _whose(workload: WorkloadPods) -> str:
    """A workload in a sentence: "team-a/job.batch/train of queue team-a/gold, priority 100"."""
    return f"{workload.id} of queue {workload.work.queue}, priority {workload.work.priority}"
