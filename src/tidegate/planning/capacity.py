"""Capacity over time: a level for each window of the week."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.demand.calendar import WEEK_HOURS, hour_edges, hour_of_week
from tidegate.demand.time_zone import Calendar
from tidegate.model.units import WEEK_MS
from tidegate.planning.kernels.replay import NEVER, BurstRule, Steps

HOURS = WEEK_HOURS

#: More than any job asks for.
UNLIMITED_MILLI = 1 << 50

#: No burst.
SHUT = BurstRule(0, 0, 0, 0)


class WeekWindows(NamedTuple):
    """The hours of the week in a few groups."""

    names: tuple[str, ...]
    of_hour: tuple[int, ...]  # by hour of the week, from Monday 00:00: row of the names

    def hours(self) -> tuple[int, ...]:
        """Hours a week of each window."""
        return tuple(self.of_hour.count(row) for row in range(len(self.names)))


ALWAYS = WeekWindows(("always",), (0,) * HOURS)


class WindowLevels(NamedTuple):
    """Levels by window, in force from a time on."""

    from_ms: int
    windows: WeekWindows
    milli: tuple[int, ...]  # by window
    ceiling_milli: int = 0  # of burst, on top


def steps_of(levels: list[WindowLevels], until_ms: int, calendar: Calendar) -> Steps:
    """Levels one after the other as steps; before the first nothing is missing, and the last week goes on for ever."""
    parts = [Steps(np.array([-NEVER]), np.array([UNLIMITED_MILLI]), np.array([0]))]
    for row, entry in enumerate(levels):
        to_ms = levels[row + 1].from_ms if row + 1 < len(levels) else _beyond(until_ms)
        changing = len(entry.windows.names) > 1
        hours = hour_edges(entry.from_ms, to_ms, calendar) if changing else np.zeros(0, np.int64)
        edges = np.concatenate([np.array([entry.from_ms], np.int64), hours])
        window = np.array(entry.windows.of_hour)[hour_of_week(edges, calendar)]
        parts.append(Steps(edges, np.array(entry.milli, np.int64)[window], np.full(len(edges), entry.ceiling_milli)))
    steps = Steps(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    level, ceiling = steps.level_milli, steps.ceiling_milli
    keep = np.concatenate([[True], (level[1:] != level[:-1]) | (ceiling[1:] != ceiling[:-1])])
    return Steps(*(column[keep] for column in steps))


def _beyond(until_ms: int) -> int:
    """Long enough after the end for waiting jobs to see every window ten times."""
    return until_ms + 10 * WEEK_MS


def constant(milli: int, from_ms: int, ceiling_milli: int = 0) -> Steps:
    """One level from a time on."""
    return Steps(np.array([-NEVER, from_ms]), np.array([UNLIMITED_MILLI, milli]), np.array([0, ceiling_milli]))
