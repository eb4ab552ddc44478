"""Problems of a value that a user wrote: where, what was expected, what was found, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from tidegate.model.struct import Spec

#: Keys and list positions from the root to a value.
Path = tuple[str | int, ...]

#: Problems listed one by one; the rest is counted.
MOST_LISTED = 20

#: Characters of a found value that are shown.
MOST_SHOWN = 40

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Severity(StrEnum):
    """Whether a value with the problem can be used."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"  # nothing is wrong, but the author should know


class Problem(Spec, frozen=True):
    """One thing that is wrong. Without `expected`, `found` says all of it."""

    path: Path
    found: str
    expected: str = ""
    hint: str = ""
    severity: Severity = Severity.ERROR

    def message(self) -> str:
        """Say what is wrong, without where."""
        text = f"expected {self.expected}, found {self.found}" if self.expected else self.found
        return f"{text}; {self.hint}" if self.hint else text

    def text(self) -> str:
        """Say where and what."""
        where = path_text(self.path)
        return f"{where}: {self.message()}" if where else self.message()


class Report:
    """Problems in the order they were found: the first ones as they are, the rest as a number."""

    def __init__(self, most: int = MOST_LISTED) -> None:
        self.problems: list[Problem] = []
        self.more = 0
        self.errors = 0
        self._most = most

    def __len__(self) -> int:
        return len(self.problems) + self.more

    @property
    def full(self) -> bool:
        """Whether further problems are only counted."""
        return len(self.problems) >= self._most

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        self.errors += problem.severity is Severity.ERROR
        if self.full:
            self.more += 1
        else:
            self.problems.append(problem)

    def add_all(self, problems: Iterable[Problem]) -> None:
        """Add several problems."""
        for problem in problems:
            self.add(problem)


def path_text(path: Path) -> str:
    """Say where: `cluster.pools[2].shape.gpus`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{shortened(step)}]"
    return text


def found_text(value: object) -> str:
    """Say what was found, in YAML's words; quotes mean text."""
    match value:
        case None:
            text = "nothing"
        case bool():
            text = "true" if value else "false"
        case str():
            text = shortened(value)
        case int() if value.bit_length() > 128:  # Python refuses to spell very long ones
            text = "a number of more than 38 digits"
        case int() | float():
            text = repr(value)
        case dict():
            text = _counted("a mapping", len(value), "key")
        case list():
            text = _counted("a list", len(value), "item")
        case _:
            text = f"a value of type {type(value).__name__}"
    return text


def shortened(text: str) -> str:
    """Quote text, and cut it where it gets long."""
    if len(text) <= MOST_SHOWN:
        return repr(text)
    quoted = repr(text[: MOST_SHOWN - 1])
    return quoted[:-1] + "…" + quoted[-1]


def printable(text: str) -> str:
    """Text such as a file's name, without what a terminal would obey or an encoding refuse."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _counted(what: str, count: int, part: str) -> str:
    if count == 0:
        return f"an empty {what.removeprefix('a ')}"
    return f"{what} with {count:,} {part}" + ("s" if count > 1 else "")
