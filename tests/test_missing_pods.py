"""A lost pod of independent pods is placed again alone; a lost pod of a gang stops all of it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Cluster, fleet, job
from test_queues import queue
from tidegate.engine.release import pods_of
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Flavor, QueueSetup
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Recovery
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

PACKED = PlacementRule(kind=PlacementKind.FIRST_FIT)
QUEUED = QueueSetup(flavors=(Flavor(name="any"),), queues=(queue("a", 24),), ignore_undeclared=True)
POLICIES = [
    Policy(placement=PACKED),
    Policy(placement=PACKED, shares=QUEUED),
    Policy(placement=PACKED, shares=QUEUED, admission=AdmissionKind.KUEUE),
]


def sweep(name: str, shape: str, **given):
    """Work whose pods do not depend on each other."""
    made = job(name, shape, queue="a", **given)
    return msgspec.structs.replace(made, work=msgspec.structs.replace(made.work, recovery=Recovery.PODS))


def running(policy: Policy, nodes: str = "3x h100x8", shape: str = "4x4") -> Cluster:
    """A cluster on which a sweep runs: its first two pods on the first node."""
    cluster = Cluster(fleet(nodes))
    cluster.set_policy(policy)
    cluster.submit(sweep("sweep", shape))
    cluster.step()
    cluster.tell(FactKind.POD_STARTED, "sweep")
    cluster.step()
    return cluster


def another_node(cluster: Cluster):
    """A node with a name of its own."""
    return msgspec.structs.replace(fleet("1x h100x8")[0], name=f"new-{len(cluster.nodes)}")


def kinds(cluster: Cluster) -> list[tuple[DecisionKind, str, Reason]]:
    """What one step decides, a row for each pod."""
    cluster.step()
    made = cluster.result.decisions
    rows = zip(made.kind.tolist(), made.workload.tolist(), made.code.tolist(), strict=True)
    return [(DecisionKind(kind), cluster.ids[number], Reason(code)) for kind, number, code in rows]


def nodes_of(cluster: Cluster, name: str) -> list[str]:
    """The nodes that hold a pod of a workload, by ordinal."""
    state = cluster.state
    rows = pods_of(state, state.workload_numbers.row(cluster.numbers[name]))
    order = rows[state.pods.ordinal[rows].argsort()]
    return [state.node_specs[node].name for node in state.pods.node[order].tolist()]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_pod_is_placed_again_and_the_others_go_on(policy):
    cluster = running(policy)
    cluster.tell(FactKind.POD_GONE, "sweep", pod=1)
    assert kinds(cluster) == [(DecisionKind.PLACE, "sweep", Reason.PLACED)]
    assert not cluster.state.missing
    assert len(nodes_of(cluster, "sweep")) == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_node_costs_only_its_pods(policy):
    cluster = running(policy)
    cluster.tell(FactKind.NODE_REMOVED, nodes_of(cluster, "sweep")[0])
    said = kinds(cluster)
    assert said == [(DecisionKind.PLACE, "sweep", Reason.PLACED)] * 2
    assert not cluster.step()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_pod_that_fits_nowhere_waits_with_a_reason_and_keeps_its_quota(policy):
    cluster = running(policy, "2x h100x8")
    cluster.tell(FactKind.NODE_REMOVED, nodes_of(cluster, "sweep")[0])
    assert kinds(cluster) == [(DecisionKind.HOLD, "sweep", Reason.LACKS_GPU)]
    assert not cluster.step()
    cluster.submit(job("other", "1x8", queue="a"))
    cluster.add_node(another_node(cluster))
    said = kinds(cluster)
    assert said[:2] == [(DecisionKind.PLACE, "sweep", Reason.PLACED)] * 2
    assert said[-1][:2] == (DecisionKind.HOLD, "other")


def cordon(cluster: Cluster, name: str) -> None:
    """Close a node to new pods."""
    node = next(node for node in cluster.state.node_specs.values() if node.name == name)
    cluster.add_node(msgspec.structs.replace(node, unschedulable=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_that_is_drained_is_placed_on_another_node_and_one_that_stays_is_not(policy):
    cluster = running(policy)
    drained = nodes_of(cluster, "sweep")[0]
    cordon(cluster, drained)
    assert not kinds(cluster)  # a cordon moves nothing
    cluster.tell(FactKind.POD_ABSENT, "sweep", pod=0)
    assert kinds(cluster) == [(DecisionKind.PLACE, "sweep", Reason.PLACED)]
    assert nodes_of(cluster, "sweep")[0] != drained == nodes_of(cluster, "sweep")[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_that_is_absent_from_a_usable_node_keeps_its_place(policy):
    cluster = running(policy)
    before = nodes_of(cluster, "sweep")
    cluster.tell(FactKind.POD_ABSENT, "sweep", pod=0)
    assert not kinds(cluster)
    cordon(cluster, before[0])  # before the pod that replaces it has come
    assert kinds(cluster) == [(DecisionKind.PLACE, "sweep", Reason.PLACED)]


def test_a_pod_that_came_back_to_its_node_stays_there_when_it_is_cordoned():
    cluster = running(POLICIES[1])
    node = nodes_of(cluster, "sweep")[0]
    cluster.tell(FactKind.POD_ABSENT, "sweep", pod=0).step()
    cluster.tell(FactKind.POD_BOUND, "sweep", pod=0, arg=cluster.nodes[node]).step()
    cordon(cluster, node)
    assert not kinds(cluster)


def test_a_gang_that_has_not_come_to_a_node_that_is_cordoned_goes_elsewhere_whole():
    cluster = Cluster(fleet("3x h100x8"))
    cluster.submit(job("gang", "2x8"))
    cluster.step()
    cordon(cluster, nodes_of(cluster, "gang")[0])
    assert not kinds(cluster)  # it may be on its way
    cluster.tell(FactKind.POD_ABSENT, "gang", pod=0)
    said = kinds(cluster)
    assert said[0] == (DecisionKind.EVICT, "gang", Reason.NODE_LOST)


def test_of_a_gang_a_lost_pod_stops_all_of_it():
    cluster = Cluster(fleet("3x h100x8"))
    cluster.submit(job("gang", "4x4"))
    cluster.step()
    cluster.tell(FactKind.POD_GONE, "gang", pod=1)
    assert (DecisionKind.EVICT, "gang", Reason.GANG_BROKEN) in kinds(cluster)


def test_work_that_lost_all_its_pods_is_placed_again_whole():
    cluster = running(POLICIES[1])
    cluster.tell(FactKind.POD_GONE, "sweep")
    said = kinds(cluster)
    assert said[0] == (DecisionKind.EVICT, "sweep", Reason.GANG_BROKEN)
    assert [one[:2] for one in said].count((DecisionKind.PLACE, "sweep")) == 4


def test_a_missing_pod_survives_a_checkpoint():
    cluster = running(POLICIES[1], "2x h100x8")
    cluster.tell(FactKind.NODE_REMOVED, nodes_of(cluster, "sweep")[0])
    cluster.step()
    again = ClusterState.load(cluster.state.dump())
    assert again.missing == cluster.state.missing != {}
    assert again.digest() == cluster.state.digest()
    assert cluster.state.fork().missing is not cluster.state.missing


@given(st.data())
def test_pods_that_come_and_go_in_any_order_keep_the_books(data):
    policy = data.draw(st.sampled_from(POLICIES))
    cluster = running(policy, "4x h100x8", "5x4")
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["gone", "done", "absent", "cordon", "node", "add", "other"]))
        if kind == "node" and len(cluster.state.node_specs) > 1:
            names = sorted(node.name for node in cluster.state.node_specs.values())
            cluster.tell(FactKind.NODE_REMOVED, data.draw(st.sampled_from(names)))
        elif kind == "add":
            cluster.add_node(another_node(cluster))
        elif kind == "other":
            cluster.submit(job(f"other{len(cluster.numbers)}", "1x4", queue="a", priority=data.draw(st.integers(0, 2))))
        elif kind == "cordon":
            names = sorted(node.name for node in cluster.state.node_specs.values())
            cordon(cluster, data.draw(st.sampled_from(names)))
        elif kind in ("gone", "done", "absent"):
            fact = FactKind[f"POD_{kind.upper()}"]
            cluster.tell(fact, "sweep", pod=data.draw(st.integers(0, 4)))
        cluster.step()
        check(cluster.state)
        assert ClusterState.load(cluster.state.dump()).digest() == cluster.state.digest()
