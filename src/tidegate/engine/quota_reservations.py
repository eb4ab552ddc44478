"""Quota reservations by name: to carry over, to mirror from the world, and to release."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.commit_entry import give_up_all
from tidegate.engine.kernels.quota import remove_usage
from tidegate.engine.topology.build import HeldAssignment, assignments_of, free_held, hold_assignments
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.work import Work
from tidegate.state.classes import MOST_PODS
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.quota_tables import QuotaView, clear_reservations


class Holding(NamedTuple):
    """What one workload holds."""

    row: int
    queue: str
    granted_ms: int
    terminating: bool
    claims: tuple[tuple[int, str, str, int], ...]  # pod set ordinal, resource, flavor, amount
    pods: tuple[int, ...]  # by pod set
    assignments: tuple[HeldAssignment, ...] = ()
    awaits: tuple[int, ...] = ()  # by pod set: 1 if its assignment is found later


def quota_view_of(state: ClusterState) -> QuotaView:
    """All quota tables for kernels, with room for every workload."""
    state.quota.follow(state.quota.reservations, state.workloads.top)
    return state.quota.view(state.work_classes, state.pod_sets, state.workloads)


def holdings(state: ClusterState) -> list[Holding]:
    """What every workload holds."""
    return [holding_of(state, int(row)) for row in np.flatnonzero(state.quota.reservations.queue != NONE)]


def holding_of(state: ClusterState, row: int) -> Holding:
    """What a workload holds, by name."""
    tables, w = state.quota, int(state.workloads.work_class[row])
    queues = {at: name[6:] for name, at in tables.quota_node_rows.items() if name.startswith("queue/")}
    flavors = list(tables.flavor_rows)
    claims = []
    for a in range(int(tables.queue_requests.asks[w])):
        fr, ask = int(tables.reservations.flavor_resource[row, a]) - 1, int(tables.queue_requests.first_ask[w]) + a
        if fr >= 0:
            ordinal = int(tables.pod_set_needs.ordinal[tables.resource_requests.pod_set[ask]])
            resource = tables.resources[tables.flavor_resources.resource[fr]]
            flavor = flavors[tables.flavor_resources.flavor[fr]]
            claims.append((ordinal, resource, flavor, int(tables.reservations.amount[row, a])))
    return Holding(
        row=row,
        queue=queues[int(tables.reservations.queue[row])],
        granted_ms=int(tables.reservations.granted_ms[row]),
        terminating=bool(tables.reservations.terminating[row]),
        claims=tuple(claims),
        pods=tuple(tables.reservations.pods[row].tolist()),
        assignments=assignments_of(state, row),
        awaits=tuple(tables.reservations.awaits[row].tolist()),
    )


def write_holdings(state: ClusterState, held: list[Holding]) -> None:
    """Write holdings of workloads that hold nothing; the caller sums up the tree."""
    write_alike(state, ((holding.row, holding.granted_ms, holding) for holding in held))


def write_alike(state: ClusterState, held: Iterable[tuple[int, int, Holding]]) -> None:
    """Write many holdings, grouped by equal ones: the row of each, since when, and what it holds besides these two."""
    quota_view_of(state)  # makes room for quota reservations
    alike: dict[_Alike, list[int]] = {}  # rows that hold the same
    queues: dict[int, tuple[list[int], list[int]]] = {}  # rows of its holders, and since when
    rest: list[Holding] = []
    for row, granted_ms, holding in held:
        if holding.assignments or holding.terminating or any(holding.awaits):
            rest.append(holding)
        quota_node = state.quota.quota_node_rows.get(f"queue/{holding.queue}", NONE)
        if quota_node == NONE:
            continue
        rows, since = queues.setdefault(quota_node, ([], []))
        rows.append(row)
        since.append(granted_ms)
        w = int(state.workloads.work_class[row])
        alike.setdefault(_Alike(quota_node, w, holding.claims, holding.pods), []).append(row)
    for quota_node, (rows, since) in queues.items():
        _enlist(state, quota_node, np.array(rows, np.int64), since)
    for kind, rows in alike.items():
        _write_claims(state, kind, np.array(rows, np.int64))
    for holding in rest:
        _write_rest(state, holding)


class _Alike(NamedTuple):
    """What workloads of one class hold of one queue."""

    quota_node: int
    work_class: int
    claims: tuple[tuple[int, str, str, int], ...]
    pods: tuple[int, ...]


def _enlist(state: ClusterState, quota_node: int, rows: I64, since: list[int]) -> None:
    """Add workloads to the holders of a queue's quota, each before the one before it."""
    tables, reservations = state.quota, state.quota.reservations
    reservations.queue[rows], reservations.granted_ms[rows] = quota_node, since
    reservations.local_queue[rows] = tables.queue_requests.local_queue[state.workloads.work_class[rows]]
    reservations.terminating[rows], reservations.decision[rows] = 0, NONE
    before = int(tables.quota_nodes.first_holder[quota_node])
    reservations.next[rows], reservations.prev[rows] = np.append(before, rows[:-1]), np.append(rows[1:], NONE)
    if before != NONE:
        reservations.prev[before] = rows[0]
    tables.quota_nodes.first_holder[quota_node] = rows[-1]
    tables.quota_nodes.generation[tables.quota_nodes.root[quota_node]] += len(rows)
    if tables.quota_nodes.sticky[quota_node] in rows:
        tables.quota_nodes.sticky[quota_node] = NONE


