"""Topology and queues together: places on the spots that were found, nodes that come and fail, foreign pods, spread."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import topology_cycles
from builders import Cluster, evicted, fleet, held, job, placed, pods, preempted
from queue_strategies import EITHER
from shared import shared
from test_queues import GPU, admitted, queue, queue_cluster
from tidegate.config.convert import pod_set
from tidegate.config.validate import read_document
from tidegate.engine.release import pods_of
from tidegate.engine.topology.build import assignments_of
from tidegate.jit.registry import kernels_as
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.hardware import TopologyLevels
from tidegate.model.observed_status import (
    Check,
    CheckState,
    DomainAssignment,
    ObservedStatus,
    PodSetAssignment,
    UnmanagedPods,
)
from tidegate.model.queues import CheckRule, Flavor, PreemptionRule, PreemptWhom, TopologyRule
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import SliceRule, SpreadRule, TopologyRequest
from tidegate.state.tables.workloads import Phase
from tidegate.state.topology import HOST

LEVELS = (TopologyLevels(name="t", labels=("rack", HOST)),)
RACK, ANYWHERE = TopologyRequest(required="rack"), TopologyRequest(unconstrained=True)
HOSTS = ("h100-0-00", "h100-0-01", "h100-1-00", "h100-1-01")
PROVISIONING = "kueue.x-k8s.io/provisioning-request"


def grove_cluster(nodes, *queues, admission="tidegate", **more) -> Cluster:
    """A cluster whose only flavor has racks and hosts."""
    flavor = Flavor(name="any", topology="t")
    return queue_cluster(nodes, *queues, admission=admission, flavors=(flavor,), topologies=LEVELS, **more)


def two_racks() -> list:
    return fleet("2x h100x8 in r1", "2x h100x8 in r2")


def hosts_of(cluster: Cluster, name: str) -> list[str]:
    return sorted(host for host, _ in cluster.places[name])


def spots(cluster: Cluster) -> dict[str, dict[str, int]]:
    """What the latest step assigned: pods by workload and node."""
    decisions, numbers = cluster.result.decisions, {number: name for name, number in cluster.nodes.items()}
    found: dict[str, dict[str, int]] = {}
    for at in (decisions.kind == DecisionKind.ASSIGN).nonzero()[0].tolist():
        name, node = cluster.ids[int(decisions.workload[at])], numbers[int(decisions.node[at])]
        found.setdefault(name, {})[node] = int(decisions.evidence[at, 0])
    return found


def test_pods_are_placed_on_exactly_the_spots_that_were_found():
    cluster = grove_cluster(two_racks(), queue("a", 64))
    cluster.submit(job("big", pods("4x4", topology=RACK), queue="a"))
    cluster.submit(job("wide", pods("3x8", topology=TopologyRequest(preferred="rack")), queue="a", at=1))
    said = cluster.step()
    assert {placed("big"), admitted("big")} <= set(said)
    assert spots(cluster) == {"big": {"h100-0-00": 2, "h100-0-01": 2}}
    assert hosts_of(cluster, "big") == ["h100-0-00", "h100-0-00", "h100-0-01", "h100-0-01"]
    assert held("wide", Reason.TOPOLOGY_UNFIT) in said
    cluster.tell(FactKind.WORKLOAD_FINISHED, "big")
    cluster.step()
    assert hosts_of(cluster, "wide") == ["h100-0-00", "h100-0-01", "h100-1-00"]


def test_a_gang_that_fits_no_rack_waits_though_quota_and_nodes_would_do():
    cluster = grove_cluster(two_racks(), queue("a", 64))
    cluster.submit(job("j", pods("3x8", topology=RACK), queue="a"))
    assert cluster.step() == [held("j", Reason.TOPOLOGY_TOO_SMALL)]
    assert cluster.evidence(0)[:2] == [2, 3]
    cluster.add_node(fleet("3x h100x8 in r2", "1x a100x8 in r1")[3])
    assert {placed("j"), admitted("j")} <= set(cluster.step())
    assert hosts_of(cluster, "j") == ["a100-1-00", "h100-0-00", "h100-0-01"]


def test_work_that_asks_for_nothing_is_placed_by_topology_where_its_queue_has_nothing_else():
    cluster = grove_cluster(two_racks(), queue("a", 64))
    cluster.submit(job("j", "2x8", queue="a"))
    cluster.step()
    assert spots(cluster) == {"j": {"h100-0-00": 1, "h100-0-01": 1}}


def test_in_kueues_mode_pods_are_housed_on_their_spots():
    cluster = grove_cluster(two_racks(), queue("a", 64), admission="kueue")
    cluster.submit(job("j", pods("4x4", topology=RACK), queue="a"))
    assert {placed("j"), admitted("j")} <= set(cluster.step())
    assert hosts_of(cluster, "j") == ["h100-0-00", "h100-0-00", "h100-0-01", "h100-0-01"]


def test_victims_make_room_in_the_domain_that_is_needed():
    low = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
    cluster = grove_cluster(two_racks(), queue("a", 64, preemption=low))
    for name, rack in (("one", "r1"), ("two", "r2")):
        small = msgspec.structs.replace(pods("1x8", topology=RACK), selector=(("rack", rack),))
        cluster.submit(job(name, small, queue="a", at=1 if rack == "r2" else 0))
        cluster.step()
    cluster.submit(job("gang", pods("2x8", topology=RACK), queue="a", priority=5, at=2))
    said = cluster.step()
    assert said == [preempted("two", Reason.PREEMPTED_IN_QUEUE), held("gang", Reason.AWAITS_VICTIMS)]
    cluster.tell(FactKind.POD_GONE, "two")
    assert {placed("gang"), admitted("gang")} <= set(cluster.step())
    assert hosts_of(cluster, "gang") == ["h100-1-00", "h100-1-01"]


def test_foreign_pods_take_room_of_their_node():
    cluster = grove_cluster(two_racks(), queue("a", 64))
    cluster.step()
    cluster._facts.unmanaged_pods(0, UnmanagedPods(node="h100-0-00", charge=(("gpu", 8 * GPU),), pods=1))
    cluster.submit(job("j", pods("2x8", topology=RACK), queue="a"))
    cluster.step()
    assert hosts_of(cluster, "j") == ["h100-1-00", "h100-1-01"]


def test_pods_of_ours_without_a_spot_take_room_too():
    flavors = (Flavor(name="any", topology="t"), Flavor(name="loose"))
    nodes, queues = two_racks(), (queue("a", 64), queue("b", 64, flavors=("loose",)))
    cluster = queue_cluster(nodes, *queues, flavors=flavors, topologies=LEVELS)
    cluster.submit(job("loose", "1x8", queue="b"))
    cluster.step()
    cluster.submit(job("j", pods("2x8", topology=RACK), queue="a", at=1))
    cluster.step()
    assert spots(cluster) == {"j": {"h100-1-00": 1, "h100-1-01": 1}}
    assert hosts_of(cluster, "loose") == ["h100-0-00"]


def test_a_gang_on_a_node_that_is_lost_is_evicted_and_finds_another_domain():
    cluster = grove_cluster(two_racks(), queue("a", 64))
    cluster.submit(job("j", pods("2x8", topology=RACK), queue="a"))
    cluster.step()
    cluster.tell(FactKind.NODE_REMOVED, "h100-0-00")
    assert cluster.step() == [evicted("j", Reason.NODE_LOST)]
    cluster.tell(FactKind.POD_GONE, "j")
    assert {placed("j", Reason.PLACED_AGAIN), admitted("j")} <= set(cluster.step())
    assert hosts_of(cluster, "j") == ["h100-1-00", "h100-1-01"]


def shown(*failed: str, count: int = 2) -> ObservedStatus:
    """A workload that runs on the hosts of the first rack, and which of them have failed."""
    on = tuple(DomainAssignment(values=(host,), count=count // 2) for host in HOSTS[:2])
    grant = PodSetAssignment(
        pod_set="s0", count=count, flavors=(("gpu", "any"),), charge=(("gpu", count * 8 * GPU),), spots=on
    )
    return ObservedStatus(queue="a", grants=(grant,), granted_ms=1, admitted=True, unhealthy=failed)


def running_on_first_rack(topology: TopologyRequest, **rule) -> Cluster:
    cluster = grove_cluster(two_racks(), queue("a", 64), admission="kueue", topology=TopologyRule(**rule))
    cluster.submit(job("j", pods("2x8", topology=topology), queue="a"))
    cluster._facts.observed_status(0, shown())
    cluster.step()
    return cluster


def test_a_failed_node_is_replaced_and_the_other_pods_stay():
    cluster = running_on_first_rack(ANYWHERE)
    cluster._facts.observed_status(0, shown("h100-0-00"))
    cluster.step()
    assert spots(cluster) == {"j": {"h100-0-01": 1, "h100-1-00": 1}}
    assert cluster.step() == []


def test_a_node_that_goes_is_replaced_for_work_whose_pods_are_the_worlds():
    cluster = running_on_first_rack(ANYWHERE)
    cluster.tell(FactKind.NODE_REMOVED, "h100-0-01")
    cluster.step()
    assert spots(cluster) == {"j": {"h100-0-00": 1, "h100-1-00": 1}}
    cluster.tell(FactKind.NODE_REMOVED, "h100-0-00").tell(FactKind.NODE_REMOVED, "h100-1-00")
    assert cluster.step() == [evicted("j", Reason.NO_REPLACEMENT_DOMAIN)]


def test_without_a_replacement_the_workload_is_evicted_or_waits_as_the_rule_says():
    cluster = running_on_first_rack(RACK)
    cluster._facts.observed_status(0, shown("h100-0-00"))
    assert cluster.step() == [evicted("j", Reason.NO_REPLACEMENT_DOMAIN)]
    patient = running_on_first_rack(RACK, fails_fast=False)
    patient._facts.observed_status(0, shown("h100-0-00"))
    assert patient.step() == [held("j", Reason.TOPOLOGY_UNFIT)]
    assert patient.step() == []
    patient.add_node(fleet("3x h100x8 in r2", "1x a100x8 in r1")[3])
    patient.step()
    assert spots(patient) == {"j": {"h100-0-01": 1, "a100-1-00": 1}}


def test_spots_come_after_the_check_that_brings_the_nodes():
    checks = (CheckRule(name="more-nodes", controller=PROVISIONING),)
    cluster = grove_cluster([], queue("a", 64, checks=checks), admission="kueue")
    cluster.submit(job("j", pods("2x8", topology=RACK), queue="a"))
    assert cluster.step() == [admitted("j")]
    for node in two_racks():
        cluster.add_node(node)
    assert cluster.step() == []
    grant = PodSetAssignment(
        pod_set="s0", count=2, flavors=(("gpu", "any"),), charge=(("gpu", 16 * GPU),), awaits_topology=True
    )
    waits = ObservedStatus(queue="a", grants=(grant,), granted_ms=1, checks=(Check(name="more-nodes"),))
    cluster._facts.observed_status(0, waits)
    assert spots_after(cluster) == {}
    ready = (Check(name="more-nodes", state=CheckState.READY),)
    cluster._facts.observed_status(0, msgspec.structs.replace(waits, checks=ready))
    assert spots_after(cluster) == {"j": {"h100-0-00": 1, "h100-0-01": 1}}


def spots_after(cluster: Cluster) -> dict[str, dict[str, int]]:
    cluster.step()
    return spots(cluster)


def test_pods_are_spread_over_racks_where_that_is_required_or_possible():
    spread = TopologyRequest(spread=SpreadRule(level="rack", most=2))
    cluster = grove_cluster(two_racks(), queue("a", 64))
    cluster.submit(job("j", pods("4x1", topology=spread), queue="a"))
    cluster.step()
    assert sorted(spots(cluster)["j"].items()) == [("h100-0-00", 2), ("h100-1-00", 2)]
    cluster.submit(job("k", pods("5x1", topology=spread), queue="a", at=1))
    assert cluster.step() == [held("k", Reason.TOPOLOGY_TOO_SMALL)]
    soft = TopologyRequest(spread=SpreadRule(level="rack", most=2, required=False))
    cluster.submit(job("l", pods("5x1", topology=soft), queue="a", at=2))
    cluster.step()
    assert sum(spots(cluster)["l"].values()) == 5


def test_gangs_in_a_real_network_are_where_they_asked_to_be_and_their_pods_are_on_their_spots():
    """847 hosts under three levels of switches: required switches, slices, spread, and a place for every spot."""
    with kernels_as(compiled=False):
        state = topology_cycles.run(shared("traces/topology/topo.csv"), 70, 2, checked=True).state
    topology, seen = state.quota.topology, 0
    for row in state.live_workloads().tolist():
        mine = assignments_of(state, row)
        if not mine:
            continue
        seen += 1
        request = state.works[int(state.workloads.work_class[row])].pod_sets[0].topology
        where = Counter({topology.values[topology.leaf_of(0, spot.values)]: spot.pods for spot in mine})
        on = Counter(state.node_specs[int(state.pods.node[pod])].name for pod in pods_of(state, row).tolist())
        assert on == Counter({values[-1]: count for values, count in where.items()})
        if request.required:
            level = topology.levels[0].index(request.required)
            assert len({values[: level + 1] for values in where}) == 1
        for level, holds in parts_of(request, topology.levels[0]):
            assert all(holds(count) for count in below(where, level).values())
    assert seen > 20
    assert (topology.leaves.free[: topology.leaves.top] >= 0).all()


def below(where: Counter, level: int) -> Counter:
    found = Counter()
    for values, count in where.items():
        found[values[: level + 1]] += count
    return found


def parts_of(request: TopologyRequest, levels: tuple[str, ...]) -> list:
    """What must hold in every domain of a level."""
    rules = [(levels.index(rule.level), lambda count, size=rule.size: count % size == 0) for rule in request.slices]
    if request.spread is not None:
        rules.append((levels.index(request.spread.level), lambda count: count <= request.spread.most))
    return rules


def test_a_file_that_names_a_level_that_no_topology_has_is_refused():
    data = {
        "cluster": {"pools": [{"name": "p", "count": 1, "shape": {"gpu": "h100", "gpus": 8}}]},
        "policy": {
            "topologies": [{"name": "net", "levels": ["rack", HOST]}],
            "flavors": [{"name": "f", "topology": "net"}],
            "queues": [{"name": "default", "flavors": [{"name": "f", "gpus": 8}]}],
        },
        "work": [{"id": "j", "runtime": "1h", "pods": {"gpus": 1, "topology": {"required": "rak"}}}],
    }
    _, report = read_document(data)
    said = "work[0].pods.topology.required: there is no level 'rak'; did you mean 'rack'?"
    assert [problem.text() for problem in report.problems] == [said]
    data["work"][0]["pods"]["topology"] = {"required": "rack", "spread": {"level": HOST, "most": 2, "required": False}}
    document, _ = read_document(data)
    assert pod_set(document.work[0].pods).topology == TopologyRequest(
        required="rack", spread=SpreadRule(level=HOST, most=2, required=False)
    )


requests = st.sampled_from(
    [
        TopologyRequest(),
        RACK,
        ANYWHERE,
        TopologyRequest(preferred=HOST),
        TopologyRequest(required=HOST),
        TopologyRequest(preferred="rack", slices=(SliceRule(level=HOST, size=2),)),
        TopologyRequest(spread=SpreadRule(level="rack", most=2)),
    ]
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_in_tidegates_own_mode_every_pod_is_on_its_spot_whatever_happens(data):
    """Random racks, gangs, preemption, lost nodes, and work without spots beside: a place is always a spot's node."""
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8)), min_size=1, max_size=3))
    nodes = fleet(*(f"{count}x h100x{gpus} in r{at}" for at, (count, gpus) in enumerate(sizes)))
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
    flavors = (Flavor(name="any", topology="t"), Flavor(name="loose"))
    queues = (queue("a", 24, preemption=rule), queue("b", 8, flavors=("loose",)))
    cluster = queue_cluster(nodes, *queues, flavors=flavors, topologies=LEVELS)
    for round_ in range(4):
        for _ in range(data.draw(st.integers(0, 3))):
            name, low = f"j{len(cluster.numbers):02d}", data.draw(st.integers(0, 3))
            size = f"{data.draw(st.integers(1, 3))}x{data.draw(st.sampled_from(['1', '2', '4', '0.5']))}"
            asked = pods(size, topology=data.draw(requests) if low else TopologyRequest())
            cluster.submit(job(name, asked, queue="a" if low else "b", priority=low, at=round_))
        for name in sorted(cluster.numbers):
            tell_of(data, cluster, name)
        if data.draw(st.integers(0, 4)) == 0 and len(cluster.nodes) > 1:
            lost = data.draw(st.sampled_from(sorted(cluster.nodes)))
            cluster.tell(FactKind.NODE_REMOVED, lost)
            del cluster.nodes[lost]
        cluster.step()
        assert_on_spots(cluster.state)
    assert cluster.step(0) == []


