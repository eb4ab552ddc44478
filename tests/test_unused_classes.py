"""Classes that nobody uses are given back: a state stays small, and no decision is another one for it."""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import test_grove_properties
import test_properties
import test_queue_properties
from builders import Cluster, fleet, job, placed, pods
from strategies import fleets, orders
from test_queues import queue, queue_cluster
from test_stretch import assert_same, busy_queues, crowd
from tidegate.engine.step import step
from tidegate.jit.registry import kernels_as
from tidegate.journal.encoding import pack_events, pack_result, unpack_events
from tidegate.model.facts import FactKind
from tidegate.model.hardware import Taint, TopologyLevels
from tidegate.model.policy import AdmissionKind, PlacementKind
from tidegate.model.queues import Flavor
from tidegate.model.struct import labels, resources
from tidegate.model.work import NodeRequirement, NodeTerm, Operator, Toleration, TopologyRequest, Workload
from tidegate.state import unused_classes
from tidegate.state.classes import NodeClassKey, mismatch
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.topology import HOST

LIMITS = {"LEAST_WORK": 24, "LEAST_PODS": 16, "LEAST_NODES": 6, "MOST_REMEMBERED": 8}


@contextmanager
def given_back(*, always: bool):
    """Give unused classes back after every batch of facts, or never."""
    with patch.object(unused_classes, "_are_many", return_value=always):
        yield


# -- how large a state gets ------------------------------------------------------------------------------------


