"""Places for missing pods of running work: one by one, on the flavors that the work was admitted with."""

from __future__ import annotations

import numpy as np

from tidegate.engine.decision_rows import drain
from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.fifo_cycle import lack_of, write_lack
from tidegate.engine.kernels.gang_placement import Output, empty_output, place_pod, write
from tidegate.engine.kernels.placement_plan import plan_granted
from tidegate.engine.placement_rule import Ready, ready_rule
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.engine.release import note_found
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.decisions import NO_DECISIONS, DecisionBatch, DecisionKind
from tidegate.state.cluster import ClusterState
from tidegate.state.tables import pod_sets
from tidegate.state.tables.workloads import Phase


def replace_missing(state: ClusterState) -> DecisionBatch:
    """Place missing pods again where they fit, by priority and age; report why the pods of a workload do not fit."""
    if not state.missing or not state.node_specs:
        return NO_DECISIONS
    pods = sum(map(len, state.missing.values()))
    state.reserve_pods(pods)
    out, ready = empty_output(pods + len(state.missing)), ready_rule(state)
    for row in _in_order(state):
        _replace_of(state, ready, row, out)
    return drain(state, out)[0]


def _in_order(state: ClusterState) -> list[int]:
    table, works = state.workloads, state.works
    running = (row for row in state.missing if table.phase[row] in (Phase.ASSUMED, Phase.RUNNING))
    return sorted(
        running,
        key=lambda row: (
            -works[int(table.work_class[row])].priority,
            int(table.submitted_ms[row]),
            int(table.tie[row]),
            row,
        ),
    )


def _replace_of(state: ClusterState, ready: Ready, row: int, out: Output) -> None:
    hot, table, plan = state.hot(), state.workloads, granted_plan(state, row)
    for pod_set, ordinal in state.missing[row]:
        k = int(plan[pod_set, pod_sets.POD_CLASS])
        if active(place_pod)(hot, ready.rule, row, k, ordinal, out):
            note_found(state, row, ordinal)
            continue
        code = int(active(lack_of)(hot, ready.rule, k))
        if table.held_code[row] != code:
            table.held_code[row] = code
            evidence = out.rows[write(out, DecisionKind.HOLD, row, code), decision_columns.EVIDENCE :]
            plan[:, pod_sets.COUNT] = 0
            plan[pod_set, pod_sets.COUNT] = len(state.missing[row])
            active(write_lack)(hot, ready.rule, row, code, plan, pod_set, evidence)
        return
    table.held_code[row] = 0


def granted_plan(state: ClusterState, row: int) -> I64:
    """The class of the pods of each set of a workload, on the flavors that it was granted."""
    works, w = state.work_classes, int(state.workloads.work_class[row])
    first, sets = int(works.first_set[w]), int(works.sets[w])
    if not state.quota.holds_quota(row):
        return state.pod_sets.block[first : first + sets].copy()
    plan = np.zeros((sets, 2), np.int64)
    active(plan_granted)(quota_view_of(state), plan, row)
    return plan
