"""Decisions as kernels write them, turned into the batch that leaves the engine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.gang_placement import Output
from tidegate.engine.place_reservations import drop_reservations
from tidegate.engine.quota_reservations import forget_reservations
from tidegate.model.arrays import I64
from tidegate.model.decisions import NO_REFUSALS, NOBODY, DecisionBatch, DecisionKind, RefusalCounts
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState, Counter


def drain(state: ClusterState, out: Output, seen: ClusterState | None = None) -> tuple[DecisionBatch, RefusalCounts]:
    """The decisions written, with ids and numbers; rows of rejected workloads are released.

    `seen` is the state in which reasons to wait were found, if it is a copy.
    """
    written = out.rows[: out.written[0]]
    rows = written[:, decision_columns.WORKLOAD]
    batch = batch_of(state, written, state.workloads.number[rows])
    tally = _tally_of(seen or state, batch.kind == DecisionKind.HOLD, batch.id, batch.evidence)
    rejected = rows[batch.kind == DecisionKind.REJECT]
    if len(rejected):
        drop_reservations(state, rejected)
        forget_reservations(state, rejected)
        state.forget_workloads(rejected)
    return batch, tally


def batch_of(state: ClusterState, written: I64, numbers: I64) -> DecisionBatch:
    """The decisions that kernels wrote about workloads of these numbers, with ids."""
    first = int(state.counters[Counter.NEXT_DECISION])
    state.counters[Counter.NEXT_DECISION] += len(written)
    return DecisionBatch(
        id=np.arange(first, first + len(written), dtype=np.int64),
        kind=written[:, decision_columns.KIND].astype(np.uint8),
        workload=numbers.copy(),
        pod=written[:, decision_columns.POD].astype(np.int32),
        node=_numbers(state, written[:, decision_columns.NODE]),
        devices=written[:, decision_columns.DEVICES].copy(),
        code=written[:, decision_columns.CODE].astype(np.int16),
        evidence=written[:, decision_columns.EVIDENCE :].copy(),
        cause=written[:, decision_columns.CAUSE].copy(),
    )


def _numbers(state: ClusterState, rows: I64) -> I64:
    numbers = np.full(len(rows), NOBODY, np.int64)
    numbers[rows >= 0] = state.nodes.number[rows[rows >= 0]]
    return numbers


def _tally_of(state: ClusterState, holds: npt.NDArray[np.bool_], ids: I64, evidence: I64) -> RefusalCounts:
    """Why nodes were refused, for each HOLD whose last number names a pod class; that number is then cleared."""
    at = np.flatnonzero(holds & (evidence[:, 3] > 0))
    if not len(at):
        return NO_REFUSALS
    tallies = state.scores().tally[evidence[at, 3] - 1]
    evidence[at, 3] = 0
    row, code = np.nonzero(tallies)
    keep = code > 0
    row, code = row[keep], code[keep]
    return RefusalCounts(ids[at[row]], code.astype(np.int16), tallies[row, code].astype(np.int32))


def single(state: ClusterState, kind: DecisionKind, row: int, code: Reason, cause: int = NOBODY) -> DecisionBatch:
    """One decision about a whole workload."""
    number = int(state.counters[Counter.NEXT_DECISION])
    state.counters[Counter.NEXT_DECISION] += 1
    return DecisionBatch(
        id=np.array([number], np.int64),
        kind=np.array([kind], np.uint8),
        workload=state.workloads.number[row : row + 1].copy(),
        pod=np.full(1, NOBODY, np.int32),
        node=np.full(1, NOBODY, np.int64),
        devices=np.zeros(1, np.int64),
        code=np.array([code], np.int16),
        evidence=np.zeros((1, 4), np.int64),
        cause=np.array([cause], np.int64),
    )