def shape(what: str, number: int) -> Workload:
    """A workload that asks for what no other asks for."""
    name, one = f"j{number}", pods("1x1")
    terms = (NodeTerm(requirements=(NodeRequirement(key=f"k{number}", operator=Operator.DOES_NOT_EXIST),)),)
    made = {
        "memory": pods("1x1", memory=1 + number % 50),
        "cpu": replace(one, request=resources({"cpu": 1 + number, "memory": number})),
        "fraction": pods(f"1x{(1 + number % 999) / 1000}", memory=1 + number // 999),
        "gang": pods(f"{1 + number % 60}x0", memory=number // 60),
        "selector": pods("1x1", selector=labels({"rack": f"r{number}"})),
        "label": pods("1x1", terms=terms),
        "toleration": pods("1x1", tolerations=(Toleration(key=f"t{number}", operator=Operator.EXISTS),)),
        "resource": replace(one, request=resources({"cpu": 1, f"example.com/r{number}": 0 if number % 2 else 1})),
    }
    if what == "priority":
        return job(name, one, priority=number, queue="a", at=number)
    return job(name, made[what], queue="a", at=number)


def extent(state: ClusterState) -> dict[str, int]:
    """What grows with classes."""
    scores, shares = state.scores(), state.quota
    return {
        "work": state.work_classes.capacity + state.pod_sets.capacity + len(state.works) + len(state.work_class_rows),
        "pods": state.pod_classes.capacity + len(state.pod_class_rows) + len(state.sizes),
        "nodes": len(state.node_classes) + len(state.label_keys) + len(state.extras) + state.pod_classes.match.shape[1],
        "scores": sum(column.nbytes for column in scores),
        "quota": sum(
            (
                shares.queue_requests.capacity,
                shares.pod_set_needs.capacity,
                shares.resource_requests.capacity,
                len(shares.resources),
            )
        ),
        "checkpoint": len(state.dump()),
    }


WAYS = ["memory", "cpu", "fraction", "gang", "selector", "label", "toleration", "resource", "priority"]


@pytest.mark.parametrize("admission", [None, *AdmissionKind])
@pytest.mark.parametrize("what", WAYS)
def test_a_state_does_not_grow_with_the_shapes_that_came_and_went(what, admission):
    nodes = fleet("2x h100x8", "1x a100x4 in r1")
    cluster = Cluster(nodes, placement="tide") if admission is None else queue_cluster(
        nodes, queue("a", 20), admission=admission
    )  # fmt: skip
    sizes = []
    with patch.multiple(unused_classes, **LIMITS):
        for number in range(220):
            cluster.submit(shape(what, number))
            if number > 2:
                cluster.tell(FactKind.WORKLOAD_FINISHED, f"j{number - 3}")
            cluster.step()
            sizes.append(extent(cluster.state))
    for name in sizes[0]:
        early, late = max(size[name] for size in sizes[:70]), max(size[name] for size in sizes[150:])
        assert late <= early * 1.05 + 64, name
    assert cluster.state.works
    assert len(cluster.state.works) < 60


def test_a_state_does_not_grow_with_the_labels_and_taints_that_nodes_had():
    cluster = Cluster(fleet("3x h100x8"))
    cluster.submit(job("j", pods("1x8", selector=labels({"rack": "none"}))))
    sizes = []
    with patch.multiple(unused_classes, **LIMITS):
        for number in range(120):
            node = fleet("3x h100x8")[number % 3]
            taints = (Taint(key=f"t{number}"),) if number % 2 else ()
            capacity = resources({**dict(node.shape.capacity), f"example.com/r{number}": 1})
            node = replace(node, shape=replace(node.shape, capacity=capacity))
            cluster.add_node(replace(node, labels=labels({"rack": f"r{number}"}), taints=taints))
            cluster.step()
            sizes.append(extent(cluster.state)["nodes"])
    assert max(sizes[80:]) <= max(sizes[:40])


def test_a_state_does_not_grow_with_the_nodes_that_came_and_went():
    """Leaves of a topology have names, which spots keep; those that nobody has spots in are forgotten."""
    levels = (TopologyLevels(name="t", labels=("rack", HOST)),)
    cluster = queue_cluster([], queue("a", 900), flavors=(Flavor(name="any", topology="t"),), topologies=levels)
    asks = pods("1x8", topology=TopologyRequest(required="rack"))
    for number in range(60):
        node = fleet("1x h100x8 in r1")[0]
        cluster.add_node(replace(node, name=f"n{number}", labels=labels({"rack": "r1"})))
        cluster.submit(job(f"j{number}", asks, queue="a", at=number))
        assert placed(f"j{number}") in cluster.step()
        if number > 2:
            cluster.tell(FactKind.NODE_REMOVED, f"n{number - 3}").tell(FactKind.WORKLOAD_FINISHED, f"j{number - 3}")
    assert len(cluster.state.quota.leaf_names) <= 5


def test_the_limits_of_a_real_state_hold():
    """As `test_a_state_does_not_grow_…`, without smaller limits: two thousand shapes, of which three are there."""
    cluster = Cluster(fleet("2x h100x8"), placement="tide")
    sizes = []
    for number in range(2_000):
        cluster._facts.submit(number, job(f"j{number}", pods("1x1", memory=1 + number)), number)
        if number > 2:
            cluster._facts.add(FactKind.WORKLOAD_FINISHED, number, number - 3)
        step(cluster.state, cluster._facts.batch(), number)
        cluster._facts = type(cluster._facts)()
        if number % 50 == 0:
            sizes.append(extent(cluster.state))
    for name in sizes[0]:
        assert max(size[name] for size in sizes[25:]) <= max(size[name] for size in sizes[:15]), name
    assert cluster.state.pods_seen() == 2_000


# -- that nothing else changes ---------------------------------------------------------------------------------

relaxed = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
SURE = [kind for kind in PlacementKind if kind is not PlacementKind.RANDOM]  # draws count tries that change nothing


def any_story(data):
    """A cluster of any kind, and what plays random facts to it."""
    story = data.draw(st.sampled_from(["nodes", "queues", "groves"]))
    if story == "nodes":
        placement = data.draw(st.sampled_from(SURE))
        return Cluster(data.draw(fleets), placement=placement, order=data.draw(orders)), test_properties.play
    if story == "queues":
        return test_queue_properties.queue_cluster(data), test_queue_properties.play
    return test_grove_properties.grove_cluster(data), test_grove_properties.play


def said(result) -> list[tuple]:
    """The decisions of a step without their numbers: whoever waits is told class by class, in the order they came."""
    found = result.decisions
    columns = (found.kind, found.workload, found.pod, found.node, found.devices, found.code, found.cause)
    rows = zip(*(column.tolist() for column in columns), map(tuple, found.evidence.tolist()), strict=True)
    return sorted(rows)


@relaxed
@given(st.data())
def test_no_decision_is_another_one_for_it(data):
    with given_back(always=True):
        cluster, play = any_story(data)
        told = play(data, cluster, 6)
    full = ClusterState()
    with given_back(always=False):
        for events, now_ms, result in told:
            assert said(step(full, events, now_ms)) == said(result)
    assert cluster.state.pods_seen() == full.pods_seen()
    assert_classes(cluster.state)


def assert_classes(state: ClusterState) -> None:
    """Names and rows of classes go together, and so do classes of pods and nodes."""
    assert list(state.work_class_rows) == state.works
    assert list(state.work_class_rows.values()) == list(range(state.work_classes.top))
    assert list(state.pod_class_rows.values()) == list(range(state.pod_classes.top))
    assert list(state.node_classes.values()) == list(range(len(state.node_classes)))
    for row, node in state.node_specs.items():
        assert state.node_classes[NodeClassKey.of(node, state.label_keys)] == state.nodes.node_class[row]
    for pod_key, k in state.pod_class_rows.items():
        for node_key, c in state.node_classes.items():
            assert state.pod_classes.match[k, c] == mismatch(pod_key, node_key)
    for w, work in enumerate(state.works):
        first, sets = int(state.work_classes.first_set[w]), int(state.work_classes.sets[w])
        assert sets in (0, len(work.pod_sets))
        assert (state.pod_sets.work_class[first : first + sets] == w).all()
    used = np.unique(state.workloads.work_class[state.live_workloads()])
    assert used.tolist() == list(range(state.work_classes.top))


@relaxed
@given(st.data())
def test_a_replay_a_fork_and_a_checkpoint_go_on_as_the_state_would_have(data):
    with given_back(always=True):
        cluster, play = any_story(data)
        told = play(data, cluster, 3)
        twin, fork, again = ClusterState.load(cluster.state.dump()), cluster.state.fork(), ClusterState()
        assert twin.dump() == cluster.state.dump()
        more = play(data, cluster, 2)
        for events, now_ms, result in more:
            assert pack_result(step(twin, events, now_ms)) == pack_result(result)
            assert pack_result(step(fork, events, now_ms)) == pack_result(result)
        for events, now_ms, result in told + more:
            assert pack_result(step(again, unpack_events(pack_events(events)), now_ms)) == pack_result(result)
    assert twin.digest() == cluster.state.digest() == fork.digest() == again.digest()


@relaxed
@given(st.data())
def test_nothing_new_means_no_decision_and_no_change(data):
    with given_back(always=True):
        cluster, play = any_story(data)
        play(data, cluster, 3)
        before = cluster.state.digest()
        assert cluster.step(0) == []
        assert cluster.state.digest() == before


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_compiled_and_plain_kernels_give_the_same_journal(data):
    with given_back(always=True):
        cluster, play = any_story(data)
        told = play(data, cluster, 5)
        twin = ClusterState()
        with kernels_as(compiled=True):
            for events, now_ms, result in told:
                assert pack_result(step(twin, events, now_ms)) == pack_result(result)
    assert twin.dump() == cluster.state.dump()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("placement", PlacementKind)
def test_a_row_that_is_used_again_has_no_scores_of_whom_it_was_before(placement, compiled):
    """The first fits on the second node alone, the next on the first alone: both have the same row, one by one."""
    with kernels_as(compiled=compiled), given_back(always=True):
        cluster = Cluster(fleet("1x a100x8", "1x h100x8"), placement=placement)
        rows = set()
        for number, model in enumerate(["h100", "a100", "h100", "a100"]):
            cluster.submit(job(f"j{number}", pods("1x8", models=(model,))))
            assert cluster.step() == [placed(f"j{number}")]
            assert cluster.places[f"j{number}"][0][0].startswith(model)
            rows.add(cluster.state.pod_class_rows[next(reversed(cluster.state.pod_class_rows))])
            cluster.tell(FactKind.WORKLOAD_FINISHED, f"j{number}").step()
        assert max(rows) <= 1  # one that is remembered for what was learnt, and one in use


def test_what_was_learnt_is_remembered_by_kind():
    with patch.multiple(unused_classes, **LIMITS):
        cluster = Cluster(fleet("1x h100x8"), placement="tide")
        for number in range(60):
            cluster.submit(job(f"j{number}", pods("1x2" if number % 3 else "1x4", memory=1 + number)))
            cluster.step()
            cluster.tell(FactKind.WORKLOAD_FINISHED, f"j{number}").step()
        classes = cluster.state.pod_classes
        seen = {gpus: int(classes.seen[classes.gpus == gpus].sum()) for gpus in (2, 4)}
        assert seen == {2: 40, 4: 20}
        assert classes.top < 40
        assert cluster.state.counters[Counter.SEEN_BEFORE] == 0


def test_the_rarest_kinds_are_forgotten_and_still_counted():
    with patch.multiple(unused_classes, **LIMITS):
        cluster = Cluster(fleet("1x h100x8"), placement="tide")
        for number in range(90):
            asks = "1x1" if number % 2 else f"1x{(100 + number) / 1000}"
            cluster.submit(job(f"j{number}", pods(asks)))
            cluster.step()
            cluster.tell(FactKind.WORKLOAD_FINISHED, f"j{number}").step()
    classes = cluster.state.pod_classes
    assert classes.seen[classes.gpus * classes.milli == 1000].sum() == 45
    assert cluster.state.counters[Counter.SEEN_BEFORE] > 0
    assert cluster.state.pods_seen() == 90


@pytest.mark.parametrize("admission", AdmissionKind)
def test_stretches_come_to_what_steps_come_to_though_classes_go(admission):
    work = [
        replace(one, workload=replace(one.workload, work=replace(one.workload.work, priority=at // 8 % 12)))
        for at, one in enumerate(crowd(150))
    ]
    with patch.multiple(unused_classes, **LIMITS):
        kept = assert_same(work, busy_queues(60_000, admission))
    assert kept.stretches >= 1
