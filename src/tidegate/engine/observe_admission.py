"""Quota reservations, checks and usage that the world reports, mirrored into the state."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
import numpy as np

from tidegate.engine.fair_usage import charge_entry
from tidegate.engine.kernels.pending_queue import link, unlink
from tidegate.engine.place_reservations import reserve_again
from tidegate.engine.quota_layout import sum_up
from tidegate.engine.quota_reservations import (
    Holding,
    counts_of,
    leave_queue,
    mark_dirty,
    quota_view_of,
    release_quota,
    write_alike,
    write_holdings,
)
from tidegate.engine.release import pods_of, remove_pods, requeue_if_gone
from tidegate.engine.start_backoff import note_failed_start
from tidegate.engine.topology.build import HeldAssignment
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.decisions import NOBODY
from tidegate.model.facts import FactBatch
from tidegate.model.observed_status import CheckState, DecayedUsage, ObservedStatus, PodSetAssignment
from tidegate.model.policy import AdmissionKind
from tidegate.model.queues import LARGEST_CLAIM
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.units import LARGEST_NUMBER, bounded
from tidegate.model.work import Work
from tidegate.state.cluster import Claims, ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import done_in_sets
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.quota_reservations import Again
from tidegate.state.tables.workloads import Phase


def observe_status(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Update quota reservations from the reported status of workloads."""
    if not state.quota:
        return
    quota_view_of(state)  # makes room for quota reservations
    rows = state.workload_numbers.rows(events.subject[run])
    known = np.flatnonzero(rows != UNKNOWN)
    standings = [_standing(events, arg) for arg in events.arg[run][known].tolist()]
    plain, rest = _sort_out(state, rows[known], standings)
    _mirror_all(state, plain)
    for row, standing in rest:
        _mirror(state, row, standing)
    if state.policy.admission is AdmissionKind.TIDEGATE:
        reserve_again(state, {row: standing.reserved for row, standing in rest if standing.nominated})
    sum_up(state.quota)


_StatusColumn = Collection[tuple[int, ObservedStatus]]

#: The columns of a status in numbers.
_NUMBERS = ("granted_ms", "requeue_at_ms", "order_ms", "evictions", "passed_over_ms")


def _standing(events: FactBatch, arg: int) -> ObservedStatus:
    standing = events.payloads[arg]
    assert isinstance(standing, ObservedStatus)
    if all(0 <= getattr(standing, name) <= LARGEST_NUMBER for name in _NUMBERS):
        return standing
    return msgspec.structs.replace(standing, **{name: bounded(getattr(standing, name)) for name in _NUMBERS})


def _sort_out(state: ClusterState, rows: I64, standings: list[ObservedStatus]) -> tuple[_StatusColumn, _StatusColumn]:
    """Split off live workloads whose status reports only a reservation, as after a restart, from all others."""
    plain: dict[int, ObservedStatus] = {}
    rest = []
    fresh = (state.quota.reservations.queue[rows] == NONE) & (state.quota.reservations.replaces[rows] == NONE)
    fresh &= np.isin(state.workloads.phase[rows], (Phase.ASSUMED, Phase.RUNNING))
    for row, standing, is_fresh in zip(rows.tolist(), standings, fresh.tolist(), strict=True):
        if is_fresh and row not in plain and _is_plain(state, standing) and row not in state.done:
            plain[row] = standing
        else:
            rest.append((row, standing))
    return plain.items(), rest


def _grants_something(state: ClusterState, standing: ObservedStatus) -> bool:
    """Whether it holds quota: only of a queue that exists."""
    return bool(standing.grants) and f"queue/{standing.queue}" in state.quota.quota_node_rows


def _is_plain(state: ClusterState, standing: ObservedStatus) -> bool:
    """Whether the status reports only what it holds of its queue."""
    if not _grants_something(state, standing):
        return False
    told = ObservedStatus(
        queue=standing.queue,
        grants=standing.grants,
        granted_ms=standing.granted_ms,
        admitted=standing.admitted,
        evictions=standing.evictions,
    )
    return told == standing and not any(grant.spots or grant.awaits_topology for grant in standing.grants)


def _mirror_all(state: ClusterState, told: _StatusColumn) -> None:
    """Do what `_mirror` does for live workloads whose status reports only a reservation."""
    rows, table, reservations = np.array([row for row, _ in told], np.int64), state.workloads, state.quota.reservations
    reservations.blocked[rows], reservations.not_before_ms[rows], reservations.gated[rows] = Reason.NONE, 0, 0
    reservations.reclaimed[rows] = 0
    table.evictions[rows] = np.maximum(table.evictions[rows], [standing.evictions for _, standing in told])
    write_alike(state, _holdings(state, told))
    reservations.again[rows], reservations.pinned[rows] = Again.NO, 0
    table.phase[rows], table.held_code[rows] = Phase.RUNNING, 0
    mark_dirty(state, rows)


