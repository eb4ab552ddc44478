"""Places for work that has quota: its pods as granted, on nodes of the flavors that it was given.

Must not know: how quota was found.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import I_LOT, X_CLASS, X_QUEUE, Heads
from tidegate.engine.kernels.gang_placement import Output, place_sets
from tidegate.engine.kernels.placement_rule import Rule
from tidegate.engine.kernels.quota_removal import C_LOT
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import (
    A_POD_SET,
    A_RESOURCE,
    B_FIRST_GROUP,
    B_GROUPS,
    D_ASKS,
    D_FIRST_ASK,
    G_FIRST_OPTION,
    G_OPTIONS,
    L_FLAVOR,
    M_ORDINAL,
    T_BRANCH,
    V_FLAVOR,
    Book,
)
from tidegate.state.tables import J_WORK_CLASS, S_COUNT, S_POD_CLASS, W_FIRST_SET, W_SETS


@kernel
def plan_pods(book: Book, heads: Heads, e: int) -> int:
    """Write down which pods entry e starts, and of which class on the flavors it gets; return how many sets."""
    w, q = heads.entries[e, X_CLASS], heads.entries[e, X_QUEUE]
    first, sets = book.held.work_classes[w, W_FIRST_SET], book.held.work_classes[w, W_SETS]
    for ordinal in range(sets):
        blend = blend_of(book, heads.choice[e, I_LOT], w, q, ordinal)
        heads.plan[ordinal, S_POD_CLASS] = book.asked.flavored[first + ordinal, blend]
        heads.plan[ordinal, S_COUNT] = heads.pods[e, ordinal]
    return int(sets)


@entry
def plan_granted(book: Book, plan: I64, j: int) -> int:
    """Write down which pods workload j starts with the quota that it holds; return how many sets."""
    w, q = book.held.workloads[j, J_WORK_CLASS], book.held.tickets[j, T_BRANCH]
    first, sets = book.held.work_classes[w, W_FIRST_SET], book.held.work_classes[w, W_SETS]
    for ordinal in range(sets):
        blend = blend_of(book, book.held.claims[j, C_LOT], w, q, ordinal)
        plan[ordinal, S_POD_CLASS] = book.asked.flavored[first + ordinal, blend]
        plan[ordinal, S_COUNT] = book.asked.counts[j, 0, ordinal]
    return int(sets)


@inlined
def blend_of(book: Book, lots: I64, w: int, q: int, ordinal: int) -> int:
    """The number of the flavors, one a group, that a pod set was given."""
    tree, asked = book.tree, book.asked
    first = asked.demands[w, D_FIRST_ASK]
    blend, scale = 0, 1
    for group in range(tree.branches[q, B_FIRST_GROUP], tree.branches[q, B_FIRST_GROUP] + tree.branches[q, B_GROUPS]):
        chosen = 0
        for a in range(asked.demands[w, D_ASKS]):
            ask = asked.asks[first + a]
            if lots[a] == 0 or asked.needs[ask[A_POD_SET], M_ORDINAL] != ordinal:
                continue
            if asked.covered[group, ask[A_RESOURCE]] == 1:
                chosen = option_number(book, group, tree.lots[lots[a] - 1, L_FLAVOR])
        blend += chosen * scale
        scale *= asked.groups[group, G_OPTIONS] + 1
    return blend


@inlined
def option_number(book: Book, group: int, flavor: int) -> int:
    """The place of a flavor in its group, counted from 1."""
    first = book.asked.groups[group, G_FIRST_OPTION]
    for at in range(book.asked.groups[group, G_OPTIONS]):
        if book.asked.options[first + at, V_FLAVOR] == flavor:
            return at + 1
    return 0


@entry
def place_plan(hot: Hot, rule: Rule, j: int, plan: I64, sets: int, out: Output) -> int:
    """Place every pod of a plan for workload j, or none. Return -1, or the pod set that did not fit."""
    return place_sets(hot, rule, j, plan[:sets], out)
