"""Sources as text and as plain data: format, columns, row counts, and findings by row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from tidegate.sources.findings import Effect, SourceFinding
from tidegate.sources.options import Format
from tidegate.sources.read_sources import SourceTables
from tidegate.sources.source_result import SourceTable

_STYLES = {Effect.DROPPED: "red", Effect.CORRECTED: "yellow", Effect.REPORTED: "dim"}

# -- for programs ----------------------------------------------------------------------------------------------


def gathered_as_json(gathered: SourceTables) -> dict[str, Any]:
    """What was gathered, as plain data."""
    return {
        "calendar": "epoch" if gathered.tables.calendar.dates else "none",
        "timezone": gathered.tables.calendar.timezone if gathered.tables.calendar.dates else None,
        "parts": [_part_as_json(part) for part in gathered.parts],
        "findings": [finding_as_json(finding) for finding in gathered.findings],
    }


def _part_as_json(part: SourceTable) -> dict[str, Any]:
    chosen = part.columns.chosen if part.columns else ()
    return {
        "source": part.name,
        "format": str(part.format),
        "table": str(part.table),
        "rows": part.rows,
        "kept": part.kept,
        "first_ms": part.first_ms,
        "last_ms": part.last_ms,
        "query": part.query,
        "columns": {
            one.field: {"column": one.column or None, "value": one.constant or None, "unit": one.how.unit, "by": one.by}
            for one in chosen
        },
    }


def finding_as_json(finding: SourceFinding) -> dict[str, Any]:
    """A finding as plain data."""
    return {
        "code": str(finding.code),
        "effect": str(finding.spec.effect),
        "source": finding.source,
        "count": finding.times,
        "places": [
            {finding.word: place.number or None, "column": place.column, "found": place.found}
            for place in finding.places
        ],
        "more": finding.more,
        "message": finding.text(),
        "lift": finding.spec.lift,
    }


# -- for people ------------------------------------------------------------------------------------------------


def print_sources(gathered: SourceTables, console: Console) -> None:
    """Print how sources were read."""
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in ("source", "format", "table"):
        grid.add_column(name, overflow="fold" if name == "source" else "ellipsis")
    grid.add_column("rows", justify="right")
    grid.add_column("used", justify="right")
    grid.add_column("time", no_wrap=True)
    for part in gathered.parts:
        name = part.name.rpartition("/")[2] or part.name
        grid.add_row(name, part.format, part.table, f"{part.rows:,}", f"{part.kept:,}", _span_text(part, gathered))
    console.print(grid)
    _print_columns(gathered, console)
    _print_findings(gathered.findings, console)


def _span_text(part: SourceTable, gathered: SourceTables) -> str:
    if part.first_ms is None or part.last_ms is None:
        return ""
    if not gathered.tables.calendar.dates:
        return f"{(part.last_ms - part.first_ms) / 86_400_000:,.1f} days"
    days = [datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d") for ms in (part.first_ms, part.last_ms)]
    return f"{days[0]} to {days[1]}" if days[0] != days[1] else days[0]


def _print_columns(gathered: SourceTables, console: Console) -> None:
    """The field of each column; files with the same columns are listed once."""
    told: set[str] = set()
    for part in gathered.parts:
        if part.columns is None:
            continue
        named = part.format not in (Format.TABLE, Format.SLURM)  # the file's name may say a queue: a column less
        lines = [f"  {one.text()}" for one in part.columns.chosen if one.column or not named]
        text = "\n".join(lines)
        if text in told:
            continue
        told.add(text)
        console.print(Text(f"\n{part.table} of {part.name.rpartition('/')[2]}", style="bold"))
        console.print(Text(text), soft_wrap=True)


def _print_findings(findings: tuple[SourceFinding, ...], console: Console) -> None:
    if not findings:
        console.print(Text("\nNothing was dropped or put right.", style="green"))
        return
    console.print(Text("\nFindings", style="bold"))
    for finding in findings:
        console.print(Text(f"  {finding.text()}", style=_STYLES[finding.spec.effect]), soft_wrap=True)
        console.print(Text(f"    {finding.spec.lift}", style="dim"), soft_wrap=True)
