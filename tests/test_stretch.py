"""Stretches of the twin: many steps in one kernel come to what steps come to one by one, to the last bit."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from queue_strategies import asks, contended_asks, contended_shares, policies
from queue_twins import HOUR, planned, queue, share_policy
from tidegate.engine.run import run
from tidegate.journal.encoding import WorkNumbers, pack_events, pack_result
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector
from tidegate.model.decisions import NO_DECISIONS, NO_REFUSALS, StepResult
from tidegate.model.facts import NO_FACTS
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
from tidegate.model.work import PodSet, Work, Workload
from tidegate.sim import fast_path
from tidegate.sim.batched_run import run_twin
from tidegate.sim.loops import UntilOver
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

PLAIN = TwinOptions(observe_every_ms=0)


class Kept(NamedTuple):
    """What is left of a run."""

    digest: str
    steps: list
    summary: bytes
    samples: list
    stretches: int


class Counted(RunCollector):
    """A witness that counts the stretches it was told."""

    stretches = 0

    def append_batch(self, stretch):
        self.stretches += 1
        super().append_batch(stretch)


def keep(work, policy, options, runs) -> Kept:
    """Run work in one way or the other, and keep what there is to compare."""
    world = SimWorld([], jobs_of(work), policy, options)
    state, journal, told = ClusterState(), Journal(), WorkNumbers()
    witness = Counted(state, journal, every_ms=HOUR)
    runs(state, world, witness, UntilOver(world))
    check(state)
    steps = [(step.now_ms, pack_events(step.events, told), pack_result(step.result)) for step in journal.steps]
    measured = witness.measured()
    samples = [np.asarray(column).tobytes() for column in measured.samples]
    return Kept(state.digest(), steps, msgspec.json.encode(measured.summary), samples, witness.stretches)


def assert_same(work, policy, options=PLAIN) -> Kept:
    """Both ways come to the same."""
    one_by_one, at_once = keep(work, policy, options, run), keep(work, policy, options, run_twin)
    assert len(at_once.steps) == len(one_by_one.steps)
    for mine, other in zip(at_once.steps, one_by_one.steps, strict=True):
        assert mine == other
    assert at_once._replace(stretches=0) == one_by_one
    return at_once


@st.composite
def plans(draw):
    """Work of few kinds, so that most of it comes in stretches."""
    asked = draw(st.sampled_from([asks(0, 0, protects=False), contended_asks(0)]))
    kinds = [replace(draw(asked).work, checkpoint_every_ms=draw(st.sampled_from([0, HOUR // 4]))) for _ in range(4)]
    made = []
    for number in range(draw(st.integers(1, 25))):
        work = draw(st.sampled_from(kinds))
        workload = Workload(id=f"w{number}", work=work, submitted_ms=draw(st.integers(0, 40)) * HOUR // 10)
        profile = RunProfile(
            runtime_ms=draw(st.integers(1, 30)) * HOUR // 10,
            load_ms=draw(st.sampled_from([0, 0, 60_000])),
            idle_tail_ms=draw(st.sampled_from([0, 0, 120_000])),
        )
        made.append(PlannedWorkload(workload=workload, run=profile))
    return made


paces = st.builds(
    TwinOptions,
    observe_every_ms=st.just(0),
    api_latency_ms=st.sampled_from([0, 0, 500]),
    start_ms=st.sampled_from([0, 0, 30_000]),
    grace_ms=st.sampled_from([0, 0, 90_000]),
)


rules = st.one_of(policies(), st.builds(Policy, admission=st.sampled_from(AdmissionKind), shares=contended_shares()))


@settings(max_examples=150, deadline=None)
@given(plans(), rules, paces, st.sampled_from([1, 60_000, HOUR]))
def test_stretches_come_to_what_steps_come_to(work, policy, options, cycle_ms):
    kept = assert_same(work, replace(policy, cycle_ms=cycle_ms), options)
    event(f"stretches: {min(kept.stretches, 3)}")


RECLAIM = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)


def busy_queues(cycle_ms: int, admission: str = "kueue"):
    """Two queues that borrow from and reclaim of each other."""
    queues = [queue("a", 8, cohort="c", preemption=RECLAIM), queue("b", 4, cohort="c", preemption=RECLAIM)]
    return share_policy(*queues, cycle_ms=cycle_ms, admission=admission)


def crowd(count: int):
    return [
        planned(f"j{i:03}", "1x2" if i % 3 else "1x4", at=i * 0.07, hours=0.3 + i % 5 / 3, queue="ab"[i % 7 > 3])
        for i in range(count)
    ]


@pytest.mark.parametrize("admission", ["kueue", "tidegate"])
@pytest.mark.parametrize("cycle_ms", [1, 60_000])
def test_most_of_a_long_run_is_one_stretch(cycle_ms, admission):
    kept = assert_same(crowd(300), busy_queues(cycle_ms, admission))
    assert 1 <= kept.stretches <= 6
    assert len(kept.steps) > 100


def borrowers(admission: AdmissionKind, rule: PreemptionRule | None = None) -> Policy:
    """Two queues without quota of their own that share six GPUs of their cohort."""
    group = (FlavorGroup(resources=("gpu",), flavors=("od",)),)
    none = (Quota(flavor="od", resource="gpu", nominal=0),)
    queues = tuple(Queue(name, "root", group, none, rule or PreemptionRule()) for name in ("qa", "qb"))
    cohorts = (Cohort(name="root", quotas=(Quota(flavor="od", resource="gpu", nominal=6),)),)
    shares = QueueSetup(flavors=(Flavor(name="od"),), cohorts=cohorts, queues=queues, fair=FairSharing())
    return Policy(admission=admission, cycle_ms=1, shares=shares)


def charged(number: int, name: str, gpus: int, at_ms: int = 0, checkpoint_every_ms: int = 0) -> PlannedWorkload:
    """Work of six minutes in a queue that is charged for so many GPUs."""
    pod_sets = (PodSet(charge=(("gpu", gpus),)),)
    kind = Work(queue=name, pod_sets=pod_sets, checkpoint_every_ms=checkpoint_every_ms)
    return PlannedWorkload(
        workload=Workload(id=f"w{number}", work=kind, submitted_ms=at_ms), run=RunProfile(runtime_ms=360_000)
    )


def test_work_that_was_preempted_was_not_passed_over_yet():
    """Found by ten thousand examples: since when it was passed over is forgotten when it waits again, both ways."""
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_OR_NEWER, reclaim_in_cohort=PreemptWhom.ANY)
    asked = [("qb", 4)] * 9 + [("qb", 5), ("qa", 5), ("qb", 4), ("qb", 4)]
    work = [charged(number, *ask, at_ms=360_000 * (number == 1)) for number, ask in enumerate(asked)]
    kept = assert_same(work, borrowers(AdmissionKind.KUEUE, rule))
    assert kept.stretches == 3


def test_an_idle_tail_is_no_work_both_ways():
    """25 minutes of work with a checkpoint every ten, preempted in the idle hour after it: five are done again."""
    low = planned("low", "1x8", hours=25 / 60, checkpoint_every_ms=HOUR // 6, idle_tail_ms=HOUR)
    work = [low, *(planned(f"h{n}", "1x8", at=(50 + n) / 60, hours=1 / 60, priority=9) for n in range(2))]
    policy = share_policy(
        queue("a", 8, preemption=PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)), admission="kueue"
    )
    kept = assert_same(work, policy)
    assert kept.stretches > 0
    assert kept.steps[-1][0] == (52 + 5 + 60) * HOUR // 60


def test_a_log_that_is_full_ends_the_stretch_and_not_the_run(monkeypatch):
    monkeypatch.setattr("tidegate.sim.batched_run._MOST_STEPS", 8)
    assert assert_same(crowd(100), busy_queues(60_000)).stretches > 10


def test_rows_that_run_out_end_the_stretch_and_not_the_run(monkeypatch):
    monkeypatch.setattr("tidegate.sim.batched_run._ROWS_AHEAD", 2)
    assert_same(crowd(200), busy_queues(HOUR))


def test_a_stretched_journal_is_on_disk_and_replays(tmp_path):
    world = SimWorld([], jobs_of(crowd(120)), busy_queues(60_000), PLAIN)
    state, file = ClusterState(), JournalFile.create(tmp_path / "run.db")
    journal = Journal(file)
    journal.follow(state)
    run_twin(state, world, RunCollector(state, journal, every_ms=HOUR), UntilOver(world))
    journal.keep()
    file.close()
    written = JournalFile.open(tmp_path / "run.db")
    assert len(written) == len(journal.steps)
    assert replay(written.steps()).state.digest() == state.digest()
    kept = written.checkpoint()
    assert kept is not None
    assert ClusterState.load(kept.state).digest() == state.digest()
    written.close()


def append_two(file, result):
    """Write one step down, and fail at the second."""
    file.append(1, "", NO_FACTS, result)
    file.append(2, "", None, result)


def test_steps_that_are_written_together_are_all_there_or_none(tmp_path):
    file = JournalFile.create(tmp_path / "run.db")
    result = StepResult(NO_DECISIONS, NO_REFUSALS, None, 1)
    file.append(0, "", NO_FACTS, result)
    with pytest.raises(AttributeError), file.together():
        append_two(file, result)
    assert len(file) == 1
    file.close()
    assert len(JournalFile.open(tmp_path / "run.db")) == 1


def test_what_is_observed_or_fails_goes_step_by_step():
    for options in (TwinOptions(), TwinOptions(observe_every_ms=0, admission_fails_milli=100)):
        assert assert_same(crowd(60), busy_queues(60_000), options).stretches == 0


def test_entries_of_one_time_come_in_the_order_they_were_put_in():
    numbers = np.array([5, 3, 9, 1, 1, 7], np.int64)
    fast_path.sort_numbers(numbers, 5)
    assert numbers.tolist() == [1, 1, 3, 5, 9, 7]


class LaterOptions(TwinOptions, frozen=True):
    """Options with one that the fast path does not know."""

    drains_every_ms: int = 0


@pytest.mark.parametrize("drains_every_ms", [0, HOUR])
def test_an_option_that_the_fast_path_does_not_know_denies_it(drains_every_ms):
    options = LaterOptions(observe_every_ms=0, drains_every_ms=drains_every_ms)
    world = SimWorld([], jobs_of([planned("w", "1x4", queue="a")]), busy_queues(1), options)
    world.poll(None)
    assert world.is_plain() == (drains_every_ms == 0)
