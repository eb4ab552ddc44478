"""Random ranks, and random paths with a given memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.demand.calendar import WEEK_HOURS, hour_of_week
from tidegate.demand.concurrency_stats import Levels
from tidegate.demand.distributions import normal_quantile
from tidegate.demand.sketches import draw
from tidegate.demand.step_curve import Window
from tidegate.demand.time_zone import Calendar
from tidegate.model.arrays import F64, I64
from tidegate.model.units import DAY_MS


class Drawn(NamedTuple):
    """What is to be drawn: for which time, and how much of it."""

    window: Window
    calendar: Calendar
    scale: float


def even_ranks(count: int, generator: np.random.Generator) -> F64:
    """Each of `count` even ranks between 0 and 1 once, in random order."""
    return (generator.permutation(count) + 0.5) / max(count, 1)


def ranks_of(keys: F64) -> F64:
    """Even ranks in the order of the keys."""
    return (np.argsort(np.argsort(keys, kind="stable"), kind="stable") + 0.5) / max(keys.size, 1)


def ranks_within(group: I64, alike: float, generator: np.random.Generator) -> F64:
    """Even ranks that members of a group have in common to the given degree."""
    common = generator.standard_normal(int(group.max(initial=0)) + 1)[group]
    own = generator.standard_normal(group.size)
    return ranks_of(np.sqrt(alike) * common + np.sqrt(max(1 - alike, 0.0)) * own)


def wander(steps: int, memory: float, generator: np.random.Generator) -> F64:
    """A stationary path whose deviations last as `memory` says, of variance 1."""
    kept = min(max(memory, 0.0), 0.9999)
    pushes = generator.standard_normal(steps) * np.sqrt(1 - kept * kept)
    pushes[:1] /= np.sqrt(1 - kept * kept)
    path = np.empty(steps)
    level = 0.0
    for row, push in enumerate(pushes.tolist()):
        level = kept * level + push
        path[row] = level
    return path


def draw_path(levels: Levels, drawn: Drawn, generator: np.random.Generator) -> F64:
    """A level over time with the same spread, memory and week."""
    steps = max(drawn.window.length_ms // levels.step_ms, 1)
    week = np.array(levels.week.mean if levels.week else [levels.mean.value] * WEEK_HOURS)
    at_ms = drawn.window.start_ms + np.arange(steps, dtype=np.int64) * levels.step_ms
    season = week[hour_of_week(at_ms, drawn.calendar)]
    part = _seasonal_part(levels, week) if drawn.window.length_ms >= 2 * DAY_MS else 0.0
    own = wander(steps, levels.memory, generator)
    keys = np.sqrt(part) * normal_quantile(ranks_of(season)) + np.sqrt(1 - part) * own
    return draw(levels.sketch, ranks_of(keys)) * drawn.scale


def _seasonal_part(levels: Levels, week: F64) -> float:
    """How much of the variance the hours of the week explain, as far as quantiles tell the variance."""
    spread = (levels.p90.value - levels.p25.value) / 1.956  # normal: from -0.674 to 1.282 deviations
    return min(float(week.var()) / max(spread * spread, 1e-12), 0.9) if spread > 0 else 0.0
