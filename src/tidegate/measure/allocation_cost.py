"""Allocations with their work, their GPUs, and the time that was lost because work was stopped.

In a run with nodes, places are allocated; in a run without nodes, only quota is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.measure.admissions import Admissions, admissions_of
from tidegate.measure.allocations import Allocations, allocations_of
from tidegate.measure.event_joins import NEVER, Marks, WorkloadRows, all_between, first_after
from tidegate.measure.requests import WorkRequests
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import F64, I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import ALL_PODS, FactKind


class LeftOut(NamedTuple):
    """Loops that were found, in columns, a row for each workload in one."""

    number: I64
    order: I64
    left_ms: I64  # 0 where how long a turn takes is not known: then nothing is known of what was left out
    turns: I64
    begins: I64  # the order of the last decision before the turn

    def times(self, number: I64, order: I64) -> I64:
        """How often things came that happened to a workload: once, or with each turn that was left out."""
        return 1 + self._of_turn(self.turns, number, order)

    def later_ms(self, number: I64, order: I64) -> I64:
        """How much later such things came for the last time."""
        return self._of_turn(self.left_ms, number, order)

    def _of_turn(self, column: I64, number: I64, order: I64) -> I64:
        """What a column says of the turn that things were a part of; 0: of none."""
        found, row = first_after(Marks(self.number, self.order, np.arange(len(self.number))), number, order)
        again = (found < NEVER) & (np.append(self.begins, 0)[row] < order)
        values: I64 = np.where(again, np.append(column, 0)[row], 0)
        return values

    def between(self, number: I64, after: I64, until: I64) -> I64:
        """How much time was left out for workloads, after an order and up to another."""
        ordered, first, end = all_between(Marks(self.number, self.order, self.left_ms), number, after, until)
        sums = np.append(0, np.cumsum(ordered.at_ms))
        left: I64 = sums[end] - sums[first]
        return left


def left_out_of(flat: Flat) -> LeftOut:
    """What was left out of a run."""
    found, decisions = flat.facts.of(FactKind.LOOP_FOUND), flat.decisions
    turn_ms, first = found.value.astype(np.int64), found.second_value.astype(np.int64)
    left_ms = np.where(turn_ms > 0, np.maximum(found.arg, 0), 0)
    last = np.searchsorted(decisions.id, first) - 1
    begins = np.where(last >= 0, np.append(decisions.order, 0)[last], -1)
    return LeftOut(found.subject, found.order, left_ms, left_ms // np.maximum(turn_ms, 1), begins)


class HeldAllocations(NamedTuple):
    """Stays and admissions of the workloads that are known."""

    allocations: Allocations
    work: I64  # of each allocation, row of the works
    milli: I64  # GPU milli of each allocation
    lasted_ms: I64  # how long each allocation was, without what was left out meanwhile
    times: I64  # that each allocation came: more than once where turns of a loop were left out
    lost_milli_ms: F64  # held for nothing, because work was stopped in the allocation or at its end
    cut_milli_ms: F64  # the part of it that was lost when the allocation was cut short
    admissions: Admissions
    admitted_milli: I64  # GPU milli that each admission was granted
    left_out: LeftOut


def held_of(flat: Flat, asked: WorkRequests, rows: WorkloadRows, work: I64) -> tuple[HeldAllocations, I64]:
    """What was held in a run, and the work of each workload in the end."""
    placed = _known(rows, allocations_of(flat))
    admissions = admissions_of(flat, placed)
    whole = allocations_of_admissions(admissions)
    known = rows.of(whole.number) >= 0
    allocations = placed if flat.nodes else _known(rows, whole)
    _, of_admission = _works_in_force(flat, rows, work.copy(), _known(rows, whole))
    granted = np.zeros(len(whole.number), np.int64)
    granted[known] = asked.gpu_milli[of_admission]
    granted += _short_milli(admissions, asked, known, of_admission)
    work, of_allocation = _works_in_force(flat, rows, work, allocations)
    milli = asked.milli_of(of_allocation, allocations.pod) if flat.nodes else granted[known]
    left_out = left_out_of(flat)
    every_ms = asked.checkpoint_every_ms[of_allocation]
    before, at_end = (lost.astype(np.float64) for lost in _lost_ms(flat, left_out, allocations, every_ms))
    held = HeldAllocations(
        allocations=allocations,
        work=of_allocation,
        milli=milli,
        lasted_ms=allocations.until_ms
        - allocations.from_ms
        - left_out.between(allocations.number, allocations.order, allocations.end_order),
        times=left_out.times(allocations.number, allocations.end_order),
        lost_milli_ms=(before + at_end) * milli,
        cut_milli_ms=at_end * milli,
        admissions=admissions,
        admitted_milli=granted,
        left_out=left_out,
    )
    return held, work


def _known(rows: WorkloadRows, allocations: Allocations) -> Allocations:
    return Allocations(*(column[rows.of(allocations.number) >= 0] for column in allocations))


def allocations_of_admissions(admissions: Admissions) -> Allocations:
    """Each admission as an allocation of the whole workload, nowhere."""
    nowhere = np.full(len(admissions.number), ALL_PODS, np.int64)
    a = admissions
    return Allocations(a.order, a.number, nowhere, nowhere, a.from_ms, a.until_ms, a.end_order)


def _short_milli(admissions: Admissions, asked: WorkRequests, known: npt.NDArray[np.bool_], work: I64) -> I64:
    """What admissions were granted less than asked for, below zero: pods that were left out."""
    grants, count = admissions.grants, len(admissions.number)
    work_of = np.full(count, -1)
    work_of[known] = work
    sets = max(int(grants.pod_set.max(initial=0)) + 1, 1)
    _, first = np.unique(grants.admission * sets + grants.pod_set, return_index=True)
    first = first[(grants.pod_set[first] >= 0) & (work_of[grants.admission[first]] >= 0)]
    at = asked.first_set[work_of[grants.admission[first]]] + grants.pod_set[first]
    short = np.zeros(count, np.int64)
    np.add.at(short, grants.admission[first], (grants.pods[first] - asked.set_pods[at]) * asked.set_milli[at])
    return short


def _works_in_force(flat: Flat, rows: WorkloadRows, work: I64, allocations: Allocations) -> tuple[I64, I64]:
    """The work of each workload in the end, and of each allocation when it began."""
    of_allocation = work[rows.of(allocations.number)]
    for change in flat.changes:
        row = int(rows.of(np.array([change.number]))[0])
        if row < 0:
            continue
        mine = allocations.number == change.number
        holds = bool((mine & (allocations.order < change.order) & (change.order < allocations.end_order)).any())
        if holds and flat.works[work[row]].pod_sets != flat.works[change.value].pod_sets:
            continue  # what runs keeps its pods, as in the engine
        work[row] = change.value
        of_allocation[mine & (allocations.order > change.order)] = change.value
    return work, of_allocation


def _lost_ms(flat: Flat, left_out: LeftOut, allocations: Allocations, checkpoint_every_ms: I64) -> tuple[I64, I64]:
    """Time of each allocation that was lost: before the work last started again, and when it was cut short.

    Where a stop reports how much work is saved, that counts. Else checkpoints do: work that is saved every hour
    has saved each full hour since it started.
    """
    told = flat.facts.of(FactKind.POD_GONE, FactKind.POD_FAILED)
    told = told.where(told.arg > 0)
    stops, first, last = all_between(told.marks(), allocations.number, allocations.order, allocations.end_order - 1)
    kept, _, end = all_between(
        Marks(told.subject, told.order, told.arg - 1), allocations.number, allocations.order, allocations.end_order
    )
    sums, times_ms = np.append(0, np.cumsum(kept.at_ms)), np.append(stops.at_ms, 0)
    anew = last > first
    begun_ms = np.where(anew, times_ms[last - 1], allocations.from_ms)
    begun = np.where(anew, np.append(stops.order, 0)[last - 1], allocations.order)
    before = begun_ms - allocations.from_ms - (sums[last] - sums[first])
    before -= left_out.between(allocations.number, allocations.order, begun)
    by_rule = np.where(anew, 0, _saved_ms(flat, allocations, checkpoint_every_ms))
    at_end = allocations.until_ms - begun_ms - np.where(end > last, sums[end] - sums[last], by_rule)
    at_end -= left_out.between(allocations.number, begun, allocations.end_order)
    return np.maximum(before, 0), np.where(_is_cut_short(flat, allocations), np.maximum(at_end, 0), 0)


def _is_cut_short(flat: Flat, allocations: Allocations) -> npt.NDArray[np.bool_]:
    """Whether an allocation ended, and neither because its workload finished nor because it was cancelled."""
    facts = flat.facts.of(FactKind.WORKLOAD_FINISHED, FactKind.WORKLOAD_CANCELLED)
    over, _ = first_after(facts.marks(), allocations.number, allocations.order)
    return (allocations.end_order < NEVER) & (allocations.end_order < over)


def _saved_ms(flat: Flat, allocations: Allocations, checkpoint_every_ms: I64) -> I64:
    """Up to where each allocation's work was saved, from its beginning."""
    away = flat.decisions.of(DecisionKind.PREEMPT, DecisionKind.EVICT)
    told, told_ms = first_after(away.marks(), allocations.number, allocations.order)
    worked_until_ms = np.where(
        told < allocations.end_order, np.minimum(told_ms, allocations.until_ms), allocations.until_ms
    )
    runs = flat.facts.of(FactKind.POD_STARTED)
    started, started_ms = first_after(runs.marks(), allocations.number, allocations.order)
    begun_ms = np.where(started < allocations.end_order, started_ms, allocations.from_ms)
    every_ms = np.maximum(checkpoint_every_ms, 1)
    saved_ms = np.where(checkpoint_every_ms > 0, (worked_until_ms - begun_ms) // every_ms * every_ms, 0)
    return np.maximum(saved_ms, 0)
