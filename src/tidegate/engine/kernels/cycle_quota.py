"""Quota that is used, or kept for an entry, only until the end of a cycle over the queues."""

from __future__ import annotations

from tidegate.engine.kernels.columns import counters, entries, quota_node_flags, requested, workload_flags
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleParams, CycleScratch, Preemption
from tidegate.engine.kernels.domain_assignment import take_found
from tidegate.engine.kernels.nominate import request_assigned
from tidegate.engine.kernels.pending_queue import is_ahead
from tidegate.engine.kernels.quota import add_usage, available, change_usage, minus, move_usage, plus, remove_usage
from tidegate.engine.kernels.starvation import INFERENCE
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaTree, QuotaView
from tidegate.state.tables import claims, quota_nodes, quota_reservations, quotas, work_classes, workloads

#: After this many times the passed-over limit, quota is kept from other queues whatever its own queue uses.
MOST_LIMITS = 168


@inlined
def use_for_now(tree: QuotaTree, d: CycleScratch, q: int, fr: int, amount: int, promised: int) -> None:
    """Use a flavor-resource until the end of the cycle; `promised` of it is what terminating work will give back."""
    add_usage(tree, q, fr, amount)
    at = d.requests.marks[counters.UNDONE]
    d.undo[at, 0], d.undo[at, 1], d.undo[at, 2], d.undo[at, 3], d.undo[at, 4] = q, fr, amount, promised, 0
    d.requests.marks[counters.UNDONE] = at + 1


@kernel
def shift_promised(tree: QuotaTree, d: CycleScratch, sign: int) -> None:
    """Use the promised quota of terminating work while that is out of the tree (sign 1), or stop using it (-1)."""
    for i in range(d.requests.marks[counters.UNDONE]):
        change_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 3], sign)


@kernel
def shift_claimed(tree: QuotaTree, d: CycleScratch, sign: int) -> None:
    """Remove what is claimed for this cycle only from the tree (sign 1), or restore it: nothing is evicted for it."""
    for i in range(d.requests.marks[counters.UNDONE]):
        if d.undo[i, 4] == 1:
            change_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2], -sign)


