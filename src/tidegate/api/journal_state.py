"""Journals as files: written by a run, read up to a time, and replayed to the state at that time."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tidegate.api.kernels import Kernels, kernels_for
from tidegate.api.progress import OpenProgress, silent
from tidegate.journal.decision_text import DATES_MS, time_text
from tidegate.journal.reader import JournalFollower
from tidegate.journal.store import JournalError, JournalFile
from tidegate.journal.writer import Journal, ResumedJournal
from tidegate.model.errors import UserError
from tidegate.model.units import read_duration_ms
from tidegate.state.cluster import ClusterState

#: So many steps or workloads are worth the compiler's start.
_WORTH_COMPILING = 2_000

#: What damaged bytes can look like to those who unpack them.
_DAMAGE = (sqlite3.Error, msgspec.MsgspecError, zlib.error, LookupError, TypeError, ValueError)


@contextmanager
def write_journal(path: Path, *, resume: bool = False) -> Iterator[Journal]:
    """A journal for a run: a new file, or one to take up again; closed in the end.

    A new file that could not be written whole is removed, so that part of a run is not taken for all of it.
    """
    file = JournalFile.open(path, append=True) if resume else JournalFile.create(path)
    try:
        yield ResumedJournal(file, remember=False) if resume else Journal(file, remember=False)
    except sqlite3.Error as error:
        if resume:
            raise
        file.discard()
        raise JournalError(
            f"{file.path}: cannot be written ({error}); is the disk full? Nothing is left of it"
        ) from None
    finally:
        file.close()


@contextmanager
def damage_reported(file: JournalFile) -> Iterator[None]:
    """Report damaged bytes of a journal as an error of the user."""
    try:
        yield
    except UserError:
        raise
    except _DAMAGE as error:
        raise UserError(
            f"{file.path}: damaged, a step cannot be read ({error}); run it again into a new journal"
        ) from None


def read_at(file: JournalFile, at: str | None) -> int | None:
    """The time that `--at` means; None: the end of the journal."""
    if at is None:
        return None
    until_ms, span = read_duration_ms("--at", at), file.span_ms()
    if span is not None and span[0] >= DATES_MS:  # of a cluster: times are dates, and --at counts from the first step
        until_ms += span[0]
    if span is None or until_ms < span[0]:
        raise UserError(f"--at {at}: the journal begins at {time_text(span[0]) if span else 'no time: it is empty'}")
    return until_ms


def follow(file: JournalFile, until_ms: int | None = None) -> JournalFollower:
    """A state that follows a journal; it is not caught up yet."""
    with damage_reported(file):
        return JournalFollower(file, until_ms)


@contextmanager
def replay_kernels(follower: JournalFollower, kernels: Kernels) -> Iterator[None]:
    """Kernels for making the steps that are left and trying changes: compiled where that is worth it."""
    worth = max(follower.steps_left(), len(follower.state.live_workloads())) > _WORTH_COMPILING
    with kernels_for(kernels, worth=worth):
        yield


def catch_up(file: JournalFile, follower: JournalFollower, open_progress: OpenProgress = silent) -> ClusterState:
    """Make all steps that are written, and return the state."""
    with damage_reported(file), open_progress("replaying the journal", follower.steps_left()) as bar:
        follower.catch_up(bar.advance)
    return follower.state
