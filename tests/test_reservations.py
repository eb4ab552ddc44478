"""Reservations with flavors, topology, promised quota, and for work that can never run."""

from __future__ import annotations

import msgspec
import pytest

from builders import Cluster, Said, held, job, pods
from preemption_watch import Watch
from test_queues import queue as owner
from test_queues import queue_cluster
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import EventKind
from tidegate.model.policy import Policy
from tidegate.model.reasons import Reason
from tidegate.model.shares import Flavor, PreemptionRule, PreemptWhom
from tidegate.model.spec import labels
from tidegate.model.work import TopologyRequest
from tidegate.state.domains import HOST
from victim_cases import hosts, queue, shares_of, with_work

HOUR = 3_600_000
WITHIN = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
BOTH = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
FLAVORS = tuple(Flavor(name=name, node_labels=labels({"pool": pool})) for name, pool in (("x", "h100"), ("y", "a100")))


def two_flavors(preemption: PreemptionRule) -> tuple[Cluster, Watch]:
    """Two queues that own two GPUs of each of two flavors, which are a node each."""
    queues = owner("a", 2, flavors=("x", "y"), preemption=preemption), owner("b", 2, flavors=("x", "y"))
    cluster = queue_cluster(hosts("1x h100x2", "1x a100x2"), *queues, flavors=FLAVORS)
    return cluster, Watch(cluster)


def run_in_turn(watch: Watch, *works) -> None:
    for work in works:
        watch.cluster.submit(work)
        watch.step()
        watch.start_all()


def test_work_with_quota_in_two_flavors_and_no_place_is_tried_a_few_times_and_waits():
    cluster, watch = two_flavors(PreemptionRule())
    run_in_turn(watch, job("b0", "1x2", queue="b"), job("b1", "1x2", queue="b", at=1))
    cluster.submit(job("gang", "1x1", "1x2", queue="a", at=10))
    assert watch.step() == [held("gang", Reason.LACKS_GPU)]
    assert cluster.result.cycles < 100
    assert watch.step() == []
    assert cluster.result.cycles == 1


def test_room_that_was_made_in_one_flavor_is_not_given_up_to_try_another():
    cluster, watch = two_flavors(WITHIN)
    run_in_turn(watch, job("other", "1x2", queue="b"), job("low", "1x2", queue="a", at=5))
    cluster.submit(job("high", "1x2", queue="a", priority=9, at=10))
    watch.step()
    assert watch.victims == {"high": ["low"]}
    cluster.submit(job("late", "1x2", queue="b", at=20))
    assert watch.step() == [held("late", Reason.LACKS_GPU)]
    watch.all_gone()
    watch.step()
    assert watch.placed == {"high"}


@pytest.mark.parametrize("preemptible", [True, False])
def test_quota_that_victims_leave_is_not_given_to_another_in_the_same_cycle(preemptible):
    queues = owner("a", 4, cohort="all", preemption=BOTH), owner("c", 4, cohort="all")
    cluster = queue_cluster(hosts("3x h100x8"), *queues)
    watch = Watch(cluster)
    run_in_turn(watch, with_work(job("c0", "1x4", queue="c"), preemptible=False))
    run_in_turn(watch, job("c1", "1x1", queue="c", at=1), job("low", "1x1", queue="a", at=1))
    late = with_work(job("late", "1x1", queue="c", at=11), preemptible=preemptible)
    cluster.submit(job("high", "1x4", queue="a", priority=1, at=10), late)
    watch.step()
    assert sorted(watch.victims["high"]) == ["c1", "low"]
    assert not watch.placed
    watch.all_gone()
    watch.step()
    assert watch.placed == {"high"}


