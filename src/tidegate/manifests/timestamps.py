"""Reads timestamps of Kubernetes (RFC 3339) as milliseconds since 1970."""

from __future__ import annotations

import re

from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, UnitError

EXPECTED = 'a time such as "2026-11-16T08:00:00Z"'

_STAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_DAYS_BEFORE_1970 = 719_468  # from 0000-03-01, the first day of the era that `_days` counts in
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def read_time_ms(text: str) -> int:
    """Read a timestamp; a UnitError says what was expected."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise UnitError(EXPECTED)
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    if not (1 <= month <= 12 and 1 <= day <= _days_in(year, month) and hour < 24 and minute < 60 and second <= 60):
        raise UnitError(EXPECTED)
    fraction_ms = int((match[7] or "0").ljust(3, "0")[:3])
    of_day_ms = hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + fraction_ms
    return _days(year, month, day) * DAY_MS + of_day_ms - _offset_ms(match[8], match[9], match[10])


def _offset_ms(sign: str | None, hours: str, minutes: str) -> int:
    if sign is None:
        return 0
    offset_ms = int(hours) * HOUR_MS + int(minutes) * MINUTE_MS
    return -offset_ms if sign == "-" else offset_ms


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _MONTH_DAYS[month - 1]


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; years are counted from March, so that the leap day comes last."""
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - _DAYS_BEFORE_1970
