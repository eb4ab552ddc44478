"""Journals for commands that read them: which one, told plainly where it cannot be read, and the state at a time.

Must not know: what is asked of a journal.
"""

from __future__ import annotations

import difflib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tidegate.cli.errors import CannotRun
from tidegate.cli.simulate_runner import Kernels, last_run_path, read_duration_ms
from tidegate.cli.simulate_runner import kernels_for as use_kernels
from tidegate.journal.decision_text import DATES_MS, time_text
from tidegate.journal.reader import Follower
from tidegate.journal.store import JournalError, JournalFile
from tidegate.report.output_files import open_console
from tidegate.state.cluster import ClusterState

JournalOption = Annotated[Path | None, typer.Option(help="Journal to read; the latest run's if not named.")]
AtOption = Annotated[str | None, typer.Option(help='As it was then: a time since the start, such as "2d3h".')]

#: So many steps or workloads are worth the compiler's start.
_WORTH_COMPILING = 2_000

#: What damaged bytes can look like to those who unpack them.
_DAMAGE = (sqlite3.Error, msgspec.MsgspecError, zlib.error, LookupError, TypeError, ValueError)


@contextmanager
def opened(journal: Path | None, command: str) -> Iterator[JournalFile]:
    """A journal, or that of the latest run."""
    path = journal or last_run_path()
    if journal is None and not path.is_file():
        raise CannotRun(
            f"there is no run to {command} yet; run `tidegate simulate` first, or name a journal (--journal)"
        )
    file = JournalFile.open(path)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def damage_told(file: JournalFile) -> Iterator[None]:
    """While a journal is read: what is damaged in it is told as that."""
    try:
        yield
    except (CannotRun, JournalError):
        raise
    except _DAMAGE as error:
        raise CannotRun(
            f"{file.path}: damaged, a step cannot be read ({error}); run it again into a new journal"
        ) from None


def until_of(file: JournalFile, at: str | None) -> int | None:
    """The time that `--at` means; None: the end of the journal."""
    if at is None:
        return None
    until_ms, span = read_duration_ms("--at", at), file.span_ms()
    if span is not None and span[0] >= DATES_MS:  # of a cluster: times are dates, and --at counts from the first step
        until_ms += span[0]
    if span is None or until_ms < span[0]:
        raise CannotRun(f"--at {at}: the journal begins at {time_text(span[0]) if span else 'no time: it is empty'}")
    return until_ms


def follow(file: JournalFile, until_ms: int | None = None) -> Follower:
    """A state that follows a journal; it is not caught up yet."""
    with damage_told(file):
        return Follower(file, until_ms)


@contextmanager
def kernels_for(follower: Follower, kernels: Kernels) -> Iterator[None]:
    """Kernels for making the steps that are left and trying changes: compiled where that is worth it."""
    worth = max(follower.steps_left(), len(follower.state.live_workloads())) > _WORTH_COMPILING
    with use_kernels(kernels, worth=worth):
        yield


def catch_up(file: JournalFile, follower: Follower) -> ClusterState:
    """Make all steps that are written; a bar shows how far that is, where it takes a while."""
    console = open_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with damage_told(file), progress as bar:
        task = bar.add_task("replaying the journal", total=follower.steps_left())
        follower.catch_up(lambda: bar.advance(task))
    return follower.state


def known(name: str, names: Iterable[str], what: str) -> str:
    """A name, if it is one of those there are; else a refusal that names the nearest."""
    there = sorted(names)
    if name in there:
        return name
    close = difflib.get_close_matches(name, there, 3, 0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {_some(there, what)}"
    raise CannotRun(f"no {what} {name!r} in this journal; {hint}")


def _some(there: list[str], what: str) -> str:
    return f"{len(there):,} {what}s, for example {', '.join(there[:3])}" if there else f"no {what}s"
