"""The table of jobs as columns of numbers, and the groups it falls into: kinds, queues, GPU models.

One read of the table, however large; names become numbers while it is read. What was not recorded is UNKNOWN.
Must not know: what is computed from it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.cells import Cells, count_cells, intern, rank, reorder
from tidegate.demand.curves import Window
from tidegate.demand.events import Mask, Spans
from tidegate.model.columns import F64, I32, I64
from tidegate.model.units import HOUR_MS, WHOLE_MILLI

#: In a column of times: not recorded.
UNKNOWN = -1

KINDS = ("batch", "inference", "interactive")

_DIMENSIONS = {"kind": "kind", "queue": "queue", "gpu": "gpu_model"}
_NAMES = tuple(_DIMENSIONS.values())
_AMOUNTS = ("gpus_milli", "pods", "priority")
#: A thousandth of a GPU for a millisecond, in GPU-hours.
_GPU_HOUR = 1 / (WHOLE_MILLI * HOUR_MS)

_TIMES = ("submitted_ms", "started_ms", "ended_ms", "duration_ms", "tolerated_wait_ms")


class Jobs(NamedTuple):
    """The table of jobs, column by column, and the cells that its rows fall into."""

    submitted_ms: I64
    started_ms: I64
    ended_ms: I64
    duration_ms: I64  # recorded, or from start to end; UNKNOWN: not over yet
    tolerated_ms: I64
    gpus_milli: I64
    pods: I64
    priority: I64
    cancelled: Mask
    cell: I32
    cells: Cells
    cell_jobs: I64
    cell_gpu_hours: F64
    names: dict[str, tuple[str, ...]]  # of the groups of each dimension: kind, queue, gpu

    def __len__(self) -> int:
        return int(self.submitted_ms.size)

    def gpu_hours(self, rows: I64 | slice) -> F64:
        """What some jobs take; 0 where that is not known yet."""
        return np.asarray(self.gpus_milli[rows] * np.maximum(self.duration_ms[rows], 0), np.float64) * _GPU_HOUR


def read_jobs(table: pl.LazyFrame) -> Jobs:
    """Read what is needed of the table, once."""
    numbers = [pl.col(name).fill_null(UNKNOWN).cast(pl.Int64) for name in _TIMES]
    small = [pl.col(name).fill_null(0).cast(pl.Int64) for name in _AMOUNTS]
    names = [pl.col(name).fill_null("").cast(pl.Categorical) for name in _NAMES]
    cancelled = (pl.col("outcome").fill_null("") == "cancelled").alias("cancelled")
    frame = table.select(*numbers, *small, *names, cancelled).collect(engine="streaming")
    submitted, started, ended, duration, tolerated = (frame[name].to_numpy() for name in _TIMES)
    gpus, pods, priority = (frame[name].to_numpy() for name in _AMOUNTS)
    if duration.min(initial=0) < 0:
        ran = (duration < 0) & (started >= 0) & (ended >= started)
        duration = np.where(ran, ended - started, duration)
    columns = {name: intern(frame[column]) for name, column in _DIMENSIONS.items()}
    counted = count_cells(columns, gpus, (duration, _GPU_HOUR), WHOLE_MILLI)
    labels, told = counted.cells.labels, {name: named.names for name, named in columns.items()}
    labels["kind"], told["kind"] = reorder(labels["kind"], told["kind"], KINDS)
    for name in ("queue", "gpu"):
        labels[name], told[name] = rank(labels[name], told[name], counted.weight)
    return Jobs(
        *(submitted, started, ended, duration, tolerated, gpus, pods, priority, frame["cancelled"].to_numpy()),
        *(counted.cell, counted.cells, counted.rows, counted.weight, told),
    )


def window_of(jobs: Jobs) -> Window:
    """From the first submission to the last: what came after that was not seen."""
    if len(jobs) == 0:
        return Window(0, 1)
    first, last = int(jobs.submitted_ms.min()), int(jobs.submitted_ms.max())
    if last > first:
        return Window(first, last)
    return Window(first, max(int(_over_ms(jobs, first + 1).max()), first + 1))


def _over_ms(jobs: Jobs, open_ms: int) -> I64:
    """When each would be over had it started at once; what is not over yet, never before `open_ms`."""
    over = jobs.submitted_ms + jobs.duration_ms
    return over if jobs.duration_ms.min(initial=0) >= 0 else np.where(jobs.duration_ms >= 0, over, max(open_ms, 0))


def wanted_spans(jobs: Jobs, window: Window) -> Spans:
    """What would run when if nothing waited: from the submission, for as long as it runs."""
    return Spans(jobs.submitted_ms, _over_ms(jobs, window.end_ms), jobs.cell)


def seen_spans(jobs: Jobs, window: Window) -> Spans | None:
    """What ran when, where starts were recorded."""
    ran = jobs.started_ms >= 0
    if not ran.any():
        return None
    end = jobs.ended_ms
    if not (end >= 0).all():
        known = np.where(jobs.duration_ms >= 0, jobs.started_ms + jobs.duration_ms, window.end_ms)
        end = np.where(end >= 0, end, known)
    return Spans(*_where(ran, jobs.started_ms, end, jobs.cell))


def waiting_spans(jobs: Jobs, window: Window) -> Spans | None:
    """What waited when: until the start, until somebody gave up, or until now."""
    if not (jobs.started_ms >= 0).any():
        return None
    if (jobs.started_ms >= 0).all():
        return Spans(jobs.submitted_ms, jobs.started_ms, jobs.cell)
    gone = np.where(jobs.ended_ms >= 0, jobs.ended_ms, window.end_ms)
    return Spans(jobs.submitted_ms, np.where(jobs.started_ms >= 0, jobs.started_ms, gone), jobs.cell)


def _where(mask: Mask, begin: I64, end: I64, cell: I32) -> tuple[I64, I64, I32]:
    return (begin, end, cell) if mask.all() else (begin[mask], end[mask], cell[mask])
