"""Removes duplicates between exports: a job in several files counts once, as the row that has its end.

What has no id counts once by what it is about and its time; where that is not known, by the whole row, if most rows of
the time that two files have in common are the same: a few are so by chance.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.sources.canonicalize import SCHEMAS
from tidegate.sources.findings import Code, SourceFinding
from tidegate.sources.options import CanonicalTable, Format
from tidegate.sources.row_checks import TIMES
from tidegate.sources.source_result import SourceTable

#: What makes two rows the same job: numbers alone come again in files that have nothing to do with each other.
_SAME = ["id", "submitted_ms"]


def without_overlaps(parts: list[SourceTable]) -> list[SourceTable]:
    """The same tables; rows of several files stay in one of them, and the others report them."""
    parts = _without_same_ids(parts)
    for table in (CanonicalTable.JOBS, CanonicalTable.REQUESTS, CanonicalTable.USE, CanonicalTable.CAPACITY):
        rows = [number for number, part in enumerate(parts) if _may_repeat(part, table)]
        parts = _without_same_rows(parts, rows) if len(rows) > 1 else parts
    return parts


def _without_same_ids(parts: list[SourceTable]) -> list[SourceTable]:
    jobs = [number for number, part in enumerate(parts) if _may_overlap(part)]
    if len(jobs) < 2:
        return parts
    key = pl.struct(_SAME).hash(seed=0)
    keys = [parts[at].frame.select(key.alias("key")).collect(engine="streaming")["key"].unique() for at in jobs]
    found, times = np.unique(np.concatenate([one.to_numpy() for one in keys]), return_counts=True)
    twice = pl.Series(found[times > 1])
    if twice.is_empty():
        return parts
    suspects = pl.concat(
        parts[at].frame.filter(key.is_in(twice.implode())).select(*_SAME, "ended_ms", part=pl.lit(at)) for at in jobs
    )
    ranked = suspects.collect(engine="streaming").sort(*_SAME, pl.col("ended_ms").is_null(), "part")
    lost = ranked.filter(~pl.struct(_SAME).is_first_distinct())
    return [_without(part, lost.filter(pl.col("part") == at)) for at, part in enumerate(parts)]


def _may_overlap(part: SourceTable) -> bool:
    """Whether it may hold jobs of another part: on clocks of their own, equal times mean nothing."""
    exports = (Format.TABLE, Format.SLURM, Format.KUBERNETES)
    known = part.table is CanonicalTable.JOBS and part.kept > 0 and part.calendar.dates and part.format in exports
    return known and _named(part)


def _named(part: SourceTable) -> bool:
    """Whether its jobs have ids, and not numbers of rows."""
    return part.columns is None or part.columns.of("id") is not None


def _without(part: SourceTable, lost: pl.DataFrame) -> SourceTable:
    if lost.is_empty():
        return part
    found = SourceFinding(
        Code.DUPLICATE_ID, part.name, len(lost), more=f"another source has them too, such as {lost['id'][0]}"
    )
    frame = part.frame.join(lost.lazy().select(_SAME), on=_SAME, how="anti", maintain_order="left")
    return part._replace(frame=frame, kept=part.kept - len(lost), findings=(*part.findings, found))


# -- what has no id ------------------------------------------------------------------------------------------------

#: What makes two rows the same sample: what it is about, when, and which of the values it has.
_ABOUT = {
    CanonicalTable.USE: (("queue", "allocation", "at_ms"), ("busy_milli", "vram_mib")),
    CanonicalTable.CAPACITY: (("queue", "gpu_model", "at_ms"), ("total_milli", "running_milli", "pending_milli")),
}

#: Of the rows in a time that two files have in common, the share from which on whole rows are the same and not alike.
_SAME_SHARE = 0.5


def _may_repeat(part: SourceTable, table: CanonicalTable) -> bool:
    """Whether it may hold rows of another part that have no id."""
    known = part.table is table and part.kept > 0 and part.calendar.dates and part.format is Format.TABLE
    return known and not (table is CanonicalTable.JOBS and _named(part))


def _key(part: SourceTable) -> tuple[pl.Expr, bool]:
    """A number for each row that is equal for equal rows, and whether it is of the whole row."""
    about, values = _ABOUT.get(part.table, ((), ()))
    names = [] if part.columns is None else [one.field for one in part.columns.chosen]
    named = {CanonicalTable.USE: {"allocation"}, CanonicalTable.CAPACITY: {"queue", "gpu_model"}}.get(part.table, set())
    if named & set(names):  # else it may be about another cluster at the same time
        return pl.struct(*about, *(pl.col(name).is_null().alias(f"no {name}") for name in values)).hash(seed=0), False
    return pl.struct(name for name in SCHEMAS[part.table] if name != "id").hash(seed=0), True


def _without_same_rows(parts: list[SourceTable], rows: list[int]) -> list[SourceTable]:
    """Rows that an earlier part has are left out of later ones."""
    found, before = list(parts), pl.DataFrame(schema={"key": pl.UInt64(), "at": pl.Int64()})
    for number in rows:
        part = parts[number]
        key, whole = _key(part)
        time = pl.col(TIMES.get(part.table, "at_ms"))
        mine = part.frame.select(key.alias("key"), time.alias("at")).collect(engine="streaming")
        again = mine["key"].is_in(before["key"].unique().implode())
        common = mine["at"].is_between(before["at"].min(), before["at"].max()) if len(before) else again
        times = int(again.sum())
        if times and (not whole or times >= _SAME_SHARE * int(common.sum())):
            lost = mine["key"].filter(again).unique()
            repeated = SourceFinding(Code.DUPLICATE_ROW, part.name, times)
            found[number] = part._replace(
                frame=part.frame.filter(~key.is_in(lost.implode())),
                kept=part.kept - times,
                findings=(*part.findings, repeated),
            )
        before = pl.concat([before, mine])
    return found
