"""Measures each group of jobs: concurrency, queue depth, bursts, tolerance and mix. Inputs one to five."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tidegate.demand.arrivals import ArrivalStats, measure_by_group
from tidegate.demand.bursts import ceilings, find_bursts
from tidegate.demand.censoring import State
from tidegate.demand.concurrency import MOST_EXACT, Moments, Spans, TickTally, curves_of
from tidegate.demand.concurrency_stats import Levels, Track, coarser, measure_levels, profile_week, track_curve
from tidegate.demand.estimate import How, Number, Unit, at_least, at_most, estimate, exact, trimmed
from tidegate.demand.forecast_report import Outlook, look_ahead
from tidegate.demand.group_keys import RunAll, one_by_one
from tidegate.demand.grouped_quantiles import Grouping
from tidegate.demand.job_table import (
    ENDED,
    LEFT,
    OVER,
    STARTED,
    SUBMITTED,
    JobRows,
    JobTable,
    join_rows,
    seen_moments,
    seen_spans,
    starts_known,
    waiting_spans,
    wanted_moments,
    wanted_spans,
)
from tidegate.demand.model import DemandGroup, GroupScope, MixShare
from tidegate.demand.step_curve import StepCurve, Window
from tidegate.demand.time_zone import Calendar
from tidegate.demand.tolerance import (
    Broken,
    MeasuredTolerance,
    ObservedWaits,
    ToleranceBasis,
    find_breaking_depth,
    gather_waits,
    measure_tolerance,
    sort_waits,
    waited_until_ms,
)
from tidegate.demand.unrecorded import Unseen
from tidegate.model.arrays import F64, I32, I64
from tidegate.model.units import HOUR_MS
from tidegate.stats.blocks import linear_interval

#: Jobs of a group whose wait is compared with what waited before them.
_MOST_COMPARED = 200_000


class Setting(NamedTuple):
    """What all groups have in common."""

    calendar: Calendar
    cold_start_ms: int | None
    seed: int
    run_all: RunAll = one_by_one
    unseen: Unseen = ()  # when nothing was recorded


class MeasuredGroups(NamedTuple):
    """Groups, and what else is read off their wanted levels over time."""

    groups: tuple[DemandGroup, ...]
    window: Window
    mix: tuple[MixShare, ...]
    outlook: Outlook | None
    tick_ms: int  # to which times were rounded, for the total; 0: not at all


class _Moments(NamedTuple):
    """Moments that are followed together, and the spans between them."""

    kinds: tuple[int, ...]
    read: Callable[[JobRows, Window], dict[int, Moments]]
    spans: tuple[Callable[[JobRows, Window], Spans], ...]


_WANTED = _Moments((SUBMITTED, OVER), wanted_moments, (wanted_spans,))
_SEEN = _Moments((STARTED, ENDED, LEFT), seen_moments, (seen_spans, waiting_spans))


class _Scoped(NamedTuple):
    """What the members of one scope have."""

    scope: GroupScope
    names: tuple[str, ...]
    label: I32  # of each cell
    counts: I64
    hours: F64
    waits: list[list[ObservedWaits]]  # of each member, in parts
    arrivals: list[ArrivalStats | None]


class _Curves(NamedTuple):
    """Curves by scope and row; None: starts were not recorded, or for waits submissions."""

    wanted: dict[str, list[StepCurve]]
    seen: dict[str, list[StepCurve]] | None
    waiting: dict[str, list[StepCurve]] | None


def survey(jobs: JobTable, window: Window, unseen: Unseen) -> list[Callable[[], Any]]:
    """What has to go through all jobs, each call once: `measure_groups` asks for what they give, in this order."""
    return [
        partial(measure_by_group, jobs, [_grouping(jobs, scope) for scope in _scopes(jobs)], window, unseen),
        partial(sort_waits, jobs),
        *(partial(_follow, jobs, window, moments) for moments in _moments(jobs)),
    ]


def measure_groups(jobs: JobTable, window: Window, surveyed: Sequence[Any], setting: Setting) -> MeasuredGroups:
    """All groups of the jobs: everything, kinds, queues, GPU models."""
    arrivals, waits, *followed = surveyed
    curves = _join(jobs, followed)
    if not jobs.recorded.submissions:
        curves = curves._replace(waiting=None)
    members = [
        (scoped, row) for scoped in _scoped(jobs, arrivals, waits) for row in np.flatnonzero(scoped.counts).tolist()
    ]
    tracks = setting.run_all([partial(_track, curves, *member, setting) for member in members])
    calls = [
        partial(_measure, jobs, member, (curves, track), setting) for member, track in zip(members, tracks, strict=True)
    ]
    total = tracks[0]
    by_kind = {
        scoped.names[row]: track
        for (scoped, row), track in zip(members, tracks, strict=True)
        if scoped.scope is GroupScope.KIND
    }
    tick_ms = int(curves.wanted[GroupScope.TOTAL][0].width_ms[0]) if len(jobs) > MOST_EXACT else 0
    look = partial(look_ahead, "wanted", Unit.GPUS, total.series, total.step_ms, window.end_ms)
    outlook, mix, *groups = setting.run_all([look, partial(_mix, by_kind, setting), *calls])
    return MeasuredGroups(tuple(groups), window, mix, outlook, tick_ms)


def _mix(by_kind: dict[str, Track], setting: Setting) -> tuple[MixShare, ...]:
    tracks = {kind: track for kind, track in by_kind.items() if np.nansum(track.series) > 0}
    return measure_mix(tracks, setting.calendar)


def _moments(jobs: JobTable) -> tuple[_Moments, ...]:
    return (_WANTED, _SEEN) if starts_known(jobs) else (_WANTED,)


def _follow(jobs: JobTable, window: Window, moments: _Moments) -> TickTally | list[dict[str, list[StepCurve]]]:
    """Where very many jobs begin and end, in ticks; of fewer, their curves."""
    if len(jobs) <= MOST_EXACT:
        rows = jobs.whole()
        return [curves_of(make(rows, window), jobs.cells, window) for make in moments.spans]
    tally = TickTally(moments.kinds, jobs.cells, window)
    for rows in jobs.parts():
        tally.add(moments.read(rows, window))
    return tally


def _join(jobs: JobTable, followed: Sequence[Any]) -> _Curves:
    if len(jobs) <= MOST_EXACT:
        wanted, *others = (curves for some in followed for curves in some)
        return _Curves(wanted, *(others or (None, None)))
    tally, *more = followed
    for other in more:
        tally.join(other)
    return _Curves(
        tally.between(SUBMITTED, OVER),
        tally.between(STARTED, ENDED) if more else None,
        tally.between(SUBMITTED, STARTED, LEFT) if more else None,
    )


def _scopes(jobs: JobTable) -> list[GroupScope]:
    """Scopes that were recorded."""
    return [
        scope
        for scope in GroupScope
        if scope not in {GroupScope.QUEUE, GroupScope.GPU} or jobs.names[scope] not in {(), ("",)}
    ]


def _names(jobs: JobTable, scope: GroupScope) -> tuple[str, ...]:
    return ("",) if scope is GroupScope.TOTAL else jobs.names[scope]


def _label(jobs: JobTable, scope: GroupScope) -> I32:
    return np.zeros(jobs.cells.amount.size, np.int32) if scope is GroupScope.TOTAL else jobs.cells.labels[scope]


def _grouping(jobs: JobTable, scope: GroupScope) -> Grouping:
    return Grouping(_label(jobs, scope).astype(np.int64), len(_names(jobs, scope)))


def _scoped(jobs: JobTable, arrivals: list[list[ArrivalStats | None]], waits: list[ObservedWaits]) -> Iterator[_Scoped]:
    """Scopes with their members."""
    for scope, arrived in zip(_scopes(jobs), arrivals, strict=True):
        names, label = _names(jobs, scope), _label(jobs, scope)
        yield _Scoped(
            scope,
            names,
            label,
            np.bincount(label, weights=jobs.cell_jobs, minlength=len(names)).astype(np.int64),
            np.bincount(label, weights=jobs.cell_gpu_hours, minlength=len(names)).astype(np.float64),
            [[one for one in waits if one.belongs(scope, row)] for row in range(len(names))],
            arrived,
        )


def _track(curves: _Curves, of: _Scoped, row: int, setting: Setting) -> Track:
    return track_curve(curves.wanted[of.scope][row], int(of.counts[row]), setting.unseen)


def _measure(jobs: JobTable, member: tuple[_Scoped, int], made: tuple[_Curves, Track], setting: Setting) -> DemandGroup:
    (of, row), (curves, track) = member, made
    count = int(of.counts[row])
    levels = measure_levels(track, Unit.GPUS, "jobs", setting.calendar)
    patience = measure_tolerance(gather_waits(of.waits[row]), count)
    waiting = curves.waiting[of.scope][row] if curves.waiting else None
    return DemandGroup(
        scope=of.scope,
        name=of.names[row],
        jobs=count,
        gpu_hours=_hours(jobs, of, row),
        wanted=levels,
        seen=_levels(curves.seen[of.scope][row] if curves.seen else None, count, setting),
        waiting=_levels(waiting, count, setting, of_queue=True),
        broken=_broken(jobs, of, row, waiting, patience),
        arrivals=of.arrivals[row],
        bursts=find_bursts(curves.wanted[of.scope][row], levels.p95.value, setting.cold_start_ms, Unit.GPUS, "jobs"),
        ceilings=ceilings(track.series, track.step_ms, (Unit.GPUS, Unit.GPU_HOURS), HOUR_MS),
        tolerance=patience,
    )


def _levels(curve: StepCurve | None, count: int, setting: Setting, *, of_queue: bool = False) -> Levels | None:
    if curve is None:
        return None
    return measure_levels(track_curve(curve, count, setting.unseen), Unit.GPUS, "jobs", None, of_queue=of_queue)


def _broken(
    jobs: JobTable, of: _Scoped, row: int, queue: StepCurve | None, patience: MeasuredTolerance
) -> Broken | None:
    """Where the depth breaks tolerance; one that was read off the waits themselves, or a bound, cannot be broken.

    Jobs that came less than the tolerance before the end, or gave up within it, may be late or not: they do not count.
    """
    told, accepted = patience.tolerated, patience.basis is ToleranceBasis.ACCEPTED
    if queue is None or told is None or accepted or told.how is How.AT_LEAST:
        return None
    some = _some(jobs, of, row)
    over_ms = waited_until_ms(some, jobs.watch)
    waited = over_ms - some.submitted_ms
    known = (over_ms >= 0) & ((some.started_ms >= 0) | (waited > told.value))
    if (some.state == State.WAITS).any():
        known &= some.submitted_ms + told.value <= jobs.watch.until_ms
    return find_breaking_depth(some.submitted_ms[known], waited[known], queue, told.value)


def _some(jobs: JobTable, of: _Scoped, row: int) -> JobRows:
    """Jobs of a group: all, or of very many every so-manieth."""
    every = max(1, -(-int(of.counts[row]) // _MOST_COMPARED))
    mine, before, found = of.label == row, 0, []
    for rows in jobs.parts():
        at = np.flatnonzero(mine[rows.cell])
        found.append(rows.take(at[-before % every :: every]))
        before += at.size
    return join_rows(found)


def _hours(jobs: JobTable, of: _Scoped, row: int) -> Number:
    """GPU-hours of a group; where some of its jobs are not over, at least those that were seen."""
    count, hours = int(of.counts[row]), float(of.hours[row])
    counted, mine = exact(hours, Unit.GPU_HOURS, count, "jobs"), of.label == row
    if not jobs.recorded.runtimes:
        return at_most(counted)
    open_jobs = "state" in jobs.frame.columns  # else all of them are over
    some = open_jobs and any((mine[rows.cell] & (rows.state != State.OVER)).any() for rows in jobs.parts())
    return at_least(counted) if some else counted


def measure_mix(tracks: dict[str, Track], calendar: Calendar) -> tuple[MixShare, ...]:
    """Shares of the kinds, all seen in one window."""
    weeks = {kind: np.array(profile_week(track, calendar).mean) for kind, track in tracks.items()}
    means = {kind: float(np.nanmean(track.series)) for kind, track in tracks.items()}
    everything = sum(means.values())
    if everything <= 0:
        return ()
    by_hour = np.sum(list(weeks.values()), axis=0)
    units = {kind: np.nan_to_num(coarser(track).by_unit()) for kind, track in tracks.items()}
    all_units = np.sum(list(units.values()), axis=0)
    found = []
    for kind, track in tracks.items():
        hours, part = float((track.held.time_ms * track.held.value).sum()) / HOUR_MS, means[kind] / everything
        effects = (units[kind] - part * all_units) / max(float(all_units.sum()), 1e-12)
        interval, _ = linear_interval(part, effects)
        found.append(
            MixShare(
                kind=kind,
                share=estimate(part, interval, Unit.SHARE, (track.samples, "jobs"), How.BLOCKS),
                gpu_hours=exact(hours, Unit.GPU_HOURS, track.samples, "jobs"),
                week=trimmed(weeks[kind] / np.maximum(by_hour, 1e-12)),
            )
        )
    return tuple(found)
