"""The kernels against a second, straightforward implementation: quota arithmetic, shares, whom a workload preempts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Cluster
from queue_strategies import contended_asks, contended_shares, policies
from quota_oracle import Holder, Lot, Oracle, Victims
from test_queue_properties import play
from tidegate.engine.kernels.classic_victims import find_targets
from tidegate.engine.kernels.columns import counters
from tidegate.engine.kernels.cycle_scratch import AGAIN, make_scratch, request
from tidegate.engine.kernels.quota import available, potential, share_ratio
from tidegate.engine.quota_cycle import params_of
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.workloads import Phase

relaxed = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def played(data) -> ClusterState:
    """Queues after some rounds of work and facts."""
    cluster = Cluster([])
    if data.draw(st.booleans()):
        cluster.set_policy(data.draw(policies()))
        play(data, cluster, 4, changes=False)
        return cluster.state
    cluster.set_policy(Policy(admission=AdmissionKind.KUEUE, shares=data.draw(contended_shares())))
    for _ in range(data.draw(st.integers(3, 8))):
        cluster.submit(data.draw(contended_asks(len(cluster.numbers))))
        cluster.step()
    return cluster.state


def oracle_of(state: ClusterState) -> Oracle:
    """The oracle for a state: by names, from what tickets say."""
    tables, lots = state.quota, lots_of(state)
    queues = {row: name.removeprefix("queue/") for name, row in tables.quota_node_rows.items()}
    holders = []
    for row in range(tables.reservations.top):
        if tables.reservations.queue[row] == NONE:
            continue
        amounts: dict[Lot, int] = {}
        held = tables.reservations
        for lot, amount in zip(held.flavor_resource[row].tolist(), held.amount[row].tolist(), strict=True):
            if lot:
                amounts[lots[lot - 1]] = amounts.get(lots[lot - 1], 0) + amount
        holders.append(
            Holder(
                id=str(state.workload_ids[row]),
                queue=queues[int(tables.reservations.queue[row])],
                amounts=tuple(amounts.items()),
                priority=int(state.work_classes.priority[state.workloads.work_class[row]]),
                submitted_ms=int(state.workloads.submitted_ms[row]),
                granted_ms=int(tables.reservations.granted_ms[row]),
                leaving=bool(tables.reservations.terminating[row]),
                tie=int(state.workloads.tie[row]),
                protected=is_protected(state, row),
            )
        )
    return Oracle(state.policy.shares, holders)


def is_protected(state: ClusterState, row: int) -> bool:
    work = state.works[int(state.workloads.work_class[row])]
    return not work.preemptible or state.now_ms < state.quota.reservations.granted_ms[row] + work.protected_ms


def lots_of(state: ClusterState) -> list[Lot]:
    tables, flavors = state.quota, list(state.quota.flavor_rows)
    return [
        (flavors[tables.flavor_resources.flavor[lot]], tables.resources[tables.flavor_resources.resource[lot]])
        for lot in range(tables.flavor_resources.top)
    ]


@relaxed
@given(st.data())
def test_what_is_available_and_every_share_are_what_the_oracle_says(data):
    state = played(data)
    oracle, tree, lots = oracle_of(state), quota_view_of(state).tree, lots_of(state)
    for name, row in state.quota.quota_node_rows.items():
        node = oracle.nodes[name]
        for number, lot in enumerate(lots):
            assert active(available)(tree, row, number) == oracle.available(node, lot), (name, lot)
            assert active(potential)(tree, row, number) == oracle.potential(node, lot), (name, lot)
        assert active(share_ratio)(tree, row) == pytest.approx(oracle.ratio(node)), name


@relaxed
@given(st.data())
def test_victims_are_whom_the_oracle_names(data):
    state = played(data)
    for row in state.live_workloads().tolist():
        work_class = int(state.workloads.work_class[row])
        branch = int(state.quota.queue_requests.queue[work_class])
        if state.workloads.phase[row] == Phase.PENDING and branch != NONE:
            compare_victims(state, row, branch)


def compare_victims(state: ClusterState, row: int, branch: int) -> None:
    """Ask both, for every flavor of the queue."""
    work = state.works[int(state.workloads.work_class[row])]
    queue = next(q for q in state.policy.shares.queues if state.quota.quota_node_rows[f"queue/{q.name}"] == branch)
    pods, group = work.pod_sets[0], queue.groups[0]
    for flavor in group.flavors:
        amounts = {(flavor, name): amount * pods.count for name, amount in pods.charge if name in group.resources}
        oracle = oracle_of(state)
        node = oracle.queue(queue.name)
        need = {lot for lot, amount in amounts.items() if amount > max(0, oracle.available(node, lot))}
        if not need:
            continue
        asker = Holder(
            id=str(state.workload_ids[row]),
            queue=queue.name,
            amounts=tuple(amounts.items()),
            priority=work.priority,
            submitted_ms=int(state.workloads.submitted_ms[row]),
        )
        assert found(state, row, branch, amounts, need) == oracle.victims(asker, need)


def found(state: ClusterState, row: int, branch: int, amounts: dict[Lot, int], need: set[Lot]) -> Victims:
    """Whom the kernels name."""
    scratch = make_scratch(state.quota, 4 * state.quota.reservations.capacity)
    book, desk, lots = quota_view_of(state), scratch, lots_of(state)
    desk.requests.marks[counters.REQUESTED] = desk.requests.marks[counters.TARGETS] = 0
    desk.requests.marks[counters.EXTERNAL], desk.requests.marks[counters.NOW_MS] = AGAIN, state.now_ms
    for lot, amount in amounts.items():
        active(request)(desk.requests, lots.index(lot), amount, int(lot in need))
    count = active(find_targets)(book, desk, None, params_of(state).fair, branch, row)
    return {str(state.workload_ids[victim]): Reason(code) for victim, code in desk.preemption.targets[:count].tolist()}
