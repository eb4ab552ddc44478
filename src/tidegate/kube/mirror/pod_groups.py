"""Pod groups: members wait until their group is complete."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidegate.kube.mirror.limits import excess
from tidegate.kube.mirror.pod_spec_cache import PodShape
from tidegate.kube.mirror.pods import SeenPod
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.writes import Ref
from tidegate.manifests.cluster_defaults import NO_DEFAULTS
from tidegate.manifests.jobs.pod import join_group, read_pod
from tidegate.manifests.jobs.to_workload import read_parts
from tidegate.manifests.label_names import GROUP_TOTAL, QUEUE, ROLE
from tidegate.model.work import PodSet, Work
from tidegate.state.classes import MOST_PODS

#: The kind of a pod group in names; the server has no such objects.
GROUP_KIND = "PodGroup"

#: Most decoded groups in the cache.
_MOST_READ = 256


class PodGroup(NamedTuple):
    """A complete pod group."""

    ref: Ref
    work: Work
    members: tuple[tuple[SeenPod, str], ...]  # each with its pod set
    created_ms: int
    refusals: tuple[str, ...] = ()  # why the group cannot be admitted


class PodGroups:
    """The members of incomplete pod groups."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], dict[str, SeenPod]] = {}
        self._waiting: set[str] = set()  # uids of all of them
        self._read: dict[tuple[PodShape, ...], tuple[Work, tuple[str, ...]]] = {}  # by the shapes of its members

    def join(self, pod: SeenPod) -> PodGroup | None:
        """Add a member; return the group if that completes it."""
        key = (pod.namespace, pod.group)
        members = self._members.setdefault(key, {})
        members[pod.uid] = pod
        self._waiting.add(pod.uid)
        if len(members) < pod.traits.group_total:
            return None
        whole = self._joined(sorted(members.values(), key=lambda member: member.name))
        if not whole.refusals:  # else it is decoded again when one of its pods changes
            del self._members[key]
            self._waiting.difference_update(members)
        return whole

    def leave(self, pod: SeenPod) -> None:
        """Remove a member of an incomplete group."""
        members = self._members.get((pod.namespace, pod.group), {})
        members.pop(pod.uid, None)
        self._waiting.discard(pod.uid)
        if not members:
            self._members.pop((pod.namespace, pod.group), None)

    def has(self, uid: str) -> bool:
        """Whether a pod waits until its group is complete."""
        return uid in self._waiting

    def members(self, pod: SeenPod) -> list[SeenPod]:
        """The members of a pod's incomplete group."""
        return list(self._members.get((pod.namespace, pod.group), {}).values())

    def _joined(self, pods: list[SeenPod]) -> PodGroup:
        """The group as one workload; groups of equal shapes are decoded once."""
        first = pods[0]
        ref = group_ref(first)
        created_ms = max(pod.created_ms for pod in pods)
        why = _disagreements(pods)
        if why:
            return PodGroup(ref, first.shape.work, tuple((pod, "") for pod in pods), created_ms, why)
        key = tuple(pod.shape for pod in pods)
        if key not in self._read:
            if len(self._read) >= _MOST_READ:
                del self._read[next(iter(self._read))]  # what was read first
            self._read[key] = _read(pods)
        work, sets = self._read[key]
        return PodGroup(ref, work, tuple(zip(pods, sets, strict=True)), created_ms, excess(work))


def group_ref(pod: SeenPod) -> Ref:
    """A reference to the group of a pod, which is no object of the server."""
    origin, _, name = pod.group.rpartition("/")
    return Ref(Resource(origin, "", "podgroups", GROUP_KIND), pod.namespace, name, f"{pod.group}:{pod.uid}")


def _disagreements(pods: list[SeenPod]) -> tuple[str, ...]:
    """Why the pods of a group contradict each other: each with the field and what to do."""
    totals = sorted({pod.traits.group_total for pod in pods})
    if not totals[0]:
        return (f"{GROUP_TOTAL}: expected the number of pods in the group; write it on each of its pods",)
    if len(totals) > 1:
        return (f"{GROUP_TOTAL}: pods of the group say {totals[0]:,} and {totals[-1]:,}; write one number on all",)
    if totals[0] > MOST_PODS:
        return (f"{GROUP_TOTAL}: {totals[0]:,} pods, at most {MOST_PODS:,}",)
    if len({pod.shape.work.queue for pod in pods}) > 1:
        return (f"{QUEUE}: pods of the group name different queues; write one queue on all of them",)
    roles: dict[object, PodSet] = {}
    for pod in pods:
        asks = pod.shape.work.pod_sets[0]
        if roles.setdefault(pod.shape.role, asks) != asks:
            return (
                f"{ROLE}: pods of role {pod.shape.role} ask for different things; leave it out, or make them alike",
            )
    return ()


def _read(pods: list[SeenPod]) -> tuple[Work, tuple[str, ...]]:
    """The requests of a group, and the pod set of each pod: one for each role."""
    item, parts = join_group([read_pod(pod.shape.item.quiet(), NO_DEFAULTS) for pod in pods], NO_DEFAULTS)
    work = read_parts(item.quiet(), parts, NO_DEFAULTS)[0].planned.workload.work
    work = msgspec.structs.replace(work, priority=pods[0].shape.work.priority)
    roles = list(dict.fromkeys(pod.shape.role for pod in pods))
    names = {role: pods_of.name for role, pods_of in zip(roles, work.pod_sets, strict=True)}
    return work, tuple(names[pod.shape.role] for pod in pods)
