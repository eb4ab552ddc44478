"""What the engine decides, one rule at a time."""

from __future__ import annotations

import msgspec
import pytest

from builders import Cluster, evicted, fleet, held, job, placed, pods, preempted, rejected
from tidegate.engine.step import step
from tidegate.model.facts import NO_FACTS, FactKind, WriteOutcome
from tidegate.model.hardware import Taint
from tidegate.model.policy import PlacementKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import labels
from tidegate.model.work import GpuRequest, NodeRequirement, NodeTerm, Operator, PodSet, Share, Toleration


def test_a_gang_starts_whole_or_not_at_all():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("small", "1x1"), job("gang", "2x8", at=1))
    assert cluster.step() == [placed("small"), held("gang", Reason.GANG_PARTIAL)]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "small")
    assert cluster.step() == [placed("gang")]
    assert {name for name, _ in cluster.places["gang"]} == {"h100-0-00", "h100-0-01"}


def test_a_gang_of_unlike_pods_is_undone_when_its_last_pod_does_not_fit():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(job("gang", "1x4", "1x5"))
    assert cluster.step() == [held("gang", Reason.GANG_PARTIAL)]
    assert cluster.state.nodes.idle[0] == 8


def test_order_is_priority_then_time_then_id():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(
        job("b", "1x8", at=5), job("a", "1x8", at=5), job("early", "1x8"), job("vip", "1x8", at=9, priority=1)
    )
    order = [cluster.step()[0].id]
    for _ in range(3):
        cluster.tell(FactKind.WORKLOAD_FINISHED, order[-1])
        order.append(cluster.step()[0].id)
    assert order == ["vip", "early", "a", "b"]


def test_smaller_work_passes_a_head_that_waits_unless_the_order_is_strict():
    for strict in (False, True):
        cluster = Cluster(fleet("1x h100x8"), strict=strict)
        cluster.submit(job("first", "1x6"), job("big", "1x8", at=1), job("small", "1x1", at=2))
        expected = held("small", Reason.BEHIND_HEAD) if strict else placed("small")
        assert expected in cluster.step()


def test_a_hold_is_written_when_its_reason_changes_and_not_again():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(job("a", "1x8"), job("b", "1x8", at=1), job("c", "1x8", at=2))
    assert cluster.step() == [placed("a"), held("b", Reason.LACKS_GPU), held("c", Reason.BEHIND_EQUAL)]
    assert cluster.evidence(1)[:3] == [8, 0, 1]
    assert cluster.step() == []
    cluster.tell(FactKind.WORKLOAD_FINISHED, "a")
    assert cluster.step() == [placed("b"), held("c", Reason.LACKS_GPU)]


def test_the_tally_counts_nodes_by_why_they_were_not_taken():
    cluster = Cluster([*fleet("3x h100x8"), *fleet("2x a100x8")])
    cluster.submit(*(job(f"h{i}", "1x8", models=("h100",)) for i in range(3)), job("j", "1x8", models=("h100",), at=1))
    cluster.step()
    tally = dict(zip(cluster.result.tally.code.tolist(), cluster.result.tally.nodes.tolist(), strict=True))
    assert tally == {Reason.LACKS_GPU: 3, Reason.GPU_MODEL: 2}


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (job("j", "1x1", models=("b200",)), Reason.GPU_MODEL),
        (job("j", "1x9"), Reason.POD_TOO_LARGE),
        (job("j", "1x1", cpu=1000), Reason.POD_TOO_LARGE),
        (job("j", "1x1", selector=labels({"pool": "a100"})), Reason.NODE_TERMS),
    ],
)
def test_what_fits_no_node_is_held_with_the_reason(ask, reason):
    cluster = Cluster(fleet("2x h100x8"))
    assert cluster.submit(ask).step() == [held("j", reason)]


def test_lack_of_cpu_beside_idle_gpus_is_said():
    cluster = Cluster(fleet("2x h100x8 cpu=16"))
    cluster.submit(job("hog", "2x1", cpu=16), job("j", "1x1", cpu=4, at=1))
    assert cluster.step() == [placed("hog"), held("j", Reason.LACKS_CPU)]
    assert cluster.evidence(2)[0] == 4000


