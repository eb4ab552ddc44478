"""Where a term's journal is written: a file of its own for each, the latest under the name that was given.

Must not know: what is in it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tidegate.journal.store import JournalError, JournalFile

#: What SQLite keeps beside a file that is in use.
_BESIDE = ("-wal", "-shm")


def open_record(path: Path, meta: dict[str, str]) -> JournalFile:
    """A new journal under this name; one that is there already is kept under the time that it began."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _set_aside(path)
    return JournalFile.create(path, meta)


def _set_aside(path: Path) -> None:
    try:
        file = JournalFile.open(path, append=True)
        span = file.span_ms()
        file.close()  # brings what was written last into the file
    except JournalError:
        span = None
    began = datetime.fromtimestamp(span[0] / 1000 if span else path.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.stem}-{began}{path.suffix}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.stem}-{began}-{number}{path.suffix}")
    path.rename(kept)
    for ending in _BESIDE:
        beside = path.with_name(path.name + ending)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + ending))
