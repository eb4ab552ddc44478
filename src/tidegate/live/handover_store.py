"""The object beside the Lease that has what belongs to no single workload."""

from __future__ import annotations

import asyncio

import msgspec

from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.resources import CONFIG_MAPS
from tidegate.kube.transport.response import ApiResponse
from tidegate.kube.transport.writes import Ref, Write, apply
from tidegate.live.election import LeaseName
from tidegate.live.handover import KEY, SharedHandover

_NOT_FOUND = 404


def handover_config_map(lease: LeaseName) -> Ref:
    """The ConfigMap that goes with a Lease."""
    return Ref(CONFIG_MAPS, lease.namespace, f"{lease.name}-before")


def write_shared_handover(lease: LeaseName, common: SharedHandover) -> Write:
    """Write it; the object is made if it is not there."""
    return apply(handover_config_map(lease), {"data": {KEY: common.text}}, force=True)


def read_shared_handover(access: Connection, lease: LeaseName) -> SharedHandover | ApiResponse:
    """What was written last; nothing if nobody has, and the answer where that cannot be told."""

    async def ask() -> ApiResponse:
        async with Client(access, connections=1) as client:
            return await client.ask(ApiRequest("GET", handover_config_map(lease).path(), timeout_s=5))

    answer = asyncio.run(ask())
    if answer.status == _NOT_FOUND:
        return SharedHandover("")
    if not answer.ok:
        return answer
    data: dict[str, str] = msgspec.json.decode(answer.body).get("data") or {}
    return SharedHandover(data.get(KEY, ""))
