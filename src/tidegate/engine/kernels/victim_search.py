"""Victim search with places: the victims whose eviction lets all pods of a workload fit, with the least work lost.

Pods are planned one by one: where one fits as it is, by the placement rule, else on the node that is cleared with the
least loss. Then victims are added until quota fits, and those that are not needed are spared. A trial takes work out of
nodes and quota, and is always undone.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import losses, planned, search
from tidegate.engine.kernels.cycle_scratch import Cycle
from tidegate.engine.kernels.gang_placement import choose_devices
from tidegate.engine.kernels.node_fit import WHOLE_GPU, is_too_small, move_amounts, move_pod, refusal
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.score_cache import best_node, refresh
from tidegate.engine.kernels.victim_quota import has_quota_for, may_evict, move_quota
from tidegate.engine.kernels.victim_scratch import (
    MOST_CANDIDATES,
    MOST_REPLANNED,
    MOST_TRIALS,
    NEVER,
    ORDERS,
    UNKNOWN,
    VictimSearch,
)
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import COMPILED, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import nodes, pod_classes, pod_sets, pods, workloads

DRAWS = int(Counter.RANDOM)


# -- candidates ------------------------------------------------------------------------------------------------


@kernel
def open_search(s: VictimSearch) -> None:
    """Begin without candidates."""
    s.workloads[:, losses.LEVEL] = NEVER
    s.workloads[:, losses.IS_TAKEN] = 0
    s.numbers[:] = 0
    s.start[:] = 0


@kernel
def list_levels(s: VictimSearch) -> None:
    """List the levels of the candidates, ascending, each once."""
    count = 0
    for i in range(s.numbers[search.CANDIDATES]):
        level, at = s.workloads[s.members[i], losses.LEVEL], count
        while at > 0 and s.levels[at - 1] > level:
            at -= 1
        if at > 0 and s.levels[at - 1] == level:
            continue
        for k in range(count, at, -1):
            s.levels[k] = s.levels[k - 1]
        s.levels[at] = level
        count += 1
    s.numbers[search.LEVELS] = count


@kernel
def list_pods(hot: Hot, s: VictimSearch) -> None:
    """List the pods of candidates node by node, a workload's together."""
    s.start[:] = 0
    for i in range(s.numbers[search.CANDIDATES]):
        p = hot.workloads[s.members[i], workloads.FIRST_POD]
        while p >= 0:
            s.start[hot.pods[p, pods.NODE] + 1] += 1
            p = hot.pods[p, pods.NEXT]
    for n in range(len(s.start) - 1):
        s.start[n + 1] += s.start[n]
        s.costs[n] = s.start[n]  # where the next pod of the node goes
    for i in range(s.numbers[search.CANDIDATES]):
        p = hot.workloads[s.members[i], workloads.FIRST_POD]
        while p >= 0:
            n = hot.pods[p, pods.NODE]
            s.pods[s.costs[n]] = p
            s.costs[n] += 1
            p = hot.pods[p, pods.NEXT]


# -- taking out and putting back -------------------------------------------------------------------------------


@kernel
def shift_pods(hot: Hot, j: int, sign: int) -> None:
    """Take the pods of workload j off their nodes (sign 1), or put them back (-1)."""
    p = hot.workloads[j, workloads.FIRST_POD]
    while p >= 0:
        move_pod(hot, hot.pods[p, pods.POD_CLASS], hot.pods[p, pods.NODE], hot.pods[p, pods.DEVICES], sign)
        p = hot.pods[p, pods.NEXT]


@kernel
def shift_victim(hot: Hot, s: VictimSearch, j: int, sign: int) -> None:
    """Take the pods of workload j off their nodes (sign 1), or put them back (-1).

    While a node is weighed only its own pods matter, and scores are not read before they are back.
    """
    n = s.numbers[search.WEIGHED] - 1
    if n < 0:
        shift_pods(hot, j, sign)
        return
    for i in range(s.start[n], s.start[n + 1]):
        pod = hot.pods[s.pods[i]]
        if pod[pods.WORKLOAD] == j:
            move_amounts(hot, pod[pods.POD_CLASS], n, pod[pods.DEVICES], sign)


