"""Capacity of a run in GPU time: the working GPUs of ready nodes, over time.

A cordoned node still counts: it is there, and paid for. In a run without nodes, quota is the capacity.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidegate.measure.timeline import Flat
from tidegate.model.facts import FactKind
from tidegate.model.hardware import MOST_DEVICES, Node
from tidegate.model.queues import Cohort, Queue, QueueSetup
from tidegate.model.quota_limits import gpu_milli_of
from tidegate.model.units import WHOLE_MILLI


class Capacity(NamedTuple):
    """The GPU time of a run."""

    milli_ms: int
    nodes: int  # there ever were
    gpus: int  # most at one time


class _Machine:
    """One node, as it was last reported."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.broken: set[int] = set()

    def milli(self) -> int:
        """GPU milli that it has to give."""
        if self.node is None or not self.node.ready:
            return 0
        count = min(self.node.shape.gpu_count, MOST_DEVICES)
        return WHOLE_MILLI * (count - sum(device < count for device in self.broken))


def capacity_of(flat: Flat) -> Capacity:
    """The GPU time of a run, node by node as they came, failed and went."""
    if not flat.nodes:
        return _quota_of(flat)
    machines: dict[int, _Machine] = {}
    total = milli = most = 0
    since_ms = flat.start_ms
    for _, at_ms, number, told in sorted(_told(flat), key=lambda row: row[0]):
        until_ms = min(max(at_ms, since_ms), flat.end_ms)
        total += milli * (until_ms - since_ms)
        since_ms = until_ms
        machine = machines.setdefault(number, _Machine())
        milli -= machine.milli()
        _tell(machine, told)
        milli += machine.milli()
        most = max(most, milli)
    total += milli * (flat.end_ms - since_ms)
    return Capacity(total, len(machines), most // WHOLE_MILLI)


def _quota_of(flat: Flat) -> Capacity:
    """The quota of GPUs that policies gave, one after the other."""
    edges = [*(max(told.at_ms, flat.start_ms) for told in flat.policies), flat.end_ms]
    given = [_gpu_milli(told.value.shares) for told in flat.policies]
    total = sum(milli * (until - since) for milli, (since, until) in zip(given, pairwise(edges), strict=True))
    return Capacity(total, 0, max(given, default=0) // WHOLE_MILLI)


def _gpu_milli(shares: QueueSetup) -> int:
    specs: list[Queue | Cohort] = [*shares.queues, *shares.cohorts]
    quotas = [quota for spec in specs for quota in spec.quotas]
    return sum(quota.nominal * gpu_milli_of(quota.resource) for quota in quotas)


_Told = Node | None | tuple[FactKind, int]  # a spec, the removal, or what became of a device


def _told(flat: Flat) -> list[tuple[int, int, int, _Told]]:
    """Facts about nodes: order, time, number, and value."""
    rows: list[tuple[int, int, int, _Told]] = [(t.order, t.at_ms, t.number, t.value) for t in flat.nodes]
    facts = flat.facts.of(FactKind.NODE_REMOVED, FactKind.DEVICE_FAILED, FactKind.DEVICE_RECOVERED)
    for order, kind, at_ms, number, device in zip(
        *(np.asarray(c).tolist() for c in (facts.order, facts.kind, facts.at_ms, facts.subject, facts.arg)), strict=True
    ):
        rows.append((order, at_ms, number, None if kind == FactKind.NODE_REMOVED else (FactKind(kind), device)))
    return rows


def _tell(machine: _Machine, told: _Told) -> None:
    if told is None:
        machine.node, machine.broken = None, set()
    elif isinstance(told, Node):
        machine.node = told
    elif told[0] is FactKind.DEVICE_FAILED:
        machine.broken.add(told[1])
    else:
        machine.broken.discard(told[1])
