"""Reads sources into canonical tables: files, folders, addresses, frames, dicts of columns, and demand models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import polars as pl
from polars.exceptions import PolarsError

from tidegate.api.progress import OpenProgress, silent
from tidegate.demand.model import FORMAT, DemandModel, read
from tidegate.demand.synth.sample import sample
from tidegate.demand.tables import Tables
from tidegate.measure.format import count_text
from tidegate.model.errors import UserError
from tidegate.model.problem import Report
from tidegate.sources.options import CanonicalTable, Format, SourceOptions
from tidegate.sources.read_sources import SourceTables, read_sources
from tidegate.sources.table_file import TableFile, polars_error, table_in_memory

#: So much of a file tells whether it is a demand model.
_HEAD_BYTES = 400

#: What a frame is called in messages.
_FRAME = "jobs"

TableName: TypeAlias = Literal["jobs", "requests", "use", "capacity", "starts"]


class _PandasFrame(Protocol):
    """A pandas frame, as far as it is needed here."""

    columns: Any

    def isna(self) -> Any:
        """Which cells are missing."""

    def __getitem__(self, name: Any) -> Any: ...


#: What can be read: a path or an address, several of them, a polars or pandas frame, or a dict of columns.
Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | Mapping[str, Sequence[Any]] | _PandasFrame"
Source: TypeAlias = "str | Path | Sequence[str | Path] | Frame"


class SourceData:
    """Sources that were read: canonical tables and findings. `read_source` makes it."""

    def __init__(self, names: Sequence[str], found: SourceTables | None, model: DemandModel | None = None) -> None:
        self._names, self._read, self._model = tuple(names), found, model

    def __repr__(self) -> str:
        if self._read is None:
            return f"<SourceData {self.name}: a demand model>"
        parts = [f"{part.kept:,} rows of {part.table}" for part in self._read.parts]
        found = count_text(len(self._read.findings), "finding")
        return f"<SourceData {self.name}: {', '.join(parts)}; {found}>"

    @property
    def name(self) -> str:
        """The names of the sources."""
        return ", ".join(self._names)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each source."""
        return self._names

    @property
    def findings(self) -> tuple[str, ...]:
        """What was dropped, corrected or guessed, with file and line."""
        return tuple(finding.text() for finding in self._read.findings) if self._read else ()

    def table(self, name: TableName = "jobs") -> pl.DataFrame:
        """The rows of a canonical table."""
        frame = getattr(self.tables(), CanonicalTable(name))
        if frame is None:
            raise UserError(f"{self.name}: has no table of {name}")
        rows: pl.DataFrame = frame.collect(engine="streaming")
        return rows

    def tables(self, seed: int = 0) -> Tables:
        """All canonical tables; those of a demand model are drawn from it with this seed."""
        if self._read is not None:
            return self._read.tables
        assert self._model is not None
        return sample(self._model, seed)

    @property
    def source_tables(self) -> SourceTables | None:
        """The tables with their origins and findings; None for a demand model."""
        return self._read

    @property
    def model(self) -> DemandModel | None:
        """The demand model, where that is what was read."""
        return self._model


def read_source(
    source: Source,
    *,
    format: str | None = None,  # noqa: A002  the option's name
    columns: Mapping[str, str] | None = None,
    table: TableName | None = None,
    delimiter: str = "",
    timezone: str = "",
    strict: bool = False,
    start: str = "",
    end: str = "",
    step: str = "",
    cache: str = "",
    token: str = "",
    user: str = "",
    password: str = "",
    ca_file: str = "",
    insecure: bool = False,
) -> SourceData:
    """Read a source of jobs, requests, use or capacity, and check every row.

    Functions that take a source call this themselves; call it to say how a source is read.

    Args:
        source: A path or several (CSV, Parquet, JSON lines, sacct output, a `kubectl get -o json` dump, a public
            trace, a demand model, a folder of these), the address of a Prometheus, a polars or pandas frame, or a
            dict of columns.
        format: The format, such as "slurm" or "philly". Default: detected from the content.
        columns: Which column is which: `{"submitted": "created_at:ms", "gpus": "num_gpu"}`. A value that begins with
            "=" is a fixed value: `{"queue": "=research"}`.
        table: What the rows are. Default: detected from the columns.
        delimiter: The character between the cells of a CSV. Default: detected.
        timezone: The time zone of users, and of times without one: "Europe/Berlin".
        strict: Fail if any row would be dropped or corrected.
        start: First time to read from a Prometheus: a date, or "14d" for 14 days before the end.
        end: Last time to read from a Prometheus. Default: now.
        step: Time between the samples of a Prometheus.
        cache: Folder that keeps the responses of a Prometheus.
        token: Bearer token of a Prometheus.
        user: User name of a Prometheus.
        password: Password of that user.
        ca_file: CA certificates to trust (PEM).
        insecure: Do not verify the server's certificate.

    Raises:
        UserError: A source cannot be read; the text says why, with file and line.
    """
    options = SourceOptions(
        format=_known(Format, "format", format) if format else None,
        map=",".join(f"{field}={column}" for field, column in (columns or {}).items()),
        table=_known(CanonicalTable, "table", table) if table else None,
        delimiter=delimiter,
        timezone=timezone,
        strict=strict,
        start=start,
        end=end,
        step=step,
        cache=cache,
        token=token,
        user=user,
        password=password,
        ca_file=ca_file,
        insecure=insecure,
    )
    frame = _frame_of(source)
    if frame is not None:
        return SourceData([_FRAME], gather([_table_of(frame)], options))
    names = _names_of(source)
    if len(names) == 1 and is_model(names[0]):
        return SourceData(names, None, load_model(Path(names[0]), timezone))
    return SourceData(names, gather(names, options))