@kernel
def move_victim(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, j: int, sign: int) -> None:
    """Take workload j out of nodes and quota (sign 1), or put it back (-1)."""
    s.workloads[j, losses.IS_TAKEN] = int(sign > 0)
    shift_victim(hot, s, j, sign)
    move_quota(hot, c, topology, j, sign)


@kernel
def take_victim(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, j: int) -> None:
    """Take workload j out, and list it as taken."""
    s.taken[s.numbers[search.TAKEN]] = j
    s.numbers[search.TAKEN] += 1
    move_victim(hot, c, topology, s, j, 1)


@kernel
def put_back_since(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, start: int) -> None:
    """Put back all that were taken since there were `start` of them."""
    while s.numbers[search.TAKEN] > start:
        s.numbers[search.TAKEN] -= 1
        move_victim(hot, c, topology, s, s.taken[s.numbers[search.TAKEN]], -1)


@inlined
def remove_taken(s: VictimSearch, at: int) -> None:
    """Remove one from the list of those taken; the others keep their order."""
    for i in range(at, s.numbers[search.TAKEN] - 1):
        s.taken[i] = s.taken[i + 1]
    s.numbers[search.TAKEN] -= 1


# -- clearing a node -------------------------------------------------------------------------------------------


@kernel
def next_victim(hot: Hot, c: Cycle | None, s: VictimSearch, n: int, order: int) -> int:
    """The workload with pods on node n that is taken next; -1: none may be."""
    best, column = -1, losses.LOSS + order
    for i in range(s.start[n], s.start[n + 1]):
        j = hot.pods[s.pods[i], pods.WORKLOAD]
        row = s.workloads[j]
        if row[losses.IS_TAKEN] == 1 or row[losses.LEVEL] > s.numbers[search.MOST_LEVEL] or j == best:
            continue
        if (best < 0 or row[column] < s.workloads[best, column]) and may_evict(c, s, j):
            best = j
    return int(best)


@kernel
def clear_node(
    hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, k: int, n: int, order: int
) -> int:
    """Take victims off node n until a pod of class k fits there; return the loss. NEVER: that is impossible."""
    start, loss = s.numbers[search.TAKEN], 0
    while refusal(hot, k, n) != 0:
        j = next_victim(hot, c, s, n, order)
        if j < 0:
            return NEVER
        take_victim(hot, c, topology, s, j)
    i = s.numbers[search.TAKEN] - 2  # the last one taken is needed
    while i >= start:
        j = s.taken[i]
        move_victim(hot, c, topology, s, j, -1)
        if refusal(hot, k, n) == 0:
            remove_taken(s, i)
        else:
            move_victim(hot, c, topology, s, j, 1)
        i -= 1
    for i in range(start, s.numbers[search.TAKEN]):
        loss += s.workloads[s.taken[i], losses.LOSS]
    return loss


@inlined
def is_closed(hot: Hot, k: int, n: int) -> bool:
    """Whether node n would not take a pod of class k even if it were empty."""
    node = hot.nodes[n] if COMPILED else hot.nodes[n].tolist()
    pod = hot.pod_classes[k] if COMPILED else hot.pod_classes[k].tolist()
    if node[nodes.NODE_CLASS] < 0 or node[nodes.UP] == 0 or hot.match[k, node[nodes.NODE_CLASS]] != 0:
        return True
    return is_too_small(hot, k, n, node, pod)


@kernel
def weigh_node(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, k: int, n: int) -> None:
    """Note the loss by clearing node n for a pod of class k, in the best order; the state is left as it was."""
    best, best_order, start = NEVER, 0, s.numbers[search.TAKEN]
    if s.start[n] < s.start[n + 1] and not is_closed(hot, k, n):
        s.numbers[search.WEIGHED] = n + 1
        for order in range(ORDERS):
            loss = clear_node(hot, c, topology, s, k, n, order)
            put_back_since(hot, c, topology, s, start)
            if loss < best:
                best, best_order = loss, order
        s.numbers[search.WEIGHED] = 0
    s.costs[n], s.orders[n] = best, best_order


