"""Concurrency without waits: how many GPUs would be in use if every job started when it came."""

from __future__ import annotations

import numpy as np

from tidegate.demand.step_curve import StepCurve, Window, area_until, curve_of_changes
from tidegate.model.arrays import F64, I64
from tidegate.model.units import GPU_HOUR_MILLI_MS, MINUTE_MS, WHOLE_MILLI
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.stats.quantile import weighted_quantiles

#: The step in which demand is averaged: shorter than any tolerance for batch, and 672 of them make a week.
GRID_MS = 15 * MINUTE_MS


def curve_of(jobs: PlanJobs) -> StepCurve:
    """Thousandths of a GPU that would be in use if every job started when it came."""
    at_ms = np.concatenate([jobs.at_ms + jobs.run_ms, jobs.at_ms])
    order = np.argsort(at_ms, kind="stable")
    change = np.concatenate([-jobs.gpus_milli, jobs.gpus_milli])
    return curve_of_changes(Window(0, int(at_ms.max(initial=0))), at_ms[order], change[order], 1.0)


def peak_milli(curve: StepCurve, from_ms: int, to_ms: int) -> int:
    """The most that is in use at once between two times, both included."""
    inside = (curve.width_ms > 0) & (curve.start_ms <= to_ms) & (curve.start_ms + curve.width_ms > from_ms)
    return int(curve.level[inside].max(initial=0))


def used_gpu_h(curve: StepCurve, from_ms: int, to_ms: int) -> float:
    """GPU-hours in use between two times."""
    below = area_until(curve, np.array([from_ms, to_ms], np.int64))
    return float(below[1] - below[0]) / GPU_HOUR_MILLI_MS


def quantile_milli(curve: StepCurve, from_ms: int, to_ms: int, share: float) -> int:
    """The level that is not exceeded for this share of the time."""
    width = curve.width_between(from_ms, to_ms)
    levels, width = np.append(0, curve.level), np.append(max(to_ms - from_ms - int(width.sum()), 0), width)
    order = np.argsort(levels, kind="stable")
    return int(weighted_quantiles(levels[order], width[order], np.array([share]))[0])


def average(curve: StepCurve, from_ms: int, to_ms: int, step_ms: int = GRID_MS) -> tuple[I64, F64]:
    """Mean GPUs in use in each whole step between two times; when each step began."""
    edges = np.arange(from_ms, to_ms + 1, step_ms, dtype=np.int64)
    return edges[:-1], mean_between(curve, edges)


def mean_between(curve: StepCurve, edges_ms: I64) -> F64:
    """Mean GPUs in use from each time to the next."""
    area = np.diff(area_until(curve, edges_ms))
    return np.asarray(area / (np.maximum(np.diff(edges_ms), 1) * WHOLE_MILLI), np.float64)
