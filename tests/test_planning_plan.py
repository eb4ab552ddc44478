"""Plans: the same bytes for the same input, nothing of the future, nothing unsigned, on trial beside a clairvoyant."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plan_holdout
from shared import shared
from test_planning_judge import GPU, arrivals
from tidegate.config.prices import ASSUMED_PRICES, MICROS, GpuPrices
from tidegate.demand.tables import JOBS, RowOrigin, Tables
from tidegate.model.units import DAY_MS, HOUR_MS, WEEK_MS
from tidegate.planning.capacity import HOURS
from tidegate.planning.capacity_plan import PlanRecipe, plan_bands
from tidegate.planning.holdout import try_plan
from tidegate.planning.plan import Holdout, PlanRequest, make_plan
from tidegate.planning.plan_inputs import Assumption, Unsigned, UnsignedAssumptionError, sign
from tidegate.planning.plan_schema import decode_plan, encode_plan
from tidegate.planning.replay_jobs import NO_GPUS, NO_RUNTIME, SERVES, known_at, plan_jobs_of
from tidegate.planning.tolerance import WaitTolerance
from tidegate.sources.options import Format

RECIPE = PlanRecipe(WaitTolerance(HOUR_MS))


def tidal_jobs(weeks: int = 6, seed: int = 1):
    """Jobs by day and fewer by night, at a level that changes from week to week."""
    rng = np.random.default_rng(seed)
    rows = []
    for day in range(7 * weeks):
        for hour in range(24):
            level = 4.0 if 8 <= hour < 20 else 1.0
            for _ in range(rng.poisson(level * (1 + 0.3 * (day // 7 % 2)))):
                at = (day * 24 + hour) * 3600 + int(rng.integers(0, 3600))
                rows.append((at, int(rng.choice([1, 1, 2, 4, 8])), int(rng.exponential(5_000)) + 60))
    return arrivals(rows)


def request(jobs=None, **more) -> PlanRequest:
    origins = (RowOrigin("jobs.csv", "csv", "", 1),)
    return PlanRequest(
        jobs=tidal_jobs() if jobs is None else jobs,
        recipe=RECIPE,
        made_by="test",
        prices_from="assumed",
        origins=origins,
    )._replace(**more)


# -- the document ------------------------------------------------------------------------------------------------------


def test_the_same_input_gives_the_same_bytes():
    first, second = (encode_plan(make_plan(request(holdout=Holdout(1 / 3, RECIPE)))) for _ in range(2))
    assert first == second
    assert encode_plan(decode_plan(first)) == first


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "expected 'tidegate.plan/5', found 'list'"),
        (b'{"format": "tidegate.plan/9"}', "found 'tidegate.plan/9'"),
        (b'{"format": "tidegate.plan/5"}', "missing required field"),
    ],
)
def test_what_is_no_plan_is_refused(data, says):
    with pytest.raises(ValueError, match=r"\w") as refused:
        decode_plan(data)
    assert says in str(refused.value)


def test_a_plan_says_what_it_is_made_from_and_the_engine_agrees():
    jobs = tidal_jobs()
    plan = make_plan(request(jobs._replace(left_out=(("it serves", 3),))))
    assert plan.origin.sources[0].name == "jobs.csv"
    assert [(left.why, left.jobs) for left in plan.origin.left_out] == [("it serves", 3)]
    (batch,) = plan.classes
    assert batch.twin.jobs >= 600
    assert batch.twin.differing_starts == 0
    ways = {way.name: way for way in batch.ways}
    assert ways["plan"].holds
    assert ways["floor"].holds
    assert ways["peak"].wait_ms == 0
    assert ways["plan"].held_gpu_hours < ways["peak"].held_gpu_hours
    assert batch.burst is not None
    assert batch.burst.patience_ms + 2 * batch.burst.launch_ms == HOUR_MS


def test_windows_of_a_plan_cover_the_week_and_days_are_found():
    (batch,) = make_plan(request()).classes
    covered = sorted(hour for window in batch.windows for first, last in window.hours for hour in range(first, last))
    assert covered == list(range(HOURS))
    assert len(batch.windows) >= 2
    assert batch.own_gpus == min(window.gpus for window in batch.windows)
    booked = {window.name: window.booked_gpus for window in batch.windows}
    assert booked[next(name for name in booked if name.startswith("day"))] > 0


@pytest.mark.parametrize("burst", [1.2, 1.5, 2.5, 6.0])
def test_at_every_edge_one_gpu_more_costs_what_it_saves_or_more(burst):
    prices = GpuPrices(own_micros=MICROS, window_micros=int(min(1.5, burst) * MICROS), burst_micros=int(burst * MICROS))
    (batch,) = make_plan(request(recipe=RECIPE._replace(prices=prices))).classes
    edges = {edge.name: edge for edge in batch.edges}
    assert edges["own"].costs == HOURS
    assert all(edge.saves <= edge.costs * (1 + 1e-6) for edge in batch.edges)
    assert edges["own"].saves >= 0.8 * edges["own"].costs  # and one fewer would lose: the edge is where they meet
    assert edges["own"].breaks_even_hours == pytest.approx(HOURS / burst, rel=1e-3)


def test_dearer_burst_owns_more():
    owned = []
    for burst in (1.5, 2.5, 5.0, 20.0):
        prices = GpuPrices(own_micros=MICROS, window_micros=int(1.5 * MICROS), burst_micros=int(burst * MICROS))
        bands = plan_bands(tidal_jobs(), 6 * WEEK_MS, RECIPE._replace(prices=prices))
        owned.append(sum(g * h for g, h in zip(bands.window_gpus, bands.windows.hours(), strict=True)))
    assert owned == sorted(owned)
    assert owned[0] < owned[-1]


# -- nothing of the future ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 1000), st.sampled_from([True, False]))
def test_a_plan_reads_nothing_of_the_future(seed, bursts):
    jobs, now_ms = tidal_jobs(weeks=4), 3 * WEEK_MS
    rng = np.random.default_rng(seed)
    runs_on = (jobs.at_ms + jobs.run_ms > now_ms) & (jobs.at_ms < now_ms)
    later = jobs.at_ms >= now_ms
    run_ms = jobs.run_ms.copy()
    run_ms[runs_on] += rng.integers(0, 90 * DAY_MS, int(runs_on.sum()))  # how long they will run is not known yet
    run_ms[later] = rng.integers(1, DAY_MS, int(later.sum()))
    gpus = np.where(later, rng.integers(1, 64, jobs.total) * GPU, jobs.gpus_milli)
    other = jobs._replace(run_ms=run_ms, gpus_milli=gpus)
    recipe = RECIPE._replace(bursts=bursts)
    one, two = (plan_bands(known_at(each, now_ms), now_ms, recipe) for each in (jobs, other))
    assert one[:4] == two[:4]


def test_the_first_week_of_a_trial_is_the_same_whatever_comes_after():
    jobs = tidal_jobs(weeks=6)
    trial = try_plan(jobs, 1 / 3, RECIPE)
    changed = jobs.gpus_milli.copy()
    changed[jobs.at_ms >= trial.span.from_ms] = 64 * GPU
    other = try_plan(jobs._replace(gpus_milli=changed), 1 / 3, RECIPE)
    assert trial.bands[0][:4] == other.bands[0][:4]
    assert trial.bands[1][:4] != other.bands[1][:4]  # a week later it is the past


# -- the trial ---------------------------------------------------------------------------------------------------------


def test_nobody_holds_less_than_the_clairvoyant_without_burst():
    trial = try_plan(tidal_jobs(weeks=6), 1 / 3, RECIPE)
    assert trial.clairvoyant.holds
    assert trial.plan.holds
    assert trial.used_gpu_h <= trial.plan.held_gpu_h
    for entry in (trial.static, trial.no_margin, trial.peak, trial.p95):
        if entry.holds:
            assert entry.held_gpu_h >= trial.clairvoyant.held_gpu_h * 0.999
    assert trial.cheapest.cost <= trial.plan.cost * 1.05


def test_a_real_cluster_holds_at_no_more_than_the_clairvoyant_and_far_less_than_the_peak():
    jobs = plan_holdout.read_set(shared("traces/itp/cluster07.csv"), Format.ITP)
    result = plan_holdout.run_set("itp/cluster07", jobs, RECIPE)
    assert result["passes"]["plan"]
    plan = result["ways"]["plan"]
    assert plan["ratio_to_clairvoyant"] < 1
    assert plan["saved_against_peak"] > 0.4
    assert result["peak_to_p95"] > 2


def test_a_miss_is_told_with_its_reason():
    quiet = [(day * 86_400 + hour * 3600, 1, 60) for day in range(40) for hour in range(24)]
    rush = [(30 * 86_400 + second, 4, 86_400) for second in range(0, 60_000, 100)]
    trial = try_plan(arrivals(quiet + rush), 1 / 3, RECIPE)
    assert not trial.static.holds
    assert "demand rose above what the past had shown" in plan_holdout.misses_of(trial.static, trial, RECIPE)[0]


# -- jobs and signatures -----------------------------------------------------------------------------------------------


def test_jobs_that_cannot_be_replayed_are_counted_by_reason():
    rows = [
        ("b", "batch", 2000, 1, 5, 60),
        ("a", "batch", 1000, None, 5, 60),
        ("c", "inference", 1000, 1, 5, 60),
        ("d", "batch", 0, 1, 5, 60),
        ("e", "interactive", 9000, 1, 5, None),
        ("f", "batch", 500, 1, 4, 60),
    ]
    columns = ["id", "kind", "gpus_milli", "pods", "submitted_ms", "duration_ms"]
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    nothing = [pl.lit(None, JOBS[name]).alias(name) for name in JOBS if name not in columns]
    jobs = plan_jobs_of(Tables(jobs=frame.with_columns(nothing).select(JOBS.names()).lazy()))
    assert jobs.at_ms.tolist() == [4, 5, 5]
    assert jobs.gpus_milli.tolist() == [500, 1000, 2000]  # of those that came at once, by id
    assert dict(jobs.left_out) == {NO_GPUS: 1, NO_RUNTIME: 1, SERVES: 1}
    assert plan_jobs_of(Tables()).total == 0


NEEDED = (
    Unsigned(Assumption.TOLERANCE, "1h", "work may wait 1h", "waits of jobs"),
    Unsigned(Assumption.PRICES, "default", "burst costs 2.5 times what is owned", "--prices FILE"),
)


def test_what_nobody_measured_must_be_signed():
    with pytest.raises(UnsignedAssumptionError) as refused:
        sign(NEEDED, {Assumption.PRICES: ""}, all_of_them=False)
    assert [missing.name for missing in refused.value.missing] == ["tolerance"]
    signed = sign(NEEDED, {Assumption.PRICES: "", Assumption.TOLERANCE: "2h"}, all_of_them=False)
    assert [(part.name, part.value) for part in signed] == [("tolerance", "2h"), ("prices", "default")]
    assert [part.value for part in sign(NEEDED, {}, all_of_them=True)] == ["1h", "default"]


@pytest.mark.parametrize(("own", "window", "burst"), [(0, 1, 1), (2, 1, 3), (1, 3, 2)])
def test_prices_that_make_no_sense_are_told(own, window, burst):
    prices = GpuPrices(own_micros=own * MICROS, window_micros=window * MICROS, burst_micros=burst * MICROS)
    assert "expected" in prices.problem()
    assert not ASSUMED_PRICES.problem()


def test_jobs_that_ran_before_the_time_began_are_not_those_that_the_engine_decides_again():
    """With fewer than 600 jobs, of which one ran already (Slurm lists those), there was no plan but an exception."""
    jobs = tidal_jobs(weeks=2).take(np.arange(300))
    since_ms = int(jobs.at_ms[20]) + 1
    there = (jobs.at_ms >= since_ms) | (jobs.at_ms + jobs.run_ms > since_ms)
    watched = jobs.take(np.flatnonzero(there))._replace(since_ms=since_ms)
    before = int((watched.at_ms < since_ms).sum())
    assert before
    confirmed = make_plan(request(watched)).classes[0].twin
    assert (confirmed.jobs, confirmed.differing_starts) == (watched.total - before, 0)
