"""Queues in the twin: fewer pods take longer, victims lose and hold, slices hand over, snapshots are taken up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from builders import fleet
from queue_strategies import policies
from queue_twins import HOUR, Run, planned, play, queue, simulate
from tidegate.jit.registry import kernels_as
from tidegate.journal.encoding import pack_result
from tidegate.journal.replay import replay
from tidegate.measure.findings import find
from tidegate.measure.job_records import Fate
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment
from tidegate.model.queues import PreemptionRule, PreemptWhom
from tidegate.model.simulation import InitialState, TwinOptions

MINUTE = HOUR // 60
RECLAIM = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY)
WITHIN = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY)


def decided(run: Run, kind: DecisionKind) -> list[tuple[str, float]]:
    """Who it was decided for, and when, in hours."""
    ids = {number: name for name, number in zip(run.measured.lives.ids, run.measured.lives.number, strict=True)}
    found = []
    for step in run.journal.steps:
        batch = step.result.decisions
        numbers = dict.fromkeys(batch.workload[batch.kind == kind].tolist())
        found += [(ids[number], step.now_ms / HOUR) for number in numbers]
    return found


def on_places(value):
    """Where there are nodes, and where quota is all there is."""
    return pytest.mark.parametrize("nodes", [(), fleet(value)], ids=["quota alone", "nodes"])


# -- partial admission -----------------------------------------------------------------------------------------


@on_places("2x h100x8")
def test_half_the_pods_take_twice_the_time(nodes):
    run = simulate([planned("j", "16x1", min_count=4)], [queue("a", 8)], nodes)
    assert run.finished == {"j": 2.0}
    assert run.column("held_milli_ms") == {"j": 8_000 * 2 * HOUR}


def test_of_several_sets_the_one_that_was_cut_most_sets_the_pace():
    work = [planned("j", "1x0", "9x1", min_count=0)]
    pod_sets = work[0].workload.work.pod_sets
    assert [s.count for s in pod_sets] == [1, 9]
    run = simulate([_partial(work[0], 1, 3)], [queue("a", 3)])
    assert run.finished == {"j": 3.0}


def _partial(work, at: int, least: int):
    import msgspec

    replace, made = msgspec.structs.replace, work.workload.work
    sets = tuple(replace(s, min_count=least) if n == at else s for n, s in enumerate(made.pod_sets))
    return replace(work, workload=replace(work.workload, work=replace(made, pod_sets=sets)))


def test_who_comes_back_whole_goes_on_at_full_pace():
    """Half of its pods for an hour do half an hour of work; preempted, it starts again with all of them."""
    work = [
        planned("j", "8x1", hours=2, min_count=4, checkpoint_every_ms=MINUTE),
        planned("first", "4x1", hours=1),
        planned("high", "8x1", at=1, hours=1, priority=9),
    ]
    run = simulate(work, [queue("a", 8, preemption=WITHIN)])
    assert run.column("preemptions")["j"] == 1
    assert run.finished == {"first": 1.0, "high": 2.0, "j": 3.5}


@on_places("1x h100x8")
def test_of_work_that_was_admitted_partly_only_pods_that_are_there_fail(nodes):
    """It has one pod of the eight, which fails every two hours or so, and never one of the others."""
    work = [
        planned("sweep", "8x1", hours=1, min_count=1, checkpoint_every_ms=MINUTE, fails_every_ms=2 * HOUR),
        planned("other", "1x1", at=1),
    ]
    run = simulate(work, [queue("a", 1)], nodes)
    assert set(run.finished) == {"sweep", "other"}
    failed = [
        int(pod) for step in run.journal.steps for pod in step.events.pod[step.events.kind == FactKind.POD_FAILED]
    ]
    assert 0 < len(failed) < 12  # within eight hours; it would be about 32 with the rate of eight pods
    assert set(failed) == {0}


# -- preemption ------------------------------------------------------------------------------------------------


@on_places("1x h100x8")
def test_a_victim_loses_what_it_did_since_its_checkpoint_and_pays_for_its_restart(nodes):
    work = [
        planned("low", "1x8", hours=3, checkpoint_every_ms=HOUR, restart_cost_ms=10 * MINUTE),
        planned("high", "1x8", at=1.5, hours=1, priority=9),
    ]
    run = simulate(work, [queue("a", 8, preemption=WITHIN)], nodes)
    assert run.finished["high"] == 2.5
    assert run.finished["low"] == pytest.approx(2.5 + 10 / 60 + 2)
    assert run.column("lost_milli_ms")["low"] == 8_000 * HOUR // 2
    (share,) = run.measured.summary.shares
    assert (share.preempted, share.preempting) == (1, 1)
    assert share.preempted_lost_gpu_h == share.preempting_lost_gpu_h == 4.0


@on_places("1x h100x8")
def test_to_load_and_to_restart_saves_nothing(nodes):
    """It works from 0:25 on and is sent away at 0:50, then from 1:21 on until 1:40: a checkpoint is never reached."""
    train = planned(
        "train", "1x8", hours=1, checkpoint_every_ms=HOUR // 2, restart_cost_ms=6 * MINUTE, load_ms=25 * MINUTE
    )
    urgent = [planned(f"u{n}", "1x8", at=50 * (n + 1) / 60, hours=1 / 60, priority=9) for n in range(2)]
    run = simulate([train, *urgent], [queue("a", 8, preemption=WITHIN)], nodes)
    assert run.column("lost_milli_ms")["train"] == 8_000 * (50 + 49) * MINUTE
    assert run.measured.summary.shares[0].preempted_lost_gpu_h == pytest.approx(8 * 99 / 60)


def test_what_a_failure_undid_is_lost_though_quota_is_kept():
    work = [planned("j", "1x8", hours=10, fails_every_ms=4 * HOUR, restart_cost_ms=6 * MINUTE, load_ms=5 * MINUTE)]
    run = simulate(work, [queue("a", 8)])
    last_ms = 10 * HOUR + 11 * MINUTE  # the only time that it comes to its end
    assert run.column("lost_milli_ms")["j"] == run.column("held_milli_ms")["j"] - 8_000 * last_ms > 0
    measured = run.measured
    assert measured.summary.shares[0].preempted_lost_gpu_h == 0
    assert any(
        finding.text.startswith("Pods that failed threw away") for finding in find(measured.summary, measured.lives)
    )


pieces = st.tuples(
    st.integers(0, 12), st.integers(1, 30), st.sampled_from([0, 0, 7, 20]), st.sampled_from([0, 25]),
    st.sampled_from([0, 0, 90]), st.sampled_from([0, 15]), st.integers(0, 2),
)  # fmt: skip


@on_places("2x h100x8")
@settings(max_examples=40, deadline=None)
@given(
    work=st.lists(pieces, min_size=2, max_size=9), pace=st.sampled_from([(0, 0, 0), (2, 3, 4)]), seed=st.integers(0, 99)
)
def test_what_is_not_lost_is_the_work_once_and_one_start(nodes, work, pace, seed):
    """Whatever is preempted and fails: what was held and not lost is all work once, and one start."""
    plan = [
        planned(
            f"w{n}", "1x8", at=at / 6, hours=long / 10, priority=priority, checkpoint_every_ms=every * MINUTE,
            load_ms=load * MINUTE, fails_every_ms=often * MINUTE, idle_tail_ms=tail * MINUTE,
            restart_cost_ms=9 * MINUTE,
        )
        for n, (at, long, every, load, often, tail, priority) in enumerate(work)
    ]  # fmt: skip
    assume(all(often == 0 or long <= 10 for _, long, _, _, often, _, _ in work))  # or it takes for ever
    latency, start, grace = (minutes * MINUTE for minutes in pace)
    run = simulate(
        plan, [queue("a", 16, preemption=WITHIN)], nodes, seed=seed, observe_every_ms=0, api_latency_ms=latency,
        start_ms=start, grace_ms=grace,
    )  # fmt: skip
    stopped = {
        int(number)
        for step in run.journal.steps
        for number in step.events.subject[np.isin(step.events.kind, [FactKind.POD_GONE, FactKind.POD_FAILED])]
    }
    lives = run.measured.lives
    for row, name in enumerate(lives.ids):
        behaves = plan[int(name[1:])].run
        again = 9 * MINUTE if int(lives.number[row]) in stopped else 0
        quota_kept = nodes == () and behaves.fails_every_ms
        once = behaves.runtime_ms + behaves.load_ms + again + behaves.idle_tail_ms + start
        useful = (lives.held_milli_ms[row] - lives.lost_milli_ms[row]) / 8_000
        assert useful == once + latency or (quota_kept and useful == once)


@on_places("2x h100x8")
def test_a_victim_holds_its_quota_until_it_is_gone(nodes):
    work = [planned("lent", "2x8", hours=5, queue="a"), planned("mine", "1x8", at=1, queue="b")]
    queues = [queue("a", 8, cohort="c"), queue("b", 8, cohort="c", preemption=RECLAIM)]
    run = simulate(work, queues, nodes, grace_ms=30 * MINUTE, api_latency_ms=6 * MINUTE)
    assert decided(run, DecisionKind.PREEMPT) == [("lent", 1.0)]
    assert [at for name, at in decided(run, DecisionKind.ADMIT) if name == "mine"] == [1.6]
    shares = {share.name: share for share in run.measured.summary.shares}
    assert shares["a"].borrowed_gpu_h == pytest.approx(8 * 1.6 + 8 * 5.1)


def test_who_may_not_preempt_waits_for_the_end_of_what_was_lent():
    work = [planned("lent", "2x8", hours=5, queue="a"), planned("mine", "1x8", at=1, queue="b")]
    run = simulate(work, [queue("a", 8, cohort="c"), queue("b", 8, cohort="c")])
    assert run.finished == {"lent": 5.0, "mine": 6.0}
    assert decided(run, DecisionKind.PREEMPT) == []


# -- snapshots: folders go on where they were ------------------------------------------------------------------


def granted(gpus: int, **more) -> ObservedStatus:
    """A standing: pods with a GPU each, of queue a."""
    grant = PodSetAssignment(pod_set="s0", count=gpus, flavors=(("gpu", "any"),), charge=(("gpu", gpus * 1000),))
    return ObservedStatus(queue="a", grants=(grant,), admitted=True, **more)


def test_what_was_admitted_before_holds_its_quota_and_ends():
    work = [planned("old", "8x1", hours=3), planned("next", "8x1", at=0.5)]
    snapshot = InitialState(at_ms=HOUR, standings=(("old", granted(8, granted_ms=0)),))
    run = simulate(work, [queue("a", 8)], snapshot=snapshot)
    assert run.journal.steps[0].now_ms == HOUR
    assert run.finished == {"old": 3.0, "next": 4.0}
    (share,) = run.measured.summary.shares
    assert share.used_gpu_h == 8 * 3  # from the snapshot on
    assert run.column("waited_ms")["next"] == 2.5 * HOUR


def test_what_ran_with_fewer_pods_goes_on_with_them():
    snapshot = InitialState(at_ms=HOUR, standings=(("old", granted(4, granted_ms=0)),))
    run = simulate([planned("old", "8x1", hours=3, min_count=4)], [queue("a", 8)], snapshot=snapshot)
    assert run.finished == {"old": 6.0}


def test_what_was_told_to_go_leaves_and_comes_back():
    snapshot = InitialState(at_ms=HOUR, standings=(("old", granted(8, granted_ms=0, evicted="Preempted")),))
    work = [planned("old", "8x1", hours=1), planned("high", "8x1", at=0.5, priority=9)]
    run = simulate(work, [queue("a", 8)], snapshot=snapshot, grace_ms=HOUR)
    assert run.finished == {"high": 3.0, "old": 4.0}


def test_who_was_asked_to_come_again_later_does():
    snapshot = InitialState(at_ms=HOUR, standings=(("old", ObservedStatus(requeue_at_ms=5 * HOUR)),))
    run = simulate([planned("old", "8x1")], [queue("a", 8)], snapshot=snapshot)
    assert run.finished == {"old": 6.0}


# -- slices ----------------------------------------------------------------------------------------------------

SLICES = (("ns/one", granted(4, granted_ms=0)), ("ns/two", ObservedStatus(replaces="ns/one")))


def slices(**more) -> Run:
    """A job of four pods that grows to eight after an hour of four."""
    work = [planned("ns/one", "4x1", hours=4), planned("ns/two", "8x1", hours=2)]
    snapshot = InitialState(at_ms=HOUR, standings=SLICES)
    return simulate(work, [queue("a", 8)], snapshot=snapshot, **more)


def test_a_larger_slice_takes_over_what_is_left():
    run = slices()
    assert decided(run, DecisionKind.RELEASE) == [("ns/one", 1.0)]
    assert run.finished == {"ns/one": 1.0, "ns/two": 1 + 2 * 3 / 4}


def test_a_slice_whose_heir_was_not_admitted_runs_on():
    """The API refuses the first admissions: the old slice goes on, and hands over when one is carried out."""
    seen = set()
    for seed in range(12):
        run = slices(admission_fails_milli=600, seed=seed, api_latency_ms=6 * MINUTE)
        tries = [at for name, at in decided(run, DecisionKind.ADMIT) if name == "ns/two"]
        taken_over = tries[-1] + 0.1
        assert run.finished["ns/one"] == pytest.approx(taken_over)
        assert run.finished["ns/two"] == pytest.approx(taken_over + 2 * (4 - taken_over) / 4)
        seen.add(len(tries))
    assert len(seen) > 1  # some were refused, some were not


# -- one contract ----------------------------------------------------------------------------------------------


@st.composite
def worlds(draw):
    """A policy, work for its queues, and a twin that is none too reliable."""
    work = [
        planned(
            f"w{at:02d}",
            f"{draw(st.integers(1, 4))}x0",
            at=draw(st.integers(0, 8)) / 4,
            hours=draw(st.integers(1, 12)) / 4,
            queue=draw(st.sampled_from(["qa", "qb", "qc", "qd"])),
            priority=draw(st.sampled_from([0, 0, 3, 7])),
            min_count=draw(st.sampled_from([0, 0, 1])),
            checkpoint_every_ms=draw(st.sampled_from([0, 20 * MINUTE])),
            fails_every_ms=draw(st.sampled_from([0, 0, 6 * HOUR])),
        )
        for at in range(draw(st.integers(1, 14)))
    ]
    options = TwinOptions(
        seed=draw(st.integers(0, 99)),
        api_latency_ms=draw(st.sampled_from([0, MINUTE])),
        grace_ms=draw(st.sampled_from([0, 10 * MINUTE])),
        admission_fails_milli=draw(st.sampled_from([0, 0, 300])),
        observe_every_ms=HOUR,
    )
    return _charged(work, draw), draw(policies()), options


def _charged(work, draw):
    """What quota counts for each pod."""
    import msgspec

    replace = msgspec.structs.replace
    made = []
    for one in work:
        charge = (("cpu", draw(st.integers(0, 2))), ("gpu", draw(st.integers(1, 2))))
        sets = tuple(replace(s, charge=charge) for s in one.workload.work.pod_sets)
        made.append(replace(one, workload=replace(one.workload, work=replace(one.workload.work, pod_sets=sets))))
    return made


@given(worlds())
@settings(max_examples=40, deadline=None)
def test_a_run_ends_and_its_journal_replays_byte_for_byte(world):
    work, policy, options = world
    run = play(work, policy, (), options)
    again = replay(run.journal.steps)
    assert again.difference is None
    assert again.state.digest() == run.state.digest()
    lives = run.measured.lives
    assert not (lives.fate == Fate.RUNNING).any()
    assert run.state.quota.quota_nodes.usage.sum() == 0
    same = play(work, policy, (), options)
    assert [pack_result(a.result) for a in run.journal.steps] == [pack_result(b.result) for b in same.journal.steps]


@given(worlds())
@settings(max_examples=40, deadline=None)
def test_cycles_that_are_run_in_one_go_decide_as_one_by_one(world):
    packed = []
    for at_once in (64, 2, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidegate.engine.step.AT_ONCE", at_once)
            run = play(*world[:2], (), world[2])
        packed.append(
            [(step.now_ms, [column.tolist() for column in step.result.decisions]) for step in run.journal.steps]
        )
    assert packed[0] == packed[1] == packed[2]


@pytest.mark.compiles
def test_compiled_kernels_give_the_same_run():
    work = [
        planned(f"w{n:03d}", f"{1 + n % 4}x{1 + n % 3}", at=n % 17 / 4, hours=(1 + n % 5) / 2, queue="abc"[n % 3],
                priority=n % 4, min_count=n % 2, checkpoint_every_ms=20 * MINUTE)
        for n in range(90)
    ]  # fmt: skip
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
    queues = [queue(name, 6, cohort="all", preemption=rule) for name in "abc"]
    packed = []
    for compiled in (True, False):
        with kernels_as(compiled=compiled):
            run = simulate(work, queues, fleet("3x h100x8"), admission_fails_milli=50, grace_ms=10 * MINUTE)
        assert replay(run.journal.steps).difference is None
        packed.append([pack_result(step.result) for step in run.journal.steps])
        assert len(run.finished) == 90
    assert packed[0] == packed[1]
    assert sum(run.column("preemptions").values()) > 0
