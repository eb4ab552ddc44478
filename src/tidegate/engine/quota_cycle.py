"""One cycle over the queues with quota, and the reasons that pending workloads report."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.decision_rows import drain
from tidegate.engine.fair_usage import charge_entry, settle_use
from tidegate.engine.kernels.columns import counters
from tidegate.engine.kernels.cycle_scratch import AGAIN, Cycle, CycleParams, CycleScratch, make_scratch
from tidegate.engine.kernels.fixpoint import run_cycles
from tidegate.engine.kernels.gang_placement import Output, empty_output
from tidegate.engine.kernels.quota_cycle import DONE, cycle_queues
from tidegate.engine.kernels.write_holds import report_heads, report_pending
from tidegate.engine.place_reservations import victim_search_for
from tidegate.engine.placement_rule import ready_rule
from tidegate.engine.preemption_guard import retry_preemptors
from tidegate.engine.quota_layout import describe_work
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.engine.topology.build import topology_of
from tidegate.engine.topology.columns import view_counters
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.engine.topology.view import NONE_AGAIN, SearchBuffers, reset, rows_again, topology_view_for
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.decisions import (
    NO_DECISIONS,
    NO_REFUSALS,
    DecisionBatch,
    DecisionKind,
    RefusalCounts,
    join_decisions,
)
from tidegate.model.policy import AdmissionKind
from tidegate.model.queues import FairStrategy
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.topology import Topology


class CycleBuffers(NamedTuple):
    """Scratch and output of a cycle, kept from one to the next."""

    scratch: CycleScratch
    output: Output
    buffers: SearchBuffers | None = None  # for the topology search


def decide_queues(state: ClusterState, most: int = 1) -> tuple[DecisionBatch, RefusalCounts]:
    """Run one cycle over the queues whose trees are dirty; several, where they need nothing but the tree."""
    describe_work(state)
    tables = state.quota
    topology = topology_of(state)
    _note_room(state)
    mark_due_dirty(state)
    if not tables.quota_nodes.dirty[: tables.quota_nodes.top].any():
        retry_preemptors(state)  # the rest of the preconditions goes first, so that this is done once
        if not tables.quota_nodes.dirty[: tables.quota_nodes.top].any() and not state.counters[Counter.UNREPORTED]:
            return NO_DECISIONS, NO_REFUSALS
    tables.cycle += 1
    settle_use(state)
    params = params_of(state)
    again = rows_again(state) if topology is not None else NONE_AGAIN
    quota_view_of(state)  # so that every workload that may be admitted has a row and room
    room = ready_room(state, params, len(again) + _reserving(state))
    ready = ready_rule(state)
    topology_view = None
    if topology is not None:
        room, topology_view = _topology(state, room, topology, again)
    if most > 1 and is_quota_alone(state):
        return join_decisions(_run_cycles(state, params, most)), NO_REFUSALS
    hot, view, rule = state.hot(), quota_view_of(state), ready.rule
    while active(cycle_queues)(Cycle(hot, rule, view, room.scratch, room.output), topology_view, params) != DONE:
        more = 2 * len(room.scratch.preemption.targets)
        room = make_room(state, more, len(again) + _reserving(state))._replace(buffers=room.buffers)
        if topology_view is not None:
            reset(state, topology_view)
    if topology_view is not None:
        tables.assignments.top = int(topology_view.marks[view_counters.ASSIGNMENTS])
    state.reserved.top = int(state.counters[Counter.RESERVED])
    if room.scratch.requests.marks[counters.SPARED]:
        state.counters[Counter.SPARED] = state.now_ms + 1
    if params.places and room.scratch.requests.marks[counters.EPOCH_BOUND]:
        state.counters[Counter.EPOCH_BOUND] = state.counters[Counter.EXTERNAL]
    batches = [drain(state, room.output)[0]]
    _charge_entries(state, batches[0])
    batches += _report_reasons(state, room)
    return join_decisions(batches), NO_REFUSALS


def is_quota_alone(state: ClusterState) -> bool:
    """Whether a cycle is about quota and nothing else: no places, no topology, no usage-based order."""
    return not state.node_specs and state.quota.topology is None and state.policy.shares.usage is None


def _run_cycles(state: ClusterState, params: CycleParams, most: int) -> list[DecisionBatch]:
    """Run cycles until no tree is dirty, up to `most`: the cycles are the same whatever room the scratch has."""
    ran, batches = 0, []
    while ran == 0 or (ran < most and state.quota.quota_nodes.dirty.any()):
        done, decided = _run_some(state, params._replace(cycle=params.cycle + ran), most - ran)
        ran += done
        batches.append(decided)
    state.quota.cycle += ran - 1
    return [*batches, *_report_reasons(state, state.quota.room)]


def _run_some(state: ClusterState, params: CycleParams, most: int) -> tuple[int, DecisionBatch]:
    """Run as many cycles as there is room for, but at least one; return how many ran, and their decisions."""
    room: CycleBuffers = state.quota.room
    while True:
        rows = 2 * most_rows(state, room.scratch)
        if len(room.output.rows) < rows:
            room = state.quota.room = room._replace(output=empty_output(2 * rows))
        room.output.written[0] = 0
        cycle = Cycle(state.hot(), ready_rule(state).rule, quota_view_of(state), room.scratch, room.output)
        ran = int(active(run_cycles)(cycle, params, most, rows))
        if ran:
            return ran, drain(state, room.output)[0]
        room = make_room(state, 2 * len(room.scratch.preemption.targets), 0)._replace(buffers=room.buffers)


def _reserving(state: ClusterState) -> int:
    """The most workloads that can have a reservation."""
    return int(state.counters[Counter.RESERVED])


def _charge_entries(state: ClusterState, decided: DecisionBatch) -> None:
    if state.policy.shares.usage is not None:
        admitted = np.unique(decided.workload[decided.kind == DecisionKind.ADMIT])
        charge_entry(state, state.workload_numbers.rows(admitted))


def params_of(state: ClusterState) -> CycleParams:
    """The inputs of a cycle."""
    quota, fair = state.policy.shares, 0
    if quota.fair is not None:
        strategies = quota.fair.strategies
        fair = (1 if FairStrategy.FINAL_SHARE in strategies else 0) + (
            2 if FairStrategy.INITIAL_SHARE in strategies else 0
        )
    resources = state.quota.resources
    return CycleParams(
        now_ms=state.now_ms,
        cycle=state.quota.cycle,
        fair=fair,
        ignore_undeclared=int(quota.ignore_undeclared),
        retargets=int(quota.retargets),
        pods=resources.index("pods") if "pods" in resources else -1,
        places=int(state.policy.admission is AdmissionKind.TIDEGATE),
        recomputes=int(quota.topology.recomputes),
        fails_fast=int(quota.topology.fails_fast),
        limit_ms=state.policy.order.reserve_after_ms,
    )


def has_new_room(state: ClusterState) -> bool:
    """Whether room was made since the latest cycle, where admission takes a place: all pending work is tried again."""
    changed = state.quota.room_epoch != state.counters[Counter.ROOM_EPOCH]
    return bool(changed and state.node_specs and state.policy.admission is AdmissionKind.TIDEGATE)


def _note_room(state: ClusterState) -> None:
    """Where admission takes a place, mark all trees dirty after room was made on nodes."""
    tables, epoch = state.quota, int(state.counters[Counter.ROOM_EPOCH])
    if tables.room_epoch != epoch and state.policy.admission is AdmissionKind.TIDEGATE:
        roots = np.flatnonzero(tables.quota_nodes.parent[: tables.quota_nodes.top] == NONE)
        tables.quota_nodes.epoch[roots] += 1
        tables.quota_nodes.dirty[roots] = 1
    tables.room_epoch = epoch


def _topology(
    state: ClusterState, room: CycleBuffers, topology: Topology, again: I64
) -> tuple[CycleBuffers, TopologyView]:
    """The topology for a cycle, with buffers for its search."""
    buffers, topology_view = topology_view_for(state, topology, room.buffers, again, most_pods(state))
    if buffers is not room.buffers:
        room = state.quota.room = room._replace(buffers=buffers)
    return room, topology_view


def ready_room(state: ClusterState, params: CycleParams, again: int) -> CycleBuffers:
    """Scratch for a cycle, with rows for the pods that it may place."""
    room: CycleBuffers | None = state.quota.room
    reservations = state.quota.reservations
    pods = most_pods(state) if params.places else 0
    state.reserve_pods(pods)
    state.reserved.reserve(int(state.counters[Counter.RESERVED]) + pods + state.quota.quota_nodes.top)
    if room is None or not _is_enough(room.scratch, state, again):
        buffers = None if room is None else room.buffers
        room = state.quota.room = make_room(state, 2 * reservations.capacity, again)._replace(buffers=buffers)
    if len(room.output.rows) < most_rows(state, room.scratch) + pods:
        room = state.quota.room = room._replace(output=empty_output(2 * (most_rows(state, room.scratch) + pods)))
    room.output.written[0] = 0
    _date(state, room.scratch)
    if params.places:
        victims = victim_search_for(state, room.scratch.victims)
        room = state.quota.room = room._replace(scratch=room.scratch._replace(victims=victims))
    return room


def _date(state: ClusterState, scratch: CycleScratch) -> None:
    """Write the time and the external epoch into a scratch."""
    own = state.policy.admission is AdmissionKind.TIDEGATE
    scratch.requests.marks[counters.NOW_MS], scratch.requests.marks[counters.SPARED] = state.now_ms, 0
    scratch.requests.marks[counters.EPOCH_BOUND] = 0
    scratch.requests.marks[counters.EXTERNAL] = state.counters[Counter.EXTERNAL] if own else AGAIN


def most_pods(state: ClusterState) -> int:
    """The most pods that one cycle can place: of each queue its largest head's, and of those with a reservation."""
    works, quota_node = state.work_classes, state.quota.queue_requests.queue[: state.work_classes.top]
    waits = (works.waiting[: works.top] > 0) & (quota_node != NONE)
    most = np.zeros(state.quota.quota_nodes.top, np.int64)
    np.maximum.at(most, quota_node[waits], works.pods[: works.top][waits])
    reserving = np.unique(state.reserved.workload[: state.counters[Counter.RESERVED]])
    return int(most.sum() + works.pods[state.workloads.work_class[reserving]].sum())


