"""Queues with quota and places: admitted whole with a place, lent and asked back, flavors on their nodes."""

from __future__ import annotations

from msgspec.structs import replace

from builders import Cluster, Said, fleet, held, job, placed, pods, preempted
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import (
    Cohort,
    FairSharing,
    Flavor,
    FlavorGroup,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
    StopPolicy,
)
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import labels
from tidegate.model.work import Toleration

GPU = 1000  # quota counts thousandths


def queue(name: str, gpus: int, *, flavors: tuple[str, ...] = ("any",), **more) -> Queue:
    """A queue that counts GPUs, in each of its flavors as many."""
    quotas = tuple(Quota(flavor=flavor, resource="gpu", nominal=gpus * GPU) for flavor in flavors)
    return Queue(name=name, groups=(FlavorGroup(resources=("gpu",), flavors=flavors),), quotas=quotas, **more)


def queue_cluster(nodes, *queues: Queue, admission="tidegate", **more) -> Cluster:
    """A cluster whose queues have quota."""
    shares = QueueSetup(
        flavors=more.pop("flavors", (Flavor(name="any"),)), queues=queues, ignore_undeclared=True, **more
    )
    cluster = Cluster(nodes)
    cluster.set_policy(
        Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT), admission=AdmissionKind(admission), shares=shares)
    )
    return cluster


def admitted(id_: str, reason: Reason = Reason.ADMITTED) -> Said:
    """The workload got quota."""
    return Said(DecisionKind.ADMIT, id_, reason)


def test_quota_holds_work_back_though_nodes_are_free():
    cluster = queue_cluster(fleet("2x h100x8"), queue("a", 8))
    cluster.submit(job("j1", "1x8", queue="a"), job("j2", "1x8", queue="a", at=1))
    assert cluster.step() == [placed("j1"), admitted("j1"), held("j2", Reason.WAITS_FOR_QUOTA)]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "j1")
    assert cluster.step() == [placed("j2"), admitted("j2")]


def test_a_lender_gets_its_quota_back_and_victims_hold_until_they_are_gone():
    any_one = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)
    nodes = fleet("2x h100x8")
    cluster = queue_cluster(nodes, queue("a", 8, cohort="all"), queue("b", 8, cohort="all", preemption=any_one))
    cluster.submit(job("j1", "1x8", queue="a"), job("j2", "1x8", queue="a", at=1))
    assert admitted("j2", Reason.ADMITTED_BORROWING) in cluster.step()
    cluster.submit(job("k1", "1x8", queue="b", at=2000))
    said = cluster.step()
    assert said == [preempted("j2", Reason.RECLAIMED_IN_COHORT), held("k1", Reason.AWAITS_VICTIMS)]
    assert int(cluster.result.decisions.cause[0]) == cluster.numbers["k1"]
    assert cluster.step() == []
    cluster.tell(FactKind.POD_GONE, "j2")
    assert cluster.step() == [placed("k1"), admitted("k1"), held("j2", Reason.WAITS_FOR_QUOTA)]


def test_without_a_place_there_is_no_quota_either():
    cluster = queue_cluster(fleet("1x h100x4"), queue("a", 16))
    cluster.submit(job("gang", "2x4", queue="a"), job("small", "1x4", queue="a", at=1))
    assert cluster.step() == [held("gang", Reason.GANG_PARTIAL), placed("small"), admitted("small")]
    assert cluster.state.quota.quota_nodes.usage.sum() == 4 * GPU
    cluster.add_node(fleet("1x h100x4", "1x h100x8")[1])
    assert cluster.step() == [placed("gang"), admitted("gang")]


def test_in_kueues_mode_quota_is_held_without_a_place():
    cluster = queue_cluster(fleet("1x h100x4"), queue("a", 16), admission="kueue")
    cluster.submit(job("gang", "2x4", queue="a"))
    assert cluster.step() == [admitted("gang"), held("gang", Reason.GANG_PARTIAL)]
    assert cluster.state.quota.quota_nodes.usage.sum() == 8 * GPU
    assert cluster.step() == []
    cluster.add_node(fleet("1x h100x4", "1x h100x8")[1])
    assert cluster.step() == [placed("gang")]


def test_pods_go_to_the_nodes_of_their_flavor():
    flavors = (
        Flavor(name="h", node_labels=labels({"pool": "h100"})),
        Flavor(name="a", node_labels=labels({"pool": "a100"}), tolerations=(Toleration(key="gpu"),)),
    )
    nodes = fleet("2x h100x8", "2x a100x8 taint=gpu")
    cluster = queue_cluster(nodes, queue("q", 8, flavors=("h", "a")), flavors=flavors)
    cluster.submit(job("j1", "1x8", queue="q"), job("j2", "1x8", queue="q", at=1), job("j3", "1x8", queue="q", at=2))
    cluster.step()
    assert [cluster.places[name][0][0].split("-")[0] for name in ("j1", "j2")] == ["h100", "a100"]
    assert "j3" not in cluster.places


