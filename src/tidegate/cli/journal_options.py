"""Journals of commands: the options that name one, the file that a run writes, and that of the latest run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import platformdirs
import typer
from rich.text import Text

from tidegate.api.journal_state import write_journal
from tidegate.cli.errors import CommandError
from tidegate.journal.store import JournalError, JournalFile
from tidegate.journal.writer import Journal
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.step_batch import StepBatch
from tidegate.report.output_files import open_console

JournalOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Journal to read. Default: that of the latest run.")
]
AtOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help='Show the state at this time since the start, such as "2d3h".')
]


def last_run_path() -> Path:
    """Where the journal of the latest run is kept, for `tidegate explain`."""
    return Path(platformdirs.user_state_dir("tidegate")) / "last-run.db"


@contextmanager
def opened(journal: Path | None, command: str) -> Iterator[JournalFile]:
    """A journal, or that of the latest run."""
    path = journal or last_run_path()
    if journal is None and not path.is_file():
        raise CommandError(
            f"there is no run to {command} yet; run `tidegate simulate` first, or name a journal (--journal)"
        )
    file = JournalFile.open(path)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def open_journal(path: Path | None, *, resume: bool) -> Iterator[Journal | None]:
    """A journal for a run: a new file, one to take up again, or the place of the latest run; closed in the end."""
    if path is not None:
        with write_journal(path, resume=resume) as journal:
            yield journal
        return
    if resume:
        raise CommandError("--resume needs --journal FILE: the journal of the run to take up again")
    file = _replace_latest(last_run_path())
    try:
        yield _OptionalJournal(file) if file is not None else None
    finally:
        if file is not None:
            file.close()


def _replace_latest(path: Path) -> JournalFile | None:
    """The file that takes the place of the latest run's; none, and a note, where a home cannot be written to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f"{path.name}*"):
            leftover.unlink()
        return JournalFile.create(path)
    except (OSError, JournalError) as error:
        _say_unknown(path, getattr(error, "strerror", None) or error)
        return None


def _say_unknown(path: Path, reason: object) -> None:
    note = f"`tidegate explain` will not know this run: {path} cannot be written ({reason}); use --journal"
    open_console(stderr=True).print(Text(note, style="yellow"), soft_wrap=True)


class _OptionalJournal(Journal):
    """The journal of the latest run: where it cannot be written, the run goes on without it."""

    def __init__(self, file: JournalFile) -> None:
        super().__init__(file, remember=False)

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Write a step down, as long as that can be done."""
        with self._given_up():
            super().append(now_ms, events, result)

    def append_batch(self, stretch: StepBatch) -> None:
        """Write many steps down, as long as that can be done."""
        if self._file is not None:
            with self._given_up():
                super().append_batch(stretch)

    def keep(self) -> None:
        """Write the state down, as long as that can be done."""
        with self._given_up():
            super().keep()

    @contextmanager
    def _given_up(self) -> Iterator[None]:
        """Where writing fails, go on without a file, and say so once."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            file, self._file = self._file, None
            if file is not None:  # else it was given up within a stretch
                file.discard()
                _say_unknown(file.path, error)
