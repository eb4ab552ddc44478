"""Moves that make room for an owner: its quota is free, and its places are held by work within its own quota.

Quota rules alone evict nothing there, so an owner would wait until enough work ends. But work that gets its quota back,
and a place elsewhere, only moves. So work of lower priority is planned as victims, whether its queue borrows or not,
and each victim must either fit again next to the planned places, in quota and on nodes, or be one that the rules let be
evicted for good.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import candidates, counters, losses, planned, requested, search
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleScratch
from tidegate.engine.kernels.fair_victims import below_common, charge
from tidegate.engine.kernels.gang_placement import choose_devices
from tidegate.engine.kernels.node_fit import move_pod
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.preemption_candidates import (
    MOVES,
    RECLAIM,
    TO_MOVE,
    WITHIN,
    collect_below,
    collect_from,
    is_over_quota,
)
from tidegate.engine.kernels.quota import available, borrows_with, move_usage
from tidegate.engine.kernels.score_cache import best_node
from tidegate.engine.kernels.victim_quota import WITHIN_QUOTA, open_candidates, open_quota
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.victim_search import open_search, shift_pods
from tidegate.engine.kernels.victim_set import has_quota
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.quota_tables import QuotaTree, QuotaView, Reserved
from tidegate.state.tables import claims, pods, quota_nodes, quota_reservations, workloads

NEVER, NOBODY = 0, -1
DRAWS = int(Counter.RANDOM)


@kernel
def open_moves(c: Cycle, s: VictimSearch, q: int, j: int) -> bool:
    """Begin a search among all that workload j outranks; False: it reclaims nothing, or it outranks nothing."""
    view, d = c.quota, c.scratch
    tree, requests = view.tree, d.requests
    root = tree.quota_nodes[q, quota_nodes.ROOT]
    if root == q or tree.quota_nodes[q, quota_nodes.RECLAIM] == NEVER:
        return False
    for i in range(requests.marks[counters.REQUESTED]):
        if requests.frs[i, requested.AMOUNT] > 0 and borrows_with(
            tree, q, requests.frs[i, requested.FLAVOR_RESOURCE], requests.frs[i, requested.AMOUNT]
        ):
            return False
    requests.marks[counters.CANDIDATES] = 0
    collect_below(view, d, q, j, root, NOBODY, MOVES)
    if requests.marks[counters.CANDIDATES] == 0:
        return False
    collect_from(view, d, q, j, q, NOBODY, MOVES)
    open_search(s)
    open_quota(view, d, s, 0, q, WITHIN_QUOTA)
    open_candidates(c.hot, d, s)
    return True


@kernel
def find_moves(c: Cycle, s: VictimSearch, q: int) -> bool:
    """Let each victim of the best plan move, or evict it for good if that is allowed and it fits nowhere.

    Moved and evicted victims are of one queue: otherwise evicted ones, pending again, would take the room of the moved.
    """
    hot, view, d = c.hot, c.quota, c.scratch
    held, victims, draws = view.held, s.best[: s.numbers[search.BEST_TAKEN]], hot.counters[DRAWS]
    plan, candidate_rows = s.best_plan[: s.numbers[search.BEST_PLANNED]], d.preemption.candidates
    for v in victims:
        shift_pods(hot, v, 1)
        if may_lose(view, d, q, v):
            candidate_rows[s.workloads[v, losses.CANDIDATE], candidates.VARIANT] = (
                WITHIN if held.reservations[v, quota_reservations.QUEUE] == q else RECLAIM
            )
            move_usage(view.tree, held, v, 1)
        else:
            candidate_rows[s.workloads[v, losses.CANDIDATE], candidates.VARIANT] = TO_MOVE
    shift_planned(hot, plan, -1)
    found = has_quota(view.tree, d.requests, q, 0)
    charge(view.tree, d.requests, q, 1)
    placed = place_victims(c, s, victims)
    charge(view.tree, d.requests, q, -1)
    shift_planned(hot, s.moved[:placed], 1)
    shift_planned(hot, plan, 1)
    for v in victims:
        shift_pods(hot, v, -1)
        if candidate_rows[s.workloads[v, losses.CANDIDATE], candidates.VARIANT] != TO_MOVE:
            move_usage(view.tree, held, v, -1)
    hot.counters[DRAWS] = draws
    return bool(found and placed > 0 and are_of_one_queue(held, d, s, victims))


@kernel
def place_victims(c: Cycle, s: VictimSearch, victims: I64) -> int:
    """Place moving victims next to the plan, and others that fit; return how many pods, 0: one must move and cannot."""
    hot, view = c.hot, c.quota
    tree, held, placed = view.tree, view.held, 0
    for goes in range(2):
        for v in victims:
            row = c.scratch.preemption.candidates[s.workloads[v, losses.CANDIDATE]]
            if (row[candidates.VARIANT] != TO_MOVE) != (goes == 1) or (
                goes == 1 and not has_quota_again(tree, held, v)
            ):
                continue
            before, placed = placed, place_again(hot, c.rule, s.moved, v, placed)
            if placed == before and goes == 0:
                shift_planned(hot, s.moved[:placed], 1)
                return 0
            if placed > before and goes == 1:
                row[candidates.VARIANT] = TO_MOVE
                move_usage(tree, held, v, -1)
    return placed


@kernel
def are_of_one_queue(held: Reserved, d: CycleScratch, s: VictimSearch, victims: I64) -> bool:
    """Whether all victims are of one queue, or all of them move."""
    goes, others = False, False
    for v in victims:
        goes = goes or d.preemption.candidates[s.workloads[v, losses.CANDIDATE], candidates.VARIANT] != TO_MOVE
        others = (
            others
            or held.reservations[v, quota_reservations.QUEUE] != held.reservations[victims[0], quota_reservations.QUEUE]
        )
    return not (goes and others)


@kernel
def may_lose(view: QuotaView, d: CycleScratch, q: int, v: int) -> bool:
    """Whether the rules let workload v be evicted for good now: its queue, and cohorts below the common one, borrow."""
    tree, b = view.tree, view.held.reservations[v, quota_reservations.QUEUE]
    if b == q:
        return True
    end = tree.quota_nodes[below_common(tree, b, q), quota_nodes.PARENT]
    while b != end:
        if not is_over_quota(tree, d.requests, b):
            return False
        b = tree.quota_nodes[b, quota_nodes.PARENT]
    return True


@kernel
def has_quota_again(tree: QuotaTree, held: Reserved, v: int) -> bool:
    """Whether the quota that workload v held, and that was taken out, is available to it."""
    for a in range(held.claims.shape[2]):
        fr, amount = held.claims[v, claims.FLAVOR_RESOURCE, a], held.claims[v, claims.AMOUNT, a]
        if fr != 0 and amount > max(0, available(tree, held.reservations[v, quota_reservations.QUEUE], fr - 1)):
            return False
    return True


@kernel
def place_again(hot: Hot, rule: Rule, moved: I64, v: int, start: int) -> int:
    """Place the pods of workload v where they fit now, from row `start` on; return where rows end: `start` if not."""
    at, p = start, hot.workloads[v, workloads.FIRST_POD]
    while p >= 0:
        k = hot.pods[p, pods.POD_CLASS]
        n = best_node(hot, rule, k)
        if n < 0:
            shift_planned(hot, moved[start:at], 1)
            return start
        row = moved[at]
        row[planned.POD_CLASS], row[planned.NODE], row[planned.DEVICES] = (k, n, choose_devices(hot, rule, k, n))
        move_pod(hot, k, n, row[planned.DEVICES], -1)
        at, p = at + 1, hot.pods[p, pods.NEXT]
    return int(at)


@kernel
def shift_planned(hot: Hot, plan: I64, sign: int) -> None:
    """Put planned pods on their nodes (sign -1), or take them off (1)."""
    for at in range(len(plan)):
        move_pod(hot, plan[at, planned.POD_CLASS], plan[at, planned.NODE], plan[at, planned.DEVICES], sign)
