"""Makes workloads of a job of any kind: pod sets, queue, priority, and run profile in the twin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tidegate.manifests import label_names
from tidegate.manifests.cluster_defaults import ClusterDefaults, PriorityClass
from tidegate.manifests.field_reader import Item
from tidegate.manifests.gpus import charge_in_gpus
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup
from tidegate.manifests.object_meta import ManifestMeta, read_meta
from tidegate.manifests.pod_requests import exceeds_limits
from tidegate.manifests.pod_template import PodRequirements, read_template, sized
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.simulation import PlannedWorkload, RunProfile
from tidegate.model.units import HOUR_MS, UnitError, parse_duration_ms
from tidegate.model.work import PodSet, Work, WorkKind, Workload

#: Runtime of a job without the annotation.
DEFAULT_RUNTIME_MS = HOUR_MS

#: Workloads that one object may become.
MOST_COPIES = 100_000

#: Systems of queues, as a job names one.
KUEUE, KAI, VOLCANO, YUNIKORN = "kueue", "kai", "volcano", "yunikorn"


class QueueName(NamedTuple):
    """The queue that a job names, and whose queue it is; without a system it names none."""

    system: str = ""
    name: str = ""
    key: tuple[str, ...] = ()  # where it stands


class ImportedWorkload(NamedTuple):
    """A workload that was read, and what it came from."""

    planned: PlannedWorkload
    queue: QueueName
    item: Item
    standing: ObservedStatus | None = None  # None: nothing is known of it
    generated: bool = False  # its name is only the beginning of one


def read_job(item: Item, kind: JobKind, defaults: ClusterDefaults) -> list[ImportedWorkload]:
    """Read a job; a kind whose pods queue one by one gives several workloads."""
    return read_parts(item, kind.split(item, defaults), defaults)


def read_parts(item: Item, parts: JobParts, defaults: ClusterDefaults) -> list[ImportedWorkload]:
    """Read a job of these parts."""
    meta = read_meta(item, defaults.namespace)
    label_names.check_labels(item.mapping("metadata"), defaults.gates)
    for group in parts.groups:
        if group.template is not item:
            label_names.check_labels(group.template.mapping("metadata"), defaults.gates)
    groups = [group for group in parts.groups if group.pods]
    if not groups:
        item.note("spec", "asks for no pods")
        return []
    needs = [read_template(group.template, defaults, meta.namespace) for group in groups]
    queue = _queue(item, meta, parts, defaults)
    work = Work(
        queue=queue.name or Work().queue,
        kind=_kind(item, meta, parts.kind),
        priority=_priority(item, meta, parts, needs, defaults),
        pod_sets=tuple(_pod_set(group, need, queue) for group, need in zip(groups, needs, strict=True)),
    )
    _review_names(item, work.pod_sets)
    barred = [exceeds_limits(group.template.mapping("spec"), defaults, meta.namespace) for group in groups]
    workload = Workload(id=meta.id, work=work, submitted_ms=_submitted_ms(item, meta), estimate_ms=parts.estimate_ms)
    standing = ObservedStatus(outside_limits=True) if True in barred else None
    one = ImportedWorkload(
        PlannedWorkload(workload=workload, run=run_profile(item, meta)), queue, item, standing, meta.generated
    )
    return [one] if parts.copies is None else _copies(one, parts.copies)


def _copies(one: ImportedWorkload, copies: int) -> list[ImportedWorkload]:
    if copies > MOST_COPIES:
        one.item.mapping("spec").refuse("replicas", f"at most {MOST_COPIES:,}", copies)
        return []
    replace, workload = msgspec.structs.replace, one.planned.workload
    ids = [f"{workload.id}-{number}" for number in range(copies)]
    return [
        one._replace(planned=replace(one.planned, workload=replace(workload, id=name)), generated=False) for name in ids
    ]


def _pod_set(group: ReplicaGroup, needs: PodRequirements, queue: QueueName) -> PodSet:
    pods = sized(needs, group.name, group.pods, group.least)
    if queue.system != KAI:
        return pods
    return msgspec.structs.replace(pods, charge=charge_in_gpus(pods.gpu, needs.amounts))


def _review_names(item: Item, pod_sets: tuple[PodSet, ...]) -> None:
    names = [pod_set.name for pod_set in pod_sets]
    for name in sorted({name for name in names if names.count(name) > 1}):
        item.report("spec", expected="pod sets with names of their own", found=f"{name!r} twice")


def _queue(item: Item, meta: ManifestMeta, parts: JobParts, defaults: ClusterDefaults) -> QueueName:
    """The queue that a job names: Kueue's word first, then that of its scheduler, then the namespace's default."""
    named = meta.labels.get(label_names.QUEUE)
    if named:
        return QueueName(KUEUE, f"{meta.namespace}/{named}", ("metadata", "labels", label_names.QUEUE))
    found = _queue_of_other_system(meta.labels, meta.annotations, ("metadata",))
    templates = [group.template for group in parts.groups]
    for template in templates:
        inner = template.mapping("metadata")
        found = found or _queue_of_other_system(inner.pairs("labels"), inner.pairs("annotations"), ())
    if found:
        return found
    if parts.queue:
        return QueueName(VOLCANO, parts.queue, ("spec", "queue"))
    if meta.namespace in defaults.queues_by_default:
        return QueueName(KUEUE, f"{meta.namespace}/default", ("metadata", "labels"))
    item.warn("metadata", "names no queue: no quota is counted", f"label it {label_names.QUEUE}")
    return QueueName()


def _queue_of_other_system(
    labels: Mapping[str, str], annotations: Mapping[str, str], at: tuple[str, ...]
) -> QueueName | None:
    for key in label_names.KAI_QUEUES:
        if labels.get(key):
            return QueueName(KAI, labels[key], (*at, "labels", key) if at else ())
    if annotations.get(label_names.VOLCANO_QUEUE):
        key = label_names.VOLCANO_QUEUE
        return QueueName(VOLCANO, annotations[key], (*at, "annotations", key) if at else ())
    for place, pairs in (("labels", labels), ("annotations", annotations)):
        for key in label_names.YUNIKORN_QUEUES:
            if pairs.get(key, "").startswith("root"):
                return QueueName(YUNIKORN, pairs[key], (*at, place, key) if at else ())
    return None


def _priority(
    item: Item, meta: ManifestMeta, parts: JobParts, needs: list[PodRequirements], defaults: ClusterDefaults
) -> int:
    """The priority: of the workload's class, then of the job's or its pods' class, then the default."""
    label = meta.labels.get(label_names.PRIORITY, "")
    if label:
        inner = item.mapping("metadata").mapping("labels")
        return _class_value(inner, label_names.PRIORITY, label, defaults.workload_priorities)
    if "default" in defaults.workload_priorities:
        return defaults.workload_priorities["default"].value
    named = parts.priority_class or next((need.priority_class for need in needs if need.priority_class), "")
    if named:
        return _class_value(item, "spec", named, {**SYSTEM_PRIORITIES, **defaults.pod_priorities})
    return defaults.default_pod_priority()


