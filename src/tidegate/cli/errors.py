"""How commands end: exit codes are stable, errors say what to do, and nobody sees a traceback for a bad file.

0 done; 1 done, and the answer is no (a difference was found); 2 the input is wrong or missing; 3 somebody else owns
what was asked for; 69 the API server cannot be reached; 70 a bug of ours.
Must not know: any command.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.text import Text

from tidegate.journal.store import JournalError
from tidegate.report.output_files import Unwritable, open_console
from tidegate.report.plot.style import PlotError
from tidegate.sources.config_file import ConfigFileError
from tidegate.sources.findings import SourceError
from tidegate.sources.manifest_dir import ManifestDirError

EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_OWNED = 3
EXIT_UNREACHABLE = 69
EXIT_BUG = 70


class CannotRun(Exception):  # noqa: N818 - it says what is the case
    """A command cannot do what was asked; the text says why and what to do."""


#: Errors that the user can mend; their texts say how.
_MENDABLE = (
    CannotRun,
    JournalError,
    PlotError,
    ConfigFileError,
    ManifestDirError,
    SourceError,
    Unwritable,
)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn errors that the user can mend into a message and exit code 2."""
    try:
        yield
    except _MENDABLE as error:
        say(str(error))
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except sqlite3.Error as error:
        say(f"the journal cannot be read or written ({error}); is it damaged, or the disk full? Start a new journal")
        raise typer.Exit(EXIT_BAD_INPUT) from None


def say(message: str) -> None:
    """Tell why something cannot be done."""
    open_console(stderr=True).print(Text(message, style="red"), soft_wrap=True)
