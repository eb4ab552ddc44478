"""Work whose start fails again and again backs off: it holds no quota meanwhile, and seldom has others preempted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from builders import fleet, held, job, placed, pods
from test_queues import admitted, queue, queue_cluster
from tidegate.engine.start_backoff import FIRST_MS, FORGET_MS, MOST_MS, delay_ms
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.model.queues import PreemptionRule, PreemptWhom
from tidegate.model.reasons.catalogue import Reason

_AGAIN = 100  # how long a refusal takes


def refuse(cluster):
    """Have the start that was decided last refused."""
    result = cluster.result.decisions
    for decision, kind in zip(result.id.tolist(), result.kind.tolist(), strict=True):
        if kind == DecisionKind.PLACE:
            cluster.outcome(decision, WriteOutcome.FAILED)
    return cluster.step(_AGAIN)


def one_queue(gpus=8):
    return queue_cluster(fleet("1x h100x8"), queue("a", gpus))


@pytest.mark.parametrize(("failures", "delay"), [(0, 0), (1, 0), (2, 10_000), (3, 20_000), (50, MOST_MS)])
def test_each_failure_in_a_row_doubles_the_delay(failures, delay):
    assert delay_ms(failures) == delay


def test_a_start_that_fails_once_is_tried_again_at_once():
    cluster = one_queue()
    cluster.submit(job("a", "1x8", queue="a"))
    cluster.step()
    assert refuse(cluster) == [placed("a"), admitted("a")]


def test_a_start_that_fails_again_backs_off_and_leaves_its_quota_to_others():
    cluster = one_queue()
    cluster.submit(job("a", "1x8", queue="a"), job("b", "1x8", queue="a", at=1))
    cluster.step()
    refuse(cluster)
    assert refuse(cluster) == [placed("b"), admitted("b"), held("a", Reason.BACKS_OFF)]
    assert cluster.result.next_wake_ms == cluster.now_ms + FIRST_MS
    cluster.tell(FactKind.WORKLOAD_FINISHED, "b")
    assert cluster.step(1_000) == []
    assert [said.id for said in cluster.step(FIRST_MS)] == ["a", "a"]


def test_others_are_preempted_for_it_less_and_less_often():
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8, preemption=rule))
    cluster.submit(job("low", "1x8", queue="a", priority=-1))
    cluster.step()
    cluster.tell(FactKind.POD_STARTED, "low")
    cluster.submit(job("high", "1x8", queue="a", priority=9, at=cluster.now_ms))
    preempted = 0
    for _ in range(360):  # an hour, every ten seconds
        decided = cluster.step(10_000)
        while decided:
            names = {(said.kind, said.id) for said in decided}
            preempted += (DecisionKind.PREEMPT, "low") in names
            if (DecisionKind.PREEMPT, "low") in names:
                cluster.tell(FactKind.POD_GONE, "low")
            if (DecisionKind.PLACE, "low") in names:
                cluster.tell(FactKind.POD_STARTED, "low")
            started = (DecisionKind.PLACE, "high") in names
            decided = refuse(cluster) if started else cluster.step(_AGAIN)
    assert 2 <= preempted <= 10


def test_a_gang_of_which_each_pod_fails_fails_once():
    cluster = queue_cluster(fleet("4x h100x8"), queue("a", 32))
    cluster.submit(job("gang", "4x8", queue="a"))
    cluster.step()
    assert {said.id for said in refuse(cluster)} == {"gang"}


def test_work_that_asks_for_something_else_is_tried_at_once():
    cluster = one_queue()
    cluster.submit(job("a", "1x8", queue="a"))
    cluster.step()
    refuse(cluster)
    assert refuse(cluster) == [held("a", Reason.BACKS_OFF)]
    row = int(cluster.state.workload_numbers.row(0))
    work = cluster.state.works[int(cluster.state.workloads.work_class[row])]
    cluster._facts.changed(0, replace(work, pod_sets=(pods("1x4"),)), cluster.now_ms)
    assert cluster.step() == [placed("a"), admitted("a")]


def test_a_failure_long_after_the_last_one_is_the_first():
    cluster = one_queue()
    cluster.submit(job("a", "1x8", queue="a"))
    cluster.step()
    refuse(cluster)
    cluster.now_ms += FORGET_MS
    assert {said.kind for said in refuse(cluster)} == {DecisionKind.PLACE, DecisionKind.ADMIT}
