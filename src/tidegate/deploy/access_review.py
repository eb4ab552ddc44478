"""Access reviews and discovery: what an account may do, which kinds are served, and paged lists of objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from tidegate.deploy.permissions import Permission
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.response import ApiResponse
from tidegate.model.errors import TidegateError

_REVIEWS = "/apis/authorization.k8s.io/v1"
_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_ANSWER_S, _LIST_S, _PAGE, _NOT_FOUND = 10.0, 60.0, 500, 404


class Account(NamedTuple):
    """A service account."""

    namespace: str
    name: str

    def subject(self) -> dict[str, Any]:
        """The user and groups of its requests."""
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"]
        return {"user": f"system:serviceaccount:{self.namespace}:{self.name}", "groups": groups}


class AccessRequest(NamedTuple):
    """One request whose permission is reviewed."""

    grant: Permission
    verb: str
    name: str  # of one object; empty: any

    def text(self) -> str:
        """The request as text, as in `kubectl auth can-i`."""
        group = f".{self.grant.resource.group}" if self.grant.resource.group else ""
        kind, _, part = self.grant.thing.partition("/")
        return f"{self.verb} {kind}{group}" + (f"/{part}" if part else "") + (f" {self.name}" if self.name else "")


def access_requests(given: list[Permission]) -> list[AccessRequest]:
    """The requests that permissions allow, one by one."""
    found: dict[tuple[Resource, str, str, str], AccessRequest] = {}
    for grant in given:
        for verb in grant.verbs:
            for name in grant.names or ("",):
                found.setdefault((grant.resource, grant.part, verb, name), AccessRequest(grant, verb, name))
    return list(found.values())


class AccessReviewError(TidegateError):
    """The server refuses to answer; the text is its message."""


async def find_forbidden(
    client: Client, asked: list[AccessRequest], namespace: str, account: Account | None
) -> list[AccessRequest]:
    """The requests that are forbidden, to us or to an account; AccessReviewError if that may not be reviewed."""
    allowed = await asyncio.gather(*(_may(client, access_request, namespace, account) for access_request in asked))
    return [access_request for access_request, may in zip(asked, allowed, strict=True) if not may]


async def _may(client: Client, access_request: AccessRequest, namespace: str, account: Account | None) -> bool:
    grant = access_request.grant
    asked = {
        "verb": access_request.verb,
        "group": grant.resource.group,
        "resource": grant.resource.plural,
        "subresource": grant.part,
        "name": access_request.name,
        "namespace": namespace if grant.own else "",
    }
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    spec = {"resourceAttributes": asked, **({} if account is None else account.subject())}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    path = f"{_REVIEWS}/{kind.lower()}s"
    answer = await client.ask(ApiRequest("POST", path, {}, msgspec.json.encode(body), timeout_s=_ANSWER_S))
    if not answer.ok:
        raise AccessReviewError(answer.text())
    return bool(msgspec.json.decode(answer.body)["status"].get("allowed"))


async def bound_namespace(client: Client, binding: str) -> str:
    """The namespace of the account in a ClusterRoleBinding; empty if there is none, or it was deleted."""
    answer = await client.ask(ApiRequest("GET", _BINDINGS.path(name=binding), timeout_s=_ANSWER_S))
    if not answer.ok:
        return ""
    subjects = msgspec.json.decode(answer.body).get("subjects") or [{}]
    namespace = str(subjects[0].get("namespace", ""))
    there = await client.ask(ApiRequest("GET", _NAMESPACES.path(name=namespace), timeout_s=_ANSWER_S))
    return "" if there.status == _NOT_FOUND else namespace


async def list_objects(
    client: Client, kind: Resource, namespace: str = "", *, most_pages: int = 1 << 30, **query: str
) -> AsyncIterator[dict[str, Any]]:
    """Objects of a kind, page by page; none where the server does not have the kind."""
    token = ""
    for _ in range(most_pages):
        wanted = {"limit": str(_PAGE), **query, **({"continue": token} if token else {})}
        answer = await client.ask(ApiRequest("GET", kind.path(namespace), wanted, timeout_s=_LIST_S))
        if answer.status == _NOT_FOUND:
            return
        if not answer.ok:
            raise AccessReviewError(f"{kind.plural}: {answer.text()}")
        page = msgspec.json.decode(answer.body)
        for found in page["items"] or ():
            yield found
        token = page["metadata"].get("continue", "")
        if not token:
            return


class Served(NamedTuple):
    """The served versions of an API group."""

    versions: tuple[str, ...]
    plurals: frozenset[str]  # in the requested version


async def find_served(client: Client, kinds: set[tuple[str, str]]) -> dict[tuple[str, str], Served]:
    """For each group and version: the served versions of the group, and the kinds of this version."""
    answer = await _get(client, "/apis")
    groups = {
        one["name"]: tuple(version["version"] for version in one["versions"])
        for one in msgspec.json.decode(answer.body)["groups"]
    }
    groups[""] = ("v1",)
    found = {}
    for group, version in sorted(kinds):
        plurals: frozenset[str] = frozenset()
        if version in groups.get(group, ()):
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            told = msgspec.json.decode((await _get(client, path)).body)["resources"]
            plurals = frozenset(one["name"] for one in told)
        found[group, version] = Served(groups.get(group, ()), plurals)
    return found


async def _get(client: Client, path: str) -> ApiResponse:
    answer = await client.ask(ApiRequest("GET", path, timeout_s=_ANSWER_S))
    if not answer.ok:
        raise AccessReviewError(answer.text())
    return answer
