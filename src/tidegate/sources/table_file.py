"""Tables in files: CSV with any delimiter, JSON lines and Parquet, packed or not, as lazy frames with numbered rows.

Two ways to read: quickly, with types that a look at the first rows suggests; and carefully, as text, line by line, when
something turned out not to be as it looked. Neither loads the file.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import polars as pl
from polars.exceptions import ComputeError, PolarsError

from tidegate.model.problem import printable
from tidegate.sources.findings import SourceError

#: Rows that are sampled before a file is read.
PROBED = 1_000

#: The number of a row, counted from 0, and whether its line has the columns of the header.
ROW, TORN = "\x00row", "\x00torn"

#: Texts that mean an empty cell.
NOTHING = ("", "NULL", "null", "None", "none", "N/A", "n/a", "NA", "NaN", "nan", "Unknown", "\\N", "-")

_LINE = "\x00line"
_DELIMITERS = (",", "\t", "|", ";")
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"


class FileLayout(StrEnum):
    """How a file holds its table."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class TableFile(NamedTuple):
    """A file with a table, and a sample of its first rows."""

    name: str
    at: Path | bytes  # where it is, or what is in it
    shape: FileLayout
    names: tuple[str, ...]
    sample: pl.DataFrame  # its first rows; text, unless the file has types
    delimiter: str = ","

    @property
    def word(self) -> str:
        """What its rows are called by number."""
        return "row" if self.shape is FileLayout.PARQUET else "line"

    @property
    def first(self) -> int:
        """The number of its first row."""
        return 2 if self.shape is FileLayout.CSV else 1

    def quick(self, types: Mapping[str, pl.DataType]) -> pl.LazyFrame:
        """Its rows, with columns of these types and all others as text; reading fails where a cell does not fit."""
        if self.shape is FileLayout.PARQUET:
            return pl.scan_parquet(self.at, row_index_name=ROW)
        if self.shape is FileLayout.JSONL:
            return pl.scan_ndjson(self.at, schema={**types}, row_index_name=ROW)
        schema: dict[str, pl.DataType] = {name: types.get(name, pl.String()) for name in self.names}
        rows = pl.scan_csv(
            self.at,
            has_header=False,  # a header may lack names, and they were read
            skip_rows=1,
            schema=schema,
            separator=self.delimiter,
            null_values=list(NOTHING),
            row_index_name=ROW,
            raise_if_empty=False,
        )
        # Lines with too many cells are only noticed where the last column is read: it is, and no line is torn then.
        last = pl.col(self.names[-1])
        return rows.with_columns((last.is_null() & last.is_not_null()).alias(TORN))

    def careful(self, wanted: list[str]) -> pl.LazyFrame:
        """Its rows as text, with a mark on those whose line does not have the columns of the header."""
        if self.shape is FileLayout.PARQUET:
            return pl.scan_parquet(self.at, row_index_name=ROW)
        lines = _scan_lines(self.at, skip=1 if self.shape is FileLayout.CSV else 0)
        line = pl.col(_LINE).str.strip_chars_end("\r")
        if self.shape is FileLayout.JSONL:
            return lines.select(
                ROW,
                *(_known(line.str.json_path_match(_json_path(name))).alias(name) for name in wanted),
                line.str.json_path_match("$").is_null().and_(pl.col(_LINE).is_not_null()).alias(TORN),
            )
        return self.split(lines.with_columns(line)).select(ROW, *wanted, TORN)

    def split(self, lines: pl.LazyFrame) -> pl.LazyFrame:
        """Lines as cells; those with quotes one by one."""
        count, fields = len(self.names), [*self.names, "\x00more"]
        plain = pl.col(_LINE).str.split_exact(self.delimiter, count).struct.rename_fields(fields)
        quoted = pl.col(_LINE).str.contains('"', literal=True)
        dtype = pl.Struct(dict.fromkeys(fields, pl.String))
        parsed = (
            pl.when(quoted)
            .then(pl.col(_LINE))
            .map_batches(lambda column: _parse_quoted(column, self.delimiter, fields), return_dtype=dtype)
        )
        cells = lines.with_columns(pl.when(quoted).then(parsed).otherwise(plain).alias("\x00cells")).unnest("\x00cells")
        short = pl.col(self.names[-1]).is_null()  # an empty cell is "", a cell that is not there is null
        torn = (short | pl.col("\x00more").is_not_null()) & pl.col(_LINE).is_not_null()
        return cells.with_columns(torn.alias(TORN), *(_known(pl.col(name)).alias(name) for name in self.names))


