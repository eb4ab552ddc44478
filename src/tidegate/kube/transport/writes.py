"""Writes to the API server: each has preconditions, and a way to find out whether it was done already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiRequest
from tidegate.kube.transport.resources import EVENTS, PODS, Resource

#: The field manager of our writes.
FIELD_MANAGER = "tidegate"


class Ref(NamedTuple):
    """A reference to an object. With a uid it is this one, and not one created later under its name."""

    resource: Resource
    namespace: str
    name: str
    uid: str = ""

    @property
    def text(self) -> str:
        """The name in logs and Events, with namespace and kubectl's name: "team-a/job.batch/train"."""
        return "/".join(part for part in (self.namespace, self.resource.full_kind, self.name) if part)

    @property
    def short_text(self) -> str:
        """Namespace and name, which objects of other kinds may share."""
        return "/".join(part for part in (self.namespace, self.name) if part)

    def path(self, part: str = "") -> str:
        """The path of the object, or of a subresource."""
        return self.resource.path(self.namespace, self.name, part)


class Write(NamedTuple):
    """A write. Writes with the same key are sent one after the other."""

    key: str
    request: ApiRequest
    done_if: frozenset[int] = frozenset()  # error statuses that mean it is done already
    look: ApiRequest | None = None  # a read that shows whether an unclear write was done
    is_done: Callable[[bytes], bool] | None = None  # whether the object shows it
    ref: Ref | None = None  # the object


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct):
    uid: str = ""


class _Bound(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


def bind(pod: Ref, node: str) -> Write:
    """Bind a pod to a node."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": _identified({"name": pod.name, "namespace": pod.namespace}, pod.uid),
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }

    def is_there(read: bytes) -> bool:
        found = msgspec.json.decode(read, type=_Bound)
        return found.spec.node_name == node and pod.uid in ("", found.metadata.uid)

    request = ApiRequest("POST", pod.path("binding"), {"fieldManager": FIELD_MANAGER}, _encoded(body))
    return Write(_key(pod), request, look=ApiRequest("GET", pod.path()), is_done=is_there, ref=pod)


def evict(pod: Ref, grace_s: int | None = None) -> Write:
    """Evict a pod, as its PodDisruptionBudget allows; a pod that is gone is evicted."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": _delete_options(pod, "", grace_s),
    }
    request = ApiRequest("POST", pod.path("eviction"), {}, _encoded(body))
    return Write(_key(pod), request, done_if=frozenset((404, 409)), ref=pod)


def delete(thing: Ref, version: str = "", grace_s: int | None = None) -> Write:
    """Delete an object; without a version, an object that is gone is deleted."""
    request = ApiRequest("DELETE", thing.path(), {}, _encoded(_delete_options(thing, version, grace_s)))
    return Write(_key(thing), request, done_if=frozenset((404,) if version else (404, 409)), ref=thing)


def _delete_options(thing: Ref, version: str, grace_s: int | None) -> dict[str, Any]:
    conditions = {key: value for key, value in (("uid", thing.uid), ("resourceVersion", version)) if value}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if conditions:
        options["preconditions"] = conditions
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def create(resource: Resource, thing: Mapping[str, Any]) -> Write:
    """Create an object under a name that only this write uses: if it exists, this write created it."""
    meta = thing["metadata"]
    ref = Ref(resource, meta.get("namespace", ""), meta["name"])
    path = resource.path(ref.namespace)
    request = ApiRequest("POST", path, {"fieldManager": FIELD_MANAGER}, _encoded(thing))
    return Write(_key(ref), request, done_if=frozenset((409,)), ref=ref)


def merge(thing: Ref, change: Mapping[str, Any], *, part: str = "", version: str = "") -> Write:
    """JSON merge patch: change fields of an object or its status; lists are replaced."""
    body = {**change, "metadata": _identified(dict(change.get("metadata", {})), thing.uid, version)}
    return _patch(thing, body, MERGE_PATCH, part)


def merge_by_key(thing: Ref, change: Mapping[str, Any], *, part: str = "") -> Write:
    """Strategic merge patch, for built-in kinds: lists such as conditions are merged by their keys."""
    body = {**change, "metadata": _identified(dict(change.get("metadata", {})), thing.uid)}
    return _patch(thing, body, STRATEGIC_PATCH, part)


def edit(thing: Ref, steps: list[dict[str, Any]], *, part: str = "") -> Write:
    """JSON patch: steps that apply all together or not at all."""
    test = [{"op": "test", "path": "/metadata/uid", "value": thing.uid}] if thing.uid else []
    return _patch(thing, [*test, *steps], JSON_PATCH, part)


def looked_up(write: Write, thing: Ref, shows: Callable[[Mapping[str, Any]], bool]) -> Write:
    """A write with the check that shows on the object whether it is done."""

    def is_done(read: bytes) -> bool:
        found = msgspec.json.decode(read)
        return thing.uid in ("", found["metadata"]["uid"]) and shows(found)

    return write._replace(look=ApiRequest("GET", thing.path()), is_done=is_done)


def apply(thing: Ref, fields: Mapping[str, Any], *, part: str = "", force: bool = False) -> Write:
    """Server-side apply: own these fields and no others; fields of another manager conflict, unless forced."""
    meta = _identified({**fields.get("metadata", {}), "name": thing.name}, thing.uid)
    if thing.namespace:
        meta["namespace"] = thing.namespace
    body = {"apiVersion": thing.resource.api_version, "kind": thing.resource.kind, **fields, "metadata": meta}
    return _patch(thing, body, APPLY_PATCH, part, {"force": "true"} if force else {})


def _patch(thing: Ref, body: object, content_type: str, part: str, query: Mapping[str, str] | None = None) -> Write:
    asked = {"fieldManager": FIELD_MANAGER, **(query or {})}
    return Write(_key(thing), ApiRequest("PATCH", thing.path(part), asked, _encoded(body), content_type), ref=thing)


class EventMessage(NamedTuple):
    """The text of an Event."""

    reason: str  # CamelCase, as in the catalogue
    note: str
    action: str
    warning: bool = False


def event_write(thing: Ref, message: EventMessage, name: str, now_ms: int) -> Write:
    """Create an Event (events.k8s.io/v1) about an object."""
    kind = thing.resource
    event = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": thing.namespace or "default"},
        "eventTime": micro_time(now_ms),
        "reportingController": "tidegate.io/tidegate",
        "reportingInstance": FIELD_MANAGER,
        "action": message.action,
        "reason": message.reason,
        "type": "Warning" if message.warning else "Normal",
        "note": message.note[:1024],
        "regarding": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": thing.namespace,
            "name": thing.name,
            "uid": thing.uid,
        },
    }
    return create(EVENTS, event)


def micro_time(at_ms: int) -> str:
    """A time as Kubernetes' MicroTime: RFC 3339 with microseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _identified(meta: dict[str, Any], uid: str, version: str = "") -> dict[str, Any]:
    if uid:
        meta["uid"] = uid
    if version:
        meta["resourceVersion"] = version
    return meta


def _key(thing: Ref) -> str:
    return thing.uid or thing.text


def _encoded(body: object) -> bytes:
    return msgspec.json.encode(body)


def pod_ref(namespace: str, name: str, uid: str) -> Ref:
    """A reference to a pod."""
    return Ref(PODS, namespace, name, uid)
