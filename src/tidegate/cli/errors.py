"""Exit codes, and errors of the user as messages instead of tracebacks.

0: done. 1: done, and the answer is no (a difference, a plan that does not hold). 2: wrong or missing input.
3: the cluster belongs to another owner. 69: the API server cannot be reached. 70: a bug in Tidegate.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tidegate.model.errors import UserError

EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_OWNED = 3
EXIT_UNREACHABLE = 69
EXIT_BUG = 70


class CommandError(UserError):
    """A command cannot do what was asked; the text says why and what to do."""


@contextmanager
def user_errors_reported() -> Iterator[None]:
    """Turn errors that the user can correct into a message and exit code 2."""
    try:
        yield
    except sqlite3.Error as error:
        print_error(
            f"the journal cannot be read or written ({error}); is it damaged, or the disk full? Start a new journal"
        )
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except UserError as error:
        print_error(str(error))
        raise typer.Exit(EXIT_BAD_INPUT) from None


def print_error(message: str) -> None:
    """Print why something cannot be done."""
    from rich.text import Text

    from tidegate.report.output_files import open_console

    open_console(stderr=True).print(Text(message, style="red"), soft_wrap=True)