def most_rows(state: ClusterState, scratch: CycleScratch) -> int:
    """The most decisions of a cycle, places aside; a pod has at most one domain assignment."""
    assignments = 0
    if state.quota.topology is not None:
        again = rows_again(state)
        assignments = most_pods(state) + int(state.work_classes.pods[state.workloads.work_class[again]].sum())
        assignments += int(state.quota.reservations.assignments[again].sum())
    return int(
        len(scratch.heads.entries) * (scratch.heads.choice.shape[2] + 2)
        + state.quota.reservations.capacity
        + assignments
    )


def _is_enough(scratch: CycleScratch, state: ClusterState, again: int) -> bool:
    """Whether there is room for every workload, and for the widest of them."""
    reservations, heads = state.quota.reservations, scratch.heads
    widths = (heads.choice.shape[2], heads.pods.shape[1], heads.tries.shape[2])
    wanted = (reservations.axes["ask"], reservations.axes["set"], reservations.axes["try"])
    enough = len(heads.entries) >= state.quota.quota_nodes.capacity + again
    enough = enough and len(scratch.preemption.flags) >= reservations.capacity
    return enough and all(a >= b for a, b in zip(widths, wanted, strict=True))


def make_room(state: ClusterState, targets: int, again: int) -> CycleBuffers:
    """New scratch for a cycle with so many targets, and so many workloads whose assignment is searched again."""
    scratch = make_scratch(state.quota, targets, again, victim_search_for(state))
    _date(state, scratch)
    room = state.quota.room = CycleBuffers(scratch, empty_output(most_rows(state, scratch) + most_pods(state)))
    return room


