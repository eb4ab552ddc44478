"""How many GPUs would be in use at once if nothing waited: exactly, and on average in even steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64
from tidegate.model.units import MINUTE_MS, WHOLE_MILLI
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.stats.quantile import weighted_quantiles

#: The step in which demand is averaged: shorter than any tolerance for batch, and 672 of them make a week.
GRID_MS = 15 * MINUTE_MS


class Curve(NamedTuple):
    """GPUs in use, from each time on."""

    at_ms: I64
    milli: I64


def curve_of(jobs: PlanJobs) -> Curve:
    """What would be in use if every job started when it came. Of things at one time, ends come first."""
    at = np.concatenate([jobs.at_ms + jobs.run_ms, jobs.at_ms])
    change = np.concatenate([-jobs.gpus_milli, jobs.gpus_milli])
    order = np.argsort(at, kind="stable")
    at, level = at[order], np.cumsum(change[order])
    last = np.concatenate([at[1:] != at[:-1], [True]]) if len(at) else np.zeros(0, bool)
    return Curve(at[last], level[last])


def peak_milli(curve: Curve, from_ms: int, to_ms: int) -> int:
    """The most that is in use at once between two times."""
    inside = (curve.at_ms >= from_ms) & (curve.at_ms <= to_ms)
    before = int(np.searchsorted(curve.at_ms, from_ms, side="right")) - 1
    at_first = int(curve.milli[before]) if before >= 0 else 0
    return max(int(curve.milli[inside].max(initial=0)), at_first)


def used_gpu_h(curve: Curve, from_ms: int, to_ms: int) -> float:
    """GPU-hours in use between two times."""
    below = _area(curve, np.array([from_ms, to_ms], np.int64))
    return float(below[1] - below[0]) / (WHOLE_MILLI * 60 * MINUTE_MS)


def quantile_milli(curve: Curve, from_ms: int, to_ms: int, share: float) -> int:
    """The level that is not exceeded for this share of the time."""
    inside = np.flatnonzero((curve.at_ms > from_ms) & (curve.at_ms < to_ms))
    edges = np.concatenate([[from_ms], curve.at_ms[inside], [to_ms]])
    first = int(np.searchsorted(curve.at_ms, from_ms, side="right")) - 1
    levels = np.concatenate([[curve.milli[first] if first >= 0 else 0], curve.milli[inside]])
    order = np.argsort(levels, kind="stable")
    return int(weighted_quantiles(levels[order], np.diff(edges)[order], np.array([share]))[0])


def average(curve: Curve, from_ms: int, to_ms: int, step_ms: int = GRID_MS) -> tuple[I64, F64]:
    """Mean GPUs in use in each whole step between two times; when each step began."""
    edges = np.arange(from_ms, to_ms + 1, step_ms, dtype=np.int64)
    return edges[:-1], mean_between(curve, edges)


def mean_between(curve: Curve, edges_ms: I64) -> F64:
    """Mean GPUs in use from each time to the next."""
    return np.asarray(np.diff(_area(curve, edges_ms)) / (np.maximum(np.diff(edges_ms), 1) * WHOLE_MILLI), np.float64)


def _area(curve: Curve, at_ms: I64) -> F64:
    """What lies below the curve up to each time, in thousandths times milliseconds."""
    if not len(curve.at_ms):
        return np.zeros(len(at_ms))
    steps = np.diff(curve.at_ms) * curve.milli[:-1]
    until = np.concatenate([[0.0], np.cumsum(steps, dtype=np.float64)])
    row = np.searchsorted(curve.at_ms, at_ms, side="right") - 1
    inside = np.maximum(row, 0)
    area: F64 = until[inside] + curve.milli[inside].astype(np.float64) * (at_ms - curve.at_ms[inside])
    return np.where(row >= 0, area, 0.0)