def test_work_that_allows_it_starts_with_fewer_pods():
    cluster = queue_cluster(fleet("2x h100x8"), queue("a", 8))
    cluster.submit(job("j1", pods("16x1", min_count=4), queue="a"))
    assert cluster.step() == [placed("j1"), admitted("j1", Reason.ADMITTED_PARTLY)]
    assert len(cluster.places["j1"]) == 8


def test_priority_preempts_in_the_queue_and_a_strict_head_blocks():
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8, preemption=rule, strict_fifo=True))
    cluster.submit(job("low", "1x8", queue="a"))
    cluster.step()
    cluster.submit(job("same", "1x8", queue="a", at=1), job("tiny", "1x1", queue="a", at=2))
    assert cluster.step() == [held("same", Reason.WAITS_FOR_QUOTA), held("tiny", Reason.BEHIND_HEAD)]
    cluster.submit(job("high", "1x8", queue="a", at=3, priority=9))
    assert preempted("low", Reason.PREEMPTED_IN_QUEUE) in cluster.step()


def test_a_closed_queue_and_an_unknown_one_say_so():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8, stop=StopPolicy.HOLD))
    cluster.submit(job("j1", "1x1", queue="a"), job("j2", "1x1", queue="nowhere", at=1))
    assert cluster.step() == [held("j1", Reason.QUEUE_CLOSED), held("j2", Reason.NO_QUEUE)]
    cluster.set_policy(
        Policy(shares=QueueSetup(flavors=(Flavor(name="any"),), queues=(queue("a", 8),), ignore_undeclared=True))
    )
    assert placed("j1") in cluster.step()


def test_more_than_the_queue_can_ever_have_is_told_apart():
    cluster = queue_cluster(fleet("4x h100x8"), queue("a", 8, cohort="all"), queue("b", 8, cohort="all"))
    cluster.submit(job("large", "4x8", queue="a"))
    assert cluster.step() == [held("large", Reason.ABOVE_QUOTA)]
    lot, missing = cluster.result.decisions.evidence[0][:2]
    assert (int(lot), int(missing)) == (0, 16 * GPU)


def test_fair_sharing_admits_who_has_borrowed_least():
    nodes = fleet("4x h100x8")
    cohort = (Cohort(name="all", quotas=(Quota(flavor="any", resource="gpu", nominal=32 * GPU),)),)
    queues = (queue("a", 0, cohort="all"), queue("b", 0, cohort="all"))
    cluster = queue_cluster(nodes, *queues, cohorts=cohort, fair=FairSharing())
    cluster.submit(*(job(f"a{i}", "1x8", queue="a", at=i) for i in range(4)))
    cluster.submit(*(job(f"b{i}", "1x8", queue="b", at=10 + i) for i in range(4)))
    cluster.step()
    assert sorted(cluster.places) == ["a0", "a1", "b0", "b1"]


def test_quota_that_is_taken_away_evicts_nobody_but_admits_nobody_either():
    cluster = queue_cluster(fleet("2x h100x8"), queue("a", 16))
    cluster.submit(job("j1", "1x8", queue="a"), job("j2", "1x8", queue="a", at=1))
    cluster.step()
    shares = cluster.state.policy.shares
    cluster.set_policy(
        Policy(shares=QueueSetup(flavors=shares.flavors, queues=(queue("a", 4),), ignore_undeclared=True))
    )
    cluster.submit(job("j3", "1x1", queue="a", at=2))
    assert cluster.step() == [held("j3", Reason.WAITS_FOR_QUOTA)]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "j1").tell(FactKind.WORKLOAD_FINISHED, "j2")
    assert cluster.step() == [placed("j3"), admitted("j3")]


def test_work_of_a_queue_that_goes_and_comes_is_told_again_why_it_waits():
    both = [queue("a", 8), queue("late", 8)]
    cluster = queue_cluster(fleet("4x h100x8"), *both)
    cluster.submit(job("runs", "1x8", queue="late"), *(job(f"w{at}", "1x8", queue="late", at=at) for at in (1, 2)))
    said = cluster.step()
    assert held("w1", Reason.WAITS_FOR_QUOTA) in said
    assert held("w2", Reason.BEHIND_EQUAL) in said
    shares = cluster.state.policy.shares
    cluster.set_policy(replace(cluster.state.policy, shares=replace(shares, queues=(both[0],))))
    assert set(cluster.step()) == {held("w1", Reason.NO_QUEUE), held("w2", Reason.NO_QUEUE)}
    assert cluster.step() == []
    smaller = replace(shares, queues=(both[0], queue("late", 4)))
    cluster.set_policy(replace(cluster.state.policy, shares=smaller))
    assert set(cluster.step()) == {held("w1", Reason.ABOVE_QUOTA), held("w2", Reason.BEHIND_EQUAL)}
