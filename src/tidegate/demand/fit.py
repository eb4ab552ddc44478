"""Fits the demand model to the canonical tables.

Each table is read once. What no table tells is None in the model, never a guess.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace

from tidegate.demand.bursts import ceilings, find_bursts
from tidegate.demand.cold_start import measure_starts
from tidegate.demand.concurrency_stats import Levels, Track, measure_levels
from tidegate.demand.counters import Counters, is_told, read_counters
from tidegate.demand.durations import DurationSpread, measure_durations
from tidegate.demand.estimate import Number, Unit, at_least, exact, trim
from tidegate.demand.forecast_report import Outlook, look_ahead
from tidegate.demand.group_keys import RunAll, one_by_one
from tidegate.demand.job_table import JobTable, read_jobs, unseen_of, window_of
from tidegate.demand.measure_groups import MeasuredGroups, Setting, measure_groups, survey
from tidegate.demand.model import (
    FORMAT,
    VERSION,
    DemandGroup,
    DemandModel,
    Fleet,
    Ground,
    GroupScope,
    PriorityShare,
)
from tidegate.demand.residency import Residency, measure_residency
from tidegate.demand.services import ServiceDemand, measure_services
from tidegate.demand.step_curve import Window, curve_of_steps
from tidegate.demand.synth.streams import JobStream, level_by_day, write_streams
from tidegate.demand.tables import RowOrigin, Tables
from tidegate.demand.unrecorded import Unseen, unseen_between
from tidegate.model.arrays import F64
from tidegate.model.units import HOUR_MS

#: Priorities that are listed: the highest.
_MOST_PRIORITIES = 8


class _Told(NamedTuple):
    """What jobs tell."""

    jobs: JobTable
    measured: MeasuredGroups
    durations: tuple[DurationSpread, ...]
    priorities: tuple[PriorityShare, ...]
    days: tuple[float, ...]
    streams: tuple[JobStream, ...]


class _Parts(NamedTuple):
    """What the tables gave."""

    told: _Told | None
    counters: list[Counters]  # of GPUs
    queues: list[Counters]  # of what waits, in jobs or requests, without GPUs
    residency: Residency | None
    services: tuple[ServiceDemand, ...]


def fit(
    tables: Tables, *, seed: int = 0, cold_start_ms: int | None = None, run_all: RunAll = one_by_one
) -> DemandModel:
    """The demand model of the tables. A given cold-start window is used where none was measured.

    What does not depend on each other goes through `run_all`, which may have threads.
    """
    cold_start = measure_starts(tables.starts) if tables.starts is not None else None
    window_ms = round(cold_start.window.value) if cold_start else cold_start_ms
    setting = Setting(tables.calendar, window_ms, seed, run_all)
    parts = _measure(tables, setting)
    groups = parts.told.measured.groups if parts.told else _groups_of_counters(parts.counters, setting)
    if parts.told and parts.counters:
        groups = (_complete(groups[0], parts.counters[0], setting), *groups[1:])
    if not groups and parts.residency:
        groups = (_bare(parts.residency, _queued(parts.queues, setting)),)
    return DemandModel(
        format=FORMAT,
        version=VERSION,
        calendar=tables.calendar,
        seed=seed,
        grounds=_grounds(tables, parts),
        groups=groups,
        durations=parts.told.durations if parts.told else (),
        mix=parts.told.measured.mix if parts.told else (),
        residency=parts.residency,
        services=parts.services,
        cold_start=cold_start,
        priorities=parts.told.priorities if parts.told else (),
        fleet=_fleet(parts, setting),
        days=parts.told.days if parts.told else (),
        streams=parts.told.streams if parts.told else (),
        outlooks=_outlooks(parts),
    )


def _measure(tables: Tables, setting: Setting) -> _Parts:
    use, requests, capacity = tables.use, tables.requests, tables.capacity
    counters = read_counters(capacity) if capacity is not None else []
    return _Parts(
        _hear(tables, setting) if tables.jobs is not None else None,
        [one for one in counters if one.tells_gpus()],
        [one for one in counters if not one.tells_gpus()],
        measure_residency(use, setting.calendar) if use is not None else None,
        measure_services(requests, setting.calendar, setting.cold_start_ms) if requests is not None else (),
    )


def _hear(tables: Tables, setting: Setting) -> _Told | None:
    """All that is read off the jobs; None: there are none."""
    jobs = read_jobs(tables, setting.seed, setting.run_all)
    if len(jobs) == 0:
        return None
    window, unseen = window_of(jobs), unseen_of(jobs)
    durations, priorities, days, streams, *surveyed = setting.run_all(
        [
            partial(measure_durations, jobs),
            partial(_priorities, jobs),
            partial(level_by_day, jobs, window, unseen),
            partial(write_streams, jobs, window, setting.calendar, unseen),
            *survey(jobs, window, unseen),
        ]
    )
    measured = measure_groups(jobs, window, surveyed, setting._replace(unseen=unseen))
    return _Told(jobs, measured, durations, priorities, days, streams)


def _groups_of_counters(counters: list[Counters], setting: Setting) -> tuple[DemandGroup, ...]:
    """Without a table of jobs: what ran and what waited is the demand."""
    return tuple(_group_of_counters(one, setting) for one in counters if is_told(one.asked()))


def _group_of_counters(one: Counters, setting: Setting) -> DemandGroup:
    asked = one.track(one.asked())
    wanted = measure_levels(asked, Unit.GPUS, "capacity", setting.calendar)
    curve = curve_of_steps(asked.window, asked.series, asked.step_ms)
    return DemandGroup(
        scope=GroupScope.QUEUE if one.queue else GroupScope.TOTAL,
        name=one.queue,
        jobs=0,
        gpu_hours=_counted_hours(asked),
        wanted=wanted,
        seen=_counted(one, one.running, setting),
        waiting=_counted(one, one.pending, setting, of_queue=True),
        broken=None,
        arrivals=None,
        bursts=find_bursts(curve, wanted.p95.value, setting.cold_start_ms, Unit.GPUS, "capacity"),
        ceilings=ceilings(asked.series, asked.step_ms, (Unit.GPUS, Unit.GPU_HOURS), HOUR_MS),
        tolerance=None,
    )


def _counted(one: Counters, values: F64, setting: Setting, *, of_queue: bool = False) -> Levels | None:
    """The levels of a counter; None: it was never seen."""
    if not is_told(values):
        return None
    return measure_levels(one.track(values), Unit.GPUS, "capacity", setting.calendar, of_queue=of_queue)


def _counted_hours(asked: Track) -> Number:
    """GPU-hours as far as they were seen."""
    counted = exact(asked.held.area() / HOUR_MS, Unit.GPU_HOURS, asked.samples, "capacity")
    return counted if np.isfinite(asked.series).all() else at_least(counted)


def _complete(total: DemandGroup, counters: Counters, setting: Setting) -> DemandGroup:
    """What jobs do not tell about the whole (what ran, what waited), counters may."""
    seen = total.seen or _counted(counters, counters.running, setting)
    waiting = total.waiting or _counted(counters, counters.pending, setting, of_queue=True)
    return replace(total, seen=seen, waiting=waiting)


def _queued(queues: list[Counters], setting: Setting) -> Levels | None:
    """How much waited, counted in jobs or requests."""
    if not queues:
        return None
    track = queues[0].track(queues[0].pending_jobs)
    return measure_levels(track, Unit.JOBS, "capacity", setting.calendar, of_queue=True)


def _bare(seen: Residency, queued: Levels | None) -> DemandGroup:
    """All that use alone tells: what was held; and what waited, where a queue was counted."""
    hours = seen.held.mean.value * sum(band.demand for band in seen.held.bands) / max(seen.held.mean.value, 1e-9)
    return DemandGroup(
        scope=GroupScope.TOTAL,
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


def _priorities(jobs: JobTable) -> tuple[PriorityShare, ...]:
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
    cells = parts.told.jobs.cells if parts.told else None
    largest = float(cells.amount.max()) * cells.unit if cells else 0.0
    if not parts.counters:
        return Fleet(total=None, free_p95=None, largest_gang=largest) if parts.told else None
    counters = parts.counters[0]
    if not np.nansum(counters.total) > 0:
        return Fleet(total=None, free_p95=None, largest_gang=largest)
    total = _counted(counters, counters.total, setting)
    free = _counted(counters, np.maximum(counters.total - counters.running, 0.0), setting)
    if free is None:
        return Fleet(total=total, free_p95=None, largest_gang=largest)
    return Fleet(total=total, free_p95=free.p95, largest_gang=largest, free=free.mean)


def _outlooks(parts: _Parts) -> tuple[Outlook, ...]:
    """What comes after the window, for all GPUs."""
    found = None
    if parts.told:
        found = parts.told.measured.outlook
    elif parts.counters and is_told(parts.counters[0].asked()):
        track = parts.counters[0].track(parts.counters[0].asked())
        found = look_ahead("wanted", Unit.GPUS, track.series, track.step_ms, track.window.end_ms)
    return () if found is None else (found,)


def _grounds(tables: Tables, parts: _Parts) -> tuple[Ground, ...]:
    """The window, the rows and the origins of each table that there is."""
    found = []
    if parts.told:
        measured = parts.told.measured
        ground = _ground("jobs", measured.window, len(parts.told.jobs), measured.tick_ms, tables.origins)
        told = {
            "runtimes": tables.recorded.runtimes,
            "unseen": unseen_of(parts.told.jobs),
            "from_empty": tables.since_ms is None,
        }
        found.append(replace(ground, **told))
    frames = {"requests": tables.requests, "use": tables.use, "capacity": tables.capacity, "starts": tables.starts}
    for name, frame in frames.items():
        if frame is not None:
            bounds = frame.select(
                pl.col("at_ms").min().alias("first"), pl.col("at_ms").max().alias("last"), pl.len().alias("rows")
            ).collect(engine="streaming")
            if bounds["rows"][0]:
                window = Window(int(bounds["first"][0]), int(bounds["last"][0]))
                ground = _ground(name, window, int(bounds["rows"][0]), 0, tables.origins)
                found.append(replace(ground, unseen=_unseen_requests(frame) if name == "requests" else ()))
    return tuple(replace(ground, dropped=tables.dropped) for ground in found)


def _unseen_requests(requests: pl.LazyFrame) -> Unseen:
    return unseen_between(requests.select("at_ms").collect(engine="streaming")["at_ms"].to_numpy())


def _ground(table: str, window: Window, rows: int, tick_ms: int, origins: tuple[RowOrigin, ...]) -> Ground:
    return Ground(
        table=table, start_ms=window.start_ms, end_ms=window.end_ms, rows=rows, tick_ms=tick_ms, origins=origins
    )
