"""Plans hold the tolerance or say that they do not, and nothing simpler that holds costs less."""

from __future__ import annotations

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from test_planning_judge import arrivals
from tidegate.cli.main import app
from tidegate.config.prices import MICROS, GpuPrices
from tidegate.demand.time_zone import Calendar
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS
from tidegate.planning.capacity import SHUT
from tidegate.planning.capacity_plan import PlanBasis, PlanRecipe, _needed_ceiling, hold_all_week, plan_bands
from tidegate.planning.capacity_replay import CapacityReplayer, QueueOrder, ReplaySpan
from tidegate.planning.floor import floor_gpus, floor_of
from tidegate.planning.holdout import TrialRunner, part_of, try_plan
from tidegate.planning.plan import PlanRequest, make_plan
from tidegate.planning.plan_schema import decode_plan
from tidegate.planning.plan_warnings import fewer_text
from tidegate.planning.tolerance import ReplayedWaits, WaitTolerance

EPOCH_S = 1_750_032_000  # a Monday, 00:00 UTC


def quick_jobs(seed: int = 1, count: int = 1_500):
    """Work that comes one by one, where little wait is tolerated."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(1_200, count)).astype(np.int64)
    run, gpus = rng.lognormal(8, 1, count).astype(np.int64) + 1, rng.choice([1, 2, 4, 8], count)
    return arrivals(list(zip(at.tolist(), gpus.tolist(), run.tolist(), strict=True)))


def weekday_jobs(days: int, calendar: Calendar = Calendar.NONE):
    """60 GPUs on working days, 10 at weekends, nearly all of each hour."""
    rng, rows = np.random.default_rng(2), []
    for day in range(days):
        for hour in range(24):
            rows += [
                ((day * 24 + hour) * 3600 + int(rng.integers(0, 60)), 2, 3_500) for _ in range(30 if day % 7 < 5 else 5)
            ]
    return arrivals(rows)._replace(calendar=calendar)


def plan_of(jobs, recipe: PlanRecipe):
    return make_plan(PlanRequest(jobs=jobs, recipe=recipe, made_by="test", prices_from="assumed"))


# -- the tolerance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_where_burst_comes_too_late_no_less_than_the_floor_is_owned_and_the_plan_holds(seed):
    jobs, recipe = quick_jobs(seed), PlanRecipe(WaitTolerance(3 * MINUTE_MS))
    (batch,) = plan_of(jobs, recipe).classes
    ways = {way.name: way for way in batch.ways}
    assert batch.own_gpus >= batch.floor.gpus == floor_gpus(CapacityReplayer(jobs), recipe.tolerance)
    assert batch.holds
    assert ways["plan"].holds
    assert ways["plan"].cost <= ways["floor"].cost * 1.05
    assert any("comes too late" in sentence for sentence in batch.says)


def falling_csv(path):
    """Four weeks of much work, then five of little."""
    rng, lines = np.random.default_rng(3), ["id,submitted,started,ended,gpus"]
    for hour in range(9 * 168):
        for copy in range(rng.poisson(20 if hour < 4 * 168 else 1)):
            at = EPOCH_S + hour * 3600 + copy
            lines.append(f"j{hour}-{copy},{at},{at},{at + int(rng.exponential(3000)) + 1},2")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_plan_that_breaks_the_tolerance_says_so_everywhere_and_ends_with_1(tmp_path):
    page, out = tmp_path / "plan.html", tmp_path / "plan.json"
    arguments = ["plan", str(falling_csv(tmp_path / "jobs.csv")), "--assume", "tolerance=1h,cold-start=10m"]
    arguments += ["--assume", "residency,prices", "--no-burst", "--html", str(page), "--out", str(out)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"}, prog_name="tidegate")
    assert result.exit_code == 1
    (batch,) = decode_plan(out.read_bytes()).classes
    assert not batch.holds
    assert "breaks the tolerance" in batch.says[0]
    headline = next(line for line in result.stdout.splitlines() if line.startswith("Own "))
    assert "breaks the tolerance" in headline
    assert "fewer" not in headline
    assert page.read_text().count("breaks the tolerance") >= 2


def test_a_plan_that_breaks_the_tolerance_on_trial_is_not_compared_with_those_that_hold():
    trial = try_plan(quick_jobs(), 0.3, PlanRecipe(WaitTolerance(3 * MINUTE_MS)))
    broken = part_of(trial._replace(plan=trial.plan._replace(holds=False, late=0.23)))
    assert broken.ratio_to_clairvoyant is None
    assert broken.saved_against_peak is None
    assert "23 % of the jobs" in broken.says[0]
    assert not any("the plan costs" in sentence or "the plan 0" in sentence for sentence in broken.says)
    assert part_of(trial._replace(plan=trial.plan._replace(holds=True))).saved_against_peak is not None


# -- what it costs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [21, 23, 25, 26])
@pytest.mark.parametrize("burst", [1.6, 2.0, 2.5])
def test_no_plan_costs_more_than_a_constant_level_beside_it_that_holds(days, burst):
    prices = GpuPrices(own_micros=MICROS, window_micros=int(1.5 * MICROS), burst_micros=int(burst * MICROS))
    (batch,) = plan_of(weekday_jobs(days), PlanRecipe(WaitTolerance(HOUR_MS), prices)).classes
    mine, *others = batch.ways
    assert mine.holds
    assert all(mine.cost <= way.cost * 1.001 for way in others if way.holds)


def test_the_day_on_which_the_past_ends_does_not_change_what_is_owned():
    recipe = PlanRecipe(WaitTolerance(HOUR_MS))
    owned = [plan_bands(weekday_jobs(days), days * DAY_MS, recipe).own_gpus for days in (21, 24, 26, 28)]
    assert max(owned) - min(owned) <= 1


@pytest.mark.parametrize(
    ("saved", "says"), [(0.2, "20 % fewer"), (-0.06, "6 % more"), (0.0, "as many"), (0.001, "<1 % fewer")]
)
def test_how_many_fewer_is_never_less_than_nothing(saved, says):
    assert fewer_text(saved) == says
    assert not re.search(r"-\d", fewer_text(saved))


def test_what_is_booked_is_not_owned_in_a_trial_of_working_days_alone():
    jobs = weekday_jobs(33)
    prices = GpuPrices(own_micros=MICROS, window_micros=int(1.2 * MICROS), burst_micros=3 * MICROS)
    recipe = PlanRecipe(WaitTolerance(HOUR_MS), prices)
    runner = TrialRunner(jobs, recipe, ReplaySpan(29 * DAY_MS, 32 * DAY_MS))
    bands = runner.plan_weekly(recipe)
    assert (bands[0].own_gpus, max(bands[0].window_gpus), bands[0].basis) == (10, 60, PlanBasis.SPLIT)
    entry = runner.enter_bands("plan", bands, SHUT)
    hours = 72
    assert entry.cost == pytest.approx(10 * hours + 1.2 * 50 * hours + 3 * entry.above_gpu_h)


def test_weeks_of_the_ceiling_are_those_of_the_jobs_that_count():
    """Work from before anybody watched runs already: it is in no week."""
    rng = np.random.default_rng(1)
    quiet = [(int(at), 1, 60) for at in rng.integers(0, 4 * 7 * 86_400, 800)]
    rush = [(3 * 7 * 86_400 + row, 8, 4 * 3600) for row in range(40)]  # one week is bad
    there = [(-int(at), 1, 60 * 86_400) for at in rng.integers(1, 86_400, 400)]
    ceilings = []
    for rows, own in ((quiet + rush, 1), ([*there, *quiet, *rush], 401)):
        jobs = arrivals(rows)._replace(since_ms=0, until_ms=4 * WEEK_MS)
        recipe = PlanRecipe(WaitTolerance(HOUR_MS), headroom_milli=1000)
        demand = plan_bands(jobs, 4 * WEEK_MS, recipe).demand
        ceilings.append(_needed_ceiling(CapacityReplayer(jobs), 4 * WEEK_MS, recipe, hold_all_week(own, demand)))
    assert ceilings[0] == ceilings[1] >= 8 * len(rush) * 0.7


# -- every size --------------------------------------------------------------------------------------------------------


def test_small_jobs_do_not_hide_large_ones_that_wait():
    rng = np.random.default_rng(0)
    large = [
        (int(at), 8, int(run) + 1)
        for at, run in zip(rng.integers(0, 28 * 86_400, 250), rng.exponential(43_200, 250), strict=True)
    ]
    floors = []
    for count in (0, 500, 4_000):
        small = [(int(at), 1, 60) for at in rng.integers(0, 28 * 86_400, count)]
        jobs = arrivals(large + small)
        floor = floor_of(jobs, WaitTolerance(HOUR_MS), QueueOrder.OVERTAKE, 0)
        floors.append(floor.gpus)
        sizes = {each.size: each for each in floor.outcome.waits(WaitTolerance(HOUR_MS)).by_size()}
        assert sizes["8"].jobs == 250
        assert sizes["8"].late <= 0.05
        (batch,) = plan_of(jobs, PlanRecipe(WaitTolerance(HOUR_MS))).classes
        assert all(part.late_share <= 0.05 for way in batch.ways[:2] for part in way.sizes if part.counts)
    assert floors == sorted(floors)


def test_a_size_with_few_jobs_is_not_held_on_its_own():
    wait_ms = np.array([0] * 400 + [2 * HOUR_MS] * 20)
    few, enough = (np.array([1_000] * (420 - count) + [8_000] * count) for count in (19, 20))
    limit_ms, run_ms = np.full(420, HOUR_MS), np.where(np.arange(420) < 400, HOUR_MS, 1)
    assert ReplayedWaits(wait_ms, limit_ms, few, run_ms).hold(950)
    assert not ReplayedWaits(wait_ms, limit_ms, enough, run_ms).hold(950)


def mondays(short: int):
    """62 jobs of 8 h each Monday at nine; and minutes of work on other days."""
    rng, week, nine = np.random.default_rng(1), 7 * 86_400, 9 * 3600
    rows = [(at * week + nine + int(rng.integers(0, 7200)), 1, 8 * 3600) for at in range(4) for _ in range(62)]
    days = rng.integers(2, 7, short) * 86_400 + rng.integers(0, 4, short) * week
    return arrivals(rows + [(int(day + rng.integers(0, 86_400)), 1, 60) for day in days])


def test_short_jobs_do_not_hide_long_ones_of_the_same_size():
    floors = [floor_gpus(CapacityReplayer(mondays(short)), WaitTolerance(HOUR_MS)) for short in (0, 1_000, 6_000)]
    assert min(floors) >= 0.97 * floors[0]
    (batch,) = plan_of(mondays(6_000), PlanRecipe(WaitTolerance(HOUR_MS), bursts=False)).classes
    assert batch.own_gpus >= 0.97 * floors[0]
    ways = {way.name: way for way in batch.ways}
    assert ways["plan"].late_gpu_hours <= 0.05
    assert ways["p95"].late_share <= 0.05 < ways["p95"].late_gpu_hours
    assert not ways["p95"].holds


def test_one_job_alone_does_not_break_the_tolerance_of_gpu_hours():
    gpus, run_ms = np.full(100, 1_000), np.where(np.arange(100) == 0, 1_000 * HOUR_MS, HOUR_MS)
    wait_ms, limit_ms = np.where(np.arange(100) == 0, 2 * HOUR_MS, 0), np.full(100, HOUR_MS)
    assert ReplayedWaits(wait_ms, limit_ms, gpus, run_ms).hold(950)
    assert not ReplayedWaits(np.where(np.arange(100) < 5, 2 * HOUR_MS, 0), limit_ms, gpus, run_ms).hold(950)
