"""Quota over time: a grant for each row of an ADMIT decision, or of a reservation that was observed.

A grant ends when its workload is over or its last pod is gone, not when the workload is evicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tidegate.measure.allocations import Allocations, gone_marks
from tidegate.measure.event_joins import Marks, first_after, first_of, join_marks
from tidegate.measure.timeline import Flat
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind


class Grants(NamedTuple):
    """Grants in columns, in the order they were made."""

    admission: I64  # row of the admission that it is a part of
    pod_set: I64  # ordinal in the work; -1: nothing of it is counted
    pods: I64
    lot: I64  # -1: nothing is counted
    amount: I64


class Admissions(NamedTuple):
    """Admissions in columns, each with the grants that were made together."""

    order: I64  # of the first ADMIT
    number: I64  # of the workload
    from_ms: I64
    until_ms: I64  # the end of the run for those that never ended
    end_order: I64  # of what ended it; NEVER: nothing did
    grants: Grants


def admissions_of(flat: Flat, allocations: Allocations) -> Admissions:
    """Every admission of a run, with the allocations of its pods to tell when the last was gone."""
    rows = _granted_rows(flat)
    begins = np.ones(len(rows.order), np.bool_)
    begins[1:] = (np.diff(rows.number) != 0) | (np.diff(rows.order) > 1)
    heads = Marks(*(column[begins] for column in (rows.number, rows.order, rows.now_ms)))
    with_workload = first_after(join_marks(gone_marks(flat), heads), heads.key, heads.order)
    end_order, until_ms = first_of(with_workload, _end_with_pods(flat, heads, allocations), never_ms=flat.end_ms)
    grants = Grants(np.cumsum(begins) - 1, rows.pod_set, rows.pods, rows.lot, rows.amount)
    return Admissions(heads.order, heads.key, heads.at_ms, np.maximum(until_ms, heads.at_ms), end_order, grants)


class _Rows(NamedTuple):
    order: I64
    number: I64
    now_ms: I64
    pod_set: I64
    pods: I64
    lot: I64
    amount: I64


def _granted_rows(flat: Flat) -> _Rows:
    """Grants row by row, in running order; rows of one admission stand together."""
    admits = flat.decisions.of(DecisionKind.ADMIT)
    lot, amount, pods = (admits.evidence[:, at] for at in range(3))
    rows = _Rows(admits.order, admits.workload, admits.now_ms, admits.pod.astype(np.int64), pods, lot, amount)
    told = list(_told_rows(flat))
    if not told:
        return rows
    joined = [
        np.concatenate([np.array(new, np.int64), old]) for new, old in zip(zip(*told, strict=True), rows, strict=True)
    ]
    by_order = np.argsort(joined[0], kind="stable")
    return _Rows(*(column[by_order] for column in joined))


def _told_rows(flat: Flat) -> Iterator[tuple[int, ...]]:
    """What workloads were seen to hold; lots are numbered as in the policy of that time."""
    works = dict(zip(flat.submitted.number.tolist(), flat.submitted.work.tolist(), strict=True))
    for told in flat.standings:
        policy = next((each.value for each in reversed(flat.policies) if each.at_ms <= told.at_ms), None)
        if policy is None or told.number not in works:
            continue
        lots = {lot: at for at, lot in enumerate(policy.shares.flavor_resources())}
        ordinals = {pod_set.name: at for at, pod_set in enumerate(flat.works[works[told.number]].pod_sets)}
        for grant in told.value.grants:
            charge, at = dict(grant.charge), ordinals.get(grant.pod_set, 0)
            for resource, flavor in grant.flavors:
                lot = lots.get((flavor, resource), -1)
                yield told.order, told.number, told.at_ms, at, grant.count, lot, charge.get(resource, 0)


def _end_with_pods(flat: Flat, heads: Marks, allocations: Allocations) -> tuple[I64, I64]:
    """It was evicted, and its last pod is gone; one without pods ends with the eviction."""
    told = flat.decisions.of(DecisionKind.PREEMPT, DecisionKind.EVICT)
    told_order, told_ms = first_after(told.marks(), heads.key, heads.order)
    mine = _admission_of(heads, allocations)
    known = mine >= 0
    last = np.full(len(heads.order), -1)
    np.maximum.at(last, mine[known], allocations.end_order[known])
    last_ms = np.zeros(len(heads.order), np.int64)
    np.maximum.at(last_ms, mine[known], allocations.until_ms[known])
    evicted = flat.decisions.of(DecisionKind.EVICT)
    evict_order, evict_ms = first_after(evicted.marks(), heads.key, heads.order)
    homeless = last < 0
    leaves = np.where(homeless, evict_order, np.maximum(told_order, last))
    return leaves, np.where(homeless, evict_ms, np.maximum(told_ms, last_ms))


def _admission_of(heads: Marks, allocations: Allocations) -> I64:
    """For each allocation the admission that it belongs to: the latest of its workload by then; -1 if there is none."""
    if not len(heads.order):
        return np.full(len(allocations.number), -1)
    begin = int(heads.at_ms.min())
    most = int(max(heads.at_ms.max(), allocations.from_ms.max(initial=0))) - begin + 1
    key = heads.key * most + heads.at_ms - begin  # PLACE stands before its ADMIT: time tells, not order
    by_key = np.argsort(key, kind="stable")
    at = np.searchsorted(key[by_key], allocations.number * most + allocations.from_ms - begin, side="right") - 1
    found = by_key[np.maximum(at, 0)]
    belongs = (at >= 0) & (heads.key[found] == allocations.number)
    return np.where(belongs, found, -1)
