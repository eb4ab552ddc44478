"""Progress of a long call: a caller passes what opens a bar; without one, nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class ProgressListener(Protocol):
    """What hears how far a piece of work is."""

    def update(self, done: float, total: float | None = None) -> None:
        """Note how much is done."""

    def advance(self) -> None:
        """Note that one more is done."""

    def describe(self, text: str) -> None:
        """Note what is being done; "" means the name that the work began with."""


#: Opens a listener for a piece of work with a name and an amount, if that is known.
OpenProgress = Callable[[str, float | None], AbstractContextManager[ProgressListener]]


class _Silent:
    """A listener that does nothing."""

    def update(self, done: float, total: float | None = None) -> None:
        """Do nothing."""

    def advance(self) -> None:
        """Do nothing."""

    def describe(self, text: str) -> None:
        """Do nothing."""


@contextmanager
def silent(what: str, total: float | None = None) -> Iterator[ProgressListener]:
    """Show nothing."""
    del what, total
    yield _Silent()
