"""Counters of a cluster: capacity, running and pending, where there is no table of jobs.

Demand is what runs and what waits. It is unconstrained only as far as people submit what they cannot have yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.concurrency_stats import Track, track_series
from tidegate.demand.group_keys import MOST_GROUPS
from tidegate.demand.sampling import SampleGrid, TimedSamples, grid_of, held_at
from tidegate.model.arrays import F64
from tidegate.model.units import WHOLE_MILLI

_COLUMNS = ("total_milli", "running_milli", "pending_milli", "pending_jobs")


class Counters(NamedTuple):
    """Counters of one queue, or of all, in even steps; NaN where nothing was seen."""

    queue: str  # "" for all
    step_ms: int
    start_ms: int
    total: F64  # GPUs
    running: F64
    pending: F64
    pending_jobs: F64

    def tells_gpus(self) -> bool:
        """Whether it counts GPUs at all, and not only what waits in a queue."""
        return any(np.nansum(values) > 0 for values in (self.total, self.running, self.pending))

    def track(self, values: F64) -> Track:
        """One of the counters over time."""
        return track_series(values, self.step_ms, self.start_ms, int(np.isfinite(values).sum()))

    def asked(self) -> F64:
        """GPUs asked for: what runs and what waits, as far as either was ever counted."""
        told = [values for values in (self.running, self.pending) if is_told(values)]
        return np.sum(told, axis=0) if told else np.full(self.running.size, np.nan)


def is_told(values: F64) -> bool:
    """Whether a counter was ever seen; one that was not is not 0."""
    return bool(np.isfinite(values).any())


def read_counters(capacity: pl.LazyFrame) -> list[Counters]:
    """Counters of all queues together, and of each where there are several, the largest first."""
    table = (
        capacity.group_by("at_ms", "queue", "gpu_model")
        .agg(*(_known_sum(name) for name in _COLUMNS), pl.col("every_ms").first())
        .sort("at_ms", "queue", "gpu_model")
        .collect(engine="streaming")
    )
    if table.height == 0:
        return []
    usual = max(int(table["every_ms"].median() or 1), 1)  # type: ignore[arg-type]
    table = table.with_columns(
        pl.col("every_ms").fill_null(usual), pl.struct("queue", "gpu_model").rank("dense").cast(pl.Int64).alias("thing")
    )
    grid = grid_of(_samples(table))
    heavy = (
        table.group_by("queue")
        .agg(pl.col("running_milli").sum())
        .sort(["running_milli", "queue"], descending=[True, False])
    )
    names = heavy["queue"].to_list()[:MOST_GROUPS]
    queues = [_counters(table.filter(pl.col("queue") == name), name, grid) for name in names]
    if len(queues) == 1:
        return [queues[0]._replace(queue="")]
    return [_counters(table, "", grid), *queues]


def _known_sum(name: str) -> pl.Expr:
    """The sum of what is known; null where nothing is."""
    return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)


def _samples(table: pl.DataFrame) -> TimedSamples:
    return TimedSamples(*(table[name].to_numpy() for name in ("thing", "at_ms", "every_ms")))


def _counters(table: pl.DataFrame, queue: str, grid: SampleGrid) -> Counters:
    columns = []
    for name in _COLUMNS:
        known = table.filter(pl.col(name).is_not_null())
        unit = 1 if name == "pending_jobs" else WHOLE_MILLI
        columns.append(held_at(_samples(known), [known[name].to_numpy()], grid)[0] / unit)
    return Counters(queue, grid.step_ms, grid.start_ms, *columns)
