"""The judge counts what the engine decides: the same starts, for any jobs, capacity, order and burst."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared import shared
from tidegate.demand.time_zone import Calendar
from tidegate.model.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tidegate.planning.capacity import SHUT, constant
from tidegate.planning.capacity_replay import CapacityReplayer, QueueOrder, ReplaySpan
from tidegate.planning.engine_check import confirm, replay_in_twin
from tidegate.planning.kernels.replay import NEVER, BurstRule, Steps
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import WaitTolerance

GPU = 1000


def arrivals(rows: list[tuple[int, int, int]], calendar: Calendar = Calendar.NONE) -> PlanJobs:
    """Jobs of (seconds, GPUs, seconds)."""
    rows = sorted(rows, key=lambda row: row[0])
    at, gpus, run = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return PlanJobs(at * SECOND_MS, run * SECOND_MS, gpus * GPU, np.ones(len(at), np.int64), calendar)


job_rows = st.lists(
    st.tuples(st.integers(0, 4_000), st.sampled_from([1, 1, 1, 2, 4, 8]), st.integers(0, 3_000)),
    min_size=1,
    max_size=25,
)
steps_of_time = st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 16)), max_size=4)
valves = st.one_of(
    st.just(SHUT),
    st.builds(
        BurstRule,
        st.sampled_from([0, 60_000, 1_200_000]),
        st.sampled_from([0, 1_000, 300_000]),
        st.sampled_from([0, 600_000]),
        st.sampled_from([1000, 2000, 8000]),
    ),
)


def steps(first: int, rows: list[tuple[int, int]], ceiling: int) -> Steps:
    """Capacity that changes at some seconds; in the end everybody fits."""
    rows = sorted(dict(rows).items())
    at = [-NEVER, *(second * SECOND_MS for second, _ in rows), 100_000 * SECOND_MS]
    level = [first, *(gpus for _, gpus in rows), 8]
    return Steps(np.array(at), np.array(level, np.int64) * GPU, np.full(len(at), ceiling * GPU))


@settings(deadline=None, max_examples=60)
@given(job_rows, st.integers(0, 12), steps_of_time, valves, st.integers(0, 20), st.sampled_from(QueueOrder))
def test_judge_and_engine_start_everybody_at_the_same_time(rows, first, changes, burst_rule, ceiling, order):
    # A job of no duration bursts for no time if capacity does not linger: no change of a policy can express that.
    assume(burst_rule == SHUT or burst_rule.linger_ms or all(run_s for _, _, run_s in rows))
    assert confirm(arrivals(rows), order, steps(first, changes, ceiling), burst_rule).differing_starts == 0


@pytest.mark.parametrize("order", QueueOrder)
@pytest.mark.parametrize("name", ["itp/cluster04.csv", "itp/cluster07.csv"])
def test_judge_and_engine_agree_on_real_jobs(name, order):
    rows = [line.split(",") for line in shared(f"traces/{name}").read_text().splitlines()[1:700]]
    jobs = arrivals([(int(at), int(gpus), int(run)) for _, at, run, gpus in rows])
    start = int(jobs.at_ms[0])
    tight = steps(80, [(start // SECOND_MS + 90_000, 110)], 64)
    for capacity, burst_rule in (
        (tight, SHUT),
        (tight, BurstRule(40 * MINUTE_MS, 10 * MINUTE_MS, 10 * MINUTE_MS, 8 * GPU)),
    ):
        assert confirm(jobs, order, capacity, burst_rule).differing_starts == 0


# -- burst, against a plain telling of its rule ------------------------------------------------------------------------


def tell_burst(jobs: PlanJobs, level: int, ceiling: int, burst_rule: BurstRule) -> list[int]:
    """First come, first served without overtaking, burst included, told second by second and without any cleverness."""
    start, running, waiting = [-1] * jobs.total, [], []
    ready, launches, idle_since, came = 0, [], None, 0
    for now in range(0, 40_000 * SECOND_MS, SECOND_MS):
        ready += sum(size for at, size in launches if at <= now)
        launches = [(at, size) for at, size in launches if at > now]
        while running and running[0][0] <= now:
            heapq.heappop(running)
        while came < jobs.total and jobs.at_ms[came] <= now:
            waiting.append(came)
            came += 1
        used = sum(size for _, size in running)
        while waiting and used + jobs.gpus_milli[waiting[0]] <= level + ready:
            job = waiting.pop(0)
            start[job], used = now, used + int(jobs.gpus_milli[job])
            heapq.heappush(running, (now + int(jobs.run_ms[job]), int(jobs.gpus_milli[job])))
        due = sum(int(jobs.gpus_milli[job]) for job in waiting if jobs.at_ms[job] + burst_rule.patience_ms <= now)
        coming = sum(size for _, size in launches)
        if due:
            wanted = -(-(used + due - level) // burst_rule.step_milli) * burst_rule.step_milli
            more = min(wanted, ceiling) - ready - coming
            if more > 0:
                launches.append((now + burst_rule.launch_ms, more))
        idle = min(ready, level + ready - used) // burst_rule.step_milli * burst_rule.step_milli
        if waiting or idle <= 0:
            idle_since = None
        else:
            idle_since = now if idle_since is None else idle_since
            if now >= idle_since + burst_rule.linger_ms:
                ready, idle_since = ready - idle, None
        if came == jobs.total and not waiting:
            break
    return start


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 900), st.sampled_from([1, 2, 4]), st.integers(1, 900)), min_size=1, max_size=12),
    st.integers(0, 4),
    st.integers(4, 12),
    st.builds(
        BurstRule,
        st.sampled_from([0, 60_000, 200_000]),
        st.sampled_from([1_000, 90_000]),
        st.sampled_from([1_000, 60_000]),
        st.sampled_from([1000, 2000]),
    ),
)
def test_burst_follows_its_rule(rows, level, ceiling, burst_rule):
    jobs = arrivals(rows)
    counted = CapacityReplayer(jobs, QueueOrder.STRICT).replay(constant(level * GPU, 0, ceiling * GPU), burst_rule)
    assert counted.start_ms.tolist() == tell_burst(jobs, level * GPU, ceiling * GPU, burst_rule)


# -- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.compiles
@settings(deadline=None, max_examples=40)
@given(job_rows, st.integers(1, 12), steps_of_time, valves, st.sampled_from(QueueOrder))
def test_compiled_and_plain_count_the_same(rows, first, changes, burst_rule, order):
    pytest.importorskip("numba")
    jobs, capacity = arrivals(rows), steps(first, changes, 8)
    plain = CapacityReplayer(jobs, order, compiled=False).replay(capacity, burst_rule)
    compiled = CapacityReplayer(jobs, order, compiled=True).replay(capacity, burst_rule)
    for one, other in zip(plain._replace(jobs=None), compiled._replace(jobs=None), strict=True):
        assert np.array_equal(one, other)


def test_what_runs_on_after_a_window_is_held_and_paid():
    jobs = arrivals([(0, 8, 7200)])
    capacity = Steps(np.array([-NEVER, HOUR_MS]), np.array([8000, 2000]), np.zeros(2, np.int64))
    outcome = CapacityReplayer(jobs).replay(capacity, span=ReplaySpan(0, 3 * HOUR_MS))
    assert (outcome.owned_gpu_h, outcome.held_gpu_h, outcome.above_gpu_h) == (8 + 2 + 2, 8 + 8 + 2, 6)


def test_burst_is_held_from_its_launch_until_it_has_lingered():
    burst_rule = BurstRule(10 * MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, 8000)
    jobs = arrivals([(0, 2, 3600), (24 * 3600, 1, 1)])
    outcome = CapacityReplayer(jobs).replay(constant(1000, 0, 8000), burst_rule, ReplaySpan(0, 24 * HOUR_MS))
    assert outcome.start_ms[0] == 15 * MINUTE_MS
    assert outcome.burst_gpu_h == pytest.approx(8 * (5 + 60 + 15) / 60)


def test_a_gang_wider_than_capacity_never_starts_and_nothing_holds():
    outcome = CapacityReplayer(arrivals([(0, 8, 60), (10, 1, 60)])).replay(constant(4 * GPU, 0))
    assert outcome.start_ms.tolist() == [-1, 10 * SECOND_MS]
    assert not outcome.holds(WaitTolerance(HOUR_MS))


def test_waits_are_ranked_so_that_the_share_is_not_exceeded():
    waits = CapacityReplayer(arrivals([(at, 1, 100) for at in range(20)])).replay(constant(1 * GPU, 0))
    assert waits.wait_at(950) == sorted(waits.wait_ms.tolist())[18]
    assert (waits.wait_ms <= waits.wait_at(950)).mean() >= 0.95


def test_the_twin_lifts_quota_when_the_policy_changes():
    jobs = arrivals([(0, 4, 100), (1, 4, 100)])
    starts = replay_in_twin(jobs, QueueOrder.OVERTAKE, np.array([0, 50 * SECOND_MS]), np.array([4 * GPU, 8 * GPU]))
    assert starts.tolist() == [0, 50 * SECOND_MS]
