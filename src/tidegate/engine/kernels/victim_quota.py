"""The quota side of the victim search: what the queue's rules let be evicted, and whether quota fits.

Without queues all work may be evicted, and there is no quota to fit.
"""

from __future__ import annotations

from tidegate.engine.kernels.classic_victims import is_hopeless, is_under_nominal, is_valid
from tidegate.engine.kernels.columns import candidates, counters, losses, search
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleScratch
from tidegate.engine.kernels.fair_victims import (
    BOTH,
    FAIR_SHARE,
    IN_QUEUE,
    INITIAL_SHARE,
    RECLAIMED,
    below_common,
    charge,
    collect_fair,
    is_infinite,
)
from tidegate.engine.kernels.preemption_candidates import (
    NEVER,
    STAYS,
    collect_classic,
    is_over_quota,
    pop_candidate,
    reason_of,
)
from tidegate.engine.kernels.quota import compare_shares, move_usage, share_ratio
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.victim_set import has_quota
from tidegate.engine.topology.cycle_view import TopologyView, move_domains
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaView
from tidegate.state.tables import pod_classes, pods, quota_nodes, quota_reservations, work_classes, workloads

#: Levels of candidates: the claim on them first, then their priority.
PRIORITY_BITS, LOWEST_PRIORITY = 40, 1 << 32

#: Below the GPU-seconds of a loss stands the rank of a candidate, which orders equals. The most GPU-seconds are those
#: of 100,000 GPUs in a month: losses can be added up, whatever restart cost is declared.
RANK_BITS, MOST_LOSS = 16, float(1 << 38)

#: Ways to search: not at all; within the queue's quota, or while it borrows; by fair shares.
NO_WAY, WITHIN_QUOTA, WHILE_BORROWS, BY_SHARE = -1, 0, 1, 2


@inlined
def may_evict(c: Cycle | None, s: VictimSearch, j: int) -> bool:
    """Whether workload j may be evicted now, by the rules of the preempting queue."""
    if c is not None:
        return is_allowed(c.quota, c.scratch, s, j)
    return True


@kernel
def is_allowed(view: QuotaView, d: CycleScratch, s: VictimSearch, j: int) -> bool:
    """Whether workload j may be evicted with the victims out of the tree that are taken so far."""
    numbers = s.numbers
    if numbers[search.FAIR] != 0:
        return is_fair(view, numbers, d.preemption.candidates[s.workloads[j, losses.CANDIDATE], candidates.QUEUE], j)
    if is_valid_now(view, d, s, j):
        return True
    if numbers[search.TAKEN] > 0 and numbers[search.ANY_ORDER] == 0:
        numbers[search.ORDER_FORBIDS] = 1
    return numbers[search.TAKEN] > 0 and numbers[search.ANY_ORDER] == 1 and is_valid_before_larger(view, d, s, j)


@inlined
def is_valid_now(view: QuotaView, d: CycleScratch, s: VictimSearch, j: int) -> bool:
    """Whether the queue of workload j, and every cohort up to the common one, is still over its quota."""
    c, queue, way = (s.workloads[j, losses.CANDIDATE], s.numbers[search.QUEUE], s.numbers[search.BORROWING])
    return bool(is_valid(view, d, queue, c, way))


@kernel
def is_valid_before_larger(view: QuotaView, d: CycleScratch, s: VictimSearch, j: int) -> bool:
    """Whether workload j may be evicted before the larger ones taken, and these after it.

    A queue gives while it is over its quota: the largest victim may have to be the last one.
    """
    taken, size = s.taken[: s.numbers[search.TAKEN]], s.workloads[j, losses.SIZE]
    for i in range(len(taken)):
        if s.workloads[taken[i], losses.SIZE] > size:
            move_usage(view.tree, view.held, taken[i], -1)
    valid = is_valid_now(view, d, s, j)
    move_usage(view.tree, view.held, j, 1)
    while True:  # the smallest first
        best = -1
        for i in range(len(taken)):
            other = s.workloads[taken[i], losses.SIZE]
            if other > size and (best < 0 or other < best):
                best = other
        if best < 0:
            break
        for i in range(len(taken)):
            if s.workloads[taken[i], losses.SIZE] == best:
                valid = valid and is_valid_now(view, d, s, taken[i])
                move_usage(view.tree, view.held, taken[i], 1)
        size = best
    move_usage(view.tree, view.held, j, -1)
    return bool(valid)