@pytest.mark.parametrize("restart_ms", [0, 10**12, 10**15, 10**16, 2**53, 2**62])
def test_no_declared_restart_is_too_large_to_be_compared(restart_ms):
    cluster = queue_cluster(hosts("1x h100x8"), owner("a", 8, preemption=WITHIN))
    watch = Watch(cluster)
    run_in_turn(watch, *(with_work(job(f"low{i}", "1x4", queue="a", at=i), restart_cost_ms=restart_ms) for i in (0, 1)))
    cluster.submit(job("high", "1x8", queue="a", priority=5, at=cluster.now_ms))
    watch.step()
    assert watch.victims == {"high": ["low1", "low0"]}


def keep_busy(watch: Watch, name: str, ask: str, hours: float) -> float | None:
    """Every quarter of an hour one job ends and another comes; when `name` starts, in hours."""
    cluster = watch.cluster
    for _ in range(round(hours * 4)):
        running = [one for one in sorted(cluster.numbers) if one.startswith("s") and watch.runs(one)]
        if running:
            cluster.tell(EventKind.WORKLOAD_FINISHED, running[0])
        cluster.submit(job(f"s{len(cluster.numbers):03d}", ask, queue="a", at=cluster.now_ms))
        watch.step(HOUR // 4)
        watch.start_all()
        if watch.runs(name):
            return cluster.now_ms / HOUR
    return None


def test_nothing_is_reserved_for_work_that_fits_no_node():
    cluster = queue_cluster(hosts("2x h100x8"), owner("a", 16))
    watch = Watch(cluster)
    run_in_turn(watch, *(job(f"s{i:03d}", "1x4", queue="a") for i in range(6)))
    cluster.submit(job("never", "1x9", queue="a", at=cluster.now_ms))
    cluster.submit(job("gang", "2x8", queue="a", at=cluster.now_ms + 1))
    started = keep_busy(watch, "gang", "1x4", 6)
    assert started is not None
    assert started < 3


@pytest.mark.parametrize("topology", [TopologyRequest(required="rack"), TopologyRequest(preferred="rack")])
def test_a_gang_that_was_passed_over_gets_places_in_one_domain(topology):
    """One node of the first rack never comes free; on the others jobs come and go."""
    nodes = hosts("2x h100x1 in r0", "2x h100x1 in r1")
    cluster = Cluster(nodes)
    cluster.set_policy(Policy(shares=shares_of(queue("a", 40, PreemptionRule()), topology=True)))
    watch = Watch(cluster)
    stays = [pods("1x1", selector=labels({HOST: node.name})) for node in nodes]
    run_in_turn(watch, *(job("x" if not i else f"s{i:03d}", made, queue="a") for i, made in enumerate(stays)))
    cluster.submit(job("gang", pods("2x1", topology=topology), queue="a", at=cluster.now_ms))
    watch.step()
    started = keep_busy(watch, "gang", "1x1", 8)
    assert started is not None
    assert started < 4


def test_what_is_said_of_work_that_waits_is_said_once_a_step():
    cluster = queue_cluster(hosts("2x h100x8"), owner("a", 16))
    watch = Watch(cluster)
    run_in_turn(watch, job("s000", "2x8", queue="a"))
    cluster.submit(job("never", "1x9", queue="a", at=cluster.now_ms))
    for _ in range(8):
        told: list[Said] = watch.step(HOUR // 4)
        assert sum(said.kind is DecisionKind.HOLD for said in told) <= 1


def test_a_change_of_the_limit_counts_for_those_who_wait_already():
    cluster = queue_cluster(hosts("1x h100x4"), owner("a", 4))
    watch = Watch(cluster)
    run_in_turn(watch, job("s000", "1x1", queue="a"))
    cluster.submit(job("gang", "1x4", queue="a", at=cluster.now_ms))
    watch.step()
    order = msgspec.structs.replace(cluster.policy.order, reserve_after_ms=60_000)
    cluster.set_policy(msgspec.structs.replace(cluster.policy, order=order))
    watch.step(61_000)
    cluster.submit(job("late", "1x1", queue="a", at=cluster.now_ms))
    assert held("late", Reason.RESERVED_FOR_OTHERS) in watch.step()
