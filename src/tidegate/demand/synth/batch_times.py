"""Times of batches, such that together they ask for as much at once as the model says.

A path of the level is drawn first. Then batches are placed, the largest first: each takes, of a few likely times, the
one with the most room under the path. Small batches come at random.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import F64, I64

#: Points of the path.
POINTS = 2048

#: Times that a batch may choose from, and batches that may choose.
_CHOICES, _MOST_CHOOSING = 24, 20_000


class LevelRoom(NamedTuple):
    """What is to be filled, and what is already asked for: GPUs at even points of the window."""

    target: F64
    load: F64
    length_ms: int


class Footprints(NamedTuple):
    """What batches ask for, as a height for a time."""

    gpus: F64
    length_ms: F64


def room_for(target: F64, length_ms: int) -> LevelRoom:
    """An empty room under a path of levels."""
    at = np.linspace(0, target.size - 1, POINTS)
    return LevelRoom(np.interp(at, np.arange(target.size), target), np.zeros(POINTS), length_ms)


def footprints_of(batch: I64, gpus: F64, took_ms: F64) -> Footprints:
    """Each batch as one rectangle with its work and its usual length."""
    work = np.bincount(batch, weights=gpus * took_ms)
    length = np.bincount(batch, weights=gpus * took_ms * took_ms) / np.maximum(work, 1e-9)
    return Footprints(work / np.maximum(length, 1e-9), length)


def place_batches(room: LevelRoom, prints: Footprints, likely: F64, generator: np.random.Generator) -> F64:
    """When each batch comes, in milliseconds from the start; `likely` is how likely each hour is. Fills the room."""
    count = prints.gpus.size
    tops = np.concatenate(([0.0], np.cumsum(likely)))
    hours = np.linspace(0.0, room.length_ms, tops.size)
    choices = np.interp(generator.random((count, _CHOICES)) * tops[-1], tops, hours)
    at: F64 = choices[:, 0].copy()
    order = np.argsort(-(prints.gpus * prints.length_ms), kind="stable")
    step = room.length_ms / POINTS
    for row in order[:_MOST_CHOOSING].tolist():
        at[row] = _choose(room, choices[row], float(prints.gpus[row]), float(prints.length_ms[row]), step)
    return at


def _choose(room: LevelRoom, choices: F64, gpus: float, length_ms: float, step: float) -> float:
    """The time at which the room lies lowest below its target, for as long as the batch stays."""
    first = np.minimum((choices / step).astype(np.int64), POINTS - 1)
    last = np.minimum(((choices + length_ms) / step).astype(np.int64), POINTS - 1)
    over = np.concatenate(([0.0], np.cumsum(room.load - room.target)))
    best = int(np.argmin((over[last + 1] - over[first]) / (last + 1 - first)))
    begin, end = int(first[best]), int(last[best])
    part = min(length_ms, room.length_ms - choices[best]) / step / (end + 1 - begin)
    room.load[begin : end + 1] += gpus * min(part, 1.0)
    return float(choices[best])
