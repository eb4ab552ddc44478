"""What a `tidegate.yaml` sets up, or what is wrong with it, each problem with file and line.

Must not know: how problems are shown, or what is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidegate.config.convert import Setup, build
from tidegate.config.schema import ConfigDocument
from tidegate.config.validate import read_document
from tidegate.model.problem import Problem, Severity, path_text
from tidegate.sources.yaml_data import FilePosition, FileReadError
from tidegate.sources.yaml_file import read_file


class FileProblem(NamedTuple):
    """A problem and where in the file it is."""

    file: str
    place: FilePosition | None
    problem: Problem

    def text(self) -> str:
        """Say file, line, path and problem on one line."""
        where = f"{self.file}:{self.place.line}" if self.place else self.file
        kind = "warning: " if self.problem.severity is Severity.WARNING else ""
        return f"{where}: {kind}{self.problem.text()}"


class ReviewedConfig(NamedTuple):
    """What a file says, if it can be used, and all that is to be said about it."""

    file: str
    document: ConfigDocument | None
    problems: tuple[FileProblem, ...]
    more: int  # problems beyond those

    def lines(self) -> list[str]:
        """The problems as text."""
        told = [problem.text() for problem in self.problems]
        return [*told, f"{self.file}: … and {self.more:,} more"] if self.more else told


class ConfigFileError(ValueError):
    """A file with errors; its text has a line for each."""

    def __init__(self, reviewed: ReviewedConfig) -> None:
        super().__init__("\n".join(reviewed.lines()))
        self.reviewed = reviewed


def load_setup(path: Path) -> Setup:
    """Make what the file sets up; an UnusableFile says all that is wrong with it."""
    reviewed = review_file(path)
    if reviewed.document is None:
        raise ConfigFileError(reviewed)
    return build(reviewed.document)


def review_file(path: Path) -> ReviewedConfig:
    """Read a file and find all that is wrong with it. Never raises."""
    name = printable(str(path))
    try:
        plain = read_file(path)
    except FileReadError as error:
        problem = FileProblem(name, error.place, Problem(path=(), found=error.reason))
        return ReviewedConfig(name, None, (problem,), 0)
    document, report = read_document(plain.data)
    located = [FileProblem(name, plain.place(problem.path), problem) for problem in report.problems]
    located.sort(key=_order)
    return ReviewedConfig(name, document, tuple(located), report.more)


def _order(problem: FileProblem) -> tuple[FilePosition, str]:
    return problem.place or FilePosition(0, 0), path_text(problem.problem.path)


def printable(name: str) -> str:
    """The name of a file, without what a terminal would obey or an encoding refuse."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)
