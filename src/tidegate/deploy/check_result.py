"""What a check found: whether that is well, what was expected, and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class CheckLevel(StrEnum):
    """How well it is."""

    OK = "ok"
    WARN = "warn"  # it works, or will, and somebody should know
    FAIL = "fail"  # it will not work


class CheckResult(NamedTuple):
    """One thing that was looked at."""

    check: str
    level: CheckLevel
    found: str
    expected: str = ""
    remedy: str = ""  # what to do; empty where nothing is to be done


def passed(check: str, found: str) -> CheckResult:
    """It is as it should be."""
    return CheckResult(check, CheckLevel.OK, found)
