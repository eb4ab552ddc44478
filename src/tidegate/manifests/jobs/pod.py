"""Pods: plain pods, pod groups, and unmanaged pods, which take up room."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidegate.manifests import label_names
from tidegate.manifests.cluster_defaults import NO_DEFAULTS, ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup
from tidegate.manifests.object_meta import ManifestMeta, object_schema, read_meta
from tidegate.manifests.pod_requests import read_requests
from tidegate.manifests.pod_template import POD_SPEC, read_template
from tidegate.manifests.quantity import Amounts, charged, requested
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.struct import Resources
from tidegate.model.work import WorkKind

#: Phases in which a pod holds nothing any more.
_OVER = ("Succeeded", "Failed")


class Pod(NamedTuple):
    """A pod on a cluster."""

    meta: ManifestMeta
    node: str  # empty: it has none yet
    over: bool  # it holds nothing any more
    request: Resources  # what it takes of its node
    charge: Resources  # the same, exactly
    item: Item


def split_pod(item: Item, _: ClusterDefaults) -> JobParts:
    """A Pod: one pod set of one."""
    return JobParts((ReplicaGroup("main", 1, item),), WorkKind.BATCH)


POD = JobKind(object_schema(POD_SPEC, ANYTHING), split_pod)


def read_pod(item: Item, defaults: ClusterDefaults = NO_DEFAULTS) -> Pod:
    """Read a Pod, and what it takes of its node."""
    meta, spec = read_meta(item, defaults.namespace), item.mapping("spec")
    amounts: Amounts = read_requests(spec, defaults, meta.namespace)
    return Pod(
        meta=meta,
        node=spec.text("nodeName"),
        over=item.mapping("status").text("phase") in _OVER,
        request=requested(amounts),
        charge=charged(amounts),
        item=item,
    )


def unmanaged_by_node(pods: Iterable[Pod]) -> list[UnmanagedPods]:
    """What pods hold, node by node: of those that have one and are not over."""
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node and not pod.over:
            by_node.setdefault(pod.node, []).append(pod)
    return [
        UnmanagedPods(
            node=node,
            request=_total(pod.request for pod in there),
            charge=_total(pod.charge for pod in there),
            pods=len(there),
        )
        for node, there in sorted(by_node.items())
    ]


def _total(amounts: Iterable[Resources]) -> Resources:
    total: dict[str, int] = {}
    for pairs in amounts:
        for name, amount in pairs:
            total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))


def group_of(pod: Pod) -> str:
    """The group that a pod belongs to; empty: none."""
    return pod.meta.word(label_names.GROUP)


def join_group(pods: list[Pod], defaults: ClusterDefaults) -> tuple[Item, JobParts]:
    """A group of pods as one job, named after the group: a pod set for each role."""
    first = pods[0]
    roles: dict[object, list[Pod]] = {}
    for pod in pods:
        roles.setdefault(_role(pod, defaults), []).append(pod)
    total = _total_count(first, len(pods))
    groups = [_named_role(number, members, len(roles)) for number, members in enumerate(roles.values(), 1)]
    if len(groups) == 1 and first.meta.annotations.get(label_names.GROUP_FAST) == "true":
        groups = [groups[0]._replace(pods=max(total, len(pods)))]
    name = group_of(first)
    meta = {**first.item.mapping("metadata").value, "name": name}
    origin = msgspec.structs.replace(first.item.origin, name=f"{first.meta.namespace}/{name}")
    whole = Item({**first.item.value, "metadata": meta}, first.item.findings, origin, first.item.path)
    return whole, JobParts(tuple(groups), WorkKind.BATCH)


def _role(pod: Pod, defaults: ClusterDefaults) -> object:
    """What pods of one role have in common: the hash that Kueue wrote, or their requirements."""
    noted = pod.meta.annotations.get(label_names.ROLE)
    return noted or read_template(pod.item.quiet(), defaults, pod.meta.namespace).kind


def _named_role(number: int, members: list[Pod], roles: int) -> ReplicaGroup:
    noted = members[0].meta.annotations.get(label_names.ROLE)
    name = noted or ("main" if roles == 1 else f"role-{number}")
    return ReplicaGroup(name, len(members), members[0].item)


def _total_count(pod: Pod, there: int) -> int:
    inner = pod.item.mapping("metadata").mapping("annotations")
    written = pod.meta.annotations.get(label_names.GROUP_TOTAL, "")
    if not written.isdecimal() or int(written[:9]) == 0:
        inner.refuse(label_names.GROUP_TOTAL, "the number of pods in the group, as text", written or None)
        return there
    total = int(written[:9])
    if there < total and pod.meta.annotations.get(label_names.GROUP_FAST) != "true":
        hint = "add the others to the folder, or correct the number"
        inner.refuse(label_names.GROUP_TOTAL, f"{total} pods of the group", f"{there}", hint)
    elif there > total:
        inner.warn(label_names.GROUP_TOTAL, f"says {total}, and there are {there} pods of the group: all of them count")
    return total
