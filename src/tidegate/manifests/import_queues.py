"""Makes one queue setup of all the queues of a folder."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.manifests.core_objects import named_namespace, read_namespace
from tidegate.manifests.import_other_queues import OtherQueues
from tidegate.manifests.kinds import KUEUE
from tidegate.manifests.kueue_objects import (
    KueueConfiguration,
    read_admission_check,
    read_resource_flavor,
    read_topology,
)
from tidegate.manifests.kueue_queues import read_cluster_queue, read_cohort, read_local_queue
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, ObjectIndex
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
