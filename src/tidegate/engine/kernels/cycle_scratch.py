"""What a cycle over the queues writes on while it thinks: heads, their assignments, requests, victims.

Nothing here outlives the cycle. Room is made by the caller; a kernel that runs out of it says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.columns import (
    candidates,
    entries,
    requested,
)
from tidegate.engine.kernels.quota import plus
from tidegate.engine.kernels.victim_scratch import VictimSearch, empty_victim_search
from tidegate.jit.registry import inlined
from tidegate.model.arrays import F64, I64
from tidegate.state.quota_tables import QuotaTables

#: How well an assignment fits; larger is better, as Kueue numbers them.
NO_FIT, PREEMPT, DEFERRED, FIT = 0, 1, 2, 3

#: In Tidegate's own mode, less than to preempt: others use the quota, and nobody may be preempted for it.
WAIT = -2

#: What became of an entry.
IDLE, SKIPPED, ADMITTED, PREEMPTING, REFUSED, AWAITING, BLOCKED, EVICTED = range(8)


#: Counters of the desk: SPARED is 1 where somebody was no candidate for having been placed in this very step;
#: EPOCH_BOUND where the outside epoch kept somebody from being a candidate, or from being tried, CLAIMED
#: where a head keeps quota for this cycle only; the last two are the time, and the outside epoch that nobody is
#: preempted in twice.
(
    REQUESTED, CANDIDATES, TARGETS, VICTIMS, UNDONE, ENTRIES, OVERFLOW, FOREIGNERS, RECLAIMERS, SPARED,
    EPOCH_BOUND, CLAIMED, NOW_MS, EXTERNAL,
) = range(14)  # fmt: skip

#: For an outside epoch: whoever was preempted may be preempted again at once, as Kueue has it.
AGAIN = -2


class Requests(NamedTuple):
    """What is requested right now."""

    frs: I64  # (lots, 6)
    marks: I64  # the counters


class Preemption(NamedTuple):
    """Who could be preempted, and who is to be."""

    candidates: I64  # (workloads, columns)
    heap: I64  # (workloads,): candidates, the first to be taken on top
    targets: I64  # (targets, 2): workload, Reason
    flags: I64  # (workloads, 3)
    quota_nodes: I64  # (branches, 3)


class Heads(NamedTuple):
    """The heads of this cycle and what they would get."""

    entries: I64  # (queues, columns)
    choice: I64  # (queues, 4, asks)
    pods: I64  # (queues, sets): pods to start with
    trees: I64  # (queues, sets): tree that each is placed in, or why it is not
    tries: I64  # (queues, 2, tries)
    trial: I64  # (2, asks): mode and level of the flavor that is looked at
    plan: I64  # (sets, 2): class and number of the pods that an entry starts
    climb: F64  # (queues, 2, depth): fair sharing: shares on the way up, and whether they borrow what is asked


class CycleScratch(NamedTuple):
    """Room to think."""

    requests: Requests
    preemption: Preemption
    heads: Heads
    undo: I64  # (rows, 5): branch, lot, amount that this cycle added and must take back, amount promised beyond it; and
    # whether it is claimed for this cycle only, by a head that nobody may be preempted for
    victims: VictimSearch


class CycleParams(NamedTuple):
    """What a cycle is told."""

    now_ms: int
    cycle: int
    fair: int  # 0: classic; else the strategies: 1 final share, 2 initial share, 3 both in this order
    ignore_undeclared: int
    retargets: int  # 1: who shares victims with somebody before looks for others
    pods: int  # the resource that counts pods; -1: no queue does
    places: int  # 1: nothing is admitted without a place
    recomputes: int  # 1: who lost its spots in the cycle looks for others at once
    fails_fast: int  # 1: work on a failed node that has nowhere else to go is evicted
    limit_ms: int  # work that was passed over for so long gets a reservation; 0: none does


def make_scratch(quota: QuotaTables, targets: int, again: int = 0, victims: VictimSearch | None = None) -> CycleScratch:
    """Room for a cycle in which this many targets are found, and this many workloads are looked at again."""
    queues, rows = quota.quota_nodes.capacity + again, quota.reservations.capacity
    asks, sets, tries = (max(quota.reservations.axes[axis], 1) for axis in ("ask", "set", "try"))
    depth = int(quota.quota_nodes.height[: quota.quota_nodes.top].max(initial=0)) + 2

    def zeros(*shape: int) -> I64:
        return np.zeros(shape, np.int64)

    return CycleScratch(
        Requests(frs=zeros(max(quota.flavor_resources.capacity, 1), requested.ASSUMED + 1), marks=zeros(EXTERNAL + 1)),
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
    """Ask for more of a lot; `need` is 1 where it takes preemption."""
    count = requests.marks[REQUESTED]
    for i in range(count):
        if requests.frs[i, requested.FLAVOR_RESOURCE] == fr:
            requests.frs[i, requested.AMOUNT] = plus(requests.frs[i, requested.AMOUNT], amount)
            requests.frs[i, requested.NEED] = max(requests.frs[i, requested.NEED], need)
            return
    (
        requests.frs[count, requested.FLAVOR_RESOURCE],
        requests.frs[count, requested.AMOUNT],
        requests.frs[count, requested.NEED],
    ) = (
        fr,
        amount,
        need,
    )
    requests.marks[REQUESTED] = count + 1