def test_taints_keep_away_whoever_does_not_tolerate_them():
    cluster = Cluster(fleet("1x h100x8 taint=gpu"))
    tolerant = pods("1x1", tolerations=(Toleration(key="gpu", operator=Operator.EXISTS),))
    cluster.submit(job("no", "1x1"), job("yes", tolerant, at=1))
    assert cluster.step() == [placed("yes"), held("no", Reason.NODE_TAINT)]


def test_node_terms_are_alternatives_of_conditions():
    cluster = Cluster(fleet("1x h100x8 in r1", "1x a100x8 in r2"))
    term = NodeTerm(requirements=(NodeRequirement(key="rack", operator=Operator.NOT_IN, values=("r1",)),))
    cluster.submit(job("j", pods("1x1", terms=(term,))))
    assert cluster.step() == [placed("j")]
    assert cluster.places["j"][0][0] == "a100-1-00"


def test_fractions_share_a_device_and_its_memory():
    cluster = Cluster(fleet("1x h100x1 vram=80"))
    cluster.submit(*(job(f"f{i}", "1x0.4", vram=30 * 1024, at=i) for i in range(2)))
    cluster.submit(job("third", "1x0.2", vram=30 * 1024, at=3), job("fourth", "1x0.2", vram=10 * 1024, at=4))
    assert cluster.step() == [
        placed("f0"),
        placed("f1"),
        placed("fourth"),
        held("third", Reason.LACKS_GPU_MEMORY),
    ]


def test_memory_of_a_shared_device_is_a_reason_of_its_own():
    cluster = Cluster(fleet("1x h100x1 vram=80"))
    cluster.submit(job("a", "1x0.2", vram=60 * 1024), job("b", "1x0.2", vram=30 * 1024, at=1))
    assert cluster.step() == [placed("a"), held("b", Reason.LACKS_GPU_MEMORY)]


@pytest.mark.parametrize(
    ("pod_set", "reason"),
    [
        (PodSet(count=0), Reason.MALFORMED),
        (PodSet(count=10**6), Reason.MALFORMED),
        (PodSet(gpu=GpuRequest(share=Share.WHOLE, count=10**9)), Reason.MALFORMED),
        (PodSet(gpu=GpuRequest(share=Share.FRACTION, count=1, milli=0)), Reason.MALFORMED),
        (PodSet(request=(("cpu", -1),)), Reason.MALFORMED),
        (PodSet(gpu=GpuRequest(share=Share.MIG, count=1, profile="1g.10gb")), Reason.SHARE_UNSUPPORTED),
    ],
)
def test_impossible_work_is_rejected_with_a_reason_and_never_raises(pod_set, reason):
    cluster = Cluster(fleet("1x h100x8"))
    assert cluster.submit(job("bad", pod_set), job("good", "1x8")).step() == [rejected("bad", reason), placed("good")]


def test_where_nothing_may_wait_what_does_not_fit_is_rejected():
    cluster = Cluster(fleet("1x h100x8"), waits=False)
    cluster.submit(job("a", "1x8"), job("b", "1x8", at=1))
    assert cluster.step() == [placed("a"), rejected("b", Reason.REFUSED_AT_FIRST_TRY)]
    assert len(cluster.state.live_workloads()) == 1


def test_a_second_call_with_nothing_new_decides_nothing_and_changes_nothing():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(*(job(f"j{i}", "1x5", at=i) for i in range(5)))
    cluster.step()
    before = cluster.state.digest()
    assert cluster.step(0) == []
    assert cluster.state.digest() == before


def test_propose_decides_the_same_and_leaves_the_state_as_it_is():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("a", "1x8"))
    cluster.step()
    cluster.submit(job("b", "1x8", at=1))
    events, before = cluster._facts.batch(), cluster.state.digest()
    proposed = step(cluster.state.fork(), events, cluster.now_ms + 1_000)
    assert cluster.state.digest() == before
    cluster.step()
    assert proposed.decisions.node.tolist() == cluster.result.decisions.node.tolist()


