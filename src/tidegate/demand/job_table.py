"""The table of jobs as columns of numbers, and its groups: kinds, queues, GPU models.

The table is read once, however large. What was not recorded is UNKNOWN; runtimes of jobs that had not ended are drawn
(`censoring`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.censoring import (
    UNKNOWN_RUNTIME,
    Observation,
    State,
    complete,
    observe,
    observed_columns,
)
from tidegate.demand.concurrency import Mask, Moments, Spans
from tidegate.demand.group_keys import Cells, Heavy, RunAll, count_cells, one_by_one, rank, reorder, slices
from tidegate.demand.step_curve import Window
from tidegate.demand.tables import KINDS, Recorded, Tables
from tidegate.demand.unrecorded import find_unseen
from tidegate.model.arrays import F64, I32, I64
from tidegate.model.units import GPU_HOUR_MILLI_MS, HOUR_MS, WHOLE_MILLI

#: In a column of times: not recorded.
UNKNOWN = UNKNOWN_RUNTIME

_DIMENSIONS = {"kind": "kind", "queue": "queue", "gpu": "gpu_model"}

#: A thousandth of a GPU for a millisecond, in GPU-hours.
_GPU_HOUR = 1 / GPU_HOUR_MILLI_MS

_TIMES = ("submitted_ms", "started_ms", "ended_ms", "tolerated_wait_ms")
_AMOUNTS = ("gpus_milli", "pods", "priority")


class _Column:
    """A column of JobRows, loaded when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, rows: JobRows, owner: type) -> I64:
        column = rows.__dict__[self._name] = rows.load(self._name)
        return column


class JobRows:
    """Some jobs, column by column."""

    submitted_ms = _Column()
    started_ms = _Column()  # UNKNOWN: never, or not recorded
    ended_ms = _Column()  # UNKNOWN: not yet, or not recorded
    duration_ms = _Column()  # recorded, or from start to end; drawn where the job is not over; UNKNOWN: nothing tells
    ran_ms = _Column()  # how long it ran, as far as it was seen
    state = _Column()  # a State
    tolerated_wait_ms = _Column()  # UNKNOWN: not declared
    gpus_milli = _Column()
    pods = _Column()
    priority = _Column()

    def __init__(self, load: Callable[[str], I64], cell: I32) -> None:
        self.load, self.cell = load, cell

    @property
    def cancelled(self) -> Mask:
        """Which jobs were cancelled."""
        return self.load("cancelled").astype(np.bool_, copy=False)

    def __len__(self) -> int:
        return int(self.cell.size)

    def take(self, rows: I64 | Mask) -> JobRows:
        """Some of the jobs."""
        return JobRows(lambda name: getattr(self, name)[rows], self.cell[rows])

    def gpu_hours(self) -> F64:
        """What each took, as far as it was seen."""
        return np.asarray(self.gpus_milli * np.maximum(self.ran_ms, 0), np.float64) * _GPU_HOUR

    def submitted_from(self, start_ms: int) -> JobRows:
        """Those that were submitted at a time or later: others had come before the window."""
        if self.submitted_ms.min(initial=start_ms) >= start_ms:
            return self
        return self.take(self.submitted_ms >= start_ms)

    def over_ms(self, open_ms: int) -> I64:
        """When each would be over had it started at once; where nothing says how long it runs, at `open_ms`."""
        over = self.submitted_ms + self.duration_ms
        if self.duration_ms.min(initial=0) >= 0:
            return over
        return np.where(self.duration_ms >= 0, over, max(open_ms, 0))


def join_rows(parts: list[JobRows]) -> JobRows:
    """All of them, one after the other."""
    return JobRows(
        lambda name: np.concatenate([getattr(part, name) for part in parts]),
        np.concatenate([part.cell for part in parts]),
    )


class JobTable(NamedTuple):
    """The table of jobs, and the cells that its rows fall into."""

    frame: pl.DataFrame
    cell: I32
    cells: Cells
    cell_jobs: I64
    cell_gpu_hours: F64
    names: dict[str, tuple[str, ...]]  # of the groups of each dimension: kind, queue, gpu
    watch: Observation
    recorded: Recorded = Recorded()

    def __len__(self) -> int:
        return self.frame.height

    def parts(self) -> Iterator[JobRows]:
        """All of them, some at a time: the same rows at the same time always."""
        for at, part in slices(self.frame):
            yield JobRows(partial(_column, part), self.cell[at])

    def whole(self) -> JobRows:
        """All of them at once."""
        return JobRows(partial(_column, self.frame), self.cell)


#: What a column is where the table has none, because all jobs are over.
_INSTEAD = {"ran_ms": "duration_ms", "state": ""}


def _column(frame: pl.DataFrame, name: str) -> I64:
    name = name if name in frame.columns else _INSTEAD.get(name, name)
    if name not in frame.columns:  # not recorded
        return np.broadcast_to(np.int64(UNKNOWN if name else State.OVER), frame.height)
    return frame[name].to_numpy()


