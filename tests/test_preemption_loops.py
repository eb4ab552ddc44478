"""Preemption loops: replayed from Kueue's tracker, named where Kueue's rules have them, impossible in our own mode."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import Cluster, fleet
from preempting_world import BOTH, FINAL, Settled, answer, fair_cluster, holders, pod_group, settle
from queue_strategies import EITHER, asks, contended_asks, contended_shares, shares
from recorded_runs import measure_journal
from strategies import fleets, placements, workloads
from tidegate.measure.collector import RunMeasures
from tidegate.measure.findings import find
from tidegate.measure.loops import Loop, loop_text
from tidegate.model.facts import FactKind
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import Flavor, FlavorGroup, PreemptionRule, PreemptWhom, Queue, QueueSetup, Quota
from tidegate.model.work import PodSet, Work, Workload

WITHIN = [PreemptWhom.NEVER, PreemptWhom.LOWER_PRIORITY, PreemptWhom.LOWER_OR_NEWER]


def measured(*parts: Settled) -> RunMeasures:
    return measure_journal([step for part in parts for step in part.steps])


# -- the tracker -----------------------------------------------------------------------------------------------


@dataclass
class Story:
    """What came of a situation."""

    cluster: Cluster
    before: Settled
    after: Settled

    def loops(self) -> tuple[Loop, ...]:
        return measured(self.before, self.after).summary.loops


def kueue_14543(admission: str, *, most: int = 60) -> Story:
    """Of six GPUs `a` uses two and `b` four. A workload of `a` with a higher priority asks for three.

    Were its own queue's work gone, it could fairly take b's. Then its own queue's work is filled back, and what is left
    is unfair: once b's work is gone, fairness lets that back in, not the one that it left for.
    """
    cluster = fair_cluster(("a", "b"), 6, admission, strategies=BOTH)
    cluster.submit(pod_group("a1", "a", 2), pod_group("b1", "b", 4, priority=1, at=1))
    before = settle(cluster)
    cluster.submit(pod_group("a9", "a", 3, priority=2, at=2))
    return Story(cluster, before, settle(cluster, most))


def test_kueue_14543_loops_by_kueues_rules_and_the_loop_is_named():
    story = kueue_14543("kueue")
    assert not story.after.rested
    [loop] = story.loops()
    [pair] = loop.pairs
    assert (pair.cause, pair.cause_queue, pair.victim, pair.victim_queue) == ("a9", "a", "b1", "b")
    assert pair.times == loop.preemptions == story.after.preempted["b1"] >= 20
    assert (loop.begins, loop.ends, loop.outside_facts) == ("a9 was submitted", "", 0)


def test_kueue_14543_does_not_loop_in_our_own_mode():
    story = kueue_14543("tidegate")
    assert story.after.rested
    assert not story.after.preempted  # it would not be fair
    assert story.loops() == ()
    assert len(holders(story.cluster)) >= 2


@pytest.mark.parametrize("admission", list(AdmissionKind))
@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("strategies", [FINAL, BOTH])
def test_kueue_7101_a_smaller_group_behind_larger_ones_gets_its_fair_share_and_nothing_flaps(
    admission, within, strategies
):
    """Four groups of two pods on eight GPUs; then groups of six, five, four and three pods from another queue."""
    cluster = fair_cluster(("one", "two"), 8, admission, strategies=strategies, within=within)
    cluster.submit(*(pod_group(f"pair{i}", "one", 2, at=i) for i in range(4)))
    assert settle(cluster).rested
    for at, size in enumerate((6, 5)):
        cluster.submit(pod_group(f"group{size}", "two", size, at=10 + at))
        assert not settle(cluster).preempted
    cluster.submit(pod_group("group4", "two", 4, at=12))
    fourth = settle(cluster)
    assert fourth.rested
    assert fourth.preempted == {"pair2": 1, "pair3": 1}
    assert holders(cluster) == ["group4", "pair0", "pair1"]
    cluster.submit(pod_group("group3", "two", 3, at=13))
    last = settle(cluster)
    assert last.rested
    assert not last.preempted


def partial_loop(admission: str) -> Story:
    """Found by the nightly run: `b` owns three GPUs and seven cores; `c` borrows two of the GPUs.

    With two of its pods b's work stays within b's quota and may ask c's back. Once that is gone three would fit, on
    borrowed cores: now both borrow, and c's work, which is older, goes first.
    """
    pods = PodSet(count=4, min_count=1, charge=(("cpu", 3), ("gpu", 1)))
    quotas = {"b": (7, 3), "c": (7, 0)}
    rule = PreemptionRule(reclaim_in_cohort=PreemptWhom.ANY, borrow_in_cohort=PreemptWhom.LOWER_PRIORITY)
    queues = tuple(
        Queue(
            name=name,
            cohort="all",
            groups=(FlavorGroup(resources=("cpu", "gpu"), flavors=("any",)),),
            quotas=tuple(Quota(flavor="any", resource=r, nominal=n) for r, n in zip(("cpu", "gpu"), owns, strict=True)),
            preemption=rule,
        )
        for name, owns in quotas.items()
    )
    cluster = Cluster(fleet("1x cpux0 pods=100"))
    shares = QueueSetup(flavors=(Flavor(name="any"),), queues=queues)
    cluster.set_policy(Policy(admission=AdmissionKind(admission), shares=shares))
    pair = PodSet(count=2, charge=(("cpu", 2), ("gpu", 1)))
    cluster.submit(Workload(id="c1", work=Work(queue="c", pod_sets=(pair,))))
    before = settle(cluster)
    cluster.submit(Workload(id="b1", work=Work(queue="b", pod_sets=(pods,)), submitted_ms=10))
    return Story(cluster, before, settle(cluster))


def test_partial_admission_loops_by_kueues_classic_rules_and_not_by_ours():
    [loop] = partial_loop("kueue").loops()
    assert [(pair.cause, pair.victim) for pair in loop.pairs] == [("b1", "c1")]
    own = partial_loop("tidegate")
    assert own.after.rested
    assert own.after.preempted["c1"] <= 1
    assert own.loops() == ()


# -- the detector ----------------------------------------------------------------------------------------------


def test_a_loop_is_the_first_thing_that_is_found_in_a_run():
    story = kueue_14543("kueue")
    run = measured(story.before, story.after)
    first = find(run.summary, run.lives, run.quota)[0]
    assert first.text == loop_text(run.summary.loops[0])
    assert "a9 (a) preempted b1 (b) " in first.text
    assert "with nothing from outside in between, and it went on when the run ended" in first.text


def test_a_loop_goes_on_being_one_though_other_things_happen_meanwhile():
    story = kueue_14543("kueue")
    parts = [story.before, story.after]
    for number in range(3):
        story.cluster.submit(pod_group(f"large{number}", "b", 7, at=100 + number))
        parts.append(settle(story.cluster, 5))
    [loop] = measured(*parts).summary.loops
    assert loop.outside_facts == 3
    assert loop.preemptions == sum(sum(part.preempted.values()) for part in parts)


def test_work_that_is_preempted_twice_for_different_reasons_is_no_loop():
    cluster = fair_cluster(("a",), 4, "kueue")
    parts = []
    for number, priority in enumerate((0, 1, 2)):
        cluster.submit(pod_group(f"p{priority}", "a", 4, priority=priority, at=number))
        parts.append(settle(cluster))
    cluster.tell(FactKind.WORKLOAD_FINISHED, "p2")
    parts.append(settle(cluster))
    cluster.submit(pod_group("p3", "a", 4, priority=3, at=9))
    parts.append(settle(cluster))
    assert sum(part.preempted["p1"] for part in parts) == 2
    assert measured(*parts).summary.loops == ()


# -- our own mode ----------------------------------------------------------------------------------------------

relaxed = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def test_the_next_of_a_queue_that_gets_a_reservation_is_tried_once_a_cycle():
    """It was tried twice, and held quota twice over: those that hold quota of its queue stood in a circle."""
    cluster = fair_cluster(("qa", "qb", "qc"), 6, "tidegate")
    cluster.submit(pod_group("first", "qa", 5))
    settle(cluster)
    cluster.submit(pod_group("urgent", "qa", 2, priority=1, at=1), pod_group("other", "qc", 2, at=2))
    end = settle(cluster)
    assert end.rested
    assert end.preempted == {"first": 1}
    assert holders(cluster) == ["other", "urgent"]


def disturb(data, cluster: Cluster) -> None:
    """Something from outside, maybe."""
    for name in sorted(cluster.numbers):
        row = cluster.state.workload_numbers.row(cluster.numbers[name])
        if row >= 0 and data.draw(st.integers(0, 9)) == 0:
            cluster.tell(data.draw(st.sampled_from([FactKind.WORKLOAD_FINISHED, FactKind.WORKLOAD_CANCELLED])), name)


@relaxed
@given(st.data())
def test_in_our_own_mode_queues_come_to_rest_and_nobody_is_preempted_twice(data):
    """Under every rule of preemption, classic and fair, through the world and back."""
    cluster = Cluster(fleet("2x cpux0 pods=30"))
    cluster.set_policy(Policy(admission=AdmissionKind.TIDEGATE, shares=data.draw(shares(EITHER))))
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 6))):
            cluster.submit(data.draw(asks(len(cluster.numbers), cluster.now_ms)))
        disturb(data, cluster)
        end = settle(cluster, 200, starts=data.draw(st.booleans()))
        assert end.rested
        assert max(end.preempted.values(), default=0) <= 1
        assert cluster.step(0) == []


@settings(relaxed, max_examples=30)
@given(st.data())
def test_in_our_own_mode_queues_that_fight_for_shares_come_to_rest_too(data):
    cluster = Cluster(fleet("1x cpux0 pods=30"))
    cluster.set_policy(Policy(admission=AdmissionKind.TIDEGATE, shares=data.draw(contended_shares())))
    for _ in range(data.draw(st.integers(3, 7))):
        for _ in range(data.draw(st.integers(1, 2))):
            cluster.submit(data.draw(contended_asks(len(cluster.numbers))))
        end = settle(cluster, 100)
        assert end.rested
        assert max(end.preempted.values(), default=0) <= 1


@relaxed
@given(st.data())
def test_orders_that_preempt_come_to_rest_and_nobody_is_preempted_twice(data):
    order = data.draw(st.sampled_from(["srtf", "srsf", "las"]))
    cluster = Cluster(data.draw(fleets), placement=data.draw(placements), order=order)
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 5))):
            cluster.submit(data.draw(workloads(len(cluster.numbers), cluster.now_ms)))
        for name in sorted(cluster.numbers):
            remaining = data.draw(st.floats(0, 1e4, allow_nan=False))
            cluster.tell(FactKind.PROGRESS_OBSERVED, name, values=(remaining, 1e4 - remaining))
        disturb(data, cluster)
        answer(cluster)
        end = settle(cluster, 200, starts=data.draw(st.booleans()))
        assert end.rested
        assert max(end.preempted.values(), default=0) <= 1
