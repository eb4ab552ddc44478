"""Recipes for synthetic jobs: one for each kind of work of a queue.

Jobs come in batches of similar jobs: submissions of one stream that follow each other closely. Batches come by the hour
of the week and the level of the day; jobs of a batch are as similar in size and duration as they were measured to be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.demand.calendar import WEEK_HOURS, hour_of_week
from tidegate.demand.censoring import Observation, State
from tidegate.demand.distributions import Fitted, fit_family
from tidegate.demand.estimate import trim, trimmed
from tidegate.demand.group_keys import dense
from tidegate.demand.job_table import JobRows, JobTable, join_rows
from tidegate.demand.sketches import Sketch, sketch_of
from tidegate.demand.step_curve import Window
from tidegate.demand.survival import WatchedDurations, estimate_survival, survival_sketch
from tidegate.demand.tables import SIZE_NAMES, size_of
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import waited_until_ms
from tidegate.demand.unrecorded import Unseen, unseen_by
from tidegate.model.arrays import F64, I64
from tidegate.model.struct import Spec
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, WHOLE_MILLI
from tidegate.stats.blocks import sum_by

#: Streams that are kept: the weightiest.
MOST_STREAMS = 24

#: Jobs that recipes are made from; of more, whole blocks of time are left out.
MOST_JOBS = 100_000

#: Distinct sizes in one recipe.
_MOST_SIZES = 16

_BATCH_GAP_MS = MINUTE_MS

#: The accuracy of sketches in recipes: rough, so that documents stay small.
_ROUGH = 0.05
_BLOCKS = 64


class SizeShare(Spec, frozen=True):
    """How many of the jobs have one size."""

    gpus_milli: int
    pods: int
    share: float


class SizedSketch(Spec, frozen=True):
    """How long jobs of one size class run."""

    size: str
    sketch: Sketch


class JobStream(Spec, frozen=True):
    """A recipe for jobs of one kind, queue and GPU model."""

    kind: str
    queue: str
    gpu: str
    jobs: int
    sizes: tuple[SizeShare, ...]
    durations: tuple[SizedSketch, ...]
    duration_alike: float  # 0: jobs of a batch have nothing in common; 1: they last equally long
    size_alike: float
    batches: Sketch  # jobs in a batch
    batch_gpus: float  # that any batch asked for at most, when all its jobs run
    batch_gpu_hours: float
    gaps: Sketch  # inside a batch, ms
    between: Fitted | None  # times between batches
    week: tuple[float, ...]  # relative rate of batches by hour of the week; mean 1
    waits: Sketch | None
    wait_alike: float  # of jobs submitted in the same hour
    given_up: float  # the share cancelled while waiting


class _When(NamedTuple):
    """What all streams have in common."""

    window: Window
    unseen: Unseen
    calendar: Calendar
    watch: Observation
    waits: bool  # whether they are known
    each: float  # so many jobs does one that was picked stand for


class _Part(NamedTuple):
    """Jobs of one stream in order of submission."""

    batch: I64
    gaps: I64  # before each job


def write_streams(jobs: JobTable, window: Window, calendar: Calendar, unseen: Unseen = ()) -> tuple[JobStream, ...]:
    """Recipes for the weightiest streams."""
    picked = _pick(jobs, window)
    key = np.zeros(jobs.cells.amount.size, np.int64)
    for name in ("kind", "queue", "gpu"):
        key = key * max(len(jobs.names[name]), 1) + jobs.cells.labels[name]
    used, cell = dense(key[picked.cell])
    heavy = np.bincount(cell, weights=picked.gpu_hours())
    kept = np.sort(np.lexsort((used, -heavy))[:MOST_STREAMS])
    came = sum(len(rows.submitted_from(window.start_ms)) for rows in jobs.parts())
    when = _When(window, unseen, calendar, jobs.watch, jobs.recorded.submissions, came / max(len(picked), 1))
    return tuple(
        _write(picked.take(cell == row), _members(jobs, picked.cell[np.argmax(cell == row)]), when)
        for row in kept.tolist()
    )


def _members(jobs: JobTable, cell: int) -> dict[str, str]:
    """What the jobs of a cell belong to."""
    return {name: jobs.names[name][int(jobs.cells.labels[name][cell])] for name in ("kind", "queue", "gpu")}


def _pick(jobs: JobTable, window: Window) -> JobRows:
    """All jobs in order of submission, or those of evenly spread blocks of time."""
    every = -(-len(jobs) // MOST_JOBS)
    length = max(window.length_ms // (_BLOCKS * every), 1)
    if every > 1:
        parts = [rows.take((rows.submitted_ms - window.start_ms) // length % every == 0) for rows in jobs.parts()]
        picked = join_rows(parts)
    else:
        picked = jobs.whole()
    picked = picked.submitted_from(window.start_ms)
    return picked.take(np.argsort(picked.submitted_ms, kind="stable"))


def _write(jobs: JobRows, members: dict[str, str], when: _When) -> JobStream:
    part = _in_batches(jobs)
    first = np.flatnonzero(np.diff(part.batch, prepend=-1))
    starts = jobs.submitted_ms[first]
    known = jobs.take(jobs.duration_ms >= 0)
    size = size_of(known.gpus_milli)
    began = jobs.take((jobs.started_ms >= 0) & when.waits)
    waits = began.started_ms - began.submitted_ms
    hour = (began.submitted_ms - when.window.start_ms) // HOUR_MS
    inside = part.gaps[np.setdiff1d(np.arange(len(jobs)), first)]
    return JobStream(
        **members,
        jobs=round(len(jobs) * when.each),
        sizes=_sizes(jobs),
        durations=tuple(
            SizedSketch(size=SIZE_NAMES[at], sketch=_rough(known.duration_ms[size == at]))
            for at in np.unique(size).tolist()
        ),
        duration_alike=alike(jobs.duration_ms.astype(np.float64), part.batch),
        size_alike=alike(jobs.gpus_milli.astype(np.float64), part.batch),
        batches=_rough(np.bincount(part.batch)),
        batch_gpus=trim(float(np.bincount(part.batch, weights=jobs.gpus_milli).max()) / WHOLE_MILLI),
        batch_gpu_hours=trim(
            float(np.bincount(part.batch, weights=jobs.gpus_milli * np.maximum(jobs.duration_ms, 0.0)).max())
            / (WHOLE_MILLI * HOUR_MS)
        ),
        gaps=_rough(inside) if inside.size else Sketch(),
        between=fit_family(sketch_of(np.diff(starts))) if starts.size > 20 else None,
        week=_week(starts, when),
        waits=_waits(jobs, waits, when.watch) if len(began) else None,
        wait_alike=alike(waits.astype(np.float64), hour) if len(began) else 0.0,
        given_up=_given_up(jobs),
    )


def _waits(jobs: JobRows, until_start: I64, watch: Observation) -> Sketch:
    """Waits until a start; who gave up or still waits would have waited longer for it."""
    until_ms = waited_until_ms(jobs, watch)
    left = np.flatnonzero((jobs.started_ms < 0) & (until_ms >= 0))
    if not left.size:
        return _rough(until_start)
    watched = WatchedDurations(
        np.sort(until_start), np.sort(until_ms[left] - jobs.submitted_ms[left]), np.zeros(0, np.int64)
    )
    return survival_sketch(estimate_survival(watched), _ROUGH)


def _given_up(jobs: JobRows) -> float:
    """The share that gave up, of those that do not wait any longer."""
    over = jobs.state != State.WAITS
    gave_up = jobs.cancelled & (jobs.started_ms < 0)
    return trim(float(gave_up.sum()) / max(int(over.sum()), 1))


def _rough(values: I64) -> Sketch:
    """A sketch that is good enough to draw from."""
    return sketch_of(values, accuracy=_ROUGH)


def _in_batches(jobs: JobRows) -> _Part:
    """A batch ends where nothing follows for a minute; where arrivals are dense, for a quarter of the usual gap."""
    at_ms = jobs.submitted_ms
    gaps = np.diff(at_ms, prepend=at_ms[0])
    usual = (at_ms[-1] - at_ms[0]) / max(len(jobs), 1)
    return _Part(np.cumsum(gaps > min(_BATCH_GAP_MS, usual / 4)), gaps)


def _sizes(jobs: JobRows) -> tuple[SizeShare, ...]:
    """The most frequent sizes; rare ones count with the next one up, so that none gets lost."""
    pairs, counts = np.unique(np.stack([jobs.gpus_milli, jobs.pods]), axis=1, return_counts=True)
    kept = np.sort(np.lexsort((np.arange(counts.size), -counts))[:_MOST_SIZES])
    moved = np.searchsorted(pairs[0][kept], pairs[0], side="left").clip(max=kept.size - 1)
    sums = np.bincount(moved, weights=counts, minlength=kept.size)
    shares = (sums / sums.sum()).tolist()
    columns = zip(pairs[0][kept].tolist(), pairs[1][kept].tolist(), shares, strict=True)
    return tuple(SizeShare(gpus_milli=gpus, pods=pods, share=trim(share)) for gpus, pods, share in columns if share > 0)


def alike(values: F64, group: I64) -> float:
    """How much of the variance of ranks lies between groups (the intraclass correlation, never below 0)."""
    if values.size < 3:
        return 0.0
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    _, label = np.unique(group, return_inverse=True)
    sizes = np.bincount(label).astype(np.float64)
    if sizes.size < 2 or sizes.max() < 2:
        return 0.0
    means = np.bincount(label, weights=ranks) / sizes
    within = float(((ranks - means[label]) ** 2).sum()) / max(values.size - sizes.size, 1)
    between = float((sizes * (means - ranks.mean()) ** 2).sum()) / max(sizes.size - 1, 1)
    usual = (values.size - float((sizes**2).sum()) / values.size) / max(sizes.size - 1, 1)
    total = between + (usual - 1) * within
    return trim(min(max((between - within) / total, 0.0), 1.0)) if total > 0 else 0.0


def _week(starts: I64, when: _When) -> tuple[float, ...]:
    """Relative rates by hour of the week: counts over how often the hour was seen, a little drawn to the mean."""
    seen = _times_seen(when)
    counts = np.bincount(hour_of_week(starts, when.calendar), minlength=WEEK_HOURS).astype(np.float64)
    usual = counts.sum() / max(seen.sum(), 1e-9)
    rates = (counts + usual) / np.maximum(seen + 1, 1e-9)
    return trimmed(rates / max(rates.mean(), 1e-12))


def _times_seen(when: _When) -> F64:
    """How many times each hour of the week was seen in the window."""
    hours = np.arange(when.window.start_ms, when.window.end_ms, HOUR_MS, dtype=np.int64)
    seen = HOUR_MS - np.diff(unseen_by(np.append(hours, hours[-1:] + HOUR_MS), when.unseen))
    return sum_by(hour_of_week(hours, when.calendar), seen / HOUR_MS, WEEK_HOURS)


def level_by_day(jobs: JobTable, window: Window, unseen: Unseen = ()) -> tuple[float, ...]:
    """How much was submitted on each day from the window's start, relative to the mean day.

    A day of which less than half was seen is as all others.
    """
    if window.length_ms < 2 * DAY_MS:
        return (1.0,)
    days = window.length_ms // DAY_MS
    counts = np.zeros(days)
    for each in jobs.parts():
        rows = each.submitted_from(window.start_ms)
        day = np.minimum((rows.submitted_ms - window.start_ms) // DAY_MS, days - 1)
        counts += np.bincount(day, minlength=days)
    edges = window.start_ms + np.append(np.arange(days) * DAY_MS, window.length_ms)
    seen = 1 - np.diff(unseen_by(edges, unseen)) / np.diff(edges)
    usual = counts.sum() / max(float(seen.sum()), 1e-9)
    levels = np.where(seen >= 0.5, counts / np.maximum(seen, 0.5), usual)
    return trimmed(levels / max(float(levels.mean()), 1e-12))
