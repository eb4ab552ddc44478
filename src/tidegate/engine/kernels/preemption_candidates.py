"""Preemption candidates and their order: terminating ones first, then by the claim on them, priority and time."""

from __future__ import annotations

from tidegate.engine.kernels.columns import candidates, counters, quota_node_flags, requested, workload_flags
from tidegate.engine.kernels.cycle_scratch import AGAIN, CycleScratch, Preemption, Requests
from tidegate.engine.kernels.quota import borrows_with, minus, own_left
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.queues import PreemptWhom
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.quota_tables import QuotaTree, QuotaView, Reserved
from tidegate.state.tables import quota_nodes, quota_reservations, work_classes, workloads

NEVER, LOWER, LOWER_OR_NEWER, ANY = range(len(PreemptWhom))

#: The claim on a candidate, the first to be taken first; terminating work comes before all of them. Work that only
#: moves keeps its quota, so there is no claim on that.
HIERARCHY, PRIORITY, SAME_QUEUE, MOVES, STAYS = range(5)

#: How a candidate may be preempted.
WITHIN, RECLAIM, WITHOUT_BORROWING, WHILE_BORROWING, TO_MOVE = range(5)

IN_QUEUE = int(Reason.PREEMPTED_IN_QUEUE)
RECLAIMED = int(Reason.RECLAIMED_IN_COHORT)
RECLAIMED_BORROWING = int(Reason.RECLAIMED_WHILE_BORROWING)
MOVED = int(Reason.PREEMPTED_TO_MOVE)
NOBODY = -1


@inlined
def priority_of(held: Reserved, j: int) -> int:
    """The priority of workload j."""
    return int(held.work_classes[held.workloads[j, workloads.WORK_CLASS], work_classes.PRIORITY])


@kernel
def reason_of(variant: int) -> int:
    """The Reason of preempting a candidate this way."""
    if variant == WITHIN:
        return IN_QUEUE
    if variant == TO_MOVE:
        return MOVED
    return RECLAIMED_BORROWING if variant == WHILE_BORROWING else RECLAIMED


@kernel
def allows(held: Reserved, policy: int, j: int, victim: int) -> bool:
    """Whether a policy lets workload j preempt a victim."""
    if policy in (NEVER, ANY):
        return policy == ANY
    mine, its = priority_of(held, j), priority_of(held, victim)
    if mine != its or policy == LOWER:
        return mine > its
    return bool(held.workloads[j, workloads.SUBMITTED_MS] < held.workloads[victim, workloads.SUBMITTED_MS])


@inlined
def holds_needed(held: Reserved, requests: Requests, victim: int) -> bool:
    """Whether a victim holds anything that takes preemption."""
    for a in range(held.claims.shape[2]):
        for i in range(requests.marks[counters.REQUESTED]):
            if (
                held.claims[victim, 0, a] == requests.frs[i, requested.FLAVOR_RESOURCE] + 1
                and requests.frs[i, requested.NEED] == 1
            ):
                return True
    return False


@inlined
def is_safe(held: Reserved, marks: I64, j: int, victim: int) -> bool:
    """Whether a victim is protected, from all preemption or from workload j.

    Between two external events no workload is preempted twice, and a preempted one takes nothing from those that were
    admitted since. So preemption ends, and workloads do not preempt each other in turn.
    """
    if held.reservations[victim, quota_reservations.TERMINATING] == 1:
        return False  # it ends anyway, and is waited for
    if (
        marks[counters.EXTERNAL] != AGAIN
        and held.reservations[victim, quota_reservations.GRANTED_MS] == marks[counters.NOW_MS]
    ):
        marks[counters.SPARED] = 1  # nothing is placed and preempted in one step: it is tried again in the next
        return True
    protected = held.work_classes[held.workloads[victim, workloads.WORK_CLASS], work_classes.PROTECTED_MS]
    if protected > 0 and marks[counters.NOW_MS] - held.reservations[victim, quota_reservations.GRANTED_MS] < protected:
        return True
    paid = held.workloads[j, workloads.PREEMPTED_IN] == marks[counters.EXTERNAL]
    again = held.workloads[victim, workloads.PREEMPTED_IN] == marks[counters.EXTERNAL]
    if again or (paid and held.workloads[victim, workloads.STARTED_IN] == marks[counters.EXTERNAL]):
        marks[counters.EPOCH_BOUND] = 1  # until the next external event
        return True
    return False


