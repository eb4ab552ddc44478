"""What a check found: whether that is well, what was expected, and what to do.

Must not know: how anything is found, or shown.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How well it is."""

    OK = "ok"
    WARN = "warn"  # it works, or will, and somebody should know
    FAIL = "fail"  # it will not work


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    level: Level
    found: str
    expected: str = ""
    remedy: str = ""  # what to do; empty where nothing is to be done


def fine(check: str, found: str) -> Finding:
    """It is as it should be."""
    return Finding(check, Level.OK, found)