def test_a_failed_bind_gives_the_gang_back_whole_and_an_unknown_one_stays_assumed():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("gang", "2x8"))
    cluster.step()
    first = int(cluster.result.decisions.id[0])
    assert cluster.outcome(first, WriteOutcome.UNKNOWN).step() == []
    assert cluster.outcome(first, WriteOutcome.FAILED).step() == [evicted("gang", Reason.BIND_FAILED)]
    assert cluster.state.nodes.idle[:2].sum() == 8  # the other pod holds what it holds until it is gone
    cluster.tell(FactKind.POD_GONE, "gang", pod=1)
    assert cluster.step() == [placed("gang", Reason.PLACED_AGAIN)]


def test_a_gang_that_loses_a_pod_is_evicted_whole_and_waits_again():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("gang", "2x8"), job("other", "1x8", at=1))
    cluster.step()
    cluster.tell(FactKind.POD_STARTED, "gang").tell(FactKind.POD_FAILED, "gang", pod=0)
    assert cluster.step() == [evicted("gang", Reason.GANG_BROKEN), placed("other")]
    cluster.tell(FactKind.POD_GONE, "gang")
    assert cluster.step() == [held("gang", Reason.GANG_PARTIAL)]


def test_a_lost_node_takes_its_pods_along_and_a_new_one_wakes_who_waits():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("gang", "2x8"))
    cluster.step()
    cluster.tell(FactKind.NODE_REMOVED, "h100-0-01")
    assert cluster.step() == [evicted("gang", Reason.NODE_LOST)]
    cluster.tell(FactKind.POD_GONE, "gang")
    assert cluster.step() == [held("gang", Reason.GANG_PARTIAL)]
    cluster.add_node(fleet("2x h100x8")[1])
    assert cluster.step() == [placed("gang", Reason.PLACED_AGAIN)]


def test_a_broken_device_takes_its_pods_along_and_takes_no_others():
    cluster = Cluster(fleet("1x h100x2"))
    cluster.submit(job("a", "1x1"), job("b", "1x1", at=1))
    cluster.step()
    cluster.tell(FactKind.DEVICE_FAILED, "h100-0-00", arg=0)
    assert cluster.step() == [evicted("a", Reason.DEVICE_LOST), held("a", Reason.LACKS_GPU)]
    cluster.tell(FactKind.DEVICE_RECOVERED, "h100-0-00", arg=0)
    assert cluster.step() == [placed("a", Reason.PLACED_AGAIN)]


def test_a_node_that_is_not_ready_takes_nothing_new():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.add_node(msgspec.structs.replace(fleet("1x h100x8")[0], ready=False))
    assert cluster.submit(job("j", "1x1")).step() == [held("j", Reason.NODE_DOWN)]
    cluster.add_node(fleet("1x h100x8")[0])
    assert cluster.step() == [placed("j")]


def test_a_taint_that_comes_later_keeps_new_work_away():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.step()
    cluster.add_node(msgspec.structs.replace(fleet("1x h100x8")[0], taints=(Taint(key="x"),)))
    assert cluster.submit(job("j", "1x1")).step() == [held("j", Reason.NODE_TAINT)]


def test_cancelled_work_leaves_the_queue_or_its_place():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(job("a", "1x8"), job("b", "1x8", at=1))
    cluster.step()
    cluster.tell(FactKind.WORKLOAD_CANCELLED, "b").tell(FactKind.WORKLOAD_CANCELLED, "a")
    assert cluster.step() == [evicted("a", Reason.CANCELLED)]
    cluster.tell(FactKind.POD_GONE, "a")
    assert cluster.step() == []
    assert len(cluster.state.live_workloads()) == 0


