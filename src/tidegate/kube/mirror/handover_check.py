"""Handover check: how much of a handover annotation is believed, by what the cluster and the policy confirm.

Tenants may forge the annotation, so quota never depends on it. The queue is the one in the label, the usage follows
from the requests, and a flavor counts only if the queue has it and the pods' nodes match it; otherwise it is the first
flavor that matches, as for work without an annotation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from tidegate.kube.mirror.handover_annotation import HandoverNote
from tidegate.kube.mirror.pods import GateOwner, SeenPod
from tidegate.kube.mirror.workload_pods import WorkloadKind, WorkloadPods
from tidegate.model.decisions import NOBODY
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment
from tidegate.model.queues import LARGEST_CLAIM, Flavor, Queue, QueueSetup, charge_of, in_any_namespace
from tidegate.model.struct import Labels, Resources
from tidegate.model.work import PodSet, Work
from tidegate.state.classes import MOST_PODS

_PODS = "pods"
_AS_ASKED: Mapping[str, int] = MappingProxyType({})

#: The decoded annotation of an object by uid; None if there is none.
Notes = Callable[[str], HandoverNote | None]

#: Labels of a node, by its number.
LabelsOf = Callable[[int], Labels]


class BelievedNote(NamedTuple):
    """The believed part of an annotation."""

    note: HandoverNote
    sizes: Mapping[str, int] = _AS_ASKED  # pods that each set holds, where that differs from its requests


class _Believed(NamedTuple):
    """The part that depends only on the work and the grants in its annotation."""

    queue: str
    grants: tuple[PodSetAssignment, ...]
    sizes: Mapping[str, int] = _AS_ASKED


class HandoverCheck:
    """Checks annotations against the cluster and the policy in force."""

    def __init__(self, notes: Notes, shares: QueueSetup, labels_of: LabelsOf, now_ms: int) -> None:
        self._notes, self._labels_of, self._now_ms = notes, labels_of, now_ms
        self._queues = {queue.name: queue for queue in shares.queues}
        self._by_name = {**{name: name for name in self._queues}, **{one.id: one.queue for one in shares.entrances}}
        self._flavors = {flavor.name: flavor for flavor in shares.flavors}
        self._levels = {topology.name: len(topology.labels) for topology in shares.topologies}
        self._labelled = any(flavor.node_labels for flavor in shares.flavors)
        self._nominal = Counter[str]()  # all nominal quota, by resource
        owned = (*(queue.quotas for queue in shares.queues), *(cohort.quotas for cohort in shares.cohorts))
        for quota in chain.from_iterable(owned):
            self._nominal[quota.resource] += quota.nominal
        self._known: dict[tuple[Work, tuple[PodSetAssignment, ...]], _Believed] = {}  # many workloads are alike

    def note_of(self, workload: WorkloadPods, pods: Mapping[str, SeenPod]) -> BelievedNote | None:
        """The believed annotation of a workload; None if it has none.

        A job that its owner resumed says that it was evicted; if it was admitted since, its pods say so.
        """
        notes = (note for uid in _carriers(workload, pods) if (note := self._notes(uid)) is not None)
        found = next(notes, None)
        if found is not None and found.standing.evicted and not workload.suspended:
            found = next((note for note in notes if _is_later(note.standing, found.standing)), found)
        return None if found is None else self._believe(found, workload)

    def _believe(self, note: HandoverNote, workload: WorkloadPods) -> BelievedNote:
        """The believed part of an annotation for this workload."""
        told = note.standing
        placed, bound = sum(count for _, count in note.nodes), sum(slot.bound for slot in workload.slots)
        most = len(workload.slots) if len(workload.work.pod_sets) > 1 else MOST_PODS  # it may have been scaled down
        nodes = note.nodes if bound <= placed <= most else ()
        plain = ObservedStatus(evicted=told.evicted, evictions=told.evictions)
        believed = self._believe_grants(workload, note) if told.grants else _Believed("", ())
        if not believed.grants:
            sizes = _without_quota(workload, nodes) if not told.grants else _AS_ASKED
            return BelievedNote(HandoverNote(standing=plain, nodes=nodes), sizes)
        standing = ObservedStatus(
            queue=believed.queue,
            grants=believed.grants,
            granted_ms=min(told.granted_ms, self._now_ms),
            evicted=told.evicted,
            admitted=True,
            evictions=told.evictions,
        )
        return BelievedNote(HandoverNote(standing=standing, nodes=nodes), believed.sizes)

    def _believe_grants(self, workload: WorkloadPods, note: HandoverNote) -> _Believed:
        grants, asked = note.standing.grants, {pods.name: pods.count for pods in workload.work.pod_sets}
        if self._labelled or any(grant.count != asked.get(grant.pod_set) for grant in grants):
            return self._read_grants(workload, note)  # its pods matter, too
        key = (workload.work, grants)
        if key not in self._known:
            self._known[key] = self._read_grants(workload, note)
        return self._known[key]

    def _read_grants(self, workload: WorkloadPods, note: HandoverNote) -> _Believed:
        grants, placed = note.standing.grants, sum(count for _, count in note.nodes)
        named = workload.work.queue
        queue = self._queues.get(self._by_name.get(named, self._by_name.get(in_any_namespace(named), "")))
        if queue is None:
            return _Believed("", ())
        noted = {grant.pod_set: grant for grant in grants}
        # Pods of a partially started group have different requests now: one set is read as several.
        only = grants[0] if len(grants) == 1 else None
        sets = [(pods, noted.get(pods.name, only)) for pods in workload.work.pod_sets]
        sizes = {
            pods.name: _size(workload, pods, grant, min(placed, self._most_within_quota(pods)))
            for pods, grant in sets
            if grant is not None
        }
        read = [self._grant(workload, queue, pods, grant, sizes.get(pods.name, 0)) for pods, grant in sets]
        return _Believed(queue.name, tuple(read), _other_sizes(workload, sizes))

    def _most_within_quota(self, pods: PodSet) -> int:
        """How many pods of a set fit into all nominal quota."""
        charges = [
            (self._nominal[name], amount) for name, amount in charge_of(pods) if name in self._nominal and amount
        ]
        return min((nominal // amount for nominal, amount in charges), default=0)

    def _grant(
        self, workload: WorkloadPods, queue: Queue, pods: PodSet, noted: PodSetAssignment | None, size: int
    ) -> PodSetAssignment:
        """What a pod set holds: its requests, whatever its annotation says.

        Surplus pods count as done, so that the engine releases their quota.
        """
        count = max(pods.count, size)
        asked = (*charge_of(pods), (_PODS, 1))
        wanted = dict(noted.flavors) if noted is not None else {}
        labels = [self._labels_of(node) for node in _nodes(workload, pods)] if self._labelled else []
        flavors, charge = [], []
        for resource, amount in asked:
            flavor = self._flavor(queue, resource, wanted.get(resource, ""), labels)
            if flavor:
                flavors.append((resource, flavor))
                charge.append((resource, min(amount * count, LARGEST_CLAIM)))
        grant = PodSetAssignment(
            pod_set=pods.name, count=count, flavors=tuple(sorted(flavors)), charge=_nonzero(charge)
        )
        return grant if noted is None else self._with_topology(grant, noted)

    def _flavor(self, queue: Queue, resource: str, noted: str, nodes: Iterable[Labels]) -> str:
        """The noted flavor if the queue has it and the nodes match it, else the first that they match."""
        offered = next((group.flavors for group in queue.groups if resource in group.resources), ())
        there = [self._flavors[name] for name in offered if name in self._flavors]
        fitting = [flavor for flavor in there if _holds_all(flavor, nodes)] or there
        names = [flavor.name for flavor in fitting]
        return noted if noted in names else next(iter(names), "")

    def _with_topology(self, grant: PodSetAssignment, noted: PodSetAssignment) -> PodSetAssignment:
        """The topology assignment of a grant, if it matches the flavor's topology and has all pods."""
        topologies = (self._flavors[name].topology for _, name in grant.flavors)
        levels = self._levels.get(next((name for name in topologies if name), ""), 0)
        whole = sum(spot.count for spot in noted.spots) == grant.count
        sound = whole and all(len(spot.values) == levels for spot in noted.spots)
        awaits = noted.awaits_topology and bool(levels)
        return replace(grant, spots=noted.spots if sound else (), awaits_topology=awaits)


