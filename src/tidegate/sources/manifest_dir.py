"""What a folder of Kubernetes manifests sets up, or what is wrong with it, each finding with file and line.

Must not know: what manifests mean, how findings are shown, or what is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidegate.manifests.findings import Finding, Findings, Origin
from tidegate.manifests.import_all import Loaded, load
from tidegate.manifests.object_index import Document, embedded
from tidegate.model.problem import Problem, Severity
from tidegate.sources.config_file import printable
from tidegate.sources.yaml_data import Place, Plain, UnreadableFile
from tidegate.sources.yaml_file import read_all, read_documents

#: Files that are read in a folder.
_ENDINGS = (".yaml", ".yml", ".json")

_OBJECT = re.compile(rb'(^|[{,\s])("apiVersion"|apiVersion)\s*:|^partitions\s*:', re.MULTILINE)

#: Files that one folder may have.
MOST_FILES = 10_000


class PlacedFinding(NamedTuple):
    """A finding, and where in its file it is."""

    finding: Finding
    place: Place | None

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return self.finding.problem.severity

    def text(self) -> str:
        """Say file, line, document, object, field and what is to be said on one line."""
        origin, problem = self.finding
        where = f"{origin.file}:{self.place.line}" if self.place else origin.file
        document = f"document {origin.document}" if origin.document else ""
        about = ", ".join(part for part in (document, origin.about()) if part)
        kind = "" if self.severity is Severity.ERROR else f"{self.severity}: "
        return ": ".join(part for part in (where, about, kind + problem.text()) if part)


class Folder(NamedTuple):
    """What a folder says, if it can be used, and all that is to be said about it."""

    path: str
    loaded: Loaded | None  # None: it has errors
    findings: tuple[PlacedFinding, ...]
    more: int  # findings beyond those
    files: int
    documents: int

    def lines(self, *severities: Severity) -> list[str]:
        """The findings as text; of some severities only, if they are given."""
        told = [found.text() for found in self.findings if not severities or found.severity in severities]
        return [*told, f"{self.path}: … and {self.more:,} more"] if self.more else told


class UnusableFolder(ValueError):  # noqa: N818  named for what it says: the folder is at fault
    """A folder with errors; its text has a line for each."""

    def __init__(self, folder: Folder) -> None:
        super().__init__("\n".join(folder.lines(Severity.ERROR)))
        self.folder = folder


def holds_manifests(path: Path) -> bool:
    """Say whether a path is a folder, or a file that begins like a Kubernetes object."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return _OBJECT.search(file.read(1 << 16)) is not None
    except (OSError, ValueError):
        return False


def load_folder(path: Path) -> Folder:
    """Read a folder that can be used; an UnusableFolder says all that is wrong with it."""
    folder = review_folder(path)
    if folder.loaded is None:
        raise UnusableFolder(folder)
    return folder


def review_folder(path: Path) -> Folder:
    """Read a folder, or a single file, and find all that is to be said about it. Never raises."""
    findings = Findings()
    reader = _Reader(findings)
    try:
        for file in _files(path):
            reader.read(file)
    except UnreadableFile as error:
        findings.add(Origin(file=printable(str(path))), Problem(path=(), found=error.reason))
    loaded = load(reader.documents, findings)
    placed = [PlacedFinding(found, reader.place(found)) for found in findings.told]
    placed.sort(key=_order)
    sound = None if findings.errors else loaded
    return Folder(printable(str(path)), sound, tuple(placed), findings.more, reader.files, len(reader.documents))


def _order(found: PlacedFinding) -> tuple[str, Place, int]:
    rank = list(Severity).index(found.severity)
    return found.finding.origin.file, found.place or Place(0, 0), rank


def _files(path: Path) -> list[Path]:
    """The files to read, sorted by name; hidden folders are left out."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UnreadableFile("there is no such file or folder")
    try:
        found = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror or error}") from None
    shown = [file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not shown:
        raise UnreadableFile(f"has no manifests: expected files that end in {', '.join(_ENDINGS)}")
    if len(shown) > MOST_FILES:
        raise UnreadableFile(f"has too many files: expected at most {MOST_FILES:,}, found {len(shown):,}")
    return shown


class _Reader:
    """Reads files, and remembers where their values stand."""

    def __init__(self, findings: Findings) -> None:
        self.documents: list[Document] = []
        self.files = 0
        self._findings = findings
        self._plains: dict[tuple[str, int], Plain] = {}
        self._places: dict[int, Place | None] = {}  # of findings about files as such, by their number

    def read(self, file: Path) -> None:
        """Read the documents of a file, and what YAML stands as text inside of them."""
        self.files += 1
        name = printable(str(file))
        try:
            for number, plain in enumerate(read_all(file), 1):
                self._plains[name, number] = plain
                self.documents.append(Document(plain.data, name, number))
                self.documents += self._inner(plain, name, number)
        except UnreadableFile as error:
            self._places[len(self._findings.told)] = error.place
            self._findings.add(Origin(file=name), Problem(path=(), found=error.reason))

    def _inner(self, plain: Plain, name: str, number: int) -> Iterator[Document]:
        for path, text in embedded(plain.data):
            try:
                for inner in read_documents(text.encode()):
                    yield Document(inner.data, name, number, path)
            except UnreadableFile as error:
                line = f", line {error.place.line} of the text" if error.place else ""
                self._findings.add(Origin(file=name, document=number), Problem(path=path, found=error.reason + line))

    def place(self, found: Finding) -> Place | None:
        """Where in its file a finding is."""
        origin = found.origin
        plain = self._plains.get((origin.file, origin.document))
        if plain is None:
            at = next((at for at, told in enumerate(self._findings.told) if told is found), -1)
            return self._places.get(at)
        return plain.place((*origin.within, *found.problem.path))
