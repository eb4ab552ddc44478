"""Checks of an installation: other instances, field managers, and leftovers of an uninstall. None writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from tidegate.deploy.access_review import AccessReviewError, list_objects
from tidegate.deploy.check_result import CheckLevel, CheckResult, passed
from tidegate.deploy.deployment_manifest import SELECTOR
from tidegate.deploy.install_objects import objects
from tidegate.deploy.install_spec import NAME, InstallSpec
from tidegate.deploy.server_side_apply import INSTALLER, resource_of
from tidegate.deploy.work_cleanup import find_written
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.objects import time_ms
from tidegate.kube.transport.resources import LEASES, Resource
from tidegate.live.conflicting_schedulers import look_for_instances
from tidegate.live.election import LeaseName
from tidegate.live.lease import LeaseSpec
from tidegate.live.modes import Mode
from tidegate.live.scope_claim import InstanceScope, scope_of

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_ANSWER_S, _NOT_FOUND = 10.0, 404

#: Times its duration that a held Lease may be old, as clocks differ.
_STALE = 4

#: Expected field managers of installed objects.
_OWNERS = frozenset((INSTALLER, "tidegate", "kube-controller-manager", "kube-apiserver"))


async def check_instances(client: Client, lease: LeaseName, mode: Mode, now_ms: int) -> CheckResult:
    """Check for other instances, which would decide on the same pods.

    An instance that writes claims its scope. A shadow, or an earlier version, shows in its Lease and its Deployment.
    """
    claims = await look_for_instances(client, lease, InstanceScope(), now_ms)
    same = [claim for claim in claims if claim.scope.overlaps(scope_of(mode, NAME))]
    others = [f"Lease {claim.lease} ({claim.scope}; {claim.holder} leads)" for claim in same]
    if others and mode.writes:
        found = f"another instance manages the same work: {', '.join(others)}"
        return CheckResult(
            "instances", CheckLevel.FAIL, found, "one instance for one work", "stop it, or use --mode shadow"
        )
    known = {claim.lease for claim in claims}
    leaders = [(where, holder) for where, holder in await _leaders(client, lease, now_ms) if where not in known]
    others += [f"Lease {where} ({holder} leads)" for where, holder in sorted(leaders)]
    deployments = list_objects(client, _DEPLOYMENTS, labelSelector=SELECTOR)
    homes = {one["metadata"]["namespace"] async for one in deployments}
    homes -= {lease.namespace, *(where.partition("/")[0] for where in known)}
    others += [f"a Deployment in {home}" for home in sorted(homes)]
    if not others:
        return passed("instances", "no other instance manages the same work")
    level = CheckLevel.FAIL if mode.writes else CheckLevel.WARN
    remedy = "tidegate uninstall --namespace the other, or give each its own cluster"
    return CheckResult("instances", level, f"other instances: {', '.join(others)}", "one instance for one work", remedy)


async def _leaders(client: Client, lease: LeaseName, now_ms: int) -> list[tuple[str, str]]:
    """Held Leases of the same name in other namespaces."""
    found = []
    async for item in list_objects(client, LEASES, fieldSelector=f"metadata.name={lease.name}"):
        where, spec = item["metadata"]["namespace"], msgspec.convert(item.get("spec") or {}, LeaseSpec)
        if where != lease.namespace and is_held(spec, now_ms):
            found.append((f"{where}/{lease.name}", spec.holder_identity or ""))
    return found


def is_held(spec: LeaseSpec, now_ms: int) -> bool:
    """Whether a Lease is held and was renewed recently."""
    age_ms = now_ms - time_ms(spec.renew_time)
    return bool(spec.holder_identity) and age_ms < _STALE * 1000 * (spec.lease_duration_seconds or 15)


async def check_managers(client: Client, namespace: str, mode: Mode) -> CheckResult:
    """Check for other field managers of installed objects: they would stop the next installation."""
    found: Counter[str] = Counter()
    for thing in objects(InstallSpec(mode=mode, namespace=namespace)):
        meta = thing["metadata"]
        answer = await client.ask(
            ApiRequest("GET", resource_of(thing).path(meta.get("namespace", ""), meta["name"]), timeout_s=_ANSWER_S)
        )
        if answer.status == _NOT_FOUND:
            continue
        if not answer.ok:
            raise AccessReviewError(answer.text())
        for manager in _managers(msgspec.json.decode(answer.body)):
            found[manager] += 1
    if not found:
        return passed("managers", f"{INSTALLER} owns the installed objects, or nothing is installed")
    told = ", ".join(f"{manager} (of {count} objects)" for manager, count in sorted(found.items()))
    remedy = "tidegate install --force-conflicts takes them over, if no other tool needs them"
    return CheckResult("managers", CheckLevel.WARN, f"fields are owned by {told}", f"{INSTALLER} alone", remedy)


def _managers(thing: dict[str, Any]) -> set[str]:
    """The unexpected field managers of an object."""
    entries = thing["metadata"].get("managedFields") or ()
    return {one.get("manager", "") for one in entries if one.get("subresource") != "status"} - _OWNERS


async def check_leftovers(client: Client, lease: LeaseName, now_ms: int) -> CheckResult:
    """Check for gates and annotations in work while no replica leads."""
    answer = await client.ask(ApiRequest("GET", LEASES.path(*lease), timeout_s=_ANSWER_S))
    if answer.ok and is_held(msgspec.convert(msgspec.json.decode(answer.body).get("spec") or {}, LeaseSpec), now_ms):
        return passed("leftovers", "a replica leads and maintains what it writes")
    gates = notes = 0
    async for written in find_written(client):
        gates, notes = gates + written.gate, notes + (not written.gate)
    if not gates and not notes:
        return passed("leftovers", "no gates and no annotations of Tidegate")
    found = f"no replica leads; pods and templates with a gate: {gates}; objects with annotations: {notes}"
    remedy = "let a replica lead, or tidegate uninstall, which takes them back"
    return CheckResult("leftovers", CheckLevel.WARN, found, "a leader that maintains them, or none", remedy)
