"""Who reads what: a format, and the reader for it."""

from __future__ import annotations

from tidegate.sources.detect_columns import ColumnOverride
from tidegate.sources.detect_format import DetectedSource
from tidegate.sources.findings import SourceError
from tidegate.sources.kubedump import read_kubectl_dump
from tidegate.sources.options import Format, ReportProgress, SourceOptions, no_progress
from tidegate.sources.prometheus.source import read_prometheus
from tidegate.sources.slurm import read_sacct, read_sacct_json
from tidegate.sources.source_result import SourceTable
from tidegate.sources.table_file import TableFile
from tidegate.sources.table_reader import TableHints, read_table_file
from tidegate.sources.traces.catalog import TRACES
from tidegate.sources.traces.genai import read_genai


def read_detected(
    found: DetectedSource,
    options: SourceOptions,
    wishes: dict[str, ColumnOverride],
    watch: ReportProgress = no_progress,
) -> list[SourceTable]:
    """The tables of a source; an UnusableSource says why there are none."""
    if found.table is not None:
        return [_read_table(found.table, found.format, options, wishes)]
    match found.format:
        case Format.PROMETHEUS:
            return read_prometheus(found.address, options, watch=watch)
        case Format.GENAI:
            return read_genai(list(found.paths))
        case Format.KUBERNETES:
            return read_kubectl_dump(list(found.paths))
        case _:
            return [read_sacct_json(found.paths[0], options, wishes)]


def _read_table(
    table: TableFile, form: Format, options: SourceOptions, wishes: dict[str, ColumnOverride]
) -> SourceTable:
    if form is Format.SLURM:
        return read_sacct(table, options, wishes)
    if form is Format.TABLE:
        return read_table_file(table, TableHints(wishes, zone=options.timezone, table=options.table), form)
    return _read_trace(table, form, wishes)


def _read_trace(table: TableFile, form: Format, wishes: dict[str, ColumnOverride]) -> SourceTable:
    trace = next(one for one in TRACES if one.format is form)
    if not trace.header <= set(table.names):
        raise SourceError(
            f"{table.name}: is no trace of {form}: expected the columns {', '.join(sorted(trace.header))}, "
            f"found {', '.join(table.names[:20])}"
        )
    wanted = trace.wanted(table.name)
    return read_table_file(table, wanted._replace(wishes={**wanted.wishes, **wishes}), form)
