"""Reads a file with a table into a canonical table: detects columns, reads, checks, reports.

It is read quickly first. Where a cell does not fit or is missing, it is read again with care, line by line, so that
every row that can be used is, and every other is counted and reported.
"""

from __future__ import annotations

import atexit
import itertools
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path, PurePath
from typing import NamedTuple

import polars as pl
from polars.exceptions import ComputeError, PolarsError, SchemaError

from tidegate.demand.tables import Recorded
from tidegate.demand.time_zone import Calendar
from tidegate.sources.canonicalize import read_frame
from tidegate.sources.detect_columns import (
    ColumnMapping,
    ColumnOverride,
    DetectionHints,
    TableColumns,
    detect_columns,
    is_calendar,
)
from tidegate.sources.findings import CellPlace, Code, SourceFinding
from tidegate.sources.options import CanonicalTable, Format
from tidegate.sources.parse_cells import LOCAL, CellKind, read_cell
from tidegate.sources.row_checks import Checked, check, skim, usable
from tidegate.sources.source_result import SourceTable
from tidegate.sources.table_file import ROW, FileLayout, TableFile, polars_error
from tidegate.sources.time_zones import tells_zone

#: The field whose cell is shown for a code.
_SHOWN = {
    Code.END_BEFORE_START: ("ended", "duration"),
    Code.NEGATIVE_DURATION: ("duration", "latency", "took", "ended"),
    Code.ZERO_GPUS: ("gpus", "gpus_per_pod"),
    Code.NEGATIVE_AMOUNT: ("gpus", "gpus_per_pod", "count", "rate", "busy", "total"),
    Code.START_BEFORE_SUBMIT: ("started",),
    Code.END_IN_FUTURE: ("ended", "duration"),
    Code.CLOCK_JUMP: ("submitted", "at", "started"),
    Code.DUPLICATE_ID: ("id",),
}


#: Rows from which a table that was read with care is put aside, to be read again quickly.
_STAGED = 100_000


class TableHints(NamedTuple):
    """What is known of a file before it is read."""

    overrides: dict[str, ColumnOverride] = {}  # noqa: RUF012  never changed
    zone: str = ""  # of times that name none; empty: not said
    table: CanonicalTable | None = None
    calendar: Calendar | None = None  # None: as its times look
    documented: bool = False  # a named format: units and zones are known
    exact: bool = False  # only the overrides are read
    ids: bool = True  # an id may come only once
    extra_columns: tuple[str, ...] = ()  # columns that `prepare` needs
    prepare: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None  # of raw rows


class _Way(NamedTuple):
    """A file with the way it is read."""

    file: TableFile
    columns: TableColumns
    raw: pl.LazyFrame
    calendar: Calendar

    def frame(self) -> pl.LazyFrame:
        schema = self.raw.collect_schema()
        return read_frame(self.raw, self.columns, schema)

    @property
    def has_calendar(self) -> bool:
        return self.calendar.dates


def read_table_file(file: TableFile, wanted: TableHints, form: Format = Format.TABLE) -> SourceTable:
    """Bring a file to a canonical table; a SourceError says why it cannot be."""
    known = DetectionHints(wanted.overrides, wanted.zone or "UTC", wanted.table, wanted.documented or wanted.exact)
    columns = detect_columns(file.name, file.sample, known)
    looks = Calendar.EPOCH if is_calendar(columns, file.sample) else Calendar.NONE
    calendar = wanted.calendar or looks
    ids = wanted.ids and columns.of("id") is not None
    way, checked = _read_somehow(file, columns, calendar, wanted, ids=ids)
    frame = usable(way.frame(), columns.table, checked, calendar=way.has_calendar)
    if not checked.clean and file.shape is not FileLayout.PARQUET and checked.kept > _STAGED:
        frame = spilled(frame)  # reading with care is slow: once is enough
    frame = fill_period(frame, columns)
    if columns.table is CanonicalTable.JOBS and columns.of("id") is None:
        frame = _numbered(frame, file.name, checked.kept)
    return SourceTable(
        name=file.name,
        format=form,
        table=columns.table,
        frame=frame,
        calendar=calendar,
        rows=checked.rows,
        kept=checked.kept,
        first_ms=checked.first_ms,
        last_ms=checked.last_ms,
        columns=way.columns,
        findings=(*_row_findings(way, checked), *_table_findings(way, checked, wanted)),
        zone=_zone(way) if calendar.dates and not wanted.documented else "",
        until_ms=checked.seen_ms if form is Format.SLURM else None,  # others may name an end that is only planned
        recorded=_recorded(columns),
    )


