"""Scratch of a cycle over the queues: entries, their assignments, requests and preemption candidates.

Nothing here outlives the cycle. The caller allocates; a kernel that runs out of rows returns MORE_ROOM.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.columns import candidates, counters, entries, requested
from tidegate.engine.kernels.gang_placement import Output
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.quota import plus
from tidegate.engine.kernels.victim_scratch import VictimSearch, empty_victim_search
from tidegate.jit.registry import inlined
from tidegate.model.arrays import F64, I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaTables, QuotaView

#: In place of an external epoch: a preempted workload may be preempted again at once, as in Kueue.
AGAIN = -2


class Requests(NamedTuple):
    """What is requested right now."""

    frs: I64  # (flavor-resources, 6)
    marks: I64  # the counters


class Preemption(NamedTuple):
    """The preemption candidates, and the targets."""

    candidates: I64  # (workloads, columns)
    heap: I64  # (workloads,): candidates as a heap, the first to be taken on top
    targets: I64  # (targets, 2): workload, Reason
    flags: I64  # (workloads, 3)
    quota_nodes: I64  # (quota nodes, 3)


class Heads(NamedTuple):
    """The heads of this cycle and their assignments."""

    entries: I64  # (queues, columns)
    choice: I64  # (queues, 4, requests)
    pods: I64  # (queues, sets): pods to start with
    trees: I64  # (queues, sets): tree that each is placed in, or why it is not placed
    tries: I64  # (queues, 2, tries)
    trial: I64  # (2, requests): mode and level of the flavor that is tried
    plan: I64  # (sets, 2): class and number of the pods that an entry starts
    climb: F64  # (queues, 2, depth): fair sharing: shares on the way up, and whether they borrow the request


class CycleScratch(NamedTuple):
    """Everything that a cycle over the queues writes."""

    requests: Requests
    preemption: Preemption
    heads: Heads
    undo: I64  # (rows, 5): quota node, flavor-resource, amount this cycle added and takes back, amount promised beyond
    # that, and whether it is claimed for this cycle only, by a head without preemption candidates
    victims: VictimSearch


class CycleParams(NamedTuple):
    """Inputs of a cycle."""

    now_ms: int
    cycle: int
    fair: int  # 0: classic; else the strategies: 1 final share, 2 initial share, 3 both in this order
    ignore_undeclared: int
    retargets: int  # 1: an entry that shares victims with an earlier one looks for others
    pods: int  # the resource that counts pods; -1: no queue counts them
    places: int  # 1: nothing is admitted without a place
    recomputes: int  # 1: an entry that lost its assignment in the cycle searches another at once
    fails_fast: int  # 1: work on a failed node is evicted if no other node takes it
    limit_ms: int  # work that was passed over for so long gets a reservation; 0: none does


def make_scratch(quota: QuotaTables, targets: int, again: int = 0, victims: VictimSearch | None = None) -> CycleScratch:
    """Scratch for a cycle with this many targets, and this many workloads whose assignment is searched again."""
    queues, rows = quota.quota_nodes.capacity + again, quota.reservations.capacity
    asks, sets, tries = (max(quota.reservations.axes[axis], 1) for axis in ("ask", "set", "try"))
    depth = int(quota.quota_nodes.height[: quota.quota_nodes.top].max(initial=0)) + 2

    def zeros(*shape: int) -> I64:
        return np.zeros(shape, np.int64)

    return CycleScratch(
        Requests(
            frs=zeros(max(quota.flavor_resources.capacity, 1), requested.ASSUMED + 1), marks=zeros(counters.COLUMNS)
        ),
        Preemption(
            candidates=zeros(rows, candidates.COLUMNS),
            heap=zeros(rows),
            targets=zeros(targets, 2),
            flags=zeros(rows, 3),
            quota_nodes=zeros(quota.quota_nodes.capacity, 3),
        ),
        Heads(
            entries=zeros(queues, entries.COLUMNS),
            choice=zeros(queues, 4, asks),
            pods=zeros(queues, sets),
            trees=zeros(queues, sets),
            tries=zeros(queues, 2, tries),
            trial=zeros(2, asks),
            plan=zeros(sets, 2),
            climb=np.zeros((queues, 2, depth), np.float64),
        ),
        undo=zeros(queues * asks + 1, 5),
        victims=victims or empty_victim_search(0, 0, 0, 0),
    )


@inlined
def request(requests: Requests, fr: int, amount: int, need: int) -> None:
    """Request more of a flavor-resource; `need` is 1 if that takes preemption."""
    count = requests.marks[counters.REQUESTED]
    for i in range(count):
        if requests.frs[i, requested.FLAVOR_RESOURCE] == fr:
            requests.frs[i, requested.AMOUNT] = plus(requests.frs[i, requested.AMOUNT], amount)
            requests.frs[i, requested.NEED] = max(requests.frs[i, requested.NEED], need)
            return
    requests.frs[count, requested.FLAVOR_RESOURCE] = fr
    requests.frs[count, requested.AMOUNT] = amount
    requests.frs[count, requested.NEED] = need
    requests.marks[counters.REQUESTED] = count + 1


class Cycle(NamedTuple):
    """The state, the placement rule, all quota tables, the scratch of the cycle, and its decisions."""

    hot: Hot
    rule: Rule
    quota: QuotaView
    scratch: CycleScratch
    out: Output
