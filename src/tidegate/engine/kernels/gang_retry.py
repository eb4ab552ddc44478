"""The second try of a gang of unlike pods that did not fit: in which other order, and on which nodes.

The hardest pods go first, then those that did not fit. They go where the placement rule says, and if that fails, to
nodes that the others need the least.
"""

from __future__ import annotations

from tidegate.engine.kernels.node_fit import refusal
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.score_cache import count_nodes, fits_somewhere, refresh
from tidegate.jit.registry import kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.tables import nodes, pod_classes, pod_sets

#: Orders of the sets that are tried with each choice of nodes: after the first, the set that did not fit goes first.
MOST_ORDERS = 6

#: Sets up to which a gang is tried again: an order of sets is one number, of so many bits a set.
MOST_SETS, SET_BITS = 15, 4

#: Pods times nodes up to which the nodes that others need least are chosen: every pod looks at every node.
MOST_LOOKS = 1 << 12


@kernel
def may_fit_otherwise(hot: Hot, rule: Rule, sets: I64) -> bool:
    """Whether another order may help: pods are unlike, each fits alone, and enough GPUs are free for all."""
    first, unlike, asked = -1, False, 0
    if len(sets) > MOST_SETS:
        return False
    for s in range(len(sets)):
        if sets[s, pod_sets.COUNT] > 0:
            k = int(sets[s, pod_sets.POD_CLASS])
            refresh(hot, rule, k)
            if not fits_somewhere(hot, k):
                return False
            unlike = unlike or (first >= 0 and k != first)
            first = k
            asked = (
                asked
                + sets[s, pod_sets.COUNT] * hot.pod_classes[k, pod_classes.GPUS] * hot.pod_classes[k, pod_classes.MILLI]
            )
    return bool(unlike and asked <= hot.nodes[:, nodes.LEFT_TOTAL].sum())


@kernel
def may_look_at_all(hot: Hot, sets: I64) -> bool:
    """Whether the gang and the cluster are small enough for every pod to look at every node."""
    pods = 0
    for s in range(len(sets)):
        pods += int(sets[s, pod_sets.COUNT])
    return bool(pods * hot.scores.used[0] <= MOST_LOOKS)


@kernel
def hardest_first(hot: Hot, rule: Rule, sets: I64) -> int:
    """The sets in the order of most GPUs a pod, then of the fewest nodes that fit."""
    order, listed = 0, 0
    for at in range(len(sets)):
        best, best_gpus, best_fits = -1, 0, 0
        for s in range(len(sets)):
            if listed >> s & 1 == 1:
                continue
            k = int(sets[s, pod_sets.POD_CLASS])
            refresh(hot, rule, k)
            count_nodes(hot, k)
            gpus = hot.pod_classes[k, pod_classes.GPUS] * hot.pod_classes[k, pod_classes.MILLI]
            fits = hot.scores.tally[k, 0]
            if best < 0 or gpus > best_gpus or (gpus == best_gpus and fits < best_fits):
                best, best_gpus, best_fits = s, gpus, fits
        listed |= 1 << best
        order |= best << at * SET_BITS
    return order


@kernel
def set_at(order: int, at: int) -> int:
    """The set at a place of an order."""
    return order >> at * SET_BITS & (1 << SET_BITS) - 1


@kernel
def to_front(order: int, at: int) -> int:
    """The order with the set at a place before all others."""
    s, before = set_at(order, at), order & (1 << at * SET_BITS) - 1
    after = order >> (at + 1) * SET_BITS << (at + 1) * SET_BITS
    return after | before << SET_BITS | s


@kernel
def least_wanted(hot: Hot, sets: I64, order: int, at: int) -> int:
    """The node that fits the set at a place of an order and the fewest sets behind it; of equals, the fullest."""
    best, best_rivals, k = -1, 0, int(sets[set_at(order, at), pod_sets.POD_CLASS])
    for rank in range(hot.scores.used[0]):
        n, rivals = int(hot.scores.at_rank[rank]), 0
        if refusal(hot, k, n) != 0:
            continue
        for later in range(at + 1, len(sets)):
            other = sets[set_at(order, later)]
            rivals += int(other[pod_sets.COUNT] > 0 and refusal(hot, int(other[pod_sets.POD_CLASS]), n) == 0)
        if best < 0 or rivals < best_rivals or (rivals == best_rivals and has_less_left(hot, n, best)):
            best, best_rivals = n, rivals
    return best


@kernel
def has_less_left(hot: Hot, n: int, other: int) -> bool:
    """Whether less is left of node n than of the other: of its GPUs, or else of its cores."""
    left, others = hot.nodes[n, nodes.LEFT_TOTAL], hot.nodes[other, nodes.LEFT_TOTAL]
    return bool(left < others or (left == others and hot.nodes[n, nodes.CPU_FREE] < hot.nodes[other, nodes.CPU_FREE]))
