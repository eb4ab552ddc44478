"""Counts, in one pass over a table, what is wrong with its rows.

Rows are numbered by file; nothing is loaded but counts, a number for each id, and the first rows of each code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.demand.censoring import end_alone, over_ms
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.sources.canonicalize import BLANK, DROPS, MENDED, SEEN, WHY, canonical, judged, number_of, wrongs
from tidegate.sources.findings import MOST_PLACES, Code
from tidegate.sources.options import CanonicalTable
from tidegate.sources.table_file import ROW

#: The column of times by which a table is in order.
TIMES = {CanonicalTable.JOBS: "submitted_ms"}

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
    seen_ms: int | None = None  # until when jobs that are not over were seen


def time_of(table: CanonicalTable) -> str:
    """The column that says when."""
    return TIMES.get(table, "at_ms")


def check(frame: pl.LazyFrame, table: CanonicalTable, *, calendar: bool, ids: bool) -> Checked:
    """Count what is wrong with a table; with `ids`, those that come twice, too."""
    return count(judged(frame, table, calendar=calendar), table, ids=ids)


def skim(frame: pl.LazyFrame, table: CanonicalTable, *, calendar: bool, ids: bool) -> Checked | None:
    """Look whether anything is wrong at all, which takes a fraction of the time of counting what; None if it is."""
    time = pl.col(time_of(table))
    wrong = [bad.any().alias(code) for code, bad in wrongs(table, calendar=calendar).items()]
    found = frame.select(*wrong, *_marks(table), *_always(time, ids=ids)).collect(engine="streaming")
    row = found.drop("keys", "hours", strict=False).row(0, named=True)
    if any(row[code] for code in wrongs(table, calendar=calendar)) or row["mended"] or row["open"]:
        return None
    if _is_jump(row["back"], row["rows"]) or (ids and _has_equal(found["keys"][0].to_numpy())):
        return None
    gaps = _gaps(found["hours"][0].drop_nulls().sort().to_numpy())
    return Checked(row["rows"], row["rows"], row["first"], row["last"], {}, {}, None, gaps, clean=True)


def _is_jump(back: int, rows: int) -> bool:
    """Whether rows that go back in time are exceptions; where many do, the file is in no order."""
    return 0 < back * 1000 <= rows


def _marks(table: CanonicalTable) -> list[pl.Expr]:
    time = pl.col(time_of(table))
    unknown = pl.col("duration_ms").is_null().any() if table is CanonicalTable.JOBS else pl.lit(False)
    return [pl.col(MENDED).any().alias("mended"), _back(time).sum().alias("back"), unknown.alias("open")]


def _always(time: pl.Expr, *, ids: bool) -> list[pl.Expr]:
    keys = [_key().implode().alias("keys")] if ids else []
    return [
        pl.len().alias("rows"),
        time.min().alias("first"),
        time.max().alias("last"),
        (time // HOUR_MS).rle().struct.field("value").unique().implode().alias("hours"),
        *keys,
    ]


def count(frame: pl.LazyFrame, table: CanonicalTable, *, ids: bool) -> Checked:
    """Count everything, in one pass."""
    good = pl.col(WHY) == 0
    time = pl.col(time_of(table))
    flags = _flags(table, time)
    keys = [_key().filter(good).implode().alias("keys")] if ids else []
    found = frame.select(
        pl.len().sub((pl.col(WHY) == BLANK).sum()).alias("rows"),
        good.sum().alias("kept"),
        time.filter(good).min().alias("first"),
        time.filter(good).max().alias("last"),
        *(flag.sum().alias(code) for code, flag in flags.items()),
        *(pl.col(ROW).filter(flag).head(MOST_PLACES).implode().alias(f"{code} rows") for code, flag in flags.items()),
        (time // HOUR_MS).filter(good).rle().struct.field("value").unique().implode().alias("hours"),
        pl.col(SEEN).filter(good).max().alias("seen"),
        *keys,
    ).collect(engine="streaming")
    row = found.drop("keys", "hours", strict=False).row(0, named=True)
    counts = {code: row[code] for code in flags if row[code]}
    if not _is_jump(counts.get(Code.CLOCK_JUMP, 0), row["kept"]):
        counts.pop(Code.CLOCK_JUMP, None)
    repeated = _repeated(frame.filter(good), found["keys"][0].to_numpy()) if ids else None
    times = len(repeated) if repeated is not None else 0
    if times:
        counts[Code.DUPLICATE_ID] = times
    return Checked(
        rows=row["rows"],
        kept=row["kept"] - times,
        first_ms=row["first"],
        last_ms=row["last"],
        counts=counts,
        rows_of={code: row[f"{code} rows"] for code in counts if code in flags},
        repeated=repeated,
        gaps=_gaps(found["hours"][0].drop_nulls().sort().to_numpy()),
        seen_ms=row["seen"],
    )


def _flags(table: CanonicalTable, time: pl.Expr) -> dict[Code, pl.Expr]:
    """Rows of each code."""
    good = pl.col(WHY) == 0
    flags: dict[Code, pl.Expr] = {code: pl.col(WHY) == number_of(code) for code in DROPS}
    flags[Code.CLOCK_JUMP] = _back(time).fill_null(value=False)
    if table is CanonicalTable.JOBS:
        over = ~pl.col("outcome").is_in(["running", "pending"])
        flags[Code.START_BEFORE_SUBMIT] = pl.col(MENDED) & good
        flags[Code.END_IN_FUTURE] = _alone(good) & good
        flags[Code.DURATION_MISSING] = pl.col("duration_ms").is_null() & over & good
    return flags


def _alone(good: pl.Expr) -> pl.Expr:
    """The latest end, where it is alone and other jobs are not over."""
    latest = over_ms() == over_ms().filter(good).max()
    open_too = (pl.col("duration_ms").is_null() & good).any()
    return (latest & end_alone() & open_too).fill_null(value=False)


def usable(frame: pl.LazyFrame, table: CanonicalTable, checked: Checked, *, calendar: bool) -> pl.LazyFrame:
    """The rows that can be used, in the canonical columns; where all can, no row is checked again."""
    if checked.clean:
        return canonical(frame, table)
    good = judged(frame, table, calendar=calendar).filter(pl.col(WHY) == 0)
    return canonical(without_repeated(good, checked), table)


def without_repeated(frame: pl.LazyFrame, checked: Checked) -> pl.LazyFrame:
    """The rows whose id was not there before."""
    if checked.repeated is None or not len(checked.repeated):
        return frame
    return frame.filter(~pl.col(ROW).is_in(checked.repeated.implode()))


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
