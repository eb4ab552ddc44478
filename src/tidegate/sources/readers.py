"""Who reads what: a format, and the reader for it.

Must not know: how sources are recognised, or what is made of their tables.
"""

from __future__ import annotations

from tidegate.sources.detect_columns import Wish
from tidegate.sources.detect_format import Found
from tidegate.sources.findings import UnusableSource
from tidegate.sources.kubedump import read_dump
from tidegate.sources.options import Format, Options, Watch, unwatched
from tidegate.sources.prometheus.source import read_prometheus
from tidegate.sources.slurm import read_sacct, read_sacct_json
from tidegate.sources.source_result import Part
from tidegate.sources.table_file import TableFile
from tidegate.sources.table_reader import Wanted, read_table_file
from tidegate.sources.traces.catalog import TRACES
from tidegate.sources.traces.genai import read_genai


def read_found(found: Found, options: Options, wishes: dict[str, Wish], watch: Watch = unwatched) -> list[Part]:
    """The tables of a source; an UnusableSource says why there are none."""
    if found.table is not None:
        return [_read_table(found.table, found.format, options, wishes)]
    match found.format:
        case Format.PROMETHEUS:
            return read_prometheus(found.address, options, watch=watch)
        case Format.GENAI:
            return read_genai(list(found.paths))
        case Format.KUBERNETES:
            return read_dump(list(found.paths))
        case _:
            return [read_sacct_json(found.paths[0], options, wishes)]


def _read_table(table: TableFile, form: Format, options: Options, wishes: dict[str, Wish]) -> Part:
    if form is Format.SLURM:
        return read_sacct(table, options, wishes)
    if form is Format.TABLE:
        return read_table_file(table, Wanted(wishes, zone=options.timezone, table=options.table), form)
    return _read_trace(table, form, wishes)


def _read_trace(table: TableFile, form: Format, wishes: dict[str, Wish]) -> Part:
    trace = next(one for one in TRACES if one.format is form)
    if not trace.header <= set(table.names):
        raise UnusableSource(
            f"{table.name}: is no trace of {form}: expected the columns {', '.join(sorted(trace.header))}, "
            f"found {', '.join(table.names[:20])}"
        )
    wanted = trace.wanted(table.name)
    return read_table_file(table, wanted._replace(wishes={**wanted.wishes, **wishes}), form)
