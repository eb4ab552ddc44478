"""Coverage of every kind of interval that is told: how many of many windows of made-up work hold the truth.

Each kind is a function of how many windows to try; it gives the share of the intervals that hold the truth, by case.
`tests/test_stats_coverage.py` tries a few windows in `make test`, `tests/nightly.py` many.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from builders import fleet
from coverage_groups import batches, busy_together, slow_queue
from coverage_tails import campaigns, slow_tails
from coverage_tally import Tally
from demand_jobs import tables_of
from queue_twins import HOUR, planned, play
from tidegate.demand.arrivals import measure_arrivals
from tidegate.demand.concurrency import curves_of
from tidegate.demand.concurrency_stats import measure_levels, track_curve, track_series
from tidegate.demand.durations import _moments, measure_durations
from tidegate.demand.estimate import How, Unit, estimate, rank_quantile, share, unit_interval
from tidegate.demand.forecast_report import look_ahead
from tidegate.demand.job_table import read_jobs, wanted_spans, window_of
from tidegate.demand.measure_groups import measure_mix
from tidegate.demand.model import GroupScope
from tidegate.demand.step_curve import Window
from tidegate.demand.survival import WatchedDurations, estimate_survival, survival_quantile
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import _late_share, gather_waits, measure_tolerance, sort_waits
from tidegate.jit.registry import kernels_as
from tidegate.measure.job_records import JobRecords
from tidegate.measure.ratios import RatioInterval, Runs, by_seed, completions, parting_of, ratio_interval, waits
from tidegate.model.arrays import F64
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.simulation import TwinOptions
from tidegate.planning.capacity import constant
from tidegate.planning.capacity_replay import CapacityReplayer, ReplaySpan
from tidegate.planning.floor import find_floor, smallest
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.planning.tolerance import WaitTolerance
from tidegate.stats.quantile import quantile

STEP_MS, STEPS_A_DAY, DAY_MS = 600_000, 144, 86_400_000


def level(rng: np.random.Generator, days: int, mean_days: float, swing: float = 0.0) -> np.ndarray:
    """Jobs at once, 60 on average, in steps of ten minutes: Poisson arrivals, exponential runtimes, a daily cycle."""
    steps, mean = days * STEPS_A_DAY, mean_days * STEPS_A_DAY
    warm = int(8 * mean)
    at = rng.uniform(-warm, steps, rng.poisson(60 / mean * (1 + swing) * (steps + warm)))
    at = at[rng.random(at.size) * (1 + swing) < 1 + swing * np.sin(2 * np.pi * at / STEPS_A_DAY)]
    end = at + rng.exponential(mean, at.size)
    change = np.zeros(steps + 1)
    np.add.at(change, np.clip(at, 0, steps).astype(int), 1)
    np.add.at(change, np.clip(end, 0, steps).astype(int), -1)
    return np.cumsum(change)[:steps]


def levels(windows: int, days_of_jobs: tuple[float, ...] = (0.1, 0.5, 1, 3, 5)) -> Tally:
    """Mean and p95 of a level over four weeks, by how long jobs run."""
    tally = Tally()
    for mean_days in days_of_jobs:
        series = [level(np.random.default_rng(seed), 28, mean_days) for seed in range(windows)]
        p95 = quantile(
            np.concatenate([level(np.random.default_rng(10**6 + k), 28, mean_days) for k in range(150)]), 0.95
        )
        for each in series:
            found = measure_levels(track_series(each, STEP_MS, 0, each.size), Unit.GPUS, "jobs", None)
            tally.add(f"mean, jobs of {mean_days:g} days", found.mean, 60)
            tally.add(f"p95, jobs of {mean_days:g} days", found.p95, p95)
    return tally


def job_tables(windows: int) -> Tally:
    """Levels of four weeks of submitted jobs, 60 at once: what ran when the table begins is not in it."""
    tally = Tally()
    for hours in (2, 6):
        for seed in range(windows):
            rng = np.random.default_rng(seed)
            at = np.sort(rng.integers(0, 28 * 86_400, rng.poisson(60 / hours * 24 * 28)))
            took = rng.exponential(hours * 3600, at.size).astype(np.int64) + 1
            rows = zip(at.tolist(), took.tolist(), strict=True)
            jobs = read_jobs(tables_of([("a", "batch", 1000, one, 0, run, False) for one, run in rows]), 0)
            window = window_of(jobs)
            curve = curves_of(wanted_spans(jobs.whole(), window), jobs.cells, window)[GroupScope.TOTAL][0]
            found = measure_levels(track_curve(curve, len(jobs)), Unit.GPUS, "jobs", None)
            tally.add(f"mean, jobs of {hours} h", found.mean, 60)
    return tally


def mixes(windows: int) -> Tally:
    """The share of one of two kinds of work, over three weeks."""
    tally = Tally()
    for seed in range(windows):
        rng = np.random.default_rng(seed)
        tracks = {
            kind: track_series(level(rng, 21, mean_days, 0.5), STEP_MS, 0, 1000)
            for kind, mean_days in (("batch", 1.0), ("inference", 0.2))
        }
        tally.add("share", measure_mix(tracks, Calendar.EPOCH)[0].share, 0.5)
    return tally


def arrivals(windows: int) -> Tally:
    """Rate, variation of gaps and dispersion of arrivals that are independent, over a week: 60 in an hour."""
    tally = Tally()
    for seed in range(windows):
        rng = np.random.default_rng(seed)
        at_ms = np.sort(rng.integers(0, 7 * DAY_MS, rng.poisson(60 * 24 * 7)))
        found = measure_arrivals(at_ms, Window(0, 7 * DAY_MS), Unit.JOBS, "jobs", ordered=True)
        tally.add("rate", found.per_hour, 60)
        assert found.gap_cv is not None
        tally.add("CV of gaps", found.gap_cv, 1)
        for one in found.dispersion[2:]:
            tally.add(f"IDC at {one.window_ms // 1000} s", one.idc, 1)
    return tally


def durations(windows: int) -> Tally:
    """Mean and quantiles of 300 lognormal durations, p50 where some still run, and the CV of even ones."""
    tally = Tally()
    truth = np.random.default_rng(9).lognormal(8, 1, 2_000_000)
    for seed in range(windows):
        rng = np.random.default_rng(seed)
        values = np.sort(rng.lognormal(8, 1, 300)).astype(np.int64)
        tally.add("mean", _moments(_by_day(values, rng), values.size)[0], float(truth.mean()))
        even = np.sort(rng.uniform(1e6, 3e6, 300)).astype(np.int64)
        tally.add("CV", _moments(_by_day(even, rng), even.size)[1], 1 / 12**0.5)
        for part in (0.5, 0.9):
            tally.add(f"p{100 * part:.0f}", rank_quantile(values, part, Unit.MS, "jobs"), quantile(truth, part))
        age = rng.integers(0, 20_000, 300)
        whole = rng.lognormal(8, 1, 300)
        watched = WatchedDurations(
            np.sort(whole[whole <= age]).astype(np.int64), np.sort(age[whole > age]), np.zeros(0, np.int64)
        )
        tally.add(
            "p50, some running",
            survival_quantile(estimate_survival(watched), 0.5, Unit.MS, "jobs"),
            quantile(truth, 0.5),
        )
    return tally


def _by_day(values: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return tuple(map(np.sort, np.array_split(rng.permutation(values), 28)))


def arrays(windows: int, alike: tuple[int, ...] = (1, 5, 20)) -> Tally:
    """Mean and quantiles of 1000 durations over four weeks, in arrays of jobs that last alike; and who gave up."""
    tally = Tally()
    truth = np.random.default_rng(9).lognormal(8, 1, 2_000_000)
    for jobs in alike:
        for seed in range(windows):
            rng = np.random.default_rng(seed)
            lasts = np.repeat(rng.lognormal(8, 1, 1000 // jobs), jobs) * rng.lognormal(0, 0.02, 1000)
            at = np.repeat(rng.integers(0, 28 * 86_400, 1000 // jobs), jobs)
            gone = np.repeat(rng.random(1000 // jobs) < 0.1, jobs)
            rows = zip(at.tolist(), lasts.tolist(), gone.tolist(), strict=True)
            tables = tables_of([("a", "batch", 1000, one, 0, int(took) + 1, left) for one, took, left in rows])
            work = read_jobs(tables, 0)
            found = measure_durations(work)[0]
            for name, part in (("p50", 0.5), ("p90", 0.9)):
                tally.add(f"{name}, arrays of {jobs}", getattr(found, name), 1000 * quantile(truth, part))
            tally.add(f"mean, arrays of {jobs}", found.mean, 1000 * float(truth.mean()))
            cancelled = measure_tolerance(gather_waits(sort_waits(work)), 1000).cancelled
            assert cancelled is not None
            tally.add(f"cancelled, arrays of {jobs}", cancelled, 0.1)
    return tally


def units(windows: int) -> Tally:
    """A ratio of sums over 40 pods, and a share of 200 jobs."""
    tally = Tally()
    for seed in range(windows):
        rng = np.random.default_rng(seed)
        held = rng.exponential(1.0, 40)
        busy = held * rng.beta(2, 2, 40)
        ratio = float(busy.sum() / held.sum())
        found = unit_interval(ratio, (busy - ratio * held) / held.sum(), 40)
        tally.add("busy over held", estimate(ratio, found, Unit.SHARE, (40, "use"), How.UNITS), 0.5)
        tally.add("share of jobs", share(int(rng.binomial(200, 0.1)), 200, "jobs"), 0.1)
    return tally


def floors(windows: int, hours_of_jobs: tuple[float, ...] = (2, 12, 72)) -> Tally:
    """The floor over four weeks, by how long jobs run; what ran when they begin is listed."""
    tally = Tally()
    for hours in hours_of_jobs:
        tolerance = WaitTolerance(HOUR)
        whole = _plan_jobs(np.random.default_rng(10**6), 900, hours)
        truth = smallest(CapacityReplayer(whole), tolerance, ReplaySpan(*whole.span_ms))
        for seed in range(windows):
            found = find_floor(CapacityReplayer(_watched_jobs(np.random.default_rng(seed), hours)), tolerance, 0)
            held = (
                None
                if found.low_gpus is None or found.high_gpus is None
                else found.low_gpus <= truth <= found.high_gpus
            )
            tally.cases.setdefault(f"jobs of {hours} h", []).append(held)
    return tally


def _watched_jobs(rng: np.random.Generator, hours: float) -> PlanJobs:
    """Jobs of the last four weeks, and those before them that had not ended."""
    before = -(-10 * hours // 24)
    jobs, since_ms = _plan_jobs(rng, int(28 + before), hours), int(before * DAY_MS)
    there = np.flatnonzero((jobs.at_ms >= since_ms) | (jobs.at_ms + jobs.run_ms > since_ms))
    return jobs.take(there)._replace(since_ms=since_ms)


def _plan_jobs(rng: np.random.Generator, days: int, hours: float) -> PlanJobs:
    count = rng.poisson(12 / hours * 24 * days)
    at_ms = np.sort(rng.integers(0, days * DAY_MS, count))
    run_ms = (rng.exponential(hours, count) * HOUR).astype(np.int64) + 1000
    gpus = rng.choice([1, 2, 4, 8], count, p=[0.4, 0.25, 0.2, 0.15]) * 1000
    return PlanJobs(at_ms, run_ms, gpus, np.ones(count, np.int64))


def waits_of_jobs(windows: int) -> Tally:
    """Quantiles of waits in a queue for 48 GPUs over four weeks, and the share that waits longer than an hour."""
    tally, tolerated_ms = Tally(), HOUR
    whole = _queued(np.random.default_rng(10**6), 900)
    for seed in range(windows):
        at_ms, wait_ms = _queued(np.random.default_rng(seed), 28)
        rows = zip((at_ms // 1000).tolist(), (wait_ms // 1000).tolist(), strict=True)
        jobs = read_jobs(tables_of([("a", "batch", 1000, at, wait, 60, False) for at, wait in rows]), 0)
        found = measure_tolerance(gather_waits(sort_waits(jobs)), at_ms.size)
        for name, part in (("waited_p90", 0.9), ("waited_p95", 0.95)):
            tally.add(name, getattr(found, name), quantile(whole[1], part))
        late = _late_share(at_ms, wait_ms > tolerated_ms)
        tally.add("late", late, float((whole[1] > tolerated_ms).mean()))
    return tally


def _queued(rng: np.random.Generator, days: int) -> tuple[np.ndarray, np.ndarray]:
    """When jobs come, and how long they wait for 48 GPUs."""
    jobs = _plan_jobs(rng, days, 2)
    return jobs.at_ms, CapacityReplayer(jobs).replay(constant(48_000, int(jobs.at_ms[0]))).wait_ms


def forecasts(windows: int) -> Tally:
    """The 90 % bands an hour and a day ahead, after three weeks with a daily cycle."""
    tally = Tally()
    for seed in range(windows):
        series = level(np.random.default_rng(seed), 22, 1.0, 0.5)
        past = series[: 21 * STEPS_A_DAY]
        told = look_ahead("wanted", Unit.GPUS, past, STEP_MS, 0)
        assert told is not None
        for one in told.ahead:
            truth = series[past.size - 1 + one.horizon_ms // STEP_MS]
            case = f"{one.horizon_ms // 60_000} min ahead"
            tally.cases.setdefault(case, []).append(one.quantiles[0] <= truth <= one.quantiles[-1])
    return tally


# -- compare ---------------------------------------------------------------------------------------------------


def same_policy_twice(traces: int, hours: float = 96, first: int = 0) -> Iterator[tuple[RatioInterval, RatioInterval]]:
    """Intervals of mean wait and mean JCT for one policy against itself with another seed: the true ratio is 1."""
    for number in range(first, first + traces):
        work = _trace(1000 + number, hours)
        runs = []
        for seed in (2 * number + 1, 2 * number + 2):
            policy = Policy(placement=PlacementRule(kind=PlacementKind.RANDOM, seed=seed), cycle_ms=60_000)
            runs.append((play(work, policy, fleet("6x h100x8")).measured.lives,))
        yield _second_to_first(runs, waits), _second_to_first(runs, completions)


def _second_to_first(runs: list[Runs], values_of: Callable[[JobRecords], F64]) -> RatioInterval:
    """The interval of the ratio of means, over workloads that both have."""
    first, second = runs[:2]
    ids, at_ms = list(first[0].ids), first[0].submitted_ms
    waited, taken = by_seed(first, ids, waits), by_seed(first, ids, completions)
    parting = parting_of(by_seed(second, ids, waits), waited, taken)
    return ratio_interval(by_seed(second, ids, values_of), by_seed(first, ids, values_of), at_ms, parting)


def comparisons(traces: int) -> Tally:
    """A/A tests of `compare`, on traces that no constant of `stats` was chosen with."""
    tally = Tally()
    with kernels_as(compiled=True):
        for pair in same_policy_twice(traces, first=5000):
            for name, interval in zip(("mean wait", "mean JCT"), pair, strict=True):
                held = None if interval.none else not interval.excludes_one()
                tally.cases.setdefault(name, []).append(held)
    return tally


class Shop(NamedTuple):
    """A queue before some GPUs: days, load, GPUs, mean hours of jobs and how uneven they are, the swing of a day."""

    days: float
    load: float
    gpus: int
    hours: float
    sigma: float
    swing: float
    fails: float = 0.15  # share of jobs that lose part of their work


#: Below saturation and in overload, from a day to four weeks. `stats.shocks` was chosen with a look at all of these
#: shapes, on other traces of them.
SHOPS = tuple(
    Shop(days, *shape)
    for days in (1, 4, 14, 28)
    for shape in (
        (0.7, 16, 2, 0, 0.5), (0.9, 16, 2, 0, 0.5), (0.9, 16, 4, 1.5, 0.5), (1.05, 16, 4, 1.5, 0.5),
        (0.8, 4, 6, 1.5, 0), (0.85, 32, 3, 1, 0.5), (0.95, 16, 1, 0, 0), (1.2, 8, 3, 1, 0.5),
        (0.9, 8, 8, 1.2, 0.5, 0.02), (1.0, 16, 2, 0, 0.5),
    )
)  # fmt: skip


def failures(traces: int, shops: tuple[Shop, ...] = SHOPS, seeds: tuple[int, ...] = (1, 5), first: int = 0) -> Tally:
    """A/A tests where runs differ in the jobs that fail alone: in a queue, first come first served."""
    tally = Tally()
    for shop in shops:
        for number in range(first, first + traces):
            rng = np.random.default_rng([number, *(int(100 * part) for part in shop)])
            at_ms, run_ms = _arrive(rng, shop)
            if at_ms.size < 10:
                continue
            for count in seeds:
                runs = [_serve_all(rng, shop, at_ms, run_ms, count) for _ in range(2)]
                parting = parting_of(runs[0][0], runs[1][0], runs[1][1])
                for at, name in enumerate(("mean wait", "mean JCT")):
                    interval = ratio_interval(runs[0][at], runs[1][at], at_ms, parting)
                    held = None if interval.none else not interval.excludes_one()
                    shape = f"load {shop.load:g}, {shop.gpus} GPUs, {shop.hours:g} h"
                    case = f"{name}, {shop.days:g} days, {shape}, {count} seeds"
                    tally.cases.setdefault(case, []).append(held)
    return tally


def _arrive(rng: np.random.Generator, shop: Shop) -> tuple[np.ndarray, np.ndarray]:
    """When jobs come, and how long they run."""
    count = rng.poisson(shop.load * shop.gpus / shop.hours * 24 * shop.days * (1 + shop.swing))
    at = np.sort(rng.uniform(0, 24 * shop.days, count))
    at = at[rng.random(count) * (1 + shop.swing) < 1 + shop.swing * np.sin(2 * np.pi * at / 24)]
    centre = np.log(shop.hours) - shop.sigma**2 / 2
    hours = rng.lognormal(centre, shop.sigma, at.size) if shop.sigma else rng.exponential(shop.hours, at.size)
    return (at * HOUR).astype(np.int64), hours * HOUR


def _serve_all(
    rng: np.random.Generator, shop: Shop, at_ms: np.ndarray, run_ms: np.ndarray, seeds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Waits and completion times by seed; some jobs do part of their work twice."""
    waited, taken = np.empty((2, seeds, at_ms.size))
    for seed in range(seeds):
        again = np.where(rng.random(at_ms.size) < shop.fails, rng.random(at_ms.size), 0)
        waited[seed] = _serve(at_ms, run_ms * (1 + again), shop.gpus)
        taken[seed] = waited[seed] + run_ms * (1 + again)
    return waited, taken


