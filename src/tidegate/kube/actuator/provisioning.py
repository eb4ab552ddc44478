"""Node requests for suspended jobs: ProvisioningRequests or CapacityBuffers for node autoscalers.

Node autoscalers watch pods, and a suspended job has none. A ProvisioningRequest asks for nodes for the whole job at
once; a CapacityBuffer for free room in the shape of its pods, until it starts. The job owns these objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.mirror.job_adapters import find
from tidegate.kube.mirror.job_patch import restored
from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.writes import Ref, Write, create, delete

REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
BUFFERS = Resource("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer")
TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")

_LONGEST_NAME = 200


class NodeRequestKind(StrEnum):
    """The kind of object that requests nodes."""

    NOTHING = "pods"  # only Unschedulable pods
    REQUEST = "provisioning-request"
    BUFFER = "capacity-buffer"


class NodeRequestOptions(NamedTuple):
    """How nodes are requested for work without pods."""

    means: NodeRequestKind = NodeRequestKind.NOTHING
    provisioning_class: str = ""  # of requests

    @property
    def kind(self) -> Resource | None:
        """The kind of object that the server must have."""
        return {NodeRequestKind.REQUEST: REQUESTS, NodeRequestKind.BUFFER: BUFFERS}.get(self.means)


#: Nodes are requested by pods only.
NO_NODE_REQUESTS = NodeRequestOptions()


def asking(job: SeenJob, sizes: dict[str, int], by: NodeRequestOptions) -> list[Write]:
    """Request nodes for a job: a PodTemplate for each pod set, and what refers to it; nothing if one is missing."""
    made = dict(_templates(job))
    if made.keys() != sizes.keys():
        return []
    writes = [create(TEMPLATES, {**_whole(job, TEMPLATES, name), "template": made[name]}) for name in sizes]
    refs = {name: {"podTemplateRef": {"name": _name(job, name)}} for name in sizes}
    if by.means is NodeRequestKind.BUFFER:
        specs = {name: {**refs[name], "replicas": pods} for name, pods in sizes.items()}
        return [*writes, *(create(BUFFERS, {**_whole(job, BUFFERS, name), "spec": specs[name]}) for name in sizes)]
    sets = [{**refs[name], "count": pods} for name, pods in sizes.items()]
    spec = {"provisioningClassName": by.provisioning_class, "podSets": sets}
    return [*writes, create(REQUESTS, {**_whole(job, REQUESTS), "spec": spec})]


def asking_no_more(job: SeenJob, sizes: dict[str, int], by: NodeRequestOptions) -> list[Write]:
    """Delete the node requests of a job that starts."""
    names = [_name(job, name) for name in sizes]
    asked = [(BUFFERS, name) for name in names] if by.means is NodeRequestKind.BUFFER else [(REQUESTS, _name(job))]
    return [delete(Ref(kind, job.ref.namespace, name)) for kind, name in [*asked, *((TEMPLATES, one) for one in names)]]


def _templates(job: SeenJob) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod templates of a job, as its owner wrote them."""
    thing = restored(job.adapter, msgspec.json.decode(job.thing))
    for name, path in job.adapter.templates(thing):
        found = find(thing, path)
        yield name, {"metadata": find(found, ("metadata",)) or {}, "spec": find(found, ("spec",)) or {}}


def _name(job: SeenJob, pod_set: str = "") -> str:
    """A name that is unique to this job."""
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


_NOT_FOUND = 404


async def find_lack(client: Client, by: NodeRequestOptions) -> str:
    """The API that the cluster lacks for node requests, and what to do; empty if it has it."""
    kind = by.kind
    if kind is None:
        return ""
    answer = await client.ask(ApiRequest("GET", f"/apis/{kind.group}/{kind.version}", timeout_s=10))
    if not answer.ok and answer.status != _NOT_FOUND:
        return f"cannot check whether the cluster has {kind.plural}.{kind.group}: {answer.text()}"
    served = msgspec.json.decode(answer.body).get("resources", ()) if answer.ok else ()
    if any(one.get("name") == kind.plural for one in served):
        return ""
    return (
        f"the cluster has no {kind.plural}.{kind.group}/{kind.version}; "
        "install a node autoscaler that has it, or leave the option out: pods that are Unschedulable ask for nodes then"
    )
