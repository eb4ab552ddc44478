"""The life of every workload: when it came, waited, held GPUs, used them, and how it ended.

Must not know: what makes a life good.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.journal.store import Step
from tidegate.measure.asked import asked_by
from tidegate.measure.seek import NEVER, Marks, first_after, last_before
from tidegate.measure.stays import Stays, stays_of
from tidegate.measure.timeline import Flat, lay_flat
from tidegate.model.columns import F64, I64, U8
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import ALL_PODS, EventKind
from tidegate.model.reasons import Reason

#: A time that has not come.
NOT_YET = -1


class Fate(IntEnum):
    """Where a workload was at the end of the run."""

    FINISHED = 0
    RUNNING = 1  # holds a place, if only until it is gone
    WAITING = 2
    REJECTED = 3
    CANCELLED = 4


class Lives(NamedTuple):
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
    started_ms: I64  # when the last of its pods first ran; NOT_YET: never, or not told
    finished_ms: I64
    fate: U8
    waited_ms: I64  # without a place, in all; of those that wait still, until the end of the run
    held_milli_ms: I64  # GPU milli x ms that it held, used or not
    busy_gpu_ms: F64  # GPU-ms observed busy
    observed_gpu_ms: F64  # GPU-ms of which it is known whether they were busy
    evictions: I64
    lost_milli_ms: I64  # held in stays that were cut short, less what was saved by checkpoints


def collect_lives(steps: Iterable[Step]) -> Lives:
    """The lives in a journal."""
    return lives_of(lay_flat(steps))


def lives_of(flat: Flat) -> Lives:
    """The lives in a run that was laid flat."""
    asked = asked_by(flat.works)
    number, first = np.unique(flat.submitted.number, return_index=True)  # told twice: the first stands
    rows = _Rows(number)
    stays = stays_of(flat)
    stays = Stays(*(column[rows.of(stays.number) >= 0] for column in stays))
    work, work_of_stay = _works_in_force(flat, rows, flat.submitted.work[first], stays)
    milli = asked.milli_of(work_of_stay, stays.pod)
    ends = _ends_of(flat, rows)
    submitted_ms = flat.submitted.submitted_ms[first]
    use = flat.facts.of(EventKind.USE_OBSERVED)
    return Lives(
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
        first_placed_ms=rows.first(stays.number, stays.from_ms),
        started_ms=_started_ms(flat, rows, asked.pods[work]),
        finished_ms=np.where(ends.fate == Fate.FINISHED, ends.over_ms, NOT_YET),
        fate=_fates(ends, rows, stays),
        waited_ms=np.maximum(ends.over_ms - submitted_ms - _holding_ms(ends, rows, stays), 0),
        held_milli_ms=rows.sums(stays.number, milli * (stays.until_ms - stays.from_ms)),
        busy_gpu_ms=rows.totals(use.subject, use.busy_gpu_ms),
        observed_gpu_ms=rows.totals(use.subject, use.observed_gpu_ms),
        evictions=_evictions(flat, rows),
        lost_milli_ms=rows.sums(
            stays.number, _lost_milli_ms(flat, stays, milli, asked.checkpoint_every_ms[work_of_stay])
        ),
    )


class _Rows:
    """From numbers of workloads to rows; what is said about unknown ones is left out."""

    def __init__(self, number: I64) -> None:
        self.number = number

    def of(self, numbers: I64) -> I64:
        """The row of each number, -1 where it is unknown."""
        if not len(self.number):
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        return np.where(self.number[at] == numbers, at, -1)

    def first(self, numbers: I64, values: I64) -> I64:
        """The first value told of each; NOT_YET where there is none."""
        rows = self.of(numbers)
        column = np.full(len(self.number), NOT_YET)
        column[rows[rows >= 0][::-1]] = values[rows >= 0][::-1]  # of equal rows the last one written stays
        return column

    def sums(self, numbers: I64, values: I64) -> I64:
        """The sum of integers for each."""
        rows = self.of(numbers)
        column = np.zeros(len(self.number), np.int64)
        np.add.at(column, rows[rows >= 0], values[rows >= 0])
        return column

    def totals(self, numbers: I64, values: F64) -> F64:
        """The sum of floats for each."""
        rows = self.of(numbers)
        known = rows >= 0
        return np.bincount(rows[known], values[known], len(self.number)).astype(np.float64)


# -- what it asked for -----------------------------------------------------------------------------------------


def _works_in_force(flat: Flat, rows: _Rows, work: I64, stays: Stays) -> tuple[I64, I64]:
    """The work of each workload in the end, and of each stay when it began."""
    of_stay = work[rows.of(stays.number)]
    for change in flat.changes:
        row = int(rows.of(np.array([change.number]))[0])
        if row < 0:
            continue
        mine = stays.number == change.number
        holds = bool((mine & (stays.order < change.order) & (change.order < stays.end_order)).any())
        if holds and flat.works[work[row]].pod_sets != flat.works[change.work].pod_sets:
            continue  # what runs keeps its pods, as in the engine
        work[row] = change.work
        of_stay[mine & (stays.order > change.order)] = change.work
    return work, of_stay


# -- how it ended ----------------------------------------------------------------------------------------------


class _Ends(NamedTuple):
    fate: I64  # of those that are over; WAITING for all others
    over_ms: I64  # the end of the run for those that are not over


def _ends_of(flat: Flat, rows: _Rows) -> _Ends:
    finished = flat.facts.of(EventKind.WORKLOAD_FINISHED)
    cancelled = flat.facts.of(EventKind.WORKLOAD_CANCELLED)
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


def _fates(ends: _Ends, rows: _Rows, stays: Stays) -> U8:
    fate = ends.fate.astype(np.uint8)
    holding = rows.of(stays.number[stays.end_order == NEVER])
    fate[holding[fate[holding] == Fate.WAITING]] = Fate.RUNNING
    return fate


# -- how it spent its time -------------------------------------------------------------------------------------


def _holding_ms(ends: _Ends, rows: _Rows, stays: Stays) -> I64:
    """How long each held a place: a gang from its PLACE until its last pod was gone."""
    row = rows.of(stays.number)
    until_ms = np.minimum(stays.until_ms, ends.over_ms[row])
    order = np.lexsort((stays.from_ms, row))
    row, from_ms, until_ms = row[order], stays.from_ms[order], until_ms[order]
    held = np.zeros(len(rows.number), np.int64)
    if len(row):
        heads = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(from_ms, prepend=-1))
        last_ms = np.maximum.reduceat(until_ms, heads)
        np.add.at(held, row[heads], np.maximum(last_ms - from_ms[heads], 0))
    return held


def _started_ms(flat: Flat, rows: _Rows, pods: I64) -> I64:
    """When each first ran with all its pods; worlds tell it of the whole or pod by pod."""
    told = flat.facts.of(EventKind.POD_STARTED)
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


def _evictions(flat: Flat, rows: _Rows) -> I64:
    """How often each was sent away against its will."""
    away = flat.decisions.of(DecisionKind.PREEMPT, DecisionKind.EVICT)
    return rows.sums(away.workload, (away.code != Reason.CANCELLED).astype(np.int64))


def _lost_milli_ms(flat: Flat, stays: Stays, milli: I64, checkpoint_every_ms: I64) -> I64:
    """What each stay held for nothing, because it was cut short.

    The engine sees no progress, only rules: whoever saves every hour has saved each full hour since it started.
    """
    held_ms = stays.until_ms - stays.from_ms
    return np.where(
        _is_cut_short(flat, stays), milli * np.maximum(held_ms - _saved_ms(flat, stays, checkpoint_every_ms), 0), 0
    )


def _is_cut_short(flat: Flat, stays: Stays) -> npt.NDArray[np.bool_]:
    """Whether a stay ended, and neither because its workload finished nor because it was cancelled."""
    facts = flat.facts.of(EventKind.WORKLOAD_FINISHED, EventKind.WORKLOAD_CANCELLED)
    over, _ = first_after(Marks(facts.subject, facts.order, facts.at_ms), stays.number, stays.order)
    return (stays.end_order < NEVER) & (stays.end_order < over)


def _saved_ms(flat: Flat, stays: Stays, checkpoint_every_ms: I64) -> I64:
    """Up to where each stay's work was saved, from its beginning."""
    away = flat.decisions.of(DecisionKind.PREEMPT, DecisionKind.EVICT)
    told, told_ms = first_after(Marks(away.workload, away.order, away.now_ms), stays.number, stays.order)
    worked_until_ms = np.where(told < stays.end_order, np.minimum(told_ms, stays.until_ms), stays.until_ms)
    runs = flat.facts.of(EventKind.POD_STARTED)
    started, started_ms = first_after(Marks(runs.subject, runs.order, runs.at_ms), stays.number, stays.order)
    begun_ms = np.where(started < stays.end_order, started_ms, stays.from_ms)
    every_ms = np.maximum(checkpoint_every_ms, 1)
    by_rule = np.where(checkpoint_every_ms > 0, (worked_until_ms - begun_ms) // every_ms * every_ms, 0)
    points = flat.facts.of(EventKind.CHECKPOINTED)
    saved, saved_ms = last_before(Marks(points.subject, points.order, points.at_ms), stays.number, stays.end_order)
    is_told = (saved < NEVER) & (saved > stays.order)
    return np.where(is_told, saved_ms - stays.from_ms, np.maximum(by_rule, 0))
