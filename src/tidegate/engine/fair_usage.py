"""Decayed usage of the local queues of a queue: charged at admission, and ranked for the order.

Decay is fixed-point arithmetic on integers, so that every machine computes the same ranks.
"""

from __future__ import annotations

import math

import numpy as np

from tidegate.model.arrays import I64
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE

#: One, in fixed point.
_ONE = 1 << 60


def _roots(count: int) -> tuple[int, ...]:
    """2 ** -(2 ** -k) in fixed point for k = 1, 2, ...: the factors of a fraction of a half-life."""
    found = [_ONE // 2]
    for _ in range(count):
        found.append(math.isqrt(found[-1] * _ONE))
    return tuple(found[1:])


_ROOTS = _roots(20)


def decay(elapsed_ms: int, half_life_ms: int) -> int:
    """0.5 to the power of elapsed over half-life, in fixed point; without a half-life nothing decays."""
    if half_life_ms <= 0:
        return _ONE
    halves, rest = divmod(max(elapsed_ms, 0), half_life_ms)
    factor = _ONE >> min(halves, 60)
    for root in _ROOTS:
        rest *= 2
        if rest >= half_life_ms:
            rest -= half_life_ms
            factor = factor * root // _ONE
    return factor


def settle_use(state: ClusterState) -> None:
    """Decay the usage of local queues until now, add what they use, and rank them."""
    sharing, tables = state.policy.shares.usage, state.quota
    if sharing is None:
        return
    held = _held_by_local_queue(state)
    for row in tables.local_queue_rows.values():
        elapsed = state.now_ms - int(tables.local_queues.at_ms[row])
        if elapsed < max(sharing.sampling_ms, 1):
            continue
        keep = decay(elapsed, sharing.half_life_ms)
        for r in range(len(tables.resources)):
            old = int(tables.local_queues.decayed_usage[row, r])
            tables.local_queues.decayed_usage[row, r] = (old * keep + int(held[row, r]) * 1000 * (_ONE - keep)) // _ONE
        tables.local_queues.at_ms[row] = state.now_ms
    rank_local_queues(state)


def _held_by_local_queue(state: ClusterState) -> I64:
    """What the workloads of each local queue hold, by resource."""
    tables = state.quota
    held = np.zeros((tables.local_queues.capacity, max(len(tables.resources), 1)), np.int64)
    rows = np.flatnonzero(tables.reservations.queue != NONE)
    frs, amounts = tables.reservations.flavor_resource[rows], tables.reservations.amount[rows]
    for row, its_frs, its_amounts in zip(rows.tolist(), frs.tolist(), amounts.tolist(), strict=True):
        for fr, amount in zip(its_frs, its_amounts, strict=True):
            if fr:
                held[tables.reservations.local_queue[row], tables.flavor_resources.resource[fr - 1]] += amount
    return held


def charge_entry(state: ClusterState, rows: I64, *, back: bool = False) -> None:
    """Charge local queues for admitted workloads at once, one sample's worth, so that other local queues go next.

    `back` undoes the charge of workloads that were not admitted after all.
    """
    sharing, tables = state.policy.shares.usage, state.quota
    if sharing is None or not len(rows):
        return
    part = _ONE - decay(sharing.sampling_ms, sharing.half_life_ms) if sharing.half_life_ms else 0
    for row in rows.tolist():
        for fr, amount in zip(
            tables.reservations.flavor_resource[row].tolist(), tables.reservations.amount[row].tolist(), strict=True
        ):
            if fr:
                at = (int(tables.reservations.local_queue[row]), int(tables.flavor_resources.resource[fr - 1]))
                cost = amount * 1000 * part // _ONE
                tables.local_queues.decayed_usage[at] = max(
                    int(tables.local_queues.decayed_usage[at]) + (-cost if back else cost), 0
                )
    rank_local_queues(state)


def rank_local_queues(state: ClusterState) -> None:
    """Rank local queues by usage for their weight; equal usage gets equal rank."""
    sharing, tables = state.policy.shares.usage, state.quota
    if sharing is None:
        return
    weights = dict(sharing.weights_milli)
    factors = [weights.get(name, 1000) / _unit(name) for name in tables.resources]
    order = sorted(range(len(tables.resources)), key=lambda r: tables.resources[r])
    used = {}
    for row in tables.local_queue_rows.values():
        total = sum(factors[r] * int(tables.local_queues.decayed_usage[row, r]) for r in order)
        weight = int(tables.local_queues.weight_milli[row])
        used[row] = total / weight if weight > 0 else float("inf")
    ranks = {value: rank for rank, value in enumerate(sorted(set(used.values())))}
    for row, value in used.items():
        tables.local_queues.rank[row, 0] = ranks[value]


def _unit(resource: str) -> int:
    """The amount that counts as one of a resource: a core is a thousand milli-cores."""
    return 1000 if resource in ("cpu", "gpu") else 1
