"""Findings about objects: errors, warnings and notes, each with object and field."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.model.problem import Path, Problem, Severity
from tidegate.model.struct import Spec

#: Findings listed one by one; the rest is counted.
MOST_LISTED = 500


class ObjectOrigin(Spec, frozen=True):
    """Where an object comes from."""

    file: str = ""
    document: int = 0  # in the file, counted from 1; 0: not from a file
    kind: str = ""
    name: str = ""  # with its namespace, where it has one
    within: Path = ()  # where in the document it stands, such as an item of a List

    def text(self) -> str:
        """Say which object: `jobs.yaml, document 3, Job team-a/train`."""
        document = f"document {self.document}" if self.document else ""
        return ", ".join(part for part in (self.file, document, self.about()) if part)

    def about(self) -> str:
        """Say which object, without where it comes from."""
        return f"{self.kind} {self.name}".strip()


class ManifestFinding(NamedTuple):
    """An error, a warning or a note about an object."""

    origin: ObjectOrigin
    problem: Problem

    def text(self) -> str:
        """Say where, and what."""
        return ": ".join(part for part in (self.origin.text(), self.problem.text()) if part)


class ManifestFindings:
    """Findings in the order they were made: the first ones as they are, the rest as a number."""

    def __init__(self, most: int = MOST_LISTED) -> None:
        self.listed: list[ManifestFinding] = []
        self.more = 0
        self.errors = 0
        self.full = most == 0
        self._most = most

    def add(self, origin: ObjectOrigin, problem: Problem) -> None:
        """Add a finding."""
        self.errors += problem.severity is Severity.ERROR
        if self.full:
            self.more += 1
            return
        self.listed.append(ManifestFinding(origin, problem))
        self.full = len(self.listed) >= self._most

    def texts(self, severity: Severity | None = None) -> list[str]:
        """The findings as lines; of one severity, if it is given."""
        return [found.text() for found in self.listed if severity in (None, found.problem.severity)]
