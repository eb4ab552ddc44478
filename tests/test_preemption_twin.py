"""Preemption through the twin: as many victims as one placement needs, a start within one grace period, no loops."""

from __future__ import annotations

from random import Random

import pytest

import preemption as bench  # the script in bench/
from builders import fleet, job
from preemption_watch import Watch
from queue_twins import HOUR, Run, planned, play, queue, share_policy, simulate
from test_queues import queue_cluster
from tidegate.model.facts import FactKind
from tidegate.model.hardware import TopologyLevels
from tidegate.model.policy import AdmissionKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Flavor, PreemptionRule, PreemptWhom
from tidegate.model.simulation import PlannedWorkload, TwinOptions
from tidegate.model.work import TopologyRequest
from tidegate.state.topology import HOST
from victim_cases import hosts, replace, with_work

MINUTE = HOUR // 60
CYCLE_MS = 10_000
WITHIN = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)
RECLAIM = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)


def waited_ms(run: Run, name: str) -> int:
    return run.column("waited_ms")[name]


def preemptions(run: Run) -> int:
    return sum(run.column("preemptions").values())


def stream(seed: int, gpus: int, *, load: float, until_h: float, hours=(4, 12), **more) -> list[PlannedWorkload]:
    """Jobs of one GPU each that come at random."""
    rng, at, made = Random(seed), 0.0, []
    while at < until_h:
        at += rng.expovariate(gpus * load / (sum(hours) / 2))
        runs = round(rng.uniform(*hours), 3)
        made.append(planned(f"low{len(made):05d}", "1x1", at=round(at, 4), hours=runs, **more))
    return made


# -- places ----------------------------------------------------------------------------------------------------


def test_where_quota_is_free_and_no_node_is_work_of_lower_priority_makes_room():
    """Eight of sixteen GPUs are free, four on each of two nodes: the one that wants a whole node takes four jobs."""
    low = [planned(f"low{i:02d}", "1x1", hours=0.9 if i % 2 == 0 else 40) for i in range(16)]
    high = planned("high", "1x8", at=1, hours=1, priority=100)
    run = simulate([*low, high], [queue("a", 16, preemption=WITHIN)], fleet("2x h100x8"))
    assert waited_ms(run, "high") < MINUTE
    assert preemptions(run) == 4


def test_a_stream_of_small_jobs_does_not_take_the_room_that_was_made():
    low = [planned(f"low{i:03d}", "1x1", at=i * 0.125, hours=2) for i in range(100)]
    high = planned("high", "1x8", at=3, hours=1, priority=100)
    run = simulate([*low, high], [queue("a", 16, preemption=WITHIN)], fleet("2x h100x8"), grace_ms=5 * MINUTE)
    assert waited_ms(run, "high") <= 5 * MINUTE + 1000
    assert preemptions(run) <= 8


@pytest.mark.parametrize("seed", range(4))
def test_eight_gpus_on_full_nodes_take_eight_preemptions_at_most_and_one_cycle(seed):
    low = stream(seed, 32, load=1.2, until_h=60)
    high = planned("high", "1x8", at=24, hours=4, priority=100)
    run = simulate([*low, high], [queue("a", 32, preemption=WITHIN)], fleet("4x h100x8"), cycle_ms=CYCLE_MS)
    assert preemptions(run) <= 8
    assert waited_ms(run, "high") <= 2 * CYCLE_MS
    assert run.measured.summary.loops == ()


def racks() -> tuple[list, dict]:
    """Four nodes in two racks, and a flavor that knows it."""
    nodes = hosts("2x h100x8 in r1", "2x h100x8 in r2")
    flavor = Flavor(name="any", topology="net")
    return nodes, {"flavors": (flavor,), "topologies": (TopologyLevels(name="net", labels=("rack", HOST)),)}


@pytest.mark.parametrize("shape", ["one node", "two nodes", "reclaim", "rack", "small pods in a rack"])
def test_a_gang_starts_within_a_grace_period_and_a_cycle(shape):
    """And costs no more preemptions than it has GPUs, whatever keeps coming meanwhile."""
    text = {"one node": "1x8", "small pods in a rack": "12x1"}.get(shape, "2x8")
    nodes, more = racks() if "rack" in shape else (fleet("4x h100x8"), {})
    gang = planned("gang", text, at=12, hours=2, priority=100, queue="b" if shape == "reclaim" else "a")
    if "rack" in shape:
        sets = [replace(s, topology=TopologyRequest(required="rack")) for s in gang.workload.work.pod_sets]
        gang = replace(gang, workload=with_work(gang.workload, pod_sets=tuple(sets)))
    queues = [queue("a", 32, preemption=WITHIN)]
    if shape == "reclaim":
        queues = [queue("a", 16, cohort="c"), queue("b", 16, cohort="c", preemption=RECLAIM)]
    low = stream(5, 32, load=1.2, until_h=16)
    run = simulate([*low, gang], queues, nodes, cycle_ms=CYCLE_MS, grace_ms=5 * MINUTE, **more)
    count, gpus = map(int, text.split("x"))
    assert waited_ms(run, "gang") <= 5 * MINUTE + 2 * CYCLE_MS
    assert 0 < preemptions(run) <= count * gpus
    assert run.measured.summary.loops == ()