def _names_of(source: Source) -> list[str]:
    """The paths and addresses that are named."""
    named = [source] if isinstance(source, str | Path) else source
    if not isinstance(named, Sequence) or not all(isinstance(one, str | Path) for one in named):
        expected = "a path or an address, several of them, a polars or pandas frame, or a dict of columns"
        raise UserError(f"source: expected {expected}, found {type(source).__name__}")
    return [str(one) for one in named]


def source_data(source: Source | SourceData) -> SourceData:
    """A source, read with the usual options if it was not read yet."""
    return source if isinstance(source, SourceData) else read_source(source)


def _known(kind: Any, name: str, value: str) -> Any:
    if value not in set(kind):
        raise UserError(f"{name}: expected one of {', '.join(kind)}, found {value!r}")
    return kind(value)


# -- frames ----------------------------------------------------------------------------------------------------


def _frame_of(source: Source) -> pl.DataFrame | None:
    """The rows of a frame or a dict of columns; None for what is read from elsewhere."""
    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    columns = source if isinstance(source, Mapping) else _pandas_columns(source)
    if columns is None:
        return None
    try:
        return pl.DataFrame(columns)
    except (PolarsError, TypeError, ValueError) as error:
        raise UserError(f"{_FRAME}: expected columns of equal length, each of one type: {error}") from None


def _pandas_columns(frame: Any) -> dict[str, list[Any]] | None:
    """The columns of a pandas frame; None for anything else. Neither pandas nor pyarrow is needed for it."""
    if not (hasattr(frame, "columns") and hasattr(frame, "isna")):
        return None
    return {str(name): _pandas_values(frame[name]) for name in frame.columns}


def _pandas_values(column: Any) -> list[Any]:
    missing = column.isna().to_list()
    values = (value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value for value in column)
    return [None if is_missing else value for value, is_missing in zip(values, missing, strict=True)]


def _table_of(frame: pl.DataFrame) -> TableFile:
    try:
        return table_in_memory(_FRAME, frame)
    except PolarsError as error:
        raise polars_error(_FRAME, error) from None


# -- files -----------------------------------------------------------------------------------------------------


def gather(
    sources: Sequence[str | TableFile], options: SourceOptions, open_progress: OpenProgress = silent
) -> SourceTables:
    """Read the sources into tables; an error if there is no row in them."""
    found = read_all(sources, options, open_progress)
    refuse_empty(found)
    return found


def read_all(
    sources: Sequence[str | TableFile], options: SourceOptions, open_progress: OpenProgress = silent
) -> SourceTables:
    """Read the sources into tables; a listener hears which is read."""
    with open_progress("reading", 1.0) as bar:

        def watch(what: str, share: float) -> None:
            bar.describe(what)
            bar.update(share)

        return read_sources(sources, options, watch)


def refuse_empty(found: SourceTables) -> None:
    """Refuse sources without a row that can be used."""
    if found.parts and not any(part.kept for part in found.parts):
        names = ", ".join(sorted({part.name for part in found.parts}))
        dropped = found.tables.dropped
        why = f" (all of {dropped:,} were dropped)" if dropped else ""
        raise UserError(f"{names}: no row to go by{why}: expected at least one job, request or sample")


def is_model(source: str) -> bool:
    """Say whether a source is a demand model."""
    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(_HEAD_BYTES)


def load_model(path: Path, timezone: str = "") -> DemandModel:
    """The demand model of a file; its time zone can be confirmed and not changed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a demand model") from None
    report = Report()
    model = read(content, report)
    if model is None:
        raise UserError("\n".join(f"{path}: {problem.text()}" for problem in report.problems))
    if timezone and timezone != model.calendar.timezone:
        raise UserError(
            f"--timezone {timezone}: {path} is a demand model, and its hours of the week are those of "
            f"{model.calendar.timezone}; make it again from its sources with --timezone"
        )
    return model
