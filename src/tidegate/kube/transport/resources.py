"""API resources: group, version, plural and kind, and the paths of their objects."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Resource(NamedTuple):
    """A kind of object, by its plural."""

    group: str  # empty: the core group
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The apiVersion field of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_plural(self) -> str:
        """The plural with its group, unique, as in kubectl and RBAC: jobs.batch, pods."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def full_kind(self) -> str:
        """The kind with its group, unique, as kubectl prints it: job.batch, pod."""
        kind = self.kind.lower()
        return f"{kind}.{self.group}" if self.group else kind

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of all objects, of those in a namespace, of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if part:
            parts.append(part)
        return "/".join(parts)


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
