"""The journal of a live run: a file for each term, kept within a size and an age; what cannot be written is left out.

A full disk degrades the journal and nothing else: steps go on and are not recorded. What was recorded stays readable.
A journal replays from its first step, so it never goes on after a gap: it begins again in a new file.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidegate.journal.store import JournalError, JournalFile, files_of, remove
from tidegate.journal.writer import Journal
from tidegate.model.decisions import StepResult
from tidegate.model.facts import EventBatch
from tidegate.model.units import DAY_MS
from tidegate.state.cluster import ClusterState

#: What reading and writing a journal fails with.
_UNWRITABLE = (sqlite3.Error, OSError, JournalError)

#: A file of this part of the size limit is followed by a new one; one of twice that is not written to any more.
_PART_OF_ALL = 4

#: Seconds: between two looks at sizes and ages, and the least that a file is written to before another begins.
_LOOK_S, _LEAST_FILE_S = 5.0, 600.0

#: Seconds before a journal that could not be written is tried again: at first, and at most.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 1800.0

#: Free bytes that are worth another try.
_ENOUGH_FREE = 64 << 20

#: The smallest size limit: less has no room for the first step of a large cluster.
LEAST_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class JournalLimits:
    """How much of it is kept."""

    max_bytes: int = 4 << 30  # of all files together
    retention_ms: int = 30 * DAY_MS  # of files that are not written to any more
    free_bytes: int = _ENOUGH_FREE


class RotatingJournal:
    """The journal of all terms of a replica. It never raises because of the disk: `problem` says why it is behind."""

    def __init__(
        self, path: Path, meta: dict[str, str], limits: JournalLimits, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self._meta, self._limits, self._clock_s = path, meta, limits, clock_s
        self.problem = ""  # why steps are not recorded; empty: they are
        self.skipped = 0  # steps that were not recorded
        self._file: JournalFile | None = None
        self._journal: Journal | None = None
        self._looked_s = self._began_s = self._failed_s = clock_s()
        self._pause_s = 0.0  # before the next try; it grows while tries fail

    def begin(self, state: ClusterState) -> None:
        """Begin a new file for a term that starts with this state."""
        self._began_s = self._clock_s()
        with self._or_degrade():
            file = open_record(self.path, self._meta)
            file.limit(2 * self._limits.max_bytes // _PART_OF_ALL)
            self._file, self._journal = file, Journal(file, remember=False)
            self._journal.follow(state)
            self.problem = ""
        self._prune()

    def append(self, now_ms: int, events: EventBatch, result: StepResult) -> None:
        """Record a step, as long as that is possible."""
        if self._journal is None:
            self.skipped += 1
            return
        with self._or_degrade():
            self._journal.append(now_ms, events, result)

    def end(self) -> None:
        """Close the file: the term is over."""
        file, self._file, self._journal = self._file, None, None
        if file is not None:
            with suppress(*_UNWRITABLE):
                file.close()

    def wants_new_file(self) -> bool:
        """Whether a new file should begin: there is room again after a failure, or the file is large enough."""
        now_s = self._clock_s()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        self._prune()
        if self.problem:
            return now_s - self._failed_s >= self._pause_s and self._has_room()
        return self._is_large() and now_s - self._began_s >= _LEAST_FILE_S

    @contextmanager
    def _or_degrade(self) -> Iterator[None]:
        """Where writing fails, go on without a file."""
        try:
            yield
        except _UNWRITABLE as error:
            now_s = self._clock_s()
            healthy = not self.problem and now_s - self._began_s > _LONGEST_PAUSE_S
            self._pause_s = _FIRST_PAUSE_S if healthy else min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            self._failed_s, self.problem = now_s, str(error) or type(error).__name__
            self.skipped += self._journal is not None
            self.end()

    def _is_large(self) -> bool:
        try:
            return self._file is not None and self._file.size_bytes() >= self._limits.max_bytes // _PART_OF_ALL
        except OSError:
            return False

    def _has_room(self) -> bool:
        try:
            return shutil.disk_usage(self.path.parent).free >= self._limits.free_bytes
        except OSError:
            return False

    def _prune(self) -> None:
        """Remove files that are too old, then the oldest ones that the size limit has no room for."""
        with suppress(OSError):
            room = self._limits.max_bytes - 2 * self._limits.max_bytes // _PART_OF_ALL
            for file in sorted(kept_files(self.path), key=lambda one: one.stat().st_mtime, reverse=True):
                room -= file.stat().st_size
                age_ms = (time.time() - file.stat().st_mtime) * 1000
                if room < 0 or age_ms > self._limits.retention_ms:
                    remove(file)


def kept_files(path: Path) -> list[Path]:
    """Journals of earlier terms, by the names that they were kept under; no other files."""
    name = re.compile(rf"{re.escape(path.stem)}-\d{{8}}T\d{{6}}Z(-\d+)?{re.escape(path.suffix)}")
    return [file for file in path.parent.iterdir() if name.fullmatch(file.name)] if path.parent.is_dir() else []


def open_record(path: Path, meta: dict[str, str]) -> JournalFile:
    """A new journal under this name; one that is there already is kept under the time that it began."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _set_aside(path)
    return JournalFile.create(path, meta)


def _set_aside(path: Path) -> None:
    span = _close_span_ms(path)
    began = datetime.fromtimestamp(span[0] / 1000 if span else path.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.stem}-{began}{path.suffix}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.stem}-{began}-{number}{path.suffix}")
    for old, new in zip(files_of(path), files_of(kept), strict=True):
        if old.exists():
            old.rename(new)


def _close_span_ms(path: Path) -> tuple[int, int] | None:
    """The times that a journal is about; reading them brings what was written last into the file."""
    try:
        file = JournalFile.open(path, append=True)
        try:
            return file.span_ms()
        finally:
            file.close()
    except (JournalError, sqlite3.Error):
        return None
