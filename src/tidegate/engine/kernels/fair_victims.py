"""Victims under fair sharing: from the quota node with the highest share, while that is fair."""

from __future__ import annotations

from tidegate.engine.kernels.columns import candidates, counters, quota_node_flags, requested
from tidegate.engine.kernels.cycle_scratch import AGAIN, CycleScratch, Preemption, Requests
from tidegate.engine.kernels.preemption_candidates import (
    HIERARCHY,
    NEVER,
    SAME_QUEUE,
    collect_from,
    is_over_quota,
    pop_candidate,
    ranks_before,
)
from tidegate.engine.kernels.quota import change_usage, compare_shares, move_usage, share_ratio
from tidegate.engine.kernels.victim_set import fill_back, fits, restore, take_target
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.quota_tables import QuotaTree, QuotaView
from tidegate.state.tables import quota_nodes, quota_reservations

IN_QUEUE = int(Reason.PREEMPTED_IN_QUEUE)
RECLAIMED = int(Reason.RECLAIMED_IN_COHORT)
FAIR_SHARE = int(Reason.PREEMPTED_FOR_SHARE)
FINAL_SHARE, INITIAL_SHARE, BOTH = 1, 2, 3
NOBODY, PRUNED = -1, -2


@kernel
def fair_targets(view: QuotaView, d: CycleScratch, topology: TopologyView | None, fair: int, q: int, j: int) -> int:
    """Find the targets of workload j under fair sharing; return how many, written behind the targets."""
    tree, requests = view.tree, d.requests
    collect_fair(view, d, q, j)
    if requests.marks[counters.CANDIDATES] == 0:
        return 0
    start = requests.marks[counters.TARGETS]
    sort_candidates(view, d)
    charge(tree, requests, q, 1)
    strategy = INITIAL_SHARE if fair == INITIAL_SHARE else FINAL_SHARE
    found = take_by_share(view, d, topology, q, strategy)
    if not found and fair == BOTH:
        found = take_rejected(view, d, topology, q)
    charge(tree, requests, q, -1)
    if found:
        fill_back(view, d, topology, q, start, 1)
        # Targets that were put back may have made an earlier choice unfair: Kueue takes it, and may do so again and
        # again.
        found = requests.marks[counters.EXTERNAL] == AGAIN or stays_fair(view, d, fair, q, start)
    restore(view, d, topology, start)
    if not found:
        requests.marks[counters.TARGETS] = start
    return int(requests.marks[counters.TARGETS] - start)


@kernel
def stays_fair(view: QuotaView, d: CycleScratch, fair: int, q: int, start: int) -> bool:
    """Whether every target that was taken for its share is still fair, now that the others are known."""
    tree, held, preemption, requests = view.tree, view.held, d.preemption, d.requests
    fine = True
    charge(tree, requests, q, 1)
    for i in range(start, requests.marks[counters.TARGETS]):
        if preemption.targets[i, 1] != FAIR_SHARE or not fine:
            continue
        j = preemption.targets[i, 0]
        mine = below_common(tree, q, held.reservations[j, quota_reservations.QUEUE])
        its = below_common(tree, held.reservations[j, quota_reservations.QUEUE], q)
        my_ratio, final = share_ratio(tree, mine), share_ratio(tree, its)
        move_usage(tree, held, j, -1)
        initial = share_ratio(tree, its)
        move_usage(tree, held, j, 1)
        fine = fair != INITIAL_SHARE and compare_shares(tree, mine, my_ratio, its, final) <= 0
        if not fine and fair != FINAL_SHARE:
            fine = compare_shares(tree, mine, my_ratio, its, initial) < 0
    charge(tree, requests, q, -1)
    return fine


@kernel
def collect_fair(view: QuotaView, d: CycleScratch, q: int, j: int) -> None:
    """Collect what workload j may preempt: its own queue's work and that of queues that borrow."""
    tree, requests = view.tree, d.requests
    requests.marks[counters.CANDIDATES] = 0
    for b in range(len(tree.quota_nodes)):
        if (
            tree.quota_nodes[b, quota_nodes.IS_QUEUE] == 0
            or tree.quota_nodes[b, quota_nodes.ROOT] != tree.quota_nodes[q, quota_nodes.ROOT]
        ):
            continue
        if b == q:
            collect_from(view, d, q, j, b, NOBODY, SAME_QUEUE)
        elif tree.quota_nodes[q, quota_nodes.RECLAIM] != NEVER and is_over_quota(tree, requests, b):
            collect_from(view, d, q, j, b, NOBODY, HIERARCHY)


@kernel
def sort_candidates(view: QuotaView, d: CycleScratch) -> None:
    """Chain the candidates of each queue, in the order in which they are taken."""
    preemption = d.preemption
    size = d.requests.marks[counters.CANDIDATES]
    for left in range(size, 0, -1):
        pop_candidate(preemption, left)
    clear_chains(view.tree, preemption)
    for i in range(size):  # the last stands first: chains are built from their ends
        chain_candidate(preemption, preemption.heap[i])