@kernel
def weigh_nodes(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, k: int) -> None:
    """Note what clearing each node loses, as far as that is not known."""
    # Up to the first node that is cleared every trial is the same: it is weighed once.
    is_first = (
        s.numbers[search.FORCES_FIRST] == 1 and s.numbers[search.TAKEN] == 0 and s.numbers[search.MOST_LEVEL] >= 0
    )
    if is_first and s.numbers[search.WEIGHED_FIRST] == 1:
        for n in range(len(s.costs)):
            s.costs[n], s.orders[n] = s.first_costs[n], s.first_orders[n]
        return
    for n in range(len(s.costs)):
        if s.costs[n] == UNKNOWN and (s.numbers[search.RESTRICTED] == 0 or s.allowed[n] == 1):
            weigh_node(hot, c, topology, s, k, n)
    if is_first:
        s.numbers[search.WEIGHED_FIRST] = 1
        for n in range(len(s.costs)):
            s.first_costs[n], s.first_orders[n] = s.costs[n], s.orders[n]


@kernel
def cheapest_node(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, k: int) -> int:
    """The node that is cleared for a pod of class k with the least loss; -1: none can be."""
    best = -1
    weigh_nodes(hot, c, topology, s, k)
    for at in range(hot.scores.used[0]):
        n = hot.scores.at_rank[at]
        if s.numbers[search.FORCES_FIRST] == 1 and s.tried[n] == 1:
            continue
        if s.numbers[search.RESTRICTED] == 1 and s.allowed[n] == 0:
            continue
        if s.costs[n] < NEVER and (best < 0 or s.costs[n] < s.costs[best]):
            best = n
    return int(best)


# -- a plan for all pods ---------------------------------------------------------------------------------------


@kernel
def weigh_again(hot: Hot, s: VictimSearch, start: int) -> None:
    """Have the nodes weighed again that victims taken since there were `start` of them had pods on."""
    for i in range(start, s.numbers[search.TAKEN]):
        p = hot.workloads[s.taken[i], workloads.FIRST_POD]
        while p >= 0:
            s.costs[hot.pods[p, pods.NODE]] = UNKNOWN
            p = hot.pods[p, pods.NEXT]


@kernel
def best_allowed(hot: Hot, rule: Rule, s: VictimSearch, k: int) -> int:
    """The allowed node with the highest score for class k; -1: none fits."""
    best, best_score = -1, -1
    refresh(hot, rule, k)
    for at in range(hot.scores.used[0]):
        n, score = hot.scores.at_rank[at], hot.scores.score[k, at]
        if score > best_score and s.allowed[n] == 1:
            best, best_score = n, score
    return int(best)


@kernel
def plan_pod(
    hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, k: int, at: int
) -> bool:
    """Plan one pod of class k: where it fits, or on the node that is cleared with the least loss."""
    n = best_node(hot, rule, k) if s.numbers[search.RESTRICTED] == 0 else best_allowed(hot, rule, s, k)
    while n < 0:
        n = cheapest_node(hot, c, topology, s, k)
        is_first = s.numbers[search.FORCES_FIRST] == 1
        if n < 0 or (is_first and s.costs[n] >= s.numbers[search.BEST_LOSS]):
            return False  # a first node that loses as much as the best plan cannot make a better one
        if is_first:
            s.numbers[search.FORCES_FIRST], s.tried[n] = 0, 1
        start = s.numbers[search.TAKEN]
        if clear_node(hot, c, topology, s, k, n, s.orders[n]) == NEVER:
            # Victims taken since it was weighed forbid this order, and maybe not another one.
            put_back_since(hot, c, topology, s, start)
            s.costs[n], n = UNKNOWN, -1
        else:
            weigh_again(hot, s, start)
    s.plan[at, planned.POD_CLASS] = k
    s.plan[at, planned.NODE] = n
    s.plan[at, planned.DEVICES] = choose_devices(hot, rule, k, n)
    move_pod(hot, k, n, s.plan[at, planned.DEVICES], -1)
    s.costs[n] = UNKNOWN
    s.numbers[search.PLANNED] += 1
    return True


@kernel
def plan_sets(hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, sets: I64) -> bool:
    """Plan every pod of these sets, those with most GPUs first."""
    s.plan[:, planned.NODE] = -1
    for gpus in range(hot.hosted.shape[1] - 1, -1, -1):
        at = 0
        for i in range(len(sets)):
            k = sets[i, pod_sets.POD_CLASS]
            if hot.pod_classes[k, pod_classes.GPUS] == gpus and sets[i, pod_sets.COUNT] > 0:
                s.costs[:] = UNKNOWN
                for p in range(at, at + sets[i, pod_sets.COUNT]):
                    if not plan_pod(hot, rule, c, topology, s, k, p):
                        return False
            at += sets[i, pod_sets.COUNT]
    return True


