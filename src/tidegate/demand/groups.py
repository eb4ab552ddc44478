"""The inputs of each group of jobs: how much at once, how deep the queue, how bursty, how patient.

Must not know: what the numbers are for.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tidegate.demand.arrivals import Arrivals, measure_by_group
from tidegate.demand.bursts import ceilings, find_bursts
from tidegate.demand.calls import RunAll, one_by_one
from tidegate.demand.curves import Curve, Window
from tidegate.demand.document import Group, Scope
from tidegate.demand.events import MOST_EXACT, Tally, curves_of
from tidegate.demand.jobs import (
    ENDED,
    LEFT,
    OVER,
    STARTED,
    SUBMITTED,
    Jobs,
    Rows,
    join_rows,
    moments_of,
    seen_spans,
    starts_known,
    waiting_spans,
    wanted_spans,
    window_of,
)
from tidegate.demand.levels import Levels, Track, measure_levels, track_curve
from tidegate.demand.numbers import Unit, exact
from tidegate.demand.ordering import Grouping
from tidegate.demand.tables import Calendar
from tidegate.demand.tolerance import (
    Basis,
    Broken,
    Tolerance,
    Waits,
    find_breaking_depth,
    measure_tolerance,
    sort_waits,
)
from tidegate.model.columns import F64, I32, I64
from tidegate.model.units import HOUR_MS

#: Jobs of a group whose wait is compared with what waited before them.
_MOST_COMPARED = 200_000


class Setting(NamedTuple):
    """What all groups have in common."""

    calendar: Calendar
    cold_start_ms: int | None
    seed: int
    run_all: RunAll = one_by_one


class Measured(NamedTuple):
    """Groups, and the wanted levels over time that other inputs are made from."""

    groups: tuple[Group, ...]
    window: Window
    wanted: Track
    by_kind: dict[str, Track]
    tick_ms: int  # to which times were rounded, for the total; 0: not at all


class _Scoped(NamedTuple):
    """What the members of one scope have."""

    scope: Scope
    names: tuple[str, ...]
    label: I32  # of each cell
    counts: I64
    hours: F64
    waits: list[Waits]
    arrivals: list[Arrivals | None]


class _Curves(NamedTuple):
    """Curves by scope and row; None: starts were not recorded."""

    wanted: dict[str, list[Curve]]
    seen: dict[str, list[Curve]] | None
    waiting: dict[str, list[Curve]] | None


def measure_groups(jobs: Jobs, setting: Setting) -> Measured:
    """All groups of the jobs: everything, kinds, queues, GPU models."""
    window = window_of(jobs)
    curves, scopes = setting.run_all([partial(_follow, jobs, window), partial(_scopes, jobs, window)])
    tracks: dict[tuple[Scope, str], Track] = {}
    calls = []
    for scoped in scopes:
        for row in np.flatnonzero(scoped.counts).tolist():
            curve = curves.wanted[scoped.scope][row]
            track = tracks[scoped.scope, scoped.names[row]] = track_curve(curve, int(scoped.counts[row]))
            calls.append(partial(_measure, jobs, scoped, row, (curves, track), setting))
    by_kind = {name: track for (scope, name), track in tracks.items() if scope is Scope.KIND}
    tick_ms = int(curves.wanted[Scope.TOTAL][0].width_ms[0]) if len(jobs) > MOST_EXACT else 0
    return Measured(tuple(setting.run_all(calls)), window, tracks[Scope.TOTAL, ""], by_kind, tick_ms)


def _follow(jobs: Jobs, window: Window) -> _Curves:
    started = starts_known(jobs)
    if len(jobs) <= MOST_EXACT:
        rows = jobs.whole()
        made = (make(rows, window) for make in (wanted_spans, *((seen_spans, waiting_spans) if started else ())))
        wanted, *others = (curves_of(spans, jobs.cells, window) for spans in made)
        return _Curves(wanted, *(others or (None, None)))
    tally = Tally(LEFT + 1, jobs.cells, window)
    for rows in jobs.parts():
        tally.add(moments_of(rows, window))
    return _Curves(
        tally.between([SUBMITTED], [OVER]),
        tally.between([STARTED], [ENDED]) if started else None,
        tally.between([SUBMITTED], [STARTED, LEFT]) if started else None,
    )


def _scopes(jobs: Jobs, window: Window) -> list[_Scoped]:
    """Scopes that were recorded, with their members."""
    told = [scope for scope in Scope if scope not in {Scope.QUEUE, Scope.GPU} or jobs.names[scope] not in {(), ("",)}]
    labels = {scope: _label(jobs, scope) for scope in told}
    names = {scope: ("",) if scope is Scope.TOTAL else jobs.names[scope] for scope in told}
    groupings = [Grouping(labels[scope].astype(np.int64), len(names[scope])) for scope in told]
    arrivals = dict(zip(told, measure_by_group(jobs, groupings, window), strict=True))
    waits = sort_waits(jobs)
    return [
        _Scoped(
            scope,
            names[scope],
            labels[scope],
            np.bincount(labels[scope], weights=jobs.cell_jobs, minlength=len(names[scope])).astype(np.int64),
            np.bincount(labels[scope], weights=jobs.cell_gpu_hours, minlength=len(names[scope])).astype(np.float64),
            [_gather([one for one in waits if one.belongs(scope, row)]) for row in range(len(names[scope]))],
            arrivals[scope],
        )
        for scope in told
    ]


def _label(jobs: Jobs, scope: Scope) -> I32:
    return np.zeros(jobs.cells.amount.size, np.int32) if scope is Scope.TOTAL else jobs.cells.labels[scope]


def _gather(parts: list[Waits]) -> Waits:
    """The waits of several cells together, in order again."""
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Waits(nothing, nothing, nothing, {}, (1, 1, 1))
    columns = zip(*(part[:3] for part in parts), strict=True)
    merged = [np.sort(np.concatenate(column), kind="stable") for column in columns]
    return Waits(merged[0], merged[1], merged[2], {}, parts[0].every)


def _measure(jobs: Jobs, of: _Scoped, row: int, made: tuple[_Curves, Track], setting: Setting) -> Group:
    curves, track = made
    count = int(of.counts[row])
    levels = measure_levels(track, Unit.GPUS, "jobs", setting.calendar, setting.seed)
    patience = measure_tolerance(of.waits[row], count)
    waiting = curves.waiting[of.scope][row] if curves.waiting else None
    return Group(
        scope=of.scope,
        name=of.names[row],
        jobs=count,
        gpu_hours=exact(float(of.hours[row]), Unit.GPU_HOURS, count, "jobs"),
        wanted=levels,
        seen=_levels(curves.seen[of.scope][row] if curves.seen else None, count, setting),
        waiting=_levels(waiting, count, setting),
        broken=_broken(jobs, of, row, waiting, patience),
        arrivals=of.arrivals[row],
        bursts=find_bursts(curves.wanted[of.scope][row], levels.p95.value, setting.cold_start_ms, Unit.GPUS, "jobs"),
        ceilings=ceilings(track.series, track.step_ms, (Unit.GPUS, Unit.GPU_HOURS), HOUR_MS),
        tolerance=patience,
    )


def _levels(curve: Curve | None, count: int, setting: Setting) -> Levels | None:
    if curve is None:
        return None
    return measure_levels(track_curve(curve, count), Unit.GPUS, "jobs", None, setting.seed)


def _broken(jobs: Jobs, of: _Scoped, row: int, queue: Curve | None, patience: Tolerance) -> Broken | None:
    """Where the depth breaks tolerance; a tolerance that was read off the waits themselves cannot be broken by them."""
    if queue is None or patience.tolerated is None or patience.basis is Basis.ACCEPTED:
        return None
    some = _some(jobs, of, row)
    return find_breaking_depth(some.submitted_ms, some.started_ms - some.submitted_ms, queue, patience.tolerated.value)


def _some(jobs: Jobs, of: _Scoped, row: int) -> Rows:
    """Jobs of a group that started: all, or of very many every so-manieth."""
    every = max(1, -(-int(of.counts[row]) // _MOST_COMPARED))
    mine, before, found = of.label == row, 0, []
    for rows in jobs.parts():
        at = np.flatnonzero(mine[rows.cell])
        found.append(rows.take(at[-before % every :: every]))
        before += at.size
    picked = join_rows(found)
    return picked.take(picked.started_ms >= 0)
