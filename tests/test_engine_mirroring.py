"""Places that the world shows: bound by us before a restart, bound by others, or taken by others."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Cluster, evicted, fleet, held, job, placed, pods
from strategies import replace
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.model.observed_status import UnmanagedPods
from tidegate.model.policy import PlacementKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.tables import pods as pod_columns


def foreign(cluster: Cluster, node: str, pods: int = 0, **amounts: int) -> Cluster:
    request = {"nvidia.com/gpu" if name == "gpus" else name: amount for name, amount in amounts.items()}
    told = UnmanagedPods(node=node, request=tuple(sorted(request.items())), pods=pods)
    cluster._facts.unmanaged_pods(cluster.nodes[node], told, cluster.now_ms)
    return cluster


def bound(cluster: Cluster, workload: str, *nodes: str) -> Cluster:
    for ordinal, node in enumerate(nodes):
        cluster.tell(FactKind.POD_BOUND, workload, pod=ordinal, arg=cluster.nodes[node])
    return cluster


def test_work_that_is_bound_already_keeps_its_place():
    """After a restart: the first list tells of work and where it is, in one batch."""
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("old", "2x8"), job("new", "1x8"))
    bound(cluster, "old", "h100-0-00", "h100-0-01")
    assert cluster.step() == [held("new", Reason.LACKS_GPU)]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "old")
    assert cluster.step() == [placed("new")]


def test_what_we_bound_is_shown_and_nothing_changes():
    cluster = Cluster(fleet("2x h100x8"))
    assert cluster.submit(job("a", "2x8")).step() == [placed("a")]
    before = cluster.state.pods.block.copy()
    assert bound(cluster, "a", *(node for node, _ in cluster.places["a"])).step() == []
    assert (cluster.state.pods.block[:, : pod_columns.DECISION] == before[:, : pod_columns.DECISION]).all()


@pytest.mark.parametrize("shown", [FactKind.POD_BOUND, FactKind.POD_STARTED])
def test_what_is_shown_stands_though_the_decision_is_told_to_have_failed(shown):
    """A bind is tried twice, and the second answer says that it was done already."""
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(job("a", "1x8")).step()
    decision = int(cluster.result.decisions.id[0])
    cluster.tell(shown, "a", pod=0, arg=0).outcome(decision, WriteOutcome.FAILED)
    assert cluster.step() == []


def test_a_pod_that_somebody_else_bound_elsewhere_is_there():
    cluster = Cluster(fleet("2x h100x8"), placement="firstfit")
    cluster.submit(job("a", "1x8"))
    assert cluster.step() == [placed("a")]
    other = next(name for name in cluster.nodes if name != cluster.places["a"][0][0])
    assert bound(cluster, "a", other).step() == []
    cluster.submit(job("b", "1x8"))
    assert cluster.step() == [placed("b")]
    assert cluster.places["b"][0][0] == cluster.places["a"][0][0]


def test_half_a_gang_is_given_back_whole():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("a", "2x8"))
    assert bound(cluster, "a", "h100-0-00").step() == [evicted("a", Reason.GANG_BROKEN)]


def test_pods_of_others_take_up_room():
    cluster = Cluster(fleet("1x h100x8"))
    foreign(cluster, "h100-0-00", gpus=1, cpu=2000, pods=1).submit(job("a", "1x8"))
    assert cluster.step() == [held("a", Reason.LACKS_GPU)]
    assert foreign(cluster, "h100-0-00").step() == [placed("a")]


def test_others_who_have_our_devices_get_them_when_we_leave():
    """A foreign pod came where we run: no device of ours is taken, but the next that is free is theirs."""
    cluster = Cluster(fleet("1x h100x8"))
    assert cluster.submit(job("a", "1x4"), job("b", "1x4")).step() == [placed("a"), placed("b")]
    assert foreign(cluster, "h100-0-00", gpus=2, pods=1).step() == []
    cluster.tell(FactKind.WORKLOAD_FINISHED, "a").submit(job("c", "1x4"), job("d", "1x2", at=1))
    assert set(cluster.step()) == {held("c", Reason.LACKS_GPU), placed("d")}


def test_what_others_hold_is_in_the_checkpoint_and_gone_with_the_node():
    cluster = Cluster(fleet("2x h100x8"))
    foreign(cluster, "h100-0-00", gpus=9, cpu=1, pods=3).step()
    assert ClusterState.load(cluster.state.dump()).digest() == cluster.state.digest()
    assert cluster.state.fork().digest() == cluster.state.digest()
    cluster.tell(FactKind.NODE_REMOVED, "h100-0-00").step()
    assert not cluster.state.unmanaged


def test_a_pod_that_is_done_gives_its_room_back_and_the_gang_goes_on():
    cluster = Cluster(fleet("2x h100x8"))
    assert cluster.submit(job("a", "2x8")).step() == [placed("a")]
    assert cluster.submit(job("b", "1x8")).step() == [held("b", Reason.LACKS_GPU)]
    assert cluster.tell(FactKind.POD_DONE, "a", pod=0).step() == [placed("b")]
    assert cluster.tell(FactKind.POD_DONE, "a", pod=0).step() == []  # told again it means the same
    assert ClusterState.load(cluster.state.dump()).digest() == cluster.state.digest() == cluster.state.fork().digest()
    cluster.submit(job("c", "1x8")).step()
    assert cluster.tell(FactKind.WORKLOAD_FINISHED, "a").step() == [placed("c")]
    assert not cluster.state.done


def test_a_gang_of_which_some_are_done_is_whole_after_a_restart():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("a", "2x8"))
    cluster.tell(FactKind.POD_DONE, "a", pod=1)
    assert bound(cluster, "a", "h100-0-00").step() == []
    assert cluster.submit(job("b", "1x8")).step() == [placed("b")]


def test_what_is_told_done_of_work_that_waits_means_nothing():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(job("a", "2x4"))
    assert cluster.tell(FactKind.POD_DONE, "a", pod=0).step() == [placed("a")]
    assert not cluster.state.done


def test_a_gang_that_leaves_asks_for_all_its_pods_again():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("a", "2x8")).step()
    cluster.tell(FactKind.POD_DONE, "a", pod=0).step()
    lost = cluster.places["a"][1][0]
    assert cluster.tell(FactKind.NODE_REMOVED, lost).step()[0] == evicted("a", Reason.NODE_LOST)
    assert not cluster.state.done


@st.composite
def worlds(draw):
    """Facts in any order: foreign pods that come and go, pods bound anywhere, work that comes and finishes in part."""
    steps = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["foreign", "bound", "submit", "done", "finish"]))
        steps.append((kind, draw(st.integers(0, 3)), draw(st.integers(0, 1)), draw(st.integers(0, 10))))
    return steps


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_the_state_stays_whole_whatever_the_world_shows(steps):
    """`Cluster.step` checks the state before and after."""
    cluster = Cluster(fleet("2x h100x4"))
    names = list(cluster.nodes)
    for kind, which, node, amount in steps:
        if kind == "foreign":
            foreign(cluster, names[node], gpus=amount, cpu=amount * 1000, pods=amount)
        elif kind == "submit" or f"w{which}" not in cluster.numbers:
            cluster.submit(job(f"w{which}", f"{which % 2 + 1}x{amount % 4 + 1}"))
        elif kind == "bound":
            bound(cluster, f"w{which}", names[node])
        elif kind == "done":
            cluster.tell(FactKind.POD_DONE, f"w{which}", pod=node)
        else:
            cluster.tell(FactKind.WORKLOAD_FINISHED, f"w{which}")
        cluster.step()


@pytest.mark.parametrize("placement", [kind.value for kind in PlacementKind])
def test_a_fraction_that_asks_for_no_memory_fits_where_more_is_in_use_than_there_is(placement):
    cluster = Cluster(fleet("1x h100x1"), placement=placement)
    cluster.submit(*(job(name, pods("1x0.3", vram=60 << 10)) for name in "ab"))
    bound(bound(cluster, "a", "h100-0-00"), "b", "h100-0-00")
    assert cluster.step() == []
    assert cluster.state.nodes.vram_left[0, 0] < 0
    cluster.submit(job("c", "1x0.3", at=1), job("d", pods("1x0.1", vram=1), at=2))
    assert cluster.step() == [placed("c"), held("d", Reason.LACKS_GPU_MEMORY)]


@pytest.mark.parametrize("order", ["fifo", "srtf"])
def test_a_gpu_whose_memory_is_not_told_for_a_moment_takes_fractions_that_ask_for_none(order):
    node = fleet("1x h100x1")[0]
    cluster = Cluster([node], order=order)
    assert cluster.submit(job("a", pods("1x0.5", vram=40 << 10))).step() == [placed("a")]
    cluster.add_node(replace(node, shape=replace(node.shape, gpu_memory_mib=0)))
    assert cluster.submit(job("b", "1x0.3", at=1)).step() == [placed("b")]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8), st.lists(st.integers(0, 3), max_size=3)), max_size=8))
def test_pods_shown_many_at_a_time_are_where_they_are_one_by_one(gangs):
    """Gangs of so many pods with so many GPUs each, some of their pods on nodes that may have no room for them."""

    def restarted() -> Cluster:
        cluster = Cluster(fleet("4x h100x8"))
        names = list(cluster.nodes)
        cluster.submit(*(job(f"w{n}", f"{count}x{gpus}") for n, (count, gpus, _) in enumerate(gangs)))
        for number, (count, _, nodes) in enumerate(gangs):
            bound(cluster, f"w{number}", *(names[node] for node in nodes[:count]))
        return cluster

    together = restarted()
    decided = together.step()
    with patch("tidegate.engine.observe_pods._are_new", return_value=False):
        alone = restarted()
        assert alone.step() == decided
    assert alone.state.digest() == together.state.digest()
