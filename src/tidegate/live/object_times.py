"""Object times: since when work is pending or runs, from creation, conditions and Events.

A snapshot shows one moment; these are the times before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.objects import time_ms
from tidegate.kube.transport.resources import EVENTS, PODS
from tidegate.kube.transport.writes import Ref

#: Reasons of Events after which work is pending again.
_WAITS_AGAIN = ("Requeued", "Preempted", "Evicted", "Suspended", "Stopped")

_PAGE = 1_000


class ObjectTimes(NamedTuple):
    """The times of objects, in milliseconds since 1970."""

    bound_ms: dict[str, int]  # by uid of a pod: when it was bound
    waiting_ms: int = 0  # since when the given work is pending; 0: unknown


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    start_time: str | None = None


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    creation_timestamp: str | None = None


class _Thing(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _Things(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Thing] | None = None


async def read_times(client: Client, thing: Ref | None) -> ObjectTimes:
    """Read the times of all pods and of one object; what may not be read stays unknown."""
    bound: dict[str, int] = {}
    token = ""
    while True:
        query = {"limit": str(_PAGE), **({"continue": token} if token else {})}
        answer = await client.ask(ApiRequest("GET", PODS.path(), query, timeout_s=60))
        if not answer.ok:
            break
        page = msgspec.json.decode(answer.body, type=_Things)
        bound |= {one.metadata.uid: at_ms for one in page.items or () if (at_ms := _bound_ms(one.status))}
        token = page.metadata.token
        if not token:
            break
    return ObjectTimes(bound, await _waiting_ms(client, thing) if thing is not None else 0)


def _bound_ms(status: _Status) -> int:
    return next((at_ms for at_ms in _since(status, "PodScheduled") if at_ms), 0) or time_ms(status.start_time)


def _since(status: _Status, kind: str) -> list[int]:
    there = [one for one in status.conditions or () if one.type == kind and one.status == "True"]
    return [time_ms(one.last_transition_time) for one in there]


async def _waiting_ms(client: Client, thing: Ref) -> int:
    """Since when an object is pending: its creation, or its latest suspension or eviction."""
    answer = await client.ask(ApiRequest("GET", thing.path(), timeout_s=10))
    if not answer.ok:
        return 0
    seen = msgspec.json.decode(answer.body, type=_Thing)
    stopped = [*_since(seen.status, "Suspended"), *await _evicted_ms(client, thing)]
    return max([time_ms(seen.metadata.creation_timestamp), *stopped])


async def _evicted_ms(client: Client, thing: Ref) -> list[int]:
    """The times of Events that say that an object was stopped."""
    query = {"fieldSelector": f"regarding.uid={thing.uid}"}
    answer = await client.ask(ApiRequest("GET", EVENTS.path(thing.namespace), query, timeout_s=10))
    items: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"] or [] if answer.ok else []
    return [
        time_ms(item.get("eventTime") or item.get("deprecatedLastTimestamp"))
        for item in items
        if item.get("reason") in _WAITS_AGAIN
    ]
