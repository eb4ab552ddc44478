"""The progress bar of every command; nothing where the error channel is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.report.output_files import open_console

if TYPE_CHECKING:
    from rich.progress import Progress

#: Characters of a description.
_WIDEST = 60


class ProgressBar:
    """A bar that is under way."""

    def __init__(self, bar: Progress, what: str, total: float | None) -> None:
        self._bar, self._what = bar, what
        self._task = bar.add_task(what, total=total)

    def update(self, done: float, total: float | None = None) -> None:
        """Show how much is done."""
        self._bar.update(self._task, completed=done, total=total)

    def advance(self) -> None:
        """Show that one more is done."""
        self._bar.advance(self._task)

    def describe(self, text: str) -> None:
        """Show other words than the bar began with; "" shows those again."""
        text = text or self._what
        self._bar.update(self._task, description=text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…")


@contextmanager
def progress_bar(what: str, total: float | None = None) -> Iterator[ProgressBar]:
    """A bar for a piece of work; without a total it shows that the work goes on, and for how long."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = open_console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield ProgressBar(bar, what, total)