@kernel
def take_for_now(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> None:
    """Keep the claim of an entry that must wait for victims against the entries behind it."""
    take_found(topology, d.heads.entries[e])
    if d.heads.entries[e, entries.AGAIN] > 0:
        return
    request_assigned(view, d.heads, d.requests, e)
    for i in range(d.requests.marks[counters.REQUESTED]):
        row = d.requests.frs[i]
        q = d.heads.entries[e, entries.QUEUE]
        use_for_now(view.tree, d, q, row[requested.FLAVOR_RESOURCE], row[requested.AMOUNT], 0)


@kernel
def reserve(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> None:
    """Reserve what the queue is entitled to for a head without victims, so that others do not take it."""
    q = d.heads.entries[e, entries.QUEUE]
    take_found(topology, d.heads.entries[e])
    if d.heads.entries[e, entries.AGAIN] > 0:
        return
    request_assigned(view, d.heads, d.requests, e)
    for i in range(d.requests.marks[counters.REQUESTED]):
        fr, amount = d.requests.frs[i, requested.FLAVOR_RESOURCE], d.requests.frs[i, requested.AMOUNT]
        quota = view.tree.quota[q]
        limit = quota[quotas.BORROW_LIMIT, fr]
        if d.heads.entries[e, entries.BORROW] == 0:
            amount = max(0, min(amount, minus(quota[quotas.NOMINAL, fr], quota[quotas.USAGE, fr])))
        elif limit >= 0:
            amount = max(0, min(amount, minus(plus(quota[quotas.NOMINAL, fr], limit), quota[quotas.USAGE, fr])))
        use_for_now(view.tree, d, q, fr, amount, 0)


@kernel
def is_owed(c: Cycle, params: CycleParams, e: int) -> bool:
    """Whether quota may be kept from other queues for entry e: up to what its queue owns, or for one that is larger.

    What workloads ahead of it in its queue use counts, and so does what is kept for its queue in this cycle already.
    But not without a limit: inference does not end, and other work may not either.
    """
    hot, view, d = c.hot, c.quota, c.scratch
    tree, held, q, j = view.tree, view.held, d.heads.entries[e, entries.QUEUE], d.heads.entries[e, entries.WORKLOAD]
    passed_ms = hot.workloads[j, workloads.PASSED_MS]
    if tree.quota_nodes[q, quota_nodes.PARENT] < 0 or (
        passed_ms >= 0 and params.now_ms - passed_ms >= MOST_LIMITS * params.limit_ms
    ):
        return True
    request_assigned(view, d.heads, d.requests, e)
    for i in range(d.requests.marks[counters.REQUESTED]):
        fr, amount = d.requests.frs[i, requested.FLAVOR_RESOURCE], d.requests.frs[i, requested.AMOUNT]
        left = max(0, minus(tree.quota[q, quotas.NOMINAL, fr], amount))
        for k in range(d.requests.marks[counters.UNDONE]):
            if d.undo[k, 0] == q and d.undo[k, 1] == fr:
                left -= d.undo[k, 2]
        other = tree.quota_nodes[q, quota_nodes.FIRST_HOLDER]
        while other >= 0 and left >= 0:
            for a in range(held.claims.shape[2]):
                if held.claims[other, claims.FLAVOR_RESOURCE, a] == fr + 1 and may_end_before(hot, other, j):
                    left -= held.claims[other, claims.AMOUNT, a]
            other = held.reservations[other, quota_reservations.NEXT]
        if left < 0:
            return False
    return True


@inlined
def may_end_before(hot: Hot, other: int, j: int) -> bool:
    """Whether another workload is ahead of workload j and is expected to end."""
    return (
        is_ahead(hot, other, j)
        and hot.work_classes[hot.workloads[other, workloads.WORK_CLASS], work_classes.KIND] != INFERENCE
    )


@kernel
def is_within_reach(view: QuotaView, d: CycleScratch, e: int) -> bool:
    """Whether entry e would have quota if its queue used nothing, and the others of its tree no more than they own.

    What is used or kept for this cycle only does not count: otherwise the answer would differ in the next one.
    """
    tree, q = view.tree, d.heads.entries[e, entries.QUEUE]
    root = tree.quota_nodes[q, quota_nodes.ROOT]
    borrowed = d.preemption.quota_nodes[:, quota_node_flags.STACK]
    reached = True
    request_assigned(view, d.heads, d.requests, e)
    for i in range(d.requests.marks[counters.UNDONE]):
        remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    for i in range(d.requests.marks[counters.REQUESTED]):
        fr = d.requests.frs[i, requested.FLAVOR_RESOURCE]
        for b in range(len(tree.quota_nodes)):
            borrowed[b] = 0
            if tree.quota_nodes[b, quota_nodes.IS_QUEUE] == 1 and tree.quota_nodes[b, quota_nodes.ROOT] == root:
                owned = 0 if b == q else tree.quota[b, quotas.NOMINAL, fr]
                borrowed[b] = max(0, minus(tree.quota[b, quotas.USAGE, fr], owned))
                remove_usage(tree, b, fr, borrowed[b])
        reached = reached and available(tree, q, fr) >= d.requests.frs[i, requested.AMOUNT]
        for b in range(len(tree.quota_nodes) - 1, -1, -1):
            add_usage(tree, b, fr, borrowed[b])
    for i in range(d.requests.marks[counters.UNDONE]):
        add_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    return reached


@inlined
def mark_preempted(entry: I64, preemption: Preemption, marks: I64) -> None:
    """Note the targets of an entry as victims of this cycle."""
    for i in range(entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]):
        j = preemption.targets[i, 0]
        preemption.flags[j, workload_flags.PREEMPTED] = 1
        preemption.flags[marks[counters.VICTIMS], workload_flags.VICTIM] = j
        marks[counters.VICTIMS] += 1


@kernel
def move_replaced(view: QuotaView, preemption: Preemption, entry: I64, out: int) -> None:
    """Move what a replaced slice held out of the tree for the rest of the cycle, as its successor holds it; or back.

    Until the world reports that it is gone it holds what it holds, and no other workload can preempt it.
    """
    replaced = entry[entries.REPLACES] - 1
    preemption.flags[replaced, workload_flags.PREEMPTED], preemption.flags[replaced, workload_flags.REMOVED] = out, out
    move_usage(view.tree, view.held, replaced, 1 if out == 1 else -1)