@kernel
def forget_plan(hot: Hot, s: VictimSearch) -> None:
    """Take the planned pods off their nodes."""
    for at in range(len(s.plan)):
        if s.plan[at, planned.NODE] >= 0:
            move_pod(hot, s.plan[at, planned.POD_CLASS], s.plan[at, planned.NODE], s.plan[at, planned.DEVICES], 1)
            s.plan[at, planned.NODE] = -1
    s.numbers[search.PLANNED] = 0


@kernel
def fill_quota(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch) -> bool:
    """Take more victims until quota fits too."""
    while not has_quota_for(c, s.numbers):
        best = first_candidate(c, s, 0)
        if best < 0:
            return False
        take_victim(hot, c, topology, s, best)
    return True


@kernel
def fits_beside(
    hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, sets: I64, j: int
) -> bool:
    """Whether the planned pods fit next to workload j, which was put back: where they are, or elsewhere."""
    if is_within_capacity(hot, j):
        return True
    pod_count, level = s.numbers[search.PLANNED], s.numbers[search.MOST_LEVEL]
    if pod_count * s.numbers[search.TAKEN] > MOST_REPLANNED:
        return False
    copy_plan(s.plan, s.old_plan, pod_count)
    forget_plan(hot, s)
    s.numbers[search.MOST_LEVEL] = -1  # and no other victim is added
    fits = plan_sets(hot, rule, c, topology, s, sets)
    s.numbers[search.MOST_LEVEL] = level
    if not fits:
        forget_plan(hot, s)
        copy_plan(s.old_plan, s.plan, pod_count)
        for at in range(pod_count):
            move_pod(hot, s.plan[at, planned.POD_CLASS], s.plan[at, planned.NODE], s.plan[at, planned.DEVICES], -1)
        s.numbers[search.PLANNED] = pod_count
    return fits


@inlined
def next_to_spare(s: VictimSearch, ceiling: int, index: int) -> int:
    """The victim with the largest loss after one looked at: less than its loss, or equal and listed later; -1: none."""
    at = -1
    for i in range(s.numbers[search.TAKEN]):
        loss = s.workloads[s.taken[i], losses.LOSS]
        if loss < ceiling or (loss == ceiling and i >= index):
            if at < 0 or loss > s.workloads[s.taken[at], losses.LOSS]:
                at = i
    return at


@kernel
def spare_victims(
    hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, sets: I64
) -> None:
    """Put back victims that are not needed, the largest loss first."""
    ceiling, index = NEVER, 0  # of the latest victim looked at: a larger loss, or the same and an earlier row
    while True:
        at = next_to_spare(s, ceiling, index)
        if at < 0:
            return
        j = s.taken[at]
        ceiling, index = s.workloads[j, losses.LOSS], at + 1
        move_victim(hot, c, topology, s, j, -1)
        if has_quota_for(c, s.numbers) and fits_beside(hot, rule, c, topology, s, sets, j):
            remove_taken(s, at)
            index = at
        else:
            move_victim(hot, c, topology, s, j, 1)


@kernel
def is_within_capacity(hot: Hot, j: int) -> bool:
    """Whether no node that workload j has pods on is used beyond what it has."""
    p = hot.workloads[j, workloads.FIRST_POD]
    while p >= 0:
        n, devices = hot.pods[p, pods.NODE], hot.pods[p, pods.DEVICES]
        node = hot.nodes[n]
        if node[nodes.CPU_FREE] < 0 or node[nodes.MEMORY_FREE] < 0 or node[nodes.SLOTS_FREE] < 0:
            return False
        for e in range(hot.extra.shape[1]):
            if hot.extra_free[n, e] < 0:
                return False
        idle = 0
        for device in range(hot.left.shape[1]):
            if devices >> device & 1 and (hot.left[n, device] < 0 or hot.vram_left[n, device] < 0):
                return False
            idle += hot.left[n, device] == WHOLE_GPU
        if node[nodes.SHORT] > idle:
            return False
        p = hot.pods[p, pods.NEXT]
    return True


