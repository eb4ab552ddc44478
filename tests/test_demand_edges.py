"""Tables at the edge of what can be measured: nothing is certain that rests on nothing, and nothing fails."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from demand_jobs import tables_of
from tidegate.demand.arrivals import measure_arrivals
from tidegate.demand.estimate import How, Unit
from tidegate.demand.fit import fit
from tidegate.demand.four_questions import Grade, MissingData, answer
from tidegate.demand.job_table import read_jobs
from tidegate.demand.model import encode, read
from tidegate.demand.residency import measure_residency
from tidegate.demand.sentences import number_text
from tidegate.demand.step_curve import Window
from tidegate.demand.tables import CAPACITY, USE
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import _late_share
from tidegate.demand.waste import Leak, find_waste
from tidegate.model.problem import Report
from tidegate.model.units import DAY_MS, HOUR_MS
from tidegate.planning.preflight import PreflightOptions, check_flight
from tidegate.planning.replay_jobs import plan_jobs_of
from tidegate.report.text.seven_inputs import input_rows
from tidegate.sources.read_sources import read_sources


def test_jobs_that_all_take_no_time_are_measured():
    model = fit(tables_of([("a", "batch", 1000, 600 * at, 5, 0, False) for at in range(60)]))
    spread = model.durations[0]
    assert (spread.mean.value, spread.cv.value) == (0, 0)


def test_no_tolerance_at_all_is_a_tolerance():
    tables = tables_of([("a", "batch", 1000, 600 * at, 0, 900, False) for at in range(60)], started=False)
    found = check_flight(tables, PreflightOptions(tolerance_ms=0)).replayed
    assert found is not None
    assert found.tolerance_ms == 0


def test_a_table_that_begins_with_an_empty_cluster_says_so_where_jobs_run_long():
    rng, lacks = np.random.default_rng(3), {}
    for name, hours, since in (("short", 2, None), ("long", 60, None), ("listed", 60, 0)):
        at = np.sort(rng.integers(0, 14 * 86_400, 800))
        run = rng.exponential(hours * 3600, 800).astype(int) + 1
        rows = [("a", "batch", 1000, int(when), 0, int(took), False) for when, took in zip(at, run, strict=True)]
        model = fit(tables_of(rows)._replace(since_ms=since))
        lacks[name] = MissingData.LEFT_EDGE in answer(model)[0].lacks
    assert lacks == {"short": False, "long": True, "listed": False}


def test_a_pod_with_eight_gpus_is_idle_for_as_long_as_one_with_one():
    longest = {}
    for devices in (1, 8):
        rows = [
            {"at_ms": at * 600_000, "every_ms": 600_000, "allocation": "pod", "gpus_milli": 1000, "busy_milli": busy}
            for at in range(144)
            for busy in [0 if at < 12 else 800]
            for _ in range(devices)
        ]
        use = pl.DataFrame(rows).with_columns(
            pl.lit("" if dtype == pl.String else None, dtype).alias(name)
            for name, dtype in USE.items()
            if name not in rows[0]
        )
        found = measure_residency(use.lazy(), Calendar.EPOCH)
        longest[devices] = (found.allocations[0].longest_idle_ms, found.idle_run_ms)
    assert longest[1] == longest[8] == (2 * 3_600_000, 2 * 3_600_000)


def test_one_job_tells_no_interval_of_a_level():
    """It was `2 (2 to 2)`, of 12 blocks."""
    group = fit(tables_of([("a", "batch", 2000, 0, 5, 3600, False)])).groups[0]
    assert group.wanted is not None
    assert (group.wanted.p50.value, group.wanted.p50.how, group.wanted.blocks) == (2, How.FEW, 0)


def test_no_late_job_does_not_mean_that_none_will_be():
    """It was 0 (0 to 0); of jobs of which one in 200 is late, 58 % of the intervals held that."""
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        at_ms, late = np.sort(rng.integers(0, 28 * DAY_MS, 200)), rng.random(200) < 0.005
        found = _late_share(at_ms, late)
        assert found.low < found.high
        held.append(found.low <= 0.005 <= found.high)
    assert np.mean(held) >= 0.85


def test_late_jobs_of_one_day_say_little_about_other_days():
    """Of windows with a day of late jobs in ten, 58 % of the intervals held the truth."""
    at_ms = np.arange(0, 28 * DAY_MS, DAY_MS // 10)
    late = (at_ms // DAY_MS == 9) & (at_ms % DAY_MS < DAY_MS // 2)
    found = _late_share(at_ms, late)
    assert found.low < 0.005
    assert found.high > 0.1


def test_dispersion_without_arrivals_that_coincide_has_no_interval():
    """Of independent arrivals, 3 in an hour over three weeks, 50 % of the intervals at 1 s held the 1."""
    rng = np.random.default_rng(1)
    at_ms = np.sort(rng.integers(0, 21 * DAY_MS, 3 * 24 * 21))
    found = measure_arrivals(at_ms, Window(0, 21 * DAY_MS), Unit.JOBS, "jobs", ordered=True)
    hows = {one.window_ms // 1000: one.idc.how for one in found.dispersion}
    assert (hows[1], hows[60], hows[3600]) == (How.FEW, How.BLOCKS, How.BLOCKS)


def written(tmp_path, header: str, rows) -> str:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def test_waits_are_not_known_where_submissions_are_not_recorded(tmp_path):
    """They were 0, and so was the depth of the queue."""
    rows = [(f"j{at}", 1_750_000_000 + 3000 * at, 1_750_004_000 + 3000 * at, 2) for at in range(60)]
    model = fit(read_sources([written(tmp_path, "id,started,ended,gpus", rows)]).tables)
    group = model.groups[0]
    assert group.tolerance is not None
    assert (group.waiting, group.tolerance.waited_p50, group.tolerance.cancelled) == (None, None, None)
    assert group.seen is not None
    assert all(stream.waits is None for stream in model.streams)
    assert MissingData.NO_SUBMISSIONS in answer(model)[3].lacks
    assert ("waiting", "not known") in [(row.name, row.text) for row in input_rows(model)]


def test_a_column_of_waits_says_when_jobs_were_submitted(tmp_path):
    rows = [(f"j{at}", 1_750_000_000 + 3000 * at, 60, 1_750_004_000 + 3000 * at, 2) for at in range(60)]
    gathered = read_sources([written(tmp_path, "id,started,wait,ended,gpus", rows)])
    found = fit(gathered.tables).groups[0].tolerance
    assert not [one for one in gathered.findings if one.code == "submission-missing"]
    assert found is not None
    assert found.waited_p50 is not None
    assert found.waited_p50.value == 60_000


def test_runtimes_with_waits_in_them_are_told_as_upper_bounds(tmp_path):
    """Where there is an end and no start, the time from submission to end counted as runtime without a word."""
    rows = [(f"j{at}", 1_750_000_000 + 12_000 * at, 1_750_016_000 + 12_000 * at, 2) for at in range(80)]
    gathered = read_sources([written(tmp_path, "id,submitted,ended,gpus", rows)])
    told = {one.code: one.times for one in gathered.findings}
    assert told["start-missing"] == 80
    model = fit(gathered.tables)
    assert number_text(model.durations[0].p50) == "at most 4h26m"
    assert model.groups[0].gpu_hours is not None
    assert model.groups[0].gpu_hours.how is How.AT_MOST
    floor = answer(model)[0]
    assert (floor.grade, floor.lacks) == (Grade.PARTIAL, (MissingData.WAITS_IN_RUNTIMES,))
    assert read(encode(model), Report()) == model


def test_one_end_in_the_future_does_not_make_all_others_older(tmp_path):
    """Jobs that still ran counted as running for the year by which one clock was wrong."""
    rows = [[f"j{at}", at * 3000, at * 3000 + 60, at * 3000 + 20_000, 2, "done"] for at in range(100)]
    for at in range(95, 100):
        rows[at][3:] = ["", 2, "running"]
    rows = [[*row[:1], *(one + 1_750_000_000 if one != "" else "" for one in row[1:4]), *row[4:]] for row in rows]
    header, found = "id,submitted,started,ended,gpus,state", []
    for wrong_s in (0, 365 * 86_400):
        rows[40][3] += wrong_s
        gathered = read_sources([written(tmp_path, header, rows)])
        codes = [(one.code, one.places[0].number) for one in gathered.findings if one.code == "end-in-future"]
        assert codes == ([("end-in-future", 42)] if wrong_s else [])
        found.append(read_jobs(gathered.tables).watch.until_ms)
    assert found[0] == found[1] == 1000 * (1_750_000_000 + 94 * 3000 + 20_000)


def test_the_order_of_rows_does_not_matter_where_jobs_have_no_ids(tmp_path):
    """Jobs that came at the same time went by the number of their row."""
    rng = np.random.default_rng(3)
    came = [1_750_000_000 + 600 * (at // 8) for at in range(80)]
    rows = [(at, at + 5000 + int(rng.integers(4000)), int(rng.choice([1, 2, 8]))) for at in came]
    found = []
    for order in (range(80), rng.permutation(80).tolist()):
        jobs = plan_jobs_of(
            read_sources([written(tmp_path, "submitted,ended,gpus", [rows[at] for at in order])]).tables
        )
        found.append(np.stack((jobs.at_ms, jobs.run_ms, jobs.gpus_milli)))
    assert (found[0] == found[1]).all()


def test_a_burst_that_has_not_ended_is_no_noise():
    """Two hundred GPUs are asked for a minute before the table ends: nobody knows that it is over soon."""
    rows = [("a", "batch", 1000, 600 * at, 0, 3_600, False) for at in range(1_000)]
    rows += [("a", "batch", 8000, 599_000 + at, 0, 36_000, False) for at in range(25)] + [
        ("a", "batch", 1000, 599_060, 0, 60, False)
    ]
    model = fit(tables_of(rows), cold_start_ms=600_000)
    bursts = model.total().bursts
    assert (bursts.noise.value, bursts.noise_height) == (0, 0)
    assert not bursts.largest[-1].noise
    assert Leak.NOISE not in {one.leak for one in find_waste(model)}


def unused_of(first_day: int, *, runs: bool = True) -> list[float]:
    """GPU-hours told as unused: 50 GPUs are held for 45 days and 100 for 15, of 100 that are counted from a day on."""
    rows = [("a", "batch", 1000 * (50 if hour < 45 * 24 else 100), hour * 3600, 0, 3600, False) for hour in range(1440)]
    hours = np.arange(first_day * 24, 60 * 24)
    counted = {
        "at_ms": hours * HOUR_MS, "every_ms": HOUR_MS, "queue": "", "gpu_model": "",
        "total_milli": 100_000, "running_milli": np.where(hours < 45 * 24, 50_000, 100_000),
        "pending_milli": 0, "running_jobs": 1, "pending_jobs": 0,
    }  # fmt: skip
    frame = pl.DataFrame(counted).select(CAPACITY.names()).cast(CAPACITY)
    frame = frame if runs else frame.with_columns(running_milli=pl.lit(None, pl.Int64))
    model = fit(tables_of(rows)._replace(capacity=frame.lazy()))
    return [one.gpu_hours for one in find_waste(model) if one.leak is Leak.UNUSED]


def test_what_is_unused_is_of_the_time_in_which_gpus_were_counted():
    """Half a year of jobs beside two weeks of counters: what was held then was taken from what is there now."""
    assert unused_of(45) == []  # it was 13,472 GPU-hours, and every GPU was held
    assert unused_of(30) == [pytest.approx(15 * 24 * 50, rel=0.02)]
    assert unused_of(0) == [pytest.approx(45 * 24 * 50, rel=0.02)]


def test_what_is_unused_is_not_known_where_jobs_were_seen_at_another_time():
    assert unused_of(45, runs=False) == []
    assert unused_of(0, runs=False) == [pytest.approx(45 * 24 * 50, rel=0.02)]