def _filled(frame: pl.DataFrame) -> pl.DataFrame:
    """Times with UNKNOWN where they were not recorded; a column of nothing else takes no memory."""
    gaps = {name: frame[name].null_count() for name in _TIMES}
    frame = frame.with_columns(pl.col(name).fill_null(UNKNOWN) for name in _TIMES if 0 < gaps[name] < frame.height)
    return frame.drop(name for name in _TIMES if gaps[name] and gaps[name] == frame.height)


def read_jobs(tables: Tables, seed: int = 0, run_all: RunAll = one_by_one) -> JobTable:
    """Read what is needed of the table of jobs, once."""
    assert tables.jobs is not None
    frame = tables.jobs.select(
        *(pl.col(name).cast(pl.Int64) for name in _TIMES),
        *(pl.col(name).fill_null(0).cast(pl.Int64) for name in _AMOUNTS),
        *(pl.col(name).fill_null("").cast(pl.Categorical) for name in _DIMENSIONS.values()),
        *observed_columns(),
    ).collect(engine="streaming")
    watch = observe(frame, tables.since_ms, tables.until_ms)
    frame = _filled(complete(frame, watch, seed))
    heavy = Heavy("ran_ms" if "ran_ms" in frame.columns else "duration_ms", _GPU_HOUR, WHOLE_MILLI)
    counted = count_cells(frame, _DIMENSIONS, "gpus_milli", heavy, run_all)
    labels, told = counted.cells.labels, counted.names
    labels["kind"], told["kind"] = reorder(labels["kind"], told["kind"], KINDS)
    for name in ("queue", "gpu"):
        labels[name], told[name] = rank(labels[name], told[name], counted.weight)
    return JobTable(frame, counted.cell, counted.cells, counted.rows, counted.weight, told, watch, tables.recorded)


def window_of(jobs: JobTable) -> Window:
    """From the first submission to the last: what came after that was not seen; or as long as jobs were watched."""
    if len(jobs) == 0:
        return Window(0, 1)
    first, last = jobs.frame.select(pl.min("submitted_ms").alias("first"), pl.max("submitted_ms").alias("last")).row(0)
    window = jobs.watch.window(Window(first, last))
    if window.length_ms > 0:
        return window
    return Window(first, max(int(jobs.whole().over_ms(first + 1).max()), first + 1))


def unseen_of(jobs: JobTable) -> tuple[tuple[int, int], ...]:
    """When nothing can have been recorded."""
    hours = jobs.frame.group_by((pl.col("submitted_ms") // HOUR_MS).alias("hour")).len().sort("hour")
    return find_unseen(hours["hour"].to_numpy(), hours["len"].to_numpy().astype(np.int64))


def starts_known(jobs: JobTable) -> bool:
    """Whether starts were recorded."""
    last = jobs.frame["started_ms"].max() if "started_ms" in jobs.frame.columns else None
    return isinstance(last, int) and last >= 0


def wanted_spans(jobs: JobRows, window: Window) -> Spans:
    """What would run when if nothing waited: from the submission, for as long as it runs."""
    return Spans(jobs.submitted_ms, jobs.over_ms(window.end_ms), jobs.cell)


def seen_spans(jobs: JobRows, window: Window) -> Spans:
    """What ran when."""
    ran = jobs if jobs.started_ms.min(initial=0) >= 0 else jobs.take(jobs.started_ms >= 0)
    end = ran.ended_ms
    if end.min(initial=0) < 0:
        known = np.where(ran.duration_ms >= 0, ran.started_ms + ran.duration_ms, window.end_ms)
        end = np.where(end >= 0, end, known)
    return Spans(ran.started_ms, end, ran.cell)


def waiting_spans(jobs: JobRows, window: Window) -> Spans:
    """What waited when: until the start, until it was cancelled, or until now."""
    if jobs.started_ms.min(initial=0) >= 0:
        return Spans(jobs.submitted_ms, jobs.started_ms, jobs.cell)
    gone = _gone_ms(jobs, window)
    return Spans(jobs.submitted_ms, np.where(jobs.started_ms >= 0, jobs.started_ms, gone), jobs.cell)


def _gone_ms(jobs: JobRows, window: Window) -> I64:
    """When those that never started stopped waiting."""
    return np.where(jobs.ended_ms >= 0, jobs.ended_ms, window.end_ms)


#: Moments in which the levels change: work waits from SUBMITTED until STARTED, or until it LEFT.
SUBMITTED, OVER, STARTED, ENDED, LEFT = range(5)


def wanted_moments(jobs: JobRows, window: Window) -> dict[int, Moments]:
    """Begins and ends of what would run if nothing waited."""
    return {
        SUBMITTED: Moments(jobs.submitted_ms, jobs.cell),
        OVER: Moments(jobs.over_ms(window.end_ms), jobs.cell),
    }


def seen_moments(jobs: JobRows, window: Window) -> dict[int, Moments]:
    """Begins and ends of what ran, and ends of what waited in vain."""
    seen = seen_spans(jobs, window)
    found = {STARTED: Moments(seen.begin_ms, seen.cell), ENDED: Moments(seen.end_ms, seen.cell)}
    if len(seen.cell) < len(jobs):
        left = jobs.take(jobs.started_ms < 0)
        found[LEFT] = Moments(_gone_ms(left, window), left.cell)
    return found
