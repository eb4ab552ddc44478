"""Allocations: which pod held which place from when until when.

An allocation begins with its PLACE decision. It ends when the pod is gone, not when the workload is evicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.measure.event_joins import NEVER, Marks, first_after, first_of, join_marks, same_keys
from tidegate.measure.timeline import Flat, FlatDecisions
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import ALL_PODS, FactKind, WriteOutcome
from tidegate.model.reasons.catalogue import Reason


class Allocations(NamedTuple):
    """Stays in columns, in the order of their PLACE."""

    order: I64  # of the PLACE
    number: I64  # of the workload
    pod: I64
    node: I64
    from_ms: I64
    until_ms: I64  # the end of the run for those that never ended
    end_order: I64  # of what ended it; NEVER: nothing did


def allocations_of(flat: Flat) -> Allocations:
    """Every allocation of a run."""
    placed = flat.decisions.of(DecisionKind.PLACE)
    end_order, until_ms = first_of(
        first_after(gone_marks(flat), placed.workload, placed.order),
        _end_with_pod(flat, placed),
        first_after(flat.facts.of(FactKind.NODE_REMOVED).marks(), placed.node, placed.order),
        _end_with_device(flat, placed),
        _end_with_refusal(flat, placed),
        never_ms=flat.end_ms,
    )
    until_ms, pod = np.maximum(until_ms, placed.now_ms), placed.pod.astype(np.int64)
    return Allocations(placed.order, placed.workload, pod, placed.node, placed.now_ms, until_ms, end_order)


def gone_marks(flat: Flat) -> Marks:
    """When workloads finished, all their pods were gone or given back, or their admission came to nothing."""
    facts = flat.facts.of(FactKind.WORKLOAD_FINISHED, FactKind.POD_GONE, FactKind.POD_FAILED)
    whole = (facts.kind == FactKind.WORKLOAD_FINISHED) | (facts.pod == ALL_PODS)
    back = flat.decisions.of(DecisionKind.RELEASE)
    all_back = (back.pod == ALL_PODS) & (back.code != Reason.REPLACED)  # a slice holds its pods until they are gone
    return join_marks(
        facts.where(whole).marks(),
        back.where(all_back).marks(),
        _refused_marks(flat),
    )


def _refused_marks(flat: Flat) -> Marks:
    """When an admission failed; a workload that was evicted before that ends like any other."""
    outcomes, admits = flat.facts.of(FactKind.OUTCOME), flat.decisions.of(DecisionKind.ADMIT)
    failed = outcomes.where((outcomes.arg == WriteOutcome.FAILED) & np.isin(outcomes.subject, admits.id))
    at = np.searchsorted(admits.id, failed.subject)
    away = flat.decisions.of(DecisionKind.PREEMPT, DecisionKind.EVICT)
    told, _ = first_after(away.marks(), admits.workload[at], admits.order[at])
    counts = told > failed.order
    return Marks(admits.workload[at][counts], failed.order[counts], failed.at_ms[counts])


def _end_with_pod(flat: Flat, placed: FlatDecisions) -> tuple[I64, I64]:
    """This very pod is gone or given back, or has another place by now."""
    gone = flat.facts.of(FactKind.POD_GONE, FactKind.POD_FAILED)
    back = flat.decisions.of(DecisionKind.RELEASE)
    gone_key, back_key, placed_key = same_keys(
        (gone.subject, gone.pod.astype(np.int64)),
        (back.workload, back.pod.astype(np.int64)),
        (placed.workload, placed.pod.astype(np.int64)),
    )
    marks = join_marks(
        Marks(gone_key, gone.order, gone.at_ms),
        Marks(back_key, back.order, back.now_ms),
        Marks(placed_key, placed.order, placed.now_ms),
    )
    return first_after(marks, placed_key, placed.order)


def _end_with_device(flat: Flat, placed: FlatDecisions) -> tuple[I64, I64]:
    """One of its GPUs failed; they do so rarely enough to look at one after the other."""
    failed = flat.facts.of(FactKind.DEVICE_FAILED)
    end_order, until_ms = np.full(len(placed.id), NEVER), np.zeros(len(placed.id), np.int64)
    for order, at_ms, node, device in zip(failed.order, failed.at_ms, failed.subject, failed.arg, strict=True):
        hit = (placed.node == node) & ((placed.devices >> device) & 1 == 1)
        hit &= (placed.order < order) & (order < end_order)
        end_order[hit], until_ms[hit] = order, at_ms
    return end_order, until_ms


def _end_with_refusal(flat: Flat, placed: FlatDecisions) -> tuple[I64, I64]:
    """The cluster refused to carry the PLACE out."""
    outcomes = flat.facts.of(FactKind.OUTCOME)
    return first_after(outcomes.where(outcomes.arg == WriteOutcome.FAILED).marks(), placed.id, placed.order)
