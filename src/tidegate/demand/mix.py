"""How much of the demand is batch, inference or interactive work, in GPU-hours, by hour of the week. Input five."""

from __future__ import annotations

import numpy as np

from tidegate.demand.concurrency_stats import Track, coarser, profile_week
from tidegate.demand.estimate import How, Unit, estimate, exact, trimmed
from tidegate.demand.model import MixShare
from tidegate.demand.time_zone import Calendar
from tidegate.model.units import HOUR_MS
from tidegate.stats.blocks import linear_interval


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
