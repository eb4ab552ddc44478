"""What one source gave: rows of one canonical table, where they came from, and what is to be said about them.

Must not know: how anything is read.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tidegate.demand.tables import Recorded, RowOrigin
from tidegate.demand.time_zone import Calendar
from tidegate.sources.detect_columns import Columns
from tidegate.sources.findings import Finding
from tidegate.sources.options import Format, Table


class Part(NamedTuple):
    """Rows of one canonical table."""

    name: str  # of the file, or the server
    format: Format
    table: Table
    frame: pl.LazyFrame
    calendar: Calendar
    rows: int  # that were there
    kept: int  # that can be used
    first_ms: int | None
    last_ms: int | None
    columns: Columns | None = None  # what was recognised, where columns are
    query: str = ""  # which part of the source
    findings: tuple[Finding, ...] = ()
    zone: str = ""  # that its times name; "": none, or UTC
    since_ms: int | None = None  # from when on all jobs that were there are listed; None: all that were submitted
    until_ms: int | None = None  # when its jobs were last looked at; None: it does not say
    recorded: Recorded = Recorded()  # what the times of its jobs say

    @property
    def origin(self) -> RowOrigin:
        """Where the rows came from."""
        return RowOrigin(self.name, str(self.format), self.query, self.kept)


def part_of(name: str, form: Format, table: Table, frame: pl.DataFrame, findings: tuple[Finding, ...] = ()) -> Part:
    """Rows that are already at hand, as a part."""
    time = "submitted_ms" if table is Table.JOBS else "at_ms"
    first, last = frame[time].min(), frame[time].max()
    return Part(
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
