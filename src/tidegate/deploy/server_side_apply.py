"""Server-side apply of the objects of an installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tidegate.deploy.access_review import find_served
from tidegate.kube.transport.client import APPLY_PATCH, ApiRequest, Client
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.response import ApiResponse

#: The field manager of install, another one than that of the running service.
INSTALLER = "tidegate-install"

_NOT_FOUND, _CONFLICT = 404, 409

_ADMISSION = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
#: What to do about fields of another manager.
_TAKE_OVER = (
    "if you wrote them (kubectl apply without --server-side --field-manager=tidegate-install, or helm), "
    "--force-conflicts takes these fields over; else ask their owner"
)

_WIDE = frozenset(
    ("Namespace", "ClusterRole", "ClusterRoleBinding", *_ADMISSION, *(f"{kind}Binding" for kind in _ADMISSION))
)


class ApplyOutcome(StrEnum):
    """The outcome of an object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    KEPT = "kept"  # it existed, and stays as it is
    FAILED = "failed"
    SKIPPED = "skipped"  # after one that failed


class AppliedObject(NamedTuple):
    """An object and its outcome."""

    kind: str
    name: str
    outcome: ApplyOutcome
    error: str = ""


def resource_of(thing: Mapping[str, Any]) -> Resource:
    """The API resource of an object of an installation."""
    group, _, version = thing["apiVersion"].rpartition("/")
    kind = thing["kind"]
    plural = f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"
    return Resource(group, version, plural, kind, kind not in _WIDE)


async def find_unserved(client: Client, things: Iterable[Mapping[str, Any]]) -> list[str]:
    """The kinds of the objects that the server does not serve."""
    kinds = {resource_of(thing) for thing in things}
    served = await find_served(client, {(kind.group, kind.version) for kind in kinds})
    missing = [kind for kind in kinds if kind.plural not in served[kind.group, kind.version].plurals]
    return sorted(f"{kind.kind} ({kind.api_version})" for kind in missing)


async def apply_all(
    client: Client, things: list[dict[str, Any]], *, keep: str = "", force: bool = False
) -> list[AppliedObject]:
    """Apply objects in order until one fails; an existing ConfigMap called `keep` stays as it is.

    If another manager owns fields of one object, none is applied: a role of another mode would not fit the running
    program. `force`: take over these fields.
    """
    conflicts = [] if force else [one for thing in things if (one := await _conflict(client, thing, keep)) is not None]
    if conflicts:
        return conflicts
    done: list[AppliedObject] = []
    for thing in things:
        failed = bool(done) and done[-1].outcome in (ApplyOutcome.FAILED, ApplyOutcome.SKIPPED)
        done.append(
            _applied(thing, ApplyOutcome.SKIPPED) if failed else await _apply(client, thing, keep=keep, force=force)
        )
    return done


async def remove_all(client: Client, things: Iterable[Mapping[str, Any]]) -> None:
    """Delete the objects that exist."""
    for thing in things:
        meta = thing["metadata"]
        await client.ask(ApiRequest("DELETE", resource_of(thing).path(meta.get("namespace", ""), meta["name"])))


async def _conflict(client: Client, thing: dict[str, Any], keep: str) -> AppliedObject | None:
    """Try an apply with dryRun; the object as failed, if another manager owns fields of it."""
    meta = thing["metadata"]
    if (thing["kind"], meta["name"]) == ("ConfigMap", keep):
        return None
    path = resource_of(thing).path(meta.get("namespace", ""), meta["name"])
    asked = {"fieldManager": INSTALLER, "dryRun": "All"}
    answer = await client.ask(ApiRequest("PATCH", path, asked, msgspec.json.encode(thing), APPLY_PATCH))
    return _owned(thing, answer) if answer.status == _CONFLICT else None


def _owned(thing: dict[str, Any], answer: ApiResponse) -> AppliedObject:
    return _applied(thing, ApplyOutcome.FAILED, f"{answer.message}; {_TAKE_OVER}")


async def _apply(client: Client, thing: dict[str, Any], *, keep: str, force: bool) -> AppliedObject:
    resource, meta = resource_of(thing), thing["metadata"]
    path = resource.path(meta.get("namespace", ""), meta["name"])
    before = await client.ask(ApiRequest("GET", path))
    if before.ok and (thing["kind"], meta["name"]) == ("ConfigMap", keep):
        return _applied(thing, ApplyOutcome.KEPT)
    if not before.ok and before.status != _NOT_FOUND:
        return _applied(thing, ApplyOutcome.FAILED, before.text())
    asked = {"fieldManager": INSTALLER, **({"force": "true"} if force else {})}
    after = await client.ask(ApiRequest("PATCH", path, asked, msgspec.json.encode(thing), APPLY_PATCH))
    if after.status == _CONFLICT:
        return _owned(thing, after)
    if not after.ok:
        return _applied(thing, ApplyOutcome.FAILED, after.text())
    return _applied(thing, _outcome(before, after))


def _outcome(before: ApiResponse, after: ApiResponse) -> ApplyOutcome:
    if not before.ok:
        return ApplyOutcome.CREATED
    versions = [msgspec.json.decode(answer.body)["metadata"]["resourceVersion"] for answer in (before, after)]
    return ApplyOutcome.UNCHANGED if versions[0] == versions[1] else ApplyOutcome.CHANGED


def _applied(thing: Mapping[str, Any], outcome: ApplyOutcome, error: str = "") -> AppliedObject:
    meta = thing["metadata"]
    where = f"{meta['namespace']}/" if "namespace" in meta else ""
    return AppliedObject(thing["kind"], f"{where}{meta['name']}", outcome, error)
