"""Readiness checks of a cluster for a mode: version, kinds, permissions, clocks, Kueue, Lease, policy, admission gate.

Of an installation also other instances, field managers and leftovers. None writes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from tidegate.deploy.access_review import (
    AccessRequest,
    AccessReviewError,
    Account,
    Served,
    access_requests,
    find_forbidden,
    find_served,
)
from tidegate.deploy.admission_gate import release_policy
from tidegate.deploy.check_result import CheckLevel, CheckResult, passed
from tidegate.deploy.install_objects import gate_objects
from tidegate.deploy.installation_checks import check_instances, check_leftovers, check_managers
from tidegate.deploy.permissions import FOLLOWED, Permission, permissions_of
from tidegate.deploy.quota_check import check_quota
from tidegate.deploy.reserved_annotations import NAME as RESERVATION
from tidegate.deploy.reserved_annotations import reservation
from tidegate.deploy.server_side_apply import resource_of
from tidegate.kube.mirror.queue_objects import QUEUE_KINDS
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.objects import time_ms
from tidegate.kube.transport.resources import JOBS, LEASES, NODES, PODS, Resource
from tidegate.kube.transport.response import ApiResponse
from tidegate.live.conflicting_schedulers import look_for_kueue
from tidegate.live.election import LeaseName
from tidegate.live.lease import LeaseObject
from tidegate.live.modes import Mode
from tidegate.live.policy_sources import (
    ConfigMap,
    PolicyError,
    PolicyMissingError,
    PolicySource,
    PolicyUnreachableError,
)

#: The oldest minor version of Kubernetes with scheduling gates, and with MutatingAdmissionPolicy v1.
LEAST_MINOR, GATE_MINOR = 30, 36

#: The largest difference of clocks without a warning. Leases depend on durations only, so nothing breaks.
_APART_MS = 5_000

_NEEDED = (NODES, PODS, JOBS)
_KUEUE = "kueue.x-k8s.io"
_ANSWER_S, _NOT_FOUND = 10.0, 404

#: Permissions that no mode needs.
_NEVER = (
    Permission(Resource("", "v1", "secrets", "Secret"), ("get", "list"), "nothing"),
    Permission(PODS, ("create",), "nothing"),
    Permission(NODES, ("patch", "delete"), "nothing"),
)

_RELEASED = "the admission policy tidegate-release-gates, left by an uninstall, removes the gates of new pods"

#: Most names in a message; the rest is counted.
_MOST_NAMED = 6


class CheckTarget(NamedTuple):
    """What is checked, and for which mode."""

    mode: Mode
    lease: LeaseName
    policy: PolicySource
    account: Account | None  # whose permissions are checked; None: the user's
    now_ms: int
    named: bool = True  # --policy was given; else it is the ConfigMap of install, which may not exist yet


async def check_readiness(client: Client, target: CheckTarget) -> AsyncIterator[CheckResult]:
    """Run all checks, unless the server does not answer."""
    answer = await client.ask(ApiRequest("GET", "/version", timeout_s=_ANSWER_S))
    if not answer.ok:
        expected, remedy = "an answer to GET /version", "check --context, the network and your credentials"
        yield CheckResult("server", CheckLevel.FAIL, answer.text(), expected, remedy)
        return
    version = msgspec.json.decode(answer.body)
    yield _check_version(version)
    yield _check_clock(answer, target.now_ms)
    for check, look in (
        ("kinds", _check_kinds),
        ("permissions", _check_permissions),
        ("kueue", _check_kueue),
        ("lease", _check_lease),
        ("policy", _check_policy),
        ("quota", _check_quota),
        ("admission-gate", _check_gate),
        ("annotations", _check_annotations),
        ("instances", lambda client, target: check_instances(client, target.lease, target.mode, target.now_ms)),
        ("managers", lambda client, target: check_managers(client, target.lease.namespace, target.mode)),
        ("leftovers", lambda client, target: check_leftovers(client, target.lease, target.now_ms)),
    ):
        try:
            yield await look(client, target)
        except AccessReviewError as error:
            yield CheckResult(check, CheckLevel.WARN, str(error), "an answer", "run it as a user who may read this")


def _check_version(version: dict[str, Any]) -> CheckResult:
    found, minor = version["gitVersion"], int(re.match(r"\d*", version["minor"])[0] or 0)  # type: ignore[index]
    if int(version["major"]) == 1 and minor < LEAST_MINOR:
        return CheckResult("server", CheckLevel.FAIL, found, f"v1.{LEAST_MINOR} or later", "upgrade the cluster")
    return passed("server", found)


def _check_clock(answer: ApiResponse, now_ms: int) -> CheckResult:
    """Compare the clock with the server's Date header, which has whole seconds."""
    if not answer.date:
        return CheckResult(
            "clock",
            CheckLevel.WARN,
            "the server sends no time",
            "a Date header",
            "check the proxies between here and the server",
        )
    apart_ms = now_ms - round(parsedate_to_datetime(answer.date).timestamp() * 1000)
    found = f"ours is {abs(apart_ms) / 1000:.0f} s {'ahead of' if apart_ms > 0 else 'behind'} the server's"
    if abs(apart_ms) > _APART_MS:
        return CheckResult(
            "clock", CheckLevel.WARN, found, f"within {_APART_MS // 1000} s", "synchronise the clocks (NTP)"
        )
    return passed("clock", f"within {_APART_MS // 1000} s of the server's")