def _recorded(columns: TableColumns) -> Recorded:
    """What the times of jobs say: a wait and a start say when one was submitted."""
    if columns.table is not CanonicalTable.JOBS:
        return Recorded()
    there = {one.field for one in columns.chosen}
    ran = there & {"started", "wait", "duration"} or "ended" not in there
    return Recorded(submissions=bool(there & {"submitted", "wait"}), runtimes=bool(ran))


def _zone(way: _Way) -> str:
    """The zone that times of the first column of them name: by their type, or all by the same offset; "" for none."""
    one = next((one for one in way.columns.chosen if one.how.cell is CellKind.TIME and one.column), None)
    if one is None:
        return ""
    dtype = way.raw.collect_schema()[one.column]
    if isinstance(dtype, pl.Datetime):
        return dtype.time_zone if dtype.time_zone and tells_zone(dtype.time_zone) else ""
    offset = pl.col(one.column).str.extract(r"([+-]\d\d:\d\d)$").fill_null("")
    if dtype != pl.String or one.column not in way.file.sample.columns:
        return ""
    if not any(tells_zone(found) for found in way.file.sample.select(offset.unique()).to_series()):
        return ""
    offsets = way.raw.filter(pl.col(one.column).is_not_null()).select(offset.unique()).collect(engine="streaming")
    return str(offsets.item()) if len(offsets) == 1 else ""


def _numbered(frame: pl.LazyFrame, name: str, rows: int) -> pl.LazyFrame:
    """Ids for jobs that have none: the name of the file, and a number with zeros, so that they sort as the rows do."""
    number = pl.col("\x00number").cast(pl.String).str.zfill(len(str(rows)))
    stem = PurePath(name).name.split(".")[0]
    numbered = frame.with_row_index("\x00number", offset=1)
    return numbered.with_columns(id=pl.lit(f"{stem}-") + number).drop("\x00number")


def _read_somehow(
    file: TableFile, columns: TableColumns, calendar: Calendar, wanted: TableHints, *, ids: bool
) -> tuple[_Way, Checked]:
    """Quickly if nothing is in doubt, carefully if something is."""
    prepare = wanted.prepare or (lambda raw: raw)
    quick = _Way(file, columns, prepare(file.quick(_types(file, columns))), calendar)
    try:
        checked = skim(quick.frame(), columns.table, calendar=quick.has_calendar, ids=ids)
        if checked is not None:
            return quick, checked
    except (ComputeError, SchemaError):
        pass
    except OSError as error:
        raise polars_error(file.name, error) from None
    names = list(dict.fromkeys([one.column for one in columns.chosen if one.column] + list(wanted.extra_columns)))
    careful = _Way(file, _any_format(columns), prepare(file.careful(names)), calendar)
    try:
        return careful, check(careful.frame(), columns.table, calendar=careful.has_calendar, ids=ids)
    except (PolarsError, OSError) as error:
        raise polars_error(file.name, error) from None


def _types(file: TableFile, columns: TableColumns) -> dict[str, pl.DataType]:
    """Types of the columns that are read: numbers where the first rows have numbers."""
    types: dict[str, pl.DataType] = {}
    for one in columns.chosen:
        if not one.column or file.shape is FileLayout.PARQUET:
            continue
        whole = one.how.cell in (CellKind.TIME, CellKind.COUNT) and _is_whole(file.sample[one.column])
        if not one.how.numeric:
            types[one.column] = _json_type(file, one.column) if file.shape is FileLayout.JSONL else pl.String()
        else:
            types[one.column] = pl.Int64() if whole else pl.Float64()
    return types


