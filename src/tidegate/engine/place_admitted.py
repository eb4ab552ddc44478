"""Places for work that holds quota and has none: what the cluster's scheduler does behind Kueue.

A gang is placed whole or waits, holding its quota.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.decision_rows import drain
from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.domain_places import place_at_assignments
from tidegate.engine.kernels.fifo_cycle import lack_of, write_lack
from tidegate.engine.kernels.gang_placement import Output, empty_output, place_sets, write
from tidegate.engine.kernels.placement_plan import plan_granted
from tidegate.engine.placement_rule import Ready, ready_rule
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.engine.topology.view import leaf_nodes
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.decisions import NO_DECISIONS, DecisionBatch, DecisionKind
from tidegate.model.policy import AdmissionKind
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.tables import pod_sets
from tidegate.state.tables.workloads import Phase


def place_admitted(state: ClusterState) -> DecisionBatch:
    """Place workloads that hold quota and have no place, the first granted first."""
    if state.policy.admission is not AdmissionKind.KUEUE or not state.node_specs:
        return NO_DECISIONS
    rows = _unplaced(state)
    if not len(rows):
        return NO_DECISIONS
    pods = int(state.quota.reservations.pods[rows].sum())
    state.reserve_pods(pods)
    out, ready = empty_output(pods + len(rows)), ready_rule(state)
    plan = np.zeros((max(state.quota.reservations.axes["set"], 1), 2), np.int64)
    for row in rows.tolist():
        _place_one(state, ready, row, plan, out)
    return drain(state, out)[0]


def _unplaced(state: ClusterState) -> I64:
    """Holders of quota without a place that were not refused one since room was made."""
    reservations, table = state.quota.reservations, state.workloads
    top = min(reservations.top, table.top)
    found = (reservations.queue[:top] != NONE) & (reservations.terminating[:top] == 0) & (table.first_pod[:top] == NONE)
    found &= (table.phase[:top] == Phase.ASSUMED) & (
        reservations.unplaced_epoch[:top] != state.counters[Counter.ROOM_EPOCH]
    )
    found &= ~reservations.awaits[:top].any(axis=1)  # its nodes are still to come
    rows = np.flatnonzero(found)
    return rows[np.lexsort((table.tie[rows], table.submitted_ms[rows], reservations.granted_ms[rows]))]


def _place(state: ClusterState, ready: Ready, row: int, plan: I64, sets: int, out: Output) -> int:
    """Place a plan, in its assigned domains if it has some; -1, or the pod set that does not fit."""
    tables, topology = state.quota, state.quota.topology
    first, assignments = int(tables.reservations.first_assignment[row]), int(tables.reservations.assignments[row])
    if topology is None or assignments == 0:
        return int(active(place_sets)(state.hot(), ready.rule, row, plan[:sets], out))
    hosts, held = leaf_nodes(topology), tables.assignments.block[first : first + assignments]
    return int(active(place_at_assignments)(state.hot(), ready.rule, hosts, held, row, plan[:sets], out))


def _place_one(state: ClusterState, ready: Ready, row: int, plan: I64, out: Output) -> None:
    hot, table = state.hot(), state.workloads
    sets = active(plan_granted)(quota_view_of(state), plan, row)
    unfit = _place(state, ready, row, plan, sets, out)
    if unfit < 0:
        table.held_code[row] = 0
        return
    state.quota.reservations.unplaced_epoch[row] = state.counters[Counter.ROOM_EPOCH]
    k = int(plan[unfit, pod_sets.POD_CLASS])
    code = int(active(lack_of)(hot, ready.rule, k))
    if table.held_code[row] != code:
        table.held_code[row] = code
        evidence = out.rows[write(out, DecisionKind.HOLD, row, code), decision_columns.EVIDENCE :]
        active(write_lack)(hot, ready.rule, row, code, plan[:sets], unfit, evidence)
