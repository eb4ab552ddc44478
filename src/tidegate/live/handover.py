"""Handover: what the next leader needs and no object shows, written when it changes (docs/adr/0010-hand-over.md).

For each workload, in an annotation: its quota, and the decided nodes of its pods. For all together, in a ConfigMap: the
recent usage of LocalQueues, the workloads that others were evicted for, and those with reserved nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from tidegate.engine.quota_reservations import holding_of
from tidegate.engine.release import pods_of
from tidegate.kube.mirror.handover_annotation import HandoverNote, in_runs, write_note
from tidegate.kube.mirror.workload_pods import WorkloadPods
from tidegate.kube.takeover import HandoverState
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.resources import CONFIG_MAPS
from tidegate.kube.transport.response import ApiResponse
from tidegate.kube.transport.writes import Ref, Write, apply
from tidegate.live.election import LeaseName
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.observed_status import DecayedUsage, DomainAssignment, ObservedStatus, PodSetAssignment
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import Resources, decode_known, resources
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.workloads import Phase, Reserves

_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT)

#: The key in the ConfigMap.
KEY = "before.json"


class _Kept(msgspec.Struct, frozen=True):
    """The content of the ConfigMap."""

    consumed: tuple[DecayedUsage, ...] = ()
    waiting: dict[str, ObservedStatus] = {}  # by namespace/name, for earlier versions
    workloads: dict[str, ObservedStatus] = {}  # the same by uid


def notes_after(state: ClusterState, decisions: DecisionBatch) -> Iterator[tuple[int, str]]:
    """The annotations of workloads with decisions, by number."""
    kinds = decisions.kind
    told = (kinds == DecisionKind.PLACE) | (kinds == _AWAY[0]) | (kinds == _AWAY[1])
    for number in dict.fromkeys(decisions.workload[told].tolist()):
        row = state.workload_numbers.row(number)
        if row == UNKNOWN:
            continue
        note = note_of(state, row)
        if note is not None:
            yield number, write_note(note)


def note_of(state: ClusterState, row: int) -> HandoverNote | None:
    """The annotation of a workload; None if its objects show everything."""
    pods = pods_of(state, row)
    standing = _standing(state, row)
    if standing == ObservedStatus() and len(pods) < 2:
        return None
    pending = np.argsort(state.pods.ordinal[pods])
    names = (state.node_specs[node].name for node in state.pods.node[pods[pending]].tolist())
    return HandoverNote(standing=standing, nodes=in_runs(names))


def _standing(state: ClusterState, row: int) -> ObservedStatus:
    """The status of a workload, with names instead of numbers."""
    table = state.workloads
    evictions, leaves = int(table.evictions[row]), table.phase[row] == Phase.TERMINATING
    told = Reason(int(table.held_code[row])).name if leaves else ""
    if not state.quota or row >= state.quota.reservations.top or state.quota.reservations.queue[row] == NONE:
        return ObservedStatus(evicted=told, evictions=evictions)
    held = holding_of(state, row)
    work = state.works[int(table.work_class[row])]
    flavors = {(ordinal, resource): (flavor, amount) for ordinal, resource, flavor, amount in held.claims}
    grants = []
    for ordinal, pod_set in enumerate(work.pod_sets):
        claims = {name: claim for (at, name), claim in flavors.items() if at == ordinal}
        spots = tuple(
            DomainAssignment(values=spot.values, count=spot.pods)
            for spot in held.assignments
            if spot.pod_set == ordinal
        )
        grants.append(
            PodSetAssignment(
                pod_set=pod_set.name,
                count=held.pods[ordinal],
                flavors=tuple(sorted((name, flavor) for name, (flavor, _) in claims.items())),
                charge=_charge(claims),
                spots=spots,
                awaits_topology=bool(held.awaits[ordinal]),
            )
        )
    return ObservedStatus(
        queue=held.queue,
        grants=tuple(grants),
        granted_ms=held.granted_ms,
        evicted=told,
        admitted=True,
        evictions=evictions,
    )


def _charge(claims: dict[str, tuple[str, int]]) -> Resources:
    return resources({name: amount for name, (_, amount) in claims.items()})


# -- the ConfigMap -----------------------------------------------------------------------------------------------


def shared_handover_of(state: ClusterState, workloads: Mapping[int, WorkloadPods]) -> str:
    """The JSON of the ConfigMap: usage, nominated workloads and reserved nodes; empty: there is nothing."""
    if not state.quota:
        return ""
    consumed = tuple(_consumed(state)) if state.policy.shares.usage is not None else ()
    numbers = ((int(state.workloads.number[row]), standing) for row, standing in _waiting(state))
    found = [(workloads[number].ref, standing) for number, standing in numbers if number in workloads]
    by_name = {ref.short_text: standing for ref, standing in found}
    kept = _Kept(consumed, by_name, {ref.uid: standing for ref, standing in found})
    return msgspec.json.encode(kept, order="sorted").decode() if kept != _Kept() else ""


def _waiting(state: ClusterState) -> Iterator[tuple[int, ObservedStatus]]:
    """Nominated workloads, and those with reserved nodes: no annotation says so."""
    branches, table, reserved = state.quota.quota_nodes, state.workloads, state.reserved
    for row in branches.sticky[: branches.top].tolist():
        if row != NONE:
            yield row, ObservedStatus(nominated=True)
    for row in np.flatnonzero(table.reserves[: table.top]).tolist():
        if table.reserves[row] == Reserves.PASSED_OVER:
            yield row, ObservedStatus(passed_over_ms=int(table.passed_ms[row]))
            continue
        nodes = reserved.node[: reserved.top][reserved.workload[: reserved.top] == row].tolist()
        names = in_runs(state.node_specs[node].name for node in nodes if node != NONE)
        yield row, ObservedStatus(nominated=True, reserved=names)


def _consumed(state: ClusterState) -> Iterator[DecayedUsage]:
    tables = state.quota
    for name, row in sorted(tables.local_queue_rows.items()):
        used = {resource: int(tables.local_queues.decayed_usage[row, r]) for r, resource in enumerate(tables.resources)}
        yield DecayedUsage(entrance=name, milli=resources(used), at_ms=int(tables.local_queues.at_ms[row]))


def decode_shared_handover(text: str) -> HandoverState:
    """Decode the ConfigMap; nothing if it is invalid."""
    try:
        kept = decode_known(text, _Kept)
    except (msgspec.MsgspecError, RecursionError):
        return HandoverState()
    return HandoverState(kept.consumed, kept.workloads, {} if kept.workloads else kept.waiting)


_NOT_FOUND = 404


def handover_config_map(lease: LeaseName) -> Ref:
    """The reference to the ConfigMap of a Lease."""
    return Ref(CONFIG_MAPS, lease.namespace, f"{lease.name}-before")


def write_shared_handover(lease: LeaseName, text: str) -> Write:
    """The write of the ConfigMap, which creates it if necessary."""
    return apply(handover_config_map(lease), {"data": {KEY: text}}, force=True)


def read_shared_handover(access: Connection, lease: LeaseName) -> str | ApiResponse:
    """Read the ConfigMap; the error response if that fails."""

    async def ask() -> ApiResponse:
        async with Client(access, connections=1) as client:
            return await client.ask(ApiRequest("GET", handover_config_map(lease).path(), timeout_s=5))

    answer = asyncio.run(ask())
    if answer.status == _NOT_FOUND:
        return ""
    if not answer.ok:
        return answer
    data: dict[str, str] = msgspec.json.decode(answer.body).get("data") or {}
    return data.get(KEY, "")
