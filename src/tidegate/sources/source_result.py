"""Rows of one canonical table from one source, with their origin and findings."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tidegate.demand.tables import Recorded, RowOrigin
from tidegate.demand.time_zone import Calendar
from tidegate.sources.detect_columns import TableColumns
from tidegate.sources.findings import SourceFinding
from tidegate.sources.options import CanonicalTable, Format


class SourceTable(NamedTuple):
    """Rows of one canonical table."""

    name: str  # of the file, or the server
    format: Format
    table: CanonicalTable
    frame: pl.LazyFrame
    calendar: Calendar
    rows: int  # that were there
    kept: int  # that can be used
    first_ms: int | None
    last_ms: int | None
    columns: TableColumns | None = None  # what was recognised, where columns are
    query: str = ""  # which part of the source
    findings: tuple[SourceFinding, ...] = ()
    zone: str = ""  # that its times name; "": none, or UTC
    since_ms: int | None = None  # from when on all jobs that were there are listed; None: all that were submitted
    until_ms: int | None = None  # when its jobs were last observed; None: not known
    recorded: Recorded = Recorded()  # what the times of its jobs say

    @property
    def origin(self) -> RowOrigin:
        """Where the rows came from."""
        return RowOrigin(self.name, str(self.format), self.query, self.kept)


def source_table(
    name: str, form: Format, table: CanonicalTable, frame: pl.DataFrame, findings: tuple[SourceFinding, ...] = ()
) -> SourceTable:
    """Rows that are already at hand, as a part."""
    time = "submitted_ms" if table is CanonicalTable.JOBS else "at_ms"
    first, last = frame[time].min(), frame[time].max()
    return SourceTable(
        name=name,
        format=form,
        table=table,
        frame=frame.lazy(),
        calendar=Calendar.EPOCH,
        rows=len(frame),
        kept=len(frame),
        first_ms=first if isinstance(first, int) else None,
        last_ms=last if isinstance(last, int) else None,
        findings=findings,
    )