def _holdings(state: ClusterState, told: _StatusColumn) -> Iterator[tuple[int, int, Holding]]:
    """The holdings of workloads: computed once for those of a class with the same status."""
    known: dict[tuple[int, str, tuple[PodSetAssignment, ...]], Holding] = {}
    for row, standing in told:
        key = (int(state.workloads.work_class[row]), standing.queue, standing.grants)
        if key not in known:
            known[key] = _holding(state, row, standing)
        yield row, standing.granted_ms, known[key]


def _mirror(state: ClusterState, row: int, standing: ObservedStatus) -> None:
    tables, rows = state.quota, np.array([row], np.int64)
    _mirror_queueing(state, row, standing)
    holds = tables.reservations.queue[row] != NONE
    if holds:
        release_quota(state, rows)
    if _grants_something(state, standing):
        if state.workloads.phase[row] == Phase.PENDING:
            active(unlink)(state.hot(), row)
        leave_queue(state, rows)
        _hold(state, row, standing)
    elif holds and state.workloads.first_pod[row] == NONE:
        passed_ms = int(state.workloads.passed_ms[row])
        requeue_if_gone(state, row)  # or its rows are released, if it was cancelled
        if state.workloads.phase[row] != Phase.PENDING:
            return
        state.workloads.passed_ms[row] = passed_ms
    if standing.nominated:
        _go_first(state, row)
    mark_dirty(state, rows)


def _go_first(state: ClusterState, row: int) -> None:
    """Put a pending workload that others were evicted for first in its queue."""
    quota_node = int(state.quota.queue_requests.queue[state.workloads.work_class[row]])
    if (
        quota_node != NONE
        and state.policy.admission is AdmissionKind.KUEUE
        and state.workloads.phase[row] == Phase.PENDING
    ):
        state.quota.quota_nodes.sticky[quota_node] = row


def _mirror_queueing(state: ClusterState, row: int, standing: ObservedStatus) -> None:
    """Mirror when, and whether, a workload may be tried."""
    reservations, table = state.quota.reservations, state.workloads
    reservations.blocked[row] = _blocked(standing)
    reservations.not_before_ms[row] = standing.requeue_at_ms
    reservations.gated[row] = standing.gated
    table.evictions[row] = max(table.evictions[row], standing.evictions)
    if standing.passed_over_ms:
        table.passed_ms[row], state.counters[Counter.PASSED_DUE] = standing.passed_over_ms, 1
    _link_slices(state, row, standing.replaces)
    done = dict(standing.reclaimable)
    work = state.works[int(table.work_class[row])]
    for ordinal, pod_set in enumerate(work.pod_sets):
        if ordinal < reservations.axes["set"]:
            reservations.reclaimed[row, ordinal] = bounded(done.get(pod_set.name, 0))
    if standing.order_ms and standing.order_ms != table.submitted_ms[row]:
        waits = table.phase[row] == Phase.PENDING
        if waits:
            active(unlink)(state.hot(), row)
        table.submitted_ms[row] = standing.order_ms
        if waits:
            active(link)(state.hot(), np.array([row], np.int64))


def _link_slices(state: ClusterState, row: int, replaces: str) -> None:
    """Note which workload of the same namespace this one replaces, as a larger slice of its job."""
    reservations, own = state.quota.reservations, str(state.workload_ids[row])
    before = int(reservations.replaces[row])
    if before != NONE:
        reservations.replaces[row] = reservations.replaced_by[before] = NONE
    if not replaces or replaces.partition("/")[0] != own.partition("/")[0]:
        return
    for other in np.flatnonzero(state.workload_ids == replaces).tolist():
        claimed = int(reservations.replaced_by[other])
        if claimed != NONE:  # replaced by another before: the latest stands
            reservations.replaces[claimed] = NONE
        reservations.replaces[row], reservations.replaced_by[other] = other, row


def _blocked(standing: ObservedStatus) -> Reason:
    if not standing.active:
        return Reason.DEACTIVATED
    if any(check.state in (CheckState.RETRY, CheckState.REJECTED) for check in standing.checks):
        return Reason.CHECK_FAILED
    if standing.parked:
        return Reason.PARKED
    return Reason.OUTSIDE_LIMITS if standing.outside_limits else Reason.NONE


def _hold(state: ClusterState, row: int, standing: ObservedStatus) -> None:
    """Let a workload hold what it was granted."""
    table, holding = state.workloads, _holding(state, row, standing)
    write_holdings(state, [holding])
    state.quota.reservations.again[row] = _looks_again(holding, standing)
    state.quota.reservations.pinned[row] = standing.pinned and state.policy.shares.topology.pins
    table.phase[row] = Phase.TERMINATING if standing.evicted else Phase.RUNNING
    table.held_code[row] = 0
    if standing.evicted:
        state.counters[Counter.CLAIMS] |= Claims.SHIFTED
        table.pending_eviction[row] = 0  # it was evicted already


