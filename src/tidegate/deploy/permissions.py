"""Permissions of each mode, with reasons: one table for the roles, the checks and the docs.

It is made from the watched kinds, so that a new kind gets its permissions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.deploy.reserved_annotations import RESERVED
from tidegate.kube.mirror.dra import CLAIM_KINDS, CLAIMS
from tidegate.kube.mirror.job_adapters import KINDS
from tidegate.kube.mirror.namespaces import NAMESPACES
from tidegate.kube.mirror.queue_objects import AROUND_KINDS, QUEUE_KINDS
from tidegate.kube.transport.resources import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS, Resource
from tidegate.live.conflicting_schedulers import SIGNS
from tidegate.live.election import SCOPE_CLAIMS, LeaseName
from tidegate.live.handover import handover_config_map
from tidegate.live.modes import Mode

#: The kinds that are watched in all modes.
FOLLOWED = (NODES, PODS, *(adapter.resource for adapter in KINDS), *AROUND_KINDS, *CLAIM_KINDS)

#: Kinds of jobs with a suspend field.
SUSPENDED = tuple(adapter.resource for adapter in KINDS if adapter.suspend)


class Permission(NamedTuple):
    """Verbs on a kind of object, and why they are needed."""

    resource: Resource
    verbs: tuple[str, ...]
    why: str
    part: str = ""  # subresource
    own: bool = False  # only in the namespace of the installation
    names: tuple[str, ...] = ()  # only these objects; none: all

    @property
    def thing(self) -> str:
        """The resource of a role's rule."""
        return f"{self.resource.plural}/{self.part}" if self.part else self.resource.plural


def permissions_of(mode: Mode, lease: LeaseName, policy: str) -> list[Permission]:
    """The permissions of a mode; `policy` is the ConfigMap with the policy, empty if there is none."""
    given = [*_watching(), *_leading(lease, policy)]
    if mode.writes:
        given += _gating(lease)
    if mode is Mode.BIND:
        given += _binding()
    return given


def _watching() -> list[Permission]:
    follow = [Permission(kind, ("list", "watch"), "watch nodes, work and what work depends on") for kind in FOLLOWED]
    queues = [Permission(kind, ("list", "watch"), "read the policy from Kueue's objects") for kind in QUEUE_KINDS]
    queues.append(Permission(NAMESPACES, ("list", "watch"), "read which namespaces are managed"))
    rivals = [Permission(sign.resource, ("list",), "detect a running Kueue", names=(sign.name,)) for sign in SIGNS]
    return [*follow, *queues, *rivals]


def _leading(lease: LeaseName, policy: str) -> list[Permission]:
    why = "lead, one replica at a time"
    held = Permission(LEASES, ("get", "update", "create"), why, own=True, names=(lease.name,))
    read = Permission(CONFIG_MAPS, ("get", "list", "watch"), "read the policy", own=True, names=(policy,))
    return [held, read] if policy else [held]


def _gating(lease: LeaseName) -> list[Permission]:
    kept = handover_config_map(lease).name
    return [
        *(Permission(kind, ("get", "patch"), "start and stop jobs") for kind in SUSPENDED),
        *(Permission(kind, ("patch",), "free the nodes of a job that was stopped", "status") for kind in SUSPENDED),
        Permission(PODS, ("patch",), "lift the gate of a pod"),
        Permission(PODS, ("create",), "evict pods, as their budgets allow", "eviction"),
        Permission(EVENTS, ("create",), "write Events about work"),
        Permission(PODS, ("patch",), "write in a pod's condition why it waits", "status"),
        Permission(RESERVED, ("update",), "write the reserved annotations"),
        Permission(CONFIG_MAPS, ("get", "patch", "create"), "hand over to the next leader", own=True, names=(kept,)),
        Permission(LEASES, ("get", "update", "create"), "claim the work that it manages", names=(SCOPE_CLAIMS.name,)),
    ]


def _binding() -> list[Permission]:
    devices = "give claims their devices"
    return [
        Permission(PODS, ("create",), "bind pods", "binding"),
        Permission(PODS, ("get",), "see whether a pod was bound"),
        Permission(PODS, ("patch",), "write in a pod's condition why it waits", "status"),
        Permission(CLAIMS, ("get", "patch"), devices),
        Permission(CLAIMS, ("patch",), devices, "status"),
        Permission(CLAIMS, ("patch",), devices, "binding"),
    ]


def role_rules(given: list[Permission]) -> list[dict[str, Any]]:
    """Permissions as the rules of a role: kinds of one group with the same verbs share a rule."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for grant in given:
        verbs.setdefault((grant.resource.group, grant.thing, grant.names), set()).update(grant.verbs)
    together: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, thing, names), all_verbs in verbs.items():
        together.setdefault((group, names, tuple(sorted(all_verbs))), []).append(thing)
    made = []
    for (group, names, may), things in together.items():
        only = {"resourceNames": list(names)} if names else {}
        made.append({"apiGroups": [group], "resources": things, **only, "verbs": list(may)})
    return made
