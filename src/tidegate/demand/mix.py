"""How much of the demand is batch, inference or interactive work, in GPU-hours, by hour of the week. Input five.

Must not know: jobs, pods.
"""

from __future__ import annotations

import numpy as np

from tidegate.demand.calendar import block_length
from tidegate.demand.document import MixShare
from tidegate.demand.levels import DRAWS, Track, profile_week
from tidegate.demand.numbers import Unit, estimate, exact, multiply, trimmed
from tidegate.demand.tables import Calendar
from tidegate.model.columns import F64
from tidegate.model.units import HOUR_MS


def measure_mix(
    tracks: dict[str, Track], table_of: dict[str, str], calendar: Calendar, seed: int
) -> tuple[MixShare, ...]:
    """Shares of the kinds; each kind's level is its mean over its own window."""
    weeks = {kind: np.array(profile_week(track, calendar).mean) for kind, track in tracks.items()}
    means = {kind: float(np.nanmean(track.series)) for kind, track in tracks.items()}
    everything = sum(means.values())
    if everything <= 0:
        return ()
    by_hour = np.sum(list(weeks.values()), axis=0)
    draws = {kind: _redraw(track, seed) for kind, track in tracks.items()}
    all_draws = np.sum(list(draws.values()), axis=0)
    found = []
    for kind, track in tracks.items():
        hours = means[kind] * track.window.length_ms / HOUR_MS
        values = draws[kind] / np.maximum(all_draws, 1e-12)
        found.append(
            MixShare(
                kind=kind,
                share=estimate(means[kind] / everything, values, Unit.SHARE, track.samples, table_of[kind]),
                gpu_hours=exact(hours, Unit.GPU_HOURS, track.samples, table_of[kind]),
                week=trimmed(weeks[kind] / np.maximum(by_hour, 1e-12)),
            )
        )
    return tuple(found)


def _redraw(track: Track, seed: int) -> F64:
    """Means with blocks of time drawn again, the same blocks for every kind of the same window."""
    seen = np.isfinite(track.series)
    block = (np.arange(track.series.size) * track.step_ms // block_length(track.window))[seen]
    sums = np.bincount(block, weights=track.series[seen]).astype(np.float64, copy=False)
    counts = np.bincount(block)
    picks = (
        np.random.default_rng(seed)
        .multinomial(sums.size, np.full(sums.size, 1 / sums.size), size=DRAWS)
        .astype(np.float64)
    )
    return np.asarray(multiply(picks, sums) / np.maximum(multiply(picks, counts.astype(np.float64)), 1e-12), np.float64)
