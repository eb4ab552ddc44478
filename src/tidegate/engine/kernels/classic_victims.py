"""Victims of classic preemption: from queues over their quota first, then by priority, the latest first.

Candidates are taken out one by one until the workload fits, then put back where it still fits.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import candidates, counters, requested
from tidegate.engine.kernels.cycle_scratch import CycleScratch, Requests
from tidegate.engine.kernels.fair_victims import fair_targets
from tidegate.engine.kernels.preemption_candidates import (
    NEVER,
    WITHOUT_BORROWING,
    collect_classic,
    is_over_quota,
    pop_candidate,
    reason_of,
)
from tidegate.engine.kernels.quota import borrows_with
from tidegate.engine.kernels.victim_set import fill_back, fits, restore, take_target
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.state.quota_tables import QuotaTree, QuotaView
from tidegate.state.tables import quota_nodes, quota_reservations, quotas

#: Above the number of targets, an attempt returns how many candidates it has sorted.
ORDERED = 1 << 32


@kernel
def find_targets(view: QuotaView, d: CycleScratch, topology: TopologyView | None, fair: int, q: int, j: int) -> int:
    """Find the targets that workload j must preempt to get its request; return how many, written behind the targets."""
    tree, requests = view.tree, d.requests
    if fair != 0:
        return fair_targets(view, d, topology, fair, q, j)
    if is_hopeless(tree, requests, q):
        return 0
    collect_classic(view, d, q, j)
    if requests.marks[counters.CANDIDATES] == 0:
        return 0
    forbidden = tree.quota_nodes[q, quota_nodes.BORROW] == NEVER
    if requests.marks[counters.OTHER_QUEUES] == 0 or (forbidden and not is_under_nominal(tree, requests, q)):
        return int(attempt(view, d, topology, q, 0, 1) % ORDERED)
    first = 0 if forbidden and requests.marks[counters.RECLAIMERS] == 0 else 1
    found = attempt(view, d, topology, q, 0, first)
    if found % ORDERED == 0:
        found = attempt(view, d, topology, q, found // ORDERED, 1 - first)
    return int(found % ORDERED)


@inlined
def is_hopeless(tree: QuotaTree, requests: Requests, q: int) -> bool:
    """Whether a search for candidates is pointless, because none may be preempted.

    The request exceeds the queue's own quota, the queue may preempt neither while it borrows nor its own work, and no
    higher cohort has quota enough.
    """
    parent = tree.quota_nodes[q, quota_nodes.PARENT]
    if tree.quota_nodes[q, quota_nodes.BORROW] != NEVER or tree.quota_nodes[q, quota_nodes.WITHIN] != NEVER:
        return False
    if parent >= 0 and tree.quota_nodes[parent, quota_nodes.PARENT] >= 0:
        return False
    for i in range(requests.marks[counters.REQUESTED]):
        amount = requests.frs[i, requested.AMOUNT]
        if amount > 0 and borrows_with(tree, q, requests.frs[i, requested.FLAVOR_RESOURCE], amount):
            return True
    return False


@kernel
def attempt(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, q: int, ordered: int, borrowing: int
) -> int:
    """Take candidates out until the request fits; return the targets and how many candidates are sorted by now.

    Candidates come from a heap; popped ones stand behind it in reverse order, for a second attempt.
    """
    preemption, requests = d.preemption, d.requests
    candidate_rows, start = requests.marks[counters.CANDIDATES], requests.marks[counters.TARGETS]
    at, found = 0, 0
    while at < candidate_rows and found == 0:
        if at == ordered:
            pop_candidate(preemption, candidate_rows - ordered)
            ordered += 1
        c = preemption.heap[candidate_rows - 1 - at]
        at += 1
        if not is_valid(view, d, q, c, borrowing):
            continue
        code = reason_of(preemption.candidates[c, candidates.VARIANT])
        if not take_target(view, d, topology, preemption.candidates[c, candidates.WORKLOAD], code):
            break
        if fits(view.tree, requests, topology, q, borrowing):
            fill_back(view, d, topology, q, start, borrowing)
            found = requests.marks[counters.TARGETS] - start
    restore(view, d, topology, start)
    requests.marks[counters.TARGETS] = start + found
    return int(ordered * ORDERED + found)


@inlined
def is_under_nominal(tree: QuotaTree, requests: Requests, q: int) -> bool:
    """Whether a queue is within its nominal quota of everything that takes preemption."""
    for i in range(requests.marks[counters.REQUESTED]):
        fr = requests.frs[i, requested.FLAVOR_RESOURCE]
        if (
            requests.frs[i, requested.NEED] == 1
            and tree.quota[q, quotas.NOMINAL, fr] <= tree.quota[q, quotas.USAGE, fr]
        ):
            return False
    return True


@inlined
def is_valid(view: QuotaView, d: CycleScratch, q: int, c: int, borrowing: int) -> bool:
    """Whether a candidate may be taken: its queue, and every cohort up to the common one, is still over its quota."""
    tree, preemption = view.tree, d.preemption
    b = view.held.reservations[preemption.candidates[c, candidates.WORKLOAD], quota_reservations.QUEUE]
    if b == q:
        return True
    if borrowing == 1 and preemption.candidates[c, candidates.VARIANT] == WITHOUT_BORROWING:
        return False
    while b != preemption.candidates[c, candidates.LCA]:
        if not is_over_quota(tree, d.requests, b):
            return False
        b = tree.quota_nodes[b, quota_nodes.PARENT]
    return True