@inlined
def variant_of(tree: QuotaTree, held: Reserved, q: int, j: int, victim: int) -> int:
    """How workload j of queue q may preempt a victim of another queue that it has no better claim on."""
    if tree.quota_nodes[q, quota_nodes.BORROW] == NEVER:
        return WITHOUT_BORROWING
    its = priority_of(held, victim)
    if its >= priority_of(held, j) or its > tree.quota_nodes[q, quota_nodes.THRESHOLD]:
        return WITHOUT_BORROWING
    return WHILE_BORROWING


@kernel
def collect_from(view: QuotaView, d: CycleScratch, q: int, j: int, b: int, lca: int, claim: int) -> None:
    """Collect the candidates of one queue and push them onto the heap."""
    tree, held, preemption, requests = view.tree, view.held, d.preemption, d.requests
    policy = tree.quota_nodes[q, quota_nodes.WITHIN] if b == q else tree.quota_nodes[q, quota_nodes.RECLAIM]
    if claim == MOVES:
        policy = min(policy, LOWER)
    victim = tree.quota_nodes[b, quota_nodes.FIRST_HOLDER] if policy != NEVER else NOBODY
    while victim >= 0:
        may = preemption.flags[victim, workload_flags.REMOVED] == 0 and holds_needed(held, requests, victim)
        if may and allows(held, policy, j, victim) and not is_safe(held, requests.marks, j, victim):
            variant = WITHIN if b == q else RECLAIM
            if claim == PRIORITY:
                variant = variant_of(tree, held, q, j, victim)
            elif claim == MOVES:
                variant = TO_MOVE
            c = requests.marks[counters.CANDIDATES]
            requests.marks[counters.CANDIDATES] = c + 1
            preemption.candidates[c, candidates.LCA], preemption.candidates[c, candidates.VARIANT] = lca, variant
            describe_candidate(tree, held, preemption.candidates[c], victim, claim)
            push_candidate(preemption, c)
        victim = held.reservations[victim, quota_reservations.NEXT]


@inlined
def describe_candidate(tree: QuotaTree, held: Reserved, row: I64, victim: int, claim: int) -> None:
    """Write the columns that rank a candidate."""
    queue = held.reservations[victim, quota_reservations.QUEUE]
    row[candidates.CLAIM] = claim + (STAYS if held.reservations[victim, quota_reservations.TERMINATING] == 0 else 0)
    row[candidates.QUEUE], row[candidates.WORKLOAD], row[candidates.PRIORITY] = queue, victim, priority_of(held, victim)
    used = tree.quota_nodes[queue, quota_nodes.USAGE_BASED]
    row[candidates.USED] = held.used[held.reservations[victim, quota_reservations.LOCAL_QUEUE], 0] if used == 1 else 0
    row[candidates.GRANTED] = held.reservations[victim, quota_reservations.GRANTED_MS]
    row[candidates.SUBMITTED] = held.workloads[victim, workloads.SUBMITTED_MS]
    row[candidates.TIE] = held.workloads[victim, workloads.TIE]