@inlined
def clear_chains(tree: QuotaTree, preemption: Preemption) -> None:
    """Clear the chains: no queue has candidates, and none has been visited."""
    for b in range(len(tree.quota_nodes)):
        preemption.quota_nodes[b, quota_node_flags.FIRST], preemption.quota_nodes[b, quota_node_flags.SEEN] = NOBODY, 0


@inlined
def chain_candidate(preemption: Preemption, c: int) -> None:
    """Put a candidate before the others of its queue."""
    queue = preemption.candidates[c, candidates.QUEUE]
    preemption.candidates[c, candidates.NEXT] = preemption.quota_nodes[queue, quota_node_flags.FIRST]
    preemption.quota_nodes[queue, quota_node_flags.FIRST] = c


@kernel
def charge(tree: QuotaTree, requests: Requests, q: int, sign: int) -> None:
    """Add what is requested to a queue's usage, or remove it."""
    for i in range(requests.marks[counters.REQUESTED]):
        row = requests.frs[i]
        change_usage(tree, q, row[requested.FLAVOR_RESOURCE], row[requested.AMOUNT], sign)


@kernel
def fits_charged(tree: QuotaTree, requests: Requests, topology: TopologyView | None, q: int) -> bool:
    """Whether what is requested, and charged already, is available."""
    charge(tree, requests, q, -1)
    enough = fits(tree, requests, topology, q, 1)
    charge(tree, requests, q, 1)
    return enough


@inlined
def is_around(tree: QuotaTree, b: int, q: int) -> bool:
    """Whether a quota node is a queue or one of its cohorts."""
    while q >= 0:
        if q == b:
            return True
        q = tree.quota_nodes[q, quota_nodes.PARENT]
    return False


@kernel
def below_common(tree: QuotaTree, b: int, other: int) -> int:
    """The quota node around b that stands directly below the lowest cohort it shares with another."""
    while not is_around(tree, tree.quota_nodes[b, quota_nodes.PARENT], other):
        b = tree.quota_nodes[b, quota_nodes.PARENT]
    return int(b)


@kernel
def next_queue(tree: QuotaTree, preemption: Preemption, q: int) -> int:
    """The queue to take from next: from the root down into the highest share; PRUNED: ask again; NOBODY: none.

    A quota node that does not borrow has nothing to give, unless the preempting queue is below it.
    """
    root = tree.quota_nodes[q, quota_nodes.ROOT]
    if root == q:
        return (
            q
            if preemption.quota_nodes[q, quota_node_flags.FIRST] >= 0
            and preemption.quota_nodes[q, quota_node_flags.SEEN] == 0
            else NOBODY
        )
    if preemption.quota_nodes[root, quota_node_flags.SEEN] == 1:
        return NOBODY
    cohort = root
    while True:
        queue, below = highest_queue(tree, preemption, cohort, q), highest_cohort(tree, preemption, cohort, q)
        if queue < 0 and below < 0:
            preemption.quota_nodes[cohort, quota_node_flags.SEEN] = 1
            return PRUNED
        if below < 0:
            return int(queue)
        if queue >= 0 and compare_shares(tree, below, share_ratio(tree, below), queue, share_ratio(tree, queue)) < 0:
            return int(queue)
        cohort = below


@kernel
def highest_queue(tree: QuotaTree, preemption: Preemption, cohort: int, q: int) -> int:
    """The queue of a cohort with the highest share that has candidates; ties are broken by their first candidates."""
    best, best_ratio = NOBODY, 0.0
    b = tree.quota_nodes[cohort, quota_nodes.FIRST_QUEUE]
    while b >= 0:
        if preemption.quota_nodes[b, quota_node_flags.SEEN] == 0:
            ratio, first = share_ratio(tree, b), preemption.quota_nodes[b, quota_node_flags.FIRST]
            if (ratio < 0 and b != q) or first < 0:
                preemption.quota_nodes[b, quota_node_flags.SEEN] = 1
            else:
                order = 1 if best < 0 else compare_shares(tree, b, ratio, best, best_ratio)
                if order == 0 and ranks_before(
                    preemption.candidates, first, preemption.quota_nodes[best, quota_node_flags.FIRST]
                ):
                    order = 1
                if order > 0:
                    best, best_ratio = b, ratio
        b = tree.quota_nodes[b, quota_nodes.NEXT]
    return int(best)


@kernel
def highest_cohort(tree: QuotaTree, preemption: Preemption, cohort: int, q: int) -> int:
    """The child cohort of a cohort with the highest share that may have candidates."""
    best, best_ratio = NOBODY, 0.0
    b = tree.quota_nodes[cohort, quota_nodes.FIRST_COHORT]
    while b >= 0:
        if preemption.quota_nodes[b, quota_node_flags.SEEN] == 0:
            ratio = share_ratio(tree, b)
            if ratio < 0 and not is_around(tree, b, q):
                preemption.quota_nodes[b, quota_node_flags.SEEN] = 1
            elif best < 0 or compare_shares(tree, b, ratio, best, best_ratio) >= 0:
                best, best_ratio = b, ratio
        b = tree.quota_nodes[b, quota_nodes.NEXT]
    return int(best)


