"""Detects what a source is by its name, its first bytes and its columns; files of one set are one source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidegate.model.problem import printable
from tidegate.sources.findings import Code, SourceError, SourceFinding
from tidegate.sources.options import Format, SourceOptions
from tidegate.sources.slurm import is_sacct
from tidegate.sources.table_file import TableFile, open_table, read_beginning
from tidegate.sources.traces.catalog import TWICE, find_trace, why_no_demand
from tidegate.sources.traces.genai import metric_of

#: Files of a folder that are about it, not of it.
_ABOUT = re.compile(r"(?i)(readme|license|licence|notice|changelog|copying)(\..*)?")

#: Formats whose files are one source together.
_TOGETHER = (Format.GENAI, Format.KUBERNETES)


class DetectedSource(NamedTuple):
    """A source, and what it is."""

    format: Format
    paths: tuple[Path, ...] = ()
    address: str = ""  # of a server
    table: TableFile | None = None  # a file that was sampled
    findings: tuple[SourceFinding, ...] = ()

    @property
    def name(self) -> str:
        """What to call it."""
        return self.address.rpartition("@")[2] or printable(self.paths[0].name)


def detect_sources(sources: Sequence[str | TableFile], options: SourceOptions) -> list[DetectedSource]:
    """What each source is; a SourceError says which of them is none."""
    found: list[DetectedSource] = []
    for source in sources:
        if isinstance(source, TableFile):
            found.append(_find_table(source, Path(source.name), options, ""))
        elif re.match(r"https?://", source):
            found.append(DetectedSource(Format.PROMETHEUS, address=source))
        elif options.format is Format.PROMETHEUS:
            raise SourceError(f"{printable(source)}: expected the address of a server: http://prometheus:9090")
        elif Path(source).is_dir():
            found += _find_in_folder(Path(source), options)
        else:
            found.append(_find_file(Path(source), options))
    return _together(found)


def _together(found: list[DetectedSource]) -> list[DetectedSource]:
    merged: list[DetectedSource] = [one for one in found if one.format not in _TOGETHER]
    for form in _TOGETHER:
        same = [one for one in found if one.format is form]
        if same:
            paths = tuple(path for one in same for path in one.paths)
            merged.append(DetectedSource(form, paths, findings=tuple(note for one in same for note in one.findings)))
    return merged


def _find_in_folder(folder: Path, options: SourceOptions) -> list[DetectedSource]:
    """The sources in a folder; files that are none are reported."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except PermissionError:
        raise SourceError(f"{printable(str(folder))}: you may not read it; ask for permission, or copy it") from None
    files = [path for path in files if not _ABOUT.fullmatch(path.name)]
    if not files:
        raise SourceError(f"{printable(str(folder))}: is a folder without files: expected exports or traces in it")
    found, refused = [], []
    for path in files:
        try:
            found.append(_find_file(path, options))
        except SourceError as error:
            refused.append((path, str(error)))
    found, twice = _without_twice(found)
    if not found:
        raise SourceError(_refused_text(refused))
    left = [(path.name, text.partition(": ")[2]) for path, text in refused] + [
        (name, "says the same again") for name in twice
    ]
    if left:
        more = "; ".join(f"{name} {why}" for name, why in left[:3])
        note = SourceFinding(Code.FILE_LEFT_OUT, printable(str(folder)), len(left), more=more)
        found[0] = found[0]._replace(findings=(*found[0].findings, note))
    return found


def _refused_text(refused: list[tuple[Path, str]]) -> str:
    """A line for each reason."""
    reasons: dict[str, list[str]] = {}
    for path, text in refused:
        name = printable(str(path))
        reasons.setdefault(text.removeprefix(f"{name}: "), []).append(name)
    others = [f" (and {len(names) - 1} others)" if len(names) > 1 else "" for names in reasons.values()]
    return "\n".join(f"{names[0]}{more}: {why}" for (why, names), more in zip(reasons.items(), others, strict=True))


def _without_twice(found: list[DetectedSource]) -> tuple[list[DetectedSource], list[str]]:
    """Files that say again what others of the folder say are left out."""
    stems = {(one.format, path.name.split(".")[0]) for one in found for path in one.paths}
    kept, twice = [], []
    for one in found:
        ending = TWICE.get(one.format, "")
        stem = one.paths[0].name.split(".")[0] if one.paths else ""
        if ending and stem.endswith(ending) and (one.format, stem.removesuffix(ending)) in stems:
            twice.append(one.paths[0].name)
        else:
            kept.append(one)
    return kept, twice


def _find_file(path: Path, options: SourceOptions) -> DetectedSource:
    name = printable(str(path))
    if not path.exists():
        raise SourceError(f"{name}: there is no such file or folder")
    if metric_of(path) and options.format in (None, Format.GENAI):
        return DetectedSource(Format.GENAI, (path,))
    if path.name.endswith((".tar.gz", ".tgz", ".tar", ".zip")):
        raise SourceError(f"{name}: is an archive of no known trace; unpack it, and name the files in it")
    start = read_beginning(path)
    detected = _find_json_or_yaml(path, start)
    if detected is not None and options.format in (None, detected.format):
        return detected
    table = open_table(name, path, options.delimiter)
    return _find_table(table, path, options, start.decode("utf-8", errors="replace"))


def _find_table(table: TableFile, path: Path, options: SourceOptions, start: str) -> DetectedSource:
    why = why_no_demand(table.names, start)
    if why and not options.map:
        raise SourceError(f"{table.name}: {why}")
    return DetectedSource(options.format or _format_of(table), (path,), table=table)


def _format_of(table: TableFile) -> Format:
    if is_sacct(table.names):
        return Format.SLURM
    trace = find_trace(table.names)
    return trace.format if trace else Format.TABLE


def _find_json_or_yaml(path: Path, start: bytes) -> DetectedSource | None:
    text = start.decode("utf-8-sig", errors="replace")
    if re.search(r"(?m)^apiVersion:", text):
        return DetectedSource(Format.KUBERNETES, (path,))
    if not text.lstrip().startswith("{"):
        return None
    head = text[:4000]
    if re.search(r'"apiVersion"\s*:', text) and re.search(r'"(kind|items)"\s*:', text):
        return DetectedSource(Format.KUBERNETES, (path,))
    if re.search(r'"jobs"\s*:\s*\[', head) or (re.search(r'"meta"\s*:', head) and re.search(r"(?i)slurm", head)):
        return DetectedSource(Format.SLURM, (path,))
    return None
