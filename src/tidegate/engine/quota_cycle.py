"""One cycle over the queues with quota, and what is told to those who wait.

Must not know: facts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.decision_rows import drain
from tidegate.engine.fair_usage import charge_entry, settle_use
from tidegate.engine.kernels.cycle_scratch import AGAIN, EPOCH_BOUND, NOW_MS, OUTSIDE, SPARED, Desk, Turn, make_desk
from tidegate.engine.kernels.fixpoint import run_cycles
from tidegate.engine.kernels.gang_placement import Output, empty_output
from tidegate.engine.kernels.quota_cycle import DONE, cycle_queues
from tidegate.engine.kernels.write_holds import tell_heads, tell_waiting
from tidegate.engine.place_reservations import victim_search_for
from tidegate.engine.placement_rule import ready_rule
from tidegate.engine.preemption_guard import retry_preemptors
from tidegate.engine.quota_layout import describe_work
from tidegate.engine.quota_reservations import book_of
from tidegate.engine.topology.build import topology_of
from tidegate.engine.topology.columns import view_counters
from tidegate.engine.topology.cycle_view import Grove
from tidegate.engine.topology.view import NOBODY_AGAIN, Bed, grove_for, reset, rows_again
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.decisions import NO_DECISIONS, NO_TALLY, DecisionBatch, DecisionKind, Tally, join_decisions
from tidegate.model.policy import AdmissionKind
from tidegate.model.queues import FairStrategy
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.topology import Topology


class Room(NamedTuple):
    """What a cycle writes on, kept from one to the next."""

    desk: Desk
    output: Output
    bed: Bed | None = None  # to look for spots in


def decide_queues(state: ClusterState, most: int = 1) -> tuple[DecisionBatch, Tally]:
    """Run one cycle over the queues whose trees were stirred; several, where they need nothing but the tree."""
    describe_work(state)
    tables = state.shares
    topology = topology_of(state)
    _notice_room(state)
    stir_due(state)
    if not tables.branches.stirred[: tables.branches.top].any():
        retry_preemptors(state)  # the rest goes first, so that it is done once
        if not tables.branches.stirred[: tables.branches.top].any() and not state.counters[Counter.UNTOLD]:
            return NO_DECISIONS, NO_TALLY
    tables.cycle += 1
    settle_use(state)
    turn = turn_of(state)
    again = rows_again(state) if topology is not None else NOBODY_AGAIN
    book_of(state)  # so that there is a ticket, and room, for everybody who may be admitted
    room = ready_room(state, turn, len(again) + _reserving(state))
    ready = ready_rule(state)
    grove = None
    if topology is not None:
        room, grove = _grove(state, room, topology, again)
    if most > 1 and is_quota_alone(state):
        return join_decisions(_run_cycles(state, turn, most)), NO_TALLY
    hot, book, rule = state.hot(), book_of(state), ready.rule
    while active(cycle_queues)(hot, rule, book, room.desk, grove, turn, room.output) != DONE:
        more = 2 * len(room.desk.pool.targets)
        room = make_room(state, more, len(again) + _reserving(state))._replace(bed=room.bed)
        if grove is not None:
            reset(state, grove)
    if grove is not None:
        tables.spots.top = int(grove.marks[view_counters.SPOTS])
    state.reserved.top = int(state.counters[Counter.RESERVED])
    if room.desk.wish.marks[SPARED]:
        state.counters[Counter.SPARED] = state.now_ms + 1
    if turn.places and room.desk.wish.marks[EPOCH_BOUND]:
        state.counters[Counter.EPOCH_BOUND] = state.counters[Counter.OUTSIDE]
    batches = [drain(state, room.output)[0]]
    _charge_entries(state, batches[0])
    batches += _tell(state, room)
    return join_decisions(batches), NO_TALLY


def is_quota_alone(state: ClusterState) -> bool:
    """Whether a cycle is about quota and nothing else: no places, no topology, no use that is charged."""
    return not state.node_specs and state.shares.topology is None and state.policy.shares.usage is None


def _run_cycles(state: ClusterState, turn: Turn, most: int) -> list[DecisionBatch]:
    """Run cycles until nothing is stirred, or so many: whatever room there is to write on, it is the same cycles."""
    ran, batches = 0, []
    while ran == 0 or (ran < most and state.shares.branches.stirred.any()):
        done, decided = _run_some(state, turn._replace(cycle=turn.cycle + ran), most - ran)
        ran += done
        batches.append(decided)
    state.shares.cycle += ran - 1
    return [*batches, *_tell(state, state.shares.room)]


def _run_some(state: ClusterState, turn: Turn, most: int) -> tuple[int, DecisionBatch]:
    """Run as many cycles as there is room for, but one at least; return how many ran, and what they decided."""
    room: Room = state.shares.room
    while True:
        rows = 2 * most_rows(state, room.desk)
        if len(room.output.rows) < rows:
            room = state.shares.room = room._replace(output=empty_output(2 * rows))
        hot, book, rule = state.hot(), book_of(state), ready_rule(state).rule
        room.output.written[0] = 0
        ran = int(active(run_cycles)(hot, rule, book, room.desk, turn, most, rows, room.output))
        if ran:
            return ran, drain(state, room.output)[0]
        room = make_room(state, 2 * len(room.desk.pool.targets), 0)._replace(bed=room.bed)


def _reserving(state: ClusterState) -> int:
    """How many workloads have a reservation at the most."""
    return int(state.counters[Counter.RESERVED])


def _charge_entries(state: ClusterState, decided: DecisionBatch) -> None:
    if state.policy.shares.usage is not None:
        admitted = np.unique(decided.workload[decided.kind == DecisionKind.ADMIT])
        charge_entry(state, state.workload_numbers.rows(admitted))


def turn_of(state: ClusterState) -> Turn:
    """What a cycle is told."""
    shares, fair = state.policy.shares, 0
    if shares.fair is not None:
        strategies = shares.fair.strategies
        fair = (1 if FairStrategy.FINAL_SHARE in strategies else 0) + (
            2 if FairStrategy.INITIAL_SHARE in strategies else 0
        )
    resources = state.shares.resources
    return Turn(
        now_ms=state.now_ms,
        cycle=state.shares.cycle,
        fair=fair,
        ignore_undeclared=int(shares.ignore_undeclared),
        retargets=int(shares.retargets),
        pods=resources.index("pods") if "pods" in resources else -1,
        places=int(state.policy.admission is AdmissionKind.TIDEGATE),
        recomputes=int(shares.topology.recomputes),
        fails_fast=int(shares.topology.fails_fast),
        limit_ms=state.policy.order.reserve_after_ms,
    )


def has_new_room(state: ClusterState) -> bool:
    """Whether room was made since the latest cycle, where admission takes a place: everybody is to be tried again."""
    changed = state.shares.room_epoch != state.counters[Counter.ROOM_EPOCH]
    return bool(changed and state.node_specs and state.policy.admission is AdmissionKind.TIDEGATE)


def _notice_room(state: ClusterState) -> None:
    """Where admission takes a place, room on nodes is a reason to look again at everything."""
    tables, epoch = state.shares, int(state.counters[Counter.ROOM_EPOCH])
    if tables.room_epoch != epoch and state.policy.admission is AdmissionKind.TIDEGATE:
        roots = np.flatnonzero(tables.branches.parent[: tables.branches.top] == NONE)
        tables.branches.epoch[roots] += 1
        tables.branches.stirred[roots] = 1
    tables.room_epoch = epoch


def _grove(state: ClusterState, room: Room, topology: Topology, again: I64) -> tuple[Room, Grove]:
    """The topology for a cycle, with room to look for spots in."""
    bed, grove = grove_for(state, topology, room.bed, again, most_pods(state))
    if bed is not room.bed:
        room = state.shares.room = room._replace(bed=bed)
    return room, grove


def ready_room(state: ClusterState, turn: Turn, again: int) -> Room:
    """Room for a cycle, for the pods that it may place too."""
    room: Room | None = state.shares.room
    tickets = state.shares.tickets
    pods = most_pods(state) if turn.places else 0
    state.reserve_pods(pods)
    state.reserved.reserve(int(state.counters[Counter.RESERVED]) + pods + state.shares.branches.top)
    if room is None or not _is_enough(room.desk, state, again):
        bed = None if room is None else room.bed
        room = state.shares.room = make_room(state, 2 * tickets.capacity, again)._replace(bed=bed)
    if len(room.output.rows) < most_rows(state, room.desk) + pods:
        room = state.shares.room = room._replace(output=empty_output(2 * (most_rows(state, room.desk) + pods)))
    room.output.written[0] = 0
    _date(state, room.desk)
    if turn.places:
        victims = victim_search_for(state, room.desk.victims)
        room = state.shares.room = room._replace(desk=room.desk._replace(victims=victims))
    return room


def _date(state: ClusterState, desk: Desk) -> None:
    """Write on a desk when it is, and who has just been preempted."""
    own = state.policy.admission is AdmissionKind.TIDEGATE
    desk.wish.marks[NOW_MS], desk.wish.marks[SPARED] = state.now_ms, 0
    desk.wish.marks[EPOCH_BOUND] = 0
    desk.wish.marks[OUTSIDE] = state.counters[Counter.OUTSIDE] if own else AGAIN


def most_pods(state: ClusterState) -> int:
    """The most pods that one cycle can place: of each queue its largest head's, and of those with a reservation."""
    works, branch = state.work_classes, state.shares.demands.branch[: state.work_classes.top]
    waits = (works.waiting[: works.top] > 0) & (branch != NONE)
    most = np.zeros(state.shares.branches.top, np.int64)
    np.maximum.at(most, branch[waits], works.pods[: works.top][waits])
    reserving = np.unique(state.reserved.workload[: state.counters[Counter.RESERVED]])
    return int(most.sum() + works.pods[state.workloads.work_class[reserving]].sum())


