"""Preemption loops in the twin: proven at once, named, and left out until something happens from outside."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import fleet
from preempting_world import BOTH, answer, fair_cluster, pod_group, settle
from queue_strategies import contended_asks, contended_shares
from queue_twins import HOUR, Run, partial_policy, partial_work, planned, play
from test_stretch import assert_same
from tidegate.engine.run import run
from tidegate.engine.state_key import state_key
from tidegate.journal.replay import replay
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector
from tidegate.measure.loops import Loop, loop_text
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.policy import AdmissionKind, Policy
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
)
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.sim.fast_path import FEW_REPEATS
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState
from tidegate.state.cluster import Counter as StateCounter

MINUTE = HOUR // 60

PACES = [
    TwinOptions(observe_every_ms=0),
    TwinOptions(observe_every_ms=0, grace_ms=12 * MINUTE),
    TwinOptions(observe_every_ms=HOUR, grace_ms=MINUTE, api_latency_ms=1_000, start_ms=2_000),
]


def fair_policy(cycle_ms: int = 1) -> Policy:
    """Six GPUs that two queues share fairly, as in kueue#14543; and two of a queue of its own."""
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)

    def owner(name: str, gpus: int, cohort: str) -> Queue:
        group, quota = FlavorGroup(resources=("gpu",), flavors=("x",)), Quota(flavor="x", resource="gpu", nominal=gpus)
        return Queue(name=name, cohort=cohort, groups=(group,), quotas=(quota,), preemption=rule)

    cohort = Cohort(name="all", quotas=(Quota(flavor="x", resource="gpu", nominal=6_000),))
    queues = (owner("a", 0, "all"), owner("b", 0, "all"), owner("c", 2_000, ""))
    shares = QueueSetup(
        flavors=(Flavor(name="x"),), cohorts=(cohort,), queues=queues, fair=FairSharing(strategies=BOTH),
        ignore_undeclared=True,
    )  # fmt: skip
    return Policy(admission=AdmissionKind.KUEUE, shares=shares, cycle_ms=cycle_ms)


def fair_work(a1_hours: float = 5.0, **more):
    """The three of kueue#14543, which loop until a1 ends, and others that come and go meanwhile elsewhere."""
    others = [planned(f"c{n}", "1x2", queue="c", at=0.7 * n, hours=0.4) for n in range(5)]
    return [
        planned("a1", "1x2", hours=a1_hours, **more),
        planned("b1", "1x4", queue="b", priority=1, at=0.1, hours=2, **more),
        planned("a9", "1x3", priority=2, at=0.2, hours=2, **more),
        *others,
    ]


def acted_out(work, policy: Policy, options: TwinOptions, most: int = 5_000, nodes=()) -> Run | None:
    """The run with every turn of its loops; None, if they are too many."""
    world, state, journal = SimWorld(list(nodes), jobs_of(work), policy, options), ClusterState(), Journal()
    witness = RunCollector(state, journal, every_ms=HOUR)
    run(state, world, witness, lambda _: world.is_over() or len(journal.steps) >= most)
    return Run(journal, witness.measured(), state) if len(journal.steps) < most else None


#: What is measured of each workload and does not depend on when it was looked at.
COLUMNS = ("evictions", "preemptions", "waited_ms", "held_milli_ms", "lost_milli_ms", "over_ms", "fate")


def assert_measured_alike(quick: Run, slow: Run) -> None:
    """What was left out of loops is measured as if it had been acted out, to the millisecond."""
    for name in COLUMNS:
        assert quick.column(name) == slow.column(name), name
    for name in ("busy_gpu_ms", "observed_gpu_ms"):
        assert quick.column(name) == pytest.approx(slow.column(name), abs=1), name
    for mine, other in zip(quick.measured.summary.shares, slow.measured.summary.shares, strict=True):
        assert (mine.preempted, mine.preempting) == (other.preempted, other.preempting)
        assert mine.preempted_lost_gpu_h == pytest.approx(other.preempted_lost_gpu_h)
    for one, two in zip(quick.measured.summary.loops, slow.measured.summary.loops, strict=True):
        assert (one.pairs, one.preemptions, one.at_least) == (two.pairs, two.preemptions, False)
        assert (one.start_ms, one.end_ms) == (two.start_ms, two.end_ms)
        assert one.lost_gpu_h == pytest.approx(two.lost_gpu_h)