def _is_later(told: ObservedStatus, evicted: ObservedStatus) -> bool:
    """Whether a note says that work was admitted after another note said that it was evicted."""
    return not told.evicted and told.evictions >= evicted.evictions


def _carriers(workload: WorkloadPods, pods: Mapping[str, SeenPod]) -> Iterator[str]:
    """The objects whose annotation counts: a job, and pods that were bound or ungated."""
    if workload.kind is WorkloadKind.JOB:
        yield workload.ref.uid
    for slot in workload.slots:
        pod = pods.get(slot.pod)
        if pod is not None and (pod.node or (pod.started and pod.gate is GateOwner.OPEN)):
            yield pod.uid


def _size(workload: WorkloadPods, pods: PodSet, noted: PodSetAssignment, most: int) -> int:
    """The number of pods that a set holds; fewer than it requests only if no more are bound or to be created.

    A job that was scaled down holds what its annotation says until that changes, but no more than it has nodes for and
    than fit into the quota, as the annotation may be forged. Pods may have finished before or after the annotation was
    written: the smaller number counts.
    """
    job, bound, count = workload.job, _bound(workload, pods.name), noted.count
    if count > pods.count:
        shrank = job is not None and not workload.is_gated and not job.suspended and noted.pod_set == pods.name
        return max(min(count, most, MOST_PODS), pods.count) if shrank else pods.count
    if len(workload.kept(())[pods.name]) <= count:
        return pods.count  # pods that are done released the rest
    done = job.reclaimable.get(pods.name, 0) if job is not None else 0
    return max(bound, count - done, 1) if max(bound, 1) <= count < pods.count else pods.count


