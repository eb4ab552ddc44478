"""The quota check: whether quotas use the resource names of pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.deploy.access_review import list_objects
from tidegate.deploy.check_result import CheckLevel, CheckResult, passed
from tidegate.kube.transport.client import Client
from tidegate.kube.transport.resources import NODES, PODS
from tidegate.manifests.core_objects import read_node
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.jobs.pod import read_pod
from tidegate.manifests.label_names import QUEUE
from tidegate.model.queues import Queue, QueueSetup, in_any_namespace

#: Most pages that are read: the kinds of pods of a large cluster are in the first of them.
_MOST_PAGES = 20

#: Resources that many queues do not count.
_USUAL = ("cpu", "memory", "pods", "ephemeral-storage")

_PODS = "pods"


async def check_quota(client: Client, shares: QueueSetup) -> CheckResult:
    """Compare quotas with the requests of pods that name a queue, and with the resources of nodes."""
    if not shares.queues:
        return passed("quota", "the policy has no queues: nothing is counted")
    nodes, pods = (list_objects(client, kind, most_pages=_MOST_PAGES) for kind in (NODES, PODS))
    offered = {name async for node in nodes for name in _on_node(node)}
    requested = [_request(pod) async for pod in pods]
    problems = [*_uncounted(shares, requested), *_nowhere(shares.queues, offered)]
    if problems:
        expected = "quotas by the names that pods and nodes use"
        remedy = "add these to the queue (`other:` in a tidegate.yaml), or correct the names"
        return CheckResult("quota", CheckLevel.WARN, "; ".join(dict.fromkeys(problems)), expected, remedy)
    known = sum(1 for queue, _ in requested if _queue_of(shares, queue) is not None)
    return passed("quota", f"counts what nodes have, and what {known} pods of its queues ask for")


def _item(thing: Mapping[str, Any], kind: str) -> Item:
    return Item(thing, ManifestFindings(0), ObjectOrigin(kind=kind, name=thing["metadata"]["name"]))


def _on_node(thing: Mapping[str, Any]) -> Iterator[str]:
    for name, amount in read_node(_item(thing, "Node")).allocatable or ():
        if amount:
            yield name


def _request(thing: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """The LocalQueue that a pod names, and the resources that it requests."""
    meta = thing["metadata"]
    queue = (meta.get("labels") or {}).get(QUEUE, "")
    asked = frozenset(name for name, amount in read_pod(_item(thing, "Pod")).charge if amount)
    return f"{meta['namespace']}/{queue}" if queue else "", asked


def _queue_of(shares: QueueSetup, name: str) -> Queue | None:
    by_name = {entrance.id: entrance.queue for entrance in shares.entrances}
    found = by_name.get(name, by_name.get(in_any_namespace(name))) if name else None
    return next((queue for queue in shares.queues if queue.name == found), None)


def _uncounted(shares: QueueSetup, requested: Iterable[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """Resources that pods of a queue request and no flavor covers."""
    for name, asked in sorted(set(requested), key=lambda one: (one[0], sorted(one[1]))):
        queue = _queue_of(shares, name)
        if queue is None:
            if name:
                yield f"pods name the queue {name}, which is no LocalQueue"
            continue
        covered = {resource for group in queue.groups for resource in group.resources}
        left = asked - covered - (set(_USUAL) if shares.ignore_undeclared else set())
        then = "is not counted" if shares.ignore_undeclared else "keeps them from being admitted"
        yield from (f"pods of queue {queue.name} ask for {resource}, which {then}" for resource in sorted(left))


def _nowhere(queues: Iterable[Queue], offered: set[str]) -> Iterator[str]:
    """Resources that have quota and no node has."""
    for queue in queues:
        counted = {quota.resource for quota in queue.quotas if quota.nominal and quota.resource != _PODS}
        yield from (f"queue {queue.name} counts {name}, which no node has" for name in sorted(counted - offered))
