"""Reads a `tidegate.yaml` and a price file; every problem has its file and line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidegate.config.convert import Setup, build
from tidegate.config.prices import GpuPrices, read_prices
from tidegate.config.schema import ConfigDocument
from tidegate.config.validate import read_document
from tidegate.manifests.findings import ObjectOrigin
from tidegate.model.errors import UserError
from tidegate.model.problem import Problem, Severity, path_text, printable
from tidegate.sources.yaml_data import FilePosition, FileReadError, LocatedData
from tidegate.sources.yaml_file import read_file


class LocatedProblem(NamedTuple):
    """A problem of a file or of an object in it, and its position."""

    origin: ObjectOrigin
    problem: Problem
    place: FilePosition | None

    @property
    def severity(self) -> Severity:
        """How severe the problem is."""
        return self.problem.severity

    def text(self) -> str:
        """File, line, document, object, field and problem on one line."""
        where = f"{self.origin.file}:{self.place.line}" if self.place else self.origin.file
        document = f"document {self.origin.document}" if self.origin.document else ""
        about = ", ".join(part for part in (document, self.origin.about()) if part)
        kind = "" if self.severity is Severity.ERROR else f"{self.severity}: "
        return ": ".join(part for part in (where, about, kind + self.problem.text()) if part)


class ReviewedConfig(NamedTuple):
    """A file's content, None if it has errors, and its problems."""

    file: str
    document: ConfigDocument | None
    problems: tuple[LocatedProblem, ...]
    more: int  # problems beyond those

    def lines(self) -> list[str]:
        """The problems as text."""
        lines = [problem.text() for problem in self.problems]
        return [*lines, f"{self.file}: … and {self.more:,} more"] if self.more else lines


class ConfigFileError(UserError):
    """A file with errors; the text has a line for each."""


def load_setup(path: Path) -> Setup:
    """Make what a `tidegate.yaml` sets up; a ConfigFileError lists all its errors."""
    reviewed = review_file(path)
    if reviewed.document is None:
        raise ConfigFileError("\n".join(reviewed.lines()))
    return build(reviewed.document)


def review_file(path: Path) -> ReviewedConfig:
    """Read a `tidegate.yaml` and find all its problems. Never raises."""
    name = printable(str(path))
    try:
        plain = read_file(path)
    except FileReadError as error:
        return ReviewedConfig(name, None, (_unreadable(name, error),), 0)
    document, report = read_document(plain.data)
    return ReviewedConfig(name, document, _located(name, plain, report.problems), report.more)


def load_prices(path: Path) -> GpuPrices:
    """The prices of a file such as `{currency: USD, gpu_hour: {own: 1.80, window: 2.40, burst: 4.10}}`."""
    name = printable(str(path))
    try:
        plain = read_file(path)
    except FileReadError as error:
        raise ConfigFileError(_unreadable(name, error).text()) from None
    prices, report = read_prices(plain.data)
    if prices is None:
        raise ConfigFileError("\n".join(problem.text() for problem in _located(name, plain, report.problems)))
    return prices


def _unreadable(name: str, error: FileReadError) -> LocatedProblem:
    return LocatedProblem(ObjectOrigin(file=name), Problem(path=(), found=error.reason), error.place)


def _located(name: str, plain: LocatedData, problems: Iterable[Problem]) -> tuple[LocatedProblem, ...]:
    located = [LocatedProblem(ObjectOrigin(file=name), problem, plain.place(problem.path)) for problem in problems]
    located.sort(key=lambda each: (each.place or FilePosition(0, 0), path_text(each.problem.path)))
    return tuple(located)
