"""The journal on disk: an append-only SQLite file that survives a crash at any instant.

Each step is one transaction, written before its decisions are carried out. Write-ahead logging: a killed process
leaves a file that opens, with every step that was appended and nothing of the one that was not.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidegate.journal.encoding import (
    PACKING_VERSION,
    WorkNumbers,
    pack_events,
    pack_result,
    pack_works,
    unpack_events,
    unpack_result,
    unpack_works,
)
from tidegate.model.decisions import StepResult
from tidegate.model.errors import UserError
from tidegate.model.facts import FactBatch

#: Marks a SQLite file as ours ("TIDE").
APPLICATION_ID = 0x54494445
STORE_VERSION = 1

#: How every SQLite file begins.
_SQLITE = b"SQLite format 3\0"

#: The mode of a run that only watches, as its journal notes it.
SHADOW = "shadow"

#: Later than any step.
NEVER_MS = (1 << 63) - 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE steps (
    step INTEGER PRIMARY KEY,
    now_ms INTEGER NOT NULL,
    policy TEXT NOT NULL,
    events BLOB NOT NULL,
    result BLOB NOT NULL
);
CREATE TABLE checkpoints (step INTEGER PRIMARY KEY, works BLOB NOT NULL, state BLOB NOT NULL);
CREATE TRIGGER steps_are_not_changed BEFORE UPDATE ON steps BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END;
CREATE TRIGGER steps_are_not_removed BEFORE DELETE ON steps BEGIN SELECT RAISE(ABORT, 'a journal is append-only'); END;
"""


class JournalError(UserError):
    """A journal that cannot be used; the text says why and what to do."""


class PackedStep(NamedTuple):
    """One step, as it is on disk."""

    step: int
    now_ms: int
    policy: str  # digest of the policy in force
    events: bytes
    result: bytes


class JournalStep(NamedTuple):
    """One step of the engine."""

    step: int
    now_ms: int
    policy: str
    events: FactBatch
    result: StepResult


class Checkpoint(NamedTuple):
    """The state after a step, as bytes: a reader begins there instead of at the first step."""

    step: int
    works: WorkNumbers  # of all steps until then
    state: bytes