@kernel
def is_fair(view: QuotaView, numbers: I64, queue: int, j: int) -> bool:
    """Whether a workload of a queue may be evicted under fair sharing; what is requested is charged already."""
    tree, q = view.tree, numbers[search.QUEUE]
    if queue == q:
        return True
    mine, its = below_common(tree, q, queue), below_common(tree, queue, q)
    b = queue
    while True:
        if share_ratio(tree, b) < 0:
            return False  # a queue that does not borrow has nothing to give
        if b == its:
            break
        b = tree.quota_nodes[b, quota_nodes.PARENT]
    if numbers[search.ENTITLED] == 1:
        return True
    my_ratio, before = share_ratio(tree, mine), share_ratio(tree, its)
    if is_infinite(tree, mine, my_ratio) and not is_infinite(tree, its, before):
        return False
    if numbers[search.FAIR] in (INITIAL_SHARE, BOTH) and compare_shares(tree, mine, my_ratio, its, before) < 0:
        return True
    if numbers[search.FAIR] == INITIAL_SHARE:
        return False
    move_usage(tree, view.held, j, 1)
    fair = compare_shares(tree, mine, my_ratio, its, share_ratio(tree, its)) <= 0
    move_usage(tree, view.held, j, -1)
    return bool(fair)


@inlined
def has_quota_for(c: Cycle | None, numbers: I64) -> bool:
    """Whether quota fits what is requested now."""
    if c is not None:
        return fits_quota(c.quota, c.scratch, numbers)
    return True


@kernel
def fits_quota(view: QuotaView, d: CycleScratch, numbers: I64) -> bool:
    """Whether what is requested is available to the queue; under fair sharing it is charged already."""
    if numbers[search.FAIR] == 0:
        return has_quota(view.tree, d.requests, numbers[search.QUEUE], numbers[search.BORROWING])
    charge(view.tree, d.requests, numbers[search.QUEUE], -1)
    enough = has_quota(view.tree, d.requests, numbers[search.QUEUE], 1)
    charge(view.tree, d.requests, numbers[search.QUEUE], 1)
    return enough


@inlined
def move_quota(hot: Hot, c: Cycle | None, topology: TopologyView | None, j: int, sign: int) -> None:
    """Take what workload j holds of quota and topology out (sign 1), or put it back (-1)."""
    if c is not None:
        shift_quota(hot, c.quota, topology, j, sign)


@kernel
def shift_quota(hot: Hot, view: QuotaView, topology: TopologyView | None, j: int, sign: int) -> None:
    """Take what workload j holds of quota and topology out (sign 1), or put it back (-1)."""
    if topology is not None:
        if view.held.reservations[j, quota_reservations.ASSIGNMENTS] == 0:
            shift_unassigned(hot, topology, j, sign)
        else:
            move_domains(topology, view.held, j, sign)
    if view.held.reservations[j, quota_reservations.QUEUE] >= 0:
        move_usage(view.tree, view.held, j, sign)


@kernel
def shift_unassigned(hot: Hot, topology: TopologyView, j: int, sign: int) -> None:
    """Take the pods of unassigned workload j out of the leaves (sign 1), or put them back (-1)."""
    p = hot.workloads[j, workloads.FIRST_POD]
    while p >= 0:
        k, n = hot.pods[p, pods.POD_CLASS], hot.pods[p, pods.NODE]
        for i in range(topology.leaves.start[n], topology.leaves.start[n + 1]):
            for r in range(topology.amounts.shape[1]):
                topology.arrays.free[topology.leaves.rows[i], r] += sign * topology.amounts[k, r]
        p = hot.pods[p, pods.NEXT]


@kernel
def gpu_milli_held(hot: Hot, j: int) -> int:
    """How many thousandths of GPUs the pods of workload j hold; those that are done hold none any more."""
    milli, p = 0, hot.workloads[j, workloads.FIRST_POD]
    while p >= 0:
        pod = hot.pod_classes[hot.pods[p, pods.POD_CLASS]]
        milli += int(pod[pod_classes.GPUS] * pod[pod_classes.MILLI])
        p = hot.pods[p, pods.NEXT]
    return milli


