"""Reads sources of any kind into the canonical tables, with findings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import polars as pl

from tidegate.demand.tables import Recorded, Tables
from tidegate.demand.time_zone import Calendar, ZoneOrigin
from tidegate.sources.dedupe import without_overlaps
from tidegate.sources.detect_columns import ColumnOverride, read_map_option
from tidegate.sources.detect_format import DetectedSource, detect_sources
from tidegate.sources.findings import SourceError, SourceFinding, refuse_findings
from tidegate.sources.kubedump import read_kubectl_dump
from tidegate.sources.options import CanonicalTable, Format, ReportProgress, SourceOptions, check_options, no_progress
from tidegate.sources.prometheus.source import read_prometheus
from tidegate.sources.slurm import read_sacct, read_sacct_json
from tidegate.sources.source_result import SourceTable
from tidegate.sources.table_file import TableFile
from tidegate.sources.table_reader import TableHints, read_table_file
from tidegate.sources.time_zones import calendar_of
from tidegate.sources.traces.catalog import TRACES
from tidegate.sources.traces.genai import read_genai

_USUAL = SourceOptions()


class SourceTables(NamedTuple):
    """The tables of all sources."""

    tables: Tables
    parts: tuple[SourceTable, ...]  # what came from where
    findings: tuple[SourceFinding, ...]  # of all parts


def read_sources(
    sources: Sequence[str | TableFile], options: SourceOptions = _USUAL, watch: ReportProgress = no_progress
) -> SourceTables:
    """Read sources: files, folders, addresses of servers and tables in memory; a SourceError says why it cannot.

    `watch` is called with what is being read and the share of it that is done.
    """
    if not sources:
        raise SourceError("no source is named: expected files, folders or the address of a Prometheus")
    check_options(options)
    overrides = read_map_option(options.map)
    found: list[DetectedSource] = detect_sources(sources, options)
    parts: list[SourceTable] = []
    for number, one in enumerate(found):
        watch(one.name, number / len(found))
        parts += read_detected(one, options, overrides, watch)
    parts = without_overlaps(parts)
    findings = [finding for part in parts for finding in part.findings]
    findings += [finding for one in found for finding in one.findings]
    if options.strict:
        refuse_findings(findings)
    tables = _tables(parts, options)._replace(dropped=sum(finding.loses for finding in findings))
    return SourceTables(tables, tuple(parts), tuple(findings))


def _tables(parts: list[SourceTable], options: SourceOptions) -> Tables:
    dated = {part.calendar.dates for part in parts}
    if len(dated) > 1:
        with_one = next(part.name for part in parts if part.calendar.dates)
        without = next(part.name for part in parts if not part.calendar.dates)
        raise SourceError(f"{with_one} has dates and {without} counts from its start: read them one by one")
    jobs = [part for part in parts if part.table is CanonicalTable.JOBS]
    since = [part.since_ms for part in jobs]
    return Tables(
        jobs=_joined(parts, CanonicalTable.JOBS),
        requests=_joined(parts, CanonicalTable.REQUESTS),
        use=_joined(parts, CanonicalTable.USE),
        capacity=_joined(parts, CanonicalTable.CAPACITY),
        starts=_joined(parts, CanonicalTable.STARTS),
        calendar=Calendar.NONE if dated == {False} else _calendar(parts, options),
        origins=tuple(part.origin for part in parts),
        since_ms=min((one for one in since if one is not None), default=None) if None not in since else None,
        until_ms=max((part.until_ms for part in jobs if part.until_ms is not None), default=None),
        recorded=reduce(Recorded.both, (part.recorded for part in jobs if part.kept), Recorded()),
    )


def _calendar(parts: list[SourceTable], options: SourceOptions) -> Calendar:
    """The time zone of the users: of the option, else of all sources that name one, else UTC."""
    zones = {part.zone for part in parts if part.zone}
    name = options.timezone or (next(iter(zones)) if len(zones) == 1 else "")
    times = [time for part in parts for time in (part.first_ms, part.last_ms) if time is not None]
    if not name or not times:
        return Calendar.EPOCH
    origin = ZoneOrigin.OPTION if options.timezone else ZoneOrigin.SOURCE
    return calendar_of(name, origin, min(times), max(times))


def _joined(parts: list[SourceTable], table: CanonicalTable) -> pl.LazyFrame | None:
    frames = [part.frame for part in parts if part.table is table]
    if not frames:
        return None
    return frames[0] if len(frames) == 1 else pl.concat(frames)


# -- a reader for each format ------------------------------------------------------------------------------------


def read_detected(
    found: DetectedSource,
    options: SourceOptions,
    overrides: dict[str, ColumnOverride],
    watch: ReportProgress = no_progress,
) -> list[SourceTable]:
    """The tables of a source; a SourceError says why there are none."""
    if found.table is not None:
        return [_read_table(found.table, found.format, options, overrides)]
    match found.format:
        case Format.PROMETHEUS:
            return read_prometheus(found.address, options, watch=watch)
        case Format.GENAI:
            return read_genai(list(found.paths))
        case Format.KUBERNETES:
            return read_kubectl_dump(list(found.paths))
        case _:
            return [read_sacct_json(found.paths[0], options, overrides)]


def _read_table(
    table: TableFile, form: Format, options: SourceOptions, overrides: dict[str, ColumnOverride]
) -> SourceTable:
    if form is Format.SLURM:
        return read_sacct(table, options, overrides)
    if form is Format.TABLE:
        return read_table_file(table, TableHints(overrides, zone=options.timezone, table=options.table), form)
    return _read_trace(table, form, overrides)


def _read_trace(table: TableFile, form: Format, overrides: dict[str, ColumnOverride]) -> SourceTable:
    trace = next(one for one in TRACES if one.format is form)
    if not trace.header <= set(table.names):
        raise SourceError(
            f"{table.name}: is no trace of {form}: expected the columns {', '.join(sorted(trace.header))}, "
            f"found {', '.join(table.names[:20])}"
        )
    wanted = trace.wanted(table.name)
    return read_table_file(table, wanted._replace(overrides={**wanted.overrides, **overrides}), form)