@inlined
def copy_plan(source: I64, target: I64, pod_count: int) -> None:
    """Copy the first pods of a plan."""
    for at in range(pod_count):
        for column in range(3):
            target[at, column] = source[at, column]


@inlined
def keep_if_best(s: VictimSearch, pod_count: int) -> None:
    """Keep the plan if it loses less than the best so far."""
    loss = 0
    for i in range(s.numbers[search.TAKEN]):
        loss += s.workloads[s.taken[i], losses.LOSS]
    if loss < s.numbers[search.BEST_LOSS]:
        s.numbers[search.BEST_LOSS], s.numbers[search.BEST_TAKEN] = (loss, s.numbers[search.TAKEN])
        s.numbers[search.BEST_PLANNED] = pod_count
        for i in range(s.numbers[search.TAKEN]):
            s.best[i] = s.taken[i]
        copy_plan(s.plan, s.best_plan, pod_count)


@kernel
def search_victims(
    hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, sets: I64
) -> bool:
    """Find the victims up to the highest allowed level; in the order they are found, or else in any order."""
    s.numbers[search.ANY_ORDER], s.numbers[search.ORDER_FORBIDS] = 0, 0
    found = try_nodes(hot, rule, c, topology, s, sets)
    if not found and s.numbers[search.ORDER_FORBIDS] == 1 and s.numbers[search.CANDIDATES] <= MOST_CANDIDATES:
        s.numbers[search.ANY_ORDER] = 1
        found = try_nodes(hot, rule, c, topology, s, sets)
    return found


@kernel
def try_nodes(hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, sets: I64) -> bool:
    """Find the victims trial after trial, each with another first node."""
    draws = hot.counters[DRAWS]
    s.numbers[search.BEST_LOSS], s.numbers[search.WEIGHED_FIRST] = NEVER, 0
    s.tried[:] = 0
    for _ in range(MOST_TRIALS):
        s.numbers[search.FORCES_FIRST] = 1
        found = plan_sets(hot, rule, c, topology, s, sets) and fill_quota(hot, c, topology, s)
        if found:
            spare_victims(hot, rule, c, topology, s, sets)
            keep_if_best(s, s.numbers[search.PLANNED])
        forget_plan(hot, s)
        put_back_since(hot, c, topology, s, 0)
        hot.counters[DRAWS] = draws
        if s.numbers[search.FORCES_FIRST] == 1:  # no pod needed a node cleared, or no other first node is left to try
            break
    if s.numbers[search.BEST_LOSS] == NEVER and 0 < s.numbers[search.CANDIDATES] <= MOST_CANDIDATES:
        plan_without_all(hot, rule, c, topology, s, sets)
        hot.counters[DRAWS] = draws
    return bool(s.numbers[search.BEST_LOSS] < NEVER)


@kernel
def plan_without_all(
    hot: Hot, rule: Rule, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, sets: I64
) -> None:
    """Plan as if all candidates were gone, then spare those that are not needed: where node by node fails."""
    for order in range(ORDERS):
        take_all(hot, c, topology, s, order)
        if plan_sets(hot, rule, c, topology, s, sets) and has_quota_for(c, s.numbers):
            spare_victims(hot, rule, c, topology, s, sets)
            keep_if_best(s, s.numbers[search.PLANNED])
        forget_plan(hot, s)
        put_back_since(hot, c, topology, s, 0)


@kernel
def take_all(hot: Hot, c: Cycle | None, topology: TopologyView | None, s: VictimSearch, order: int) -> None:
    """Take out all that may be evicted, in an order: each can make it unlawful to evict another."""
    best = first_candidate(c, s, order)
    while best >= 0:
        take_victim(hot, c, topology, s, best)
        best = first_candidate(c, s, order)


@kernel
def first_candidate(c: Cycle | None, s: VictimSearch, order: int) -> int:
    """The first candidate in an order that is not taken and may be evicted; -1: there is none."""
    best = -1
    for i in range(s.numbers[search.CANDIDATES]):
        j = s.members[i]
        row = s.workloads[j]
        if row[losses.IS_TAKEN] == 1 or row[losses.LEVEL] > s.numbers[search.MOST_LEVEL]:
            continue
        if best < 0 or row[losses.LOSS + order] < s.workloads[best, losses.LOSS + order]:
            if may_evict(c, s, j):
                best = j
    return int(best)
