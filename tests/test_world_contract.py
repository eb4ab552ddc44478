"""What every world promises, tried on the twin and on a real API server: one suite, the same tests.

The engine is the same in both, so what it may rely on must be, too: facts in order, none twice, none of the future;
what is decided comes about, or it is told that it did not.
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from tidegate.engine.run import run
from tidegate.engine.step import step
from tidegate.model.decisions import NO_DECISIONS, DecisionKind
from tidegate.model.facts import ALL_PODS, FactKind, WriteOutcome
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState
from worlds import POLICY, Asked, Steps, kube_stage, sim_stage

#: More than two nodes have at a time: gangs over both, small ones, and some that wait.
ASKED = [Asked("a", 2, 8), Asked("b", 1, 8, 2), Asked("c", 4, 2), Asked("d", 1, 1), Asked("e", 2, 4)]


@pytest.fixture(scope="module", params=["twin", "cluster"])
def open_stage(request):
    """Opens a world with jobs in it."""

    def opened(asked):
        if request.param == "twin":
            return sim_stage(asked)
        return kube_stage(request.getfixturevalue("plane"), asked)

    return opened


@pytest.fixture(scope="module")
def history(open_stage):
    """All steps of a run to its end, and the state after it."""
    state, steps = ClusterState(), Steps()
    with open_stage(ASKED) as stage:
        until_s = time.monotonic() + 60

        def is_over(_):
            assert time.monotonic() < until_s, "the run does not come to its end"
            return told(steps.kept)[FactKind.WORKLOAD_FINISHED] == len(ASKED)

        run(state, stage.world, steps, is_over)
    check(state)
    return steps.kept, state


def facts(kept):
    """Every fact, in order: when it was told, kind, when it happened, subject, pod, arg."""
    for now_ms, events, _ in kept:
        columns = (events.kind, events.at_ms, events.subject, events.pod, events.arg)
        for kind, at_ms, subject, pod, arg in zip(*(column.tolist() for column in columns), strict=True):
            yield now_ms, FactKind(kind), at_ms, subject, pod, arg


def told(kept):
    return Counter(kind for _, kind, *_ in facts(kept))


def test_the_policy_comes_first(history):
    kept, _ = history
    _, kind, *_ = next(facts(kept))
    assert kind is FactKind.POLICY_CHANGED
    assert told(kept)[FactKind.POLICY_CHANGED] == 1


def test_every_node_and_every_job_is_told_of_once(history):
    kept, _ = history
    for kind, count in ((FactKind.NODE_ADDED, 2), (FactKind.WORKLOAD_SUBMITTED, len(ASKED))):
        subjects = [subject for _, found, _, subject, _, _ in facts(kept) if found is kind]
        assert len(subjects) == len(set(subjects)) == count
    ids = {name for _, events, _ in kept for name in events.submissions.ids}
    assert {name.rpartition("/")[2] for name in ids} == {one.name for one in ASKED}


def test_time_never_goes_back_and_no_fact_is_of_the_future(history):
    kept, _ = history
    times = [now_ms for now_ms, _, _ in kept]
    assert times == sorted(times)
    assert all(at_ms <= now_ms for now_ms, _, at_ms, *_ in facts(kept))


def test_submissions_are_not_of_the_future(history):
    kept, _ = history
    for now_ms, events, _ in kept:
        assert (events.submissions.submitted_ms <= now_ms).all()


def test_a_job_is_told_of_before_anything_about_it(history):
    kept, _ = history
    known = set()
    for _, kind, _, subject, _, _ in facts(kept):
        if kind is FactKind.WORKLOAD_SUBMITTED:
            known.add(subject)
        elif kind.name.startswith(("POD_", "WORKLOAD_")):
            assert subject in known


def test_pods_start_after_they_were_placed_and_jobs_finish_after_that(history):
    kept, _ = history
    placed, started, pods = set(), Counter(), {}
    for _, events, result in kept:
        for kind, subject, pod in zip(events.kind.tolist(), events.subject.tolist(), events.pod.tolist(), strict=True):
            if kind == FactKind.POD_STARTED:
                assert subject in placed
                started[subject] += pods[subject] if pod == ALL_PODS else 1
            elif kind == FactKind.WORKLOAD_FINISHED:
                assert started[subject] == pods[subject]  # all of them ran
        decisions = result.decisions
        at = np.flatnonzero(decisions.kind == DecisionKind.PLACE)
        for number in np.unique(decisions.workload[at]).tolist():
            placed.add(number)
            pods[number] = int(np.count_nonzero(decisions.workload[at] == number))


def test_outcomes_are_of_decisions_that_were_made(history):
    kept, _ = history
    made = set()
    for _, events, result in kept:
        outcomes = events.kind == FactKind.OUTCOME
        assert set(events.subject[outcomes].tolist()) <= made
        assert set(events.arg[outcomes].tolist()) <= set(map(int, WriteOutcome))
        made |= set(result.decisions.id.tolist())


def test_at_the_end_everything_is_free(history):
    kept, state = history
    assert not len(state.live_workloads())
    there = list(state.node_specs)
    assert state.nodes.idle[there].tolist() == [8, 8]
    assert told(kept)[FactKind.WORKLOAD_FINISHED] == len(ASKED)


def test_what_was_told_gives_the_same_decisions_again(history):
    kept, state = history
    again = ClusterState()
    for now_ms, events, result in kept:
        assert step(again, events, now_ms).decisions.id.tolist() == result.decisions.id.tolist()
    assert again.digest() == state.digest()


# -- one poll at a time ----------------------------------------------------------------------------------------------


class Turns:
    """A run, turn by turn."""

    def __init__(self, stage):
        self.stage, self.world, self.state, self.kept = stage, stage.world, ClusterState(), []

    def turn(self, *, carry=True, until_ms=None):
        """One turn of the loop."""
        events = self.world.poll(until_ms)
        now_ms = self.world.now_ms()
        result = step(self.state, events, now_ms)
        self.kept.append((now_ms, events, result))
        if carry:
            self.world.carry_out(result.decisions)
        return events, result

    def until(self, holds, most_s=30.0):
        """Turn until something holds."""
        until_s = time.monotonic() + most_s
        while not holds():
            assert time.monotonic() < until_s, "it did not come about"
            self.turn(until_ms=self.world.now_ms() + 100)

    def told(self, kind):
        return told(self.kept)[kind]


def test_nothing_is_told_twice(open_stage):
    with open_stage([Asked("a", 1, 1, 300)]) as stage:
        turns = Turns(stage)
        turns.until(lambda: turns.told(FactKind.POD_STARTED) == 1)
        time.sleep(0.3 if stage.now_passes else 0)
        seen = turns.told(FactKind.WORKLOAD_SUBMITTED), turns.told(FactKind.NODE_ADDED)
        for _ in range(4):
            turns.turn(until_ms=turns.world.now_ms() + 50)
        assert seen == (turns.told(FactKind.WORKLOAD_SUBMITTED), turns.told(FactKind.NODE_ADDED)) == (1, 2)
        assert turns.told(FactKind.POD_STARTED) == 1


def test_a_poll_does_not_wait_beyond_its_time(open_stage):
    with open_stage([Asked("a", 1, 1, 300)]) as stage:
        turns = Turns(stage)
        turns.until(lambda: turns.told(FactKind.POD_STARTED) == 1)
        for _ in range(3):
            turns.turn(until_ms=turns.world.now_ms() + 50)
        until_ms = turns.world.now_ms() + 200
        turns.turn(until_ms=until_ms)
        assert turns.world.now_ms() <= until_ms + POLICY.cycle_ms + (100 if stage.now_passes else 0)


def test_what_is_not_carried_out_does_not_happen(open_stage):
    with open_stage([Asked("a", 1, 1)]) as stage:
        turns = Turns(stage)
        while not turns.told(FactKind.WORKLOAD_SUBMITTED):
            turns.turn(carry=False)
        time.sleep(0.3 if stage.now_passes else 0)
        for _ in range(3):
            turns.turn(carry=False, until_ms=turns.world.now_ms() + 100)
        assert turns.told(FactKind.POD_STARTED) == turns.told(FactKind.WORKLOAD_FINISHED) == 0


def test_decisions_about_nobody_change_nothing(open_stage):
    with open_stage([Asked("a", 1, 1, 300)]) as stage:
        turns = Turns(stage)
        turns.until(lambda: turns.told(FactKind.POD_STARTED) == 1)
        stage.world.carry_out(NO_DECISIONS)
        count = len(turns.kept)
        for _ in range(3):
            turns.turn(until_ms=turns.world.now_ms() + 50)
        assert not any(len(result.decisions.id) for _, _, result in turns.kept[count:])
        check(turns.state)


def test_work_that_is_told_to_go_is_gone_and_can_come_back(open_stage):
    with open_stage([Asked("a", 2, 4, 300)]) as stage:
        turns = Turns(stage)
        turns.until(lambda: turns.told(FactKind.POD_STARTED) in (1, 2) and _all_run(turns))
        row = int(turns.state.live_workloads()[0])
        turns.state.note_pending_eviction(np.array([row]), Reason.GANG_BROKEN)  # as if a part of it were lost
        turns.until(lambda: turns.told(FactKind.POD_GONE) >= 1)
        evictions = [kind for _, _, result in turns.kept for kind in result.decisions.kind.tolist()]
        assert evictions.count(DecisionKind.EVICT) == 1
        before = turns.told(FactKind.POD_STARTED)
        turns.until(lambda: turns.told(FactKind.POD_STARTED) > before and _all_run(turns))
        assert turns.told(FactKind.WORKLOAD_SUBMITTED) == 1  # it is the same, not another


def outcomes(turns):
    """What came of decisions, as far as it was told: decisions by outcome."""
    found = {outcome: set() for outcome in WriteOutcome}
    for _, kind, _, subject, _, arg in facts(turns.kept):
        if kind is FactKind.OUTCOME:
            found[WriteOutcome(arg)].add(subject)
    return found


def placed(turns):
    """The decisions to place pods, in order."""
    batches = [result.decisions for _, _, result in turns.kept]
    return [one for batch in batches for one in batch.id[batch.kind == DecisionKind.PLACE].tolist()]


def test_what_is_refused_is_told_as_failed_holds_nothing_and_is_decided_again(open_stage):
    with open_stage([Asked("a", 2, 4)]) as stage:
        turns = Turns(stage)
        stage.refuse()
        turns.until(lambda: outcomes(turns)[WriteOutcome.FAILED])
        assert outcomes(turns)[WriteOutcome.FAILED] == set(placed(turns)[:2])  # both pods of the gang
        assert turns.told(FactKind.POD_STARTED) == 0
        stage.calm()
        turns.until(lambda: turns.told(FactKind.WORKLOAD_FINISHED) == 1)
        assert len(placed(turns)) > 2
        assert not outcomes(turns)[WriteOutcome.FAILED] & set(placed(turns)[-2:])
        assert turns.told(FactKind.WORKLOAD_SUBMITTED) == 1
        assert turns.state.nodes.idle[list(turns.state.node_specs)].tolist() == [8, 8]
        check(turns.state)


def test_what_is_not_known_stays_assumed_until_the_world_shows_it(open_stage):
    with open_stage([Asked("a", 2, 4), Asked("b", 2, 8)]) as stage:
        turns = Turns(stage)
        stage.lose()
        turns.until(lambda: outcomes(turns)[WriteOutcome.UNKNOWN])
        first = placed(turns)
        assert outcomes(turns)[WriteOutcome.UNKNOWN] <= set(first)
        for _ in range(3):  # its room is nobody else's, and it is not decided once more
            turns.turn(until_ms=turns.world.now_ms() + 100)
            assert placed(turns) == first or turns.told(FactKind.WORKLOAD_FINISHED)
        check(turns.state)
        stage.calm()
        turns.until(lambda: turns.told(FactKind.WORKLOAD_FINISHED) == 2, 60)
        assert len(placed(turns)) == len(set(placed(turns))) == 4  # each pod once
        assert not outcomes(turns)[WriteOutcome.FAILED]


def _all_run(turns):
    state = turns.state
    rows = state.live_workloads()
    return len(rows) and (state.workloads.phase[rows] == 3).all()
