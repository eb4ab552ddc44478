"""Imports the work of a folder: Workloads of Kueue, jobs of all kinds, pods; and unmanaged pods.

What another object of the folder speaks for is read once: a Job by its Workload, a pod by its Job.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tidegate.manifests import label_names
from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.jobs.pod import POD, Pod, group_of, join_group, read_pod, unmanaged_by_node
from tidegate.manifests.jobs.to_workload import KUEUE, ImportedWorkload, QueueName, read_job, read_parts, run_profile
from tidegate.manifests.kinds import KINDS, GroupKind
from tidegate.manifests.kinds import KUEUE as KUEUE_GROUP
from tidegate.manifests.kueue_workload import read_workload
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, ObjectIndex
from tidegate.manifests.object_meta import ManifestMeta, api_group, read_meta
from tidegate.manifests.workload_status import read_observed_status
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.simulation import PlannedWorkload

_QUEUE_WORDS = (label_names.QUEUE, *label_names.KAI_QUEUES, label_names.VOLCANO_QUEUE, label_names.YUNIKORN_QUEUES[0])

#: Group, kind, namespace and name.
ObjectKey = tuple[str, str, str, str]


def read_workloads(
    objects: ObjectIndex, defaults: ClusterDefaults
) -> tuple[list[ImportedWorkload], list[UnmanagedPods]]:
    """The work of a folder, and what its unmanaged pods hold."""
    represented = owners_of_workloads(objects)
    there = {object_key(key, item) for key, item in objects.jobs()}
    found = [_read_workload(item, defaults) for item in objects.of(KUEUE_GROUP, "Workload")]
    for key, item in objects.jobs():
        kind = KINDS[key].job
        assert kind is not None
        if object_key(key, item) in represented:
            item.note("", "is not read: its Workload is in the folder and speaks for it")
        elif _is_owned(read_meta(item.quiet(), defaults.namespace), there):
            item.note("", "is not read: its owner is in the folder and speaks for it")
        else:
            found += read_job(item, kind, defaults)
    pods, unmanaged = _read_pods(objects.of("", "Pod"), there | represented, represented, defaults)
    return _unique(found + pods), unmanaged


def object_key(key: GroupKind, item: Item) -> ObjectKey:
    """Group, kind, namespace and name of an object."""
    meta = item.mapping("metadata").value
    return *key, str(meta.get("namespace") or DEFAULT_NAMESPACE), str(meta.get("name") or "")


def owners_of_workloads(objects: ObjectIndex) -> set[ObjectKey]:
    """The objects whose Workloads are read instead of them."""
    metas = [read_meta(item.quiet(), DEFAULT_NAMESPACE) for item in objects.of(KUEUE_GROUP, "Workload")]
    return {(owner.group, owner.kind, meta.namespace, owner.name) for meta in metas for owner in meta.owners}


def _is_owned(meta: ManifestMeta, there: set[ObjectKey]) -> bool:
    return any((owner.group, owner.kind, meta.namespace, owner.name) in there for owner in meta.owners)


def _read_workload(item: Item, defaults: ClusterDefaults) -> ImportedWorkload:
    workload, meta = read_workload(item, defaults), read_meta(item.quiet(), defaults.namespace)
    queue = QueueName(KUEUE, workload.work.queue, ("spec", "queueName"))
    planned = PlannedWorkload(workload=workload, run=run_profile(item, meta))
    return ImportedWorkload(planned, queue, item, read_observed_status(item, defaults))


def _read_pods(
    items: list[Item], owners: set[ObjectKey], represented: set[ObjectKey], defaults: ClusterDefaults
) -> tuple[list[ImportedWorkload], list[UnmanagedPods]]:
    found: list[ImportedWorkload] = []
    groups: dict[tuple[str, str], list[Pod]] = {}
    others: list[Pod] = []
    for item in items:
        pod = read_pod(item.quiet(), defaults)._replace(item=item)
        if pod.over or _is_owned(pod.meta, owners) or object_key(("", "Pod"), item) in represented:
            continue
        if group_of(pod):
            groups.setdefault((pod.meta.namespace, group_of(pod)), []).append(pod)
        elif pod.node and not any(pod.meta.word(word) for word in _QUEUE_WORDS):
            others.append(read_pod(item, defaults))
        else:
            found += read_job(item, POD, defaults)
    for members in groups.values():
        whole, parts = join_group(members, defaults)
        found += read_parts(whole, parts, defaults)
    return found, unmanaged_by_node(others)


def _unique(found: list[ImportedWorkload]) -> list[ImportedWorkload]:
    """Give workloads of the same id different ones: by kind, as on a cluster, then by number."""
    ids = [one.planned.workload.id for one in found]
    times = Counter(ids)
    taken: set[str] = set()
    unique = []
    for one, name in zip(found, ids, strict=True):
        renamed = name
        if times[name] > 1 and not one.generated:
            namespace, _, rest = name.partition("/")
            group = api_group(one.item)
            renamed = f"{namespace}/{one.item.origin.kind.lower()}{'.' if group else ''}{group}/{rest}"
        number, base = 1, renamed
        while renamed in taken:
            number += 1
            renamed = f"{base}-{number}"
        taken.add(renamed)
        unique.append(one if renamed == name else _renamed(one, renamed))
    return unique


def _renamed(one: ImportedWorkload, name: str) -> ImportedWorkload:
    replace, planned = msgspec.structs.replace, one.planned
    return one._replace(planned=replace(planned, workload=replace(planned.workload, id=name)))
