"""The twin: time, runtimes, failures, and that it is the same every time."""

from __future__ import annotations

import heapq
import os
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import fleet, job
from tidegate.engine.run import run
from tidegate.journal.writer import Journal
from tidegate.measure.job_records import collect_job_records
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.sim.event_queue import EventQueue
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

HOUR = 3_600_000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=60))
def test_the_agenda_gives_back_everything_in_order(puts):
    agenda, heap, got, expected = EventQueue(), [], [], []
    for serial, (at, until) in enumerate(puts):
        agenda.put(at, 1, serial)
        heapq.heappush(heap, (at, serial))
        assert agenda.next_ms() == heap[0][0]
        taken = agenda.take_until(until)
        got += list(zip(taken.at_ms.tolist(), sorted(taken.subject.tolist()), strict=True))
        batch = []
        while heap and heap[0][0] <= until:
            batch.append(heapq.heappop(heap))
        expected += list(zip([at for at, _ in batch], sorted(serial for _, serial in batch), strict=True))
    assert got == expected


def planned(id_, ask, *, at=0, hours=1.0, **run_) -> PlannedWorkload:
    more = {name: run_.pop(name) for name in ("checkpoint_every_ms", "restart_cost_ms") if name in run_}
    workload = job(id_, ask, at=at)
    workload = msgspec.structs.replace(workload, work=msgspec.structs.replace(workload.work, **more))
    return PlannedWorkload(workload=workload, run=RunProfile(runtime_ms=int(hours * HOUR), **run_))


def simulate(work, nodes=None, *, order="fifo", cycle_ms=1_000, **options):
    policy = Policy(
        order=OrderRule(kind=OrderKind(order)), placement=PlacementRule(kind=PlacementKind.FIRST_FIT), cycle_ms=cycle_ms
    )
    world = SimWorld(nodes or fleet("1x h100x8"), jobs_of(work), policy, TwinOptions(**options))
    state, journal = ClusterState(), Journal()
    run(state, world, journal, lambda _: world.is_over())
    check(state)
    return collect_job_records(journal.steps), journal, state


def by_id(lives, name):
    return {id_: int(value) for id_, value in zip(lives.ids, getattr(lives, name), strict=True)}


