"""The canonical tables of demand: every source is converted to them, and the model is fitted to them.

Times are milliseconds since 1970, or since the start of a trace without dates (`Calendar.NONE`). Amounts are in
thousandths of a GPU. A value that was not recorded is null, or "" for a name; never a guess.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.time_zone import Calendar
from tidegate.model.arrays import I64
from tidegate.model.struct import Spec

#: Kinds of work.
KINDS = ("batch", "inference", "interactive")

#: Sizes by the most GPUs in them, and their names.
SIZES = ((999, "<1"), (1_000, "1"), (2_000, "2"), (4_000, "3-4"), (8_000, "5-8"), (16_000, "9-16"), (64_000, "17-64"))
LARGEST = "65+"
SIZE_NAMES = (*(name for _, name in SIZES), LARGEST)


def size_of(gpus_milli: I64) -> I64:
    """The row of SIZE_NAMES of each job."""
    return np.searchsorted(np.array([most for most, _ in SIZES]), gpus_milli, side="left")


#: Work that has a beginning and an end.
JOBS = pl.Schema(
    {
        "id": pl.String(),
        "queue": pl.String(),  # team, virtual cluster, namespace
        "kind": pl.String(),  # batch, inference or interactive
        "gpu_model": pl.String(),
        "gpus_milli": pl.Int64(),  # of all its pods together
        "pods": pl.Int64(),
        "submitted_ms": pl.Int64(),
        "started_ms": pl.Int64(),  # null: not recorded, or not yet
        "ended_ms": pl.Int64(),  # null: not recorded, or not yet
        "duration_ms": pl.Int64(),  # of running; null: not known yet
        "priority": pl.Int64(),
        "outcome": pl.String(),  # done, failed, cancelled, running, pending
        "tolerated_wait_ms": pl.Int64(),  # as declared
    }
)

#: Requests to services: one by one, or counted in windows.
REQUESTS = pl.Schema(
    {
        "at_ms": pl.Int64(),
        "window_ms": pl.Int64(),  # 0: a single request
        "count": pl.Float64(),  # requests in the window
        "service": pl.String(),
        "client": pl.String(),
        "tokens_in": pl.Int64(),
        "tokens_out": pl.Int64(),
        "latency_ms": pl.Int64(),
        "arrival_cv": pl.Float64(),  # of the times between arrivals in the window
    }
)

#: What an allocation did with its GPUs.
USE = pl.Schema(
    {
        "at_ms": pl.Int64(),
        "every_ms": pl.Int64(),  # how long the sample stands for
        "allocation": pl.String(),  # a pod or a GPU of one
        "queue": pl.String(),
        "service": pl.String(),  # the model that is served, where known
        "gpu_model": pl.String(),
        "gpus_milli": pl.Int64(),
        "busy_milli": pl.Int64(),  # 0 to 1000: share of the time the GPU had work
        "vram_mib": pl.Int64(),
        "vram_total_mib": pl.Int64(),
        "power_w": pl.Int64(),
    }
)

#: What there was, and who ran and waited.
CAPACITY = pl.Schema(
    {
        "at_ms": pl.Int64(),
        "every_ms": pl.Int64(),
        "queue": pl.String(),
        "gpu_model": pl.String(),
        "total_milli": pl.Int64(),
        "running_milli": pl.Int64(),
        "pending_milli": pl.Int64(),
        "running_jobs": pl.Int64(),
        "pending_jobs": pl.Int64(),
    }
)

#: How long it took until something could be used.
STARTS = pl.Schema(
    {
        "at_ms": pl.Int64(),
        "stage": pl.String(),  # node, driver, image, weights, warmup
        "service": pl.String(),
        "took_ms": pl.Int64(),
    }
)


def fill_table(schema: pl.Schema, columns: dict[str, Any]) -> pl.DataFrame:
    """A table with all columns of a schema; one that is not given is null, or "" where it is a name."""
    missing = [pl.lit("" if kind == pl.String() else None).alias(name) for name, kind in schema.items()]
    table = pl.DataFrame(columns).with_columns(one for one in missing if one.meta.output_name() not in columns)
    return table.select(schema.names()).cast(schema)


class RowOrigin(Spec, frozen=True, kw_only=False):
    """Where rows came from."""

    name: str  # file, or the address of a server
    kind: str  # the format
    query: str  # which part of it; "" for all
    rows: int


class Recorded(NamedTuple):
    """What times of jobs say; what they do not say is not known, and not 0."""

    submissions: bool = True  # else jobs are taken as submitted at their start: how long they waited is not known
    runtimes: bool = True  # else they reach from submission to end: an upper bound, for waits are in them

    def both(self, other: Recorded) -> Recorded:
        """What is known of the jobs of two sources together."""
        return Recorded(*(mine and its for mine, its in zip(self, other, strict=True)))


class Tables(NamedTuple):
    """What was gathered; a table that no source had is None. Frames are lazy: files may be larger than memory."""

    jobs: pl.LazyFrame | None = None
    requests: pl.LazyFrame | None = None
    use: pl.LazyFrame | None = None
    capacity: pl.LazyFrame | None = None
    starts: pl.LazyFrame | None = None
    calendar: Calendar = Calendar.EPOCH
    origins: tuple[RowOrigin, ...] = ()
    since_ms: int | None = None  # from when on all jobs that were there are listed; None: all that were submitted
    until_ms: int | None = None  # when jobs were last looked at; None: at the latest time that any of them has
    recorded: Recorded = Recorded()  # of all jobs
    dropped: int = 0  # rows of all sources that could not be used


def tables_at(tables: Tables, now_ms: int) -> Tables:
    """The tables as they would have been gathered at a time: nothing later is in them."""
    return tables._replace(
        jobs=None if tables.jobs is None else _jobs_at(tables.jobs, now_ms),
        requests=None if tables.requests is None else _requests_at(tables.requests, now_ms),
        use=_samples_at(tables.use, now_ms),
        capacity=_samples_at(tables.capacity, now_ms),
        starts=None if tables.starts is None else tables.starts.filter(_came("at_ms", "took_ms") < now_ms),
        until_ms=now_ms,
    )


def _jobs_at(jobs: pl.LazyFrame, now_ms: int) -> pl.LazyFrame:
    """Jobs that had been submitted; what had not ended by then ran or waited."""
    submitted, started, ended = (pl.col(name) for name in ("submitted_ms", "started_ms", "ended_ms"))
    outcome, duration = pl.col("outcome").fill_null(""), pl.col("duration_ms")
    over = pl.coalesce(ended, pl.coalesce(started, submitted) + duration)
    ended_later = (over >= now_ms).fill_null(value=False)
    not_started = (started >= now_ms).fill_null(value=False) | (started.is_null() & (outcome == "cancelled"))
    state = pl.when(not_started).then(pl.lit("pending")).otherwise(pl.lit("running"))
    later = ended_later | (started >= now_ms).fill_null(value=False)
    return jobs.filter(submitted < now_ms).with_columns(
        outcome=pl.when(later).then(state).otherwise(pl.col("outcome")),
        started_ms=pl.when(started < now_ms).then(started),
        ended_ms=pl.when(~later).then(ended),
        duration_ms=pl.when(~later).then(duration),
    )


def _requests_at(requests: pl.LazyFrame, now_ms: int) -> pl.LazyFrame:
    """Requests that had come, in windows that were over; how long those took that had been answered."""
    answered = _came("at_ms", "latency_ms") < now_ms
    known = requests.filter((pl.col("at_ms") < now_ms) & (_came("at_ms", "window_ms") <= now_ms))
    return known.with_columns(latency_ms=pl.when(answered).then(pl.col("latency_ms")))


def _samples_at(samples: pl.LazyFrame | None, now_ms: int) -> pl.LazyFrame | None:
    """Samples that had been taken."""
    return None if samples is None else samples.filter(pl.col("at_ms") < now_ms)


def _came(at: str, after: str) -> pl.Expr:
    return pl.col(at) + pl.col(after).fill_null(0)