def _json_type(file: TableFile, column: str) -> pl.DataType:
    """Numbers that are read as words are still numbers in JSON."""
    return pl.Int64() if _is_whole(file.sample[column]) else pl.String()


def _is_whole(values: pl.Series) -> bool:
    there = values.drop_nulls()
    return len(there) > 0 and there.cast(pl.Int64, strict=False).null_count() == 0


def _any_format(columns: TableColumns) -> TableColumns:
    """The same columns, with times in any format."""
    chosen = [one._replace(how=one.how._replace(formats=())) if one.how.formats else one for one in columns.chosen]
    return columns._replace(chosen=tuple(chosen))


# -- findings ----------------------------------------------------------------------------------------


def _row_findings(way: _Way, checked: Checked) -> Iterable[SourceFinding]:
    rows_of = dict(checked.rows_of)
    if checked.repeated is not None and len(checked.repeated):
        rows_of[Code.DUPLICATE_ID] = checked.repeated.head(3).to_list()
    cells = _cells(way, sorted({row for rows in rows_of.values() for row in rows}))
    for code, count in checked.counts.items():
        places = tuple(_place(way, code, row, cells.get(row, {})) for row in rows_of.get(code, []))
        yield SourceFinding(code, way.file.name, count, places, way.file.word)


def _cells(way: _Way, rows: list[int]) -> dict[int, dict[str, str]]:
    """The text of some rows, with what was read of it."""
    if not rows:
        return {}
    names = way.raw.collect_schema()
    read = [
        part
        for one in way.columns.chosen
        if one.column
        for part in (
            pl.col(one.column).cast(pl.String, strict=False).alias(one.field),
            read_cell(pl.col(one.column), names[one.column], one.how).is_null().alias(f"{one.field} "),
        )
    ]
    wanted = pl.col(ROW).is_in(pl.Series(rows, dtype=pl.UInt32).implode())
    near = way.raw.filter(pl.col(ROW) <= rows[-1]) if way.file.shape is FileLayout.PARQUET else way.raw
    found = near.filter(wanted).select(ROW, *read).head(len(rows)).collect(engine="streaming")
    return {row.pop(ROW): row for row in found.to_dicts()}


def _place(way: _Way, code: Code, row: int, cells: dict[str, str]) -> CellPlace:
    number = row + way.file.first
    there = [one for one in way.columns.chosen if one.column]
    if code is Code.UNREADABLE_CELL:
        shown = next((one for one in there if cells.get(one.field) is not None and cells.get(f"{one.field} ")), None)
    elif code is Code.MISSING_VALUE:
        needed = ("submitted", "started", "gpus", "at", "count", "busy")
        shown = next((one for one in there if one.field in needed and cells.get(one.field) is None), None)
    else:
        shown = next((one for field in _SHOWN.get(code, ()) for one in there if one.field == field), None)
    if shown is None:
        return CellPlace(number)
    return CellPlace(number, shown.column, cells.get(shown.field) or "")


def _table_findings(way: _Way, checked: Checked, wanted: TableHints) -> Iterable[SourceFinding]:
    name = way.file.name
    if not checked.rows:
        yield SourceFinding(Code.EMPTY, name, 1)
    if checked.gaps:
        longest = max(checked.gaps, key=lambda gap: gap[1] - gap[0])
        hours = (longest[1] - longest[0]) // 3_600_000
        yield SourceFinding(Code.GAP, name, len(checked.gaps), more=f"the longest has {hours:,} hours")
    if not _recorded(way.columns).submissions and checked.kept:
        yield SourceFinding(Code.SUBMISSION_MISSING, name, checked.kept)
    if not _recorded(way.columns).runtimes and checked.kept:
        yield SourceFinding(Code.START_MISSING, name, checked.kept)
    if wanted.documented:
        return
    unsure = [one for one in way.columns.chosen if not one.sure and one.column]
    if unsure:
        assumed = ", ".join(f"{one.column} in {one.how.unit}" for one in unsure)
        yield SourceFinding(Code.UNIT_ASSUMED, name, len(unsure), more=assumed)
    if way.calendar.dates and not wanted.zone:
        yield from _zone_findings(
            way, [one for one in way.columns.chosen if one.how.cell is CellKind.TIME and one.column]
        )