def tell_of(data, cluster: Cluster, name: str) -> None:
    row = cluster.state.workload_numbers.row(cluster.numbers[name])
    if row < 0 or data.draw(EITHER):
        return
    phase = Phase(int(cluster.state.workloads.phase[row]))
    if phase is Phase.TERMINATING:
        cluster.tell(FactKind.POD_GONE, name)
    elif phase in (Phase.ASSUMED, Phase.RUNNING):
        cluster.tell(data.draw(st.sampled_from([FactKind.POD_STARTED, FactKind.WORKLOAD_FINISHED])), name)


def assert_on_spots(state) -> None:
    for row in state.live_workloads().tolist():
        mine = assignments_of(state, row)
        phase = Phase(int(state.workloads.phase[row]))
        if mine and phase in (Phase.ASSUMED, Phase.RUNNING):
            on = Counter(state.node_specs[int(state.pods.node[pod])].name for pod in pods_of(state, row).tolist())
            asked = Counter()
            for spot in mine:
                asked[spot.values[-1]] += spot.pods
            assert on == asked


def test_pods_without_a_spot_take_none_of_resources_that_came_after_them():
    from types import SimpleNamespace

    import numpy as np

    from tidegate.engine.topology.view import _amounts

    topology = SimpleNamespace(resources=["cpu", "pods", "example.com/new"], unassigned_pods={1: np.array([5, 1])})
    state = SimpleNamespace(pod_classes=SimpleNamespace(top=2))
    assert _amounts(state, topology).tolist() == [[0, 0, 0], [5, 1, 0]]
