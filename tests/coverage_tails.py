"""Coverage of quantiles of what comes in episodes: waits with a memory of days, waits in campaigns, depths of queues.

High quantiles of four weeks rest on a few of these, and most windows see less of them than there is: what
`coverage_groups.slow_queue` and `coverage_intervals.levels` do for the middle, here for the tail.
"""

from __future__ import annotations

import numpy as np

from coverage_groups import DAY_S, DAYS, slow_waits, told_tolerance
from coverage_tally import Tally
from demand_jobs import tables_of
from tidegate.demand.concurrency_stats import measure_levels, track_series
from tidegate.demand.estimate import Unit
from tidegate.demand.job_table import read_jobs
from tidegate.planning.capacity import constant
from tidegate.planning.capacity_replay import CapacityReplayer
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.stats.quantile import quantile

DAY_MS, MINUTE_MS = 1000 * DAY_S, 60_000

#: Tails of waits: name of the number, its share, and what counts where there is no interval. Of p99 four weeks with
#: a memory of days tell hardly anything, and the few that seem to are those that were lucky: what counts is that hardly
#: any window tells what is not so.
_TAILS = (("waited_p90", 0.9, None), ("waited_p95", 0.95, None), ("waited_p99", 0.99, True))

#: Campaigns: how many a day, and jobs of each: so rare that some windows hardly see one, and often.
CAMPAIGNS = ((0.1, 150), (0.1, 400), (1.0, 40), (1.0, 80))


def slow_tails(windows: int, memories: tuple[float, ...] = (0.3, 1.0, 3.0)) -> Tally:
    """Tails of waits that stay alike for hours or days."""
    tally = Tally()
    for days in memories:
        whole = np.concatenate([slow_waits(np.random.default_rng(10**6 + k), days)[1] for k in range(300)])
        for seed in range(windows):
            at, wait = slow_waits(np.random.default_rng([5, seed]), days)
            _add_tails(tally, f"memory of {days:g} days", (1000 * at, 1000 * wait), 1000 * whole)
    return tally


def campaigns(windows: int, kinds: tuple[tuple[float, int], ...] = CAMPAIGNS) -> Tally:
    """Tails of waits, and depths of the queue, where campaigns fill it now and then."""
    tally = Tally()
    for a_day, jobs in kinds:
        name = f"{a_day:g} campaigns a day of {jobs} jobs"
        whole = [_in_campaigns(np.random.default_rng([10**6, k]), 300, a_day, jobs) for k in range(6)]
        depths = np.concatenate([_depth(*one, 300) for one in whole])
        for seed in range(windows):
            mine = _in_campaigns(np.random.default_rng([6, seed]), DAYS, a_day, jobs)
            _add_tails(tally, name, mine, np.concatenate([wait for _, wait in whole]))
            depth = _depth(*mine, DAYS)
            found = measure_levels(
                track_series(depth, 10 * MINUTE_MS, 0, depth.size), Unit.JOBS, "", None, of_queue=True
            )
            tally.add(f"depth p95, {name}", found.p95, quantile(depths, 0.95))
    return tally


def _add_tails(tally: Tally, name: str, mine: tuple[np.ndarray, np.ndarray], whole_ms: np.ndarray) -> None:
    rows = zip(*((column // 1000).astype(np.int64).tolist() for column in mine), strict=True)
    found = told_tolerance(
        read_jobs(tables_of([("a", "batch", 1000, at, wait, 60, False) for at, wait in rows]), 0), "a"
    )
    for field, share, none in _TAILS:
        case = f"{field}{' or none' if none else ''}, {name}"
        tally.add(case, getattr(found, field), quantile(whole_ms, share), none=none)


def _in_campaigns(rng: np.random.Generator, days: int, a_day: float, jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """When jobs come and how long they wait for 48 GPUs: single jobs for 40 % of these, and campaigns on top."""
    single, hours = rng.poisson(0.4 * 48 / (2 * 2.9) * 24 * days), 2.0
    begins = rng.integers(0, days * DAY_MS, rng.poisson(a_day * days))
    sizes = rng.poisson(jobs, begins.size)
    more = np.repeat(begins, sizes) + rng.integers(0, 10 * MINUTE_MS, int(sizes.sum()))
    at_ms = np.concatenate((rng.integers(0, days * DAY_MS, single), more))
    gpus = np.concatenate((rng.choice([1, 2, 4, 8], single, p=[0.4, 0.25, 0.2, 0.15]), np.full(more.size, 2)))
    run_ms = (rng.exponential(hours, at_ms.size) * 60 * MINUTE_MS).astype(np.int64) + 1000
    order = np.argsort(at_ms, kind="stable")
    order = order[at_ms[order] < days * DAY_MS]
    work = PlanJobs(at_ms[order], run_ms[order], gpus[order] * 1000, np.ones(order.size, np.int64))
    return work.at_ms, CapacityReplayer(work).replay(constant(48_000, int(work.at_ms[0]))).wait_ms


def _depth(at_ms: np.ndarray, wait_ms: np.ndarray, days: int) -> np.ndarray:
    """Jobs that wait, on average in each ten minutes."""
    minutes = days * 1440
    came, gone = (
        np.bincount(np.minimum(at // MINUTE_MS, minutes), minlength=minutes + 1) for at in (at_ms, at_ms + wait_ms)
    )
    return np.cumsum(came - gone)[:minutes].reshape(-1, 10).mean(axis=1)
