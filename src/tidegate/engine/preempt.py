"""The preemptive orders: workloads run that would run if the empty cluster were filled in order, others are preempted.

A running workload keeps its places, unless one that should run fits only without it (`rearrange`). Victims hold what
they hold until they are gone; the room they leave goes to the workloads it was planned for. Workloads that may not be
preempted now are planned around.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.decision_rows import drain, single
from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.fifo_cycle import hardest_set, refusal_of, write_evidence
from tidegate.engine.kernels.gang_placement import Output, empty_output, give_back, place_workload, write
from tidegate.engine.kernels.pending_queue import note_reported, unlink
from tidegate.engine.kernels.replan import place_at
from tidegate.engine.placement_rule import ready_rule
from tidegate.engine.preemption_guard import safe_holders
from tidegate.engine.preemptive_order import notice_demotions, rank_workloads, settle_levels, without_estimate
from tidegate.engine.rearrange import (
    RankedWorkloads,
    Rearranged,
    could_fit_beside,
    emptied,
    placed_in,
    rearrange,
    refilled,
    reserve_planned,
)
from tidegate.engine.release import evict, pods_of
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
from tidegate.model.policy import OrderKind, WithoutEstimate
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables.workloads import Phase


class _Plan(NamedTuple):
    """What runs, and where."""

    ranked: I64
    wanted: I64  # should run, or stay because their room is not needed
    victims: dict[int, int]  # have places and must go, with the workload they go for
    movers: dict[int, int]  # the same, but they run elsewhere then
    newcomers: I64  # do not run yet, and may
    refused: I64  # pending, and not tried
    places: Output  # of the newcomers, at least


def decide_preemptive(state: ClusterState) -> tuple[DecisionBatch, RefusalCounts]:
    """Change what runs towards what the order wants."""
    notice_demotions(state)
    epoch = state.counters[Counter.ROOM_EPOCH] + state.counters[Counter.ORDER_EPOCH]
    if state.counters[Counter.PLANNED] == epoch:  # nothing happened that could change the plan
        return NO_DECISIONS, NO_REFUSALS
    state.counters[Counter.PLANNED] = epoch
    ranked = rank_workloads(state)
    if not len(ranked):
        return NO_DECISIONS, NO_REFUSALS
    plan = _make_plan(state, ranked, _refused(state, ranked))
    evicted = _evict_victims(state, plan)
    placed = _place_newcomers(state, plan)
    waiting = plan.newcomers[state.workloads.phase[plan.newcomers] == Phase.PENDING]
    reserve_planned(state, waiting, plan.places)
    held, tally = _hold_others(state, plan)
    if state.policy.order.kind is OrderKind.LAS:
        settle_levels(state, ranked, plan.wanted)
    return join_decisions([evicted, placed, held]), tally


def _refused(state: ClusterState, ranked: I64) -> I64:
    """Pending workloads that are not tried: their runtime is unknown, and the policy requires it."""
    if state.policy.order.without_estimate is WithoutEstimate.LAST:
        return np.zeros(0, np.int64)
    return without_estimate(state, ranked[state.workloads.phase[ranked] == Phase.PENDING])


def _make_plan(state: ClusterState, ranked: I64, refused: I64) -> _Plan:
    phase = state.workloads.phase[ranked]
    holds = (phase == Phase.ASSUMED) | (phase == Phase.RUNNING)
    is_safe = np.isin(ranked, safe_holders(state, ranked))
    tried = ~np.isin(ranked, refused)
    refilled_places = refilled(state, ranked[~is_safe & tried], ranked[is_safe])
    wanted = is_safe | np.isin(ranked, placed_in(refilled_places))
    if could_fit_beside(state, ranked[~holds & wanted]):
        has_reserved = bool(state.workloads.reserves[ranked].any())
        for as_reserved in (True, False) if has_reserved else (False,):
            beside = refilled(state, ranked[~holds & tried], ranked[holds], as_reserved=as_reserved)
            placed = np.isin(ranked, placed_in(beside))
            if placed[~holds & wanted].all():  # no workload has to go
                return _Plan(ranked, ranked[holds | placed], {}, {}, ranked[placed], refused, beside)
    standing = RankedWorkloads(ranked, holds, wanted, is_safe)
    found = rearrange(state, standing) or _moved(state, standing, refilled_places)
    is_cleared = np.isin(ranked, list(found.cleared))
    return _Plan(
        ranked=ranked,
        wanted=ranked[wanted | (holds & ~is_cleared)],
        victims={row: found.cleared[row] for row in ranked[is_cleared & ~wanted].tolist()},
        movers={row: found.cleared[row] for row in ranked[is_cleared & wanted].tolist()},
        newcomers=ranked[~holds & wanted],
        refused=refused,
        places=found.places,
    )


def _moved(state: ClusterState, standing: RankedWorkloads, refilled_places: Output) -> Rearranged:
    """Move all workloads to where they are in the refilled cluster: that is always possible."""
    ranked, holds, wanted, safe = standing
    moved = [row for row in ranked[holds & ~safe].tolist() if _moves(state, row, refilled_places)]
    return Rearranged(refilled_places, dict.fromkeys(moved, int(ranked[~holds & wanted][0])), 0)


def _moves(state: ClusterState, row: int, refilled_places: Output) -> bool:
    """Whether a workload's planned places are not those it has."""
    pods = pods_of(state, row)
    has = sorted(zip(state.pods.node[pods].tolist(), state.pods.devices[pods].tolist(), strict=True))
    at = np.flatnonzero(refilled_places.rows[: refilled_places.written[0], decision_columns.WORKLOAD] == row)
    return has != sorted(
        map(tuple, refilled_places.rows[at][:, [decision_columns.NODE, decision_columns.DEVICES]].tolist())
    )


