"""From documents to everything that a run needs: nodes, shares, work, where it stands, and what others hold.

Must not know: files, or what is done with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tidegate.manifests.core_objects import read_node
from tidegate.manifests.findings import Findings, Origin
from tidegate.manifests.gpus import NVIDIA
from tidegate.manifests.import_other_queues import direct, plant
from tidegate.manifests.import_queues import read_shares
from tidegate.manifests.import_settings import read_settings, read_surroundings
from tidegate.manifests.import_workloads import read_works
from tidegate.manifests.jobs.to_workload import Imported
from tidegate.manifests.kinds import KUEUE
from tidegate.manifests.kueue_queues import read_consumed
from tidegate.manifests.object_index import DEFAULT_NAMESPACE, Document, Objects, sort_objects
from tidegate.manifests.reference_checks import link
from tidegate.model.hardware import Node, is_device
from tidegate.model.observed_status import Consumed, Foreign, Standing
from tidegate.model.queues import Shares
from tidegate.model.simulation import PlannedWorkload
from tidegate.model.struct import Resources, resources
from tidegate.model.work import PodSet, Share, Work


class Loaded(NamedTuple):
    """Everything that documents say."""

    nodes: tuple[Node, ...] = ()
    shares: Shares = Shares()
    work: tuple[PlannedWorkload, ...] = ()
    standings: tuple[tuple[str, Standing], ...] = ()  # by the id of the workload
    consumed: tuple[Consumed, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    origins: tuple[tuple[str, Origin], ...] = ()  # by the id of the workload: what it was made of


def load(documents: Iterable[Document], findings: Findings) -> Loaded:
    """Make everything of documents; what is wrong with them goes to the findings, and errors make it unusable."""
    objects = sort_objects(documents, findings)
    told = read_settings(objects)
    around = read_surroundings(objects, told)
    nodes = [read_node(item) for item in objects.of("", "Node")]
    works = read_works(objects, around)
    forest = plant(objects, works.work, _totals(nodes))
    work = [direct(one, forest) for one in works.work]
    namespaces = {one.planned.workload.id.partition("/")[0] for one in work}
    shares = read_shares(objects, told, forest, namespaces)
    link(objects, shares, work)
    nodes, work = _tell_vendors_apart(nodes, work)
    return Loaded(
        nodes=tuple(nodes),
        shares=shares,
        work=tuple(one.planned for one in work),
        standings=tuple((one.planned.workload.id, one.standing) for one in work if one.standing is not None),
        consumed=_consumed(objects),
        foreign=tuple(works.foreign),
        origins=tuple((one.planned.workload.id, one.item.origin) for one in work),
    )


def _consumed(objects: Objects) -> tuple[Consumed, ...]:
    found = [read_consumed(item, DEFAULT_NAMESPACE) for item in objects.of(KUEUE, "LocalQueue")]
    return tuple(used for used in found if used is not None)


def _totals(nodes: list[Node]) -> dict[str, int] | None:
    """What all nodes have, in the units of quota, GPUs in thousandths beside; None if there are none."""
    if not nodes:
        return None
    totals = {"gpu": sum(node.shape.gpu_count * 1000 for node in nodes)}
    for node in nodes:
        for name, amount in node.allocatable or ():
            totals[name] = totals.get(name, 0) + amount
    return totals


def _tell_vendors_apart(nodes: list[Node], work: list[Imported]) -> tuple[list[Node], list[Imported]]:
    """Where nodes have GPUs of several vendors, count them by name as well, so that none is taken for another."""
    vendors = {name for node in nodes for name, _ in node.allocatable or () if is_device(name)}
    if len(vendors) < 2:
        return nodes, work
    return [_with_vendor(node) for node in nodes], [_with_vendors(one) for one in work]


def _with_vendor(node: Node) -> Node:
    named = {name: amount for name, amount in node.allocatable or () if is_device(name)}
    capacity = resources({**dict(node.shape.capacity), **named})
    return msgspec.structs.replace(node, shape=msgspec.structs.replace(node.shape, capacity=capacity))


def _with_vendors(one: Imported) -> Imported:
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
