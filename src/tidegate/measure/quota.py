"""Use of quota over time, by queue: used, borrowed, lent, and what was due and not had.

*Due* is what a queue wants within its own quota. All sums are exact: nothing changes between two events.
What a cohort's members borrow is lent by those with unused quota, in proportion to it, cohorts included.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidegate.measure.allocation_cost import HeldAllocations
from tidegate.measure.event_joins import WorkloadRows
from tidegate.measure.job_records import JobRecords
from tidegate.measure.time_series import ClusterSamples
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import F64, I64
from tidegate.model.queues import UNLIMITED, Cohort, Queue, QueueSetup
from tidegate.model.quota_limits import (
    FlavorResource,
    UnbackedQuota,
    UnreachableLimit,
    gpu_milli_of,
    highest_usable,
    supply_of,
    unbacked_quotas,
    unreachable_limits,
)

#: Moments that are looked at together: few steps in Python, and little memory for many queues.
_AT_ONCE = 1 << 14


class Sums(NamedTuple):
    """GPU milli x ms over the run, by queue."""

    quota: F64
    used: F64
    borrowed: F64  # used above the own quota
    lent: F64
    due: F64  # wanted within the own quota
    served: F64  # of what was due
    short_lent: F64  # due and not had, while others had borrowed it
    short_free: F64  # due and not had, while the own quota stood free


class QuotaUse(NamedTuple):
    """How quota was used, in GPUs."""

    queues: tuple[str, ...]
    cohorts: tuple[str, ...]  # of each queue; empty: none
    strict: tuple[bool, ...]
    most_milli: F64  # by queue: the most GPUs that it could ever have in one flavor
    flavors: int  # that GPUs are counted in
    excess: tuple[UnbackedQuota, ...]  # quota that the machines cannot back
    loose: tuple[UnreachableLimit, ...]  # borrowing limits beyond all machines
    sums: Sums
    at_ms: I64  # where bins begin
    used_milli: F64  # (bins, queues): averages over the part of the bin that the run covers
    quota_milli: F64  # (bins, queues)
    due_milli: F64  # (bins, queues): wanted within the own quota
    pool_milli: F64  # (bins,): all quota, that of cohorts included


def quota_use_of(flat: Flat, lives: JobRecords, held: HeldAllocations, every_ms: int) -> QuotaUse | None:
    """How quota was used in a run; None if no quota of GPUs was ever given."""
    shares = [told.value.shares for told in flat.policies]
    lots = sorted({lot for each in shares for lot in each.flavor_resources() if gpu_milli_of(lot[1])})
    names = sorted({queue.name for each in shares for queue in each.queues})
    if not lots or not names or flat.end_ms <= flat.start_ms:
        return None
    axes = _Axes(tuple(names), tuple(lots))
    events = _events(flat, lives, held, axes)
    begin = flat.start_ms - flat.start_ms % every_ms
    tally = _Tally(axes, np.append(np.arange(begin, flat.end_ms, every_ms), flat.end_ms).clip(flat.start_ms))
    edges = [*(max(told.at_ms, flat.start_ms) for told in flat.policies), flat.end_ms]
    for (from_ms, until_ms), each in zip(pairwise(edges), shares, strict=True):
        tally.go_on(events, _owned(each, axes), from_ms, until_ms)
    use = tally.result(begin, every_ms, shares[-1])
    nodes = {told.number: told.value for told in flat.nodes}
    supply = supply_of(shares[-1], [(node, 1) for node in nodes.values()]) if nodes else {}
    return use._replace(
        excess=tuple(unbacked_quotas(shares[-1], supply)), loose=tuple(unreachable_limits(shares[-1], supply))
    )


class _Axes(NamedTuple):
    queues: tuple[str, ...]
    lots: tuple[FlavorResource, ...]


class _Owned(NamedTuple):
    """What a policy gives."""

    nominal: F64  # (queues, lots)
    lendable: F64  # (queues, lots): the most that is lent
    root: I64  # of each queue, a number
    pooled: F64  # (roots, lots): what cohorts own, which belongs to all below them
    pool: float  # of all queues and cohorts


def _owned(shares: QueueSetup, axes: _Axes) -> _Owned:
    by_name = {queue.name: queue for queue in shares.queues}
    nominal, lendable = np.zeros((2, len(axes.queues), len(axes.lots)), np.float64)
    for q, name in enumerate(axes.queues):
        for lot, milli, limit in _gpu_quotas(by_name[name]) if name in by_name else ():
            nominal[q, axes.lots.index(lot)] = milli
            lendable[q, axes.lots.index(lot)] = limit
    roots = [
        _root(by_name[name].cohort, shares) or f"/{name}" if name in by_name else f"/{name}" for name in axes.queues
    ]
    kinds, root = np.unique(np.array(roots), return_inverse=True)
    pooled, pool = np.zeros((len(kinds), len(axes.lots)), np.float64), float(nominal.sum())
    for cohort in shares.cohorts:
        at = np.flatnonzero(kinds == _root(cohort.name, shares))  # none, where no queue is below it
        for lot, milli, _ in _gpu_quotas(cohort):
            pool += milli
            pooled[at, axes.lots.index(lot)] += milli
    return _Owned(nominal, lendable, root.astype(np.int64), pooled, pool)


def _gpu_quotas(spec: Queue | Cohort) -> Iterator[tuple[FlavorResource, int, int]]:
    """GPU quotas of a queue or cohort: flavor-resource, amount, and how much of it is lent at most."""
    for quota in spec.quotas:
        unit = gpu_milli_of(quota.resource)
        if unit:
            limit = UNLIMITED if quota.lend_limit is None else quota.lend_limit * unit
            yield (quota.flavor, quota.resource), min(quota.nominal * unit, UNLIMITED), limit


def _most_milli(shares: QueueSetup, axes: _Axes) -> F64:
    """The most GPUs that each queue could ever have in one flavor; those that count none have no limit."""
    most = highest_usable(shares)
    by_queue = [
        [amount * gpu_milli_of(lot[1]) for lot, amount in most.get(name, {}).items() if gpu_milli_of(lot[1])]
        for name in axes.queues
    ]
    return np.array([max(amounts, default=np.inf) for amounts in by_queue], np.float64)


def _root(cohort: str, shares: QueueSetup) -> str:
    """The widest cohort that one belongs to."""
    parents = {each.name: each.parent for each in shares.cohorts}
    while parents.get(cohort):
        cohort = parents[cohort]
    return cohort


# -- what happened ---------------------------------------------------------------------------------------------


class _Events(NamedTuple):
    """Changes of what is used and of what is waited for, by time."""

    at_ms: I64
    column: I64  # of the used ones: queue x lots + lot; behind them a column a queue for what is waited for
    milli: F64


def _events(flat: Flat, lives: JobRecords, held: HeldAllocations, axes: _Axes) -> _Events:
    queue_of = positions(lives.queues, axes.queues)[lives.queue] if len(lives.queue) else lives.queue
    rows = WorkloadRows(lives.number).of(held.admissions.number)
    at_ms, column, milli = [], [], []
    for times, columns, amounts in (
        *_used(flat, held, queue_of, rows, axes),
        *_waited(lives, held, queue_of, rows, axes),
    ):
        known = columns >= 0
        at_ms.append(np.clip(times[known], flat.start_ms, flat.end_ms))
        column.append(columns[known])
        milli.append(amounts[known])
    order = np.argsort(np.concatenate(at_ms), kind="stable")
    return _Events(
        np.concatenate(at_ms)[order], np.concatenate(column)[order], np.concatenate(milli)[order].astype(np.float64)
    )


_Change = tuple[I64, I64, I64]  # times, columns, amounts


def _used(flat: Flat, held: HeldAllocations, queue_of: I64, rows: I64, axes: _Axes) -> Iterator[_Change]:
    """Grants come and go."""
    a, grants = held.admissions, held.admissions.grants
    row, lot = rows[grants.admission], np.full(len(grants.lot), -1)
    milli = np.zeros(len(grants.lot), np.int64)
    from_ms = a.from_ms[grants.admission]
    for told, until_ms in zip(flat.policies, [*(t.at_ms for t in flat.policies[1:]), flat.end_ms + 1], strict=True):
        table = told.value.shares.flavor_resources()
        places = np.array([axes.lots.index(lot) if lot in axes.lots else -1 for lot in table] + [-1], np.int64)
        units = np.array([gpu_milli_of(resource) for _, resource in table] + [0], np.int64)
        mine = (from_ms >= told.at_ms) & (from_ms < until_ms) & (grants.lot < len(table))
        lot[mine], milli[mine] = places[grants.lot[mine]], units[grants.lot[mine]] * grants.amount[mine]
    column = np.where((row >= 0) & (lot >= 0), queue_of[row] * len(axes.lots) + lot, -1)
    column = np.where(queue_of[row] >= 0, column, -1) if len(queue_of) else column
    yield from_ms, column, milli
    yield a.until_ms[grants.admission], column, -milli


def _waited(lives: JobRecords, held: HeldAllocations, queue_of: I64, rows: I64, axes: _Axes) -> Iterator[_Change]:
    """Workloads are submitted, admitted, evicted, and over."""
    a, first = held.admissions, len(axes.queues) * len(axes.lots)
    column = np.where(queue_of >= 0, first + queue_of, -1)
    yield lives.submitted_ms, column, lives.gpu_milli
    yield lives.over_ms, column, -lives.gpu_milli
    if not len(rows) or not len(column):
        return
    of_admission = np.where(rows >= 0, column[rows], -1)
    asked = np.where(rows >= 0, lives.gpu_milli[rows], 0)
    yield a.from_ms, of_admission, -asked
    yield a.until_ms, of_admission, asked


def positions(names: tuple[str, ...], among: tuple[str, ...]) -> I64:
    """Where names stand among others; -1 where they do not."""
    places = {name: at for at, name in enumerate(among)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def with_quota(samples: ClusterSamples, use: QuotaUse) -> ClusterSamples:
    """The samples of a run without nodes: quota is what there is, and what is used of it is allocated."""
    at = np.clip(np.searchsorted(use.at_ms, samples.at_ms), 0, len(use.at_ms) - 1)
    allocated = use.used_milli.sum(axis=1)[at]
    busy = np.where(allocated > 0, samples.busy_gpus, 0.0)
    blind = (allocated > 0) & (samples.observed_gpus <= 0)
    return samples._replace(
        up_milli=use.pool_milli[at], allocated_milli=allocated, busy_gpus=np.where(blind, np.nan, busy)
    )


# -- adding up -------------------------------------------------------------------------------------------------


class _Tally:
    """Adds up what queues had, moment by moment."""

    def __init__(self, axes: _Axes, edges_ms: I64) -> None:
        self._axes, self._edges_ms = axes, edges_ms
        self._now: F64 = np.zeros(len(axes.queues) * (len(axes.lots) + 1), np.float64)
        self._next = 0  # event
        self._sums = np.zeros((len(Sums._fields), len(axes.queues)), np.float64)
        columns = 3 * len(axes.queues) + 1  # used, quota, due by queue; and the pool
        self._so_far, self._total = np.zeros((len(edges_ms), columns), np.float64), np.zeros(columns, np.float64)

    def go_on(self, events: _Events, owned: _Owned, from_ms: int, until_ms: int) -> None:
        """Add up a period in which one policy was in force."""
        last = int(np.searchsorted(events.at_ms, until_ms))
        while True:
            stop = min(self._next + _AT_ONCE, last)
            here = slice(self._next, stop)
            times, which = np.unique(events.at_ms[here], return_inverse=True)
            steps = np.zeros((len(times) + 1, len(self._now)), np.float64)
            steps[0] = self._now
            np.add.at(steps, (which + 1, events.column[here]), events.milli[here])
            levels = np.cumsum(steps, axis=0)
            end_ms = int(events.at_ms[stop]) if stop < last else until_ms
            self._add(levels, np.array([from_ms, *times.tolist(), end_ms], np.int64), owned)
            self._now, self._next, from_ms = levels[-1], stop, end_ms
            if stop >= last:
                return

    def _add(self, levels: F64, edges_ms: I64, owned: _Owned) -> None:
        """Levels between edges, one level for each stretch."""
        dt = np.diff(edges_ms).clip(0).astype(np.float64)
        had = _had(levels, owned, self._axes)
        self._sums += np.einsum("skq,k->sq", np.stack(had), dt)
        curve = np.concatenate([had.used, had.quota, had.due, np.full((len(dt), 1), owned.pool)], axis=1)
        grown = np.concatenate([self._total[None], self._total + np.cumsum(curve * dt[:, None], axis=0)])
        inside = (self._edges_ms >= edges_ms[0]) & (self._edges_ms <= edges_ms[-1])
        at = np.searchsorted(edges_ms, self._edges_ms[inside], side="right") - 1
        at = np.minimum(at, len(dt) - 1)
        rest = (self._edges_ms[inside] - edges_ms[at]).astype(np.float64)
        self._so_far[inside] = grown[at] + curve[at] * rest[:, None]
        self._total = grown[-1]

    def result(self, begin_ms: int, every_ms: int, shares: QueueSetup) -> QuotaUse:
        """What it came to."""
        axes, count = self._axes, len(self._axes.queues)
        covered = np.maximum(np.diff(self._edges_ms), 1)[:, None]
        means = np.diff(self._so_far, axis=0) / covered
        by_name = {queue.name: queue for queue in shares.queues}
        return QuotaUse(
            queues=axes.queues,
            cohorts=tuple(by_name[name].cohort if name in by_name else "" for name in axes.queues),
            strict=tuple(name in by_name and by_name[name].strict_fifo for name in axes.queues),
            most_milli=_most_milli(shares, axes),
            flavors=len({flavor for flavor, _ in axes.lots}),
            excess=(),
            loose=(),
            sums=Sums(*self._sums),
            at_ms=begin_ms + every_ms * np.arange(len(means), dtype=np.int64),
            used_milli=means[:, :count],
            quota_milli=means[:, count : 2 * count],
            due_milli=means[:, 2 * count : 3 * count],
            pool_milli=means[:, -1],
        )


def _had(levels: F64, owned: _Owned, axes: _Axes) -> Sums:
    """What each queue had at each moment: (moments, queues) of every sum."""
    count = len(axes.queues)
    used = levels[:, :-count].reshape(len(levels), count, len(axes.lots))
    waiting = np.maximum(levels[:, -count:], 0)
    above, unused = np.maximum(used - owned.nominal, 0), np.maximum(owned.nominal - used, 0)
    lent = lent_of(above, np.minimum(unused, owned.lendable), owned.root, owned.pooled)
    mine, quota = used.sum(axis=2), np.broadcast_to(owned.nominal.sum(axis=1), (len(levels), count))
    due = np.minimum(mine + waiting, quota)
    served = np.minimum(mine, due)
    short_lent = np.minimum(due - served, lent)
    free = np.maximum(quota - mine - lent, 0)
    short_free = np.minimum(due - served - short_lent, free)
    return Sums(quota, mine, above.sum(axis=2), lent, due, served, short_lent, short_free)


def lent_of(above: F64, lendable: F64, root: I64, pooled: F64 | float = 0.0) -> F64:
    """What each queue lends: of all that is borrowed under its root its part, in proportion to what it could lend.

    What is pooled, (roots, lots), is lent as well, by nobody in particular.
    """
    member = (root[:, None] == np.unique(root)[None]).astype(np.float64)  # (queues, roots)
    borrowed = np.einsum("kql,qr->krl", above, member)
    offered = np.einsum("kql,qr->krl", lendable, member) + pooled
    part = np.divide(np.minimum(borrowed, offered), offered, out=np.zeros_like(offered), where=offered > 0)
    mine = np.einsum("krl,qr->kql", part, member)
    lent: F64 = (lendable * mine).sum(axis=2)
    return lent