def most_rows(state: ClusterState, desk: Desk) -> int:
    """The most decisions of a cycle, places aside; a pod has at most one spot."""
    spots = 0
    if state.shares.topology is not None:
        again = rows_again(state)
        spots = most_pods(state) + int(state.work_classes.pods[state.workloads.work_class[again]].sum())
        spots += int(state.shares.tickets.spots[again].sum())
    return int(len(desk.heads.entries) * (desk.heads.choice.shape[2] + 2) + state.shares.tickets.capacity + spots)


def _is_enough(desk: Desk, state: ClusterState, again: int) -> bool:
    """Whether there is room for every workload, and for the widest of them."""
    tickets, heads = state.shares.tickets, desk.heads
    widths = (heads.choice.shape[2], heads.pods.shape[1], heads.tries.shape[2])
    wanted = (tickets.axes["ask"], tickets.axes["set"], tickets.axes["try"])
    enough = len(heads.entries) >= state.shares.branches.capacity + again
    enough = enough and len(desk.pool.flags) >= tickets.capacity
    return enough and all(a >= b for a, b in zip(widths, wanted, strict=True))


def make_room(state: ClusterState, targets: int, again: int) -> Room:
    """New room for a cycle that finds so many targets and looks at so many again."""
    desk = make_desk(state.shares, targets, again, victim_search_for(state))
    _date(state, desk)
    room = state.shares.room = Room(desk, empty_output(most_rows(state, desk) + most_pods(state)))
    return room