def _holding(state: ClusterState, row: int, standing: ObservedStatus) -> Holding:
    """The holding of a workload that was granted this."""
    work = state.works[int(state.workloads.work_class[row])]
    ordinals = {pod_set.name: ordinal for ordinal, pod_set in enumerate(work.pod_sets)}
    claims, done = [], done_in_sets(state, row, len(work.pod_sets))
    pods = [max(count - gone, 0) for count, gone in zip(counts_of(work, standing), done, strict=True)]
    for grant in standing.grants if work.pod_sets else ():
        ordinal = ordinals.get(grant.pod_set, 0)
        for resource, flavor in grant.flavors:
            claims.append((ordinal, resource, flavor, _claimed(grant, resource, standing, done[ordinal])))
    return Holding(
        row=row,
        queue=standing.queue,
        granted_ms=standing.granted_ms,
        terminating=bool(standing.evicted),
        claims=tuple(claims),
        pods=tuple(pods),
        assignments=tuple(_assignments(state, ordinals, standing)),
        awaits=tuple(_awaits(work, standing)),
    )


def _assignments(state: ClusterState, ordinals: dict[str, int], standing: ObservedStatus) -> Iterator[HeldAssignment]:
    """The domain assignments of a workload, with those on failed nodes marked."""
    by_topology = {flavor.name for flavor in state.policy.shares.flavors if flavor.topology}
    for grant in standing.grants:
        flavor = next((name for _, name in grant.flavors if name in by_topology), "")
        for assignment in grant.spots:
            lost = (
                standing.unhealthy.index(assignment.values[-1]) + 1
                if assignment.values[-1] in standing.unhealthy
                else 0
            )
            yield HeldAssignment(
                ordinals.get(grant.pod_set, 0), flavor, assignment.values, assignment.count, min(lost, 2)
            )


def _awaits(work: Work, standing: ObservedStatus) -> Iterator[int]:
    waits = {grant.pod_set for grant in standing.grants if grant.awaits_topology}
    for pod_set in work.pod_sets:
        yield int(pod_set.name in waits)


def _looks_again(holding: Holding, standing: ObservedStatus) -> Again:
    """Why the assignment of a workload that holds quota is searched again, if it is."""
    if standing.evicted or standing.finished or standing.parked or not standing.active:
        return Again.NO
    if standing.admitted:
        return Again.FAILED if any(assignment.lost for assignment in holding.assignments) else Again.NO
    ready = bool(standing.checks) and all(check.state is CheckState.READY for check in standing.checks)
    return Again.AWAITS if ready and any(holding.awaits) else Again.NO


def withdraw_admission(state: ClusterState, decision: int) -> None:
    """Withdraw an admission that could not be carried out: its quota is released, and it is pending again."""
    reservations, table = state.quota.reservations, state.workloads
    top = min(reservations.top, table.top)
    first = np.where(table.phase[:top] == Phase.ASSUMED, reservations.decision[:top], UNKNOWN)
    row = int(np.argmax(np.where(first <= decision, first, UNKNOWN))) if top else UNKNOWN
    if row == UNKNOWN or first[row] < 0:
        return
    if (
        not first[row]
        <= decision
        < first[row] + max(np.count_nonzero(reservations.flavor_resource[row]), 1) + reservations.assignments[row]
    ):
        return
    pods = pods_of(state, row)
    if (state.pods.decision[pods] == NOBODY).any():
        return  # the world reports it at its place
    note_failed_start(state, row)
    charge_entry(state, np.array([row], np.int64), back=True)
    _keep_replaced(state, int(reservations.replaces[row]))
    table.held_code[row] = 0
    table.phase[row] = Phase.TERMINATING
    if len(pods):
        remove_pods(state, row, pods, Reason.NONE)
    else:
        requeue_if_gone(state, row)


def _keep_replaced(state: ClusterState, row: int) -> None:
    """Let a slice run on whose replacement did not start."""
    table = state.workloads
    if row != NONE and table.held_code[row] == Reason.REPLACED:
        state.quota.reservations.terminating[row] = table.ending[row] = table.held_code[row] = 0
        table.phase[row] = Phase.RUNNING


def _claimed(grant: PodSetAssignment, resource: str, standing: ObservedStatus, done: int) -> int:
    """What is still charged: pods that are done, as far as is known, need no quota."""
    amount = min(max(dict(grant.charge).get(resource, 0), 0), LARGEST_CLAIM)
    done = max(dict(standing.reclaimable).get(grant.pod_set, 0), done)
    return amount * max(grant.count - done, 0) // grant.count if grant.count > 0 else 0


def observe_usage(state: ClusterState, events: FactBatch, run: slice) -> None:
    """Mirror the decayed usage of local queues."""
    tables = state.quota
    for arg in events.arg[run].tolist():
        decayed_usage = events.payloads[arg]
        assert isinstance(decayed_usage, DecayedUsage)
        row = tables.local_queue_rows.get(decayed_usage.entrance, NONE)
        if row == NONE:
            continue
        tables.local_queues.at_ms[row] = bounded(decayed_usage.at_ms)
        tables.local_queues.decayed_usage[row] = 0
        for name, amount in decayed_usage.milli:
            number = tables.resource(name)
            tables.local_queues.decayed_usage[row, number] = bounded(amount)
    state.counters[Counter.ORDER_EPOCH] += 1
