"""Tables of work in CSV files, read row by row with errors that name file, line and column.

Must not know: what a trace means, or who recorded it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidegate.model.errors import UserError
from tidegate.model.problem import MOST_TOLD, found_text, printable

T = TypeVar("T")

#: Rows that one trace may have: more would not fit in memory.
MOST_ROWS = 10_000_000


class TraceFileError(UserError):
    """A trace that cannot be used; its text has a line for each thing that is wrong."""


class TraceCell(NamedTuple):
    """What one column must be."""

    expected: str
    read: Callable[[str], object]  # raises ValueError


class TraceTable(NamedTuple):
    """A trace in columns, and the line of each row."""

    columns: dict[str, list[object]]
    lines: list[int]


def read_table(path: Path, cells: dict[str, TraceCell]) -> TraceTable:
    """Read the columns that are wanted; an UnusableTrace says all that is wrong with them."""
    name = printable(str(path))
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _read(name, csv.reader(file), cells)
    except FileNotFoundError:
        raise TraceFileError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise TraceFileError(f"{name}: is a folder; name the file in it") from None
    except UnicodeDecodeError:
        raise TraceFileError(f"{name}: is not UTF-8 text; is it packed? Unpack it first") from None
    except csv.Error as error:
        raise TraceFileError(f"{name}: is not CSV: {error}") from None
    except OSError as error:
        raise TraceFileError(f"{name}: cannot be read: {error.strerror or error}") from None


def _read(name: str, rows: Iterable[list[str]], cells: dict[str, TraceCell]) -> TraceTable:
    lines = enumerate(rows, 1)
    _, header = next(lines, (1, []))
    missing = [column for column in cells if column not in header]
    if missing:
        found = ", ".join(header[:12]) or "nothing"
        raise TraceFileError(f"{name}:1: expected the columns {', '.join(cells)}, found {found}; is it another format?")
    table = TraceTable({column: [] for column in cells}, [])
    wrong = _Wrong(name)
    wanted = [(column, header.index(column), cell, table.columns[column]) for column, cell in cells.items()]
    for line, row in lines:
        if not row:
            continue
        if len(table.lines) >= MOST_ROWS:
            raise TraceFileError(f"{name}: has too many rows: expected at most {MOST_ROWS:,}")
        for column, at, cell, values in wanted:
            values.append(wrong.read(cell, row[at] if at < len(row) else "", line, column))
        table.lines.append(line)
    wrong.tell()
    return table


class _Wrong:
    """What is wrong with a table: the first things as they are, the rest as a number."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: list[str] = []
        self._more = 0

    def read(self, cell: TraceCell, text: str, line: int, column: str) -> object:
        """The value of a cell; None, and a note, if it is not what it should be."""
        try:
            return cell.read(text)
        except ValueError:
            if len(self._told) < MOST_TOLD:
                found = found_text(text) if text else "nothing"
                self._told.append(f"{self._name}:{line}: {column}: expected {cell.expected}, found {found}")
            else:
                self._more += 1
            return None

    def tell(self) -> None:
        """Refuse the table if anything is wrong with it."""
        if self._told:
            more = [f"{self._name}: … and {self._more:,} more"] if self._more else []
            raise TraceFileError("\n".join([*self._told, *more]))
