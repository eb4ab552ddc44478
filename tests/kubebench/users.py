"""Users of the control plane, each with a token and what it may do.

Must not know: how the server is told.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

_RBAC = "rbac.authorization.k8s.io"
ROLES, BINDINGS = f"/apis/{_RBAC}/v1/clusterroles", f"/apis/{_RBAC}/v1/clusterrolebindings"


@dataclass(frozen=True)
class User:
    """Somebody with a token; rules are those of a ClusterRole, and no groups means no privileges but these."""

    name: str
    rules: tuple[dict[str, Any], ...] = ()
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def line(self) -> str:
        """Its line in the server's token file."""
        return f'{self.token},{self.name},{self.name},"{",".join(self.groups)}"'


def rule(groups: str, resources: str, verbs: str) -> dict[str, Any]:
    """A rule of a role; words are separated by blanks, and `core` is the group without a name."""
    named = ["" if group == "core" else group for group in groups.split()]
    return {"apiGroups": named, "resources": resources.split(), "verbs": verbs.split()}


def grant(user: User) -> list[tuple[str, dict[str, Any]]]:
    """The objects that let a user do what its rules say, each with its path."""
    meta = {"name": f"kubebench-{user.name}"}
    return [
        (ROLES, {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": list(user.rules)}),
        (
            BINDINGS,
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": meta["name"]},
                "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user.name}],
            },
        ),
    ]


#: What Tidegate needs to bind pods, gate jobs and say why.
TIDEGATE = User(
    "tidegate",
    (
        rule("core", "nodes pods namespaces limitranges", "get list watch"),
        rule("core", "pods", "delete patch"),
        rule("core", "pods/binding pods/eviction", "create"),
        rule("core", "pods/status", "patch"),
        rule("batch", "jobs", "get list watch patch"),
        rule("batch", "jobs/status", "patch"),
        rule("core", "podtemplates", "create delete"),
        rule("autoscaling.x-k8s.io", "provisioningrequests", "create delete"),
        rule("apps", "statefulsets", "get list watch"),
        rule("jobset.x-k8s.io", "jobsets", "get list watch patch"),
        rule("kubeflow.org", "*", "get list watch patch"),
        rule("trainer.kubeflow.org", "trainjobs", "get list watch patch"),
        rule("trainer.kubeflow.org", "clustertrainingruntimes trainingruntimes", "get list watch"),
        rule("ray.io", "rayclusters rayjobs", "get list watch patch"),
        rule("core events.k8s.io", "events", "create patch"),
        rule("scheduling.k8s.io", "priorityclasses", "get list watch"),
        rule("coordination.k8s.io", "leases", "get list create update patch"),
        rule("core", "configmaps", "get create update patch"),
        rule("apps", "deployments", "list"),
        rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "list"),
        rule("node.k8s.io", "runtimeclasses", "get list watch"),
        rule("resource.k8s.io", "resourceslices deviceclasses resourceclaims", "get list watch"),
        rule("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaims/binding", "patch"),
        rule("kueue.x-k8s.io", "*", "get list watch"),
    ),
)
