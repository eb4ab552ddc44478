"""The preemptive orders: plan the cluster as if it were empty, keep who may stay, send away who may not.

Whoever runs and is still wanted stays where it is, unless somebody else who is wanted fits only if it moves.
Victims hold what they hold until they are gone; the room they leave goes to those it was planned for.
Must not know: how the order comes about.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.place import O_DEVICES, O_EVIDENCE, O_NODE, O_WORKLOAD, Output, empty_output, write
from tidegate.engine.kernels.refill import place_at, refill, vacate
from tidegate.engine.kernels.registry import active
from tidegate.engine.leaving import pods_of, send_away
from tidegate.engine.order import rank_workloads, settle_levels
from tidegate.engine.output import drain, single
from tidegate.engine.place import ready_rule
from tidegate.model.columns import I64
from tidegate.model.decisions import NO_DECISIONS, NO_TALLY, NOBODY, DecisionBatch, DecisionKind, Tally, join_decisions
from tidegate.model.policy import OrderKind
from tidegate.model.reasons import Reason
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables import Phase


class _Plan(NamedTuple):
    """Who is wanted, and where."""

    ranked: I64
    victims: I64  # run, and may not
    movers: I64  # run, and may, but elsewhere
    newcomers: I64  # do not run yet, and may
    places: Output  # of the newcomers, at least


def decide_preemptive(state: ClusterState) -> tuple[DecisionBatch, Tally]:
    """Bring the cluster towards what the order wants."""
    epoch = state.counters[Counter.ROOM_EPOCH] + state.counters[Counter.ORDER_EPOCH]
    if state.counters[Counter.PLANNED] == epoch:  # nothing happened that could change the plan
        return NO_DECISIONS, NO_TALLY
    state.counters[Counter.PLANNED] = epoch
    ranked = rank_workloads(state)
    if not len(ranked):
        return NO_DECISIONS, NO_TALLY
    plan = _make_plan(state, ranked)
    sent_away = _send_away(state, plan)
    placed = _place_newcomers(state, plan)
    held = _hold_others(state, plan)
    if state.policy.order.kind is OrderKind.LAS:
        settle_levels(state, ranked)
    return join_decisions([sent_away, placed, held]), NO_TALLY


def _make_plan(state: ClusterState, ranked: I64) -> _Plan:
    phase = state.workloads.phase[ranked]
    holds = (phase == Phase.ASSUMED) | (phase == Phase.RUNNING)
    anew = _refilled(state, ranked, np.zeros(0, np.int64))
    wanted = np.isin(ranked, anew.rows[: anew.written[0], O_WORKLOAD])
    stayers, newcomers = ranked[holds & wanted], ranked[~holds & wanted]
    if not len(newcomers):
        return _Plan(ranked, ranked[holds & ~wanted], np.zeros(0, np.int64), newcomers, anew)
    in_place = _refilled(state, newcomers, stayers)
    if len(np.unique(in_place.rows[: in_place.written[0], O_WORKLOAD])) == len(newcomers):
        return _Plan(ranked, ranked[holds & ~wanted], np.zeros(0, np.int64), newcomers, in_place)
    movers = np.array([row for row in stayers.tolist() if _moves(state, row, anew)], np.int64)
    return _Plan(ranked, ranked[holds & ~wanted], movers, newcomers, anew)


def _refilled(state: ClusterState, order: I64, stayers: I64) -> Output:
    """Places for workloads, in order, in a cluster that is empty but for those who stay."""
    scratch = state.scratch()
    table = scratch.workloads
    holding = np.flatnonzero(table.first_pod[: table.top] >= 0)
    active(vacate)(scratch.hot(), np.setdiff1d(holding, stayers))
    pods = int(scratch.work_classes.pods[table.work_class[order]].sum())
    scratch.reserve_pods(pods)
    out = empty_output(pods + 1)
    active(refill)(scratch.hot(), ready_rule(state).rule, order, out)
    return out


def _moves(state: ClusterState, row: int, anew: Output) -> bool:
    """Whether a workload's planned places are not those it has."""
    pods = pods_of(state, row)
    has = sorted(zip(state.pods.node[pods].tolist(), state.pods.devices[pods].tolist(), strict=True))
    at = np.flatnonzero(anew.rows[: anew.written[0], O_WORKLOAD] == row)
    return has != sorted(map(tuple, anew.rows[at][:, [O_NODE, O_DEVICES]].tolist()))


def _send_away(state: ClusterState, plan: _Plan) -> DecisionBatch:
    cause = int(state.workloads.number[plan.newcomers[0]]) if len(plan.newcomers) else NOBODY
    batches = []
    for rows, code in ((plan.victims, Reason.PREEMPTED_BY_ORDER), (plan.movers, Reason.PREEMPTED_TO_MOVE)):
        for row in rows.tolist():
            batches.append(single(state, DecisionKind.PREEMPT, row, code, cause))
            send_away(state, row, code)
    return join_decisions(batches)


def _place_newcomers(state: ClusterState, plan: _Plan) -> DecisionBatch:
    """Place those whose planned room is free already."""
    waiting = plan.newcomers[state.workloads.phase[plan.newcomers] == Phase.PENDING]
    if not len(waiting):
        return NO_DECISIONS
    pods = int(state.work_classes.pods[state.workloads.work_class[waiting]].sum())
    state.reserve_pods(pods)
    out = empty_output(pods + 1)
    hot = state.hot()
    planned = plan.places.rows[: plan.places.written[0]]
    for row in waiting.tolist():
        active(place_at)(hot, planned[planned[:, O_WORKLOAD] == row], state.now_ms, out)
    batch, _ = drain(state, out)
    return batch


def _hold_others(state: ClusterState, plan: _Plan) -> DecisionBatch:
    """Say to whoever waits, if it is news, that others go first or that its victims must leave."""
    table = state.workloads
    codes = np.where(np.isin(plan.ranked, plan.newcomers), Reason.AWAITS_VICTIMS, Reason.OUTRANKED)
    news = (table.phase[plan.ranked] == Phase.PENDING) & (table.held_code[plan.ranked] != codes)
    out = empty_output(int(news.sum()) + 1)
    for ahead in np.flatnonzero(news).tolist():
        row, code = int(plan.ranked[ahead]), int(codes[ahead])
        table.held_code[row] = code
        at = write(out, DecisionKind.HOLD, row, code)
        out.rows[at, O_EVIDENCE : O_EVIDENCE + 2] = ahead, state.work_classes.pods[table.work_class[row]]
    batch, _ = drain(state, out)
    return batch
