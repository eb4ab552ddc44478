"""The line of a queue when somebody leaves it, what is told of missing room, and work that may not be preempted."""

from __future__ import annotations

import msgspec
import pytest

from builders import Cluster, fleet, held, job, placed, preempted, rejected
from test_queues import GPU, admitted, queue, queue_cluster
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.queues import PreemptionRule, PreemptWhom
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Workload

LOWER = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)


def kept(workload: Workload, **work) -> Workload:
    """The workload, with other rules about preemption."""
    return msgspec.structs.replace(workload, work=msgspec.structs.replace(workload.work, **work))


def test_when_a_strict_head_is_cancelled_the_next_is_tried():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8, strict_fifo=True))
    cluster.submit(job("runs", "1x4", queue="a"))
    cluster.submit(job("wide", "1x8", queue="a", at=1), job("small", "1x4", queue="a", at=2))
    said = cluster.step()
    assert said[-2:] == [held("wide", Reason.WAITS_FOR_QUOTA), held("small", Reason.BEHIND_HEAD)]
    cluster.tell(FactKind.WORKLOAD_CANCELLED, "wide")
    assert cluster.step() == [placed("small"), admitted("small")]


def test_whoever_victims_left_for_keeps_no_claim_when_it_goes_to_another_queue():
    cluster = queue_cluster(fleet("2x h100x8"), queue("a", 8, preemption=LOWER), queue("b", 8))
    cluster.submit(job("low", "1x8", queue="a"))
    cluster.step()
    cluster.submit(job("high", "1x8", queue="a", at=1, priority=5), job("next", "1x1", queue="a", at=2, priority=3))
    assert preempted("low", Reason.PREEMPTED_IN_QUEUE) in cluster.step()
    cluster.change(job("high", "1x8", queue="b", at=1, priority=5))
    assert placed("high") in cluster.step()
    cluster.tell(FactKind.POD_GONE, "low")
    assert placed("next") in cluster.step()


def test_work_in_a_queue_that_is_changed_to_something_impossible_is_rejected():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 4))
    cluster.submit(job("j", "1x8", queue="a"))
    assert cluster.step() == [held("j", Reason.ABOVE_QUOTA)]
    cluster.change(job("j", "0x8", queue="a"))
    assert cluster.step() == [rejected("j", Reason.MALFORMED)]


@pytest.mark.parametrize("admission", ["tidegate", "kueue"])
def test_the_numbers_of_missing_room_are_those_of_the_pods(admission):
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 99), admission=admission)
    cluster.submit(job("runs", "1x6", queue="a"))
    cluster.step()
    cluster.submit(job("one", "1x4", queue="a", at=1), job("gang", "3x1", queue="a", at=2))
    said = cluster.step()
    numbers = {one.id: cluster.evidence(row)[:3] for row, one in enumerate(said) if one.kind is DecisionKind.HOLD}
    assert [one for one in said if one.kind is DecisionKind.HOLD] == [
        held("one", Reason.LACKS_GPU),
        held("gang", Reason.GANG_PARTIAL),
    ]
    assert numbers == {"one": [4, 0, 1], "gang": [2, 3, 0]}


def protected_cluster(**work) -> Cluster:
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8, preemption=LOWER))
    cluster.submit(kept(job("low", "1x8", queue="a"), **work))
    cluster.step()
    cluster.submit(job("high", "1x8", queue="a", at=1, priority=5))
    return cluster


def test_work_that_may_not_be_preempted_is_not():
    cluster = protected_cluster(preemptible=False)
    assert cluster.step() == [held("high", Reason.WAITS_FOR_QUOTA)]
    assert cluster.result.next_wake_ms == cluster.now_ms + cluster.policy.order.reserve_after_ms  # it is passed over
    cluster.tell(FactKind.WORKLOAD_FINISHED, "low")
    assert placed("high") in cluster.step()


def test_protected_time_is_honoured_and_whoever_waits_is_woken_at_its_end():
    cluster = protected_cluster(protected_ms=60_000)
    assert cluster.step() == [held("high", Reason.WAITS_FOR_QUOTA)]
    assert cluster.result.next_wake_ms == 61_000  # admitted at 1 s
    assert cluster.step(58_999) == []
    assert cluster.step(1) == [preempted("low", Reason.PREEMPTED_IN_QUEUE), held("high", Reason.AWAITS_VICTIMS)]


@pytest.mark.parametrize("order", ["srtf", "srsf", "las"])
def test_orders_that_preempt_honour_protection_too(order):
    cluster = Cluster(fleet("1x h100x8"), order=order)
    cluster.submit(kept(job("slow", "1x8"), protected_ms=60_000))
    cluster.step()
    cluster.tell(FactKind.PROGRESS_OBSERVED, "slow", values=(1e6, 1e6)).tell(FactKind.POD_STARTED, "slow")
    cluster.submit(msgspec.structs.replace(job("quick", "1x8", at=1), estimate_ms=1_000))
    assert cluster.step() == [held("quick", Reason.OUTRANKED)]
    assert cluster.result.next_wake_ms <= 62_000  # las may want to look at its levels before
    assert cluster.step(60_000) == [preempted("slow"), held("quick", Reason.AWAITS_VICTIMS)]


def test_work_stays_on_a_node_that_shrinks_and_holds_its_quota():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 16))
    cluster.submit(job("j", "1x8", queue="a"))
    cluster.step()
    node = fleet("1x h100x8")[0]
    cluster.add_node(msgspec.structs.replace(node, shape=msgspec.structs.replace(node.shape, gpu_count=4)))
    assert cluster.step() == []
    assert cluster.state.quota.quota_nodes.usage.sum() == 8 * GPU
    cluster.submit(job("k", "1x4", queue="a"))
    assert cluster.step() == [held("k", Reason.LACKS_GPU)]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "j")
    assert cluster.step() == [placed("k"), admitted("k")]
    assert cluster.state.quota.quota_nodes.usage.sum() == 4 * GPU
