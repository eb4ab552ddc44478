"""Nodes asked for by name: a ProvisioningRequest for a job that waits, suspended, and deserves nodes.

Node autoscalers look at pods, and a suspended job has none: where they understand such requests they are told so.
What is written belongs to the job, and goes with it.
Must not know: what deserves nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidegate.kube.jobs import SeenJob
from tidegate.kube.kinds import find
from tidegate.kube.pins import restored
from tidegate.kube.resources import Resource
from tidegate.kube.writes import Ref, Write, create, delete

REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")

_LONGEST_NAME = 200


def asking(job: SeenJob, sizes: dict[str, int], provisioning_class: str) -> list[Write]:
    """Ask for nodes for a job: a template for each pod set, and the request; nothing if it has not all templates."""
    made = dict(_templates(job))
    if made.keys() != sizes.keys():
        return []
    writes = [create(TEMPLATES, {**_whole(job, TEMPLATES, name), "template": made[name]}) for name in sizes]
    sets = [{"podTemplateRef": {"name": _name(job, name)}, "count": pods} for name, pods in sizes.items()]
    spec = {"provisioningClassName": provisioning_class, "podSets": sets}
    return [*writes, create(REQUESTS, {**_whole(job, REQUESTS), "spec": spec})]


def asking_no_more(job: SeenJob, sizes: dict[str, int]) -> list[Write]:
    """Take back what was asked for a job that starts."""
    namespace = job.ref.namespace
    templates = [delete(Ref(TEMPLATES, namespace, _name(job, name))) for name in sizes]
    return [delete(Ref(REQUESTS, namespace, _name(job))), *templates]


def _templates(job: SeenJob) -> Iterator[tuple[str, dict[str, Any]]]:
    """The templates of a job's pods, as its owner wrote them."""
    thing = restored(job.handling, msgspec.json.decode(job.thing))
    for name, path in job.handling.templates(thing):
        found = find(thing, path)
        yield name, {"metadata": find(found, ("metadata",)) or {}, "spec": found["spec"]}


def _name(job: SeenJob, pod_set: str = "") -> str:
    """A name that only this job gives."""
    parts = ["tidegate", job.ref.name[:_LONGEST_NAME], job.ref.uid[:8], *([pod_set] if pod_set else [])]
    return "-".join(parts)


def _whole(job: SeenJob, resource: Resource, pod_set: str = "") -> dict[str, Any]:
    owner = {
        "apiVersion": job.ref.resource.api_version,
        "kind": job.ref.resource.kind,
        "name": job.ref.name,
        "uid": job.ref.uid,
    }
    about = {"name": _name(job, pod_set), "namespace": job.ref.namespace, "ownerReferences": [owner]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about}
