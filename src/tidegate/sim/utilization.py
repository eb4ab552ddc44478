"""How busy the GPUs of running work are: loading, working, idling at the end.

Allocated is not busy: the difference comes from here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.units import DAY_MS, HOUR_MS
from tidegate.sim.submissions import TwinJobs

_PEAK_MS = 14 * HOUR_MS


class UsePeriods(NamedTuple):
    """Periods for which use is observed, one a workload."""

    number: I64
    start_ms: I64
    end_ms: I64
    work_from_ms: I64  # when loading ends
    work_until_ms: I64  # when the idle tail begins


def observed_use(jobs: TwinJobs, held_milli: I64, windows: UsePeriods) -> F64:
    """For each window, in which so much is held: busy GPU-ms, held GPU-ms, VRAM in MiB, power (not modelled)."""
    number, start, end = windows.number, windows.start_ms, windows.end_ms
    gpus = held_milli / 1000
    worked_from, worked_until = np.maximum(start, windows.work_from_ms), np.minimum(end, windows.work_until_ms)
    values = np.zeros((len(number), 4), np.float64)
    values[:, 0] = gpus * busy_ms(jobs, number, worked_from, np.maximum(worked_until, worked_from))
    values[:, 1] = (end - start) * gpus
    values[:, 2] = np.where(end > windows.work_from_ms, jobs.vram_mib[number], 0)
    return values


def busy_ms(jobs: TwinJobs, number: I64, from_ms: I64, until_ms: I64) -> F64:
    """How long work was busy between two times in which it worked: the same, however the time is cut."""
    even, swing = jobs.busy_milli[number] / 1000, jobs.daily_swing_milli[number] / 1000
    busy: F64 = (until_ms - from_ms).astype(np.float64) * np.clip(even, 0.0, 1.0)
    swings = np.flatnonzero(swing)
    if len(swings):
        sums = [
            _busy_since_peak(even[swings], swing[swings], at_ms[swings] - _PEAK_MS) for at_ms in (from_ms, until_ms)
        ]
        busy[swings] = sums[1] - sums[0]
    return busy


def _busy_since_peak(even: F64, swing: F64, since_ms: I64) -> F64:
    """The busy time from a peak on: the sum of a share that swings as a cosine, and is nowhere below 0 or above 1."""
    half = DAY_MS // 2
    days, into = np.divmod(since_ms, DAY_MS)
    with np.errstate(divide="ignore"):
        full = np.arccos(np.clip((1 / even - 1) / swing, -1.0, 1.0))  # until then all of it
    none = np.arccos(np.clip(-1 / swing, -1.0, 1.0))  # from then on none

    def until(angle: F64) -> F64:
        swung = np.clip(angle, full, none)
        part: F64 = np.minimum(angle, full) + even * (swung - full + swing * (np.sin(swung) - np.sin(full)))
        return part

    first = until(np.pi * np.minimum(into, DAY_MS - into) / half)  # the second half of a day mirrors the first
    a_half = until(np.full(len(even), np.pi))
    summed: F64 = np.where(into <= half, first, 2 * a_half - first) + 2 * a_half * days
    return summed * half / np.pi
