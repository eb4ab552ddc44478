"""Takeover: a new leader resumes the decisions that objects and their annotations show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from tidegate.kube.mirror.handover_check import BelievedNote, HandoverCheck
from tidegate.kube.mirror.workload_pods import NodesRequested, WorkloadPods, WorkloadStage
from tidegate.kube.reconciler import Reconciler
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import FactKind
from tidegate.model.observed_status import DecayedUsage, ObservedStatus


class HandoverState(NamedTuple):
    """What the previous leader knew that belongs to no single object."""

    consumed: tuple[DecayedUsage, ...] = ()
    waiting: Mapping[
        str, ObservedStatus
    ] = {}  # by uid: workloads that others were evicted for, or that were passed over
    by_name: Mapping[str, ObservedStatus] = {}  # the same by namespace/name, as earlier versions wrote it


class Takeover:
    """Resumes the decisions of the previous leader, once, after the first sync."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler

    def resume(self, check: HandoverCheck, before: HandoverState) -> None:
        """Resume what the previous leader decided, as far as its annotations are believed."""
        reconciler = self._reconciler
        reconciler.lifecycle.synced = True
        for consumed in before.consumed:
            reconciler.facts.usage.append(consumed)
        waiting_of = self._waiting(before)
        for workload in list(reconciler.workloads.values()):
            if workload.suspended and reconciler.actuator.node_requests.kind:
                workload.asked = NodesRequested.PERHAPS
            waiting = waiting_of.get(workload.ref.uid, ObservedStatus())
            with reconciler.guard.over(workload.ref):
                believed = check.note_of(workload, reconciler.pods)
                if workload.suspended and not _is_leaving(workload, believed):
                    self._let_wait(workload)
                if believed is not None:
                    self._resume_one(workload, believed, waiting)
                elif waiting != ObservedStatus():
                    reconciler.facts.standings.append((workload.number, waiting))

    def _waiting(self, before: HandoverState) -> Mapping[str, ObservedStatus]:
        """The status of pending workloads by uid; a name that two workloads share is ignored."""
        refs = [workload.ref for workload in self._reconciler.workloads.values()] if before.by_name else []
        times = Counter(ref.short_text for ref in refs)
        named = {ref.uid: before.by_name.get(ref.short_text) for ref in refs if times[ref.short_text] == 1}
        return {**{uid: standing for uid, standing in named.items() if standing is not None}, **before.waiting}

    def _resume_one(self, workload: WorkloadPods, believed: BelievedNote, waiting: ObservedStatus) -> None:
        note, sizes = believed
        standing = note.standing
        if workload.suspended and not _is_leaving(workload, believed):  # it waits, whatever it held
            if standing.evicted:
                self._reconciler.lifecycle.waits_again(workload)
            standing = replace(waiting, evictions=standing.evictions)
        elif workload.suspended:
            self._take_sizes(workload, sizes)
            workload.stage = WorkloadStage.EVICTED
        elif standing.evicted and workload.job is not None and not workload.is_gated:  # its owner unsuspended it
            self._take_sizes(workload, sizes)
            workload.stage = WorkloadStage.EVICTED
            self._reconciler.actuator.stop_again(workload)
        elif standing.evicted:
            standing = ObservedStatus(evictions=standing.evictions)
        else:
            self._take_flavors(workload, standing)
            self._take_sizes(workload, sizes)
            self._reconciler.lifecycle.resumed(workload, standing)
            if not all(slot.bound or slot.reclaimed for slot in workload.slots):
                self._take_places(workload, note.node_names())
            self._follow_size(workload)
        self._reconciler.facts.standings.append((workload.number, standing))

    def _let_wait(self, workload: WorkloadPods) -> None:
        """Let a suspended job wait: its pods that are still there hold room like anybody's, or did their work."""
        if workload.stage is not WorkloadStage.WAITING:
            workload.clear_decisions()
            self._reconciler.forget_places(workload, workload.work)

    def _follow_size(self, workload: WorkloadPods) -> None:
        """Handle a change of size while no replica led, or that the previous leader did not record."""
        self._reconciler.release_reclaimable(workload)
        if workload.job is not None:
            if workload.noted == (0, 0):
                self._reconciler.actuator.note_size(workload, workload.job)
            self._reconciler.update_size(workload, workload.job)

    def _take_flavors(self, workload: WorkloadPods, standing: ObservedStatus) -> None:
        for grant in standing.grants:
            for _, flavor in grant.flavors:
                workload.admit(grant.pod_set, flavor)

    def _take_sizes(self, workload: WorkloadPods, sizes: Mapping[str, int]) -> None:
        """Restore the pod counts of the admission: fewer than it requests, or more if its annotation says so."""
        asked = workload.work.pod_sets
        more = tuple(replace(pods, count=max(pods.count, sizes.get(pods.name, 0))) for pods in asked)
        if more != asked:
            work = replace(workload.work, pod_sets=more)
            self._reconciler.forget_places(workload, work)
            self._reconciler.facts.changed.append((workload.number, work))
        for pods in asked:
            if sizes.get(pods.name, pods.count) < pods.count:
                self._reclaim_all_but(workload, pods.name, sizes[pods.name])

    def _reclaim_all_but(self, workload: WorkloadPods, pod_set: str, pods: int) -> None:
        """Let only so many slots of a set be filled: those of bound pods first. Other pods wait for a slot."""
        slots, reconciler = workload.slots, self._reconciler
        kept = sorted(workload.kept(())[pod_set], key=lambda at: (not slots[at].bound, not slots[at].pod))
        waiting = [slots[ordinal].pod for ordinal in kept[pods:] if slots[ordinal].pod]
        for uid in waiting:
            reconciler.assigned.free(uid)
        for ordinal in kept[pods:]:
            reconciler.reclaim(workload, ordinal)
        reconciler.assign_again(waiting)

    def _take_places(self, workload: WorkloadPods, names: list[str]) -> None:
        """Restore the nodes decided for pods that are not bound; pods of a set are interchangeable.

        A job that was scaled down gets as many nodes as it has pods.
        """
        of_set = workload.kept(())
        if len(names) == len(workload.slots):
            of_set = {name: list(workload.ordinals(name)) for name in of_set}
        over, one_set = len(names) - sum(map(len, of_set.values())), len(of_set) == 1
        if over < 0 or (over and not one_set):
            return
        number_of, facts, rest = self._reconciler.node_registry.number_of, self._reconciler.facts, iter(names)
        for ordinals in of_set.values():
            left = Counter(map(number_of, names if one_set else islice(rest, len(ordinals))))
            left.subtract(workload.slots[ordinal].node for ordinal in ordinals if workload.slots[ordinal].bound)
            nodes = (node for node, count in left.items() for _ in range(count))
            for ordinal in ordinals:
                if workload.slots[ordinal].bound or workload.slots[ordinal].reclaimed:  # spare: its pod is done
                    continue
                workload.slots[ordinal].node = node = next(nodes, NOBODY)
                if node != NOBODY:
                    facts.about(FactKind.POD_BOUND, workload.number, ordinal, node)
                    facts.about(FactKind.POD_ABSENT, workload.number, ordinal)
        self._reconciler.start(workload)


def _is_leaving(workload: WorkloadPods, believed: BelievedNote | None) -> bool:
    """Whether a suspended job was evicted and pods of it are still at their places."""
    return believed is not None and bool(believed.note.standing.evicted) and any(slot.bound for slot in workload.slots)
