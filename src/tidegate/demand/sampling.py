"""Samples of many things, taken at different times, as one level in even steps.

A sample holds until the next one of the same thing; the last one for as long as it stands for. So a sample that is a
second late doubles nothing, and things that are sampled less often count in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64

#: A sample that comes later than this, in usual times between two, does not follow the one before: what lies between
#: them was not seen.
_MOST_LATE = 1.5

#: Samples of one thing that lie no further apart than this part of the usual time are of one look, at several of its
#: GPUs.
ONE_LOOK = 0.1


class TimedSamples(NamedTuple):
    """What was sampled of which thing, when, and how long each stands for; in any order."""

    thing: I64
    at_ms: I64
    every_ms: I64


class SampleGrid(NamedTuple):
    """Even steps of time."""

    start_ms: int
    step_ms: int
    steps: int


def grid_of(samples: TimedSamples) -> SampleGrid:
    """Steps as long as most samples stand for."""
    step_ms, start_ms = max(int(np.median(samples.every_ms)), 1), int(samples.at_ms.min())
    return SampleGrid(start_ms, step_ms, (int(samples.at_ms.max()) - start_ms) // step_ms + 1)


def held_at(samples: TimedSamples, values: list[I64], grid: SampleGrid, one_look: float = 0.0) -> list[F64]:
    """The sum over all things of what was seen last of each, at the start of every step; NaN where nothing was."""
    order = np.lexsort((samples.at_ms, samples.thing))
    begin, end = _lasts(TimedSamples(*(column[order] for column in samples)), one_look)
    rows = [np.clip(-(-(edge - grid.start_ms) // grid.step_ms), 0, grid.steps) for edge in (begin, end)]
    count = _levels(np.ones(order.size, np.int64), rows, grid.steps)
    return [np.where(count > 0, _levels(one[order], rows, grid.steps), np.nan) for one in values]


def _lasts(samples: TimedSamples, one_look: float) -> tuple[I64, I64]:
    """From when to when each sample holds, of samples in order of their things and times."""
    thing, at_ms, every_ms = samples
    another = np.diff(thing, prepend=-1) != 0
    first = another | (np.diff(at_ms, prepend=0) > one_look * every_ms)
    heads = np.flatnonzero(first)
    look = np.cumsum(first) - 1
    begin, every = at_ms[heads], every_ms[heads]
    follows = np.append(begin[1:], 0)
    same = np.append(~another[heads[1:]], False) & (follows - begin <= _MOST_LATE * every)
    end = np.where(same, follows, begin + every)
    return begin[look], end[look]


def _levels(values: I64, rows: list[I64], steps: int) -> I64:
    """What begins and has not ended yet, at each step."""
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, rows[0], values)
    np.subtract.at(change, rows[1], values)
    return np.cumsum(change)[:-1]