@kernel
def take_by_share(view: QuotaView, d: CycleScratch, topology: TopologyView | None, q: int, strategy: int) -> bool:
    """Take targets while it is fair, until the request fits; rejected candidates are chained, the latest first.

    A queue that stays within its quota of what it needs takes what it is entitled to, whatever the shares.
    """
    tree, requests = view.tree, d.requests
    entitled = not is_over_quota(tree, requests, q)
    requests.marks[counters.RECLAIMERS] = NOBODY  # the chain of rejected candidates
    while requests.marks[counters.OVERFLOW] == 0:
        queue = next_queue(tree, d.preemption, q)
        if queue == NOBODY:
            return False
        if queue == PRUNED:
            continue
        if queue == q or entitled:
            taken = take_first(view, d, topology, queue, IN_QUEUE if queue == q else RECLAIMED)
        else:
            taken = take_where_fair(view, d, topology, q, queue, strategy)
        if taken and fits_charged(tree, requests, topology, q):
            return True
    return False


@kernel
def take_first(view: QuotaView, d: CycleScratch, topology: TopologyView | None, queue: int, code: int) -> bool:
    """Take the first candidate of a queue as a target."""
    preemption = d.preemption
    c = preemption.quota_nodes[queue, quota_node_flags.FIRST]
    preemption.quota_nodes[queue, quota_node_flags.FIRST] = preemption.candidates[c, candidates.NEXT]
    return take_target(view, d, topology, preemption.candidates[c, candidates.WORKLOAD], code)


@kernel
def take_where_fair(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, q: int, queue: int, strategy: int
) -> bool:
    """Take the first candidate of a queue that may fairly be taken; those before it are rejected."""
    tree, held, preemption, requests = view.tree, view.held, d.preemption, d.requests
    mine, its = below_common(tree, q, queue), below_common(tree, queue, q)
    my_ratio, its_ratio = share_ratio(tree, mine), share_ratio(tree, its)
    hopeless = is_infinite(tree, mine, my_ratio) and not is_infinite(tree, its, its_ratio)
    while preemption.quota_nodes[queue, quota_node_flags.FIRST] >= 0:
        c = preemption.quota_nodes[queue, quota_node_flags.FIRST]
        fair = False
        if not hopeless and strategy == INITIAL_SHARE:
            fair = compare_shares(tree, mine, my_ratio, its, its_ratio) < 0
        elif not hopeless:
            move_usage(tree, held, preemption.candidates[c, candidates.WORKLOAD], 1)
            fair = compare_shares(tree, mine, my_ratio, its, share_ratio(tree, its)) <= 0
            move_usage(tree, held, preemption.candidates[c, candidates.WORKLOAD], -1)
        if fair:
            return take_first(view, d, topology, queue, FAIR_SHARE)
        preemption.quota_nodes[queue, quota_node_flags.FIRST] = preemption.candidates[c, candidates.NEXT]
        preemption.candidates[c, candidates.NEXT] = requests.marks[counters.RECLAIMERS]
        requests.marks[counters.RECLAIMERS] = c
    return False


@inlined
def is_infinite(tree: QuotaTree, b: int, ratio: float) -> bool:
    """Whether a quota node borrows and has no weight."""
    return bool(tree.quota_nodes[b, quota_nodes.WEIGHT_MILLI] == 0 and ratio > 0)


@kernel
def take_rejected(view: QuotaView, d: CycleScratch, topology: TopologyView | None, q: int) -> bool:
    """A second pass over the rejected: one a queue, where the share with the request is below the victim's before."""
    tree, preemption, requests = view.tree, d.preemption, d.requests
    clear_chains(tree, preemption)
    c = requests.marks[counters.RECLAIMERS]
    while c >= 0:  # the latest rejected first: putting each before the others restores their order
        following = preemption.candidates[c, candidates.NEXT]
        chain_candidate(preemption, c)
        c = following
    while requests.marks[counters.OVERFLOW] == 0:
        queue = next_queue(tree, preemption, q)
        if queue == NOBODY:
            return False
        if queue == PRUNED:
            continue
        preemption.quota_nodes[queue, quota_node_flags.SEEN] = 1
        if queue == q:
            continue
        mine, its = below_common(tree, q, queue), below_common(tree, queue, q)
        if compare_shares(tree, mine, share_ratio(tree, mine), its, share_ratio(tree, its)) < 0:
            taken = take_first(view, d, topology, queue, FAIR_SHARE)
            if taken and fits_charged(tree, requests, topology, q):
                return True
    return False
