"""From the canonical tables to the demand model.

Each table is read once. What no table tells is None in the document, never a guess.
Must not know: files, or who asks.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from tidegate.demand.bursts import ceilings, find_bursts
from tidegate.demand.calls import RunAll, one_by_one
from tidegate.demand.curves import Curve, Window
from tidegate.demand.document import (
    FORMAT,
    VERSION,
    DemandModel,
    Fleet,
    Ground,
    Group,
    MixShare,
    PriorityShare,
    Scope,
    Source,
)
from tidegate.demand.durations import Spread, measure_durations
from tidegate.demand.fleet import Counters, read_counters
from tidegate.demand.groups import Measured, Setting, measure_groups
from tidegate.demand.jobs import Jobs, read_jobs
from tidegate.demand.levels import Levels, Track, measure_levels
from tidegate.demand.mix import measure_mix
from tidegate.demand.numbers import Unit, exact, trim
from tidegate.demand.outlook import Outlook, look_ahead
from tidegate.demand.residency import Residency, measure_residency
from tidegate.demand.services import Service, measure_services
from tidegate.demand.starts import measure_starts
from tidegate.demand.streams import Stream, level_by_day, write_streams
from tidegate.demand.tables import Calendar, Tables
from tidegate.model.units import HOUR_MS, WHOLE_MILLI

#: Priorities that are told apart: the highest.
_MOST_PRIORITIES = 8


class _Parts(NamedTuple):
    """What the tables gave."""

    jobs: Jobs | None
    measured: Measured | None
    counters: list[Counters]  # of GPUs
    queues: list[Counters]  # of what waits, in jobs or requests; nobody told GPUs
    residency: Residency | None
    services: tuple[Service, ...]


def fit(
    tables: Tables, *, seed: int = 0, cold_start_ms: int | None = None, run_all: RunAll = one_by_one
) -> DemandModel:
    """The demand model of the tables. A cold-start window that is told stands in for one that was not measured.

    What does not depend on each other goes through `run_all`, which may have threads.
    """
    cold_start = measure_starts(tables.starts) if tables.starts is not None else None
    window_ms = round(cold_start.window.value) if cold_start else cold_start_ms
    setting = Setting(tables.calendar, window_ms, seed, run_all)
    parts = _measure(tables, setting)
    groups = parts.measured.groups if parts.measured else _groups_of_counters(parts.counters, setting)
    if parts.measured and parts.counters:
        groups = (_complete(groups[0], parts.counters[0], setting), *groups[1:])
    if not groups and parts.residency:
        groups = (_bare(parts.residency, _queued(parts.queues, setting)),)
    outlooks, durations, mix, priorities, days, streams = run_all(
        [
            partial(_outlooks, parts),
            partial(_durations, parts, seed),
            partial(_mix, parts, setting),
            partial(_priorities, parts.jobs),
            partial(_days, parts),
            partial(_streams, parts, tables.calendar),
        ]
    )
    return DemandModel(
        format=FORMAT,
        version=VERSION,
        calendar=tables.calendar,
        seed=seed,
        grounds=_grounds(tables, parts),
        groups=groups,
        durations=durations,
        mix=mix,
        residency=parts.residency,
        services=parts.services,
        cold_start=cold_start,
        priorities=priorities,
        fleet=_fleet(parts, setting),
        days=days,
        streams=streams,
        outlooks=outlooks,
    )


def _measure(tables: Tables, setting: Setting) -> _Parts:
    jobs = read_jobs(tables.jobs) if tables.jobs is not None else None
    if jobs is not None and len(jobs) == 0:
        jobs = None
    use, requests, capacity = tables.use, tables.requests, tables.capacity
    counters = read_counters(capacity) if capacity is not None else []
    return _Parts(
        jobs,
        measure_groups(jobs, setting) if jobs else None,
        [one for one in counters if one.tells_gpus()],
        [one for one in counters if not one.tells_gpus()],
        measure_residency(use, setting.calendar, setting.seed) if use is not None else None,
        measure_services(requests, setting.calendar, setting.cold_start_ms, setting.seed)
        if requests is not None
        else (),
    )


def _groups_of_counters(counters: list[Counters], setting: Setting) -> tuple[Group, ...]:
    """Where no jobs are told: what ran and what waited is what was asked for."""
    return tuple(_group_of_counters(one, setting) for one in counters)


def _group_of_counters(one: Counters, setting: Setting) -> Group:
    how = (Unit.GPUS, "capacity", setting.calendar, setting.seed)
    asked = one.track(one.running + one.pending)
    wanted = measure_levels(asked, *how)
    hours = wanted.mean.value * asked.window.length_ms / HOUR_MS
    return Group(
        scope=Scope.QUEUE if one.queue else Scope.TOTAL,
        name=one.queue,
        jobs=0,
        gpu_hours=exact(hours, Unit.GPU_HOURS, asked.samples, "capacity"),
        wanted=wanted,
        seen=measure_levels(one.track(one.running), *how),
        waiting=measure_levels(one.track(one.pending), *how),
        broken=None,
        arrivals=None,
        bursts=find_bursts(_as_curve(asked), wanted.p95.value, setting.cold_start_ms, Unit.GPUS, "capacity"),
        ceilings=ceilings(asked.series, asked.step_ms, (Unit.GPUS, Unit.GPU_HOURS), HOUR_MS),
        tolerance=None,
    )


def _as_curve(track: Track) -> Curve:
    level = np.round(np.nan_to_num(track.series) * WHOLE_MILLI).astype(np.int64)
    start = np.arange(level.size, dtype=np.int64) * track.step_ms
    return Curve(track.window, start, np.full(level.size, track.step_ms, np.int64), level, 1 / WHOLE_MILLI)


def _complete(total: Group, counters: Counters, setting: Setting) -> Group:
    """What jobs do not tell about the whole (what ran, what waited), counters may."""
    if total.seen is not None:
        return total
    how = (Unit.GPUS, "capacity", setting.calendar, setting.seed)
    fields = {name: getattr(total, name) for name in total.__struct_fields__}
    fields["seen"] = measure_levels(counters.track(counters.running), *how)
    fields["waiting"] = measure_levels(counters.track(counters.pending), *how)
    return Group(**fields)


def _queued(queues: list[Counters], setting: Setting) -> Levels | None:
    """How much waited, counted in jobs or requests."""
    if not queues:
        return None
    track = queues[0].track(queues[0].pending_jobs)
    return measure_levels(track, Unit.JOBS, "capacity", setting.calendar, setting.seed)


def _bare(seen: Residency, queued: Levels | None) -> Group:
    """All that use alone tells: what was held; and what waited, where a queue was counted."""
    hours = seen.held.mean.value * sum(band.demand for band in seen.held.bands) / max(seen.held.mean.value, 1e-9)
    return Group(
        scope=Scope.TOTAL,
        name="",
        jobs=0,
        gpu_hours=exact(hours, Unit.GPU_HOURS, seen.held.peak.samples, "use"),
        wanted=None,
        seen=seen.held,
        waiting=queued,
        broken=None,
        arrivals=None,
        bursts=None,
        ceilings=(),
        tolerance=None,
    )


def _mix(parts: _Parts, setting: Setting) -> tuple[MixShare, ...]:
    if parts.measured is None:
        return ()
    tracks = {kind: track for kind, track in parts.measured.by_kind.items() if np.nansum(track.series) > 0}
    return measure_mix(tracks, dict.fromkeys(tracks, "jobs"), setting.calendar, setting.seed)


def _durations(parts: _Parts, seed: int) -> tuple[Spread, ...]:
    return measure_durations(parts.jobs, seed) if parts.jobs else ()


def _days(parts: _Parts) -> tuple[float, ...]:
    return level_by_day(parts.jobs, parts.measured.window) if parts.jobs and parts.measured else ()


def _streams(parts: _Parts, calendar: Calendar) -> tuple[Stream, ...]:
    return write_streams(parts.jobs, parts.measured.window, calendar) if parts.jobs and parts.measured else ()


def _priorities(jobs: Jobs | None) -> tuple[PriorityShare, ...]:
    if jobs is None:
        return ()
    values = jobs.frame["priority"].unique().sort().to_numpy()
    even = int(values[-1] - values[0]) == values.size - 1  # then there is nothing to look up
    counts, hours = np.zeros(values.size, np.int64), np.zeros(values.size)
    for rows in jobs.parts():
        row = rows.priority - values[0] if even else np.searchsorted(values, rows.priority)
        counts += np.bincount(row, minlength=values.size)
        hours += np.bincount(row, weights=rows.gpu_hours(), minlength=values.size)
    return tuple(
        PriorityShare(priority=int(values[at]), jobs=int(counts[at]), gpu_hours=trim(float(hours[at])))
        for at in range(values.size - 1, max(values.size - 1 - _MOST_PRIORITIES, -1), -1)
    )


def _fleet(parts: _Parts, setting: Setting) -> Fleet | None:
    """What there was to run on, and the largest that was asked for at once by one job."""
    largest = float(parts.jobs.cells.amount.max()) * parts.jobs.cells.unit if parts.jobs else 0.0
    if not parts.counters:
        return Fleet(total=None, free_p95=None, largest_gang=largest) if parts.jobs else None
    counters = parts.counters[0]
    if not np.nansum(counters.total) > 0:
        return Fleet(total=None, free_p95=None, largest_gang=largest)
    total = measure_levels(counters.track(counters.total), Unit.GPUS, "capacity", setting.calendar, setting.seed)
    free = measure_levels(
        counters.track(np.maximum(counters.total - counters.running, 0.0)),
        Unit.GPUS,
        "capacity",
        setting.calendar,
        setting.seed,
    )
    return Fleet(total=total, free_p95=free.p95, largest_gang=largest)


def _outlooks(parts: _Parts) -> tuple[Outlook, ...]:
    """What comes after the window, for all GPUs and for all requests."""
    found = []
    if parts.measured:
        found.append(_look("wanted", Unit.GPUS, parts.measured.wanted))
    elif parts.counters:
        counters = parts.counters[0]
        found.append(_look("wanted", Unit.GPUS, counters.track(counters.running + counters.pending)))
    return tuple(one for one in found if one is not None)


def _look(of: str, unit: Unit, track: Track) -> Outlook | None:
    return look_ahead(of, unit, track.series, track.step_ms, track.window.end_ms)


def _grounds(tables: Tables, parts: _Parts) -> tuple[Ground, ...]:
    """The window, the rows and the origins of each table that there is."""
    origins = tuple(Source(**origin._asdict()) for origin in tables.origins)
    found = []
    if parts.measured and parts.jobs:
        found.append(_ground("jobs", parts.measured.window, len(parts.jobs), parts.measured.tick_ms, origins))
    frames = {"requests": tables.requests, "use": tables.use, "capacity": tables.capacity, "starts": tables.starts}
    for name, frame in frames.items():
        if frame is not None:
            bounds = frame.select(
                pl.col("at_ms").min().alias("first"), pl.col("at_ms").max().alias("last"), pl.len().alias("rows")
            ).collect(engine="streaming")
            if bounds["rows"][0]:
                window = Window(int(bounds["first"][0]), int(bounds["last"][0]))
                found.append(_ground(name, window, int(bounds["rows"][0]), 0, origins))
    return tuple(found)


def _ground(table: str, window: Window, rows: int, tick_ms: int, origins: tuple[Source, ...]) -> Ground:
    return Ground(
        table=table, start_ms=window.start_ms, end_ms=window.end_ms, rows=rows, tick_ms=tick_ms, origins=origins
    )
