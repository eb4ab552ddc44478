"""Preemptions: victim, beneficiary, and the work that was lost."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.measure.allocation_cost import HeldAllocations
from tidegate.measure.event_joins import NEVER, WorkloadRows, first_after
from tidegate.measure.job_records import JobRecords
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import F64, I64
from tidegate.model.decisions import DecisionKind


class Preemptions(NamedTuple):
    """Preemptions in columns, in the order they were decided; rows are those of the lives."""

    order: I64
    at_ms: I64
    last_ms: I64  # when it came for the last time
    code: I64  # Reason
    victim: I64
    cause: I64  # for whom; -1: not known
    lost_milli_ms: F64  # work of the victim that must be done again, in all
    times: I64  # that it came: more than once where turns of a loop were left out

    def where(self, wanted: npt.NDArray[np.bool_]) -> Preemptions:
        """Some of the rows."""
        columns: list[Any] = [column[wanted] for column in self]
        return Preemptions(*columns)


def preemptions_of(flat: Flat, lives: JobRecords, held: HeldAllocations) -> Preemptions:
    """Every preemption of a run."""
    told, allocations, rows = flat.decisions.of(DecisionKind.PREEMPT), held.allocations, WorkloadRows(lives.number)
    order, _ = first_after(told.marks(), allocations.number, allocations.order)
    ended = (order < allocations.end_order) & (allocations.end_order < NEVER)
    lost = np.zeros(len(told.order), np.float64)
    np.add.at(lost, np.searchsorted(told.order, order[ended]), (held.cut_milli_ms * held.times)[ended])
    known = rows.of(told.workload) >= 0
    return Preemptions(
        order=told.order,
        at_ms=told.now_ms,
        last_ms=told.now_ms + held.left_out.later_ms(told.workload, told.order),
        code=told.code.astype(np.int64),
        victim=rows.of(told.workload),
        cause=rows.of(told.cause),
        lost_milli_ms=lost,
        times=held.left_out.times(told.workload, told.order),
    ).where(known)
