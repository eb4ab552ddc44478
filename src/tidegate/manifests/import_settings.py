"""Cluster defaults of a folder: priority classes, LimitRanges, runtimes and Kueue's configuration."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.manifests.cluster_defaults import ClusterDefaults, PriorityClass, ResourceLimits
from tidegate.manifests.core_objects import joined, read_limit_range, read_overhead, read_priority_class
from tidegate.manifests.field_reader import Item
from tidegate.manifests.jobs.trainer import runtime_key
from tidegate.manifests.kinds import KUEUE, KUEUE_CONFIG, TRAINER
from tidegate.manifests.kueue_objects import KueueConfiguration, read_configuration
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, ObjectIndex
from tidegate.manifests.object_meta import read_meta


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
