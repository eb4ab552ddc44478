"""The journal on disk: an append-only SQLite file that survives a crash at any instant.

Each step is one transaction, written before its decisions are carried out. Write-ahead logging: a killed process
leaves a file that opens, with every step that was appended and nothing of the one that was not.
Must not know: what a step means.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidegate.journal.packing import PACKING_VERSION, Works, pack_events, pack_result, unpack_events, unpack_result
from tidegate.model.decisions import StepResult
from tidegate.model.facts import EventBatch

#: Marks a SQLite file as ours ("TIDE").
APPLICATION_ID = 0x54494445
STORE_VERSION = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE steps (
    step INTEGER PRIMARY KEY,
    now_ms INTEGER NOT NULL,
    policy TEXT NOT NULL,
    events BLOB NOT NULL,
    result BLOB NOT NULL
);
CREATE TRIGGER steps_are_not_changed BEFORE UPDATE ON steps BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END;
CREATE TRIGGER steps_are_not_removed BEFORE DELETE ON steps BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END;
"""


class JournalError(Exception):
    """A journal that cannot be used; the text says why and what to do."""


class Packed(NamedTuple):
    """One step, as it is on disk."""

    step: int
    now_ms: int
    policy: str  # digest of the policy in force
    events: bytes
    result: bytes


class Step(NamedTuple):
    """One step of the engine."""

    step: int
    now_ms: int
    policy: str
    events: EventBatch
    result: StepResult


class JournalFile:
    """A journal on disk."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        last = connection.execute("SELECT max(step) FROM steps").fetchone()[0]
        self._next = 0 if last is None else last + 1
        self._works: Works | None = None  # of all steps so far, once they are needed

    @classmethod
    def create(cls, path: Path, meta: dict[str, str] | None = None) -> JournalFile:
        """A new journal; refuses to write over anything."""
        if path.exists():
            raise JournalError(f"{path}: already exists; name another file, or remove it first")
        connection = _connect(path, "rwc")
        connection.executescript(
            f"PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {STORE_VERSION}; BEGIN; {_TABLES} COMMIT;"
        )
        pairs = {"packing": str(PACKING_VERSION), **(meta or {})}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(pairs.items()))
        return cls(path, connection)

    @classmethod
    def open(cls, path: Path, *, append: bool = False) -> JournalFile:
        """An existing journal."""
        if not path.is_file():
            raise JournalError(f"{path}: no such journal; run `tidegate simulate --journal {path}` to make one")
        connection = _connect(path, "rw" if append else "ro")
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            packing = connection.execute("SELECT value FROM meta WHERE key = 'packing'").fetchone()
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{path}: not a journal ({error}); name a file that Tidegate wrote") from None
        if application != APPLICATION_ID or (version, packing) != (STORE_VERSION, (str(PACKING_VERSION),)):
            raise JournalError(
                f"{path}: a journal of layout {version}, this Tidegate reads layout {STORE_VERSION}; "
                "read it with the version that wrote it"
            )
        return cls(path, connection)

    def __len__(self) -> int:
        return self._next

    def append(self, now_ms: int, policy: str, events: EventBatch, result: StepResult) -> None:
        """Write a step down; it is safe when this returns."""
        if self._works is None:
            self._works = self._works_so_far()
        row = (self._next, now_ms, policy, pack_events(events, self._works), pack_result(result))
        self._connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", row)
        self._next += 1

    def _works_so_far(self) -> Works:
        works = Works()
        for row in self.packed():
            unpack_events(row.events, works)
        return works

    def packed(self) -> Iterator[Packed]:
        """All steps, as they are on disk."""
        rows = self._connection.execute("SELECT step, now_ms, policy, events, result FROM steps ORDER BY step")
        return map(Packed._make, rows)

    def steps(self) -> Iterator[Step]:
        """All steps."""
        works = Works()
        for row in self.packed():
            yield Step(row.step, row.now_ms, row.policy, unpack_events(row.events, works), unpack_result(row.result))

    def meta(self) -> dict[str, str]:
        """What was noted when the journal was made."""
        return dict(self._connection.execute("SELECT key, value FROM meta").fetchall())

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
        # NORMAL: a killed process loses nothing; a power cut may lose the last steps, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 4096")  # pages: moved over in larger pieces
    except sqlite3.Error as error:
        raise JournalError(
            f"{path}: cannot be opened ({error}); is the folder there, and may you write to it?"
        ) from None
    return connection
