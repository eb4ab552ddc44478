"""Something to look at while a command works: a line that says what it does, where somebody can see it.

Must not know: what is worked on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidegate.report.output_files import open_console


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what goes on, and for how long; nothing where the error channel is no terminal."""
    console = open_console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=None)
        yield
