"""Places for planned workloads next to running ones: a workload keeps its places, unless they block a planned one.

Only if a planned workload fits nowhere, others are removed, with the least work lost: first those that are not planned
to run, then planned ones, which get another place in the same plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.columns import decision_columns, search
from tidegate.engine.kernels.gang_placement import Output, empty_output
from tidegate.engine.kernels.make_room import UNWANTED, WANTED, clear_for, place_until_unfit
from tidegate.engine.kernels.replan import refill, vacate
from tidegate.engine.kernels.withhold_places import place_all_reserved
from tidegate.engine.place_reservations import victim_search_for
from tidegate.engine.placement_rule import ready_rule
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.tables.workloads import Phase, Reserves

Bools = npt.NDArray[np.bool_]


class RankedWorkloads(NamedTuple):
    """Status of workloads, the first in the order first."""

    ranked: I64
    holds: Bools  # has places
    wanted: Bools  # planned to run
    safe: Bools  # has places, and may not be preempted


class Rearranged(NamedTuple):
    """Places for all planned workloads without places."""

    places: Output  # theirs, and of planned workloads that are moved
    cleared: dict[int, int]  # removed workloads, with the workload that each is removed for
    loss: int  # their sum, to compare plans by


def emptied(state: ClusterState, stayers: I64, pods: int) -> ClusterState:
    """A copy of the cluster with only the protected workloads on it, and with rows for so many pods."""
    scratch = state.scratch()
    table = scratch.workloads
    active(vacate)(scratch.hot(), np.setdiff1d(np.flatnonzero(table.first_pod[: table.top] >= 0), stayers))
    scratch.reserve_pods(pods)
    return scratch


def refilled(state: ClusterState, order: I64, stayers: I64, *, as_reserved: bool = False) -> Output:
    """Places for workloads in a cluster that is empty except for protected ones; what does not fit has none.

    `as_reserved`: workloads with reserved places take these before all others, if they are free.
    """
    reserving = (state.workloads.reserves[order] > 0) & as_reserved
    pods = _pods(state, order)
    scratch, out = emptied(state, stayers, pods), empty_output(pods + 1)
    active(place_all_reserved)(scratch.hot(), order[reserving], out)
    active(refill)(scratch.hot(), ready_rule(state).rule, order[~reserving], out)
    return out


def reserve_planned(state: ClusterState, rows: I64, places: Output) -> None:
    """Reserve the planned places of these workloads, which wait for victims, and drop all other reservations.

    So the next plan gives them the room that this one cleared: placed again they might fit elsewhere, and be in the way
    of other workloads there.
    """
    before, table = int(state.counters[Counter.RESERVED]), state.reserved
    state.workloads.reserves[table.workload[:before]] = 0
    pods = _pods(state, rows)
    table.reserve(max(before, pods))
    table.block[:before] = 0
    state.counters[Counter.RESERVED] = table.top = pods
    planned, at, sets = places.rows[: places.written[0]], 0, state.pod_sets
    for row in rows.tolist():
        mine = planned[planned[:, decision_columns.WORKLOAD] == row]
        work = int(state.workloads.work_class[row])
        first = int(state.work_classes.first_set[work])
        own = slice(first, first + int(state.work_classes.sets[work]))
        table.workload[at : at + len(mine)] = row
        table.pod_class[at : at + len(mine)] = np.repeat(sets.pod_class[own], sets.count[own])
        table.node[at : at + len(mine)] = mine[:, decision_columns.NODE]
        table.devices[at : at + len(mine)] = mine[:, decision_columns.DEVICES]
        at += len(mine)
    state.workloads.reserves[rows] = Reserves.PREEMPTED_FOR


def placed_in(places: Output) -> I64:
    """The workloads that have places in a plan."""
    rows: I64 = np.unique(places.rows[: places.written[0], decision_columns.WORKLOAD])
    return rows


def could_fit_beside(state: ClusterState, rows: I64) -> bool:
    """Whether as many GPUs as these workloads request are free, or held by terminating work."""
    table, works, nodes = state.workloads, state.work_classes, state.nodes
    terminating = np.flatnonzero(table.phase[: table.top] == Phase.TERMINATING)
    free = nodes.left_total[: nodes.top].sum() + works.gpu_milli[table.work_class[terminating]].sum()
    return bool(works.gpu_milli[table.work_class[rows]].sum() <= free)


def rearrange(state: ClusterState, standing: RankedWorkloads) -> Rearranged | None:
    """Places for all planned workloads without places; None: not found.

    It removes nothing, or some of the workloads that are not planned to run, or all of them, or any.
    """
    ranked, holds, wanted, safe = standing
    newcomers, unwanted = ranked[~holds & wanted], ranked[holds & ~wanted & ~safe]
    found = _better(state, standing, ranked[:0]) if could_fit_beside(state, newcomers) else None
    if found is None and len(unwanted):
        found = _better(state, standing, unwanted)
    if found is None and len(unwanted):
        places = refilled(state, newcomers, ranked[holds & (wanted | safe)])
        if len(placed_in(places)) == len(newcomers):
            found = Rearranged(places, dict.fromkeys(unwanted.tolist(), int(newcomers[0])), 0)
    return found or _better(state, standing, ranked[holds & ~safe])


def _better(state: ClusterState, standing: RankedWorkloads, movable: I64) -> Rearranged | None:
    """The better of two plans in which these may be removed: the first placed first, or the hardest."""
    ranked, holds, wanted, _ = standing
    first = ranked[wanted & (~holds | np.isin(ranked, movable))]
    hardest = first[np.lexsort((np.arange(len(first)), *_sizes(state, first)))]
    orders = [first] if np.array_equal(first, hardest) else [first, hardest]
    found = [_planned(state, standing, movable, order) for order in orders]
    return min((each for each in found if each is not None), key=lambda each: each.loss, default=None)


def _planned(state: ClusterState, standing: RankedWorkloads, movable: I64, order: I64) -> Rearranged | None:
    """Places for all newcomers in an order; one that fits nowhere removes others, which get their turn later."""
    ranked, holds, wanted, _ = standing
    waits = np.isin(order, ranked[~holds])
    room = _pods(state, order[waits])
    scratch, out = emptied(state, ranked[holds], room), empty_output(room + _pods(state, movable) + 1)
    rule, hot, victim_search = ready_rule(state).rule, scratch.hot(), None
    cleared: dict[int, int] = {}
    loss = 0
    while waits.any():
        todo = order[waits]
        placed = int(active(place_until_unfit)(hot, rule, todo, out))
        waits &= np.isin(order, todo[placed + 1 :])
        if placed == len(todo):
            break
        if not len(movable):
            return None
        victim_search = victim_search or victim_search_for(scratch)
        levels = np.where(np.isin(movable, ranked[wanted]), WANTED, UNWANTED)
        unfit = int(todo[placed])
        taken = int(active(clear_for)(hot, rule, victim_search, unfit, movable, levels, state.now_ms, out))
        if taken < 0:
            return None
        gone = victim_search.best[:taken]
        loss += int(victim_search.numbers[search.BEST_LOSS])
        cleared.update(dict.fromkeys(gone.tolist(), unfit))
        movable = movable[~np.isin(movable, gone)]
        waits |= np.isin(order, gone)
    return Rearranged(out, cleared, loss)


def _sizes(state: ClusterState, rows: I64) -> tuple[I64, I64]:
    """What makes workloads hard to place, the hardest lowest: all their GPUs, after those of their largest pod."""
    works, sets, pods = state.work_classes, state.pod_sets, state.pod_classes
    milli = pods.gpus[sets.pod_class[: sets.top]] * pods.milli[sets.pod_class[: sets.top]]
    largest = np.zeros(works.top, np.int64)
    known = sets.work_class[: sets.top] >= 0
    np.maximum.at(largest, sets.work_class[: sets.top][known], milli[known])
    classes = state.workloads.work_class[rows]
    return -works.gpu_milli[classes], -largest[classes]


def _pods(state: ClusterState, rows: I64) -> int:
    return int(state.work_classes.pods[state.workloads.work_class[rows]].sum())