def _serve(at_ms: np.ndarray, run_ms: np.ndarray, gpus: int) -> np.ndarray:
    free, waited = [0.0] * gpus, []
    for at, run in zip(at_ms.tolist(), run_ms.tolist(), strict=True):
        start = max(at, free[0])
        heapq.heapreplace(free, start + run)
        waited.append(start - at)
    return np.array(waited)


def failing_pods(traces: int, hours: float = 24, first: int = 0) -> Tally:
    """A/A tests in the twin, where runs differ in the pods that fail alone: below saturation and in overload."""
    tally = Tally()
    for load in (0.9, 1.1):
        shop = Shop(hours / 24, load, 16, 2, 0, 0.5)
        for number in range(first, first + traces):
            at_ms, run_ms = _arrive(np.random.default_rng([11, number]), shop)
            work = [
                planned(f"j{row:05d}", "1x1", at=at / HOUR, hours=max(run, 60_000) / HOUR, **_FAILS)
                for row, (at, run) in enumerate(zip(at_ms.tolist(), run_ms.tolist(), strict=True))
            ]
            runs = []
            for seed in (2 * number + 1, 2 * number + 2):
                played = play(work, Policy(cycle_ms=60_000), fleet("2x h100x8"), TwinOptions(seed=seed))
                runs.append((played.measured.lives,))
            for name, values in (("mean wait", waits), ("mean JCT", completions)):
                interval = _second_to_first(runs, values)
                held = None if interval.none else not interval.excludes_one()
                tally.cases.setdefault(f"{name}, load {load:g}", []).append(held)
    return tally


