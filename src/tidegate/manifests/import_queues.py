"""Imports the queues of a folder, and the cluster defaults that apply to its jobs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.manifests.cluster_defaults import ClusterDefaults, PriorityClass, ResourceLimits
from tidegate.manifests.core_objects import (
    joined,
    named_namespace,
    read_limit_range,
    read_namespace,
    read_overhead,
    read_priority_class,
)
from tidegate.manifests.field_reader import Item
from tidegate.manifests.import_other_queues import OtherQueues
from tidegate.manifests.jobs.trainer import runtime_key
from tidegate.manifests.kinds import KUEUE, KUEUE_CONFIG, TRAINER
from tidegate.manifests.kueue_objects import (
    KueueConfiguration,
    read_admission_check,
    read_configuration,
    read_resource_flavor,
    read_topology,
)
from tidegate.manifests.kueue_queues import read_cluster_queue, read_cohort, read_local_queue
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, ObjectIndex
from tidegate.manifests.object_meta import read_meta
from tidegate.model.queues import FairSharing, Namespace, Queue, QueueSetup


def read_queue_setup(
    objects: ObjectIndex, kueue: KueueConfiguration, other: OtherQueues, namespaces: Iterable[str]
) -> QueueSetup:
    """The queues of a folder; `namespaces` are those that work is in."""
    controllers = dict(read_admission_check(item) for item in objects.of(KUEUE, "AdmissionCheck"))
    queues = [with_controllers(read_cluster_queue(item), controllers) for item in objects.of(KUEUE, "ClusterQueue")]
    entrances = [read_local_queue(item, DEFAULT_NAMESPACE) for item in objects.of(KUEUE, "LocalQueue")]
    submitting = {entrance.id.partition("/")[0] for entrance in entrances} | set(namespaces)
    shared_out = FairSharing() if other.queues and not queues else None  # other systems always share fairly
    return QueueSetup(
        flavors=(*map(read_resource_flavor, objects.of(KUEUE, "ResourceFlavor")), *other.flavors),
        cohorts=(*map(read_cohort, objects.of(KUEUE, "Cohort")), *other.cohorts),
        queues=(*queues, *other.queues),
        entrances=tuple(entrances),
        namespaces=_namespaces(objects, submitting if queues or entrances else set()),
        topologies=tuple(map(read_topology, objects.of(KUEUE, "Topology"))),
        fair=kueue.fair or shared_out,
        usage=kueue.usage,
        partial=kueue.partial,
        retargets=kueue.retargets,
        ignore_undeclared=kueue.ignore_undeclared,
        topology=kueue.topology,
    )


def with_controllers(queue: Queue, controllers: dict[str, str]) -> Queue:
    """The queue with the controllers of its checks, as far as they are known."""
    replace = msgspec.structs.replace
    checks = tuple(replace(check, controller=controllers.get(check.name, "")) for check in queue.checks)
    return replace(queue, checks=checks)


def _namespaces(objects: ObjectIndex, used: set[str]) -> tuple[Namespace, ...]:
    """The namespaces of the folder, and those that are used without being written down."""
    written = [read_namespace(item) for item in objects.of("", "Namespace")]
    known = {namespace.name for namespace in written}
    return (*written, *(named_namespace(name) for name in sorted(used - known)))


# -- cluster defaults -------------------------------------------------------------------------------------------


def read_kueue_configuration(objects: ObjectIndex) -> KueueConfiguration:
    """Kueue's configuration; of several the first counts."""
    found = [read_configuration(item) for item in objects.of(KUEUE_CONFIG, "Configuration")]
    for item in objects.of(KUEUE_CONFIG, "Configuration")[1:]:
        item.report("kind", found="a second configuration of Kueue", hint="keep one of them")
    return found[0] if found else KueueConfiguration()


def read_cluster_defaults(objects: ObjectIndex, kueue: KueueConfiguration) -> ClusterDefaults:
    """The defaults that apply to the jobs of a folder."""
    return ClusterDefaults(
        namespace=DEFAULT_NAMESPACE,
        workload_priorities=_by_name(map(read_priority_class, objects.of(KUEUE, "WorkloadPriorityClass"))),
        pod_priorities=_by_name(map(read_priority_class, objects.of("scheduling.k8s.io", "PriorityClass"))),
        queues_by_default=frozenset(
            read_meta(item.quiet(), DEFAULT_NAMESPACE).namespace
            for item in objects.of(KUEUE, "LocalQueue")
            if item.origin.name.endswith("/default")
        ),
        container_bounds=_bounds(objects.of("", "LimitRange"), "Container"),
        pod_bounds=_bounds([item.quiet() for item in objects.of("", "LimitRange")], "Pod"),
        overheads={item.origin.name: read_overhead(item) for item in objects.of("node.k8s.io", "RuntimeClass")},
        training_runtimes=_runtimes(objects),
        excluded=kueue.excluded,
        transformations=kueue.transformations,
        gates=kueue.gates,
    )


def _by_name(classes: Iterable[PriorityClass]) -> dict[str, PriorityClass]:
    return {found.name: found for found in classes}


def _bounds(items: Iterable[Item], kind: str) -> dict[str, ResourceLimits]:
    found: dict[str, ResourceLimits] = {}
    for item in items:
        namespace = read_meta(item, DEFAULT_NAMESPACE).namespace
        bounds = read_limit_range(item).get(kind)
        if bounds is not None:
            found[namespace] = joined(found[namespace], bounds) if namespace in found else bounds
    return found


def _runtimes(objects: ObjectIndex) -> dict[str, Item]:
    found = {}
    for kind in ("ClusterTrainingRuntime", "TrainingRuntime"):
        for item in objects.of(TRAINER, kind):
            meta = read_meta(item, DEFAULT_NAMESPACE)
            found[runtime_key(kind, meta.name, meta.namespace)] = item
    return found
