"""The jobs that a plan is for, in columns: when each came, how many GPUs it wants and how long it runs.

What cannot be replayed is left out and counted. `known_at` is what somebody knew at a time: no job that came later, no
runtime longer than had been seen.
Must not know: capacity, prices, files.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.tables import Calendar, Tables
from tidegate.model.columns import I64
from tidegate.model.units import WHOLE_MILLI

#: Why a job cannot be replayed.
NO_RUNTIME, NO_GPUS, NO_TIME, SERVES = "its runtime is not known", "it wants no GPU", "it has no time", "it serves"


class PlanJobs(NamedTuple):
    """Jobs in the order they came; of those that came at once, by their ids."""

    at_ms: I64
    run_ms: I64
    gpus_milli: I64
    pods: I64
    calendar: Calendar = Calendar.EPOCH
    left_out: tuple[tuple[str, int], ...] = ()  # why, and how many

    @property
    def total(self) -> int:
        """How many jobs there are."""
        return len(self.at_ms)

    @property
    def span_ms(self) -> tuple[int, int]:
        """From the first arrival to the last."""
        return int(self.at_ms[0]), int(self.at_ms[-1])

    @property
    def widest_milli(self) -> int:
        """The largest gang, in whole GPUs."""
        return -(-int(self.gpus_milli.max()) // WHOLE_MILLI) * WHOLE_MILLI

    def take(self, which: I64 | np.ndarray) -> PlanJobs:
        """Some of the jobs."""
        return self._replace(
            at_ms=self.at_ms[which],
            run_ms=self.run_ms[which],
            gpus_milli=self.gpus_milli[which],
            pods=self.pods[which],
        )


def plan_jobs_of(tables: Tables) -> PlanJobs:
    """The jobs of gathered tables that a batch plan is for."""
    if tables.jobs is None:
        return plan_jobs_from(pl.DataFrame(schema=_WANTED), tables.calendar)
    return plan_jobs_from(tables.jobs.select(list(_WANTED)).collect(engine="streaming"), tables.calendar)


_WANTED = {
    "id": pl.String(),
    "kind": pl.String(),
    "gpus_milli": pl.Int64(),
    "pods": pl.Int64(),
    "submitted_ms": pl.Int64(),
    "duration_ms": pl.Int64(),
}


def plan_jobs_from(jobs: pl.DataFrame, calendar: Calendar) -> PlanJobs:
    """Jobs of a table, sorted; what cannot be replayed is counted by the first reason that holds."""
    reason = (
        pl.when(pl.col("kind") == "inference")
        .then(pl.lit(SERVES))
        .when(pl.col("submitted_ms").is_null())
        .then(pl.lit(NO_TIME))
        .when(pl.col("gpus_milli").fill_null(0) <= 0)
        .then(pl.lit(NO_GPUS))
        .when(pl.col("duration_ms").is_null() | (pl.col("duration_ms") < 0))
        .then(pl.lit(NO_RUNTIME))
        .otherwise(pl.lit(""))
        .alias("left_out")
    )
    judged = jobs.with_columns(reason)
    kept = judged.filter(pl.col("left_out") == "").sort("submitted_ms", "id", maintain_order=True)
    counts = judged.filter(pl.col("left_out") != "").group_by("left_out").len().sort("left_out")
    return PlanJobs(
        at_ms=_column(kept["submitted_ms"]),
        run_ms=_column(kept["duration_ms"]),
        gpus_milli=_column(kept["gpus_milli"]),
        pods=_column(kept["pods"].fill_null(1)),
        calendar=calendar,
        left_out=tuple((str(why), int(count)) for why, count in counts.iter_rows()),
    )


def _column(series: pl.Series) -> I64:
    return series.to_numpy().astype(np.int64)


def known_at(jobs: PlanJobs, now_ms: int) -> PlanJobs:
    """What was known at a time: who had come, and how long each had run at most."""
    past = jobs.take(np.flatnonzero(jobs.at_ms < now_ms))
    return past._replace(run_ms=np.minimum(past.run_ms, now_ms - past.at_ms))