_FAILS = {"fails_every_ms": 10 * HOUR, "checkpoint_every_ms": HOUR}


def _failing_pods(traces: int) -> Tally:
    with kernels_as(compiled=True):
        return failing_pods(traces)


def _trace(seed: int, hours: float) -> list:
    """Four days of work for 75 % of 48 GPUs, with gangs."""
    rng, sizes, shares = (
        random.Random(seed),
        {"1x1": 1, "1x2": 2, "1x4": 4, "1x8": 8, "2x8": 16},
        (0.5, 0.2, 0.15, 0.1, 0.05),
    )
    rate = 48 * 0.75 / (2 * sum(gpus * part for gpus, part in zip(sizes.values(), shares, strict=True)))
    work, at = [], 0.0
    while at < hours:
        at += rng.expovariate(rate)
        size = rng.choices(list(sizes), shares)[0]
        takes = round(rng.lognormvariate(0.2, 1.0), 3) + 0.01
        work.append(planned(f"j{len(work):05d}", size, at=round(at, 4), hours=takes))
    return work


#: Each kind of interval, windows that a night tries, and the least share of intervals that must hold the truth.
KINDS: dict[str, tuple[Callable[[int], Tally], int, float]] = {
    "levels": (levels, 300, 0.85),
    "job tables": (job_tables, 200, 0.80),
    "mix": (mixes, 200, 0.85),
    "arrivals": (arrivals, 200, 0.85),
    "durations": (durations, 400, 0.85),
    "arrays": (arrays, 200, 0.80),
    "units": (units, 400, 0.85),
    "batches": (batches, 100, 0.82),
    "busy together": (busy_together, 100, 0.80),
    "slow queue": (slow_queue, 150, 0.78),
    "slow tails": (slow_tails, 400, 0.85),
    "campaigns": (campaigns, 100, 0.80),
    "floor": (floors, 100, 0.83),
    "waits": (waits_of_jobs, 150, 0.80),
    "forecast": (forecasts, 60, 0.80),
    "compare": (comparisons, 200, 0.86),
    "failures": (failures, 150, 0.86),
    "failing-pods": (_failing_pods, 60, 0.84),  # of few: 14 % are 8 of 60
}
