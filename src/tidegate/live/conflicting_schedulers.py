"""Whether another scheduler owns the same work: a running Kueue, or another instance of Tidegate."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.objects import time_ms
from tidegate.kube.transport.resources import LEASES, Resource
from tidegate.live.election import SCOPE_CLAIMS, LeaseName
from tidegate.live.lease import LeaseObject
from tidegate.live.scope_claim import InstanceScope, ScopeClaim, read_claims
from tidegate.model.units import HOUR_MS

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)


class ConflictSign(NamedTuple):
    """An object that shows that a Kueue runs."""

    resource: Resource
    name: str


#: What Kueue calls its program, the Lease of its leader, and the door that its work comes in by.
SIGNS = (
    ConflictSign(_DEPLOYMENTS, "kueue-controller-manager"),
    ConflictSign(LEASES, "c1f6bfd2.kueue.x-k8s.io"),
    ConflictSign(_WEBHOOKS, "kueue-mutating-webhook-configuration"),
)

#: How long ago a Lease may have been renewed, by clocks that differ, and still be held.
_STALE_MS = HOUR_MS

#: A claim is fresh for so many times its duration.
_FRESH = 4

_FORBIDDEN = 403


class ConflictingScheduler:
    """What was found of a running Kueue, and where we may not look."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.hidden: list[str] = []  # kinds that we may not read
        self.unanswered = ""  # why nothing is known


async def look_for_kueue(client: Client, now_ms: int) -> ConflictingScheduler:
    """Look for a running Kueue: its Deployment, the Lease of its leader, its webhooks."""
    conflicts = ConflictingScheduler()
    for resource, name in SIGNS:
        query = {"fieldSelector": f"metadata.name={name}"}
        answer = await client.ask(ApiRequest("GET", resource.path(), query, timeout_s=10))
        if answer.status == _FORBIDDEN:
            conflicts.hidden.append(resource.full_plural)
        elif not answer.ok:
            conflicts.unanswered = answer.text()
        else:
            for item in msgspec.json.decode(answer.body)["items"] or ():
                if _shows(resource, item, now_ms):
                    conflicts.found.append(_named(resource, item))
    return conflicts


async def look_for_instances(client: Client, lease: LeaseName, scope: InstanceScope, now_ms: int) -> list[ScopeClaim]:
    """Claims of other instances that overlap a scope and were renewed a short while ago, by clocks that may differ.

    One look cannot tell more; an instance that runs looks again and again.
    """
    answer = await client.ask(ApiRequest("GET", LEASES.path(*SCOPE_CLAIMS), timeout_s=10))
    try:
        claims = read_claims(msgspec.json.decode(answer.body, type=LeaseObject)) if answer.ok else []
    except msgspec.MsgspecError:
        return []
    return [
        claim
        for claim in claims
        if claim.lease != str(lease)
        and claim.scope.overlaps(scope)
        and now_ms - time_ms(claim.renew_time) < _FRESH * claim.lease_duration_seconds * 1000
    ]


def _shows(resource: Resource, item: Any, now_ms: int) -> bool:
    """Whether an object shows that it runs, and not only that it was installed once."""
    if resource is LEASES:
        return _is_held(item, now_ms)
    return resource is _WEBHOOKS or _is_running(item)


def _is_running(deployment: Any) -> bool:
    return bool(deployment.get("spec", {}).get("replicas", 1))


def _is_held(lease: Any, now_ms: int) -> bool:
    """Whether somebody holds it; one that was killed a while ago does not, though its name still stands there."""
    spec = lease.get("spec", {})
    return bool(spec.get("holderIdentity")) and time_ms(spec.get("renewTime")) > now_ms - _STALE_MS


def _named(resource: Resource, item: Any) -> str:
    meta = item["metadata"]
    return f"{resource.kind} {'/'.join(part for part in (meta.get('namespace', ''), meta['name']) if part)}"
