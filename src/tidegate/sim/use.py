"""How busy the GPUs of running work are: loading, working, idling at the end.

Allocated is not busy: this is where the difference comes from.
Must not know: who decided what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.columns import F64, I64
from tidegate.model.units import DAY_MS, HOUR_MS
from tidegate.sim.jobs import Jobs

_PEAK_MS = 14 * HOUR_MS


class Windows(NamedTuple):
    """Stretches of time for which use is told, one a workload."""

    number: I64
    start_ms: I64
    end_ms: I64
    work_from_ms: I64  # when loading ends
    work_until_ms: I64  # when the idle tail begins


def observed_use(jobs: Jobs, held_milli: I64, windows: Windows) -> F64:
    """For each window, in which so much is held: busy GPU-ms, held GPU-ms, VRAM in MiB, power (not modelled)."""
    number, start, end = windows.number, windows.start_ms, windows.end_ms
    gpus = held_milli / 1000
    worked = np.minimum(end, windows.work_until_ms) - np.maximum(start, windows.work_from_ms)
    values = np.zeros((len(number), 4), np.float64)
    values[:, 0] = np.maximum(worked, 0) * gpus * busy_share(jobs, number, (start + end) / 2)
    values[:, 1] = (end - start) * gpus
    values[:, 2] = np.where(end > windows.work_from_ms, jobs.vram_mib[number], 0)
    return values


def busy_share(jobs: Jobs, number: I64, at_ms: F64) -> F64:
    """The busy share while working, at a time of day."""
    swing = jobs.daily_swing_milli[number] / 1000 * np.cos(2 * np.pi * (at_ms - _PEAK_MS) / DAY_MS)
    share: F64 = np.clip(jobs.busy_milli[number] / 1000 * (1 + swing), 0.0, 1.0)
    return share