def _report_reasons(state: ClusterState, room: CycleBuffers) -> list[DecisionBatch]:
    """Report to heads why they wait; and once none is tried again at once, to the workloads behind them."""
    batches: list[DecisionBatch] = []
    view, heads, marks = quota_view_of(state), room.scratch.heads, room.scratch.requests.marks
    done = False
    while not done:
        room.output.written[0] = 0
        quota_nodes, out = view.tree.quota_nodes, room.output
        done = active(report_heads)(quota_nodes, view.held, heads.entries, marks, out) == DONE
        if done and not state.quota.quota_nodes.dirty.any():
            classes = state.work_classes.top
            done = active(report_pending)(view.held, view.asked.queue_requests, classes, out) == DONE
            state.counters[Counter.UNREPORTED] *= not done
        if out.written[0]:
            batches.append(drain(state, out)[0])
    return batches


def next_try_ms(state: ClusterState) -> int | None:
    """When the next back-off of a pending workload ends; None: none backs off."""
    table, reservations = state.workloads, state.quota.reservations
    top = min(table.top, reservations.top)
    if reservations.not_before_ms[:top].max(initial=0) <= state.now_ms:
        return None  # the usual case, seen at a glance
    later = reservations.not_before_ms[:top] > state.now_ms
    later &= (reservations.queue[:top] == NONE) & (table.number[:top] >= 0)
    return int(reservations.not_before_ms[:top][later].min()) if later.any() else None


def mark_due_dirty(state: ClusterState) -> None:
    """Mark dirty the trees of workloads whose back-off is over."""
    reservations, tables = state.quota.reservations, state.quota
    if reservations.not_before_ms[: state.workloads.top].max(initial=0) <= 0:
        return  # the usual case, seen at a glance
    due = np.flatnonzero((reservations.not_before_ms > 0) & (reservations.not_before_ms <= state.now_ms))
    for row in due.tolist():
        reservations.not_before_ms[row] = 0
        quota_node = int(tables.queue_requests.queue[state.workloads.work_class[row]])
        if quota_node != NONE:
            tables.quota_nodes.dirty[tables.quota_nodes.root[quota_node]] = 1
