"""What must hold for queues with topologies whatever happens: random trees, nodes that come, change and go, and work.

`check` runs before and after every step (builders.Cluster): a leaf whose free room is not what its spots leave, or
spots of somebody who holds no quota, fail here whatever caused them.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Cluster
from grove_strategies import grove_asks, grove_policies, host, hosts
from queue_strategies import EITHER
from tidegate.engine.decide import decide
from tidegate.engine.step import step
from tidegate.engine.topology.build import assignments_of
from tidegate.jit.registry import kernels_as
from tidegate.journal.encoding import pack_events, pack_result, unpack_events
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.observed_status import DomainAssignment, ObservedStatus, PodSetAssignment
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

relaxed = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def grove_cluster(data, fair=EITHER) -> Cluster:
    cluster = Cluster(data.draw(hosts()))
    cluster.set_policy(data.draw(grove_policies(fair)))
    return cluster


def play(data, cluster: Cluster, rounds: int, *, changes: bool = True) -> list[tuple[object, int, object]]:
    """Random facts for some rounds; what was told and decided."""
    told = []
    for _ in range(rounds):
        for _ in range(data.draw(st.integers(0, 4))):
            cluster.submit(data.draw(grove_asks(len(cluster.numbers), cluster.now_ms)))
        for name in sorted(cluster.numbers):
            tell_something(data, cluster, name, changes=changes)
        if changes and data.draw(st.integers(0, 3)) == 0:
            tell_of_node(data, cluster)
        if changes and data.draw(st.integers(0, 7)) == 0:
            cluster.set_policy(data.draw(grove_policies()))
        events = cluster._facts.batch()
        cluster.step(data.draw(st.integers(0, 5_000)))
        told.append((events, cluster.now_ms, cluster.result))
    return told


def tell_of_node(data, cluster: Cluster) -> None:
    number = data.draw(st.integers(0, 6))
    changed = host(data.draw, number)
    known = next((name for name in cluster.nodes if name.endswith(f"x{number}")), "")
    if known and data.draw(EITHER):
        cluster.tell(FactKind.NODE_REMOVED, known)
        del cluster.nodes[known]
        cluster.nodes[f"gone {len(cluster.nodes)} {known}"] = -1
    elif not known:
        cluster.add_node(changed)


def tell_something(data, cluster: Cluster, name: str, *, changes: bool) -> None:
    row = cluster.state.workload_numbers.row(cluster.numbers[name])
    if row < 0 or data.draw(st.integers(0, 2)):
        return
    phase = Phase(int(cluster.state.workloads.phase[row]))
    if phase is Phase.TERMINATING:
        cluster.tell(FactKind.POD_GONE, name)
    elif phase in (Phase.ASSUMED, Phase.RUNNING):
        kinds = [FactKind.POD_STARTED, FactKind.WORKLOAD_FINISHED]
        if changes and data.draw(st.integers(0, 3)) == 0 and cluster.state.quota.reservations.assignments[row]:
            cluster._facts.observed_status(cluster.numbers[name], unhealthy(data, cluster.state, row), cluster.now_ms)
        else:
            cluster.tell(data.draw(st.sampled_from(kinds)), name)


def unhealthy(data, state: ClusterState, row: int) -> ObservedStatus:
    """What the world shows of a workload of which a node has failed."""
    from tidegate.engine.quota_reservations import holding_of

    holding, work = holding_of(state, row), state.works[int(state.workloads.work_class[row])]
    grants = []
    for ordinal, pod_set in enumerate(work.pod_sets):
        mine = [claim for claim in holding.claims if claim[0] == ordinal]
        grants.append(
            PodSetAssignment(
                pod_set=pod_set.name,
                count=holding.pods[ordinal],
                flavors=tuple((resource, flavor) for _, resource, flavor, _ in mine),
                charge=tuple((resource, amount) for _, resource, _, amount in mine),
                spots=tuple(
                    DomainAssignment(values=spot.values, count=spot.pods)
                    for spot in holding.assignments
                    if spot.pod_set == ordinal
                ),
            )
        )
    failed = data.draw(st.sampled_from([spot.values[-1] for spot in holding.assignments]))
    return ObservedStatus(
        queue=holding.queue, grants=tuple(grants), granted_ms=holding.granted_ms, admitted=True, unhealthy=(failed,)
    )


@relaxed
@given(st.data())
def test_the_state_stays_whole_and_a_replay_gives_the_same_bytes(data):
    cluster = grove_cluster(data)
    told = play(data, cluster, 6)
    again = ClusterState()
    for events, now_ms, result in told:
        replayed = step(again, unpack_events(pack_events(events)), now_ms)
        assert pack_result(replayed) == pack_result(result)
    assert again.dump() == cluster.state.dump()


@relaxed
@given(st.data())
def test_a_checkpoint_and_a_fork_go_on_as_the_state_would_have(data):
    cluster = grove_cluster(data)
    play(data, cluster, 3)
    twin = ClusterState.load(cluster.state.dump())
    assert twin.dump() == cluster.state.dump()
    fork, still = cluster.state.fork(), cluster.state.fork()
    before = still.digest()
    for events, now_ms, result in play(data, cluster, 2):
        assert pack_result(step(twin, events, now_ms)) == pack_result(result)
        assert pack_result(step(fork, events, now_ms)) == pack_result(result)
    assert twin.digest() == cluster.state.digest() == fork.digest()
    assert still.digest() == before


@relaxed
@given(st.data())
def test_nothing_new_means_no_decision(data):
    cluster = grove_cluster(data)
    play(data, cluster, 3)
    assert cluster.step(0) == []


@relaxed
@given(st.data())
def test_no_leaf_is_above_its_capacity_and_what_is_asked_of_the_topology_holds(data):
    """While nodes stay as they are: room, levels, slices, leaders, and every pod of a set that asks has its spot."""
    cluster = grove_cluster(data)
    play(data, cluster, 5, changes=False)
    state, topology = cluster.state, cluster.state.quota.topology
    if topology is None:
        return
    leaves = topology.leaves
    assert (leaves.free[: leaves.top] >= 0).all()
    for row in state.live_workloads().tolist():
        if state.quota.reservations.assignments[row]:
            assert_as_asked(state, row)


def assert_as_asked(state: ClusterState, row: int) -> None:
    topology, work = state.quota.topology, state.works[int(state.workloads.work_class[row])]
    granted = state.quota.reservations.pods[row].tolist()
    for ordinal, pod_set in enumerate(work.pod_sets):
        mine = [spot for spot in assignments_of(state, row) if spot.pod_set == ordinal]
        if not mine:
            continue
        tree = topology.flavors[mine[0].flavor]
        levels = topology.levels[tree]
        where = {topology.values[topology.leaf_of(tree, spot.values)]: spot.pods for spot in mine}
        assert sum(where.values()) == granted[ordinal]
        if pod_set.topology.required:
            level = levels.index(pod_set.topology.required)
            assert len({values[: level + 1] for values in where}) == 1
        for rule in pod_set.topology.slices:
            level, pods = levels.index(rule.level), dict[tuple[str, ...], int]()
            for values, count in where.items():
                pods[values[: level + 1]] = pods.get(values[: level + 1], 0) + count
            assert all(count % rule.size == 0 for count in pods.values())


@relaxed
@given(st.data())
def test_a_cycle_that_admits_nobody_leaves_the_topology_as_it_was(data):
    """Trying is undone to the last pod: who is not admitted, and whose victims stay, takes nothing."""
    cluster = grove_cluster(data)
    play(data, cluster, 3)
    state = cluster.state
    state.quota.quota_nodes.dirty[: state.quota.quota_nodes.top] = 1
    state.quota.quota_nodes.epoch[: state.quota.quota_nodes.top] += 1
    if state.quota.topology is None or state.quota.topology_stale:
        return
    before = state.quota.topology.leaves.free.copy()
    decisions, _ = decide(state)
    if not (decisions.kind == DecisionKind.ASSIGN).any() and state.quota.topology is not None:
        assert (state.quota.topology.leaves.free == before).all()


@relaxed
@given(st.data())
def test_cycles_between_two_outside_facts_come_to_an_end(data):
    cluster = grove_cluster(data, fair=st.just(False))
    play(data, cluster, 4)
    state = cluster.state
    for _ in range(60):
        decisions, _ = decide(state)
        gone = [name for name, number in cluster.numbers.items() if is_leaving(state, number)]
        for name in gone:
            cluster.tell(FactKind.POD_GONE, name)
        cluster.step(1)
        if not gone and not (decisions.kind == DecisionKind.ADMIT).any():
            return
    raise AssertionError("still preempting after 60 cycles")


def is_leaving(state: ClusterState, number: int) -> bool:
    row = state.workload_numbers.row(number)
    return row >= 0 and state.workloads.phase[row] == Phase.TERMINATING


@pytest.mark.compiles
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_compiled_and_plain_kernels_give_the_same_journal(data):
    cluster = grove_cluster(data)
    told = play(data, cluster, 4)
    twin = ClusterState()
    with kernels_as(compiled=True):
        for events, now_ms, result in told:
            assert pack_result(step(twin, events, now_ms)) == pack_result(result)
    assert twin.dump() == cluster.state.dump()
