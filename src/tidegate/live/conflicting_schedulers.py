"""Conflicting schedulers: a running Kueue, or another instance of Tidegate that owns the same work."""

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
    """An object of a running Kueue."""

    resource: Resource
    name: str


#: Kueue's Deployment, the Lease of its leader, and its webhooks.
SIGNS = (
    ConflictSign(_DEPLOYMENTS, "kueue-controller-manager"),
    ConflictSign(LEASES, "c1f6bfd2.kueue.x-k8s.io"),
    ConflictSign(_WEBHOOKS, "kueue-mutating-webhook-configuration"),
)

#: How long ago a held Lease may have been renewed, as clocks differ.
_STALE_MS = HOUR_MS

#: Times its duration that a claim is fresh.
_FRESH = 4

_FORBIDDEN = 403


class ConflictingScheduler:
    """The objects found of a running Kueue, and the kinds that may not be listed."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.hidden: list[str] = []  # kinds that may not be listed
        self.unanswered = ""  # the error, if the server did not answer


async def look_for_kueue(client: Client, now_ms: int) -> ConflictingScheduler:
    """Find a running Kueue by its Deployment, Lease and webhooks."""
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
    """Fresh claims of other instances that overlap a scope, as far as one read can tell, with clocks that differ."""
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
    """Whether an object shows that Kueue runs, and not only that it was installed."""
    if resource is LEASES:
        return _is_held(item, now_ms)
    return resource is _WEBHOOKS or _is_running(item)


def _is_running(deployment: Any) -> bool:
    return bool(deployment.get("spec", {}).get("replicas", 1))


def _is_held(lease: Any, now_ms: int) -> bool:
    """Whether a Lease is held: it has a holder and was renewed within the last hour."""
    spec = lease.get("spec", {})
    return bool(spec.get("holderIdentity")) and time_ms(spec.get("renewTime")) > now_ms - _STALE_MS


def _named(resource: Resource, item: Any) -> str:
    meta = item["metadata"]
    return f"{resource.kind} {'/'.join(part for part in (meta.get('namespace', ''), meta['name']) if part)}"
