"""Imports documents: nodes, queues, work, its observed status, and unmanaged pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidegate.manifests.core_objects import read_node
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.gpus import NVIDIA
from tidegate.manifests.import_other_queues import read_other_queues, resolve_queue
from tidegate.manifests.import_queues import read_cluster_defaults, read_kueue_configuration, read_queue_setup
from tidegate.manifests.import_workloads import read_workloads
from tidegate.manifests.jobs.to_workload import ImportedWorkload
from tidegate.manifests.kinds import KUEUE
from tidegate.manifests.kueue_queues import read_decayed_usage
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, ManifestDocument, ObjectIndex, index_objects
from tidegate.manifests.reference_checks import check_references
from tidegate.model.hardware import Node, is_device
from tidegate.model.observed_status import DecayedUsage, ObservedStatus, UnmanagedPods
from tidegate.model.queues import QueueSetup
from tidegate.model.simulation import PlannedWorkload
from tidegate.model.struct import Resources, resources
from tidegate.model.work import PodSet, Share, Work


class ImportedCluster(NamedTuple):
    """What documents become."""

    nodes: tuple[Node, ...] = ()
    shares: QueueSetup = QueueSetup()
    work: tuple[PlannedWorkload, ...] = ()
    standings: tuple[tuple[str, ObservedStatus], ...] = ()  # by the id of the workload
    consumed: tuple[DecayedUsage, ...] = ()
    foreign: tuple[UnmanagedPods, ...] = ()
    origins: tuple[tuple[str, ObjectOrigin], ...] = ()  # by the id of the workload: what it was made of


def import_documents(documents: Iterable[ManifestDocument], findings: ManifestFindings) -> ImportedCluster:
    """Import documents; with an error among the findings the result is not usable."""
    objects = index_objects(documents, findings)
    kueue = read_kueue_configuration(objects)
    defaults = read_cluster_defaults(objects, kueue)
    nodes = [read_node(item) for item in objects.of("", "Node")]
    imported, unmanaged = read_workloads(objects, defaults)
    other_queues = read_other_queues(objects, imported, _totals(nodes))
    work = [resolve_queue(one, other_queues) for one in imported]
    namespaces = {one.planned.workload.id.partition("/")[0] for one in work}
    shares = read_queue_setup(objects, kueue, other_queues, namespaces)
    check_references(objects, shares, work)
    nodes, work = _count_by_vendor(nodes, work)
    return ImportedCluster(
        nodes=tuple(nodes),
        shares=shares,
        work=tuple(one.planned for one in work),
        standings=tuple((one.planned.workload.id, one.standing) for one in work if one.standing is not None),
        consumed=_consumed(objects),
        foreign=tuple(unmanaged),
        origins=tuple((one.planned.workload.id, one.item.origin) for one in work),
    )


def _consumed(objects: ObjectIndex) -> tuple[DecayedUsage, ...]:
    found = [read_decayed_usage(item, DEFAULT_NAMESPACE) for item in objects.of(KUEUE, "LocalQueue")]
    return tuple(used for used in found if used is not None)


def _totals(nodes: list[Node]) -> dict[str, int] | None:
    """What all nodes have in the units of quota, and GPUs in thousandths; None if there are none."""
    if not nodes:
        return None
    totals = {"gpu": sum(node.shape.gpu_count * 1000 for node in nodes)}
    for node in nodes:
        for name, amount in node.allocatable or ():
            totals[name] = totals.get(name, 0) + amount
    return totals


def _count_by_vendor(nodes: list[Node], work: list[ImportedWorkload]) -> tuple[list[Node], list[ImportedWorkload]]:
    """Where nodes have GPUs of several vendors, count them by name as well, so that none is taken for another."""
    vendors = {name for node in nodes for name, _ in node.allocatable or () if is_device(name)}
    if len(vendors) < 2:
        return nodes, work
    return [_with_vendor(node) for node in nodes], [_with_vendors(one) for one in work]


def _with_vendor(node: Node) -> Node:
    named = {name: amount for name, amount in node.allocatable or () if is_device(name)}
    capacity = resources({**dict(node.shape.capacity), **named})
    return msgspec.structs.replace(node, shape=msgspec.structs.replace(node.shape, capacity=capacity))


def _with_vendors(one: ImportedWorkload) -> ImportedWorkload:
    replace, workload = msgspec.structs.replace, one.planned.workload
    pod_sets = tuple(_asking_by_name(pods) for pods in workload.work.pod_sets)
    work: Work = replace(workload.work, pod_sets=pod_sets)
    return one._replace(planned=replace(one.planned, workload=replace(workload, work=work)))


def _asking_by_name(pods: PodSet) -> PodSet:
    if pods.gpu.share is not Share.WHOLE:
        return pods
    charge: Resources = pods.charge or ()
    named = {name: amount for name, amount in charge if is_device(name)} or {NVIDIA: pods.gpu.count}
    return msgspec.structs.replace(pods, request=resources({**dict(pods.request), **named}))
