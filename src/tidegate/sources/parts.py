"""What one source gave: rows of one canonical table, where they came from, and what is to be said about them.

Must not know: how anything is read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import polars as pl

from tidegate.demand.tables import Calendar, Origin
from tidegate.sources.columns import Columns
from tidegate.sources.fields import Table
from tidegate.sources.findings import Finding


class Format(StrEnum):
    """What a source can be."""

    TABLE = "table"  # CSV, TSV, JSON lines or Parquet with columns that are recognised by name
    SLURM = "slurm"  # sacct -P, sacct -p, sacct --json
    KUBERNETES = "kubernetes"  # kubectl get … -o json or yaml
    PROMETHEUS = "prometheus"
    ITP = "itp"
    PHILLY = "philly"
    MURI = "muri"
    AZURE_LLM = "azure-llm"
    MOONCAKE = "mooncake"
    SERVEGEN = "servegen"
    GENAI = "genai"
    HELIOS = "helios"


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

    @property
    def origin(self) -> Origin:
        """Where the rows came from."""
        return Origin(self.name, str(self.format), self.query, self.kept)


class Options(NamedTuple):
    """How sources are read, as the user says."""

    format: Format | None = None  # None: guessed
    map: str = ""  # submitted=created_at:ms,gpus=num_gpu
    table: Table | None = None
    delimiter: str = ""
    timezone: str = ""  # of times that name none; empty: not said, and taken as UTC
    strict: bool = False
    start: str = ""  # of what is asked of a server
    end: str = ""
    step: str = ""
    cache: str = ""  # folder for what was fetched of a server
    token: str = ""
    user: str = ""
    password: str = ""
    ca_file: str = ""
    insecure: bool = False


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
