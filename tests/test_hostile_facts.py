"""Whatever is told, step returns, the state stays whole, and nothing is lost or counted twice.

`check` runs before and after every step (builders.Cluster).
"""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile import Hostile
from tidegate.engine.step import step
from tidegate.journal.encoding import pack_events, pack_result, unpack_events
from tidegate.model.facts import FactKind, Facts
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE
from tidegate.state.granted_pods import granted_pods, pods_to_be
from tidegate.state.tables.workloads import Phase

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def play(data, world: Hostile, rounds: int) -> list[tuple[object, int, object]]:
    """Tell anything for some rounds; what was told and decided."""
    told = []
    for _ in range(rounds):
        for _ in range(data.draw(st.integers(0, 7))):
            world.tell()
        events = world.cluster._facts.batch()
        world.cluster.step(data.draw(st.sampled_from([0, 1, 1_000, 5_000])))
        assert_conserved(world.state)
        told.append((events, world.cluster.now_ms, world.cluster.result))
    return told


def assert_conserved(state: ClusterState) -> None:
    """Every workload and every pod is there once, and what runs in a queue holds its quota."""
    table, live = state.workloads, state.live_workloads()
    assert len(np.unique(table.number[live])) == len(live)
    pods = np.flatnonzero(state.pods.workload[: state.pods.top] >= 0)
    owners, ordinals = state.pods.workload[pods].tolist(), state.pods.ordinal[pods].tolist()
    assert len(set(zip(owners, ordinals, strict=True))) == len(pods)
    for row, ordinal in zip(owners, ordinals, strict=True):
        assert 0 <= ordinal < state.work_classes.pods[table.work_class[row]]
    for row in live[np.isin(table.phase[live], (Phase.ASSUMED, Phase.RUNNING))].tolist():
        has_queue = state.quota and state.quota.queue_requests.queue[table.work_class[row]] != NONE
        if has_queue and pods_to_be(state, row):
            assert state.quota.holds_quota(row), f"{state.workload_ids[row]} runs and holds no quota"
        assert len(granted_pods(state, row)) >= state.work_classes.sets[table.work_class[row]]
    reserved = np.unique(state.reserved.workload[: state.counters[Counter.RESERVED]])
    assert (table.phase[reserved] == Phase.PENDING).all()


def finish_all(state: ClusterState) -> None:
    """Everything is over."""
    facts = Facts()
    for number in state.workloads.number[state.live_workloads()].tolist():
        facts.add(FactKind.WORKLOAD_FINISHED, state.now_ms, number)
    step(state, facts.batch(), state.now_ms + 1)
    check(state)


@relaxed
@given(st.data())
def test_nothing_is_left_when_everything_is_over(data):
    world = Hostile(data)
    play(data, world, 6)
    state, tables = world.state, world.state.quota
    finish_all(state)
    assert not len(state.live_workloads())
    assert not (state.pods.workload[: state.pods.top] >= 0).any()
    assert not tables.quota_nodes.usage.any()
    assert not tables.reservations.assignments.any()
    assert not state.counters[Counter.RESERVED]
    assert not state.done
    assert not state.granted
    held = tables.reservations
    for column in (held.replaces, held.replaced_by, held.queue, tables.quota_nodes.sticky):
        assert (column == NONE).all()
    for row in state.live_nodes().tolist():
        others = state.unmanaged[row].unmanaged if row in state.unmanaged else None
        assert state.nodes.slots_free[row] == state.nodes.slots[row] - (others.pods if others else 0)


@relaxed
@given(st.data())
def test_a_replay_and_a_checkpoint_come_to_the_same_bytes(data):
    world = Hostile(data)
    told = play(data, world, 3)
    loaded, forked = ClusterState.load(world.state.dump()), world.state.fork()
    for events, now_ms, result in play(data, world, 2):
        told.append((events, now_ms, result))
        for twin in (loaded, forked):
            assert pack_result(step(twin, unpack_events(pack_events(events)), now_ms)) == pack_result(result)
    again = ClusterState()
    for events, now_ms, result in told:
        assert pack_result(step(again, unpack_events(pack_events(events)), now_ms)) == pack_result(result)
    assert again.dump() == world.state.dump() == loaded.dump() == forked.dump()


@relaxed
@given(st.data())
def test_told_nothing_more_it_decides_nothing_more(data):
    world = Hostile(data)
    play(data, world, 4)
    assert world.cluster.step(0) == []