def test_shortest_remaining_first_preempts_and_keeps_the_room_for_whom_it_was_made():
    cluster = Cluster(fleet("1x h100x8"), order="srtf", placement="firstfit")
    cluster.submit(job("long", "1x8")).tell(FactKind.PROGRESS_OBSERVED, "long", values=(100.0, 0.0))
    assert cluster.step() == [placed("long")]
    cluster.submit(job("short", "1x8", at=1)).tell(FactKind.PROGRESS_OBSERVED, "short", values=(10.0, 0.0))
    assert cluster.step() == [preempted("long"), held("short", Reason.AWAITS_VICTIMS)]
    assert cluster.step() == []  # the victim holds what it holds until it is gone
    cluster.submit(job("medium", "1x8", at=2)).tell(FactKind.PROGRESS_OBSERVED, "medium", values=(50.0, 0.0))
    cluster.tell(FactKind.POD_GONE, "long")
    assert cluster.step() == [placed("short"), held("medium", Reason.OUTRANKED), held("long", Reason.OUTRANKED)]


def test_work_that_had_enough_for_two_levels_at_once_is_demoted_once_and_for_good():
    cluster = Cluster(fleet("1x h100x8"), order="las")
    cluster.submit(job("a", "1x1"))
    cluster.step()
    cluster.tell(FactKind.PROGRESS_OBSERVED, "a", values=(1e6, 8_000)).tell(FactKind.POD_STARTED, "a")
    cluster.submit(job("b", "1x1", at=1))
    cluster.step()
    assert cluster.state.workloads.level[0] == 2
    before = cluster.state.digest()
    assert cluster.step(0) == []
    assert cluster.state.digest() == before


def test_least_attained_service_demotes_who_had_enough():
    cluster = Cluster(fleet("1x h100x8"), order="las", placement="firstfit")
    cluster.submit(job("old", "8x1"))
    cluster.step()
    cluster.tell(FactKind.POD_STARTED, "old").tell(FactKind.PROGRESS_OBSERVED, "old", values=(1e6, 500.0))
    cluster.submit(job("new", "8x1", at=1))
    assert cluster.step() == [preempted("old"), held("new", Reason.AWAITS_VICTIMS)]


@pytest.mark.parametrize("placement", [kind.value for kind in PlacementKind])
def test_every_placement_rule_places_what_fits(placement):
    cluster = Cluster(fleet("2x h100x8", "1x a100x4"), placement=placement)
    cluster.submit(*(job(f"j{i}", ask, at=i) for i, ask in enumerate(["1x8", "1x4", "1x0.5", "1x0.5", "2x1", "1x0"])))
    assert [said.kind.name for said in cluster.step()] == ["PLACE"] * 6


def test_nothing_is_decided_without_facts():
    cluster = Cluster([])
    assert cluster.step() == []
    assert step(cluster.state.fork(), NO_FACTS, 5_000).next_wake_ms is None
    assert cluster.submit(job("j", "1x1")).step() == [held("j", Reason.NO_NODES)]


def linked_cluster(size: int) -> Cluster:
    node = fleet("1x h100x8")[0]
    return Cluster([msgspec.structs.replace(node, shape=msgspec.structs.replace(node.shape, nvlink_group_size=size))])


def test_gpus_of_a_pod_come_from_one_nvlink_group_the_tightest_that_is_enough():
    cluster = linked_cluster(4)
    cluster.submit(job("a", "1x3"), job("b", "1x2", at=1), job("c", "1x1", at=2), job("d", "1x2", at=3))
    cluster.step()
    masks = {name: place[0][1] for name, place in cluster.places.items()}
    assert masks == {"a": 0b0000_0111, "b": 0b0011_0000, "c": 0b0000_1000, "d": 0b1100_0000}


def test_more_gpus_than_a_group_has_take_whole_groups_first():
    cluster = linked_cluster(2)
    cluster.submit(job("a", "1x1"), job("b", "1x5", at=1))
    cluster.step()
    assert cluster.places["b"][0][1] == 0b0011_1110
    cluster.submit(job("c", "1x2", at=2))
    cluster.step()
    assert cluster.places["c"][0][1] == 0b1100_0000
