"""Gaps in a table of jobs in which nothing was recorded: unseen time, not time without demand.

Days without a job are a gap only where many would have come at the earlier rate; a quiet cluster is quiet. What comes
after a gap does not decide whether it counts, so a plan of the past knows no future.
"""

from __future__ import annotations

import numpy as np

from tidegate.demand.step_curve import Window
from tidegate.model.arrays import F64, I64
from tidegate.model.units import HOUR_MS

#: Hours without any job that can be a gap, and jobs that would have had to come in them: by chance, hardly ever none.
_GAP_HOURS, _MISSED_JOBS = 72, 20


def find_unseen(hour: I64, jobs: I64) -> tuple[tuple[int, int], ...]:
    """From when to when nothing was seen; of hours with jobs, ascending, and how many came in each."""
    found: list[tuple[int, int]] = []
    came, lost = np.cumsum(jobs), 0
    for row in np.flatnonzero(np.diff(hour) > _GAP_HOURS).tolist():
        before, without = int(hour[row]) + 1 - int(hour[0]) - lost, int(hour[row + 1] - hour[row]) - 1
        # A rate of a shorter time than the stretch itself says little about it.
        if before >= without and int(came[row]) * without >= _MISSED_JOBS * before:
            found.append(((int(hour[row]) + 1) * HOUR_MS, int(hour[row + 1]) * HOUR_MS))
            lost += without
    return tuple(found)


def unseen_between(at_ms: I64) -> tuple[tuple[int, int], ...]:
    """The same, of times in any order."""
    hour, jobs = np.unique(at_ms // HOUR_MS, return_counts=True)
    return find_unseen(hour, jobs)


#: From when to when nothing was recorded, in order of time.
Unseen = tuple[tuple[int, int], ...]


def unseen_ms(window: Window, unseen: Unseen) -> int:
    """How much of a window was not seen."""
    return int(unseen_by(np.array([window.end_ms]), unseen)[0] - unseen_by(np.array([window.start_ms]), unseen)[0])


def unseen_by(at_ms: I64, unseen: Unseen) -> I64:
    """How much time had not been seen by each time."""
    lost = np.zeros(at_ms.size, np.int64)
    for from_ms, to_ms in unseen:
        lost += np.clip(at_ms - from_ms, 0, to_ms - from_ms)
    return lost


def on_seen_clock(at_ms: I64, unseen: Unseen) -> I64:
    """Times by a clock that stands still while nothing is recorded."""
    return at_ms - unseen_by(at_ms, unseen) if unseen else at_ms


def seen_window(window: Window, unseen: Unseen) -> Window:
    """The window by that clock."""
    start_ms, end_ms = on_seen_clock(np.array(window, np.int64), unseen).tolist()
    return Window(start_ms, max(end_ms, start_ms + 1)) if unseen else window


def hide_unseen(series: F64, step_ms: int, start_ms: int, unseen: Unseen) -> None:
    """Make values of even steps unknown where any of the step was not seen."""
    for from_ms, to_ms in unseen:
        series[max((from_ms - start_ms) // step_ms, 0) : max(-(-(to_ms - start_ms) // step_ms), 0)] = np.nan
