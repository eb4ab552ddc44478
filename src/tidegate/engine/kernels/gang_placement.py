"""Gang placement: pods one after the other on the best node, a gang whole or not at all.

A gang of unlike pods that did not fit is tried again in other orders: the hardest pods go first, then those that did
not fit. They go where the placement rule says, and if that fails, to nodes that the others need the least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.columns import decision_columns
from tidegate.engine.kernels.node_fit import (
    FRACTION,
    SPARE_PODS,
    WHOLE,
    best_fit_device,
    lowest_idle,
    memory_wanted,
    refusal,
    release_last_place,
    take_place,
)
from tidegate.engine.kernels.node_score import fgd_best
from tidegate.engine.kernels.placement_rule import FGD, RANDOM, TIDE, Rule
from tidegate.engine.kernels.placement_tide import tide_best
from tidegate.engine.kernels.score_cache import (
    DRAWS,
    best_node,
    count_nodes,
    draw,
    fits_somewhere,
    nth_at_least,
    refresh,
)
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Counter, Hot
from tidegate.state.tables import nodes, pod_classes, pod_sets, work_classes, workloads

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


PLACE = int(DecisionKind.PLACE)
PLACED = int(Reason.PLACED)
PLACED_AGAIN = int(Reason.PLACED_AGAIN)
NEXT_DECISION = int(Counter.NEXT_DECISION)


class Output(NamedTuple):
    """Decisions as kernels write them."""

    rows: I64  # (rows, OUTPUT_COLUMNS)
    written: I64  # (1,): rows written


def empty_output(rows: int) -> Output:
    """An empty output with this many rows."""
    return Output(rows=np.empty((rows, decision_columns.COLUMNS), np.int64), written=np.zeros(1, np.int64))


@inlined
def write(out: Output, kind: int, j: int, code: int) -> int:
    """Write a decision about workload j; return its row."""
    at = int(out.written[0])
    row = out.rows[at]
    row[:] = 0
    row[decision_columns.KIND], row[decision_columns.WORKLOAD], row[decision_columns.CODE] = kind, j, code
    row[decision_columns.POD], row[decision_columns.NODE], row[decision_columns.CAUSE] = -1, -1, -1
    out.written[0] = at + 1
    return at


@inlined
def write_place(hot: Hot, out: Output, j: int, ordinal: int, n: int, devices: int) -> None:
    """Write the place of pod `ordinal` of workload j."""
    row = out.rows[write(out, PLACE, j, PLACED)]
    row[decision_columns.POD], row[decision_columns.NODE], row[decision_columns.DEVICES] = ordinal, n, devices
    if hot.workloads[j, workloads.EVICTIONS] > 0:
        row[decision_columns.CODE], row[decision_columns.EVIDENCE] = PLACED_AGAIN, hot.workloads[j, workloads.EVICTIONS]


@inlined
def choose_devices(hot: Hot, rule: Rule, k: int, n: int) -> int:
    """The devices of node n that a pod of class k gets, as a mask."""
    share = hot.pod_classes[k, pod_classes.SHARE]
    if share == WHOLE:
        return lowest_idle(hot, k, n)
    if share != FRACTION:
        return 0
    if rule.kind == FGD:
        return 1 << fgd_best(hot, rule, k, n)[1]
    if rule.kind == TIDE:
        return 1 << tide_best(hot, rule.tide, k, n)[1]
    if rule.kind == RANDOM:
        return 1 << random_device(hot, rule, k, n)
    return 1 << best_fit_device(hot, k, n)


@kernel
def random_device(hot: Hot, rule: Rule, k: int, n: int) -> int:
    """A random device of those that fit."""
    milli, vram = hot.pod_classes[k, pod_classes.MILLI], memory_wanted(hot, k)
    fits = hot.scores.spread
    fitting = 0
    for d in range(len(fits)):
        fits[d] = hot.left[n, d] >= milli and hot.vram_left[n, d] >= vram
        fitting += fits[d]
    return nth_at_least(fits, 1, draw(hot, rule, fitting))


@entry
def place_workload(hot: Hot, rule: Rule, j: int, out: Output) -> int:
    """Place every pod of workload j, or none. Return -1, or the row of the pod set that does not fit."""
    w = int(hot.workloads[j, workloads.WORK_CLASS])
    first = int(hot.work_classes[w, work_classes.FIRST_SET])
    unfit = place_sets(hot, rule, j, hot.pod_sets[first : first + hot.work_classes[w, work_classes.SETS]], out)
    return first + unfit if unfit >= 0 else -1


@inlined
def place_sets(hot: Hot, rule: Rule, j: int, sets: I64, out: Output) -> int:
    """Place every pod of these sets for workload j, or none. Return -1, or the set that does not fit."""
    for s in range(len(sets)):
        k, count = int(sets[s, pod_sets.POD_CLASS]), int(sets[s, pod_sets.COUNT])
        if count > 1:
            refresh(hot, rule, k)
            if hot.scores.headroom[k] < count:
                return s
    start, ordinal = int(out.written[0]), 0
    decision = int(hot.counters[NEXT_DECISION]) + start
    for s in range(len(sets)):
        k = int(sets[s, pod_sets.POD_CLASS])
        for _ in range(sets[s, pod_sets.COUNT]):
            n = best_node(hot, rule, k)
            if n < 0:
                give_back(hot, j)
                out.written[0] = start
                return -1 if len(sets) > 1 and place_otherwise(hot, rule, j, sets, out) else s
            devices = choose_devices(hot, rule, k, n)
            take_place(hot, k, n, devices, j, ordinal, decision + ordinal)
            write_place(hot, out, j, ordinal, n, devices)
            ordinal += 1
    return -1


@entry
def place_pod(hot: Hot, rule: Rule, j: int, k: int, ordinal: int, out: Output) -> bool:
    """Place one pod of workload j, which keeps running; False if it fits nowhere."""
    n = best_node(hot, rule, k)
    if n < 0:
        return False
    devices, decision = choose_devices(hot, rule, k, n), hot.counters[NEXT_DECISION] + out.written[0]
    take_place(hot, k, n, devices, j, ordinal, decision)
    write_place(hot, out, j, ordinal, n, devices)
    return True


@kernel
def place_otherwise(hot: Hot, rule: Rule, j: int, sets: I64, out: Output) -> bool:
    """Place every pod of these sets, which did not fit in the given order, in another order, by the rule or not."""
    if not may_fit_otherwise(hot, rule, sets):
        return False
    start, hardest = int(out.written[0]), hardest_first(hot, rule, sets)
    for by_rule in range(1, -1 if may_look_at_all(hot, sets) else 0, -1):
        order = hardest
        for _ in range(MOST_ORDERS):
            unfit = place_in_order(hot, rule, j, sets, order, by_rule, out)
            if unfit < 0:
                take_as_written(hot, j, sets, start, out)
                return True
            give_back(hot, j)
            out.written[0] = start
            if unfit == 0:  # it was the first already
                break
            order = to_front(order, unfit)
    return False


@kernel
def place_in_order(hot: Hot, rule: Rule, j: int, sets: I64, order: int, by_rule: int, out: Output) -> int:
    """Place pods set by set in an order, each at its row of the output. Return -1, or the index of the unfit set."""
    start, total = int(out.written[0]), 0
    for at in range(len(sets)):
        s, ordinal = set_at(order, at), 0
        for before in range(s):
            ordinal += int(sets[before, pod_sets.COUNT])
        for _ in range(sets[s, pod_sets.COUNT]):
            k = int(sets[s, pod_sets.POD_CLASS])
            n = best_node(hot, rule, k) if by_rule == 1 else least_wanted(hot, sets, order, at)
            if n < 0:
                return at
            devices = choose_devices(hot, rule, k, n)
            take_place(hot, k, n, devices, j, ordinal, -1)
            out.written[0] = start + ordinal
            write_place(hot, out, j, ordinal, n, devices)
            ordinal, total = ordinal + 1, total + 1
    out.written[0] = start + total
    return -1


@kernel
def take_as_written(hot: Hot, j: int, sets: I64, start: int, out: Output) -> None:
    """Take the written places from a row on once more, in the order of the sets, as at the first try."""
    give_back(hot, j)
    at = start
    for s in range(len(sets)):
        for _ in range(sets[s, pod_sets.COUNT]):
            n, devices = int(out.rows[at, decision_columns.NODE]), int(out.rows[at, decision_columns.DEVICES])
            take_place(
                hot, int(sets[s, pod_sets.POD_CLASS]), n, devices, j, at - start, hot.counters[NEXT_DECISION] + at
            )
            at += 1


@kernel
def count_fitting(hot: Hot, rule: Rule, j: int, sets: I64) -> int:
    """How many pods of these sets fit at once, one after the other; the state is left as it was."""
    placed, draws = 0, hot.counters[DRAWS]
    for s in range(len(sets)):
        k = int(sets[s, pod_sets.POD_CLASS])
        for _ in range(sets[s, pod_sets.COUNT]):
            n = best_node(hot, rule, k) if hot.counters[SPARE_PODS] > 0 else -1
            if n < 0:
                break
            take_place(hot, k, n, choose_devices(hot, rule, k, n), j, placed, -1)
            placed += 1
    give_back(hot, j)
    hot.counters[DRAWS] = draws
    return placed


@entry
def give_back(hot: Hot, j: int) -> None:
    """Undo every place of workload j."""
    while hot.workloads[j, workloads.FIRST_POD] >= 0:
        release_last_place(hot, j)
