"""Reads a folder of Kubernetes manifests; every finding has its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidegate.manifests.findings import ManifestFinding, ManifestFindings, ObjectOrigin
from tidegate.manifests.import_all import ImportedCluster, import_documents
from tidegate.manifests.object_index import ManifestDocument, embedded
from tidegate.model.errors import UserError
from tidegate.model.problem import Problem, Severity, printable
from tidegate.sources.config_file import LocatedProblem
from tidegate.sources.yaml_data import FilePosition, FileReadError, LocatedData
from tidegate.sources.yaml_file import read_all, read_documents

#: Files that are read in a folder.
_ENDINGS = (".yaml", ".yml", ".json")

_OBJECT = re.compile(rb'(^|[{,\s])("apiVersion"|apiVersion)\s*:|^partitions\s*:', re.MULTILINE)

#: Files that one folder may have.
MOST_FILES = 10_000


class ManifestDir(NamedTuple):
    """A folder of manifests: what it contains, None if it has errors, and its findings."""

    path: str
    loaded: ImportedCluster | None  # None: it has errors
    findings: tuple[LocatedProblem, ...]
    more: int  # findings beyond those
    files: int
    documents: int

    def lines(self, *severities: Severity) -> list[str]:
        """The findings as text; of some severities only, if they are given."""
        lines = [found.text() for found in self.findings if not severities or found.severity in severities]
        return [*lines, f"{self.path}: … and {self.more:,} more"] if self.more else lines


class ManifestDirError(UserError):
    """A folder with errors; the text has a line for each."""


def holds_manifests(path: Path) -> bool:
    """Say whether a path is a folder, or a file that begins like a Kubernetes object."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return _OBJECT.search(file.read(1 << 16)) is not None
    except (OSError, ValueError):
        return False


def load_manifest_dir(path: Path) -> ManifestDir:
    """Read a folder that can be used; a ManifestDirError says all that is wrong with it."""
    folder = review_manifest_dir(path)
    if folder.loaded is None:
        raise ManifestDirError("\n".join(folder.lines(Severity.ERROR)))
    return folder


def review_manifest_dir(path: Path) -> ManifestDir:
    """Read a folder, or a single file, with all its findings. Never raises."""
    findings = ManifestFindings()
    reader = _Reader(findings)
    try:
        for file in _files(path):
            reader.read(file)
    except FileReadError as error:
        findings.add(ObjectOrigin(file=printable(str(path))), Problem(path=(), found=error.reason))
    loaded = import_documents(reader.documents, findings)
    placed = [LocatedProblem(*found, reader.place(found)) for found in findings.listed]
    placed.sort(key=_order)
    sound = None if findings.errors else loaded
    return ManifestDir(printable(str(path)), sound, tuple(placed), findings.more, reader.files, len(reader.documents))


def _order(found: LocatedProblem) -> tuple[str, FilePosition, int]:
    rank = list(Severity).index(found.severity)
    return found.origin.file, found.place or FilePosition(0, 0), rank


def _files(path: Path) -> list[Path]:
    """The files to read, sorted by name; hidden folders are left out."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileReadError("there is no such file or folder")
    try:
        found = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    except OSError as error:
        raise FileReadError(f"cannot be read: {error.strerror or error}") from None
    shown = [file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not shown:
        raise FileReadError(f"has no manifests: expected files that end in {', '.join(_ENDINGS)}")
    if len(shown) > MOST_FILES:
        raise FileReadError(f"has too many files: expected at most {MOST_FILES:,}, found {len(shown):,}")
    return shown


class _Reader:
    """Reads files, and remembers where their values stand."""

    def __init__(self, findings: ManifestFindings) -> None:
        self.documents: list[ManifestDocument] = []
        self.files = 0
        self._findings = findings
        self._plains: dict[tuple[str, int], LocatedData] = {}
        self._places: dict[int, FilePosition | None] = {}  # of findings about files as such, by their number

    def read(self, file: Path) -> None:
        """Read the documents of a file, and what YAML stands as text inside of them."""
        self.files += 1
        name = printable(str(file))
        try:
            for number, plain in enumerate(read_all(file), 1):
                self._plains[name, number] = plain
                self.documents.append(ManifestDocument(plain.data, name, number))
                self.documents += self._inner(plain, name, number)
        except FileReadError as error:
            self._places[len(self._findings.listed)] = error.place
            self._findings.add(ObjectOrigin(file=name), Problem(path=(), found=error.reason))

    def _inner(self, plain: LocatedData, name: str, number: int) -> Iterator[ManifestDocument]:
        for path, text in embedded(plain.data):
            try:
                for inner in read_documents(text.encode()):
                    yield ManifestDocument(inner.data, name, number, path)
            except FileReadError as error:
                line = f", line {error.place.line} of the text" if error.place else ""
                self._findings.add(
                    ObjectOrigin(file=name, document=number), Problem(path=path, found=error.reason + line)
                )

    def place(self, found: ManifestFinding) -> FilePosition | None:
        """Where in its file a finding is."""
        origin = found.origin
        plain = self._plains.get((origin.file, origin.document))
        if plain is None:
            at = next((at for at, told in enumerate(self._findings.listed) if told is found), -1)
            return self._places.get(at)
        return plain.place((*origin.within, *found.problem.path))
