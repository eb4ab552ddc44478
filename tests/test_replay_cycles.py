"""What a step returns depends on the state, the facts and the time: not on spare room, nor on how it was loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import SMALL, ran
from queue_strategies import contended_asks, contended_shares
from queue_twins import HOUR, planned
from test_stretch import PLAIN, assert_same, borrowers, busy_queues, charged, crowd
from tidegate.engine import quota_cycle
from tidegate.engine.kernels.fixpoint import MOST_QUOTA_CYCLES
from tidegate.engine.run import run
from tidegate.engine.step import most_cycles, step
from tidegate.journal.encoding import pack_result
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.measure.collector import RunCollector
from tidegate.model.facts import Facts
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.sim.batched_run import run_twin
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState

#: Queues that borrow from each other, on nodes and without any.
QUEUES = """\
cluster:
  pools: [{name: train, count: 2, shape: {gpu: h100, gpus: 8, cpu: 96, memory: 1Ti}}]
policy:
  admission: tidegate
  queues:
    - {name: a, cohort: all, gpus: 8, preemption: {within: LowerPriority, reclaim: Any}}
    - {name: b, cohort: all, gpus: 8, preemption: {reclaim: Any}}
work:
  - {id: long, queue: a, copies: 6, every: 7m, runtime: 2h, pods: [{count: 2, gpus: 2}]}
  - {id: urgent, queue: b, submit: 20m, copies: 9, every: 11m, priority: 5, runtime: 40m, pods: [{gpus: 3}]}
"""
QUOTA_ALONE = QUEUES[QUEUES.index("policy:") :].replace("admission: tidegate", "admission: kueue")


def submit_all(state: ClusterState, work) -> tuple[int, bytes, str]:
    """Submit work in one step: how many cycles it took, what it returned, and the state after it."""
    facts = Facts()
    for number, each in enumerate(work):
        facts.submit(number, each.workload, HOUR)
    result = step(state, facts.batch(), HOUR)
    return result.cycles, pack_result(result), state.digest()


def opened(policy: Policy) -> ClusterState:
    state, facts = ClusterState(), Facts()
    facts.policy(policy)
    step(state, facts.batch(), 0)
    return state


def with_spare_room(policy: Policy, rows: int) -> ClusterState:
    state = opened(policy)
    state.workloads.reserve(rows)
    state.quota.reservations.reserve(rows)
    return state


@pytest.mark.parametrize("admission", ["kueue", "tidegate"])
def test_spare_room_and_loading_change_no_result(admission):
    policy, work = busy_queues(1, admission), [planned(f"w{n}", "1x1", queue="ab"[n % 2]) for n in range(9)]
    expected = submit_all(opened(policy), work)
    assert expected[0] > 1
    for rows in (64, 1024, 5000):
        assert submit_all(with_spare_room(policy, rows), work) == expected
    assert submit_all(ClusterState.load(opened(policy).dump()), work) == expected
    assert submit_all(opened(policy).fork(), work) == expected


@settings(max_examples=60)
@given(st.data(), st.integers(0, 3), st.sampled_from(AdmissionKind))
def test_cycles_do_not_depend_on_room_to_write_on(data, rows, admission):
    policy = Policy(admission=admission, shares=data.draw(contended_shares()))
    work = [data.draw(contended_asks(number)) for number in range(8)]
    results = []
    for spare in (0, 1 << (4 + 2 * rows)):
        state, facts = with_spare_room(policy, spare), Facts()
        for number, workload in enumerate(work):
            facts.submit(number, workload, HOUR)
        result = step(state, facts.batch(), HOUR)
        results.append((result.cycles, pack_result(result), state.digest()))
    assert results[0] == results[1]


def test_a_burst_takes_a_cycle_for_each_head_and_settles():
    state, work = opened(busy_queues(1)), [planned(f"w{n:04}", "1x0", queue="a") for n in range(1500)]
    cycles, *_ = submit_all(state, work)
    assert 1000 < cycles < most_cycles(state) == MOST_QUOTA_CYCLES


def kept_by(runs, work, policy: Policy) -> tuple[Journal, ClusterState]:
    """Run work in one way or the other, with its journal."""
    world, state, journal = SimWorld([], jobs_of(work), policy, PLAIN), ClusterState(), Journal()
    runs(state, world, RunCollector(state, journal, every_ms=HOUR), lambda _: world.is_over())
    return journal, state


@pytest.mark.parametrize("runs", [run, run_twin])
@pytest.mark.parametrize("admission", ["kueue", "tidegate"])
def test_a_run_replays_without_a_difference(runs, admission):
    journal, state = kept_by(runs, crowd(120), busy_queues(60_000, admission))
    again = replay(journal.steps)
    assert again.difference is None
    assert again.state.digest() == state.digest()


@pytest.mark.parametrize("runs", [run, run_twin])
def test_room_for_one_cycle_and_little_more_makes_no_difference(runs):
    """Where rows were kept ahead for a stretch, two rows were left over, and a cycle was counted that found nothing."""
    work = [charged(0, "qb", 1, HOUR), charged(1, "qb", 2, HOUR), charged(2, "qb", 1, HOUR, HOUR // 4)]
    journal, _ = kept_by(runs, work, borrowers(AdmissionKind.TIDEGATE))
    assert journal.steps[-1].result.cycles == 4  # one for each head, and one that finds none
    assert replay(journal.steps).difference is None
    assert_same(work, borrowers(AdmissionKind.TIDEGATE))


def test_an_output_that_is_full_splits_no_cycle(monkeypatch):
    """As many rows as one cycle needs, and not one more: every cycle is a call of its own."""
    policy, work = busy_queues(1), [planned(f"w{n}", "1x1", queue="ab"[n % 2]) for n in range(9)]
    expected, made = submit_all(opened(policy), work), quota_cycle.empty_output
    monkeypatch.setattr(quota_cycle, "empty_output", lambda rows: made(rows // 2))
    calls = []
    ran = quota_cycle._run_some
    monkeypatch.setattr(quota_cycle, "_run_some", lambda *args: calls.append(args) or ran(*args))
    assert submit_all(opened(policy), work) == expected
    assert len(calls) > 3


@pytest.mark.parametrize("file", ["small", "queues", "quota", "made"])
def test_a_journal_of_simulate_replays_without_a_difference(folder, file):
    """Through the command line: nodes, queues with nodes, quota alone, and the work that comes with the program."""
    files = {"small": SMALL, "queues": QUEUES, "quota": QUOTA_ALONE}
    if file in files:
        Path("it.yaml").write_text(files[file])
    ran("simulate", *(["it.yaml"] if file in files else []), "--journal", "run.db")
    written = JournalFile.open(Path("run.db"))
    again = replay(written.steps())
    kept = written.checkpoint()
    assert again.steps == len(written) > 1
    assert again.difference is None
    assert kept is not None
    assert ClusterState.load(kept.state).digest() == again.state.digest()
    written.close()
