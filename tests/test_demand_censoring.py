"""Work that still runs or waits when the data ends, and work that ran already when it began, count like all other."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.demand.censoring import SeenRuntimes, draw_runtimes
from tidegate.demand.estimate import How
from tidegate.demand.fit import fit
from tidegate.demand.job_table import read_jobs, window_of
from tidegate.demand.model import GroupScope, encode
from tidegate.demand.model_diff import diff
from tidegate.demand.residency import measure_residency
from tidegate.demand.sentences import number_text
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import JOBS, USE, Tables
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import ToleranceBasis
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from tidegate.sources.read_sources import read_sources

BASE = 1_700_006_400_000  # some midnight
USUAL = {
    "queue": "",
    "kind": "batch",
    "gpu_model": "",
    "gpus_milli": 1000,
    "pods": 1,
    "started_ms": None,
    "ended_ms": None,
    "duration_ms": None,
    "priority": 0,
    "outcome": "done",
    "tolerated_wait_ms": None,
}


def job(at_ms: int, wait_ms: int | None = 0, run_ms: int | None = None, **more) -> dict:
    """A job that came, started after a wait, and ended after a run; None: it did not."""
    row = {**USUAL, "submitted_ms": BASE + at_ms, **more}
    if wait_ms is not None:
        row["started_ms"] = BASE + at_ms + wait_ms
        if run_ms is not None:
            row |= {"ended_ms": row["started_ms"] + run_ms, "duration_ms": run_ms}
    if "outcome" not in more:
        row["outcome"] = "pending" if wait_ms is None else "running" if run_ms is None else "done"
    return row


def tables(rows, **more) -> Tables:
    columns = [{"id": f"j{number:05d}", **row} for number, row in enumerate(rows)]
    return Tables(jobs=pl.DataFrame(columns, schema=JOBS).lazy(), calendar=Calendar.EPOCH, **more)


def gave_up(at_ms: int, after_ms: int) -> dict:
    return job(at_ms, None, outcome="cancelled", ended_ms=BASE + at_ms + after_ms)


# -- waits and tolerance -----------------------------------------------------------------------------------------------


def waits_of(still: int):
    """A hundred start at once, twelve give up after 1 to 12 hours, some still wait after 67 to 101 hours."""
    rows = [job(hour * HOUR_MS, 0, HOUR_MS) for hour in range(100)]
    rows += [gave_up(row * HOUR_MS, (row + 1) * HOUR_MS) for row in range(12)]
    rows += [job(row * MINUTE_MS, None) for row in range(still)]
    rows.append(job(100 * HOUR_MS, 0, HOUR_MS))
    return fit(tables(rows)).total()


def test_those_who_still_wait_show_patience():
    alone, crowd = (waits_of(still).tolerance for still in (0, 2000))
    assert (alone.basis, alone.tolerated.value) == (ToleranceBasis.GIVEN_UP, 2 * HOUR_MS)
    assert alone.tolerated.how is How.FEW  # two had left by then, both on the first morning
    assert crowd.basis is ToleranceBasis.GIVEN_UP
    assert crowd.tolerated.how is How.AT_LEAST
    assert 67 * HOUR_MS < crowd.tolerated.value < 101 * HOUR_MS
    assert number_text(crowd.tolerated).startswith("at least 4d")
    assert (alone.still, crowd.still) == (0, 2000)


def test_those_who_still_wait_waited():
    alone, crowd = (waits_of(still).tolerance for still in (0, 2000))
    assert alone.waited_p50.value == 0
    assert crowd.waited_p50.how is How.AT_LEAST  # nineteen of twenty have not started yet
    assert crowd.waited_p50.value > 60 * HOUR_MS
    assert alone.cancelled.value == pytest.approx(12 / 113, rel=1e-4)
    assert crowd.cancelled.value == pytest.approx(12 / 2113, rel=1e-4)
    assert crowd.cancelled.high > 0.9  # all of them may yet give up


def test_those_who_still_wait_are_late_where_they_waited_too_long():
    assert waits_of(0).broken is not None
    assert waits_of(2000).broken is None  # nobody knows by what wait they would give up
    rows = [job(hour * HOUR_MS, 0, HOUR_MS, tolerated_wait_ms=HOUR_MS) for hour in range(100)]
    rows += [job(hour * HOUR_MS, None, tolerated_wait_ms=HOUR_MS) for hour in range(50)]
    late = fit(tables([*rows, job(100 * HOUR_MS, 0, HOUR_MS)])).total().broken.late
    assert (late.value, late.samples) == (pytest.approx(50 / 151, rel=1e-4), 151)
    just_came = [job(100 * HOUR_MS + row, None, tolerated_wait_ms=HOUR_MS) for row in range(50)]
    late = fit(tables([*rows, *just_came, job(100 * HOUR_MS, 0, HOUR_MS)])).total().broken.late
    assert late.samples == 151  # whether those are late is not known yet


def test_waits_of_those_that_started_alone_are_as_they_were():
    rows = [job(row * HOUR_MS, row * MINUTE_MS, HOUR_MS) for row in range(40)]
    told = fit(tables(rows)).total().tolerance
    assert (told.waited_p50.how, told.waited_p50.value) == (How.TREND, 19 * MINUTE_MS)  # each waits longer


# -- durations ---------------------------------------------------------------------------------------------------------


def test_jobs_that_still_run_are_in_the_spread_of_durations():
    rows = [job(hour * HOUR_MS, 0, HOUR_MS) for hour in range(240)]
    rows += [job(hour * HOUR_MS, 0, None, gpus_milli=8000) for hour in range(0, 240, 8)]
    spreads = {one.size: one for one in fit(tables(rows)).durations}
    large = spreads["5-8"]
    assert (large.running, large.mean.samples, large.mean.how) == (30, 30, How.AT_LEAST)
    assert large.mean.value == pytest.approx(124 * HOUR_MS, rel=0.01)
    assert large.p50.value > 24 * HOUR_MS
    assert large.meaning == ()  # thirty that have not ended are not even
    assert spreads["1"].running == 0
    assert spreads[""].running == 30


def test_gpu_hours_are_at_least_those_that_were_seen():
    rows = [job(hour * HOUR_MS, 0, HOUR_MS) for hour in range(100)] + [job(0, 0, None, gpus_milli=8000)]
    total = fit(tables(rows)).total()
    assert (total.gpu_hours.how, total.gpu_hours.value) == (How.AT_LEAST, 100 + 8 * 100)
    assert fit(tables(rows[:-1])).total().gpu_hours.how is How.EXACT


def cut(rows, until_ms: int):
    """What an export at a time shows of jobs."""
    shown = []
    for row in rows:
        if row["submitted_ms"] >= until_ms:
            continue
        kept = dict(row)
        if row["started_ms"] >= until_ms:
            kept |= {"started_ms": None, "ended_ms": None, "duration_ms": None, "outcome": "pending"}
        elif row["ended_ms"] >= until_ms:
            kept |= {"ended_ms": None, "duration_ms": None, "outcome": "running"}
        shown.append(kept)
    return shown


def work(seed: int, days: int, wait_h: float = 0.0) -> list[dict]:
    """Jobs of 30 hours on average, four an hour... one of eight GPUs in ten."""
    rng = np.random.default_rng(seed)
    at, rows = 0, []
    while at < days * DAY_MS:
        at += int(rng.exponential(HOUR_MS / 2))
        wait = int(rng.exponential(wait_h * HOUR_MS)) if wait_h else 0
        gpus = 8000 if rng.random() < 0.1 else 1000
        rows.append(job(at, wait, int(rng.exponential(30 * HOUR_MS)) + 1, gpus_milli=gpus))
    return rows


def test_demand_at_the_end_of_the_data_is_that_of_known_ends():
    rows = work(3, 20, wait_h=5)
    until_ms = BASE + 14 * DAY_MS
    came = [row for row in rows if row["submitted_ms"] < until_ms]
    known, shown = fit(tables(came)).total(), fit(tables(cut(rows, until_ms), until_ms=until_ms)).total()
    assert shown.wanted.mean.value == pytest.approx(known.wanted.mean.value, rel=0.05)
    assert shown.wanted.p95.value == pytest.approx(known.wanted.p95.value, rel=0.05)


def test_jobs_that_gave_up_are_not_wanted_for_ever():
    rows = [job(hour * HOUR_MS, 0, HOUR_MS) for hour in range(200)]
    quitters = [gave_up(hour * HOUR_MS, MINUTE_MS) for hour in range(0, 200, 10)]
    alone, more = (fit(tables(some)).total().wanted.mean.value for some in (rows, rows + quitters))
    assert alone < more < 1.15 * alone  # as if they had run as long as others, not until the end


def test_a_sample_has_the_durations_of_jobs_that_still_ran():
    rows = [job(hour * HOUR_MS, 0, HOUR_MS) for hour in range(24 * 21)]
    rows += [job(hour * HOUR_MS, 0, None, gpus_milli=8000) for hour in range(24, 24 * 18, 36)]
    drawn = sample(fit(tables(rows)), seed=1).jobs.collect()
    large = drawn.filter(pl.col("gpus_milli") == 8000)
    assert large.height >= 10
    assert large["duration_ms"].mean() > 5 * DAY_MS


# -- what is drawn -----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.permutations(range(60)))
def test_the_order_of_rows_does_not_matter_and_the_seed_does(seed, order):
    rng = np.random.default_rng(seed)
    ran = rng.integers(1, 1000, 60)
    ended = rng.random(60) < 0.6
    begin = np.arange(60) * 10
    seen = SeenRuntimes(begin, np.where(ended, begin + ran, 1 << 60), ran, rng.integers(0, 2, 60))
    keys = (begin, np.full(60, 1000))
    drawn = draw_runtimes(seen, keys, None, seed)
    rows = np.array(order)
    again = draw_runtimes(seen.take(rows), tuple(key[rows] for key in keys), None, seed)
    assert again.tolist() == drawn[rows].tolist()
    assert (drawn[ended] == ran[ended]).all()
    assert ((drawn[~ended] > ran[~ended]) | (drawn[~ended] == -1)).all()
    if (~ended).sum() > 5:
        assert draw_runtimes(seen, keys, None, seed + 1).tolist() != drawn.tolist()


def test_the_same_tables_and_seed_give_the_same_bytes():
    shown = tables(cut(work(1, 10, wait_h=5), BASE + 7 * DAY_MS))
    model = fit(shown, seed=3)
    assert encode(model) == encode(fit(shown, seed=3))
    wider = fit(tables(cut(work(1, 10, wait_h=5), BASE + 8 * DAY_MS)), seed=3)
    paths = {change.path for change in diff(model, wider) if change.beyond_noise}
    assert not any("durations" in path and path.endswith("mean") for path in paths)  # a bound has no upper end


# -- the left edge -----------------------------------------------------------------------------------------------------


def present(rows, since_ms: int, until_ms: int) -> list[dict]:
    """What an export of all that was there in some time shows."""
    return [row for row in cut(rows, until_ms) if row["ended_ms"] is None or row["ended_ms"] >= since_ms]


def test_jobs_that_ran_already_count_from_when_they_were_watched():
    rows = work(5, 60)
    since_ms, until_ms = BASE + 40 * DAY_MS, BASE + 54 * DAY_MS
    shown = tables(present(rows, since_ms, until_ms), since_ms=since_ms, until_ms=until_ms)
    whole = fit(tables([row for row in rows if since_ms <= row["submitted_ms"]]))
    model = fit(shown)
    jobs = read_jobs(shown)
    window = window_of(jobs)
    assert (window.start_ms, window.end_ms) == (since_ms, until_ms)
    assert len(jobs) > sum(row["submitted_ms"] >= since_ms for row in rows if row["submitted_ms"] < until_ms)
    by_size, truth = ({one.size: one for one in each.durations} for each in (model, whole))
    assert by_size[""].p50.low <= truth[""].p50.value <= by_size[""].p50.high
    assert by_size[""].mean.value == pytest.approx(30 * HOUR_MS, rel=0.15)
    ran_then = [row for row in rows if row["started_ms"] < since_ms <= row["ended_ms"]]
    assert model.total().wanted.p05.value > 0.5 * sum(row["gpus_milli"] for row in ran_then) / 1000
    per_hour = sum(since_ms <= row["submitted_ms"] < until_ms for row in rows) / (14 * 24)
    assert model.total().arrivals.per_hour.value == pytest.approx(per_hour, rel=0.01)
    assert sum(one.jobs for one in model.streams) == pytest.approx(per_hour * 14 * 24, rel=0.01)


def test_without_the_left_edge_durations_would_look_too_long():
    rows = work(5, 60)
    since_ms, until_ms = BASE + 40 * DAY_MS, BASE + 44 * DAY_MS
    shown = present(rows, since_ms, until_ms)
    biased, told = (
        next(one for one in fit(each).durations if not one.size).p50.value
        for each in (tables(shown, until_ms=until_ms), tables(shown, since_ms=since_ms, until_ms=until_ms))
    )
    assert biased > 1.15 * told


# -- sources -----------------------------------------------------------------------------------------------------------

SACCT = """\
JobID|JobName|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES
1|train|a|COMPLETED|2026-03-02T00:00:00|2026-03-02T00:00:00|2026-03-04T00:00:00|172800|gres/gpu=8
2|train|a|RUNNING|2026-03-03T08:00:00|2026-03-03T09:00:00|Unknown|90000|gres/gpu=8
3|train|a|RUNNING|2026-03-03T08:00:00|2026-03-03T08:00:00|Unknown|93600|gres/gpu=8
4|train|a|PENDING|2026-03-04T09:00:00|Unknown|Unknown|0|gres/gpu=8
5|train|a|COMPLETED|2026-03-04T01:00:00|2026-03-04T01:00:00|2026-03-04T02:00:00|3600|gres/gpu=1
"""


def test_slurm_says_from_when_to_when_jobs_were_watched(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    found = read_sources([str(path)]).tables
    day = round(np.datetime64("2026-03-04T00:00:00").astype("datetime64[ms]").astype(int))
    assert (found.since_ms, found.until_ms) == (day, day + 10 * HOUR_MS)
    model = fit(found)
    assert model.grounds[0].start_ms == day
    assert model.group(GroupScope.KIND, "batch").tolerance.still == 1
    assert next(one for one in model.durations if one.size == "5-8").running == 2


def test_a_table_does_not_say_what_an_end_that_is_yet_to_come_means(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("id,submitted,start,end,gpus,state\n1,2026-03-02T00:00:00Z,2026-03-02T00:00:00Z,,1,running\n")
    found = read_sources([str(path)]).tables
    assert (found.since_ms, found.until_ms) == (None, None)


# -- use ---------------------------------------------------------------------------------------------------------------


def test_spells_that_were_cut_off_do_not_count_as_short():
    rng = np.random.default_rng(0)
    rows = []
    for pod in range(600):
        idle, left = bool(rng.random() < 0.5), 0
        for step in range(30):  # half an hour a pod; spells last an hour on average
            if left <= 0:
                idle, left = not idle, int(rng.exponential(60)) + 1
            left -= 1
            rows.append({"at_ms": BASE + step * MINUTE_MS, "every_ms": MINUTE_MS, "allocation": f"p{pod}"})
            rows[-1] |= {"gpus_milli": 1000, "busy_milli": 0 if idle else 800, "queue": "", "service": ""}
    frame = pl.DataFrame(rows, schema={name: USE[name] for name in rows[0]})
    nothing = [pl.lit(None, USE[name]).alias(name) for name in USE if name not in frame.columns]
    seen = measure_residency(frame.with_columns(nothing).select(USE.names()).lazy(), Calendar.EPOCH)
    assert seen.busy_run_ms == pytest.approx(HOUR_MS, rel=0.3)
    assert seen.idle_run_ms == pytest.approx(HOUR_MS, rel=0.3)