def test_generated_clusters_cost_no_more_preemptions_than_the_gang_has_gpus():
    report = bench.bench(3, seed=80)
    assert {(row["gang"], row["reclaims"]) for row in report["rows"]} == {(1, True), (2, True), (2, False)}
    assert [row["wrong"] for row in report["rows"]] == [[]] * 3
    assert report["max_preemptions_per_gpu"] <= 1
    assert report["max_wait_s"] <= bench.MOST_WAIT_S
    assert report["loops"] == 0


# -- work that leaves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("admission", list(AdmissionKind))
@pytest.mark.parametrize("why", ["a pod failed", "a node is lost"])
def test_work_that_is_leaving_is_not_preempted_again(admission, why):
    nodes = fleet("1x h100x4", "1x h100x4") if why == "a node is lost" else fleet("1x h100x8")
    cluster = queue_cluster(nodes, queue("a", 8, preemption=WITHIN), admission=admission)
    watch = Watch(cluster)
    cluster.submit(job("low", "2x4", queue="a"))
    watch.step()
    cluster.tell(FactKind.POD_STARTED, "low")
    watch.step()
    if why == "a pod failed":
        cluster.tell(FactKind.POD_FAILED, "low", pod=0)
    else:
        cluster.add_node(replace(nodes[0], ready=False))
        cluster.tell(FactKind.NODE_REMOVED, nodes[0].name)
    watch.step()
    assert watch.leaving() == ["low"]
    cluster.submit(job("high", "1x4", queue="a", priority=9, at=3000))
    watch.step()
    cluster.submit(job("higher", "1x4", queue="a", priority=99, at=5000))
    watch.step()
    assert watch.ever == []
    row = cluster.state.workload_numbers.row(cluster.numbers["low"])
    assert int(cluster.state.workloads.evictions[row]) == 1
    watch.all_gone()
    watch.step()
    assert watch.runs("high") or watch.runs("higher")


def test_who_waits_with_a_higher_priority_does_not_preempt_what_was_placed_in_the_same_step():
    """Two whole-node jobs come one after the other while the work on the only node leaves."""
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8, preemption=WITHIN))
    watch = Watch(cluster)
    cluster.submit(job("low", "2x4", queue="a"))
    watch.step()
    cluster.tell(FactKind.POD_STARTED, "low")
    watch.step()
    cluster.submit(job("high", "1x8", queue="a", priority=9, at=3000))
    watch.step()
    assert watch.victims == {"high": ["low"]}
    cluster.submit(job("higher", "1x8", queue="a", priority=99, at=5000))
    watch.step()
    watch.all_gone()
    watch.step()
    assert watch.runs("high") != watch.runs("higher")
    assert watch.victims == {}


# -- starvation ------------------------------------------------------------------------------------------------

GANG_COMES_H, WINDOW_H = 24, 72


def starved(load: float, *, strict: bool = False, gang: bool = True, queues: bool = False) -> Run:
    """A gang of priority 100 that needs all four nodes, among a stream of small jobs."""
    low = stream(1, 32, load=load, until_h=WINDOW_H, hours=(2, 6))
    more = [planned("gang", "4x8", at=GANG_COMES_H, hours=1, priority=100)] if gang else []
    policy = Policy(placement=PlacementRule(kind=PlacementKind.TIDE), order=OrderRule(strict=strict), cycle_ms=60_000)
    if queues:
        shares = share_policy(queue("a", 32, strict_fifo=strict)).shares
        policy = replace(policy, shares=shares)
    return play([*low, *more], policy, fleet("4x h100x8"), TwinOptions(observe_every_ms=HOUR))


def finished_gpu_h(run: Run, until_h: float) -> float:
    """GPU-hours of jobs that were done by then."""
    held = run.column("held_milli_ms")
    return sum(held[name] for name, at in run.finished.items() if at <= until_h) / 1000 / HOUR


@pytest.mark.parametrize(("load", "queues"), [(0.6, False), (0.6, True), (0.9, False)])
def test_a_wide_gang_does_not_starve_behind_small_jobs_and_costs_little_throughput(load, queues):
    run, strict = starved(load, queues=queues), starved(load, strict=True, queues=queues)
    assert waited_ms(run, "gang") <= 2 * waited_ms(strict, "gang")
    alone = starved(load, gang=False, queues=queues)
    assert finished_gpu_h(run, WINDOW_H) >= 0.95 * finished_gpu_h(alone, WINDOW_H)