# -- kinds -------------------------------------------------------------------------------------------------------


async def _check_kinds(client: Client, target: CheckTarget) -> CheckResult:
    del target
    served = await _served(client)
    missing = [kind for kind in _NEEDED if not _has(served, kind)]
    others = [kind for kind in _followed() if not _has(served, kind) and _is_installed(served, kind)]
    absent = [kind for kind in _followed() if not _is_installed(served, kind)]
    if missing:
        return CheckResult(
            "kinds",
            CheckLevel.FAIL,
            f"not served: {_named(missing)}",
            "Kubernetes' own kinds",
            "ask the administrator of the cluster",
        )
    if others:
        found = "; ".join(f"{kind.kind} {'/'.join(served[_key(kind)].versions)}" for kind in others[:_MOST_NAMED])
        expected = ", ".join(dict.fromkeys(kind.api_version for kind in others))
        return CheckResult("kinds", CheckLevel.WARN, found, expected, "these are not followed: install that version")
    told = f"{len(_followed()) - len(absent)} of {len(_followed())} kinds are served"
    return passed("kinds", f"{told}; not installed: {_named(absent)}" if absent else told)


async def _served(client: Client) -> dict[tuple[str, str], Served]:
    return await find_served(client, {_key(kind) for kind in _followed()})


def _followed() -> list[Resource]:
    """The watched kinds; of Kueue's kinds any version is read."""
    return [*FOLLOWED, *(kind for kind in QUEUE_KINDS if kind.group != _KUEUE)]


def _key(kind: Resource) -> tuple[str, str]:
    return kind.group, kind.version


def _has(served: dict[tuple[str, str], Served], kind: Resource) -> bool:
    return kind.plural in served[_key(kind)].plurals


def _is_installed(served: dict[tuple[str, str], Served], kind: Resource) -> bool:
    """Whether the server has the kind, or its group in other versions."""
    found = served[_key(kind)]
    return _has(served, kind) or (bool(found.versions) and kind.version not in found.versions)


def _named(kinds: list[Resource]) -> str:
    named = [kind.kind for kind in kinds]
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# -- permissions -------------------------------------------------------------------------------------------------


