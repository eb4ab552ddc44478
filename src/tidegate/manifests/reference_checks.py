"""Checks references between objects: flavors, cohorts, queues, topologies, checks, namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.config.messages import did_you_mean
from tidegate.manifests.field_reader import Item
from tidegate.manifests.jobs.to_workload import KUEUE, ImportedWorkload
from tidegate.manifests.kinds import KUEUE as GROUP
from tidegate.manifests.object_index import ObjectIndex
from tidegate.model.queues import Queue, QueueSetup


def check_references(objects: ObjectIndex, shares: QueueSetup, work: Iterable[ImportedWorkload]) -> None:
    """Report references to objects that do not exist, and cohorts in a cycle."""
    flavors, checks = objects.names(GROUP, "ResourceFlavor"), objects.names(GROUP, "AdmissionCheck")
    topologies = objects.names(GROUP, "Topology")
    for item in objects.of(GROUP, "ResourceFlavor"):
        _refer(item.part("spec"), "topologyName", topologies, "Topology")
    for kind in ("ClusterQueue", "Cohort"):
        for item in objects.of(GROUP, kind):
            _check_groups(item, flavors)
    for item in objects.of(GROUP, "ClusterQueue"):
        for check in item.part("spec", "admissionChecksStrategy").parts("admissionChecks"):
            _refer(check, "name", checks, "AdmissionCheck")
    _check_cohorts(objects, shares)
    _check_entrances(objects, shares)
    _check_work(objects.names(GROUP, "LocalQueue"), work)


def _refer(item: Item, key: str, known: set[str], kind: str) -> None:
    name = item.get(key)
    if isinstance(name, str) and name and name not in known:
        hint = did_you_mean(name, known) or "add it to the folder, or correct the name"
        item.report(key, found=f"there is no {kind} {name!r}", hint=hint)


def _check_groups(item: Item, flavors: set[str]) -> None:
    for group in item.part("spec").parts("resourceGroups"):
        for flavor in group.parts("flavors"):
            _refer(flavor, "name", flavors, "ResourceFlavor")


def _check_cohorts(objects: ObjectIndex, shares: QueueSetup) -> None:
    """Report cohorts whose parents form a cycle: Kueue admits nothing in it."""
    parents = {cohort.name: cohort.parent for cohort in shares.cohorts}
    for item in objects.of(GROUP, "Cohort"):
        way, at = [item.origin.name], parents.get(item.origin.name, "")
        while at and at not in way:
            way.append(at)
            at = parents.get(at, "")
        if at == item.origin.name:
            cycle = " → ".join([*way, at])
            hint = "leave out the parentName of one of them"
            item.part("spec").report("parentName", found=f"the cohorts form a cycle: {cycle}", hint=hint)


def _check_entrances(objects: ObjectIndex, shares: QueueSetup) -> None:
    queues = {queue.name: queue for queue in shares.queues}
    labels = {namespace.name: dict(namespace.labels) for namespace in shares.namespaces}
    written = {item.origin.name for item in objects.of("", "Namespace")}
    for item in objects.of(GROUP, "LocalQueue"):
        spec = item.part("spec")
        _refer(spec, "clusterQueue", objects.names(GROUP, "ClusterQueue"), "ClusterQueue")
        queue, namespace = queues.get(str(spec.get("clusterQueue"))), item.origin.name.partition("/")[0]
        if queue is not None and not _admits(queue, labels.get(namespace, {})):
            there = "its labels do not match" if namespace in written else "it is not in the folder"
            found = f"the queue {queue.name} admits no work from namespace {namespace}: {there}"
            item.part("metadata").warn("namespace", found, "add a Namespace with the labels that the queue wants")


def _admits(queue: Queue, labels: dict[str, str]) -> bool:
    if queue.namespaces is None:
        return True  # reported for the queue
    return all(requirement.holds(labels) for requirement in queue.namespaces)


def _check_work(local_queues: set[str], work: Iterable[ImportedWorkload]) -> None:
    for one in work:
        name, key = one.queue.name, one.queue.key
        if one.queue.system != KUEUE or not name or name in local_queues:
            continue
        hint = did_you_mean(name, local_queues) or "add it to the folder: until then the work waits"
        one.item.part(*key[:-1]).warn(key[-1], f"there is no LocalQueue {name!r}", hint)
