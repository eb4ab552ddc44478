"""Journal rotation: a file for each term, within a size and an age.

A full disk degrades only the journal: steps go on without being recorded, and recorded ones stay readable. A journal
replays from its first step, so after a gap a new file begins.
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
from tidegate.model.facts import FactBatch
from tidegate.model.units import DAY_MS
from tidegate.state.cluster import ClusterState

#: The exceptions of reading and writing a journal.
_UNWRITABLE = (sqlite3.Error, OSError, JournalError)

#: A file of this fraction of the size limit is rotated; one of twice that is not written to any more.
_PART_OF_ALL = 4

#: Seconds between two checks of sizes and ages, and the shortest time before a file is rotated.
_LOOK_S, _LEAST_FILE_S = 5.0, 600.0

#: The first and the longest backoff in seconds before a failed journal is retried.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 1800.0

#: Free bytes that are worth a retry.
_ENOUGH_FREE = 64 << 20

#: The smallest size limit, with room for the first step of a large cluster.
LEAST_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class JournalLimits:
    """The limits of all journal files."""

    max_bytes: int = 4 << 30  # of all files together
    retention_ms: int = 30 * DAY_MS  # of rotated files
    free_bytes: int = _ENOUGH_FREE


class RotatingJournal:
    """The journal of all terms of a replica. Disk errors never raise: `problem` has them."""

    def __init__(
        self, path: Path, meta: dict[str, str], limits: JournalLimits, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self._meta, self._limits, self._clock_s = path, meta, limits, clock_s
        self.problem = ""  # why steps are not recorded; empty: they are
        self.skipped = 0  # steps that were not recorded
        self._file: JournalFile | None = None
        self._journal: Journal | None = None
        self._looked_s = self._began_s = self._failed_s = clock_s()
        self._pause_s = 0.0  # the current backoff

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

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Record a step, if that is possible."""
        if self._journal is None:
            self.skipped += 1
            return
        with self._or_degrade():
            self._journal.append(now_ms, events, result)

    def end(self) -> None:
        """Close the file at the end of a term."""
        file, self._file, self._journal = self._file, None, None
        if file is not None:
            with suppress(*_UNWRITABLE):
                file.close()

    def wants_new_file(self) -> bool:
        """Whether a new file should begin: there is room again after a failure, or the file is large."""
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
        """On an error, go on without a file."""
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
        """Remove files that are too old, and the oldest ones beyond the size limit."""
        with suppress(OSError):
            room = self._limits.max_bytes - 2 * self._limits.max_bytes // _PART_OF_ALL
            for file in sorted(kept_files(self.path), key=lambda one: one.stat().st_mtime, reverse=True):
                room -= file.stat().st_size
                age_ms = (time.time() - file.stat().st_mtime) * 1000
                if room < 0 or age_ms > self._limits.retention_ms:
                    remove(file)


def kept_files(path: Path) -> list[Path]:
    """The rotated files of a journal."""
    name = re.compile(rf"{re.escape(path.stem)}-\d{{8}}T\d{{6}}Z(-\d+)?{re.escape(path.suffix)}")
    return [file for file in path.parent.iterdir() if name.fullmatch(file.name)] if path.parent.is_dir() else []


def open_record(path: Path, meta: dict[str, str]) -> JournalFile:
    """Create a journal; an existing one of this name is renamed to the time that it began."""
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
    """The first and last time in a journal; reading them also merges its write-ahead log."""
    try:
        file = JournalFile.open(path, append=True)
        try:
            return file.span_ms()
        finally:
            file.close()
    except (JournalError, sqlite3.Error):
        return None
