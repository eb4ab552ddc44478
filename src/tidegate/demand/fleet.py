"""What there was, and who ran and waited, where a cluster's own counters tell it instead of jobs.

Asked for is what runs and what waits; that is demand unconstrained only as far as people submit what they cannot have
yet.
Must not know: jobs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.cells import MOST_GROUPS
from tidegate.demand.levels import Track, track_series
from tidegate.model.columns import F64
from tidegate.model.units import WHOLE_MILLI

_COLUMNS = ("total_milli", "running_milli", "pending_milli")


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


def read_counters(capacity: pl.LazyFrame) -> list[Counters]:
    """Counters of all queues together, and of each where there are several, the largest first."""
    amounts = [pl.col(name).sum() / WHOLE_MILLI for name in _COLUMNS]
    table = (
        capacity.group_by("at_ms", "queue")
        .agg(*amounts, pl.col("pending_jobs").sum(), pl.col("every_ms").first())
        .sort("at_ms", "queue")
        .collect(engine="streaming")
    )
    if table.height == 0:
        return []
    step = max(int(table["every_ms"].median() or 1), 1)  # type: ignore[arg-type]
    start = int(table["at_ms"].min() or 0)  # type: ignore[arg-type]
    rows = ((table["at_ms"] - start) // step).to_numpy()
    heavy = (
        table.group_by("queue")
        .agg(pl.col("running_milli").sum())
        .sort(["running_milli", "queue"], descending=[True, False])
    )
    names = heavy["queue"].to_list()[:MOST_GROUPS]
    size = int(rows.max()) + 1
    queues = [_counters(table.filter(pl.col("queue") == name), name, (step, start, size)) for name in names]
    if len(queues) == 1:
        return [queues[0]._replace(queue="")]
    return [_counters(table, "", (step, start, size)), *queues]


def _counters(table: pl.DataFrame, queue: str, grid: tuple[int, int, int]) -> Counters:
    step, start, size = grid
    row = ((table["at_ms"] - start) // step).to_numpy()
    seen = np.bincount(row, minlength=size) > 0
    columns = []
    for name in (*_COLUMNS, "pending_jobs"):
        sums = np.bincount(row, weights=table[name].fill_null(0).to_numpy().astype(np.float64), minlength=size)
        columns.append(np.where(seen, sums, np.nan))
    return Counters(queue, step, start, *columns)
