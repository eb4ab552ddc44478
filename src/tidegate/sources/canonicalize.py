"""Makes canonical tables of recognised columns, and completes columns from others.

Each row has a number; `judged` rows have, in `WHY`, the code of what is wrong with them, 0 for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from tidegate.demand.tables import CAPACITY, JOBS, REQUESTS, STARTS, USE
from tidegate.sources.detect_columns import ColumnMapping, TableColumns
from tidegate.sources.field_catalog import FIELDS
from tidegate.sources.findings import Code
from tidegate.sources.options import CanonicalTable
from tidegate.sources.parse_cells import WORDS, CellKind, read_cell
from tidegate.sources.table_file import ROW, TORN

#: Why a row cannot be used, as the number of its code; whether it was put right.
WHY, MENDED = "\x00why", "\x00mended"

#: Of a job that is not over: until when it was seen.
SEEN = "\x00seen"

#: Codes of rows that are left out, in the order in which they are checked.
DROPS = (
    Code.UNREADABLE_LINE,
    Code.UNREADABLE_CELL,
    Code.MISSING_VALUE,
    Code.END_BEFORE_START,
    Code.NEGATIVE_DURATION,
    Code.ZERO_GPUS,
    Code.NEGATIVE_AMOUNT,
    Code.OUT_OF_RANGE,
)
#: A row of which nothing is there: an empty line.
BLANK = 255
_BLANK = "\x00blank"

SCHEMAS = {
    CanonicalTable.JOBS: JOBS,
    CanonicalTable.REQUESTS: REQUESTS,
    CanonicalTable.USE: USE,
    CanonicalTable.CAPACITY: CAPACITY,
    CanonicalTable.STARTS: STARTS,
}

_EPOCH_FROM, _EPOCH_TO = 631_152_000_000, 4_102_444_800_000  # 1990 and 2100
_TEN_YEARS_MS = 10 * 366 * 86_400_000
_MOST_MILLI = 100_000 * 1000


def read_frame(raw: pl.LazyFrame, columns: TableColumns, names: pl.Schema) -> pl.LazyFrame:
    """The canonical columns of a table, with `ROW` and marks; `names` are the types of the raw columns."""
    read = raw.select(
        pl.col(ROW),
        *(_value(one, names).alias(one.field) for one in columns.chosen),
        _unreadable(columns, names).alias(Code.UNREADABLE_CELL),
        _blank(columns).alias(_BLANK),
        pl.col(TORN) if TORN in names else pl.lit(False).alias(TORN),
    )
    there = {one.field for one in columns.chosen}
    filled = read.with_columns(
        *(_nothing(field.cell).alias(field.name) for field in FIELDS[columns.table] if field.name not in there)
    )
    completed = _COMPLETE[columns.table](filled, there)
    schema = SCHEMAS[columns.table]
    return completed.select(
        pl.col(ROW, TORN, Code.UNREADABLE_CELL, _BLANK),
        *(pl.col(name).cast(dtype) for name, dtype in schema.items()),
        pl.col(MENDED) if columns.table is CanonicalTable.JOBS else pl.lit(False).alias(MENDED),
        pl.col(SEEN) if columns.table is CanonicalTable.JOBS else pl.lit(None, dtype=pl.Int64).alias(SEEN),
    )


def judged(frame: pl.LazyFrame, table: CanonicalTable, *, calendar: bool) -> pl.LazyFrame:
    """The rows, each with what is wrong with it."""
    chain: Any = pl.when(pl.col(_BLANK) & ~pl.col(TORN)).then(BLANK)
    for code, wrong in wrongs(table, calendar=calendar).items():
        chain = chain.when(wrong).then(number_of(code))
    return frame.with_columns(chain.otherwise(0).cast(pl.UInt8).alias(WHY))


def canonical(frame: pl.LazyFrame, table: CanonicalTable) -> pl.LazyFrame:
    """The canonical columns alone."""
    return frame.select(SCHEMAS[table].names())


def fitted(frame: pl.DataFrame, table: CanonicalTable) -> pl.DataFrame:
    """All columns of the table; what was not measured is empty or null, and rows without a time are left out."""
    schema = SCHEMAS[table]
    nothing = {name: pl.lit("" if dtype == pl.String else None, dtype=dtype) for name, dtype in schema.items()}
    missing = {name: value for name, value in nothing.items() if name not in frame.columns}
    time = "submitted_ms" if table is CanonicalTable.JOBS else "at_ms"
    return frame.with_columns(**missing).select(schema.names()).cast(schema).filter(pl.col(time).is_not_null())


def _value(one: ColumnMapping, names: pl.Schema) -> pl.Expr:
    if not one.column:
        return read_cell(pl.lit(one.constant), pl.String(), one.how)
    return read_cell(pl.col(one.column), names[one.column], one.how)


def _nothing(cell: CellKind) -> pl.Expr:
    if cell in (CellKind.TEXT, CellKind.OUTCOME, CellKind.MODEL):
        return pl.lit("")
    if cell is CellKind.KIND:
        return pl.lit("batch")
    return pl.lit(None, dtype=pl.Float64 if cell is CellKind.NUMBER else pl.Int64)


def _unreadable(columns: TableColumns, names: pl.Schema) -> pl.Expr:
    """Whether a cell is there and cannot be read; numbers that have their type always can."""
    doubtful = [
        one for one in columns.chosen if one.column and names[one.column] == pl.String and one.how.cell not in WORDS
    ]
    if not doubtful:
        return pl.lit(False)
    return pl.any_horizontal(pl.col(one.column).is_not_null() & _value(one, names).is_null() for one in doubtful)


def _blank(columns: TableColumns) -> pl.Expr:
    return pl.all_horizontal(pl.col(one.column).is_null() for one in columns.chosen if one.column)


# -- what follows from what ------------------------------------------------------------------------------------


def _complete_jobs(frame: pl.LazyFrame, there: set[str]) -> pl.LazyFrame:
    submitted, started, ended, duration = map(pl.col, ("submitted", "started", "ended", "duration"))
    if "started" not in there and "wait" in there:
        frame = frame.with_columns(started=submitted + pl.col("wait"))
        there = there | {"started"}
    if "duration" not in there:
        frame = frame.with_columns(duration=ended - started if "started" in there else ended - submitted)
    elif there & {"ended", "started"}:
        frame = frame.with_columns(duration=pl.coalesce(duration, ended - started))
    if "ended" not in there and "started" in there:
        frame = frame.with_columns(ended=started + duration)
    if "started" not in there and there >= {"ended", "duration"}:
        frame = frame.with_columns(started=ended - duration)
    if "submitted" not in there:
        frame = frame.with_columns(submitted=started - pl.col("wait") if "wait" in there else started)
    frame = (
        _open_ended(_never_run(frame)) if "outcome" in there else frame.with_columns(pl.lit(None, pl.Int64).alias(SEEN))
    )
    mended = (started < submitted).fill_null(value=False)
    pods = pl.col("pods").fill_null(1) if "pods" in there else pl.col("pods")
    per_pod = pl.col("gpus_per_pod") * (pods if "pods" in there else 1)
    return frame.with_columns(mended.alias(MENDED)).select(
        ROW,
        TORN,
        MENDED,
        SEEN,
        Code.UNREADABLE_CELL,
        _BLANK,
        "kind",
        pl.col("id", "queue", "gpu_model", "outcome").fill_null(""),
        pods,
        pl.coalesce("gpus", per_pod).alias("gpus_milli"),
        pl.when(MENDED).then(started).otherwise(submitted).alias("submitted_ms"),
        started.alias("started_ms"),
        ended.alias("ended_ms"),
        duration.alias("duration_ms"),
        pl.col("priority").cast(pl.Int64, strict=False),
        pl.col("tolerated_wait").alias("tolerated_wait_ms"),
    )


def _never_run(frame: pl.LazyFrame) -> pl.LazyFrame:
    """What was cancelled while it waited never ran, although sacct says that it ran for 0 s, or started at its end."""
    started, ended, duration = map(pl.col, ("started", "ended", "duration"))
    gave_up = (pl.col("outcome") == "cancelled") & (duration == 0) & (started.is_null() | (started == ended))
    gone = gave_up.fill_null(value=False)
    return frame.with_columns(pl.when(~gone).then(pl.col(name)).alias(name) for name in ("started", "duration"))


def _open_ended(frame: pl.LazyFrame) -> pl.LazyFrame:
    """What is not over has no end yet, and how long it will run is not known; so far it was seen to run."""
    waits = pl.col("outcome") == "pending"
    still = (waits | (pl.col("outcome") == "running")).fill_null(value=False)
    ran = pl.when(still & ~waits).then(pl.coalesce("ended", pl.col("started") + pl.col("duration")))
    return frame.with_columns(
        ran.alias(SEEN),
        *(pl.when(~still).then(pl.col(name)).alias(name) for name in ("ended", "duration")),
        pl.when(~waits.fill_null(value=False)).then(pl.col("started")).alias("started"),
    )


#: The canonical columns of fields that have a unit.
_COLUMN_OF = {
    "at": "at_ms", "every": "every_ms", "took": "took_ms", "latency": "latency_ms", "gpus": "gpus_milli",
    "busy": "busy_milli", "vram": "vram_mib", "vram_total": "vram_total_mib", "total": "total_milli",
    "running": "running_milli", "pending": "pending_milli",
}  # fmt: skip


def _renamed(frame: pl.LazyFrame, table: CanonicalTable) -> pl.LazyFrame:
    """The frame with the canonical columns of its fields; names that are missing are empty."""
    fields = [field for field in FIELDS[table] if field.name != "stage"]
    names = [pl.col(field.name).fill_null("") for field in fields if field.cell in (CellKind.TEXT, CellKind.MODEL)]
    return frame.with_columns(
        *names, *(pl.col(field.name).alias(_COLUMN_OF[field.name]) for field in fields if field.name in _COLUMN_OF)
    )


def _complete_requests(frame: pl.LazyFrame, there: set[str]) -> pl.LazyFrame:
    window = pl.col("window").fill_null(0) if there & {"window"} else pl.lit(0, dtype=pl.Int64)
    count = pl.col("count") if "count" in there else pl.lit(1.0)
    if "rate" in there:
        count = pl.col("rate") * window / 1000
    return _renamed(frame, CanonicalTable.REQUESTS).with_columns(window_ms=window, count=count)


def _complete_use(frame: pl.LazyFrame, there: set[str]) -> pl.LazyFrame:
    frame = _renamed(frame, CanonicalTable.USE)
    gpus = pl.col("gpus") if "gpus" in there else pl.lit(1000, dtype=pl.Int64)
    return frame.with_columns(gpus_milli=gpus, power_w=pl.col("power").round().cast(pl.Int64, strict=False))


def _complete_capacity(frame: pl.LazyFrame, _: set[str]) -> pl.LazyFrame:
    return _renamed(frame, CanonicalTable.CAPACITY)


def _complete_starts(frame: pl.LazyFrame, _: set[str]) -> pl.LazyFrame:
    return _renamed(frame, CanonicalTable.STARTS)


_COMPLETE: dict[CanonicalTable, Callable[[pl.LazyFrame, set[str]], pl.LazyFrame]] = {
    CanonicalTable.JOBS: _complete_jobs,
    CanonicalTable.REQUESTS: _complete_requests,
    CanonicalTable.USE: _complete_use,
    CanonicalTable.CAPACITY: _complete_capacity,
    CanonicalTable.STARTS: _complete_starts,
}


# -- what is wrong with rows -----------------------------------------------------------------------------------


def wrongs(table: CanonicalTable, *, calendar: bool) -> dict[Code, pl.Expr]:
    """What can be wrong with a row, by code, in the order of `DROPS`; the first that holds counts."""
    checks = {
        Code.UNREADABLE_LINE: pl.col(TORN),
        Code.UNREADABLE_CELL: pl.col(Code.UNREADABLE_CELL),
        **_CHECKS[table](calendar),
    }
    return {code: checks[code] for code in DROPS if code in checks}


def number_of(code: Code) -> int:
    """The number of a code in `WHY`."""
    return DROPS.index(code) + 1


def _check_jobs(calendar: bool) -> dict[Code, pl.Expr]:  # noqa: FBT001  one of a table of functions
    submitted, started, ended = map(pl.col, ("submitted_ms", "started_ms", "ended_ms"))
    duration, gpus = pl.col("duration_ms"), pl.col("gpus_milli")
    return {
        Code.MISSING_VALUE: submitted.is_null() | gpus.is_null(),
        Code.END_BEFORE_START: (ended < started) | (started.is_null() & (ended < submitted)),
        Code.NEGATIVE_DURATION: duration < 0,
        Code.ZERO_GPUS: gpus == 0,
        Code.NEGATIVE_AMOUNT: gpus < 0,
        Code.OUT_OF_RANGE: _far(submitted, calendar=calendar)
        | _far(ended, calendar=calendar)
        | (duration > _TEN_YEARS_MS)
        | (gpus > _MOST_MILLI),
    }


def _check_requests(calendar: bool) -> dict[Code, pl.Expr]:  # noqa: FBT001  one of a table of functions
    at, count = pl.col("at_ms"), pl.col("count")
    return {
        Code.MISSING_VALUE: at.is_null() | count.is_null(),
        Code.NEGATIVE_DURATION: pl.col("latency_ms") < 0,
        Code.NEGATIVE_AMOUNT: (count < 0) | (pl.col("tokens_in") < 0) | (pl.col("tokens_out") < 0),
        Code.OUT_OF_RANGE: _far(at, calendar=calendar),
    }


def _check_use(calendar: bool) -> dict[Code, pl.Expr]:  # noqa: FBT001  one of a table of functions
    at, busy, vram = map(pl.col, ("at_ms", "busy_milli", "vram_mib"))
    return {
        Code.MISSING_VALUE: at.is_null() | (busy.is_null() & vram.is_null()),
        Code.NEGATIVE_AMOUNT: (busy < 0) | (vram < 0) | (pl.col("power_w") < 0),
        Code.OUT_OF_RANGE: _far(at, calendar=calendar)
        | (busy > 1000 * pl.max_horizontal(1, pl.col("gpus_milli") / 1000)),
    }


def _check_capacity(calendar: bool) -> dict[Code, pl.Expr]:  # noqa: FBT001  one of a table of functions
    amounts = ("total_milli", "running_milli", "pending_milli", "running_jobs", "pending_jobs")
    return {
        Code.MISSING_VALUE: pl.col("at_ms").is_null() | pl.all_horizontal(pl.col(name).is_null() for name in amounts),
        Code.NEGATIVE_AMOUNT: pl.any_horizontal(pl.col(name) < 0 for name in amounts),
        Code.OUT_OF_RANGE: _far(pl.col("at_ms"), calendar=calendar),
    }


def _check_starts(calendar: bool) -> dict[Code, pl.Expr]:  # noqa: FBT001  one of a table of functions
    at, took = pl.col("at_ms"), pl.col("took_ms")
    return {
        Code.MISSING_VALUE: at.is_null() | took.is_null(),
        Code.NEGATIVE_DURATION: took < 0,
        Code.OUT_OF_RANGE: _far(at, calendar=calendar),
    }


def _far(time: pl.Expr, *, calendar: bool) -> pl.Expr:
    if calendar:
        return (time < _EPOCH_FROM) | (time > _EPOCH_TO)
    return (time < 0) | (time > 4 * _TEN_YEARS_MS)


_CHECKS: dict[CanonicalTable, Callable[[bool], dict[Code, pl.Expr]]] = {
    CanonicalTable.JOBS: _check_jobs,
    CanonicalTable.REQUESTS: _check_requests,
    CanonicalTable.USE: _check_use,
    CanonicalTable.CAPACITY: _check_capacity,
    CanonicalTable.STARTS: _check_starts,
}