#: Priority classes that every cluster has.
SYSTEM_PRIORITIES = {
    name: PriorityClass(name, value)
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}


def _class_value(item: Item, key: str, name: str, known: Mapping[str, PriorityClass]) -> int:
    if name in known:
        return known[name].value
    item.warn(key, f"there is no priority class {name}: the priority is 0", "add it to the folder")
    return 0


def _kind(item: Item, meta: ManifestMeta, usual: WorkKind) -> WorkKind:
    written = meta.annotations.get(label_names.KIND)
    if written is None:
        return usual
    inner = item.mapping("metadata").mapping("annotations")
    return inner.choice(label_names.KIND, WorkKind, usual)


def _submitted_ms(item: Item, meta: ManifestMeta) -> int:
    return meta.created_ms + _annotated_ms(item, meta, label_names.SUBMIT, 0)


def run_profile(item: Item, meta: ManifestMeta) -> RunProfile:
    """How work behaves in the twin, as far as its annotations say."""
    return RunProfile(runtime_ms=_annotated_ms(item, meta, label_names.RUNTIME, DEFAULT_RUNTIME_MS))


def _annotated_ms(item: Item, meta: ManifestMeta, key: str, default: int) -> int:
    written = meta.annotations.get(key)
    if written is None:
        return default
    try:
        return parse_duration_ms(written)
    except UnitError as error:
        item.mapping("metadata").mapping("annotations").refuse(key, str(error), written)
        return default
