"""Uninstall: removes an installation in an order that blocks no work, while running work goes on.

First the admission policies, so that no new work is held; then the Deployment; then gates and annotations in work; then
its own objects, and its namespace if it holds nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tidegate.deploy.access_review import AccessReviewError, list_objects
from tidegate.deploy.admission_gate import release_policy
from tidegate.deploy.deployment_manifest import LABELS, SELECTOR
from tidegate.deploy.install_objects import gate_objects, objects
from tidegate.deploy.install_spec import NAME, POLICY, THERE, InstallSpec
from tidegate.deploy.server_side_apply import INSTALLER, ApplyOutcome, apply_all, resource_of
from tidegate.deploy.work_cleanup import (
    HeldWork,
    TakenBack,
    find_held,
    find_node_requests,
    find_written,
    start,
    take_back,
)
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.resources import LEASES, PODS, Resource
from tidegate.kube.transport.writes import Ref, delete, merge
from tidegate.live.election import SCOPE_CLAIMS, LeaseName
from tidegate.live.handover import handover_config_map
from tidegate.live.lease import LeaseObject, LeaseSpec
from tidegate.live.scope_claim import claims_of

_NOT_FOUND = 404
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

#: Timeout of the Deployment's end, and how often that is checked.
_LEAVE_S, _LOOK_S = 60.0, 1.0

#: How long a server takes to apply an admission policy.
_HEED_S = 2.0

_RELEASED = "the admission policy tidegate-release-gates removes it from pods that the job creates again"

#: Default objects of a namespace, and kinds of other objects that keep it.
_DEFAULT_OBJECTS = frozenset(("kube-root-ca.crt", "default"))
_TENANT_KINDS = tuple(
    Resource(group, "v1", plural, kind)
    for group, plural, kind in (
        ("", "pods", "Pod"),
        ("", "configmaps", "ConfigMap"),
        ("", "secrets", "Secret"),
        ("", "services", "Service"),
        ("", "serviceaccounts", "ServiceAccount"),
        ("", "persistentvolumeclaims", "PersistentVolumeClaim"),
        ("apps", "deployments", "Deployment"),
        ("apps", "statefulsets", "StatefulSet"),
        ("batch", "jobs", "Job"),
    )
)

#: Field managers of a namespace that installing may leave.
_INSTALLERS = frozenset(
    (INSTALLER, "kubectl-client-side-apply", "kubectl-create", "kubectl", "helm", "kube-controller-manager")
)


class RemovalOutcome(StrEnum):
    """The outcome of an object."""

    REMOVED = "removed"
    CLEANED = "cleaned"  # our fields in it are removed
    STARTED = "started"
    HELD = "held"  # nothing starts it without Tidegate
    STAYS = "stays"  # it is shared, or our fields in it stay until it ends
    FAILED = "failed"


class Removal(NamedTuple):
    """An object and its outcome."""

    kind: str
    name: str
    outcome: RemovalOutcome
    why: str = ""


@dataclass(frozen=True)
class UninstallSpec:
    """The options of an uninstall."""

    lease: LeaseName
    policy: str = POLICY
    scheduler: str = NAME
    starts_suspended: bool = False
    dry_run: bool = False  # list what would be removed
    leave_s: float = _LEAVE_S


async def uninstall(client: Client, options: UninstallSpec) -> list[Removal]:
    """Remove everything, and report each object; AccessReviewError where objects may not be listed."""
    done = await _remove(client, map(_ref, reversed(gate_objects())), options)
    ended = await _end_program(client, options)
    done += ended
    if _has_failed(ended):
        return done
    done += await _clean_work(client, options)
    done += await _remove(client, _own_objects(options), options)
    done += await _remove_claim(client, options)
    return done + await _remove_namespace(client, options)


async def find_other_home(client: Client, namespace: str) -> str:
    """The namespace of an installation elsewhere, by its ClusterRoleBinding; empty: there is none."""
    path = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "", namespaced=False).path("", NAME)
    answer = await client.ask(ApiRequest("GET", path))
    if answer.status == _NOT_FOUND:
        return ""
    if not answer.ok:
        raise AccessReviewError(answer.text())
    subjects = msgspec.json.decode(answer.body).get("subjects") or ()
    return next((one["namespace"] for one in subjects if one.get("namespace", namespace) != namespace), "")


# -- the program -------------------------------------------------------------------------------------------------


async def _end_program(client: Client, options: UninstallSpec) -> list[Removal]:
    """Delete the Deployment, and wait until no replica leads."""
    deployment = next(_ref(thing) for thing in _installed(options) if thing["kind"] == "Deployment")
    done = await _remove(client, [deployment], options)
    leader = "" if options.dry_run or _has_failed(done) else await _await_end(client, options)
    if leader:
        why = f"{leader} still leads: stop it, and uninstall again"
        done.append(Removal("Lease", str(options.lease), RemovalOutcome.FAILED, why))
    return done


def _has_failed(done: list[Removal]) -> bool:
    return any(one.outcome is RemovalOutcome.FAILED for one in done)


async def _await_end(client: Client, options: UninstallSpec) -> str:
    """Wait until the pods are gone and the Lease is not renewed; the leader, if that takes too long."""
    loop = asyncio.get_running_loop()
    until_s, renewed, since_s = loop.time() + options.leave_s, "", loop.time()
    while True:
        spec = await _lease_spec(client, options.lease)
        if spec is None or not spec.holder_identity:
            return ""
        if spec.renew_time != renewed:
            renewed, since_s = spec.renew_time or "", loop.time()
        quiet = loop.time() - since_s > (spec.lease_duration_seconds or 15)
        pods = list_objects(client, PODS, options.lease.namespace, labelSelector=SELECTOR)
        if quiet and not [pod async for pod in pods]:
            return ""
        if loop.time() > until_s:
            return spec.holder_identity
        await asyncio.sleep(_LOOK_S)


async def _lease_spec(client: Client, lease: LeaseName) -> LeaseSpec | None:
    answer = await client.ask(ApiRequest("GET", LEASES.path(*lease)))
    if answer.status == _NOT_FOUND:
        return None
    if not answer.ok:
        raise AccessReviewError(answer.text())
    return msgspec.json.decode(answer.body, type=LeaseObject).spec


# -- work --------------------------------------------------------------------------------------------------------


async def _clean_work(client: Client, options: UninstallSpec) -> list[Removal]:
    """Remove gates, annotations and node selectors from work: from jobs first, then from their pods."""
    done: list[Removal] = []
    released: bool | None = None  # whether an admission policy removes the gates of new pods; None: none is needed
    async for written in find_written(client):
        taken = TakenBack(done=True) if options.dry_run else await take_back(client, written)
        if taken.gate and released is None:
            released = await _release_gates(client)
        left = f"{taken.left}; {_RELEASED}" if taken.gate and released else taken.left
        outcome = RemovalOutcome.STAYS if left else RemovalOutcome.CLEANED
        succeeded = taken.done or (taken.gate and released)
        done.append(_removal(written.ref, outcome if succeeded else RemovalOutcome.FAILED, left))
    if released is None:
        done += await _remove(client, map(_ref, reversed(release_policy())), options)
    done += [await _release(client, held, options) async for held in find_held(client, options.scheduler)]
    return done + await _remove(client, [ref async for ref in find_node_requests(client)], options)


async def _release_gates(client: Client) -> bool:
    """Install the policy that removes our gate from new pods; whether the server has such policies."""
    applied = await apply_all(client, release_policy(), force=True)
    await asyncio.sleep(_HEED_S)
    return all(one.outcome in (ApplyOutcome.CREATED, ApplyOutcome.CHANGED, ApplyOutcome.UNCHANGED) for one in applied)


async def _release(client: Client, held: HeldWork, options: UninstallSpec) -> Removal:
    if held.adapter is None:
        why = f"it names the scheduler {options.scheduler}, which is removed; create it again without schedulerName"
        return _removal(held.ref, RemovalOutcome.HELD, why)
    if not options.starts_suspended:
        return _removal(held.ref, RemovalOutcome.HELD, "it is suspended; its owner, or --start-suspended, starts it")
    why = "" if options.dry_run else await start(client, held)
    return _removal(held.ref, RemovalOutcome.FAILED if why else RemovalOutcome.STARTED, why)


# -- own objects -------------------------------------------------------------------------------------------------


def _installed(options: UninstallSpec) -> list[dict[str, Any]]:
    """The objects of an installation with all options, without the admission gate."""
    return objects(replace(InstallSpec.everything(options.lease.namespace, options.policy), admission_gate=False))


def _own_objects(options: UninstallSpec) -> list[Ref]:
    """Objects of install and of the leader, without the namespace and the Deployment; roles go last."""
    made = [_ref(thing) for thing in _installed(options) if thing["kind"] not in ("Namespace", "Deployment")]
    return [*reversed(made), handover_config_map(options.lease), Ref(LEASES, *options.lease)]


async def _remove(client: Client, refs: Iterable[Ref], options: UninstallSpec) -> list[Removal]:
    """Delete the objects that exist."""
    done = []
    for ref in refs:
        answer = await client.ask(ApiRequest("GET", ref.path()))
        if answer.status == _NOT_FOUND:
            continue
        if answer.ok and not options.dry_run:
            answer = await client.ask(delete(ref).request)
        gone = answer.ok or answer.status == _NOT_FOUND
        outcome = RemovalOutcome.REMOVED if gone else RemovalOutcome.FAILED
        done.append(_removal(ref, outcome, "" if gone else answer.text()))
    return done


async def _remove_claim(client: Client, options: UninstallSpec) -> list[Removal]:
    """Withdraw the claim of the scope; the object goes with the last claim."""
    ref = Ref(LEASES, *SCOPE_CLAIMS)
    answer = await client.ask(ApiRequest("GET", ref.path()))
    if not answer.ok:
        return []
    mine, others = claims_of(msgspec.json.decode(answer.body, type=LeaseObject), str(options.lease))
    if not others:
        return await _remove(client, [ref], options)
    if not mine:
        return []
    if not options.dry_run:
        answer = await client.ask(merge(ref, {"metadata": {"annotations": dict.fromkeys(mine)}}).request)
    outcome = RemovalOutcome.CLEANED if answer.ok else RemovalOutcome.FAILED
    return [_removal(ref, outcome, "" if answer.ok else answer.text())]


async def _remove_namespace(client: Client, options: UninstallSpec) -> list[Removal]:
    """Delete the namespace if install created it and it holds nothing else."""
    ref = Ref(_NAMESPACES, "", options.lease.namespace)
    answer = await client.ask(ApiRequest("GET", ref.path()))
    if ref.name in THERE or answer.status == _NOT_FOUND:
        return []
    why = answer.text() if not answer.ok else _not_ours(msgspec.json.decode(answer.body)["metadata"])
    why = why or await _tenants(client, ref.name, options)
    return [_removal(ref, RemovalOutcome.STAYS, why)] if why else await _remove(client, [ref], options)


def _not_ours(meta: Mapping[str, Any]) -> str:
    """Why the namespace has to stay; empty: it may be deleted."""
    if (meta.get("labels") or {}).items() >= LABELS.items():
        others = {one.get("manager", "") for one in meta.get("managedFields") or ()} - _INSTALLERS
        return f"{', '.join(sorted(others))} made it or changed it" if others else ""
    return "install did not create it"


async def _tenants(client: Client, namespace: str, options: UninstallSpec) -> str:
    """An object of others in the namespace; empty: there is none."""
    ours = {(ref.resource.kind, ref.name) for ref in _own_objects(options)} | {("Deployment", NAME)}
    for kind in _TENANT_KINDS:
        async for found in list_objects(client, kind, namespace):
            name, labels = found["metadata"]["name"], found["metadata"].get("labels") or {}
            mine = (kind.kind, name) in ours or labels.items() >= LABELS.items()
            if not mine and name not in _DEFAULT_OBJECTS:
                return f"{kind.kind} {name} is in it"
    return ""


def _ref(thing: Mapping[str, Any]) -> Ref:
    return Ref(resource_of(thing), thing["metadata"].get("namespace", ""), thing["metadata"]["name"])


def _removal(ref: Ref, outcome: RemovalOutcome, why: str = "") -> Removal:
    return Removal(ref.resource.kind, f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name, outcome, why)
