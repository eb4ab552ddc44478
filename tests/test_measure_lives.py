"""Lives, stays and capacity: small journals through the real engine, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tidegate.engine.step import step
from tidegate.journal.store import JournalStep
from tidegate.journal.writer import Journal
from tidegate.measure.allocations import allocations_of
from tidegate.measure.capacity import capacity_of
from tidegate.measure.job_records import Fate, collect_job_records
from tidegate.measure.timeline import Timeline, lay_flat
from tidegate.model.decisions import NO_DECISIONS, NO_REFUSALS, StepResult
from tidegate.model.facts import FactKind, Facts, WriteOutcome
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.struct import resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work, Workload
from tidegate.state.cluster import ClusterState

POLICY = Policy(placement=PlacementRule(kind=PlacementKind.FIRST_FIT))

Tell = Callable[[Facts], None]


def node(name: str, gpus: int = 2, *, ready: bool = True) -> Node:
    capacity = resources({"cpu": 64_000, "memory": 65_536, "pods": 100})
    return Node(name=name, shape=NodeShape(name="s", gpu_count=gpus, capacity=capacity), ready=ready)


def work(pods: int = 1, gpus: int = 1, **fields: object) -> Work:
    gpu = GpuRequest(share=Share.WHOLE, count=gpus) if gpus else GpuRequest()
    return Work(pod_sets=(PodSet(count=pods, gpu=gpu, request=resources({"cpu": 1000})),), **fields)


def opening(*nodes: Node) -> Tell:
    def tell(facts: Facts) -> None:
        facts.policy(POLICY)
        for number, each in enumerate(nodes):
            facts.node(number, each)

    return tell


def submit(number: int, asks: Work, at_ms: int, name: str = "") -> Tell:
    return lambda facts: facts.submit(number, Workload(id=name or f"w{number}", work=asks, submitted_ms=at_ms))


def say(kind: FactKind, at_ms: int, subject: int, **fields: object) -> Tell:
    return lambda facts: facts.add(kind, at_ms, subject, **fields)


def journal_of(*moments: tuple[int, list[Tell]]) -> list[JournalStep]:
    """Tell the engine what happened and write down what it did."""
    state, journal = ClusterState(), Journal()
    for now_ms, tells in moments:
        facts = Facts()
        for tell in tells:
            tell(facts)
        events = facts.batch()
        journal.append(now_ms, events, step(state, events, now_ms))
    return journal.steps


FINISHED, GONE, STARTED, FAILED = (
    FactKind.WORKLOAD_FINISHED,
    FactKind.POD_GONE,
    FactKind.POD_STARTED,
    FactKind.POD_FAILED,
)


def two_jobs() -> list[JournalStep]:
    """w0 takes both GPUs from 0 to 10 s; w1 comes at 1 s, waits, runs from 10 to 15.5 s, told at 16 s."""
    use = say(FactKind.USE_OBSERVED, 10_000, 0, arg=10_000, values=(8_000.0, 20_000.0))
    return journal_of(
        (0, [opening(node("a")), submit(0, work(gpus=2, queue="x"), 0)]),
        (1_000, [say(STARTED, 500, 0), submit(1, work(queue="y", priority=3), 1_000)]),
        (10_000, [use, say(FINISHED, 10_000, 0)]),
        (16_000, [say(STARTED, 10_100, 1), say(FINISHED, 15_500, 1)]),
    )


def test_two_jobs_in_line() -> None:
    lives = collect_job_records(two_jobs())
    assert lives.ids == ["w0", "w1"]
    assert [lives.queues[q] for q in lives.queue] == ["x", "y"]
    assert (lives.start_ms, lives.end_ms) == (0, 16_000)
    assert lives.priority.tolist() == [0, 3]
    assert lives.pods.tolist() == [1, 1]
    assert lives.gpu_milli.tolist() == [2000, 1000]
    assert lives.first_placed_ms.tolist() == [0, 10_000]
    assert lives.started_ms.tolist() == [500, 10_100]
    assert lives.finished_ms.tolist() == [10_000, 15_500]
    assert lives.fate.tolist() == [Fate.FINISHED, Fate.FINISHED]
    assert lives.waited_ms.tolist() == [0, 9_000]
    assert lives.held_milli_ms.tolist() == [20_000_000, 5_500_000]
    assert lives.busy_gpu_ms.tolist() == [8_000, 0]
    assert lives.observed_gpu_ms.tolist() == [20_000, 0]
    assert lives.evictions.tolist() == [0, 0]
    assert lives.lost_milli_ms.tolist() == [0, 0]


@pytest.mark.parametrize(("checkpoint_every_ms", "lost"), [(0, 4_000 + 5_500), (3_000, 1_000 + 2_500), (9_999, 9_500)])
def test_a_gang_that_loses_a_pod(checkpoint_every_ms: int, lost: int) -> None:
    """Pod 0 fails at 4 s and the gang is evicted; pod 1 is gone at 5.5 s, told at 6 s; both run again until 16 s."""
    gang = work(pods=2, gpus=2, checkpoint_every_ms=checkpoint_every_ms)
    lives = collect_job_records(
        journal_of(
            (0, [opening(node("a"), node("b")), submit(0, gang, 0)]),
            (1_000, [say(STARTED, 500, 0)]),
            (4_000, [say(FAILED, 4_000, 0, pod=0)]),
            (6_000, [say(GONE, 5_500, 0)]),
            (16_000, [say(FINISHED, 16_000, 0)]),
        )
    )
    assert lives.evictions.tolist() == [1]
    assert lives.waited_ms.tolist() == [500]
    assert lives.held_milli_ms.tolist() == [2_000 * (4_000 + 5_500 + 2 * 10_000)]
    # Saves count from 500 ms on: 3.5 s of work have one full stretch of 3 s.
    assert lives.lost_milli_ms.tolist() == [2_000 * lost]
    assert lives.started_ms.tolist() == [500]


def test_every_fate() -> None:
    """w0 runs, w1 waits, w2 is cancelled while it waits, w3 while it runs, w4 can never run."""
    broken = Work(pod_sets=(PodSet(count=0),))
    lives = collect_job_records(
        journal_of(
            (0, [opening(node("a")), submit(0, work(), 0), submit(3, work(), 0)]),
            (1_000, [submit(1, work(), 1_000), submit(2, work(gpus=2), 1_000), submit(4, broken, 1_000)]),
            (3_000, [say(FactKind.WORKLOAD_CANCELLED, 2_500, 2), say(FactKind.WORKLOAD_CANCELLED, 2_500, 3)]),
            (4_000, []),
        )
    )
    fates = [Fate(fate) for fate in lives.fate.tolist()]
    assert fates == [Fate.RUNNING, Fate.WAITING, Fate.CANCELLED, Fate.CANCELLED, Fate.REJECTED]
    assert lives.waited_ms.tolist() == [0, 3_000, 1_500, 0, 0]
    assert lives.held_milli_ms.tolist() == [4_000_000, 0, 0, 4_000_000, 0]  # nobody said that w3 is gone
    assert lives.finished_ms.tolist() == [-1] * 5
    assert lives.first_placed_ms.tolist() == [0, -1, -1, 0, -1]
    assert lives.evictions.sum() == 0, "to be cancelled is no eviction"
    assert lives.lost_milli_ms.sum() == 0
    assert lives.pods.tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("what", "held_ms"),
    [
        (say(FactKind.NODE_REMOVED, 3_000, 0), 3_000),
        (say(FactKind.DEVICE_FAILED, 3_000, 0, arg=0), 3_000),
        (say(FactKind.DEVICE_FAILED, 3_000, 0, arg=1), 10_000),
        (say(FactKind.OUTCOME, 3_000, 0, arg=int(WriteOutcome.FAILED)), 3_000),
        (say(FactKind.OUTCOME, 3_000, 0, arg=int(WriteOutcome.UNKNOWN)), 10_000),
        (say(FactKind.NODE_REMOVED, 3_000, 7), 10_000),
    ],
)
def test_a_stay_ends_when_its_place_is_lost(what: Tell, held_ms: int) -> None:
    steps = journal_of((0, [opening(node("a")), submit(0, work(), 0)]), (3_000, [what]), (10_000, []))
    first = allocations_of(lay_flat(steps))
    assert first.until_ms[0] - first.from_ms[0] == held_ms


def test_a_node_that_comes_late_and_fails_in_parts() -> None:
    """2 GPUs for 10 s; 4 more from 2 s on, of which one fails from 4 to 5 s; none of them from 8 s on."""
    steps = journal_of(
        (0, [opening(node("a"))]),
        (2_000, [lambda facts: facts.node(1, node("b", 4), 2_000)]),
        (5_000, [say(FactKind.DEVICE_FAILED, 4_000, 1, arg=3), say(FactKind.DEVICE_RECOVERED, 5_000, 1, arg=3)]),
        (8_000, [lambda facts: facts.node(1, node("b", 4, ready=False), 8_000, changed=True)]),
        (10_000, [say(FactKind.NODE_REMOVED, 9_000, 1)]),
    )
    capacity = capacity_of(lay_flat(steps))
    assert capacity.milli_ms == 1_000 * (2 * 10_000 + 4 * 6_000 - 1_000)
    assert (capacity.nodes, capacity.gpus) == (2, 6)


def test_a_changed_workload() -> None:
    """What waits takes its new shape; what runs keeps its pods but takes a new queue."""
    larger, moved = work(gpus=2), work(queue="z")

    def change(number: int, to: Work) -> Tell:
        def tell(facts: Facts) -> None:
            facts._payloads.append(to)
            facts.add(FactKind.WORKLOAD_CHANGED, 1_000, number, arg=len(facts._payloads) - 1)

        return tell

    lives = collect_job_records(
        journal_of(
            (0, [opening(node("a")), submit(0, work(), 0), submit(1, work(gpus=2), 0)]),
            (1_000, [change(0, larger), change(1, work())]),
            (2_000, [change(0, moved)]),
            (4_000, [say(FINISHED, 4_000, 0), say(FINISHED, 4_000, 1)]),
        )
    )
    assert lives.gpu_milli.tolist() == [1_000, 1_000]
    assert [lives.queues[q] for q in lives.queue] == ["z", "default"]
    assert lives.held_milli_ms.tolist() == [4_000_000, 3_000_000]


def test_pods_that_start_one_by_one() -> None:
    lives = collect_job_records(
        journal_of(
            (0, [opening(node("a")), submit(0, work(pods=2), 0), submit(1, work(pods=2, gpus=0), 0)]),
            (9_000, [say(STARTED, 3_000, 0, pod=1), say(STARTED, 2_000, 0, pod=0), say(STARTED, 1_000, 1, pod=0)]),
        )
    )
    assert lives.started_ms.tolist() == [3_000, -1]


def test_nothing_at_all() -> None:
    lives = collect_job_records([])
    assert len(lives.number) == 0
    assert lives.queues == ()
    assert capacity_of(lay_flat([])).milli_ms == 0


def test_what_is_said_about_strangers_is_left_out() -> None:
    steps = journal_of((0, [opening(node("a"))]), (5, [say(FINISHED, 5, 3), say(STARTED, 5, 3, pod=0)]))
    assert len(collect_job_records(steps).number) == 0


def test_a_long_journal_is_joined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = collect_job_records(two_jobs())
    monkeypatch.setattr("tidegate.measure.timeline._MOST_PENDING", 1)
    parts = collect_job_records(two_jobs())
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one, other)


def test_a_timeline_can_be_read_while_it_grows() -> None:
    timeline = Timeline()
    nothing = StepResult(NO_DECISIONS, NO_REFUSALS, None, 1)
    timeline.append(5, Facts().batch(), nothing)
    assert (timeline.flat().start_ms, timeline.flat().end_ms) == (5, 5)
    timeline.append(9, Facts().batch(), nothing)
    assert (timeline.flat().start_ms, timeline.flat().end_ms) == (5, 9)