def _write_claims(state: ClusterState, kind: _Alike, rows: I64) -> None:
    tables, reservations, w = state.quota, state.quota.reservations, kind.work_class
    width = reservations.axes["set"]
    reservations.pods[rows, : len(kind.pods)] = kind.pods[:width]
    reservations.awaits[rows], reservations.first_assignment[rows], reservations.assignments[rows] = 0, 0, 0
    claims = {(ordinal, resource): (flavor, amount) for ordinal, resource, flavor, amount in kind.claims}
    for a in range(int(tables.queue_requests.asks[w])):
        ask = int(tables.queue_requests.first_ask[w]) + a
        key = (
            int(tables.pod_set_needs.ordinal[tables.resource_requests.pod_set[ask]]),
            tables.resources[tables.resource_requests.resource[ask]],
        )
        if key not in claims:
            continue
        flavor, amount = claims[key]
        fr = tables.flavor_resource(flavor, key[1])
        reservations.flavor_resource[rows, a], reservations.amount[rows, a] = fr + 1, amount
        tables.quota_nodes.usage[kind.quota_node, fr] += amount * len(rows)


def _write_rest(state: ClusterState, holding: Holding) -> None:
    """Write what few holdings have: domain assignments, checks that are awaited, and eviction."""
    reservations, row = state.quota.reservations, holding.row
    if reservations.queue[row] != NONE:
        reservations.terminating[row] = holding.terminating
        reservations.awaits[row, : len(holding.awaits)] = holding.awaits[: reservations.axes["set"]]
        hold_assignments(state, row, holding.assignments)


def release_quota(state: ClusterState, rows: I64) -> None:
    """Release the quota of workloads; what is pending in their trees may be tried again."""
    if state.quota and len(rows):
        view = quota_view_of(state)
        free_held(state, rows)
        active(give_up_all)(view, rows)


def reclaim(state: ClusterState, row: int, ordinal: int) -> None:
    """Release the quota of one pod of a set, which is done."""
    tables, reservations = state.quota, state.quota.reservations
    if not tables or row >= reservations.top or reservations.queue[row] == NONE or reservations.pods[row, ordinal] <= 0:
        return
    view = quota_view_of(state)
    left = int(reservations.pods[row, ordinal])
    quota_node = int(reservations.queue[row])
    w = int(state.workloads.work_class[row])
    for a in range(int(tables.queue_requests.asks[w])):
        fr, ask = int(reservations.flavor_resource[row, a]), int(tables.queue_requests.first_ask[w]) + a
        if fr and int(tables.pod_set_needs.ordinal[tables.resource_requests.pod_set[ask]]) == ordinal:
            amount = int(reservations.amount[row, a])
            active(remove_usage)(view.tree, quota_node, fr - 1, amount - amount * (left - 1) // left)
            reservations.amount[row, a] = amount * (left - 1) // left
    reservations.pods[row, ordinal] -= 1
    reservations.reclaimed[row, ordinal] += 1
    tables.quota_nodes.epoch[tables.quota_nodes.root[quota_node]] += 1


def leave_queue(state: ClusterState, rows: I64) -> None:
    """Give up the first place in the queue of workloads that are no longer pending."""
    tables = state.quota
    if tables and len(rows):
        quota_nodes = tables.queue_requests.queue[state.workloads.work_class[rows]]
        known = quota_nodes != NONE
        kept = tables.quota_nodes.sticky[quota_nodes[known]] == rows[known]
        tables.quota_nodes.sticky[quota_nodes[known][kept]] = NONE


def forget_reservations(state: ClusterState, rows: I64) -> None:
    """Clear quota reservations whose rows go to other workloads."""
    release_quota(state, rows)
    clear_reservations(
        state.quota, rows
    )  # also where no queue is left: quota reservations are kept for when there is one again


def mark_dirty(state: ClusterState, rows: I64) -> None:
    """Mark dirty the trees in which these workloads are pending."""
    tables = state.quota
    if tables and len(rows):
        quota_nodes = tables.queue_requests.queue[state.workloads.work_class[rows]]
        tables.quota_nodes.dirty[tables.quota_nodes.root[quota_nodes[quota_nodes != NONE]]] = 1


def counts_of(work: Work, standing: ObservedStatus) -> list[int]:
    """The granted pods of each set of a work."""
    ordinals = {pod_set.name: ordinal for ordinal, pod_set in enumerate(work.pod_sets)}
    counts = [0] * len(work.pod_sets)
    for grant in standing.grants if counts else ():
        counts[ordinals.get(grant.pod_set, 0)] = min(max(grant.count, 0), MOST_PODS)
    return counts