def only_loop(run: Run) -> Loop:
    [loop] = run.measured.summary.loops
    return loop


@pytest.mark.parametrize("options", PACES)
def test_a_loop_that_nothing_will_end_ends_the_run_at_once_and_is_named(options):
    run = play(partial_work(), partial_policy(), (), options)
    loop = only_loop(run)
    assert [(pair.cause, pair.victim, pair.times) for pair in loop.pairs] == [("w00", "w05", 3 + FEW_REPEATS)]
    assert (loop.proven, loop.left_out_ms, loop.ends, loop.at_least) == (True, -1, "", True)
    assert "It threw away at least " in loop_text(loop)
    assert "The same state came again and again; the twin left out the rest of it." in loop_text(loop)
    assert len(run.journal.steps) <= 24
    assert replay(run.journal.steps).state.digest() == run.state.digest()


@pytest.mark.parametrize("cycle_ms", [1, 10_000])
@pytest.mark.parametrize("grace_ms", [0, MINUTE])
def test_many_steps_in_one_kernel_leave_out_the_same(cycle_ms, grace_ms):
    options = TwinOptions(observe_every_ms=0, grace_ms=grace_ms)
    kept = assert_same(fair_work(), fair_policy(cycle_ms), options)
    assert kept.stretches > 1
    assert len(kept.steps) < 200


@pytest.mark.parametrize("options", PACES[1:])
@pytest.mark.parametrize("cycle_ms", [1, 10_000])
def test_the_rest_of_the_run_is_as_if_the_loop_had_been_acted_out(options, cycle_ms):
    slow = acted_out(fair_work(), fair_policy(cycle_ms), options)
    quick = play(fair_work(), fair_policy(cycle_ms), (), options)
    assert slow is not None
    assert quick.finished == slow.finished
    assert len(quick.finished) == 8
    assert only_loop(quick).proven
    assert len(quick.journal.steps) < len(slow.journal.steps)
    assert only_loop(quick).left_out_ms > HOUR // 2
    assert_measured_alike(quick, slow)
    assert replay(quick.journal.steps).state.digest() == quick.state.digest()


def test_a_loop_in_which_time_stands_still_goes_on_when_something_happens():
    run = play(fair_work(), fair_policy(), (), PACES[0])
    assert len(run.finished) == 8
    assert run.finished["a1"] == 5.0
    assert only_loop(run).ends == "a1 finished"
    assert len(run.journal.steps) < 100


