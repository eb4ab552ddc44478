"""Hours of the week, and step lengths of series."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tidegate.demand.step_curve import Window
from tidegate.demand.time_zone import Calendar
from tidegate.model.arrays import I64
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS

WEEK_HOURS = 168

#: Steps that series may have.
STEPS_MS = (SECOND_MS, 10 * SECOND_MS, MINUTE_MS, 5 * MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS)

#: Points of a series at most.
MOST_POINTS = 150_000

#: 1970-01-01 was a Thursday; weeks begin on Monday.
_THURSDAY_MS = 3 * DAY_MS


def step_for(window: Window, least_ms: int = SECOND_MS) -> int:
    """The shortest step that keeps a series short enough."""
    for step in STEPS_MS:
        if step >= least_ms and window.length_ms // step <= MOST_POINTS:
            return step
    return STEPS_MS[-1]


def hour_of_week(at_ms: I64, calendar: Calendar) -> I64:
    """0 for the hour from Monday 00:00 by the calendar's clocks, or for the first hour of a trace without dates."""
    shift = _THURSDAY_MS if calendar.dates else 0
    return ((local_ms(at_ms, calendar) + shift) % WEEK_MS) // HOUR_MS


def local_ms(at_ms: I64, calendar: Calendar) -> I64:
    """What the clocks show, in milliseconds since 1970-01-01 00:00 by them."""
    if not calendar.changes_ms:
        return at_ms + calendar.offsets_ms[0]
    row = np.searchsorted(np.array(calendar.changes_ms, np.int64), at_ms, side="right")
    return at_ms + np.array(calendar.offsets_ms, np.int64)[row]


def hour_edges(from_ms: int, to_ms: int, calendar: Calendar) -> I64:
    """Times between two others at which the clocks begin an hour, or are changed."""
    inner = [change for change in calendar.changes_ms if from_ms < change < to_ms]
    marks = [from_ms, *inner, to_ms]
    parts = [np.array(inner, np.int64)]
    for first, last in pairwise(marks):
        offset = int(local_ms(np.array([first], np.int64), calendar)[0]) - first
        begin = (first + offset) // HOUR_MS + 1
        parts.append(np.arange(begin, -(-(last + offset) // HOUR_MS), dtype=np.int64) * HOUR_MS - offset)
    return np.unique(np.concatenate(parts))
