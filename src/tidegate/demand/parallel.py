"""Independent calls that a caller may run in threads; this package itself has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Runs calls, in any order or at once, and gives their results in the order of the calls.
RunAll = Callable[[Sequence[Callable[[], Any]]], list[Any]]


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run one call after the other."""
    return [call() for call in calls]
