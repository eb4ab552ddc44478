"""Floors, plans and trials with work that had not ended, and without anything of the future."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import ran
from test_demand_censoring import BASE, cut, job, tables, work
from tidegate.demand.fit import fit
from tidegate.demand.model import encode
from tidegate.demand.tables import STARTS, tables_at
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from tidegate.planning.capacity_plan import Launch, PlanRecipe, plan_bands
from tidegate.planning.capacity_replay import CapacityReplayer
from tidegate.planning.concurrency import average, curve_of
from tidegate.planning.floor import find_floor
from tidegate.planning.holdout import held_out, try_plan
from tidegate.planning.plan import Holdout, PlanRequest, make_plan
from tidegate.planning.plan_inputs import Given, inputs_at
from tidegate.planning.plan_schema import encode_plan
from tidegate.planning.preflight import PreflightOptions, check_flight
from tidegate.planning.replay_jobs import DRAWN, known_at, plan_jobs_of
from tidegate.planning.tolerance import WaitTolerance
from tidegate.stats.interval import NoInterval

TOLERANCE = WaitTolerance(HOUR_MS)


def answers(shown) -> tuple[int, int, int]:
    """The floor, what the plan owns, and the most it provides."""
    jobs = plan_jobs_of(shown)
    floor = find_floor(CapacityReplayer(jobs), TOLERANCE, seed=0)
    bands = plan_bands(jobs, jobs.span_ms[1], PlanRecipe(TOLERANCE))
    return floor.gpus, bands.own_gpus, bands.own_gpus + bands.ceiling_gpus


def trainings(seed: int) -> list[dict]:
    """Short jobs for four weeks, and thirty trainings of eight GPUs that begin in the last two and run for 20 days."""
    rng, rows, at = np.random.default_rng(seed), [], 0
    while (at := at + int(rng.exponential(0.25 * HOUR_MS))) < 28 * DAY_MS:
        rows.append(job(at, 0, int(rng.exponential(HOUR_MS)), gpus_milli=4000))
    begins = 14 * DAY_MS + rng.uniform(0, 13 * DAY_MS, 30).astype(np.int64)
    return rows + [job(int(begin), 0, 20 * DAY_MS, gpus_milli=8000) for begin in begins]


@pytest.mark.parametrize("seed", range(3))
def test_floor_and_plan_are_those_of_known_ends_although_work_still_runs(seed):
    rows = trainings(seed)
    shown = cut(rows, BASE + 28 * DAY_MS)
    known, drawn = answers(tables(rows)), answers(tables(shown))
    assert drawn == pytest.approx(known, rel=0.15)
    dropped = answers(tables([row for row in shown if row["ended_ms"] is not None]))
    assert dropped[0] < 0.2 * known[0]  # what leaving them out would say


@pytest.mark.parametrize("seed", range(3))
def test_floor_and_plan_are_those_of_known_ends_although_work_still_waits(seed):
    rows = work(seed, 21)
    shown = cut(rows, BASE + 21 * DAY_MS)
    for row in shown:  # nothing has started for two days
        if row["started_ms"] >= BASE + 19 * DAY_MS:
            row |= {"started_ms": None, "ended_ms": None, "duration_ms": None, "outcome": "pending"}
    known, drawn = answers(tables(rows)), answers(tables(shown))
    assert drawn == pytest.approx(known, rel=0.15)
    assert dict(plan_jobs_of(tables(shown)).drawn).keys() == {DRAWN[1], DRAWN[2]}


def test_demand_of_the_last_day_is_that_of_known_ends():
    ratios = []
    for seed in range(8):
        rows = work(seed, 20, wait_h=8)
        until_ms = BASE + 14 * DAY_MS
        came = [row for row in rows if row["submitted_ms"] < until_ms]
        known, drawn = (
            average(curve_of(plan_jobs_of(each)), until_ms - DAY_MS, until_ms)[1].mean()
            for each in (tables(came), tables(cut(rows, until_ms), until_ms=until_ms))
        )
        ratios.append(drawn / known)
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)
    assert max(ratios) < 1.2


def test_the_floor_is_not_sure_where_ends_were_not_seen():
    """Its interval reached from 49 to 2,890 GPUs, which says nothing."""
    rows = trainings(0)
    known, drawn = (
        find_floor(CapacityReplayer(plan_jobs_of(each)), TOLERANCE, seed=0)
        for each in (tables(rows), tables(cut(rows, BASE + 28 * DAY_MS)))
    )
    assert drawn.gpus == pytest.approx(known.gpus, rel=0.1)
    assert drawn.none is NoInterval.WIDE


def test_the_latest_jobs_come_with_those_that_run_then():
    rows = [job(0, 0, 30 * DAY_MS, gpus_milli=64_000)]
    rows += [job(hour * HOUR_MS, 0, HOUR_MS) for hour in range(24 * 20)]
    latest = plan_jobs_of(tables(rows)).latest(100)
    assert latest.total == 100 + 1
    assert latest.span_ms[0] == BASE + (24 * 20 - 100) * HOUR_MS
    floor = find_floor(CapacityReplayer(latest), TOLERANCE, seed=0)
    assert floor.gpus == 65


def test_the_preflight_says_whose_runtimes_are_drawn():
    rows = trainings(0)
    flown = check_flight(tables(cut(rows, BASE + 28 * DAY_MS)), PreflightOptions(tolerance_ms=HOUR_MS))
    assert flown.replayed.floor.gpus == pytest.approx(252, rel=0.15)
    assert dict(flown.jobs.drawn)[DRAWN[1]] >= 30
    assert flown.jobs.left_out == ()


def endless_csv(path, *, ends: int):
    """Three days of jobs, of which only the first few have ended."""
    rng, at, lines = np.random.default_rng(3), BASE // 1000, ["id,submitted,started,ended,gpus"]
    for row in range(80):
        at += int(rng.exponential(3600)) + 1
        ended = at + 4000 if row < ends else ""
        lines.append(f"j{row},{at},{at + int(rng.exponential(600))},{ended},{rng.choice([1, 2, 4, 8])}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_where_no_job_has_ended_there_is_no_floor_and_no_plan_unless_it_is_signed(tmp_path):
    path = endless_csv(tmp_path / "jobs.csv", ends=0)
    told = json.loads(ran("preflight", path, "--json"))
    assert told["floor"]["gpus"] is None
    assert told["floor"]["high"] is None
    assert told["floor"]["at_least_gpus"] > 100
    assert told["answers"][0]["answer"] == f"at least {told['floor']['at_least_gpus']} GPUs"
    text = " ".join(ran("preflight", path, COLUMNS="80").split())
    assert "none of the kind has ended, so this is no floor yet" in text
    assert "drawn from like jobs" not in text
    assert "hold the tolerance" not in text
    signed = ("--assume", "tolerance=1h,cold-start=10m,residency,prices")
    assert "--assume runtimes" in ran("plan", path, *signed, code=2)
    plan = ran("plan", path, *signed, "--assume", "runtimes", COLUMNS="200")
    assert "runtime assumed: 80 jobs, because none of their kind has ended" in plan
    assert "drawn from like jobs" not in plan


def test_where_some_have_ended_the_others_are_drawn_from_them(tmp_path):
    path = endless_csv(tmp_path / "jobs.csv", ends=40)
    assert json.loads(ran("preflight", path, "--json"))["floor"]["at_least_gpus"] is None
    ran("plan", path, "--assume", "tolerance=1h,cold-start=10m,residency,prices")


def test_a_few_jobs_of_a_kind_of_which_none_has_ended_leave_the_floor_a_number():
    rows = work(0, 21)
    one = cut([job(20 * DAY_MS, 0, 40 * DAY_MS, gpus_milli=1000, kind="notebook")], BASE + 21 * DAY_MS)
    jobs = plan_jobs_of(tables(cut(rows, BASE + 21 * DAY_MS) + one))
    assert jobs.endless.sum() == 1
    assert not jobs.only_bounded


# -- nothing of the future ---------------------------------------------------------------------------------------------

CUT = BASE + 8 * DAY_MS


def history(seed: int):
    """Jobs that wait for some hours, run for half a day, and sometimes give up; nodes that start."""
    rng, rows, at = np.random.default_rng(seed), [], 0
    while (at := at + int(rng.exponential(2 * HOUR_MS))) < 12 * DAY_MS:
        wait, run = int(rng.exponential(2 * HOUR_MS)), int(rng.exponential(12 * HOUR_MS)) + 1
        gpus = int(rng.choice([1, 2, 8])) * 1000
        if rng.random() < 0.15:
            rows.append(
                job(at, None, gpus_milli=gpus, outcome="cancelled", ended_ms=BASE + at + wait, queue=f"q{at % 3}")
            )
        else:
            rows.append(job(at, wait, run, gpus_milli=gpus, queue=f"q{at % 3}"))
    starts = [(BASE + int(rng.uniform(0, 12 * DAY_MS)), int(rng.exponential(5 * MINUTE_MS)) + 1) for _ in range(40)]
    return rows, starts


def another_future(rows, starts, seed: int):
    """The same until the cut; after it anything."""
    rng, changed = np.random.default_rng(seed), []
    for row in rows:
        new = dict(row)
        later = int(rng.exponential(2 * DAY_MS))
        if row["submitted_ms"] >= CUT:
            if rng.random() < 0.3:
                continue
            new |= {"gpus_milli": int(rng.integers(1, 64)) * 1000, "started_ms": None, "tolerated_wait_ms": later}
            new |= {"ended_ms": None, "duration_ms": None, "outcome": "pending"}
        elif row["started_ms"] is not None and row["started_ms"] >= CUT:
            new |= {"started_ms": CUT + later, "ended_ms": CUT + later + 7, "duration_ms": 7}
        elif row["ended_ms"] >= CUT and row["started_ms"] is None:
            new |= {"started_ms": CUT + later, "ended_ms": CUT + later + 5, "duration_ms": 5, "outcome": "failed"}
        elif row["ended_ms"] >= CUT:
            end = CUT + later
            gone = {"ended_ms": end, "duration_ms": end - row["started_ms"], "outcome": "cancelled"}
            new |= gone if rng.random() < 0.7 else {"ended_ms": None, "duration_ms": None, "outcome": "running"}
        changed.append(new)
    changed += [job(12 * DAY_MS + row, row, 5, gpus_milli=64_000) for row in range(int(rng.integers(0, 50)))]
    slower = [(at, took * 50 if at + took >= CUT else took) for at, took in starts]
    return changed, slower


def with_starts(rows, starts):
    frame = pl.DataFrame(
        [{"at_ms": at, "stage": "node", "service": "", "took_ms": took} for at, took in starts], schema=STARTS
    )
    return tables(rows, starts=frame.lazy())


def trained(shown) -> tuple[bytes, bytes]:
    """The demand model and the plan that are made at the cut."""
    past = tables_at(shown, CUT)
    terms = inputs_at(shown, CUT, Given())
    recipe = PlanRecipe(WaitTolerance(terms.tolerance_ms), terms.prices, launch=Launch(terms.cold_start_ms))
    plan = make_plan(PlanRequest(plan_jobs_of(past), recipe, "test", terms.prices_from))
    return encode(fit(past)), encode_plan(plan)


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_any_change_after_the_cut_leaves_the_trained_plan_as_it_is(seed, other):
    rows, starts = history(seed)
    assert trained(with_starts(rows, starts)) == trained(with_starts(*another_future(rows, starts, other)))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.integers(0, 3))
def test_a_trial_knows_what_somebody_would_have_gathered_then(seed, other, draw):
    rows, starts = history(seed)
    shown = with_starts(*another_future(rows, starts, other))
    known, gathered = known_at(plan_jobs_of(shown, draw), CUT, draw), plan_jobs_of(tables_at(shown, CUT), draw)
    for name in ("at_ms", "run_ms", "gpus_milli", "pods"):
        assert getattr(known, name).tolist() == getattr(gathered, name).tolist()
    assert known.span_ms == gathered.span_ms
    for one, two in zip(known.seen[1:], gathered.seen[1:], strict=True):
        assert one.tolist() == two.tolist()


def test_jobs_that_run_when_a_trial_begins_run_on():
    jobs = plan_jobs_of(tables(work(2, 20)))
    now_ms = BASE + 14 * DAY_MS
    known = known_at(jobs, now_ms)
    runs = known.at_ms + known.run_ms > now_ms
    truth = jobs.take(np.flatnonzero(jobs.at_ms < now_ms))
    assert runs.sum() == ((truth.at_ms + truth.run_ms) > now_ms).sum() > 20
    left = (known.at_ms + known.run_ms - now_ms)[runs].mean()
    assert left == pytest.approx((truth.at_ms + truth.run_ms - now_ms)[runs].mean(), rel=0.4)


# -- on the command line -----------------------------------------------------------------------------------------------


def waiting_csv(path, future_wait_h: float):
    """Thirty days of jobs that wait for minutes, in the last third for as long as told."""
    rng, rows, at = np.random.default_rng(0), ["id,submitted,started,ended,gpus"], 0
    while (at := at + int(rng.exponential(0.4 * HOUR_MS))) < 30 * DAY_MS:
        run, wait = int(rng.exponential(6 * HOUR_MS)), int(rng.exponential(0.2 * HOUR_MS))
        wait = wait if at < 20 * DAY_MS else int(future_wait_h * HOUR_MS)
        start = BASE + at + wait
        rows.append(f"j{len(rows)},{BASE + at},{start},{start + run},4")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_waits_of_the_time_that_is_held_out_do_not_reach_the_plan_that_is_tried(tmp_path):
    trials = []
    for wait_h in (0.2, 8):
        path = waiting_csv(tmp_path / f"{wait_h}.csv", wait_h)
        told = json.loads(ran("plan", str(path), "--assume", "all", "--holdout", "0.34", "--json"))
        trials.append(told["trial"])
        tolerated = told["classes"][0]["tolerance"]["wait_ms"]
        assert (tolerated > HOUR_MS) == (wait_h == 8)  # the plan itself is made from all of the data
    assert trials[0]["tolerance_ms"] == trials[1]["tolerance_ms"] < HOUR_MS
    assert trials[0]["cold_start_ms"] == trials[1]["cold_start_ms"]
    assert trials[0]["weeks"][0] == trials[1]["weeks"][0]


def test_what_only_the_trial_lacks_must_be_signed_too(tmp_path):
    path = waiting_csv(tmp_path / "jobs.csv", 8)
    lines = path.read_text().splitlines()
    cut_at = BASE + 20 * DAY_MS
    kept = [line for line in lines[1:] if int(line.split(",")[1]) >= cut_at]
    at_once = [line.split(",") for line in lines[1:] if int(line.split(",")[1]) < cut_at]
    kept += [
        ",".join([name, at, at, str(int(end) - int(start) + int(at)), gpus]) for name, at, start, end, gpus in at_once
    ]
    path.write_text("\n".join([lines[0], *kept]) + "\n")
    how = ("plan", str(path), "--assume", "cold-start=10m,residency,prices")
    ran(*how, "--json")
    said = ran(*how, "--holdout", "0.34", code=2)
    assert "before the trial began, batch work may wait 1h" in said


def test_the_terms_of_a_trial_are_its_own():
    jobs = plan_jobs_of(tables(work(1, 28)))
    recipe, known = PlanRecipe(TOLERANCE), PlanRecipe(WaitTolerance(2 * HOUR_MS), launch=Launch(5 * MINUTE_MS))
    plan = make_plan(PlanRequest(jobs, recipe, "test", "assumed", holdout=Holdout(0.25, known)))
    assert (plan.trial.tolerance_ms, plan.trial.cold_start_ms) == (2 * HOUR_MS, 5 * MINUTE_MS)
    assert plan.classes[0].tolerance.wait_ms == HOUR_MS
    trial = try_plan(jobs, 0.25, known)
    assert trial.span == held_out(jobs, 0.25)
    assert [week.own_gpus for week in plan.trial.weeks] == [bands.own_gpus for bands in trial.bands]
