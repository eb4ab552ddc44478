"""Users of the control plane, each with a token and what it may do.

Must not know: how the server is told.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from tidegate.deploy.permissions import permissions_of, role_rules
from tidegate.live.election import LeaseName
from tidegate.live.modes import Mode

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


#: What it takes to lead and to bind pods, and nothing of what a cluster need not have.
NARROW = User(
    "narrow",
    (
        rule("core", "nodes pods", "get list watch"),
        rule("batch", "jobs", "get list watch"),
        rule("coordination.k8s.io", "leases", "get list create update"),
        rule("core", "configmaps", "get create patch"),
        rule("core", "pods/binding", "create"),
        rule("core", "pods/status", "patch"),
    ),
)


def _shipped() -> tuple[dict[str, Any], ...]:
    """What the role for `bind` allows, in every namespace and whatever Leases and ConfigMaps are called."""
    given = permissions_of(Mode.BIND, LeaseName("", ""), "policy")
    return tuple(role_rules([grant._replace(names=()) if grant.own else grant for grant in given]))


#: What Tidegate may do where it binds, as it is shipped, and what `--ask-nodes-by` needs.
TIDEGATE = User(
    "tidegate",
    (
        *_shipped(),
        rule("core", "podtemplates", "create delete"),
        rule("autoscaling.x-k8s.io", "capacitybuffers provisioningrequests", "create delete"),
    ),
)
