"""Runs of the twin from the command line: with which kernels, with which journal, and with a progress bar."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from rich.text import Text

from tidegate.cli.errors import CommandError
from tidegate.cli.progress import progress_bar
from tidegate.cli.shared_options import Kernels
from tidegate.config.convert import Setup
from tidegate.jit.registry import can_compile, compiled_when, kernels_as
from tidegate.journal.store import JournalError, JournalFile
from tidegate.journal.writer import Journal, ResumedJournal
from tidegate.measure.collector import RunMeasures
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.step_batch import StepBatch
from tidegate.report.output_files import open_console
from tidegate.sim.simulate import simulate
from tidegate.sim.submissions import TwinJobs, jobs_of

if TYPE_CHECKING:
    from tidegate.jit.cache_build import Build

#: So much work is worth the compiler's start: below, plain kernels are done before numba is loaded.
_WORTH_COMPILING = 50_000


def _ignore(_: str) -> None:
    """A listener that does nothing."""


def last_run_path() -> Path:
    """Where the journal of the latest run is kept, for `tidegate explain`."""
    return Path(platformdirs.user_state_dir("tidegate")) / "last-run.db"


@contextmanager
def open_journal(path: Path | None, *, resume: bool) -> Iterator[Journal | None]:
    """A journal for a run: a new file, one to take up again, or the place of the latest run; closed in the end.

    A new file that could not be written whole is removed, so that part of a run is not taken for all of it.
    """
    if path is None and resume:
        raise CommandError("--resume needs --journal FILE: the journal of the run to take up again")
    if path is None:
        file = _replace_latest(last_run_path())
    else:
        file = JournalFile.open(path, append=True) if resume else JournalFile.create(path)
    if file is None:
        yield None
        return
    try:
        if path is None:
            yield _OptionalJournal(file)
        else:
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


def simulate_setup(
    setup: Setup, journal: Journal | None, kernels: Kernels, jobs: TwinJobs | None = None
) -> RunMeasures:
    """Run the twin with a progress bar, and measure it."""
    jobs = jobs_of(setup.work) if jobs is None else jobs
    with (
        progress_bar("simulating") as bar,
        kernels_for(kernels, worth=jobs.pods().sum() > _WORTH_COMPILING, tell=bar.describe),
    ):
        return simulate(setup, journal, jobs, bar.update)


def check_kernels(kernels: Kernels) -> None:
    """Refuse kernels that cannot run here."""
    if kernels is Kernels.COMPILED and not _has_numba():
        raise CommandError("compiled kernels need numba, which is not installed: pip install 'tidegate[fast]'")


def compiles(kernels: Kernels, *, worth: bool) -> bool:
    """Whether kernels run compiled: where that is asked for, or worth the compiler's start."""
    check_kernels(kernels)
    return _has_numba() and (kernels is Kernels.COMPILED or (kernels is Kernels.AUTO and worth))


@contextmanager
def kernels_for(kernels: Kernels, *, worth: bool, tell: Callable[[str], None] = _ignore) -> Iterator[None]:
    """Kernels for a piece of work, without waiting for a compiler.

    Where compiled ones are wanted and are not there, it begins with plain ones, and goes on with compiled ones once a
    process in the background has them. What comes of it is the same.
    """
    from tidegate.jit.cache_build import Build
    from tidegate.jit.cache_files import open_store

    if not compiles(kernels, worth=worth):
        with kernels_as(compiled=False):
            yield
        return
    build = Build(open_store())
    if build.is_ready() or not build.start():
        # Without a process that compiles, who asked for compiled kernels has them compiled as they are needed.
        with kernels_as(compiled=build.is_ready() or kernels is Kernels.COMPILED):
            yield
        return
    with compiled_when(partial(_look, build, tell)):
        yield


def _look(build: Build, tell: Callable[[str], None]) -> bool:
    """Whether compiled kernels are there; if not, how far they are."""
    if build.is_ready():
        tell("")
        return True
    if build.looked():
        done, total = build.progress()
        tell(f"compiling kernels in the background ({done} of {total or '…'}); running with plain kernels")
    return False


def _has_numba() -> bool:
    return can_compile()
