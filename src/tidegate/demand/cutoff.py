"""The tables as they were at a time: nothing that came, started or ended later is in them."""

from __future__ import annotations

import polars as pl

from tidegate.demand.tables import Tables


def tables_at(tables: Tables, now_ms: int) -> Tables:
    """What somebody would have gathered at a time."""
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
