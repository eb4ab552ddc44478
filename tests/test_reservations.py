"""Reservations with flavors, topology, promised quota, and for work that can never run."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from builders import Cluster, Said, held, job, pods
from preemption_watch import Watch
from test_queues import queue as owner
from test_queues import queue_cluster
from tidegate.engine.step import step
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.policy import OrderRule, Policy
from tidegate.model.queues import FairSharing, Flavor, PreemptionRule, PreemptWhom
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.struct import labels
from tidegate.model.work import TopologyRequest, Workload
from tidegate.state.topology import HOST
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
            cluster.tell(FactKind.WORKLOAD_FINISHED, running[0])
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


def test_who_others_are_evicted_for_takes_no_place_that_is_reserved_for_one_ahead_of_it():
    nodes = hosts("2x h100x2")
    cluster = queue_cluster(nodes, owner("a", 8), owner("b", 8, preemption=WITHIN))
    cluster.set_policy(msgspec.structs.replace(cluster.policy, order=OrderRule(reserve_after_ms=60_000)))
    watch = Watch(cluster)
    first, second = (labels({HOST: node.name}) for node in nodes)
    run_in_turn(watch, job("low", pods("1x2", selector=second), queue="b"))
    run_in_turn(watch, job("x", pods("1x1", selector=first), queue="a"))  # the younger: it is expected to end first
    cluster.submit(job("gang", "1x2", queue="a", priority=10, at=5))
    watch.step()
    assert held("gang", Reason.PLACES_RESERVED) in watch.step(70_000)
    cluster.submit(job("high", "1x1", queue="b", priority=9, at=cluster.now_ms))
    watch.step()
    assert watch.victims == {"high": ["low"]}
    assert not watch.placed
    watch.all_gone()
    watch.step()
    assert watch.placed == {"high"}
    assert cluster.places["high"][0][0] == nodes[1].name


@pytest.mark.parametrize("fair", [None, FairSharing()])
def test_in_a_queue_of_no_cohort_too_room_goes_to_whom_it_was_made_for(fair):
    cluster = queue_cluster(hosts("1x h100x8"), owner("b", 2, preemption=WITHIN), fair=fair)
    cluster.set_policy(msgspec.structs.replace(cluster.policy, order=OrderRule(reserve_after_ms=60_000)))
    watch = Watch(cluster)
    run_in_turn(watch, job("stays", "1x1", queue="b", priority=10), job("low", "1x1", queue="b", priority=1))
    cluster.submit(job("small", "1x1", queue="b", at=5))
    watch.step()
    watch.step(70_000)
    cluster.submit(job("high", "1x1", queue="b", priority=9, at=cluster.now_ms))
    watch.step()
    watch.all_gone()
    watch.step()
    assert watch.placed == {"high"}
    assert watch.ever == [("low", "high")]


@pytest.mark.parametrize("order", ["srtf", "srsf"])
def test_orders_preempt_nobody_where_all_fit_beside_each_other(order):
    cluster = Cluster(hosts("2x h100x4"), order=order, placement="firstfit")
    watch = Watch(cluster)
    works = [job("two", "1x2"), job("last", "1x2"), job("three", "1x3"), job("one", "1x1")]
    for work, hours in zip(works, (1, 8, 2, 3), strict=True):
        run_in_turn(watch, msgspec.structs.replace(work, estimate_ms=hours * HOUR))
    assert watch.ever == []
    assert all(watch.runs(work.id) for work in works)


def rows_of(seed: int) -> Iterator[Workload]:
    """Works of one or two pod sets, of several queues, sizes and priorities."""
    rng = random.Random(seed)
    for number in range(24):
        sets = [rng.choice(["1x1", "1x2", "2x1", "1x4", "2x2"]) for _ in range(rng.choice([1, 1, 2]))]
        yield job(f"w{number:02d}", *sets, queue=rng.choice("ab"), priority=rng.choice([0, 0, 1, 5]), at=number)


@pytest.mark.parametrize("seed", range(12))
def test_steps_with_two_flavors_end_and_a_fork_goes_on_alike(seed):
    queues = (
        owner("a", 4, flavors=("x", "y"), cohort="all", preemption=BOTH),
        owner("b", 4, flavors=("x", "y"), cohort="all"),
    )
    cluster = queue_cluster(hosts("2x h100x4", "1x a100x4"), *queues, flavors=FLAVORS)
    cluster.set_policy(msgspec.structs.replace(cluster.policy, order=OrderRule(reserve_after_ms=2_000)))
    watch = Watch(cluster)
    for work in rows_of(seed):
        cluster.submit(work)
        fork, facts = cluster.state.fork(), cluster._facts.batch()
        watch.step()
        step(fork, facts, cluster.now_ms)
        assert fork.digest() == cluster.state.digest()
        assert cluster.result.cycles < 100
        watch.all_gone()
        watch.start_all()