@kernel
def work_lost(work: I64, gpu_milli: int, held_ms: int) -> int:
    """GPU-seconds lost by evicting work of this age: since its last checkpoint, and its restart.

    The age counts from admission and not from when pods began to run: a new leader knows it to the millisecond.
    """
    lost_ms = max(0, held_ms)
    if work[work_classes.CHECKPOINT_MS] > 0:
        lost_ms %= work[work_classes.CHECKPOINT_MS]
    lost = float(max(gpu_milli, 1)) * (float(lost_ms) + float(work[work_classes.RESTART_MS])) / 1e6 + 1.0
    return int(min(lost, MOST_LOSS))


@kernel
def ways_to_search(view: QuotaView, d: CycleScratch, fair: int, q: int, j: int, again: int) -> int:
    """How to search for victims first, and again after that failed; candidates are collected."""
    tree, marks = view.tree, d.requests.marks
    if fair != 0:
        collect_fair(view, d, q, j)
        return BY_SHARE if again == 0 else NO_WAY
    if is_hopeless(tree, d.requests, q):
        return NO_WAY
    collect_classic(view, d, q, j)
    forbidden = tree.quota_nodes[q, quota_nodes.BORROW] == NEVER
    if marks[counters.OTHER_QUEUES] == 0 or (forbidden and not is_under_nominal(tree, d.requests, q)):
        return WHILE_BORROWS if again == 0 else NO_WAY
    first = WITHIN_QUOTA if forbidden and marks[counters.RECLAIMERS] == 0 else WHILE_BORROWS
    return first if again == 0 else WHILE_BORROWS - first


@kernel
def list_victim(hot: Hot, s: VictimSearch, j: int, held_ms: int, rank: int, level: int) -> None:
    """List workload j as a candidate with the work that its eviction loses; equal losses go by rank."""
    known, work = s.workloads[j], hot.work_classes[hot.workloads[j, workloads.WORK_CLASS]]
    size = gpu_milli_held(hot, j)
    loss = (work_lost(work, size, held_ms) << RANK_BITS) + min(rank, (1 << RANK_BITS) - 1)
    known[losses.LOSS], known[losses.LOSS_BY_GPU] = loss, loss // max(1, size)
    known[losses.SIZE], known[losses.LESS_SIZE], known[losses.LEVEL] = size, -size, level
    s.members[s.numbers[search.CANDIDATES]] = j
    s.numbers[search.CANDIDATES] += 1


@kernel
def open_candidates(hot: Hot, d: CycleScratch, s: VictimSearch) -> None:
    """Make all collected candidates that are not terminating available as victims.

    Of those that lose as much, the first among the candidates goes first: mostly the latest.
    """
    size = d.requests.marks[counters.CANDIDATES]
    for left in range(size, 0, -1):
        pop_candidate(d.preemption, left)
    for rank in range(size):
        c = d.preemption.heap[size - 1 - rank]
        row = d.preemption.candidates[c]
        j, claim = row[candidates.WORKLOAD], row[candidates.CLAIM] - STAYS
        if claim < 0:
            continue
        level = (claim << PRIORITY_BITS) + row[candidates.PRIORITY] + LOWEST_PRIORITY
        list_victim(hot, s, j, d.requests.marks[counters.NOW_MS] - row[candidates.GRANTED], rank, level)
        s.workloads[j, losses.CANDIDATE] = c


@kernel
def eviction_reason(d: CycleScratch, numbers: I64, c: int) -> int:
    """The Reason of evicting candidate c."""
    row = d.preemption.candidates[c]
    if numbers[search.FAIR] == 0:
        return int(reason_of(row[candidates.VARIANT]))
    if row[candidates.QUEUE] == numbers[search.QUEUE]:
        return IN_QUEUE
    return RECLAIMED if numbers[search.ENTITLED] == 1 else FAIR_SHARE


@kernel
def open_quota(view: QuotaView, d: CycleScratch, s: VictimSearch, fair: int, q: int, way: int) -> None:
    """Begin a search for a queue: under fair sharing what is requested is charged until `close_quota`."""
    s.numbers[search.QUEUE], s.numbers[search.BORROWING], s.numbers[search.FAIR] = q, way, fair
    if fair != 0:
        charge(view.tree, d.requests, q, 1)
        s.numbers[search.ENTITLED] = 0 if is_over_quota(view.tree, d.requests, q) else 1


@kernel
def close_quota(view: QuotaView, d: CycleScratch, s: VictimSearch) -> None:
    """End a search for a queue."""
    if s.numbers[search.FAIR] != 0:
        charge(view.tree, d.requests, s.numbers[search.QUEUE], -1)
