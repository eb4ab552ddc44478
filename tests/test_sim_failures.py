"""Nodes and pods of the twin that fail: nothing works, is checkpointed or finishes where it is no more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import fleet
from queue_twins import planned as queue_planned
from test_sim import HOUR, by_id, planned
from tidegate.engine.run import run
from tidegate.journal.writer import Journal
from tidegate.measure.job_records import collect_job_records
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.hardware import Node
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.simulation import PlannedWorkload, TwinOptions
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import _NODE_FAILS, SimWorld
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

MINUTE = 60_000
NEVER = 10**14  # nodes may fail, but not by themselves within any run here


def play(work, pool="1x h100x8", *, fails=(), order=OrderKind.FIFO, cycle_ms=1, **options) -> Journal:
    """Run work on nodes of which some, by place, fail at a time."""
    policy = Policy(
        order=OrderRule(kind=order), placement=PlacementRule(kind=PlacementKind.FIRST_FIT), cycle_ms=cycle_ms
    )
    made = TwinOptions(**{"node_fails_every_ms": NEVER, "node_repair_ms": HOUR, "observe_every_ms": 0, **options})
    world = SimWorld(fleet(pool), jobs_of(work), policy, made)
    for at_ms, node in fails:
        world._events.put(at_ms, _NODE_FAILS, node)
        world._node_fails_ms[node] = at_ms
    state, journal = ClusterState(), Journal()
    run(state, world, journal, lambda state: world.is_over() or state.now_ms > 2_000 * HOUR)
    check(state)
    return journal


def estimated(work: PlannedWorkload, estimate_ms: int) -> PlannedWorkload:
    """The same work with an estimate."""
    return replace(work, workload=replace(work.workload, estimate_ms=estimate_ms))


def ends(journal: Journal) -> tuple[dict[str, int], dict[str, int]]:
    """When each finished, and how often it was evicted."""
    lives = collect_job_records(journal.steps)
    return by_id(lives, "finished_ms"), by_id(lives, "evictions")


@pytest.mark.parametrize("cycle_ms", [1, 1_000, MINUTE, HOUR])
@pytest.mark.parametrize("before_ms", [0, 1, 17_000])
def test_a_job_does_not_finish_on_a_node_that_died(cycle_ms, before_ms):
    """The node dies as the job would be done, or shortly before: both may be told in one batch."""
    done_ms = int(1.005 * HOUR)
    journal = play([planned("j", "1x8", hours=1.005)], fails=[(done_ms - before_ms, 0)], cycle_ms=cycle_ms)
    finished, evictions = ends(journal)
    again_ms = -(-(done_ms - before_ms + HOUR) // cycle_ms) * cycle_ms  # the node is back, and the cycle has come
    assert evictions == {"j": 1}
    assert finished == {"j": again_ms + done_ms}


def test_a_job_that_is_done_before_its_node_dies_is_done():
    finished, evictions = ends(play([planned("j", "1x8")], fails=[(HOUR + 1, 0)], cycle_ms=HOUR))
    assert (finished, evictions) == ({"j": HOUR}, {"j": 0})


@pytest.mark.parametrize("fails", [[(HOUR - 2, 0)], [(HOUR - 2, 1)], [(HOUR - 2, 0), (HOUR - 1, 1)]])
def test_a_gang_does_not_finish_when_a_part_of_it_died(fails):
    """What it checkpointed is kept, up to the first death; each pod that died is told of once."""
    work = [planned("g", "2x8", checkpoint_every_ms=10 * MINUTE)]
    journal = play(work, "2x h100x8", fails=fails, cycle_ms=HOUR)
    finished, evictions = ends(journal)
    assert evictions == {"g": 1}
    assert finished == {"g": 2 * HOUR + 10 * MINUTE}
    kinds = np.concatenate([step.events.kind for step in journal.steps])
    assert np.count_nonzero(kinds == FactKind.POD_FAILED) == len(fails)


def test_a_run_is_over_when_all_work_is_whatever_nodes_are_down():
    """Of thirty nodes some are always down: nobody waits for a time at which none is."""
    journal = play([planned("j", "1x8")], "30x h100x8", node_fails_every_ms=40 * HOUR, node_repair_ms=20 * HOUR)
    lives = collect_job_records(journal.steps)
    assert lives.end_ms == lives.finished_ms[0] < 20 * HOUR


def test_work_that_no_repair_helps_waits_in_vain():
    """It fits on no node. That shows at the latest when many have failed and come back."""
    work = [planned("j", "1x8"), planned("large", "1x16")]
    journal = play(work, "30x h100x8", node_fails_every_ms=40 * HOUR, node_repair_ms=20 * HOUR)
    assert ends(journal)[0] == {"j": HOUR, "large": -1}
    assert len(journal.steps) < 120
    small = play(work, "3x h100x8", fails=[(HOUR // 2, 0)], node_repair_ms=9 * HOUR)
    assert small.steps[-1].now_ms < 20 * HOUR  # all are back


def test_work_that_never_began_on_a_dead_node_is_not_started():
    """The node dies while the pods start: they are never told to run."""
    journal = play([planned("j", "1x8")], fails=[(5_000, 0)], start_ms=MINUTE, cycle_ms=2 * MINUTE)
    first = next(step.events for step in journal.steps if (step.events.kind == FactKind.POD_FAILED).any())
    assert FactKind.POD_STARTED not in first.kind
    assert ends(journal)[1] == {"j": 1}


def test_an_idle_tail_is_no_work_that_could_be_saved():
    """25 minutes of work with a checkpoint every ten, and the node dies in the idle hour after it: five are lost."""
    work = [planned("j", "1x8", hours=25 / 60, checkpoint_every_ms=10 * MINUTE, idle_tail_ms=HOUR)]
    finished, _ = ends(play(work, fails=[(50 * MINUTE, 0)]))
    assert finished == {"j": 50 * MINUTE + HOUR + 5 * MINUTE + HOUR}


@pytest.mark.parametrize("fails_ms", [5_000, MINUTE, MINUTE + 1, 7 * MINUTE])
def test_nothing_is_observed_before_it_is_held(fails_ms):
    """The node dies before the order to start work there has arrived, or just then, or later."""
    journal = play([planned("j", "1x8")], fails=[(fails_ms, 0)], api_latency_ms=MINUTE, observe_every_ms=5 * MINUTE)
    use = [
        (int(length), held)
        for step in journal.steps
        for kind, length, (_, held, *_) in zip(
            *(getattr(step.events, c) for c in ("kind", "arg", "values")), strict=True
        )
        if kind == FactKind.USE_OBSERVED
    ]
    assert all(length > 0 and held == 8 * length for length, held in use)
    assert sum(length for length, _ in use) == max(fails_ms - MINUTE, 0) + HOUR
    assert ends(journal)[1] == {"j": 1}


@pytest.mark.parametrize(("latency_ms", "late"), [(0, True), (MINUTE - 1, True), (MINUTE, False), (2 * MINUTE, False)])
def test_work_that_is_over_before_it_is_told_to_go_is_over(latency_ms, late):
    """It is preempted a minute before its end: who is told in time starts again, who is not has finished."""
    low = estimated(planned("low", "1x8", hours=2), 2 * HOUR)
    high = estimated(planned("high", "1x8", at=2 * HOUR - MINUTE + latency_ms, hours=0.001), HOUR // 1000)
    journal = play([low, high], order=OrderKind.SRTF, api_latency_ms=latency_ms)
    finished, evictions = ends(journal)
    kinds = np.concatenate([step.result.decisions.kind for step in journal.steps])
    assert np.count_nonzero(kinds == DecisionKind.PREEMPT) == 1
    assert evictions["low"] == 1
    assert (finished["low"] > 3 * HOUR) is late
    if not late:
        assert finished["low"] == 2 * HOUR + latency_ms


# -- any failures ----------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """A fact or a decision about a workload, or about a node."""

    at_ms: int
    what: str
    subject: int


def told(journal: Journal) -> list[Told]:
    """What happened to nodes and work, in the order it was told."""
    found = []
    for step in journal.steps:
        events, decisions = step.events, step.result.decisions
        for at in range(len(events.kind)):
            kind, at_ms, subject = FactKind(events.kind[at]), int(events.at_ms[at]), int(events.subject[at])
            payload = events.payloads[events.arg[at]] if kind is FactKind.NODE_CHANGED else None
            if isinstance(payload, Node) and not payload.ready:
                found.append(Told(at_ms, "dies", subject))
            elif kind in (FactKind.WORKLOAD_FINISHED, FactKind.POD_FAILED, FactKind.POD_STARTED):
                found.append(Told(at_ms, kind.name, subject))
        for at in range(len(decisions.kind)):
            if decisions.kind[at] == DecisionKind.PLACE:
                found.append(Told(step.now_ms, f"on {decisions.node[at]}", int(decisions.workload[at])))
            elif decisions.kind[at] in (DecisionKind.EVICT, DecisionKind.PREEMPT):
                found.append(Told(step.now_ms, "leaves", int(decisions.workload[at])))
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8), st.sampled_from([0, 3, 20])), min_size=1, max_size=8),
    st.sampled_from([1, MINUTE, 7 * MINUTE, HOUR]),
    st.sampled_from([0, 0, 3 * MINUTE]),
    st.sampled_from([0, 10 * MINUTE]),
    st.integers(0, 10_000),
)
def test_whoever_finishes_has_worked_long_enough_on_living_nodes(work, cycle_ms, latency_ms, checkpoint_ms, seed):
    """By what the journal tells alone: what is done counts until the first death of a node it is on."""
    jobs = [
        planned(
            f"w{n}", f"{pods}x8", at=at * HOUR // 4, hours=2, checkpoint_every_ms=checkpoint_ms,
            fails_every_ms=often * HOUR,
        )
        for n, (pods, at, often) in enumerate(work)
    ]  # fmt: skip
    journal = play(
        jobs, "3x h100x8", seed=seed, cycle_ms=cycle_ms, api_latency_ms=latency_ms, node_fails_every_ms=5 * HOUR,
        node_repair_ms=HOUR // 2,
    )  # fmt: skip
    numbers = {f"w{n}": rank for rank, n in enumerate(sorted(range(len(jobs)), key=lambda n: (work[n][1], n)))}
    left = dict.fromkeys(numbers.values(), 2 * HOUR)
    nodes: dict[int, set[str]] = {}
    since: dict[int, int] = {}  # when its work began, while all its pods live
    for one in told(journal):
        if one.what.startswith("on "):
            nodes.setdefault(one.subject, set()).add(one.what[3:])
            since[one.subject] = one.at_ms + latency_ms
        elif one.what == "dies":
            for number in [number for number, there in nodes.items() if str(one.subject) in there]:
                _stop_work(left, since, number, one.at_ms, checkpoint_ms)
        elif one.what == "WORKLOAD_FINISHED":
            event("finished")
            assert one.subject in since, f"{one} finished though a pod of it was lost"
            assert one.at_ms - since.pop(one.subject) == left[one.subject]
            del nodes[one.subject]
        elif one.what == "POD_FAILED":
            _stop_work(left, since, one.subject, one.at_ms, checkpoint_ms)
        elif one.what == "leaves":
            event("evicted")
            assert one.subject not in since
            del nodes[one.subject]


def _stop_work(left, since, number, at_ms, checkpoint_ms):
    worked = max(at_ms - since.pop(number), 0) if number in since else 0
    left[number] -= worked // checkpoint_ms * checkpoint_ms if checkpoint_ms else 0


@pytest.mark.parametrize("node", [0, 1])
def test_the_use_of_what_is_left_is_that_of_its_own_gpus(node):
    """A pod has eight GPUs, the other one: whichever is lost with its node, the other holds its own until it goes."""
    work = queue_planned("j", "1x8", "1x1")
    options = {"grace_ms": HOUR, "observe_every_ms": HOUR}
    lives = collect_job_records(play([work], "2x h100x8", fails=[(HOUR // 2, node)], **options).steps)
    assert by_id(lives, "evictions") == {"j": 1}
    assert lives.observed_gpu_ms.tolist() == (lives.held_milli_ms / 1000).tolist()