@inlined
def push_candidate(preemption: Preemption, c: int) -> None:
    """Push a candidate onto the heap; candidates are numbered in the order they come."""
    heap, at = preemption.heap, c
    heap[at] = c
    while at > 0 and ranks_before(preemption.candidates, heap[at], heap[(at - 1) // 2]):
        heap[at], heap[(at - 1) // 2] = heap[(at - 1) // 2], heap[at]
        at = (at - 1) // 2


@kernel
def pop_candidate(preemption: Preemption, size: int) -> None:
    """Move the first of a heap of this size behind it, and restore the heap."""
    heap, at, size = preemption.heap, 0, size - 1
    heap[0], heap[size] = heap[size], heap[0]
    while True:
        best = at
        for child in range(2 * at + 1, min(2 * at + 3, size)):
            if ranks_before(preemption.candidates, heap[child], heap[best]):
                best = child
        if best == at:
            return
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@kernel
def ranks_before(candidate_rows: I64, a: int, b: int) -> bool:
    """Whether candidate a is taken before b: of equals the latest granted, the latest submitted, then by id."""
    one, other = candidate_rows[a], candidate_rows[b]
    if one[candidates.CLAIM] != other[candidates.CLAIM]:
        return bool(one[candidates.CLAIM] < other[candidates.CLAIM])
    if one[candidates.QUEUE] == other[candidates.QUEUE] and one[candidates.USED] != other[candidates.USED]:
        return bool(one[candidates.USED] > other[candidates.USED])
    if one[candidates.PRIORITY] != other[candidates.PRIORITY]:
        return bool(one[candidates.PRIORITY] < other[candidates.PRIORITY])
    if one[candidates.GRANTED] != other[candidates.GRANTED]:
        return bool(one[candidates.GRANTED] > other[candidates.GRANTED])
    if one[candidates.SUBMITTED] != other[candidates.SUBMITTED]:
        return bool(one[candidates.SUBMITTED] > other[candidates.SUBMITTED])
    return bool(
        one[candidates.TIE] < other[candidates.TIE]
    )  # as in Kueue: the last criterion is the id, the lower first


@kernel
def collect_classic(view: QuotaView, d: CycleScratch, q: int, j: int) -> None:
    """Collect what workload j may preempt: its own queue's work, and that of quota nodes over their quota.

    From the queue upwards: once a quota node around the queue has quota enough for the request, work outside of it that
    uses that quota can be reclaimed whatever its priority.
    """
    tree, requests = view.tree, d.requests
    requests.marks[counters.CANDIDATES], requests.marks[counters.RECLAIMERS] = 0, 0
    collect_from(view, d, q, j, q, NOBODY, SAME_QUEUE)
    own = requests.marks[counters.CANDIDATES]
    b = tree.quota_nodes[q, quota_nodes.PARENT] if tree.quota_nodes[q, quota_nodes.RECLAIM] != NEVER else NOBODY
    for i in range(requests.marks[counters.REQUESTED]):
        requests.frs[i, requested.REST] = requests.frs[i, requested.AMOUNT]
    claim = HIERARCHY if rest_fits(tree, requests, q) else PRIORITY
    below = q
    while b >= 0:
        before = requests.marks[counters.CANDIDATES]
        collect_below(view, d, q, j, b, below, claim)
        if claim == HIERARCHY:
            requests.marks[counters.RECLAIMERS] += requests.marks[counters.CANDIDATES] - before
        if rest_fits(tree, requests, b):
            claim = HIERARCHY
        below, b = b, tree.quota_nodes[b, quota_nodes.PARENT]
    requests.marks[counters.OTHER_QUEUES] = requests.marks[counters.CANDIDATES] - own


@inlined
def rest_fits(tree: QuotaTree, requests: Requests, b: int) -> bool:
    """Whether a quota node has room for the rest of the request; what it has of its own is subtracted from the rest."""
    enough = True
    for i in range(requests.marks[counters.REQUESTED]):
        fr = requests.frs[i, requested.FLAVOR_RESOURCE]
        if requests.frs[i, requested.AMOUNT] > 0 and borrows_with(tree, b, fr, requests.frs[i, requested.REST]):
            enough = False
        requests.frs[i, requested.REST] = max(0, minus(requests.frs[i, requested.REST], own_left(tree, b, fr)))
    return enough


@kernel
def is_over_quota(tree: QuotaTree, requests: Requests, b: int) -> bool:
    """Whether a quota node uses more than its quota of anything that takes preemption."""
    for i in range(requests.marks[counters.REQUESTED]):
        if requests.frs[i, requested.NEED] == 1 and borrows_with(
            tree, b, requests.frs[i, requested.FLAVOR_RESOURCE], 0
        ):
            return True
    return False


@kernel
def collect_below(view: QuotaView, d: CycleScratch, q: int, j: int, top: int, skipped: int, claim: int) -> None:
    """Collect from all queues under a cohort that are over their quota, except below the quota node done before.

    Work that only moves is collected from all queues.
    """
    tree, preemption, requests = view.tree, d.preemption, d.requests
    preemption.quota_nodes[0, quota_node_flags.STACK], size = top, 1
    while size > 0:
        size -= 1
        cohort = preemption.quota_nodes[size, quota_node_flags.STACK]
        child = tree.quota_nodes[cohort, quota_nodes.FIRST_COHORT]
        while child >= 0:
            if child != skipped and (claim == MOVES or is_over_quota(tree, requests, child)):
                preemption.quota_nodes[size, quota_node_flags.STACK] = child
                size += 1
            child = tree.quota_nodes[child, quota_nodes.NEXT]
        child = tree.quota_nodes[cohort, quota_nodes.FIRST_QUEUE]
        while child >= 0:
            if child != q and (claim == MOVES or is_over_quota(tree, requests, child)):
                collect_from(view, d, q, j, child, top if claim != MOVES else child, claim)
            child = tree.quota_nodes[child, quota_nodes.NEXT]
