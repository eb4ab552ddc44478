"""Where work in queues stands: admissions that fail, slices that take over, work that no queue may take."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Cluster, Said, fleet, held, job, placed
from test_queues import admitted, queue, queue_cluster
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment
from tidegate.model.queues import UNLIMITED, UsageSharing
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import PodSet


def stands(cluster: Cluster, name: str, **standing) -> Cluster:
    """Tell where a workload stands."""
    cluster._facts.observed_status(cluster.numbers[name], ObservedStatus(**standing), cluster.now_ms)
    return cluster


def holds(cluster: Cluster, name: str, gpus: int) -> Cluster:
    """Tell that a workload was granted GPUs of queue a."""
    grant = PodSetAssignment(pod_set="main", count=gpus, flavors=(("gpu", "any"),), charge=(("gpu", gpus * 1000),))
    return stands(cluster, name, queue="a", grants=(grant,))


def used(cluster: Cluster) -> int:
    """What is in use of the quota of queue a."""
    tables = cluster.state.quota
    return int(tables.quota_nodes.usage[tables.quota_node_rows["queue/a"]].sum())


def replaced(id_: str) -> Said:
    """A larger slice takes over."""
    return Said(DecisionKind.RELEASE, id_, Reason.REPLACED)


# -- admissions that fail --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 1])
def test_an_admission_that_failed_is_withdrawn_whichever_of_its_rows_is_named(row):
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("j1", "1x2", "1x1", queue="a"))
    assert cluster.step() == [admitted("j1"), admitted("j1")]
    assert used(cluster) == 3000
    cluster.outcome(int(cluster.result.decisions.id[row]), WriteOutcome.FAILED)
    assert cluster.step() == [admitted("j1"), admitted("j1")]
    assert used(cluster) == 3000


def test_who_could_not_be_admitted_waits_at_its_place():
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("j1", "1x4", queue="a"))
    cluster.step()
    cluster.submit(job("j2", "1x4", queue="a", at=1))
    assert cluster.step() == [held("j2", Reason.WAITS_FOR_QUOTA)]
    cluster.outcome(0, WriteOutcome.FAILED)
    assert cluster.step()[0] == admitted("j1")


def test_an_admission_with_a_place_gives_back_both():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8))
    cluster.submit(job("j1", "2x4", queue="a"))
    assert cluster.step() == [placed("j1"), admitted("j1")]
    admission = int(cluster.result.decisions.id[cluster.result.decisions.kind == DecisionKind.ADMIT][0])
    cluster.outcome(admission, WriteOutcome.FAILED)
    assert cluster.step() == [placed("j1"), admitted("j1")]


@pytest.mark.parametrize("outcome", [WriteOutcome.DONE, WriteOutcome.UNKNOWN])
def test_what_is_not_known_to_have_failed_stays(outcome):
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("j1", "1x4", queue="a"))
    cluster.step()
    cluster.outcome(0, outcome)
    assert cluster.step() == []
    assert used(cluster) == 4000


def test_an_entrance_is_not_charged_for_an_admission_that_failed():
    usage = UsageSharing(half_life_ms=1_000_000, sampling_ms=60_000)
    cluster = queue_cluster([], queue("a", 4, usage_based=True), admission="kueue", usage=usage)
    cluster.submit(job("j1", "1x4", queue="a"))
    cluster.step()
    consumed = cluster.state.quota.local_queues.decayed_usage
    cost = int(consumed.sum())
    assert cost > 0
    cluster.outcome(0, WriteOutcome.FAILED)
    assert cluster.step() == [admitted("j1")]
    assert int(consumed.sum()) == cost  # of the second admission alone


# -- slices ----------------------------------------------------------------------------------------------------


def growing(quota: int) -> Cluster:
    """Queue a with this quota, where team/j1 holds two GPUs and team/j2 is to take over with three."""
    cluster = queue_cluster([], queue("a", quota), admission="kueue")
    cluster.submit(job("team/j1", "2x1", queue="a"), job("team/j2", "3x1", queue="a", at=1))
    holds(cluster, "team/j1", 2)
    return stands(cluster, "team/j2", replaces="team/j1")


def test_a_larger_slice_needs_only_the_difference_and_the_smaller_ends():
    cluster = growing(3)
    assert cluster.step() == [admitted("team/j2"), replaced("team/j1")]
    assert used(cluster) == 5000  # both, until the world shows that the smaller is gone
    cluster.tell(FactKind.WORKLOAD_FINISHED, "team/j1")
    assert cluster.step() == []
    assert used(cluster) == 3000


def test_a_slice_without_quota_for_the_difference_waits_and_the_smaller_runs_on():
    cluster = growing(2)
    assert cluster.step() == [held("team/j2", Reason.WAITS_FOR_QUOTA)]
    assert used(cluster) == 2000


def test_a_slice_of_another_namespace_is_not_taken_over():
    cluster = queue_cluster([], queue("a", 3), admission="kueue")
    cluster.submit(job("team/j1", "2x1", queue="a"), job("other/j2", "3x1", queue="a", at=1))
    holds(cluster, "team/j1", 2)
    stands(cluster, "other/j2", replaces="team/j1")
    assert cluster.step() == [held("other/j2", Reason.WAITS_FOR_QUOTA)]


def test_a_slice_whose_replacement_failed_runs_on():
    cluster = growing(3)
    cluster.step()
    cluster.outcome(int(cluster.result.decisions.id[0]), WriteOutcome.FAILED)
    assert cluster.step() == [admitted("team/j2"), replaced("team/j1")]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "team/j1")
    cluster.step()
    assert used(cluster) == 3000


def test_a_slice_that_is_gone_is_not_taken_over():
    cluster = growing(3)
    cluster.tell(FactKind.WORKLOAD_FINISHED, "team/j1")
    assert cluster.step() == [admitted("team/j2")]
    assert used(cluster) == 3000


def test_others_behind_a_slice_see_what_it_leaves_and_no_more():
    cluster = queue_cluster([], queue("a", 3, cohort="all"), queue("b", 2, cohort="all"), admission="kueue")
    cluster.submit(job("team/j1", "2x1", queue="a"), job("team/j2", "3x1", queue="a", at=1))
    cluster.submit(job("small", "1x2", queue="b", at=2))
    holds(cluster, "team/j1", 2)
    stands(cluster, "team/j2", replaces="team/j1")
    assert cluster.step() == [admitted("team/j2"), replaced("team/j1"), admitted("small")]


# -- work that no queue may take -------------------------------------------------------------------------------


def test_work_outside_its_limits_is_passed_over():
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("j1", "1x1", queue="a"), job("j2", "1x1", queue="a", at=1))
    stands(cluster, "j1", outside_limits=True)
    assert set(cluster.step()) == {admitted("j2"), held("j1", Reason.OUTSIDE_LIMITS)}


def test_in_a_strict_queue_it_keeps_its_place():
    cluster = queue_cluster([], queue("a", 4, strict_fifo=True), admission="kueue")
    cluster.submit(job("j1", "1x1", queue="a"), job("j2", "1x1", queue="a", at=1))
    stands(cluster, "j1", outside_limits=True)
    assert set(cluster.step()) == {held("j1", Reason.OUTSIDE_LIMITS), held("j2", Reason.BEHIND_EQUAL)}
    assert cluster.step() == []
    stands(cluster, "j1")
    assert cluster.step() == [admitted("j1"), admitted("j2")]


def test_a_change_of_the_policy_changes_nothing_about_where_work_stands():
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("j1", "1x1", queue="a"), job("j2", "1x1", queue="a", at=1))
    stands(cluster, "j1", parked=True)
    stands(cluster, "j2", requeue_at_ms=60_000)
    cluster.step()
    cluster.set_policy(cluster.state.policy)
    assert cluster.step() == []
    stands(cluster, "j2")
    assert cluster.step() == [admitted("j2")]


# -- amounts ---------------------------------------------------------------------------------------------------


def test_amounts_beyond_counting_are_refused_not_wrapped():
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    huge = PodSet(name="main", count=1000, charge=(("gpu", UNLIMITED),))
    cluster.submit(job("j1", huge, huge, queue="a"))
    assert cluster.step() == [held("j1", Reason.ABOVE_QUOTA)]


def test_who_asks_for_none_of_a_resource_gets_a_flavor_for_it():
    cluster = queue_cluster([], queue("a", 4), admission="kueue")
    cluster.submit(job("j1", PodSet(charge=(("gpu", 0),)), queue="a"))
    assert cluster.step() == [admitted("j1")]
    assert used(cluster) == 0


# -- after a restart -------------------------------------------------------------------------------------------

_GRANTED = st.tuples(
    st.sampled_from("ab"),  # the queue that granted
    st.integers(0, 3),  # where it is
    st.sampled_from(("plain", "plain", "evicted", "unknown", "backs off", "twice")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_GRANTED, max_size=10))
def test_what_many_hold_after_a_restart_is_what_each_would_hold(told):
    """Whether standings are taken in together or one by one."""

    def restarted() -> Cluster:
        cluster = queue_cluster(fleet("4x h100x8"), queue("a", 32), queue("b", 32))
        names = list(cluster.nodes)
        cluster.submit(*(job(f"w{number}", "1x1", queue=name) for number, (name, _, _) in enumerate(told)))
        for number, (_, node, _) in enumerate(told):
            cluster.tell(FactKind.POD_BOUND, f"w{number}", pod=0, arg=cluster.nodes[names[node]])
        for number, (name, _, how) in enumerate(told):
            grant = PodSetAssignment(pod_set="main", count=1, flavors=(("gpu", "any"),), charge=(("gpu", 1000),))
            more = {"evicted": "PREEMPTED"} if how == "evicted" else {"requeue_at_ms": 99} if how == "backs off" else {}
            granted = "nowhere" if how == "unknown" else name
            for _ in range(2 if how == "twice" else 1):
                stands(cluster, f"w{number}", queue=granted, grants=(grant,), granted_ms=number, **more)
        return cluster

    together = restarted()
    decided = together.step()
    with patch("tidegate.engine.observe_admission._is_plain", return_value=False):
        alone = restarted()
        assert alone.step() == decided
    usage = [cluster.state.quota.quota_nodes.usage.tolist() for cluster in (alone, together)]
    assert usage[0] == usage[1]
    held_by = [cluster.state.quota.reservations.queue.tolist() for cluster in (alone, together)]
    assert held_by[0] == held_by[1]