def _evict_victims(state: ClusterState, plan: _Plan) -> DecisionBatch:
    batches = []
    for rows, code in ((plan.victims, Reason.PREEMPTED_BY_ORDER), (plan.movers, Reason.PREEMPTED_TO_MOVE)):
        for row, cause in rows.items():
            batches.append(single(state, DecisionKind.PREEMPT, row, code, int(state.workloads.number[cause])))
            state.workloads.preempted_in[row] = state.counters[Counter.EXTERNAL]
            evict(state, row, code)
    return join_decisions(batches)


def _place_newcomers(state: ClusterState, plan: _Plan) -> DecisionBatch:
    """Place the newcomers whose planned room is free already."""
    waiting = plan.newcomers[state.workloads.phase[plan.newcomers] == Phase.PENDING]
    if not len(waiting):
        return NO_DECISIONS
    pods = int(state.work_classes.pods[state.workloads.work_class[waiting]].sum())
    state.reserve_pods(pods)
    out = empty_output(pods + 1)
    hot = state.hot()
    planned = plan.places.rows[: plan.places.written[0]]
    for row in waiting.tolist():
        active(place_at)(hot, planned[planned[:, decision_columns.WORKLOAD] == row], state.now_ms, out)
    batch, _ = drain(state, out)
    return batch


def _hold_others(state: ClusterState, plan: _Plan) -> tuple[DecisionBatch, RefusalCounts]:
    """Report to pending workloads, if it changed, why they wait: no room ever, outranked, or victims that terminate.

    Where nothing may wait, workloads that were never placed and are not planned are rejected.
    """
    table, works = state.workloads, state.work_classes
    pending = plan.ranked[table.phase[plan.ranked] == Phase.PENDING]
    empty = _look_at_empty(state, pending)
    is_next = np.isin(pending, plan.newcomers)
    unfit = works.held_code[table.work_class[pending]]
    codes = np.where(is_next, Reason.AWAITS_VICTIMS, np.where(unfit > 0, unfit, Reason.OUTRANKED))
    codes[np.isin(pending, plan.refused)] = Reason.NO_ESTIMATE
    rejected = ~is_next & (table.evictions[pending] == 0) if not state.policy.waits else np.zeros(len(pending), bool)
    changed = np.flatnonzero(rejected | (table.held_code[pending] != codes)).tolist()
    out, ahead = empty_output(len(changed) + 1), {int(row): at for at, row in enumerate(plan.ranked.tolist())}
    for at in changed:
        row, code = int(pending[at]), int(codes[at])
        if rejected[at]:
            _reject(state, row, code, out)
        else:
            _hold(state, row, code, ahead[row], out, empty)
    return drain(state, out, empty)


def _hold(state: ClusterState, row: int, code: int, ahead: int, out: Output, empty: ClusterState | None) -> None:
    works, table = state.work_classes, state.workloads
    active(note_reported)(works.block, table.block, row, code)
    evidence = out.rows[write(out, DecisionKind.HOLD, row, code), decision_columns.EVIDENCE :]
    if code in (Reason.AWAITS_VICTIMS, Reason.OUTRANKED):
        evidence[:2] = ahead, works.pods[table.work_class[row]]
    elif code != Reason.NO_ESTIMATE and empty is not None:
        active(write_evidence)(empty.hot(), ready_rule(state).rule, row, code, evidence)


def _reject(state: ClusterState, row: int, code: int, out: Output) -> None:
    active(unlink)(state.hot(), row)
    state.workloads.phase[row] = Phase.NONE
    out.rows[write(out, DecisionKind.REJECT, row, Reason.REFUSED_AT_FIRST_TRY), decision_columns.EVIDENCE] = code


def _look_at_empty(state: ClusterState, rows: I64) -> ClusterState | None:
    """Note for the classes of these workloads why they would not fit an empty cluster, where that is not known.

    Returns the empty cluster if there is a reason to report.
    """
    works, fleet = state.work_classes, int(state.counters[Counter.FLEET])
    classes = np.unique(state.workloads.work_class[rows])
    new = classes[works.held_epoch[classes] != fleet]
    if not len(new) and not works.held_code[classes].any():
        return None
    empty, rule = emptied(state, rows[:0], int(works.pods[classes].max())), ready_rule(state).rule
    out = empty_output(int(works.pods[classes].max()) + 1)
    for w in new.tolist():
        out.written[0] = 0
        unfit = int(active(place_workload)(empty.hot(), rule, int(works.head[w]), out))
        active(give_back)(empty.hot(), int(works.head[w]))
        if unfit >= 0:
            unfit = active(hardest_set)(empty.hot(), rule, w, unfit)
        works.held_epoch[w], works.held_set[w] = fleet, unfit
        works.held_code[w] = active(refusal_of)(empty.hot(), rule, unfit) if unfit >= 0 else 0
    return empty