class JournalFile:
    """A journal on disk."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        last = connection.execute("SELECT max(step) FROM steps").fetchone()[0]
        self._next = 0 if last is None else last + 1
        self._works: WorkNumbers | None = None  # of all steps so far, once they are needed
        self.written = 0  # bytes of steps, since it was opened

    @classmethod
    def create(cls, path: Path, meta: dict[str, str] | None = None) -> JournalFile:
        """A new journal; refuses to write over anything."""
        if path.exists():
            raise JournalError(f"{path}: already exists; name another file, or remove it first")
        connection = _connect(path, "rwc")
        pairs = {"packing": str(PACKING_VERSION), **(meta or {})}
        try:
            connection.executescript(
                f"PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {STORE_VERSION}; BEGIN; {_TABLES} COMMIT;"
            )
            connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(pairs.items()))
            return cls(path, connection)
        except sqlite3.Error as error:
            connection.close()
            remove(path)
            raise JournalError(f"{path}: cannot be written ({error}); is the disk full?") from None

    @classmethod
    def open(cls, path: Path, *, append: bool = False) -> JournalFile:
        """An existing journal."""
        if not path.is_file():
            raise JournalError(f"{path}: no such journal; run `tidegate simulate --journal {path}` to make one")
        connection = _connect(path, "rw" if append else "ro")
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{path}: {_what_it_is(path, error)}") from None
        if application != APPLICATION_ID:
            what = "a database of another program" if path.stat().st_size else "it is empty"
            raise JournalError(f"{path}: not a journal, {what}; name a file that Tidegate wrote")
        packing = _packing(path, connection)
        if (version, packing) != (STORE_VERSION, str(PACKING_VERSION)):
            raise JournalError(
                f"{path}: a journal of layout {version}.{packing}, this Tidegate reads layout "
                f"{STORE_VERSION}.{PACKING_VERSION}; read it with the version that wrote it"
            )
        return cls(path, connection)

    def __len__(self) -> int:
        return self._next

    def append(self, now_ms: int, policy: str, events: FactBatch, result: StepResult) -> None:
        """Write a step down; it is safe when this returns."""
        if self._works is None:
            self._works = self._works_so_far()
        row = (self._next, now_ms, policy, pack_events(events, self._works), pack_result(result))
        try:
            self._connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.Error:
            self._works = None  # it has works of a step that is not in the file
            raise
        self._next += 1
        self.written += len(row[3]) + len(row[4])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Have all steps that are written inside safe at once, when this is left; or none of them."""
        before = self._next, self.written
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite has ended it already where the disk is full
                self._connection.execute("ROLLBACK")
            self._next, self.written = before
            self._works = None
            raise

    def limit(self, most_bytes: int) -> None:
        """Refuse, as on a full disk, what would make the file larger than this."""
        page_bytes = self._connection.execute("PRAGMA page_size").fetchone()[0]
        self._connection.execute(f"PRAGMA max_page_count = {max(most_bytes // page_bytes, 1)}")

    def size_bytes(self) -> int:
        """Its size on disk, with SQLite's other files."""
        return sum(file.stat().st_size for file in files_of(self.path) if file.exists())

    def _works_so_far(self) -> WorkNumbers:
        works = WorkNumbers()
        for row in self.packed():
            unpack_events(row.events, works)
        return works

    def packed(self, after: int = -1) -> Iterator[PackedStep]:
        """All steps, or those after a step, as they are on disk."""
        rows = self._connection.execute(
            "SELECT step, now_ms, policy, events, result FROM steps WHERE step > ? ORDER BY step", (after,)
        )
        return map(PackedStep._make, rows)

    def mentioning(self, text: bytes) -> Iterator[PackedStep]:
        """Steps whose facts have these bytes somewhere."""
        rows = self._connection.execute(
            "SELECT step, now_ms, policy, events, result FROM steps WHERE instr(events, ?) ORDER BY step", (text,)
        )
        return map(PackedStep._make, rows)

    def count(self, after: int = -1, until_ms: int | None = None) -> int:
        """How many steps there are after a step, until a time."""
        bounds = (after, NEVER_MS if until_ms is None else until_ms)
        found = self._connection.execute("SELECT count(*) FROM steps WHERE step > ? AND now_ms <= ?", bounds)
        return int(found.fetchone()[0])

    def steps(self, after: Checkpoint | None = None) -> Iterator[JournalStep]:
        """All steps, or those after a checkpoint; its works grow with them."""
        works = after.works if after is not None else WorkNumbers()
        for row in self.packed(after.step if after is not None else -1):
            yield unpack(row, works)

    def keep(self, state: bytes) -> int:
        """Write the state after the last step down, for readers; says how many bytes it took."""
        works = zlib.compress(pack_works(self._works or self._works_so_far()), 1)
        packed = zlib.compress(state, 1)
        self._connection.execute("INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?)", (self._next - 1, works, packed))
        return len(works) + len(packed)

    def checkpoint(self, until_ms: int | None = None) -> Checkpoint | None:
        """The latest checkpoint, of a time at most; None: there is none."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'").fetchone():
            return None  # a journal from before there were any
        row = self._connection.execute(
            "SELECT step, works, state FROM checkpoints JOIN steps USING (step) WHERE now_ms <= ? "
            "ORDER BY step DESC LIMIT 1",
            (NEVER_MS if until_ms is None else until_ms,),
        ).fetchone()
        if row is None:
            return None
        return Checkpoint(row[0], unpack_works(zlib.decompress(row[1])), zlib.decompress(row[2]))

    def span_ms(self) -> tuple[int, int] | None:
        """The times of the first and the last step; None: there are no steps."""
        first, last = self._connection.execute("SELECT min(now_ms), max(now_ms) FROM steps").fetchone()
        return None if first is None else (first, last)

    def meta(self) -> dict[str, str]:
        """What was noted when the journal was made."""
        return dict(self._connection.execute("SELECT key, value FROM meta").fetchall())

    @property
    def is_shadow(self) -> bool:
        """Whether it is of a run that only watched: what it decided was not done."""
        return self.meta().get("mode") == SHADOW

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def discard(self) -> None:
        """Close the file and remove it, with SQLite's other files."""
        self._connection.close()
        remove(self.path)


def unpack(row: PackedStep, works: WorkNumbers) -> JournalStep:
    """A step; works are of the steps before, and grow with it."""
    return JournalStep(row.step, row.now_ms, row.policy, unpack_events(row.events, works), unpack_result(row.result))


def files_of(path: Path) -> list[Path]:
    """The file of a journal, and SQLite's other files of one that is in use."""
    return [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]


def remove(path: Path) -> None:
    """Remove a journal that is not in use."""
    for file in files_of(path):
        file.unlink(missing_ok=True)


def _what_it_is(path: Path, error: sqlite3.DatabaseError) -> str:
    """What a file is that cannot be read as a database."""
    with path.open("rb") as file:
        begins = file.read(len(_SQLITE))
    if begins == _SQLITE:
        return f"a damaged journal ({error}); run it again into a new one"
    return "not a journal, nor any database; name a file that Tidegate wrote"


def _packing(path: Path, connection: sqlite3.Connection) -> str:
    """The version of the packed form that a journal was written in."""
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'packing'").fetchone()
    except sqlite3.OperationalError:
        what = "the run that wrote it was broken off before its first step"
        raise JournalError(f"{path}: not a journal yet, {what}; run it again into a new one") from None
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path}: a damaged journal ({error}); run it again into a new one") from None
    return str(row[0]) if row else "unknown"


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
        # NORMAL: a killed process loses nothing; a power cut may lose the last steps, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 4096")  # pages: moved over in larger pieces
    except sqlite3.OperationalError as error:
        raise JournalError(
            f"{path}: cannot be opened ({error}); is the folder there, and may you write to it?"
        ) from None
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path}: {_what_it_is(path, error)}") from None
    return connection