def _without_quota(workload: WorkloadPods, nodes: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """The same for an annotation with nodes and no grants."""
    if len(workload.work.pod_sets) != 1 or not nodes:
        return _AS_ASKED
    (pods,) = workload.work.pod_sets
    placed = min(sum(count for _, count in nodes), pods.count)  # it holds no more than it requests
    return _other_sizes(
        workload, {pods.name: _size(workload, pods, PodSetAssignment(pod_set=pods.name, count=placed), 0)}
    )


def _other_sizes(workload: WorkloadPods, sizes: Mapping[str, int]) -> Mapping[str, int]:
    asked = {pods.name: pods.count for pods in workload.work.pod_sets}
    return {name: count for name, count in sizes.items() if count != asked[name]} or _AS_ASKED


def _bound(workload: WorkloadPods, pod_set: str) -> int:
    return sum(workload.slots[ordinal].bound for ordinal in workload.ordinals(pod_set))


def _nodes(workload: WorkloadPods, pods: PodSet) -> set[int]:
    """The nodes of a set's bound pods."""
    slots = (workload.slots[ordinal] for ordinal in workload.ordinals(pods.name))
    return {slot.node for slot in slots if slot.bound and slot.node != NOBODY}


def _holds_all(flavor: Flavor, nodes: Iterable[Labels]) -> bool:
    return all(_has(dict(labels), flavor.node_labels) for labels in nodes)


def _has(labels: Mapping[str, str], wanted: Labels) -> bool:
    return all(labels.get(key) == value for key, value in wanted)


def _nonzero(charge: list[tuple[str, int]]) -> Resources:
    return tuple(sorted((name, amount) for name, amount in charge if amount))
