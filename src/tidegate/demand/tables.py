"""The canonical tables of demand: what every source is brought to, and everything is fitted to.

Times are milliseconds since the epoch (or since the start, where a trace has no calendar: `Calendar.NONE`), amounts are
integers in thousandths of a GPU. A value that nobody recorded is null, or "" where it is a name; never a guess.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tidegate.demand.time_zone import Calendar

#: Kinds of work.
KINDS = ("batch", "inference", "interactive")

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


class Origin(NamedTuple):
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
    origins: tuple[Origin, ...] = ()
    since_ms: int | None = None  # from when on all jobs that were there are listed; None: all that were submitted
    until_ms: int | None = None  # when jobs were last looked at; None: at the latest time that any of them has
    recorded: Recorded = Recorded()  # of all jobs
    dropped: int = 0  # rows of all sources that could not be used
