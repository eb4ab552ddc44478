"""What whoever takes over must know and no object shows: found in the state, written when it changes.

Of each workload: the quota that it holds, and the nodes that were decided for its pods. Of all: what entrances used of
late, for whom others were evicted, and who keeps room because it was passed over. See docs/adr/0010-hand-over.md.
Must not know: how it is written, or what a successor makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from tidegate.engine.quota_reservations import holding_of
from tidegate.engine.release import pods_of
from tidegate.kube.mirror.handover_annotation import HandoverNote, in_runs, write_note
from tidegate.kube.mirror.workload_pods import WorkloadPods
from tidegate.kube.takeover import HandoverState
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.observed_status import Consumed, Grant, Spot, Standing
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import Resources, decode_known, resources
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.workloads import Phase, Reserves

_AWAY = (DecisionKind.PREEMPT, DecisionKind.EVICT)

#: The key of the object that has what belongs to no single workload.
KEY = "before.json"


class _Kept(msgspec.Struct, frozen=True):
    """What is written of all workloads together."""

    consumed: tuple[Consumed, ...] = ()
    waiting: dict[str, Standing] = {}  # by namespace/name, for versions that read no other
    workloads: dict[str, Standing] = {}  # the same by uid


def notes_after(state: ClusterState, decisions: DecisionBatch) -> Iterator[tuple[int, str]]:
    """Notes to leave with work that was decided on, by its number."""
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
    """The note on one workload; None: objects show all there is to know."""
    pods = pods_of(state, row)
    standing = _standing(state, row)
    if standing == Standing() and len(pods) < 2:
        return None
    pending = np.argsort(state.pods.ordinal[pods])
    names = (state.node_specs[node].name for node in state.pods.node[pods[pending]].tolist())
    return HandoverNote(standing=standing, nodes=in_runs(names))


def _standing(state: ClusterState, row: int) -> Standing:
    """Where a workload stands, in words that mean the same to another replica."""
    table = state.workloads
    evictions, leaves = int(table.evictions[row]), table.phase[row] == Phase.TERMINATING
    told = Reason(int(table.held_code[row])).name if leaves else ""
    if not state.quota or row >= state.quota.reservations.top or state.quota.reservations.queue[row] == NONE:
        return Standing(evicted=told, evictions=evictions)
    held = holding_of(state, row)
    work = state.works[int(table.work_class[row])]
    flavors = {(ordinal, resource): (flavor, amount) for ordinal, resource, flavor, amount in held.claims}
    grants = []
    for ordinal, pod_set in enumerate(work.pod_sets):
        claims = {name: claim for (at, name), claim in flavors.items() if at == ordinal}
        spots = tuple(Spot(values=spot.values, count=spot.pods) for spot in held.assignments if spot.pod_set == ordinal)
        grants.append(
            Grant(
                pod_set=pod_set.name,
                count=held.pods[ordinal],
                flavors=tuple(sorted((name, flavor) for name, (flavor, _) in claims.items())),
                charge=_charge(claims),
                spots=spots,
                awaits_topology=bool(held.awaits[ordinal]),
            )
        )
    return Standing(
        queue=held.queue,
        grants=tuple(grants),
        granted_ms=held.granted_ms,
        evicted=told,
        admitted=True,
        evictions=evictions,
    )


def _charge(claims: dict[str, tuple[str, int]]) -> Resources:
    return resources({name: amount for name, (_, amount) in claims.items()})


# -- what belongs to no single workload --------------------------------------------------------------------------


class SharedHandover(NamedTuple):
    """What belongs to no single workload, as text; empty: there is nothing."""

    text: str


def common_of(state: ClusterState, workloads: Mapping[int, WorkloadPods]) -> SharedHandover:
    """What entrances used of late, for whom others were evicted, and who keeps room because it was passed over."""
    if not state.quota:
        return SharedHandover("")
    consumed = tuple(_consumed(state)) if state.policy.shares.usage is not None else ()
    numbers = ((int(state.workloads.number[row]), standing) for row, standing in _waiting(state))
    found = [(workloads[number].ref, standing) for number, standing in numbers if number in workloads]
    by_name = {ref.short_text: standing for ref, standing in found}
    kept = _Kept(consumed, by_name, {ref.uid: standing for ref, standing in found})
    return SharedHandover(msgspec.json.encode(kept, order="sorted").decode() if kept != _Kept() else "")


def _waiting(state: ClusterState) -> Iterator[tuple[int, Standing]]:
    """Workloads that go before others, though nothing that is written with them says so."""
    branches, table, reserved = state.quota.quota_nodes, state.workloads, state.reserved
    for row in branches.sticky[: branches.top].tolist():
        if row != NONE:
            yield row, Standing(nominated=True)
    for row in np.flatnonzero(table.reserves[: table.top]).tolist():
        if table.reserves[row] == Reserves.PASSED_OVER:
            yield row, Standing(passed_over_ms=int(table.passed_ms[row]))
            continue
        nodes = reserved.node[: reserved.top][reserved.workload[: reserved.top] == row].tolist()
        names = in_runs(state.node_specs[node].name for node in nodes if node != NONE)
        yield row, Standing(nominated=True, reserved=names)


def _consumed(state: ClusterState) -> Iterator[Consumed]:
    tables = state.quota
    for name, row in sorted(tables.local_queue_rows.items()):
        used = {resource: int(tables.local_queues.decayed_usage[row, r]) for r, resource in enumerate(tables.resources)}
        yield Consumed(entrance=name, milli=resources(used), at_ms=int(tables.local_queues.at_ms[row]))


def read_common(text: str) -> HandoverState:
    """What a leader before us knew; nothing where that cannot be read."""
    try:
        kept = decode_known(text, _Kept)
    except (msgspec.MsgspecError, RecursionError):
        return HandoverState()
    return HandoverState(kept.consumed, kept.workloads, {} if kept.workloads else kept.waiting)
