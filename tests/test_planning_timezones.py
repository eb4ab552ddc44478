"""Plans go by the users' clocks: the same local demand costs the same in every time zone, over a change of them too."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import ran
from tidegate.demand.calendar import hour_edges, hour_of_week
from tidegate.demand.time_zone import Calendar, ZoneOrigin
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from tidegate.planning.capacity import steps_of
from tidegate.planning.capacity_plan import PlanRecipe, plan_bands
from tidegate.planning.capacity_replay import CapacityReplayer, ReplaySpan, cost_of
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import WaitTolerance
from tidegate.sources.options import SourceOptions
from tidegate.sources.read_sources import read_sources
from tidegate.sources.time_zones import calendar_of

WEEKS = 8
MONDAY = datetime(2026, 9, 7)  # noqa: DTZ001  by the users' clocks
BEFORE_DST = datetime(2026, 2, 2)  # noqa: DTZ001
RECIPE = PlanRecipe(WaitTolerance(HOUR_MS))


def local_jobs(zone: str, first: datetime = MONDAY) -> PlanJobs:
    """From 10 to 20 on weekdays 50 jobs of two GPUs each hour, else 5, each for most of the hour; by local clocks."""
    at_ms = []
    for hour in range(WEEKS * 168):
        count = 50 if hour % 168 < 120 and 10 <= hour % 24 < 20 else 5
        at = (first + timedelta(hours=hour)).replace(tzinfo=ZoneInfo(zone))
        at_ms += [round(at.timestamp() * 1000) + row for row in range(count)]
    column = np.sort(np.array(at_ms, np.int64))
    calendar = calendar_of(zone, ZoneOrigin.OPTION, int(column[0]), int(column[-1]))
    ones = np.ones(len(column), np.int64)
    return PlanJobs(column, ones * (HOUR_MS - 2000), ones * 2000, ones, calendar)


def cost_a_week(jobs: PlanJobs) -> tuple[tuple[str, ...], float]:
    now_ms = jobs.span_ms[1] + 1
    bands, span = plan_bands(jobs, now_ms, RECIPE), ReplaySpan(*jobs.span_ms)
    steps = steps_of([bands.level(span.from_ms)], now_ms, jobs.calendar)
    outcome = CapacityReplayer(jobs).replay(steps, RECIPE.burst_rule(), span)
    return bands.windows.names, cost_of(outcome, bands.own_gpus * span.hours, RECIPE.prices) / WEEKS


ZONES = ["America/Los_Angeles", "Asia/Tokyo", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Auckland"]


@pytest.mark.parametrize("zone", ZONES)
def test_the_same_local_demand_costs_the_same_in_every_zone(zone):
    names, usual = cost_a_week(local_jobs("UTC"))
    here, cost = cost_a_week(local_jobs(zone))
    assert here == names == ("day 10-20", "night 20-10", "Sat-Sun")
    assert cost == pytest.approx(usual, rel=0.01)


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Europe/Berlin"])
def test_clocks_that_change_cost_nothing(zone):
    jobs = local_jobs(zone, BEFORE_DST)
    assert any(jobs.span_ms[0] < change < jobs.span_ms[1] for change in jobs.calendar.changes_ms)
    names, usual = cost_a_week(local_jobs("UTC", BEFORE_DST))
    here, cost = cost_a_week(jobs)
    assert here == names
    assert cost == pytest.approx(usual, rel=0.01)
    _, by_utc = cost_a_week(jobs._replace(calendar=Calendar.EPOCH))
    assert by_utc > 1.05 * cost  # what not knowing the clocks would cost


# -- clocks ------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([*ZONES, "Europe/Berlin", "UTC", "Australia/Lord_Howe"]),
    st.integers(1_600_000_000_000, 1_900_000_000_000),
)
def test_hours_of_the_week_are_those_that_a_clock_shows(zone, at_ms):
    calendar = calendar_of(zone, ZoneOrigin.OPTION, at_ms - DAY_MS, at_ms + DAY_MS)
    shown = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))
    assert hour_of_week(np.array([at_ms]), calendar)[0] == shown.weekday() * 24 + shown.hour
    edges = hour_edges(at_ms, at_ms + 400 * DAY_MS, calendar)
    ends = [at_ms, *edges.tolist(), at_ms + 400 * DAY_MS]
    for first, last in pairwise(ends[:60] + ends[-1:]):
        inside = np.array([first, (first + min(last, first + HOUR_MS)) // 2, min(last, first + HOUR_MS) - 1])
        assert len(set(hour_of_week(inside, calendar).tolist())) == 1


def test_changes_of_the_clocks_are_found_to_the_second():
    first = round(datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")).timestamp() * 1000)
    calendar = calendar_of("Europe/Berlin", ZoneOrigin.OPTION, first, first + DAY_MS)
    assert [datetime.fromtimestamp(at / 1000, ZoneInfo("UTC")).isoformat() for at in calendar.changes_ms[:2]] == [
        "2026-03-29T01:00:00+00:00",
        "2026-10-25T01:00:00+00:00",
    ]
    assert [offset // HOUR_MS for offset in calendar.offsets_ms[:3]] == [1, 2, 1]


# -- who says the zone -------------------------------------------------------------------------------------------------


def rows(count: int, offset: str) -> str:
    lines = [
        f"j{row},2026-09-{7 + row // 24:02d}T{row % 24:02d}:{row % 60:02d}:00{offset},600,1" for row in range(count)
    ]
    return "\n".join(["id,submitted,duration,gpus", *lines]) + "\n"


@pytest.mark.parametrize(
    ("offset", "option", "name", "origin"),
    [
        ("Z", "", "UTC", ZoneOrigin.DEFAULT),
        ("", "", "UTC", ZoneOrigin.DEFAULT),
        ("+05:30", "", "+05:30", ZoneOrigin.SOURCE),
        ("+05:30", "Asia/Tokyo", "Asia/Tokyo", ZoneOrigin.OPTION),
        ("", "Europe/Berlin", "Europe/Berlin", ZoneOrigin.OPTION),
    ],
)
def test_the_zone_is_the_users_then_the_sources_then_utc(tmp_path, offset, option, name, origin):
    path = tmp_path / "jobs.csv"
    path.write_text(rows(48, offset))
    calendar = read_sources([str(path)], SourceOptions(timezone=option)).tables.calendar
    assert (calendar.timezone, calendar.timezone_from) == (name, origin)


def test_offsets_that_differ_name_no_zone(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(rows(24, "+01:00") + "\n".join(rows(48, "+02:00").splitlines()[25:]) + "\n")
    assert read_sources([str(path)]).tables.calendar == Calendar.EPOCH


def test_a_parquet_column_with_a_zone_names_it(tmp_path):
    at = pl.datetime_range(datetime(2026, 9, 7), datetime(2026, 9, 9), "1h", eager=True)  # noqa: DTZ001
    frame = pl.DataFrame({"submitted": at.dt.replace_time_zone("Europe/Berlin"), "duration": 600, "gpus": 1})
    path = tmp_path / "jobs.parquet"
    frame.write_parquet(path)
    calendar = read_sources([str(path)]).tables.calendar
    assert (calendar.timezone, calendar.timezone_from) == ("Europe/Berlin", ZoneOrigin.SOURCE)


@pytest.fixture(scope="module")
def tokyo_csv(tmp_path_factory):
    jobs = local_jobs("Asia/Tokyo")
    path = tmp_path_factory.mktemp("tokyo") / "jobs.csv"
    lines = ["id,submitted_ms,duration_ms,gpus"]
    lines += [f"j{row},{at},{HOUR_MS - 2000},2" for row, at in enumerate(jobs.at_ms.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_plan_says_whose_clocks_its_windows_go_by(tokyo_csv):
    how = ("plan", str(tokyo_csv), "--assume", "all", "--seed", "1")
    told = json.loads(ran(*how, "--timezone", "Asia/Tokyo", "--json"))
    assert told["origin"]["calendar"]["timezone"] == "Asia/Tokyo"
    assert [window["name"] for window in told["classes"][0]["windows"]] == ["day 10-20", "night 20-10", "Sat-Sun"]
    text = ran(*how, COLUMNS="120", NO_COLOR="1")
    assert "Hours of the week are UTC: no source names a time zone; --timezone says one." in text


def test_a_demand_model_keeps_its_zone(tokyo_csv):
    model = tokyo_csv.with_name("demand.json")
    ran("preflight", str(tokyo_csv), "--timezone", "Asia/Tokyo", "--out", str(model), "--json")
    told = json.loads(ran("plan", str(model), "--assume", "all", "--timezone", "Asia/Tokyo", "--json"))
    assert told["origin"]["calendar"]["timezone"] == "Asia/Tokyo"
    for how in (("plan", str(model), "--assume", "all"), ("demand", "forecast", str(model))):
        said = ran(*how, "--timezone", "Europe/Berlin", code=2)
        assert "its hours of the week are those of Asia/Tokyo" in said


def test_a_time_that_is_shorter_than_an_hour_has_no_edges():
    assert hour_edges(MINUTE_MS, 2 * MINUTE_MS, Calendar.EPOCH).tolist() == []
