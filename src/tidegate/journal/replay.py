"""Replays a journal: the same facts must give the same decisions, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from tidegate.engine.propose import Shadow
from tidegate.engine.step import step
from tidegate.journal.encoding import pack_result
from tidegate.journal.store import JournalStep
from tidegate.model.decisions import DecisionBatch
from tidegate.state.cluster import ClusterState


class ReplayDifference(NamedTuple):
    """Where a replay first decided otherwise."""

    step: int
    now_ms: int
    row: int  # of the step's decisions; -1: only their tally or the next wake differ
    recorded: tuple[object, ...]  # the decision in the journal; empty: there is none
    replayed: tuple[object, ...]


class Replay(NamedTuple):
    """What came of a replay."""

    steps: int
    state: ClusterState
    difference: ReplayDifference | None


def replay(steps: Iterable[JournalStep], until_ms: int | None = None, *, shadow: bool = False) -> Replay:
    """Run the facts of a journal again, up to a time or the first difference.

    `shadow`: it is the journal of who only watched, and what was decided was not done.
    """
    state = ClusterState()
    take = Shadow(state).step if shadow else partial(step, state)
    count = 0
    for recorded in steps:
        if until_ms is not None and recorded.now_ms > until_ms:
            break
        result = take(recorded.events, recorded.now_ms)
        count += 1
        if pack_result(result) != pack_result(recorded.result):
            found = _first_difference(recorded.result.decisions, result.decisions)
            return Replay(count, state, ReplayDifference(recorded.step, recorded.now_ms, *found))
    return Replay(count, state, None)


def _first_difference(
    recorded: DecisionBatch, replayed: DecisionBatch
) -> tuple[int, tuple[object, ...], tuple[object, ...]]:
    for row in range(max(len(recorded.id), len(replayed.id))):
        was, now = _row(recorded, row), _row(replayed, row)
        if was != now:
            return row, was, now
    return -1, (), ()


def _row(batch: DecisionBatch, row: int) -> tuple[object, ...]:
    if row >= len(batch.id):
        return ()
    return tuple(np.asarray(column[row]).tolist() for column in batch)
