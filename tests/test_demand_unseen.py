"""Rows that were dropped and days that were not recorded: told in what is made of them, and not taken as quiet."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from demand_jobs import tables_of
from tidegate.cli.main import app
from tidegate.demand.estimate import How
from tidegate.demand.fit import fit
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import REQUESTS, Tables
from tidegate.demand.unrecorded import unseen_between
from tidegate.model.units import DAY_MS, HOUR_MS

START = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)


def stamp(seconds: float) -> str:
    return (START + dt.timedelta(seconds=float(seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")


def ran(*arguments, code=0):
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return result


def table(path, lost=None, swapped=0.0, days=42):
    """Jobs of some hours at an even rate; of lost days none is there, and some end before they start."""
    rng = np.random.default_rng(5)
    at = np.sort(rng.integers(0, days * 86_400, days * 50))
    if lost:
        at = at[(at < lost[0] * 86_400) | (at >= lost[1] * 86_400)]
    lines, run = ["id,submitted,started,ended,gpus"], rng.lognormal(np.log(7200), 1, at.size).astype(int) + 1
    for row, (when, wrong) in enumerate(zip(at, rng.random(at.size) < swapped, strict=True)):
        times = (when + run[row], when) if wrong else (when, when + run[row])
        lines.append(f"j{row},{stamp(when)},{stamp(times[0])},{stamp(times[1])},{(1, 2, 8)[row % 3]}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_plan_says_what_was_dropped_everywhere(tmp_path):
    path, page = table(tmp_path / "jobs.csv", swapped=0.7), tmp_path / "plan.html"
    plan = json.loads(ran("plan", path, "--assume", "all", "--json", "--html", str(page)).stdout)
    (found,) = [one for one in plan["origin"]["findings"] if one["code"] == "end-before-start"]
    assert (found["effect"], found["rows"]) == ("dropped", plan["origin"]["dropped_rows"])
    assert plan["origin"]["dropped_rows"] / 2100 == pytest.approx(0.7, abs=0.05)
    assert all(answer["grade"] != "measured" for answer in plan["answers"])
    assert "were dropped, and are not planned for" in page.read_text()
    assert "end-before-start" in page.read_text()
    text = ran("plan", path, "--assume", "all").stdout
    assert "were dropped, and are not planned for" in " ".join(text.split())


def test_few_rows_that_are_dropped_change_no_grade(tmp_path):
    found = json.loads(ran("preflight", table(tmp_path / "jobs.csv", swapped=0.005), "--json").stdout)
    (floor,) = [one for one in found["answers"] if one["question"] == "floor"]
    assert floor["grade"] == "measured"


def test_days_that_were_not_recorded_are_not_quiet(tmp_path):
    made = {}
    for name, lost in (("whole", None), ("late", (36.5, 41.5)), ("early", (14, 21))):
        path = table(tmp_path / f"{name}.csv", lost)
        found = json.loads(ran("preflight", path, "--tolerance", "1h", "--json").stdout)
        plan = json.loads(ran("plan", path, "--assume", "all", "--json").stdout)
        (floor,) = [one for one in found["answers"] if one["question"] == "floor"]
        made[name] = (floor["numbers"]["mean"]["value"], plan["classes"][0]["own_gpus"], floor["grade"])
        assert len(plan["origin"]["unseen"]) == (lost is not None)
        assert ("gaps" in floor["lacks"]) is (lost is not None)
    for name in ("late", "early"):
        assert made[name][0] == pytest.approx(made["whole"][0], rel=0.08)
        assert made[name][1] == pytest.approx(made["whole"][1], rel=0.15)
        assert made[name][2] == "partial"


def test_a_quiet_cluster_is_quiet_and_the_future_changes_nothing():
    at_ms = np.arange(0, 20 * DAY_MS, HOUR_MS)
    without = at_ms[(at_ms < 8 * DAY_MS) | (at_ms >= 12 * DAY_MS)]
    assert unseen_between(without) == ((7 * DAY_MS + 24 * HOUR_MS, 12 * DAY_MS),)
    assert unseen_between(without[without < 15 * DAY_MS]) == unseen_between(without)
    assert unseen_between(np.arange(30) * 4 * DAY_MS) == ()
    assert unseen_between(np.zeros(0, np.int64)) == ()


def even_jobs(lost=None, days=56, a_day=50):
    """Jobs at an even rate, of which some days are lost."""
    rng = np.random.default_rng(5)
    at = np.sort(rng.integers(0, days * 86_400, days * a_day))
    took = rng.lognormal(np.log(7200), 1, at.size).astype(int) + 1
    kept = np.ones(at.size, bool) if lost is None else (at < lost[0] * 86_400) | (at >= lost[1] * 86_400)
    rows = zip(at[kept].tolist(), took[kept].tolist(), strict=True)
    return tables_of([("a", "batch", 1000, one, 0, run, False) for one, run in rows])


def test_days_that_were_not_recorded_do_not_slow_arrivals_down():
    """Before: 1.70 jobs an hour instead of 2.08, CV of gaps 8.6 instead of 1.0."""
    whole, lost = (fit(even_jobs(days)).total() for days in (None, (20, 30)))
    assert lost.arrivals.per_hour.value == pytest.approx(whole.arrivals.per_hour.value, rel=0.03)
    assert lost.arrivals.gap_cv.value == pytest.approx(1, abs=0.1)
    assert lost.arrivals.dispersion[-1].idc.value == pytest.approx(1, abs=0.1)
    assert lost.ceilings[0].rate == pytest.approx(lost.wanted.mean.value, rel=0.001)


def test_what_was_not_recorded_is_not_counted_as_gpu_hours_of_a_kind():
    model = fit(even_jobs((20, 30)))
    assert model.mix[0].gpu_hours.value == pytest.approx(model.total().gpu_hours.value, rel=0.02)


def test_more_of_the_same_has_jobs_on_days_that_were_not_recorded():
    model = fit(even_jobs((20, 30)))
    assert model.days[20:30] == (1.0,) * 10
    drawn = sample(model, seed=1).jobs.collect()
    assert drawn.height == pytest.approx(56 * 50, rel=0.05)
    assert not unseen_between(drawn["submitted_ms"].to_numpy())


def test_forecasts_are_not_judged_by_days_that_were_not_recorded():
    lost = fit(even_jobs((42, 52))).outlooks[0].ahead[1]
    whole = fit(even_jobs()).outlooks[0].ahead[1]
    assert lost.last_value == pytest.approx(whole.last_value, rel=0.15)
    assert lost.origins == pytest.approx(whole.origins * 8 / 18, rel=0.1)


@pytest.mark.parametrize("window_ms", [0, 600_000])
def test_requests_that_were_not_recorded_are_not_0(window_ms):
    rng = np.random.default_rng(1)
    at = np.sort(rng.integers(0, 28 * DAY_MS, 28 * 24 * 30))
    at = at[(at < 10 * DAY_MS) | (at >= 16 * DAY_MS)]
    counts = np.ones(at.size)
    if window_ms:
        at, counts = np.unique(at // window_ms * window_ms, return_counts=True)
    empty = {name: pl.lit("" if dtype == pl.String else None) for name, dtype in REQUESTS.items()}
    told = {"at_ms": pl.Series(at), "count": pl.Series(counts), "window_ms": pl.lit(window_ms)}
    frame = pl.select(**(empty | told)).select(REQUESTS.names()).cast(REQUESTS)
    model = fit(Tables(requests=frame.lazy()))
    (service,) = model.services
    assert service.rate.mean.value * 3600 == pytest.approx(30, rel=0.03)
    assert service.arrivals.per_hour.value == pytest.approx(30, rel=0.03)
    assert service.arrivals.per_hour.how is How.BLOCKS  # a rate is an estimate, however requests were counted
    assert service.ceilings[0].rate == pytest.approx(service.rate.mean.value, rel=0.001)
    assert model.grounds[0].unseen == ((10 * DAY_MS, 16 * DAY_MS),)
