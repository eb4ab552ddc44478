"""What must hold whatever happens: random clusters, random work, random facts, every placement and every order.

`check` runs before and after every step (builders.Cluster), so oversubscription, broken gangs, wrong sums and lost
workloads fail here whichever rule caused them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Cluster, job, placed
from strategies import fleets, orders, placements, replace, workloads
from tidegate.engine.step import step
from tidegate.jit.registry import kernels_as
from tidegate.journal.encoding import pack_events, pack_result, unpack_events, unpack_result
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactBatch, FactKind
from tidegate.model.hardware import Node
from tidegate.model.work import Workload
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def play(data, cluster: Cluster, rounds: int) -> list[tuple[object, int, object]]:
    """Random facts for some rounds; what was told and decided."""
    told = []
    for _ in range(rounds):
        for _ in range(data.draw(st.integers(0, 3))):
            submit_equals(data, cluster, data.draw(workloads(0, cluster.now_ms)))
        for name in sorted(cluster.numbers):
            tell_something(data, cluster, name)
        if data.draw(st.integers(0, 9)) == 0 and cluster.nodes:
            tell_of_node(data, cluster)
        events = cluster._facts.batch()
        cluster.step(data.draw(st.integers(0, 5_000)))
        told.append((events, cluster.now_ms, cluster.result))
    return told


def submit_equals(data, cluster: Cluster, workload: Workload) -> None:
    """Submit some that ask for the same, one after the other."""
    for _ in range(data.draw(st.integers(1, 4))):
        number = len(cluster.numbers)
        cluster.submit(replace(workload, id=f"w{number:03d}", submitted_ms=workload.submitted_ms + number % 3))


def tell_of_node(data, cluster: Cluster) -> None:
    """A device breaks or is mended, or a node is closed, opened, or has fewer or more GPUs than before."""
    name = data.draw(st.sampled_from(sorted(cluster.nodes)))
    if data.draw(st.booleans()) or not cluster.state.node_specs:
        kind = data.draw(st.sampled_from([FactKind.DEVICE_FAILED, FactKind.DEVICE_RECOVERED]))
        cluster.tell(kind, name, arg=data.draw(st.integers(0, 3)))
        return
    node = next(node for node in cluster.state.node_specs.values() if node.name == name)
    shape = replace(node.shape, gpu_count=data.draw(st.integers(0, 8)))
    cluster.add_node(replace(node, shape=shape, unschedulable=data.draw(st.booleans())))


def tell_something(data, cluster: Cluster, name: str) -> None:
    """Maybe a fact about one workload, one that the world could tell."""
    row = cluster.state.workload_numbers.row(cluster.numbers[name])
    if row < 0 or data.draw(st.integers(0, 2)):
        return
    phase = Phase(int(cluster.state.workloads.phase[row]))
    if phase is Phase.TERMINATING:
        cluster.tell(FactKind.POD_GONE, name)
    elif phase in (Phase.ASSUMED, Phase.RUNNING):
        kind = data.draw(st.sampled_from([FactKind.POD_STARTED, FactKind.WORKLOAD_FINISHED, FactKind.POD_FAILED]))
        cluster.tell(kind, name, pod=0 if kind is FactKind.POD_FAILED else -1)
    elif data.draw(st.integers(0, 5)) == 0:
        cluster.tell(FactKind.WORKLOAD_CANCELLED, name)
    elif data.draw(st.integers(0, 5)) == 0:
        cluster.change(replace(data.draw(workloads(0, 0)), id=name))
    if phase is not Phase.TERMINATING:
        remaining = data.draw(st.floats(0, 1e4, allow_nan=False))
        cluster.tell(FactKind.PROGRESS_OBSERVED, name, values=(remaining, 1e4 - remaining))


@relaxed
@given(st.data())
def test_the_state_stays_whole_and_a_replay_gives_the_same_bytes(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements), order=data.draw(orders))
    told = play(data, cluster, 6)
    again = ClusterState()
    for events, now_ms, result in told:
        packed = pack_events(events)
        assert pack_events(unpack_events(packed)) == packed
        replayed = step(again, unpack_events(packed), now_ms)
        assert pack_result(replayed) == pack_result(result)
        assert pack_result(unpack_result(pack_result(result))) == pack_result(result)
    assert again.dump() == cluster.state.dump()


@relaxed
@given(st.data())
def test_a_checkpoint_goes_on_as_the_state_would_have(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements), order=data.draw(orders))
    play(data, cluster, 3)
    twin = ClusterState.load(cluster.state.dump())
    assert twin.dump() == cluster.state.dump()
    fork = cluster.state.fork()
    for events, now_ms, result in play(data, cluster, 2):
        assert pack_result(step(twin, events, now_ms)) == pack_result(result)
        assert pack_result(step(fork, events, now_ms)) == pack_result(result)
    assert twin.digest() == cluster.state.digest() == fork.digest()


@relaxed
@given(st.data())
def test_nothing_new_means_no_decision(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements), order=data.draw(orders))
    play(data, cluster, 3)
    before = cluster.state.digest()
    assert cluster.step(0) == []
    assert cluster.state.digest() == before


@pytest.mark.compiles
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_compiled_and_plain_kernels_give_the_same_journal(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements), order=data.draw(orders))
    told = play(data, cluster, 5)
    twin = ClusterState()
    with kernels_as(compiled=True):
        for events, now_ms, result in told:
            assert pack_result(step(twin, events, now_ms)) == pack_result(result)
    assert twin.dump() == cluster.state.dump()


@relaxed
@given(st.data())
def test_the_order_in_which_nodes_are_told_changes_nothing(data):
    nodes = data.draw(fleets)
    nodes = [node for i, node in enumerate(nodes) if node.name not in {other.name for other in nodes[:i]}]
    placement = data.draw(placements)
    work = [data.draw(workloads(number, number)) for number in range(data.draw(st.integers(1, 8)))]
    places = []
    for told in (nodes, data.draw(st.permutations(nodes))):
        cluster = Cluster(list(told), placement=placement)
        cluster.submit(*work)
        said = cluster.step()
        places.append((said, cluster.places))
    assert places[0] == places[1]


@relaxed
@given(st.data())
def test_other_names_in_the_same_order_change_nothing(data):
    placement, order = data.draw(placements), data.draw(orders)
    cluster = Cluster(data.draw(fleets), placement=placement, order=order)
    told = play(data, cluster, 4)
    other = ClusterState()
    for events, now_ms, result in told:
        assert pack_result(step(other, renamed(events), now_ms)) == pack_result(result)


def renamed(events: FactBatch) -> FactBatch:
    """The same facts about nodes and workloads with longer names that sort as the others do."""
    payloads = tuple(
        replace(payload, name=f"node-{payload.name}-x") if isinstance(payload, Node) else payload
        for payload in events.payloads
    )
    ids = [f"work-{name}-x" for name in events.submissions.ids]
    return events._replace(payloads=payloads, submissions=events.submissions._replace(ids=ids))


@relaxed
@given(st.data())
def test_a_dry_run_decides_what_the_step_does_and_leaves_no_trace(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements), order=data.draw(orders))
    play(data, cluster, 3)
    events = cluster.submit(data.draw(workloads(990, cluster.now_ms)))._facts.batch()
    before = cluster.state.dump()
    proposed = step(cluster.state.fork(), events, cluster.now_ms + 1)
    assert cluster.state.dump() == before
    assert pack_result(step(cluster.state, events, cluster.now_ms + 1)) == pack_result(proposed)


@relaxed
@given(st.data())
def test_a_gang_that_does_not_fit_leaves_no_trace_on_the_nodes(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements))
    play(data, cluster, 3)
    tables = [cluster.state.nodes.left, cluster.state.nodes.extra_free, cluster.state.pods.block]
    before = [table.copy() for table in tables]
    cluster.submit(job("far-too-many", "200x1", at=cluster.now_ms))
    said = cluster.step()
    assert placed("far-too-many") not in said
    for table, was in zip(tables, before, strict=True):
        if len(said) == 1:  # nobody else moved
            assert np.array_equal(table, was)


@relaxed
@given(st.data())
def test_one_node_more_never_costs_the_head_its_place(data):
    nodes = data.draw(fleets)
    placement = data.draw(placements)
    work = data.draw(workloads(0, 0))
    extra = data.draw(fleets)[:1]
    fewer, more = Cluster(nodes, placement=placement), Cluster(nodes, placement=placement)
    more.add_node(extra[0].__class__(**{**_fields(extra[0]), "name": "zz-extra"}))
    fits = [cluster.submit(work).step()[0].kind is DecisionKind.PLACE for cluster in (fewer, more)]
    assert fits[1] or not fits[0]


def _fields(spec):
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


@relaxed
@given(st.data())
def test_the_score_table_equals_one_made_anew(data):
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements))
    play(data, cluster, 4)
    kept = cluster.state.fork()
    events = cluster.submit(data.draw(workloads(990, 0)))._facts.batch()
    warm = step(cluster.state, events, cluster.now_ms + 1)
    cold = step(kept, events, cluster.now_ms + 1)
    assert pack_result(warm) == pack_result(cold)
    assert np.array_equal(cluster.state.nodes.block[:, 3:9], kept.nodes.block[:, 3:9])