def test_work_loads_runs_and_idles_and_the_next_one_follows_at_once():
    work = [
        planned("a", "1x8", load_ms=HOUR, idle_tail_ms=HOUR, busy_milli=500),
        planned("b", "1x8", at=1),
    ]
    lives, _, _ = simulate(work, observe_every_ms=HOUR)
    assert by_id(lives, "finished_ms") == {"a": 3 * HOUR, "b": 4 * HOUR}
    assert by_id(lives, "busy_gpu_ms") == {"a": 8 * HOUR // 2, "b": 8 * HOUR}
    assert by_id(lives, "observed_gpu_ms") == {"a": 3 * 8 * HOUR, "b": 8 * HOUR}


def test_latency_start_and_grace_take_their_time():
    lives, _, _ = simulate([planned("a", "1x8")], api_latency_ms=2_000, start_ms=30_000)
    assert by_id(lives, "started_ms") == {"a": 32_000}
    assert by_id(lives, "finished_ms") == {"a": HOUR + 32_000}


def test_a_failed_gang_goes_on_from_its_checkpoint():
    work = [planned("g", "2x4", hours=20, fails_every_ms=12 * HOUR, checkpoint_every_ms=HOUR, restart_cost_ms=60_000)]
    lives, _, _ = simulate(work, seed=1)
    evictions = by_id(lives, "evictions")["g"]
    assert evictions >= 1
    worked = by_id(lives, "finished_ms")["g"] / HOUR
    assert 20 < worked <= 20 + evictions * (1 + 1 / 60) + 0.1


def test_without_checkpoints_everything_is_done_again():
    work = [planned("g", "1x8", hours=4, fails_every_ms=6 * HOUR)]
    lives, _, _ = simulate(work, seed=2)
    evictions = by_id(lives, "evictions")["g"]
    assert evictions >= 1
    assert by_id(lives, "finished_ms")["g"] > 4 * HOUR


def test_nodes_fail_and_come_back_even_when_there_are_more_of_them_than_jobs():
    work = [planned("g", "2x8", hours=50, checkpoint_every_ms=HOUR)]
    lives, journal, _ = simulate(work, fleet("4x h100x8"), seed=1, node_fails_every_ms=40 * HOUR, node_repair_ms=HOUR)
    assert by_id(lives, "evictions")["g"] >= 1
    assert by_id(lives, "finished_ms")["g"] > 50 * HOUR
    assert len(journal.steps) > 4


def test_empty_cycles_are_jumped_over():
    _, journal, _ = simulate([planned("a", "1x8", hours=1000)], observe_every_ms=0)
    assert len(journal.steps) <= 4


@pytest.mark.parametrize(("busy", "swing"), [(500, 1_000), (800, 900), (900, 1_500), (0, 500)])
def test_how_busy_work_was_does_not_depend_on_how_often_it_is_looked_at(busy, swing):
    at = (np.arange(240_000) + 0.5) / 24_000  # ten days, in thousandths of an hour
    shares = np.clip(busy / 1000 * (1 + swing / 1000 * np.cos(2 * np.pi * (at - 14 / 24))), 0, 1)
    for observe_every_ms in (HOUR // 6, HOUR, 7 * HOUR, 24 * HOUR, 99 * HOUR):
        work = [planned("a", "1x8", hours=240, busy_milli=busy, daily_swing_milli=swing)]
        lives, _, _ = simulate(work, observe_every_ms=observe_every_ms)
        assert lives.busy_gpu_ms[0] / lives.observed_gpu_ms[0] == pytest.approx(float(shares.mean()), abs=1e-6)


def test_work_that_never_fits_does_not_keep_the_twin_alive():
    lives, _, _ = simulate([planned("a", "1x16"), planned("b", "1x8")])
    assert by_id(lives, "finished_ms")["a"] == -1
    assert by_id(lives, "finished_ms")["b"] == HOUR


def test_shortest_first_runs_on_the_twin_too():
    work = [planned("long", "1x8", hours=5, checkpoint_every_ms=60_000), planned("short", "1x8", at=HOUR)]
    work[0] = msgspec.structs.replace(work[0], workload=msgspec.structs.replace(work[0].workload, estimate_ms=5 * HOUR))
    work[1] = msgspec.structs.replace(work[1], workload=msgspec.structs.replace(work[1].workload, estimate_ms=HOUR))
    lives, _, _ = simulate(work, order="srtf", grace_ms=10_000)
    finished = by_id(lives, "finished_ms")
    assert finished["short"] < finished["long"]
    assert by_id(lives, "evictions")["long"] == 1


@pytest.mark.parametrize("order", ["srtf", "srsf"])
def test_work_of_unknown_length_is_not_taken_for_short(order):
    """Without estimates nothing says that to preempt would help: it goes as in the order of submission."""
    rng = np.random.default_rng(3)
    hours = np.round(rng.exponential(2, 60), 3) + 0.01
    at = np.cumsum(rng.exponential(0.15, 60) * HOUR).astype(int).tolist()
    work = [planned(f"j{n:02d}", "1x2", at=at[n], hours=float(hours[n])) for n in range(60)]
    lives, _, _ = simulate(work, fleet("2x h100x8"), order=order)
    assert lives.evictions.sum() == 0
    same, _, _ = simulate(work, fleet("2x h100x8"))
    assert by_id(lives, "finished_ms") == by_id(same, "finished_ms")


_SCRIPT = """
import sys; sys.path[:0] = ["tests", "bench"]
import crash
from tidegate.journal.writer import Journal
print(crash.drive(Journal(), crash.day_of_work()))
"""


def test_two_interpreters_with_different_hash_seeds_give_the_same_digest():
    digests = set()
    for seed in ("1", "271828"):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert len(digests.pop()) == 32


@pytest.mark.parametrize("cycle_ms", [1, 1_000, 60_000])
def test_the_cycle_is_a_parameter_and_nothing_is_lost_by_it(cycle_ms):
    rng = np.random.default_rng(5)
    work = [
        planned(f"w{i:03d}", "1x2", at=int(rng.integers(0, HOUR)), hours=float(rng.uniform(0.1, 1))) for i in range(60)
    ]
    lives, _, _ = simulate(work, cycle_ms=cycle_ms)
    assert (lives.finished_ms >= 0).all()
