"""Coverage of intervals where work comes in batches, of one queue among several, and of pods that are busy together.

What `coverage_intervals` does for single jobs: arrays that are cancelled, declared or started together, ties, and a
small queue whose waits stay alike for days beside a large one whose waits do not.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from coverage_tally import Tally
from demand_jobs import tables_of
from tidegate.demand.cold_start import measure_starts
from tidegate.demand.durations import measure_durations
from tidegate.demand.job_table import JobTable, read_jobs
from tidegate.demand.residency import measure_residency
from tidegate.demand.tables import USE
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import MeasuredTolerance, gather_waits, measure_tolerance, sort_waits
from tidegate.stats.quantile import quantile

DAYS, DAY_S = 28, 86_400


def batches(windows: int, alike: tuple[int, ...] = (1, 5, 20)) -> Tally:
    """Patience, tolerances as declared, ties, and how long starts take; in batches of like ones."""
    tally = Tally()
    for jobs in alike:
        for seed in range(windows):
            rng = np.random.default_rng(seed)
            at = np.repeat(rng.integers(0, DAYS * DAY_S, 2000 // jobs), jobs)
            name = f"batches of {jobs}"
            tally.add(f"given up, {name}", _given_up(rng, at, jobs), -np.log(0.9) * 36_000_000)
            tally.add(f"declared, {name}", _declared(rng, at, jobs), 28_800_000)
            tally.add(f"ties, {name}", _ties(rng, at, jobs), 3_600_000)
            tally.add(f"starts, {name}", _starts(rng, at[:: max(10 // jobs, 1)], jobs), np.exp(11.0))
    return tally


def _given_up(rng: np.random.Generator, at: np.ndarray, jobs: int):
    """The wait by which a tenth gives up, of patience that is 10 hours on average."""
    batch = at.size // jobs
    patience = np.repeat(rng.exponential(36_000, batch), jobs) * rng.lognormal(0, 0.01, at.size)
    start = np.repeat(rng.exponential(7_200, batch), jobs)
    waits = zip(at.tolist(), patience.tolist(), start.tolist(), strict=True)
    rows = [("a", "batch", 1000, on, int(min(one, other)), 600, one < other) for on, one, other in waits]
    return told_tolerance(read_jobs(tables_of(rows), 0), "a").tolerated


def _declared(rng: np.random.Generator, at: np.ndarray, jobs: int):
    """The wait that nine of ten declare, or more: an hour is declared by 8 %, eight hours by the others."""
    said = np.repeat(rng.choice([3_600_000, 28_800_000], at.size // jobs, p=[0.08, 0.92]), jobs)
    tables = tables_of([("a", "batch", 1000, on, 0, 60, False) for on in at.tolist()])
    assert tables.jobs is not None
    tables = tables._replace(jobs=tables.jobs.with_columns(tolerated_wait_ms=pl.Series(said)))
    return told_tolerance(read_jobs(tables, 0), "a").tolerated


def _ties(rng: np.random.Generator, at: np.ndarray, jobs: int):
    """The median of durations of which 45 % are a minute and the others an hour."""
    took = np.repeat(np.where(rng.random(at.size // jobs) < 0.45, 60, 3_600), jobs)
    rows = [("a", "batch", 1000, on, 0, run, False) for on, run in zip(at.tolist(), took.tolist(), strict=True)]
    return measure_durations(read_jobs(tables_of(rows), 0))[0].p50


def _starts(rng: np.random.Generator, at: np.ndarray, jobs: int):
    """The median of how long nodes take to start."""
    took = np.repeat(rng.lognormal(11, 0.5, -(-at.size // jobs)), jobs)[: at.size].astype(np.int64)
    frame = pl.DataFrame({"at_ms": at * 1000, "stage": "node", "service": "", "took_ms": took})
    found = measure_starts(frame.lazy())
    assert found is not None
    return found.stages[0].p50


def told_tolerance(jobs: JobTable, queue: str) -> MeasuredTolerance:
    row = jobs.names["queue"].index(queue)
    mine = gather_waits([one for one in sort_waits(jobs) if one.belongs("queue", row)])
    return measure_tolerance(mine, int(mine.counts.began.sum()))


def slow_queue(windows: int, memory_days: float = 1.0) -> Tally:
    """Waits of a small queue that stay alike for a day, beside a large queue whose waits differ from day to day."""
    tally = Tally()
    whole = np.concatenate([slow_waits(np.random.default_rng(10**6 + k), memory_days)[1] for k in range(200)])
    for seed in range(windows):
        at, wait = slow_waits(np.random.default_rng(seed), memory_days)
        rng = np.random.default_rng([7, seed])
        others = np.sort(rng.integers(0, DAYS * DAY_S, 4_000))
        noise = rng.exponential(7_200, others.size) * rng.lognormal(0, 0.8, DAYS)[others // DAY_S]
        rows = [("a", "batch", 1000, on, int(long), 60, False) for on, long in zip(at.tolist(), wait, strict=True)]
        rows += [
            ("b", "batch", 1000, on, int(long), 60, False) for on, long in zip(others.tolist(), noise, strict=True)
        ]
        found = told_tolerance(read_jobs(tables_of(rows), 0), "a")
        for name, part in (("waited_p50", 0.5), ("waited_p90", 0.9)):
            tally.add(name, getattr(found, name), 1000 * quantile(whole, part))
    return tally


def slow_waits(rng: np.random.Generator, memory_days: float) -> tuple[np.ndarray, np.ndarray]:
    hours, left = DAYS * 24, np.exp(-1 / (24 * memory_days))
    moved = rng.normal(size=hours) * np.sqrt(1 - left * left)
    level = np.empty(hours)
    level[0] = rng.normal()
    for hour in range(1, hours):
        level[hour] = left * level[hour - 1] + moved[hour]
    at = np.sort(rng.integers(0, DAYS * DAY_S, 20 * DAYS))
    return at, np.floor(3_600 * np.exp(0.7 * level[at // 3_600]))


def busy_together(windows: int, swing: float = 0.4) -> Tally:
    """Busy and idle shares of 30 pods over two weeks, all of which are busy when requests come: alike for a day."""
    tally = Tally()
    truth = np.mean([_shares(_busy(np.random.default_rng(10**6 + k), swing)) for k in range(100)], axis=0)
    for seed in range(windows):
        busy = _busy(np.random.default_rng(seed), swing)
        found = measure_residency(_use(busy), Calendar.EPOCH)
        assert found is not None
        tally.add("busy", found.duty, float(truth[0]))
        tally.add("idle", found.idle, float(truth[1]))
    return tally


def _busy(rng: np.random.Generator, swing: float, pods: int = 30, steps: int = 14 * 144) -> np.ndarray:
    """Thousandths of a GPU by pod and step of ten minutes."""
    left = np.exp(-1 / 144)
    moved = rng.normal(size=steps) * np.sqrt(1 - left * left)
    level = np.empty(steps)
    level[0] = rng.normal()
    for step in range(1, steps):
        level[step] = left * level[step - 1] + moved[step]
    load = 0.3 * np.exp(swing * level - swing**2 / 2)
    busy = np.clip(load * rng.gamma(20, 1 / 20, (pods, 1)) + rng.normal(0, 0.05, (pods, steps)), 0, 1)
    return np.rint(1000 * np.where(rng.random((pods, steps)) < np.clip(0.9 - 1.5 * load, 0, 1), 0, busy))


def _shares(busy: np.ndarray) -> tuple[float, float]:
    return float(busy.mean()) / 1000, float((busy == 0).mean())


def _use(busy: np.ndarray) -> pl.LazyFrame:
    pods, steps = busy.shape
    told = {
        "at_ms": pl.Series(np.tile(np.arange(steps) * 600_000, pods)),
        "every_ms": pl.lit(600_000),
        "allocation": pl.Series(np.repeat(np.arange(pods), steps)),
        "busy_milli": pl.Series(busy.ravel()),
    }
    empty = {name: pl.lit("" if dtype == pl.String else None) for name, dtype in USE.items()}
    return pl.select(**(empty | told)).select(USE.names()).cast(USE).lazy()