def _known(column: pl.Expr) -> pl.Expr:
    text = column.str.strip_chars()
    return pl.when(text.is_in(list(NOTHING))).then(None).otherwise(text)


def _parse_quoted(lines: pl.Series, delimiter: str, fields: list[str]) -> pl.Series:
    """Cells of lines with quotes; a line that is None has none."""
    dtype = pl.Struct(dict.fromkeys(fields, pl.String))
    if lines.null_count() == len(lines):
        return pl.repeat(None, len(lines), dtype=dtype, eager=True)
    rows: list[dict[str, str | None] | None] = []
    for line in lines.to_list():
        sound = line is not None and line.count('"') % 2 == 0
        cells = _cells_of(line, delimiter) if sound else []
        padded = [*cells[: len(fields)], *[None] * (len(fields) - len(cells))]
        rows.append(dict(zip(fields, padded, strict=True)) if line is not None else None)
    return pl.Series(rows, dtype=dtype)


def _cells_of(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a cell of more than 128 KiB, or a line feed where none can be
        return []


def _scan_lines(at: Path | bytes, skip: int = 0, most: int | None = None) -> pl.LazyFrame:
    """The lines of a file; what is not UTF-8 in them is replaced."""
    return pl.scan_csv(
        at,
        separator="\x1e",  # in no line of text
        quote_char=None,
        has_header=False,
        schema={_LINE: pl.String},
        skip_rows=skip,
        n_rows=most,
        encoding="utf8-lossy",
        truncate_ragged_lines=True,
        row_index_name=ROW,
    )


def _json_path(name: str) -> str:
    return "$." + name if name.replace("_", "a").isalnum() else f"$['{name}']"


# -- opening ---------------------------------------------------------------------------------------------------


def read_beginning(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked; a SourceError says why it cannot be read."""
    name = printable(str(path))
    try:
        with path.open("rb") as file:
            start = file.read(4)
        if start[:2] == _GZIP:
            with gzip.open(path) as packed:
                return packed.read(size)
        if start == _ZSTD:
            return "\n".join(_scan_lines(path, most=50).collect()[_LINE].fill_null("").to_list()).encode()[:size]
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        raise SourceError(f"{name}: there is no such file") from None
    except PermissionError:
        raise SourceError(f"{name}: you may not read it; ask for permission, or copy it") from None
    except (EOFError, gzip.BadGzipFile):
        raise SourceError(f"{name}: is cut short or damaged; copy it again") from None
    except OSError as error:
        raise SourceError(f"{name}: cannot be read: {error.strerror or error}") from None
    except PolarsError as error:
        raise SourceError(f"{name}: cannot be unpacked: {_first_line(error)}") from None


def open_table(name: str, at: Path | bytes, delimiter: str = "") -> TableFile:
    """Look at a file with a table; a SourceError says why it is none."""
    start = read_beginning(at) if isinstance(at, Path) else at[: 1 << 16]
    try:
        if start[:4] == _PARQUET:
            return _open_parquet(name, at)
        if not start.strip():
            raise SourceError(f"{name}: is empty: expected a table; was the export cut short?")
        _refuse_binary(name, start)
        first = start.lstrip(b"\xef\xbb\xbf \r\n\t")[:1]
        if first == b"[":
            return _open_jsonl(name, _array_as_lines(name, at))
        if first == b"{":
            return _open_jsonl(name, at)
        return _open_csv(name, at, start, delimiter)
    except (PolarsError, OSError) as error:
        raise polars_error(name, error) from None


def table_in_memory(name: str, frame: pl.DataFrame) -> TableFile:
    """Rows that are at hand, to be treated as those of a file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return TableFile(name, buffer.getvalue(), FileLayout.PARQUET, tuple(frame.columns), frame.head(PROBED))


def polars_error(name: str, error: Exception) -> SourceError:
    """The SourceError for an exception of polars."""
    said = _first_line(error)
    if isinstance(error, ComputeError) and "parquet" in said.lower():
        return SourceError(f"{name}: is no whole Parquet file ({said}); was it cut short? Copy it again")
    if isinstance(error, OSError):
        return SourceError(f"{name}: cannot be read: {said}; is it cut short? Copy it again")
    return SourceError(f"{name}: cannot be read as a table: {said}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _refuse_binary(name: str, start: bytes) -> None:
    if b"\x00" in start[:4096]:
        expected = "expected a table as text or Parquet; if it is packed, unpack it first"
        raise SourceError(f"{name}: is binary data of no known format, it begins with {start[:8].hex(' ')}; {expected}")


def _open_parquet(name: str, at: Path | bytes) -> TableFile:
    frame = pl.scan_parquet(at)
    return TableFile(name, at, FileLayout.PARQUET, tuple(frame.collect_schema().names()), frame.head(PROBED).collect())


def _open_jsonl(name: str, at: Path | bytes) -> TableFile:
    lines = _scan_lines(at, most=PROBED).collect()[_LINE].drop_nulls().to_list()
    rows = [row for row in map(_json_row, lines) if row]
    if not rows:
        raise SourceError(f"{name}:1: is not JSON lines: expected an object on each line")
    names = tuple(dict.fromkeys(key for row in rows for key in row))
    columns = {key: [_json_text(row.get(key)) for row in rows] for key in names}
    return TableFile(name, at, FileLayout.JSONL, names, pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String)))


def _array_as_lines(name: str, at: Path | bytes) -> bytes:
    """An array of objects, one a line."""
    content = at.read_bytes() if isinstance(at, Path) else at
    try:
        rows = json.loads(gzip.decompress(content) if content[:2] == _GZIP else content)
    except ValueError as error:
        raise SourceError(f"{name}: is not JSON: {error}; was it cut short? Export it again") from None
    return "\n".join(json.dumps(row) for row in rows).encode()


def _json_row(line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _json_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _open_csv(name: str, at: Path | bytes, start: bytes, delimiter: str) -> TableFile:
    text = start.decode("utf-8-sig", errors="replace")
    if "\n" not in text and "\r" in text:
        raise SourceError(f"{name}: its lines end in a carriage return alone; save it with line feeds")
    lines = text.splitlines()[:20]
    separator = delimiter or _delimiter(lines)
    if separator not in lines[0]:
        seen = "comma, tab, | or ;"
        raise SourceError(
            f"{name}:1: has one column: expected several, split by {seen}, found {printable(lines[0][:60])!r}; "
            "say --delimiter"
        )
    try:
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error as error:
        raise SourceError(f"{name}:1: is no CSV: {error}; save it with lines that end in a line feed") from None
    names = _unique([cell.strip() for cell in header])
    file = TableFile(name, at, FileLayout.CSV, names, pl.DataFrame(), separator)
    sample = file.split(_scan_lines(at, skip=1, most=PROBED)).filter(~pl.col(TORN)).select(names).collect()
    return file._replace(sample=sample)


def _unique(header: list[str]) -> tuple[str, ...]:
    """Names of columns: those without one by number, those twice with a number."""
    names: list[str] = []
    for number, cell in enumerate(header, 1):
        name = cell or f"column {number}"
        names.append(f"{name} ({number})" if name in names else name)
    return tuple(names)


def _delimiter(lines: list[str]) -> str:
    """The delimiter that is in the header and splits the most lines into as many cells."""
    full = [line for line in lines if line]

    def fits(delimiter: str) -> tuple[int, int]:
        count = full[0].count(delimiter)
        return sum(line.count(delimiter) == count for line in full) if count else 0, count

    return max(_DELIMITERS, key=fits)
