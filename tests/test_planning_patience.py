"""Every job is held to the wait that it, or its kind, tolerates; what nobody was asked for is no tolerance."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from test_planning_judge import arrivals
from tidegate.cli.main import app
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.planning.capacity_plan import PlanRecipe
from tidegate.planning.tolerance import ReplayedWaits, WaitTolerance, limits_of

START = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)


def stamp(seconds: float) -> str:
    return (START + dt.timedelta(seconds=float(seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")


def table(path, waited, columns=None, count=700):
    """Two weeks of jobs; columns are of what is said about patience."""
    rng, more = np.random.default_rng(3), columns or {}
    at = np.sort(rng.integers(0, 14 * 86_400, count))
    run, gpus = rng.lognormal(9, 1, count).astype(int) + 1, rng.choice([1, 2, 8], count, p=[0.5, 0.3, 0.2])
    lines = [",".join(["id", "gpus", "submitted", "started", "ended", *more])]
    for row in range(count):
        times = [stamp(at[row] + later) for later in (0, waited(row), waited(row) + run[row])]
        lines.append(",".join([f"j{row}", str(gpus[row]), *times, *(say(row) for say in more.values())]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def ran(*arguments, code=0):
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return result


def preflight(path, *more):
    return json.loads(ran("preflight", path, "--json", *more).stdout)


def plan(path, signed):
    return json.loads(ran("plan", path, "--assume", signed, "--json").stdout)["classes"][0]


REST = "cold-start=10m,residency,prices"


def test_how_long_a_scheduler_takes_is_no_tolerance(tmp_path):
    path = table(tmp_path / "jobs.csv", lambda row: 1 + row % 5)
    found = preflight(path)
    assert found["floor"]["tolerance_ms"] == HOUR_MS
    assert not found["floor"]["tolerance_known"]
    refused = ran("plan", path, "--assume", REST, code=2)
    assert "nine of ten started within 5s" in refused.output
    assert plan(path, f"tolerance=1h,{REST}")["tolerance"]["wait_ms"] == HOUR_MS


def test_waits_below_the_cold_start_need_a_signature_and_longer_ones_are_a_lower_bound(tmp_path):
    short, long = (table(tmp_path / f"{minutes}.csv", lambda row, m=minutes: m * 60) for minutes in (3, 30))
    ran("plan", short, "--assume", REST, code=2)
    assert plan(long, REST)["tolerance"]["wait_ms"] == 30 * MINUTE_MS
    (patience,) = [one for one in preflight(long)["answers"] if one["question"] == "patience"]
    assert patience["says"].startswith("batch at least 30m")


def test_jobs_are_held_to_what_they_declare_and_not_to_the_median(tmp_path):
    said = {"max_wait": lambda row: "5m" if row % 20 < 9 else "8h"}
    path = table(tmp_path / "jobs.csv", lambda row: 0, said)
    floor = preflight(path)["floor"]
    assert floor["declared_jobs"] == 700
    late = {part["size"]: part["late"] for part in floor["patience"]}
    assert set(late) == {"5m", "8h"}
    assert max(late.values()) <= 0.05
    assert floor["gpus"] > preflight(path, "--tolerance", "8h")["floor"]["gpus"]
    made = plan(path, REST)
    assert made["holds"]
    assert made["tolerance"]["tightest_ms"] == 5 * MINUTE_MS
    assert all(part["late_share"] <= 0.05 for part in made["ways"][0]["patience"])


def test_interactive_work_is_held_to_its_own_tolerance(tmp_path):
    kind = {"kind": lambda row: "interactive" if row % 10 < 3 else "batch"}
    said = kind | {"max_wait": lambda row: "2m" if row % 10 < 3 else "6h"}
    made = plan(table(tmp_path / "said.csv", lambda row: 0, said), REST)
    assert made["holds"]
    assert (made["tolerance"]["wait_ms"], made["tolerance"]["interactive_ms"]) == (6 * HOUR_MS, 2 * MINUTE_MS)
    late = {part["tolerates"]: part["late_share"] for part in made["ways"][0]["patience"]}
    assert set(late) == {"5m", "8h"}
    assert late["5m"] <= 0.05


def test_interactive_work_that_says_nothing_must_be_signed_for(tmp_path):
    kind = {"kind": lambda row: "interactive" if row % 10 < 3 else "batch"}
    path = table(tmp_path / "jobs.csv", lambda row: 0, kind)
    refused = ran("plan", path, "--assume", f"tolerance=1h,{REST}", code=2)
    assert "interactive work may wait 5m" in refused.output
    made = plan(path, f"tolerance=1h,interactive=3m,{REST}")
    assert made["tolerance"]["interactive_ms"] == 3 * MINUTE_MS
    assert "interactive work 5m, assumed" in ran("preflight", path, "--tolerance", "1h").stdout.replace("\n", " ")


def test_who_may_wait_for_hours_does_not_hide_who_may_not():
    wait_ms = np.array([10 * MINUTE_MS] * 20 + [0] * 980)
    limit_ms = np.array([2 * MINUTE_MS] * 20 + [6 * HOUR_MS] * 980)
    waits = ReplayedWaits(wait_ms, limit_ms, np.full(1000, 1000), np.full(1000, HOUR_MS))
    assert waits.late.mean() <= 0.05
    assert not waits.hold(950)


def test_burst_is_there_for_those_that_may_wait_least():
    jobs = arrivals([(at * 600, 1, 60) for at in range(200)])
    said = np.where(np.arange(200) < 60, 30 * MINUTE_MS, -1)
    tolerance = WaitTolerance(4 * HOUR_MS).for_jobs(jobs._replace(declared_ms=said))
    assert tolerance.tightest_ms == 30 * MINUTE_MS
    assert PlanRecipe(tolerance).burst_rule().patience_ms == 10 * MINUTE_MS
    assert set(limits_of(jobs._replace(declared_ms=said), tolerance._replace(as_declared=False))) == {4 * HOUR_MS}


@pytest.mark.parametrize("large", [19, 20])
def test_every_size_is_only_said_of_sizes_that_count(tmp_path, large):
    rng, lines = np.random.default_rng(0), ["id,submitted,duration,gpus"]
    lines += [f"s{row},{stamp(at)},{6 * 3600},1" for row, at in enumerate(rng.integers(0, 14 * 86_400, 1500))]
    lines += [f"l{row},{stamp((0.3 + row * 0.6) * 86_400)},{4 * 3600},48" for row in range(large)]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    (floor,) = [one for one in preflight(str(path), "--tolerance", "1h")["answers"] if one["question"] == "floor"]
    assert ("of every size" in floor["says"]) is (large == 20)
    assert ("of 19 jobs of 9+ GPUs, too few to count," in floor["says"]) is (large == 19)
    assert "collapse" not in floor["says"]
    assert "with one less, " in floor["says"]
