"""Decisions of the engine, in columns: one row per decision, with its reason and its cause."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tidegate.model.arrays import I16, I32, I64, U8

#: No workload, pod, node or cause.
NOBODY = -1


class DecisionKind(IntEnum):
    """Kinds of decisions. A number is never used again for something else."""

    ADMIT = 0
    PLACE = 1  # one row a pod
    HOLD = 2  # not yet; written when the reason changes
    PREEMPT = 3
    EVICT = 4
    RELEASE = 5  # an assumed place is released, or a workload ends because another replaces it
    REJECT = 12
    ASSIGN = 13  # pods of a set go to a domain of the topology; one row a domain


class DecisionBatch(NamedTuple):
    """Decisions in columns, in the order they were made."""

    id: I64
    kind: U8
    workload: I64  # number
    pod: I32  # ordinal
    node: I64  # number
    devices: I64  # bit mask
    code: I16  # Reason
    evidence: I64  # (n, 4); the reason names them
    cause: I64  # id of the decision, or number of the workload, that caused it; the reason says which


class RefusalCounts(NamedTuple):
    """Why nodes refused the pods of a HOLD: how many nodes for which reason."""

    decision: I64  # id of the HOLD
    code: I16
    nodes: I32


class StepResult(NamedTuple):
    """The result of one step."""

    decisions: DecisionBatch
    tally: RefusalCounts
    next_wake_ms: int | None
    cycles: int  # that ran, one that found nothing to do included


def _no_decisions() -> DecisionBatch:
    none = np.zeros(0, np.int64)
    return DecisionBatch(
        none,
        np.zeros(0, np.uint8),
        none,
        np.zeros(0, np.int32),
        none,
        none,
        np.zeros(0, np.int16),
        np.zeros((0, 4), np.int64),
        none,
    )


NO_DECISIONS = _no_decisions()
NO_REFUSALS = RefusalCounts(np.zeros(0, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int32))


def join_decisions(batches: list[DecisionBatch]) -> DecisionBatch:
    """One batch after the other."""
    batches = [batch for batch in batches if len(batch.id)]
    if not batches:
        return NO_DECISIONS
    if len(batches) == 1:
        return batches[0]
    return DecisionBatch(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))


def pick_decisions(batch: DecisionBatch, rows: I64) -> DecisionBatch:
    """Some rows of a batch."""
    columns = (column[rows] for column in batch)
    return DecisionBatch._make(columns)


def pick_tallies(tally: RefusalCounts, decisions: I64) -> RefusalCounts:
    """The tallies of some decisions."""
    rows = np.flatnonzero(np.isin(tally.decision, decisions))
    return RefusalCounts._make(column[rows] for column in tally)


def join_tallies(tallies: list[RefusalCounts]) -> RefusalCounts:
    """One tally after the other."""
    tallies = [tally for tally in tallies if len(tally.decision)]
    if not tallies:
        return NO_REFUSALS
    return RefusalCounts(*(np.concatenate(columns) for columns in zip(*tallies, strict=True)))