async def _check_permissions(client: Client, target: CheckTarget) -> CheckResult:
    asked = access_requests(permissions_of(target.mode, target.lease, _policy_map(target)))
    refused = await find_forbidden(client, asked, target.lease.namespace, target.account)
    who = "we" if target.account is None else f"{target.account.namespace}/{target.account.name}"
    install = f"tidegate install --mode {target.mode}"
    if refused:
        expected = f"all {len(asked)} things that {target.mode} does"
        remedy = f"{install}, which binds a role with these permissions"
        return CheckResult("permissions", CheckLevel.FAIL, f"{who} may not: {_applied(refused)}", expected, remedy)
    surplus = await _find_surplus(client, target, asked)
    if surplus:
        remedy = f"{install}, or check which other roles it is bound to"
        found = f"{who} may also {_applied(surplus)}"
        return CheckResult("permissions", CheckLevel.WARN, found, f"no more than {target.mode} does", remedy)
    return passed("permissions", f"{who} may do all {len(asked)} things that {target.mode} does")


async def _find_surplus(client: Client, target: CheckTarget, needed: list[AccessRequest]) -> list[AccessRequest]:
    """What an account may do beyond its mode; a user who installs may do more anyway."""
    if target.account is None:
        return []
    known = set(map(_access_key, needed))
    asked = [
        access_request
        for access_request in access_requests([*permissions_of(Mode.BIND, target.lease, ""), *_NEVER])
        if _access_key(access_request) not in known
    ]
    refused = await find_forbidden(client, asked, target.lease.namespace, target.account)
    return [access_request for access_request in asked if access_request not in refused]


def _access_key(access_request: AccessRequest) -> tuple[str, str, str, str]:
    return access_request.grant.resource.group, access_request.grant.thing, access_request.verb, access_request.name


def _applied(some: list[AccessRequest]) -> str:
    more = len(some) - _MOST_NAMED
    return ", ".join(access_request.text() for access_request in some[:_MOST_NAMED]) + (
        f" and {more} more" if more > 0 else ""
    )


def _policy_map(target: CheckTarget) -> str:
    """The ConfigMap with the policy, if it is in the namespace that the role allows."""
    source = target.policy
    return source.object if isinstance(source, ConfigMap) and source.namespace == target.lease.namespace else ""


# -- Kueue, the Lease --------------------------------------------------------------------------------------------


async def _check_kueue(client: Client, target: CheckTarget) -> CheckResult:
    conflicts = await look_for_kueue(client, target.now_ms)
    if conflicts.found:
        found = f"a Kueue runs here: {', '.join(conflicts.found)}"
        if not target.mode.writes:
            return passed("kueue", f"{found}; shadow only reads")
        return CheckResult("kueue", CheckLevel.FAIL, found, "one owner for one object", "stop it, or use --mode shadow")
    if conflicts.hidden or conflicts.unanswered:
        hidden = f"may not list {', '.join(conflicts.hidden)}" if conflicts.hidden else conflicts.unanswered
        return CheckResult(
            "kueue", CheckLevel.WARN, hidden, "to see whether a Kueue runs", "run it as a user who may read this"
        )
    return passed("kueue", "no Kueue runs here")


async def _check_lease(client: Client, target: CheckTarget) -> CheckResult:
    answer = await client.ask(ApiRequest("GET", LEASES.path(*target.lease), timeout_s=_ANSWER_S))
    if answer.status == _NOT_FOUND:
        return CheckResult(
            "lease", CheckLevel.WARN, f"no Lease {target.lease}", "a replica that leads", "tidegate install"
        )
    if not answer.ok:
        raise AccessReviewError(answer.text())
    spec = msgspec.json.decode(answer.body, type=LeaseObject).spec
    if not spec.holder_identity:
        return CheckResult(
            "lease", CheckLevel.WARN, "no replica leads", "a replica that leads", "read its log, or start one"
        )
    age_s = (target.now_ms - time_ms(spec.renew_time)) / 1000
    found = f"{spec.holder_identity} leads, renewed {max(age_s, 0):.0f} s ago"
    if age_s > 4 * (spec.lease_duration_seconds or 15):
        return CheckResult(
            "lease", CheckLevel.WARN, found, "a replica that leads", "it is gone, or clocks differ: see its log"
        )
    return passed("lease", found)


# -- policy, admission gate ---------------------------------------------------------------------------------------


