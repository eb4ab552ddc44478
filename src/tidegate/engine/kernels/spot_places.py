"""Places on the spots that were found: every pod of a set on a node of its leaf.

Must not know: how spots were found, or how quota was.
"""

from __future__ import annotations

from tidegate.engine.kernels.desk import X_FIRST_SPOT, X_SPOTS, X_WORKLOAD, Heads
from tidegate.engine.kernels.fit import refusal, take_place
from tidegate.engine.kernels.granted import place_plan
from tidegate.engine.kernels.grove import Grove, LeafNodes
from tidegate.engine.kernels.place import NEXT_DECISION, Output, choose_devices, give_back, write_place
from tidegate.engine.kernels.registry import entry, inlined, kernel
from tidegate.engine.kernels.rule import Rule
from tidegate.engine.kernels.table import best_node
from tidegate.model.columns import I64
from tidegate.state.cluster import Hot
from tidegate.state.shares import SPOT_COUNT, SPOT_LEAF, SPOT_SET
from tidegate.state.tables import S_COUNT, S_POD_CLASS

NOWHERE = -1


@entry
def place_at_spots(
    hot: Hot, rule: Rule, hosts: LeafNodes, spots: I64, first: int, end: int, j: int, plan: I64, sets: int, out: Output
) -> int:
    """Place every pod of a plan for workload j, on its spots if it has some. Return -1, or the set that did not fit."""
    start, ordinal = out.written[0], 0
    for s in range(sets):
        k, left = plan[s, S_POD_CLASS], plan[s, S_COUNT]
        for i in range(first, end):
            for _ in range(min(spots[i, SPOT_COUNT], left) if spots[i, SPOT_SET] == s else 0):
                n = node_in(hot, hosts, k, spots[i, SPOT_LEAF])
                if n == NOWHERE:
                    give_back(hot, j)
                    out.written[0] = start
                    return s
                put_pod(hot, rule, k, n, j, ordinal, out)
                ordinal += 1
                left -= 1
        for _ in range(left):
            n = best_node(hot, rule, k)
            if n == NOWHERE:
                give_back(hot, j)
                out.written[0] = start
                return s
            put_pod(hot, rule, k, n, j, ordinal, out)
            ordinal += 1
    return -1


@inlined
def put_pod(hot: Hot, rule: Rule, k: int, n: int, j: int, ordinal: int, out: Output) -> None:
    """Give a pod its place on node n, and write it down."""
    devices = choose_devices(hot, rule, k, n)
    take_place(hot, k, n, devices, j, ordinal, hot.counters[NEXT_DECISION] + out.written[0])
    write_place(hot, out, j, ordinal, n, devices)


@kernel
def node_in(hot: Hot, hosts: LeafNodes, k: int, leaf: int) -> int:
    """The first node of a leaf that takes a pod of class k now; NOWHERE: none, or the leaf is gone."""
    if leaf < 0:
        return NOWHERE
    for i in range(hosts.start[leaf], hosts.start[leaf + 1]):
        if refusal(hot, k, hosts.rows[i]) == 0:
            return int(hosts.rows[i])
    return NOWHERE


@inlined
def place_entry(hot: Hot, rule: Rule, heads: Heads, grove: Grove | None, e: int, sets: int, out: Output) -> int:
    """Place every pod of an entry's plan, or none. Return -1, or the pod set that did not fit."""
    entry, j = heads.entries[e], heads.entries[e, X_WORKLOAD]
    if grove is not None:
        if entry[X_SPOTS] > 0:
            first, end = entry[X_FIRST_SPOT], entry[X_FIRST_SPOT] + entry[X_SPOTS]
            return place_at_spots(hot, rule, grove.hosts, grove.found, first, end, j, heads.plan, sets, out)
    return place_plan(hot, rule, j, heads.plan, sets, out)