def test_work_that_gets_on_in_a_loop_ends_it():
    """b1 saves its work every minute and runs for a minute in every turn: after two hours of that it is done."""
    options = TwinOptions(observe_every_ms=0, grace_ms=MINUTE)
    work = fair_work(a1_hours=9, checkpoint_every_ms=MINUTE // 2)
    slow, quick = acted_out(work, fair_policy(30_000), options), play(work, fair_policy(30_000), (), options)
    assert slow is not None
    assert quick.finished == slow.finished
    assert_measured_alike(quick, slow)


@pytest.mark.parametrize("grace_ms", [MINUTE, 7 * MINUTE])
def test_loops_on_nodes_are_measured_as_if_they_had_been_acted_out(grace_ms):
    options = TwinOptions(observe_every_ms=9 * MINUTE, grace_ms=grace_ms, api_latency_ms=1_000, start_ms=2_000)
    nodes = fleet("1x h100x8")
    slow = acted_out(fair_work(load_ms=MINUTE), fair_policy(10_000), options, nodes=nodes)
    quick = play(fair_work(load_ms=MINUTE), fair_policy(10_000), nodes, options)
    assert slow is not None
    assert only_loop(quick).left_out_ms > HOUR // 2
    assert_measured_alike(quick, slow)


def test_a_loop_that_is_not_proven_is_left_out_after_a_while(monkeypatch):
    monkeypatch.setattr("tidegate.sim.loops.state_key", lambda state: state.digest().encode())  # never the same
    monkeypatch.setattr("tidegate.sim.loops.MOST_REPEATS", 25)
    run = play(fair_work(), fair_policy(), (), PACES[0])
    assert len(run.finished) == 8


@pytest.mark.parametrize("seed", range(3))
def test_nodes_that_fail_and_come_back_do_not_keep_a_loop_going_for_ever(seed, monkeypatch):
    """The loop is taken up after each failure and repair, comes to the same each time, and is left out for good."""
    options = TwinOptions(
        observe_every_ms=0, grace_ms=MINUTE, node_fails_every_ms=12 * HOUR, node_repair_ms=HOUR, seed=seed
    )
    monkeypatch.setattr("tidegate.sim.world._FEW_TURNS", 20)
    run = play(partial_work(), partial_policy(), fleet("1x h100x8"), options)
    loop = only_loop(run)
    assert (loop.proven, loop.left_out_ms) == (True, -1)
    assert 20 <= loop.outside_facts < 100
    assert run.finished == play(partial_work(), partial_policy(), (), PACES[1]).finished


@st.composite
def contended_work(draw) -> list[PlannedWorkload]:
    """Work that asks for a good part of what queues share, some of it content with fewer pods."""
    made = []
    for number in range(draw(st.integers(2, 9))):
        workload = draw(contended_asks(number))
        [pods] = workload.work.pod_sets
        if draw(st.booleans()):
            pods = replace(pods, count=draw(st.integers(1, 3)), min_count=1, charge=(("gpu", draw(st.integers(1, 3))),))
        workload = replace(
            workload,
            work=replace(workload.work, pod_sets=(pods,)),
            submitted_ms=draw(st.integers(0, 8)) * HOUR // 4,
        )
        profile = RunProfile(runtime_ms=draw(st.integers(1, 8)) * HOUR // 4)
        made.append(PlannedWorkload(workload=workload, run=profile))
    return made


@given(contended_work(), contended_shares(), st.sampled_from(PACES))
@example(partial_work(), partial_policy().shares, PACES[0])
@settings(max_examples=40, deadline=None)
def test_every_run_ends_after_few_turns_and_as_if_loops_had_been_acted_out(work, shares, options):
    policy = Policy(admission=AdmissionKind.KUEUE, shares=shares, cycle_ms=1)
    quick = play(work, policy, (), options)
    assert len(quick.journal.steps) < 60 * len(work)
    for step in quick.journal.steps:  # within a step nobody leaves twice, so that no loop fits into one
        decisions = step.result.decisions
        away = Counter(decisions.workload[decisions.kind == DecisionKind.PREEMPT].tolist())
        assert max(away.values(), default=0) <= 1
    slow = acted_out(work, policy, options, most=250)
    assume(slow is not None)
    assert quick.finished == slow.finished
    for name in COLUMNS:
        assert quick.column(name) == slow.column(name), name


def test_from_states_with_the_same_key_the_same_is_decided():
    cluster = fair_cluster(("a", "b"), 6, "kueue", strategies=BOTH)
    cluster.submit(pod_group("a1", "a", 2), pod_group("b1", "b", 4, priority=1, at=1))
    settle(cluster)
    cluster.submit(pod_group("a9", "a", 3, priority=2, at=2))
    cluster.step()
    answer(cluster)
    decided: dict[bytes, set] = {}
    for turn in range(40):
        key = state_key(cluster.state)
        said = cluster.step(1_000 + 7 * turn)
        decided.setdefault(key, set()).add(tuple(said))
        answer(cluster)
    assert cluster.state.counters[StateCounter.REPEATS] > 5
    assert len(decided) < 12
    assert all(len(said) == 1 for said in decided.values())
    cluster.tell(FactKind.WORKLOAD_FINISHED, "a1")
    cluster.step()
    assert state_key(cluster.state) not in decided
