"""Marks of a time axis: where days and hours begin, and their labels.

A twin's time begins at zero, on a Monday. Times that are counted from 1970 have real weekdays (UTC).
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STEPS_MS = (
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 28)),
)

#: Ten years: no twin runs that long.
_COUNTED_FROM_1970_MS = 3_650 * DAY_MS
_THURSDAY = 3  # 1 January 1970


class Mark(NamedTuple):
    """A place on a time axis."""

    at_ms: int
    label: str


def time_marks(start_ms: int, end_ms: int, most: int) -> list[Mark]:
    """At most so many marks: days where the run is longer than two days, else hours or minutes."""
    length = max(end_ms - start_ms, 1)
    allowed = [step for step in _STEPS_MS if step >= DAY_MS or length <= 2 * DAY_MS]
    step = next((step for step in allowed if length <= step * max(most, 1)), 0) or _multiple(length, most)
    first = -(-start_ms // step) * step
    return [Mark(at_ms, _label(at_ms, step, start_ms)) for at_ms in range(first, end_ms, step)]


def _multiple(length_ms: int, most: int) -> int:
    longest = _STEPS_MS[-1]
    return -(-length_ms // (longest * max(most, 1))) * longest


def _label(at_ms: int, step_ms: int, start_ms: int) -> str:
    if step_ms == DAY_MS:
        return weekday(at_ms)
    if step_ms > DAY_MS:
        return f"day {at_ms // DAY_MS - start_ms // DAY_MS + 1}"
    return clock(at_ms)


def weekday(at_ms: int) -> str:
    """The day of the week."""
    shift = _THURSDAY if at_ms >= _COUNTED_FROM_1970_MS else 0
    return _WEEKDAYS[(at_ms // DAY_MS + shift) % 7]


def clock(at_ms: int) -> str:
    """The time of day."""
    return f"{at_ms % DAY_MS // HOUR_MS:02d}:{at_ms % HOUR_MS // MINUTE_MS:02d}"
