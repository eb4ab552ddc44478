"""The table of jobs as columns of numbers, and the groups it falls into: kinds, queues, GPU models.

One read of the table, however large; names become numbers while it is read. What was not recorded is UNKNOWN.
Must not know: what is computed from it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.curves import Window
from tidegate.demand.events import Cells, Mask, Spans
from tidegate.model.columns import F64, I32, I64
from tidegate.model.units import HOUR_MS, WHOLE_MILLI

#: In a column of times: not recorded.
UNKNOWN = -1

#: Groups of one dimension that are told apart; the smallest ones are one group, OTHERS.
MOST_GROUPS = 24
OTHERS = "(others)"

KINDS = ("batch", "inference", "interactive")

_NAMES = ("queue", "kind", "gpu_model")
_TIMES = ("submitted_ms", "started_ms", "ended_ms", "duration_ms", "tolerated_wait_ms")


class Named(NamedTuple):
    """A column of names: a number for each row, and the names they stand for."""

    code: I32
    names: tuple[str, ...]


class Jobs(NamedTuple):
    """The table of jobs, column by column."""

    submitted_ms: I64
    started_ms: I64
    ended_ms: I64
    duration_ms: I64  # recorded, or from start to end; UNKNOWN: not over yet
    tolerated_ms: I64
    gpus_milli: I64
    pods: I64
    priority: I64
    cancelled: Mask
    gpu_hours: F64  # what each takes; 0 where that is not known yet
    groups: dict[str, Named]  # by dimension: kind, queue, gpu

    def __len__(self) -> int:
        return int(self.submitted_ms.size)


def read_jobs(table: pl.LazyFrame) -> Jobs:
    """Read what is needed of the table, once."""
    numbers = [pl.col(name).fill_null(UNKNOWN).cast(pl.Int64) for name in _TIMES]
    small = [pl.col(name).fill_null(0).cast(pl.Int64) for name in ("gpus_milli", "pods", "priority")]
    names = [pl.col(name).fill_null("").cast(pl.Categorical) for name in _NAMES]
    cancelled = (pl.col("outcome").fill_null("") == "cancelled").alias("cancelled")
    frame = table.select(*numbers, *small, *names, cancelled).collect(engine="streaming").rechunk()
    column = {name: frame[name].to_numpy() for name in (*_TIMES, "gpus_milli", "pods", "priority")}
    submitted, started, ended, duration, tolerated = (column[name] for name in _TIMES)
    if duration.min(initial=0) < 0:
        ran = (duration < 0) & (started >= 0) & (ended >= started)
        duration = np.where(ran, ended - started, duration)
    spent = duration * (1 / (WHOLE_MILLI * HOUR_MS))
    np.maximum(spent, 0.0, out=spent)
    spent *= column["gpus_milli"]
    kind = _known(_intern(frame["kind"]), KINDS)
    return Jobs(
        *(submitted, started, ended, duration, tolerated),
        *(column["gpus_milli"], column["pods"], column["priority"]),
        cancelled=frame["cancelled"].to_numpy(),
        gpu_hours=spent,
        groups={
            "kind": kind,
            "queue": _weightiest(_intern(frame["queue"]), spent),
            "gpu": _weightiest(_intern(frame["gpu_model"]), spent),
        },
    )


def _intern(column: pl.Series) -> Named:
    """Names by number, in the order of the names: the numbers that polars gives depend on what was read before."""
    codes = column.to_physical().to_numpy()
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    somewhere = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    somewhere[codes] = np.arange(codes.size)
    names = column.gather(somewhere[used]).cast(pl.String).to_list() if codes.size else []
    place = np.zeros(somewhere.size, np.int32)
    for row, (_, code) in enumerate(sorted(zip(names, used.tolist(), strict=True))):
        place[code] = row
    return Named(place[codes], tuple(sorted(names)))


def _known(column: Named, known: tuple[str, ...]) -> Named:
    """Numbers in the order of the known names; others stand behind them, by name."""
    used = _used(column)
    names = (*known, *sorted(column.names[code] for code in used if column.names[code] not in known))
    place = np.zeros(max(len(column.names), 1), np.int32)
    for code in used:
        place[code] = names.index(column.names[code])
    return Named(place[column.code], names)


def _used(column: Named) -> list[int]:
    counts = np.bincount(column.code, minlength=len(column.names))
    return [int(code) for code in np.flatnonzero(counts)]


def _weightiest(column: Named, weight: F64) -> Named:
    """The heaviest groups first, by name where equal; the rest as one."""
    heavy = np.bincount(column.code, weights=weight, minlength=len(column.names))
    ranked = sorted(_used(column), key=lambda code: (-heavy[code], column.names[code]))
    kept = ranked if len(ranked) <= MOST_GROUPS else ranked[: MOST_GROUPS - 1]
    place = np.full(max(len(column.names), 1), len(kept), np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    names = tuple(column.names[code] for code in kept)
    return Named(place[column.code], names if len(kept) == len(ranked) else (*names, OTHERS))


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
    return np.where(jobs.duration_ms >= 0, jobs.submitted_ms + jobs.duration_ms, max(open_ms, 0))


def cells_of(jobs: Jobs) -> tuple[Cells, I32]:
    """The cells that the jobs fall into, and the cell of each job."""
    amount, unit = _amounts(jobs.gpus_milli)
    parts = [(named.code, len(named.names)) for named in jobs.groups.values()]
    key = np.zeros(len(jobs), np.int64)
    for code, names in parts:
        key *= max(names, 1)
        key += code
    key *= amount.values.size
    key += amount.row
    used, cell = dense(key)
    rest = used.astype(np.int64)
    rows = rest % max(amount.values.size, 1)
    rest //= max(amount.values.size, 1)
    labels: dict[str, I32] = {}
    for name, (_, names) in zip(reversed(jobs.groups), reversed(parts), strict=True):
        labels[name] = (rest % max(names, 1)).astype(np.int32)
        rest = rest // max(names, 1)
    return Cells(amount.values[rows], unit, labels), cell


class _Amounts(NamedTuple):
    row: I32
    values: I64


def _amounts(gpus_milli: I64) -> tuple[_Amounts, float]:
    """The distinct amounts in steps of their largest common part, and what a step is in GPUs."""
    used, row = dense(gpus_milli)
    step = math.gcd(*used.tolist()) or WHOLE_MILLI
    return _Amounts(row, used // step), step / WHOLE_MILLI


def dense(key: I64 | I32) -> tuple[I64, I32]:
    """The distinct keys in order, and the row of each; by counting where the keys are small."""
    if key.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    top = int(key.max())
    if top >= 1 << 24:
        values, row = np.unique(key, return_inverse=True)
        return values.astype(np.int64), row.astype(np.int32)
    seen = np.bincount(key, minlength=top + 1) > 0
    used = np.flatnonzero(seen)
    place = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    return used, place[key]


def wanted_spans(jobs: Jobs, cell: I32, window: Window) -> Spans:
    """What would run when if nothing waited: from the submission, for as long as it runs."""
    return Spans(jobs.submitted_ms, _over_ms(jobs, window.end_ms), cell)


def seen_spans(jobs: Jobs, cell: I32, window: Window) -> Spans | None:
    """What ran when, where starts were recorded."""
    ran = jobs.started_ms >= 0
    if not ran.any():
        return None
    end = jobs.ended_ms
    if not (end >= 0).all():
        known = np.where(jobs.duration_ms >= 0, jobs.started_ms + jobs.duration_ms, window.end_ms)
        end = np.where(end >= 0, end, known)
    return Spans(*_where(ran, jobs.started_ms, end, cell))


def waiting_spans(jobs: Jobs, cell: I32, window: Window) -> Spans | None:
    """What waited when: until the start, until somebody gave up, or until now."""
    if not (jobs.started_ms >= 0).any():
        return None
    if (jobs.started_ms >= 0).all():
        return Spans(jobs.submitted_ms, jobs.started_ms, cell)
    gone = np.where(jobs.ended_ms >= 0, jobs.ended_ms, window.end_ms)
    return Spans(jobs.submitted_ms, np.where(jobs.started_ms >= 0, jobs.started_ms, gone), cell)


def _where(mask: Mask, begin: I64, end: I64, cell: I32) -> tuple[I64, I64, I32]:
    return (begin, end, cell) if mask.all() else (begin[mask], end[mask], cell[mask])