def _tell(state: ClusterState, room: Room) -> list[DecisionBatch]:
    """Tell heads what they wait for; and once nothing is tried again at once, those behind them."""
    batches: list[DecisionBatch] = []
    book, heads, marks = book_of(state), room.desk.heads, room.desk.wish.marks
    done = False
    while not done:
        room.output.written[0] = 0
        branches, out = book.tree.branches, room.output
        done = active(tell_heads)(branches, book.held, heads.entries, marks, out) == DONE
        if done and not state.shares.branches.stirred.any():
            classes = state.work_classes.top
            done = active(tell_waiting)(book.held, book.asked.demands, classes, out) == DONE
            state.counters[Counter.UNTOLD] *= not done
        if out.written[0]:
            batches.append(drain(state, out)[0])
    return batches


def next_try_ms(state: ClusterState) -> int | None:
    """When the first workload that backs off may be tried again; None: nobody does."""
    table, tickets = state.workloads, state.shares.tickets
    top = min(table.top, tickets.top)
    if tickets.not_before_ms[:top].max(initial=0) <= state.now_ms:
        return None  # mostly: at a glance
    later = tickets.not_before_ms[:top] > state.now_ms
    later &= (tickets.branch[:top] == NONE) & (table.number[:top] >= 0)
    return int(tickets.not_before_ms[:top][later].min()) if later.any() else None


def stir_due(state: ClusterState) -> None:
    """Look again at trees where somebody's back-off is over."""
    tickets, tables = state.shares.tickets, state.shares
    if tickets.not_before_ms[: state.workloads.top].max(initial=0) <= 0:
        return  # mostly: at a glance
    due = np.flatnonzero((tickets.not_before_ms > 0) & (tickets.not_before_ms <= state.now_ms))
    for row in due.tolist():
        tickets.not_before_ms[row] = 0
        branch = int(tables.demands.branch[state.workloads.work_class[row]])
        if branch != NONE:
            tables.branches.stirred[tables.branches.root[branch]] = 1
