"""Options of commands that read a journal: which one, and the state at a time."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tidegate.cli.errors import CommandError
from tidegate.cli.progress import progress_bar
from tidegate.cli.shared_options import Kernels, read_duration_ms
from tidegate.cli.simulate_runner import kernels_for as use_kernels
from tidegate.cli.simulate_runner import last_run_path
from tidegate.journal.decision_text import DATES_MS, time_text
from tidegate.journal.reader import JournalFollower
from tidegate.journal.store import JournalFile
from tidegate.model.errors import UserError
from tidegate.state.cluster import ClusterState

JournalOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Journal to read. Default: that of the latest run.")
]
AtOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help='Show the state at this time since the start, such as "2d3h".')
]

#: So many steps or workloads are worth the compiler's start.
_WORTH_COMPILING = 2_000

#: What damaged bytes can look like to those who unpack them.
_DAMAGE = (sqlite3.Error, msgspec.MsgspecError, zlib.error, LookupError, TypeError, ValueError)


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
def damage_reported(file: JournalFile) -> Iterator[None]:
    """Report damaged bytes of a journal as an error of the user."""
    try:
        yield
    except UserError:
        raise
    except _DAMAGE as error:
        raise CommandError(
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
        raise CommandError(f"--at {at}: the journal begins at {time_text(span[0]) if span else 'no time: it is empty'}")
    return until_ms


def follow(file: JournalFile, until_ms: int | None = None) -> JournalFollower:
    """A state that follows a journal; it is not caught up yet."""
    with damage_reported(file):
        return JournalFollower(file, until_ms)


@contextmanager
def kernels_for(follower: JournalFollower, kernels: Kernels) -> Iterator[None]:
    """Kernels for making the steps that are left and trying changes: compiled where that is worth it."""
    worth = max(follower.steps_left(), len(follower.state.live_workloads())) > _WORTH_COMPILING
    with use_kernels(kernels, worth=worth):
        yield


def catch_up(file: JournalFile, follower: JournalFollower) -> ClusterState:
    """Make all steps that are written; a bar shows how far that is, where it takes a while."""
    with damage_reported(file), progress_bar("replaying the journal", follower.steps_left()) as bar:
        follower.catch_up(bar.advance)
    return follower.state
