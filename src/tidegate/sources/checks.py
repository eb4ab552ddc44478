"""One pass over a table that counts what is wrong with its rows, and what else is to be said about it.

Rows are numbered by the file they came from; nothing is loaded but counts, a number for each id, and what is told.
Must not know: files, formats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.sources.findings import MOST_PLACES, Code
from tidegate.sources.frames import DROPS, MENDED, WHY, canonical, judged, number_of, wrongs
from tidegate.sources.options import Table
from tidegate.sources.tablefile import ROW

#: The column of times by which a table is in order.
TIMES = {Table.JOBS: "submitted_ms"}

#: Hours without any row that are a gap; a quiet weekend is none.
_GAP_HOURS = 72


class Checked(NamedTuple):
    """What one pass over a table found."""

    rows: int
    kept: int
    first_ms: int | None
    last_ms: int | None
    counts: dict[Code, int]
    rows_of: dict[Code, list[int]]  # the first ones
    repeated: pl.Series | None  # rows that are left out because their id was there before
    gaps: list[tuple[int, int]]  # from, to
    clean: bool = False  # every row can be used as it is

    @property
    def doubtful(self) -> int:
        """Rows that a careful look may read better."""
        return sum(self.counts.get(code, 0) for code in (Code.UNREADABLE_CELL, Code.MISSING_VALUE))


def time_of(table: Table) -> str:
    """The column that says when."""
    return TIMES.get(table, "at_ms")


def check(frame: pl.LazyFrame, table: Table, *, calendar: bool, ids: bool) -> Checked:
    """Count what is wrong with a table; with `ids`, those that come twice, too."""
    skimmed = _skim(frame, table, calendar=calendar, ids=ids)
    if skimmed is not None:
        return skimmed
    return _count(judged(frame, table, calendar=calendar), table, ids=ids)


def _skim(frame: pl.LazyFrame, table: Table, *, calendar: bool, ids: bool) -> Checked | None:
    """Look whether anything is wrong at all, which takes a fraction of the time of counting what; None if it is."""
    time = pl.col(time_of(table))
    wrong = [bad.any().alias(code) for code, bad in wrongs(table, calendar=calendar).items()]
    found = frame.select(*wrong, *_marks(table), *_always(time, ids=ids)).collect(engine="streaming")
    row = found.drop("keys", "hours", strict=False).row(0, named=True)
    if any(row[code] for code in wrongs(table, calendar=calendar)) or any(row[mark] for mark in _MARKS):
        return None
    if ids and _has_equal(found["keys"][0].to_numpy()):
        return None
    gaps = _gaps(found["hours"][0].drop_nulls().sort().to_numpy())
    return Checked(row["rows"], row["rows"], row["first"], row["last"], {}, {}, None, gaps, clean=True)


#: What makes a second look necessary though no row is dropped.
_MARKS = ("mended", "back", "open")


def _marks(table: Table) -> list[pl.Expr]:
    time = pl.col(time_of(table))
    unknown = pl.col("duration_ms").is_null().any() if table is Table.JOBS else pl.lit(False)
    return [pl.col(MENDED).any().alias("mended"), _back(time).any().alias("back"), unknown.alias("open")]


def _always(time: pl.Expr, *, ids: bool) -> list[pl.Expr]:
    keys = [_key().implode().alias("keys")] if ids else []
    return [
        pl.len().alias("rows"),
        time.min().alias("first"),
        time.max().alias("last"),
        (time // HOUR_MS).rle().struct.field("value").unique().implode().alias("hours"),
        *keys,
    ]


def _count(frame: pl.LazyFrame, table: Table, *, ids: bool) -> Checked:
    """Count everything."""
    good = frame.filter(pl.col(WHY) == 0)
    time = time_of(table)
    queries = [_totals(frame, table), good.select((pl.col(time) // HOUR_MS).alias("hour")).unique()]
    if ids:
        queries.append(good.select(_key().alias("key")))
    totals, hours, *keys = pl.collect_all(queries, engine="streaming")
    row = totals.row(0, named=True)
    counts = {code: row[code] for code in (*DROPS, Code.START_BEFORE_SUBMIT, Code.DURATION_MISSING) if row.get(code)}
    repeated = _repeated(good, keys[0]["key"].to_numpy()) if keys else None
    if repeated is not None and len(repeated):
        counts[Code.DUPLICATE_ID] = len(repeated)
    if row["back"] and row["back"] * 1000 <= row["kept"]:
        counts[Code.CLOCK_JUMP] = row["back"]
    kept = row["kept"] - (len(repeated) if repeated is not None else 0)
    gaps = _gaps(hours["hour"].drop_nulls().sort().to_numpy())
    return Checked(row["rows"], kept, row["first"], row["last"], counts, _places(frame, time, counts), repeated, gaps)


def usable(frame: pl.LazyFrame, table: Table, checked: Checked, *, calendar: bool) -> pl.LazyFrame:
    """The rows that can be used, in the canonical columns; where all can, nothing is looked at again."""
    if checked.clean:
        return canonical(frame, table)
    good = judged(frame, table, calendar=calendar).filter(pl.col(WHY) == 0)
    return canonical(without_repeated(good, checked), table)


def without_repeated(frame: pl.LazyFrame, checked: Checked) -> pl.LazyFrame:
    """The rows whose id was not there before."""
    if checked.repeated is None or not len(checked.repeated):
        return frame
    return frame.filter(~pl.col(ROW).is_in(checked.repeated.implode()))


def _totals(frame: pl.LazyFrame, table: Table) -> pl.LazyFrame:
    time, why = pl.col(time_of(table)), pl.col(WHY)
    good = why == 0
    more = {}
    if table is Table.JOBS:
        over = ~pl.col("outcome").is_in(["running", "pending"])
        more = {Code.DURATION_MISSING: (pl.col("duration_ms").is_null() & over & good).sum()}
    return frame.select(
        pl.len().sub((why == 255).sum()).alias("rows"),
        good.sum().alias("kept"),
        time.filter(good).min().alias("first"),
        time.filter(good).max().alias("last"),
        *((why == number_of(code)).sum().alias(code) for code in DROPS),
        pl.col(MENDED).and_(good).sum().alias(Code.START_BEFORE_SUBMIT),
        _back(time).sum().alias("back"),
        *(said.alias(code) for code, said in more.items()),
    )


def _back(time: pl.Expr) -> pl.Expr:
    return time.diff() < -MINUTE_MS


def _key() -> pl.Expr:
    return pl.col("id").hash(seed=0)


def _has_equal(keys: npt.NDArray[np.uint64]) -> bool:
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _repeated(frame: pl.LazyFrame, keys: npt.NDArray[np.uint64]) -> pl.Series:
    """Rows whose id was there before. Equal ids have equal numbers; those with equal numbers are then compared."""
    ordered = np.sort(keys)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return pl.Series([], dtype=pl.UInt32)
    suspects = frame.filter(_key().is_in(pl.Series(twice).implode())).select(ROW, "id").collect(engine="streaming")
    later = suspects.sort(ROW).filter((pl.col("id") != "") & ~pl.col("id").is_first_distinct())
    return later[ROW]


def _gaps(hours: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    steps = np.diff(hours)
    wide = np.flatnonzero(steps > _GAP_HOURS)
    return [((int(hours[at]) + 1) * HOUR_MS, int(hours[at + 1]) * HOUR_MS) for at in wide]


def _places(frame: pl.LazyFrame, time: str, counts: dict[Code, int]) -> dict[Code, list[int]]:
    """The first rows of each code."""
    wanted: dict[Code, pl.Expr] = {code: pl.col(WHY) == number_of(code) for code in DROPS}
    wanted[Code.START_BEFORE_SUBMIT] = pl.col(MENDED) & (pl.col(WHY) == 0)
    wanted[Code.CLOCK_JUMP] = _back(pl.col(time))
    told = [code for code in counts if code in wanted]
    if not told:
        return {}
    queries = [frame.filter(wanted[code]).select(ROW).head(MOST_PLACES) for code in told]
    found = pl.collect_all(queries, engine="streaming")
    return {code: rows[ROW].to_list() for code, rows in zip(told, found, strict=True)}