async def _check_policy(client: Client, target: CheckTarget) -> CheckResult:
    try:
        found = await target.policy.find(client)
        policy = target.policy.read(found)
    except PolicyMissingError as error:
        remedy = "name one that is there" if target.named else "tidegate install, which brings one"
        return CheckResult(
            "policy", CheckLevel.FAIL if target.named else CheckLevel.WARN, str(error), "a policy", remedy
        )
    except PolicyError as error:
        return CheckResult(
            "policy", CheckLevel.FAIL, str(error), "a policy that can be used", "correct it: tidegate check"
        )
    except PolicyUnreachableError as error:
        return CheckResult("policy", CheckLevel.FAIL, str(error), "a policy that can be read", "see permissions")
    queues = len(policy.shares.queues)
    told = f"{target.policy.name}: {queues} queue{'' if queues == 1 else 's'}, digest {policy.digest()}"
    if target.mode.writes and not queues:
        return CheckResult(
            "policy", CheckLevel.FAIL, told, f"queues: {target.mode} does not lead without them", "add queues to it"
        )
    return passed("policy", told)


async def _check_quota(client: Client, target: CheckTarget) -> CheckResult:
    try:
        policy = target.policy.read(await target.policy.find(client))
    except (PolicyError, PolicyUnreachableError):
        return passed("quota", "not checked: see policy")
    return await check_quota(client, policy.shares)


async def _check_gate(client: Client, target: CheckTarget) -> CheckResult:
    wanted = [(thing["kind"], thing["metadata"]["name"]) for thing in gate_objects()]
    released = {(thing["kind"], thing["metadata"]["name"]) for thing in release_policy()}
    there = set()
    for kind in dict.fromkeys(kind for kind, _ in wanted):
        answer = await client.ask(ApiRequest("GET", _GATE_KINDS[kind].path(), timeout_s=_ANSWER_S))
        if answer.status == _NOT_FOUND:
            return _without_gate(target, f"the server has no {kind} v1 (Kubernetes 1.{GATE_MINOR})")
        if not answer.ok:
            raise AccessReviewError(answer.text())
        there |= {(kind, item["metadata"]["name"]) for item in msgspec.json.decode(answer.body)["items"] or ()}
    if released <= there:
        expected, remedy = "gates that hold", f"tidegate install --mode {target.mode}, which removes it"
        return CheckResult(
            "admission-gate", CheckLevel.FAIL if target.mode.writes else CheckLevel.WARN, _RELEASED, expected, remedy
        )
    missing = [name for kind, name in wanted if (kind, name) not in there]
    if not missing:
        return passed("admission-gate", "installed: work that names a queue is held")
    if len(missing) < len(wanted):
        found = f"in part: {', '.join(dict.fromkeys(missing))} missing"
        return CheckResult("admission-gate", CheckLevel.FAIL, found, "all of it", "tidegate install --admission-gate")
    return _without_gate(target, "not installed")


async def _check_annotations(client: Client, target: CheckTarget) -> CheckResult:
    """Check that only Tidegate may write its annotations."""
    if not target.mode.writes:
        return passed("annotations", "not checked: shadow writes none")
    for thing in reservation({}):
        answer = await client.ask(ApiRequest("GET", resource_of(thing).path("", RESERVATION), timeout_s=_ANSWER_S))
        if answer.status == _NOT_FOUND:
            found, expected = f"no {thing['kind']} {RESERVATION}", "annotations that only Tidegate may write"
            return CheckResult("annotations", CheckLevel.WARN, found, expected, "tidegate install, which brings it")
        if not answer.ok:
            raise AccessReviewError(answer.text())
    return passed("annotations", "reserved: only Tidegate may write them")


def _without_gate(target: CheckTarget, found: str) -> CheckResult:
    if not target.mode.writes:
        return passed("admission-gate", f"{found}; shadow needs none")
    remedy = "tidegate install --admission-gate, or let users set suspend: true"
    return CheckResult(
        "admission-gate", CheckLevel.WARN, found, "work that names a queue is held when it is created", remedy
    )


_GATE_KINDS = {
    kind: Resource("admissionregistration.k8s.io", "v1", plural, kind, namespaced=False)
    for kind, plural in (
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    )
}
