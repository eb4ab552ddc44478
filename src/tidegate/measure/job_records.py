"""A record of each workload: submission, waits, allocated and busy GPU time, evictions and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tidegate.journal.store import JournalStep
from tidegate.measure.allocation_cost import HeldAllocations, held_of
from tidegate.measure.allocations import Allocations
from tidegate.measure.event_joins import NEVER, NOT_YET, Marks, WorkloadRows, all_between
from tidegate.measure.requests import asked_by
from tidegate.measure.timeline import Flat, lay_flat
from tidegate.model.arrays import F64, I64, U8
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import ALL_PODS, FactKind
from tidegate.model.reasons.catalogue import Reason

__all__ = ["NOT_YET", "Fate", "JobRecords", "collect_job_records", "read_run"]


class Fate(IntEnum):
    """Where a workload was at the end of the run."""

    FINISHED = 0
    RUNNING = 1  # holds a place, if only until it is gone
    WAITING = 2
    REJECTED = 3
    CANCELLED = 4


class JobRecords(NamedTuple):
    """One row a workload, by its number."""

    start_ms: int  # of the run
    end_ms: int
    queues: tuple[str, ...]
    ids: list[str]
    number: I64
    queue: I64  # row of the queues
    kind: I64  # row of KINDS
    priority: I64
    pods: I64
    gpu_milli: I64  # that it asks for
    submitted_ms: I64
    first_placed_ms: I64  # NOT_YET: never
    started_ms: I64  # when the last of its pods first ran; NOT_YET: never, or not reported
    finished_ms: I64
    over_ms: I64  # finished, rejected or cancelled; the end of the run for those that are not over
    fate: U8
    waited_ms: I64  # without a place, in all; of those that wait still, until the end of the run
    held_milli_ms: F64  # GPU milli x ms that it held, used or not: in a century more than 63 bits hold
    busy_gpu_ms: F64  # GPU-ms observed busy
    observed_gpu_ms: F64  # GPU-ms of which it is known whether they were busy
    evictions: I64
    preemptions: I64  # evictions in favour of another workload
    lost_milli_ms: F64  # held in allocations that were cut short, less what was saved by checkpoints


def collect_job_records(steps: Iterable[JournalStep]) -> JobRecords:
    """The lives in a journal."""
    return read_run(lay_flat(steps))[0]


def read_run(flat: Flat) -> tuple[JobRecords, HeldAllocations]:
    """The lives in a run that was laid flat, and what was held in it."""
    asked = asked_by(flat.works, _queue_names(flat))
    number, first = np.unique(flat.submitted.number, return_index=True)  # the first submission counts
    rows = WorkloadRows(number)
    held, work = held_of(flat, asked, rows, flat.submitted.work[first])
    allocations, ends = held.allocations, _ends_of(flat, rows)
    submitted_ms = flat.submitted.submitted_ms[first]
    busy_gpu_ms, observed_gpu_ms = _use_of(flat, rows, held)
    lives = JobRecords(
        start_ms=flat.start_ms,
        end_ms=flat.end_ms,
        queues=asked.queues,
        ids=[flat.submitted.ids[at] for at in first.tolist()],
        number=number,
        queue=asked.queue[work],
        kind=asked.kind[work],
        priority=asked.priority[work],
        pods=asked.pods[work],
        gpu_milli=asked.gpu_milli[work],
        submitted_ms=submitted_ms,
        first_placed_ms=rows.first(allocations.number, allocations.from_ms),
        started_ms=_started_ms(flat, rows, asked.pods[work]),
        finished_ms=np.where(ends.fate == Fate.FINISHED, ends.over_ms, NOT_YET),
        over_ms=ends.over_ms,
        fate=_fates(ends, rows, allocations),
        waited_ms=np.maximum(ends.over_ms - submitted_ms - _holding_ms(ends, rows, held), 0),
        held_milli_ms=rows.totals(allocations.number, held.lasted_ms.astype(np.float64) * held.milli * held.times),
        busy_gpu_ms=busy_gpu_ms,
        observed_gpu_ms=observed_gpu_ms,
        evictions=_evictions(flat, rows, held, DecisionKind.PREEMPT, DecisionKind.EVICT),
        preemptions=_evictions(flat, rows, held, DecisionKind.PREEMPT),
        lost_milli_ms=rows.totals(allocations.number, held.lost_milli_ms * held.times),
    )
    return lives, held


def _queue_names(flat: Flat) -> dict[str, str]:
    """The queue behind every other name that work is submitted to."""
    return {entrance.id: entrance.queue for told in flat.policies for entrance in told.value.shares.entrances}


# -- how it ended ----------------------------------------------------------------------------------------------


class _Ends(NamedTuple):
    fate: I64  # of those that are over; WAITING for all others
    over_ms: I64  # the end of the run for those that are not over


def _ends_of(flat: Flat, rows: WorkloadRows) -> _Ends:
    finished = flat.facts.of(FactKind.WORKLOAD_FINISHED)
    cancelled = flat.facts.of(FactKind.WORKLOAD_CANCELLED)
    rejected = flat.decisions.of(DecisionKind.REJECT)
    fate = np.full(len(rows.number), int(Fate.WAITING))
    over_ms = np.full(len(rows.number), flat.end_ms)
    for end, numbers, at_ms in (
        (Fate.CANCELLED, cancelled.subject, cancelled.at_ms),
        (Fate.REJECTED, rejected.workload, rejected.now_ms),
        (Fate.FINISHED, finished.subject, finished.at_ms),  # last: it may finish after it was cancelled
    ):
        first = rows.first(numbers, at_ms)
        fate = np.where(first >= 0, int(end), fate)
        over_ms = np.where(first >= 0, first, over_ms)
    return _Ends(fate, over_ms)


def _fates(ends: _Ends, rows: WorkloadRows, allocations: Allocations) -> U8:
    fate = ends.fate.astype(np.uint8)
    holding = rows.of(allocations.number[allocations.end_order == NEVER])
    fate[holding[fate[holding] == Fate.WAITING]] = Fate.RUNNING
    return fate


# -- how it spent its time -------------------------------------------------------------------------------------


def _holding_ms(ends: _Ends, rows: WorkloadRows, held_in: HeldAllocations) -> I64:
    """How long each held a place: a gang from its PLACE until its last pod was gone."""
    allocations = held_in.allocations
    row, from_ms = rows.of(allocations.number), allocations.until_ms - held_in.lasted_ms
    until_ms = np.minimum(allocations.until_ms, ends.over_ms[row])
    order = np.lexsort((from_ms, row))
    row, from_ms, until_ms, times = row[order], from_ms[order], until_ms[order], held_in.times[order]
    held = np.zeros(len(rows.number), np.int64)
    if len(row):
        heads = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(from_ms, prepend=-1))
        last_ms = np.maximum.reduceat(until_ms, heads)
        np.add.at(held, row[heads], np.maximum(last_ms - from_ms[heads], 0) * times[heads])
    return held


def _use_of(flat: Flat, rows: WorkloadRows, held: HeldAllocations) -> tuple[F64, F64]:
    """GPU-ms that each was seen busy, and seen at all; in turns that were left out as in the one that was not."""
    use, allocations = flat.facts.of(FactKind.USE_OBSERVED), held.allocations
    busy, observed = (rows.totals(use.subject, values) for values in (use.value, use.second_value))
    again = np.flatnonzero(held.times > 1)
    if not len(again):
        return busy, observed
    _, one = np.unique(np.stack([allocations.number[again], allocations.from_ms[again]]), axis=1, return_index=True)
    again = again[one]  # use is reported of a gang as a whole
    number, more = allocations.number[again], held.times[again] - 1
    marks = Marks(use.subject, use.order, np.arange(len(use.order)))
    told, begin, end = all_between(marks, number, allocations.order[again], allocations.end_order[again])
    for total, values in ((busy, use.value), (observed, use.second_value)):
        sums = np.append(0.0, np.cumsum(values[told.at_ms]))
        total[:] += rows.totals(number, (sums[end] - sums[begin]) * more)
    return busy, observed


def _started_ms(flat: Flat, rows: WorkloadRows, pods: I64) -> I64:
    """When each first ran with all its pods; worlds tell it of the whole or pod by pod."""
    told = flat.facts.of(FactKind.POD_STARTED)
    whole = told.pod == ALL_PODS
    started_ms = rows.first(told.subject[whole], told.at_ms[whole])
    if whole.all():
        return started_ms
    single = told.where(~whole & (rows.of(told.subject) >= 0))
    pairs = np.stack([rows.of(single.subject), single.pod.astype(np.int64)])
    (row, _), first = np.unique(pairs, axis=1, return_index=True)
    last_ms = np.full(len(pods), NOT_YET)
    np.maximum.at(last_ms, row, single.at_ms[first])
    complete = (np.bincount(row, minlength=len(pods)) >= pods) & (started_ms == NOT_YET)
    return np.where(complete, last_ms, started_ms)


def _evictions(flat: Flat, rows: WorkloadRows, held: HeldAllocations, *kinds: DecisionKind) -> I64:
    """How often each was evicted; cancellations do not count."""
    away = flat.decisions.of(*kinds)
    times = held.left_out.times(away.workload, away.order)
    return rows.sums(away.workload, np.where(away.code != Reason.CANCELLED, times, 0))