def _zone_findings(way: _Way, times: list[ColumnMapping]) -> Iterable[SourceFinding]:
    """Times without a zone: in all of a column, or in some of its rows."""
    schema = way.raw.collect_schema()
    local = [one for one in times if isinstance(schema[one.column], pl.Datetime) and _is_local(schema[one.column])]
    texts = [one for one in times if schema[one.column] == pl.String and not one.how.numeric]
    sure = [one for one in texts if one.how.formats]
    local += [one for one in sure if one.how.formats[0] in LOCAL]
    for one in texts:
        if one.how.formats:
            continue
        marked = pl.col(one.column).str.contains(r"(?:[Zz]|UTC|GMT|[+-]\d\d:?\d\d)$")
        read = read_cell(pl.col(one.column), pl.String(), one.how).is_not_null()
        counts = way.raw.filter(read).select(
            zoned=marked.sum(), local=(~marked).sum(), row=pl.col(ROW).filter(~marked).min()
        )
        zoned, without, row = counts.collect(engine="streaming").row(0)
        if zoned and without:
            place = CellPlace(row + way.file.first, one.column)
            yield SourceFinding(Code.TIME_ZONES_MIXED, way.file.name, without, (place,), way.file.word)
        elif without:
            local.append(one)
    if local:
        names = ", ".join(one.column for one in local)
        yield SourceFinding(Code.TIME_ZONE_MISSING, way.file.name, len(local), more=names)


def _is_local(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime) and dtype.time_zone is None


# -- the period of samples --------------------------------------------------------------------------------

#: Samples that the period is taken from.
_LOOKED_AT = 200_000

#: Steps of one thing that say how often it is sampled; with fewer, it is as all others.
_LEAST_STEPS = 5

_OF = {CanonicalTable.USE: ("allocation",), CanonicalTable.CAPACITY: ("queue", "gpu_model")}


def fill_period(frame: pl.LazyFrame, columns: TableColumns) -> pl.LazyFrame:
    """Fill in the period of each sample, where the table does not have it."""
    if columns.table not in _OF or columns.of("every") is not None:
        return frame
    things = list(_OF[columns.table])
    steps = _steps(frame, things)
    usual = _median(steps)
    own = steps.group_by(things).agg(pl.col("step").sort().get((pl.len() - 1) // 2).alias("own"), pl.len())
    other = own.filter((pl.col("len") >= _LEAST_STEPS) & (pl.col("own") != pl.lit(usual, dtype=pl.Int64))).select(
        *things, "own"
    )
    if other.is_empty():
        return frame.with_columns(every_ms=pl.lit(usual, dtype=pl.Int64))
    joined = frame.drop("every_ms", strict=False).join(other.lazy(), on=things, how="left", maintain_order="left")
    return joined.with_columns(every_ms=pl.col("own").fill_null(usual)).select(frame.collect_schema().names())


def _steps(frame: pl.LazyFrame, things: list[str]) -> pl.DataFrame:
    """Times between two samples of the same thing, of the first ones."""
    looked = frame.select("at_ms", *things).head(_LOOKED_AT).collect(engine="streaming")
    steps = looked.unique().sort(*things, "at_ms").select(*things, step=pl.col("at_ms").diff().over(things))
    return steps.filter(pl.col("step") > 0)


def _median(steps: pl.DataFrame) -> int | None:
    """The step that half of them do not exceed: of times that are never quite the same, none is common."""
    return int(steps["step"].sort()[(len(steps) - 1) // 2]) if len(steps) else None


# -- rows on disk -----------------------------------------------------------------------------------------------

_NUMBERS = itertools.count(1)


def spilled(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The same rows, from a file of our own; they need not fit into memory."""
    path = _folder() / f"{next(_NUMBERS)}.parquet"
    frame.sink_parquet(path, compression="lz4")
    return pl.scan_parquet(path)


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="tidegate-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
