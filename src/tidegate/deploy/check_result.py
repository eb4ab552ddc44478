"""Results of checks: what was found and expected, and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class CheckLevel(StrEnum):
    """The level of a check's result."""

    OK = "ok"
    WARN = "warn"  # it works, and a person should know
    FAIL = "fail"  # it will not work


class CheckResult(NamedTuple):
    """The result of one check."""

    check: str
    level: CheckLevel
    found: str
    expected: str = ""
    remedy: str = ""  # what to do; empty: nothing


def passed(check: str, found: str) -> CheckResult:
    """The result of a check that passed."""
    return CheckResult(check, CheckLevel.OK, found)
