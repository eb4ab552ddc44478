"""Tournament of fair sharing: at every cohort the child whose share stays lowest puts up its entry."""

from __future__ import annotations

from tidegate.engine.kernels.columns import counters, entries, quota_node_flags, requested, statuses
from tidegate.engine.kernels.cycle_scratch import CycleScratch, Heads, Requests
from tidegate.engine.kernels.entry_order import competes_before
from tidegate.engine.kernels.fair_victims import charge
from tidegate.engine.kernels.nominate import request_assigned
from tidegate.engine.kernels.quota import borrows_with, compare_shares, share_ratio
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.quota_tables import QuotaTree, QuotaView
from tidegate.state.tables import quota_nodes, quotas

NOBODY = -1


@kernel
def pick_fairly(view: QuotaView, d: CycleScratch, count: int) -> int:
    """The entry to commit next: the winner of a tournament in the tree of the first entry that is left."""
    node_rows = view.tree.quota_nodes
    entry_rows = d.heads.entries
    puts_up = d.preemption.quota_nodes[:, quota_node_flags.FIRST]
    e = 0
    while entry_rows[e, entries.STATUS] != statuses.IDLE:
        e += 1
    if entry_rows[e, entries.AGAIN] > 0:
        return e  # it holds quota already: it changes no share
    root = node_rows[entry_rows[e, entries.QUEUE], quota_nodes.ROOT]
    if root == entry_rows[e, entries.QUEUE]:
        for other in range(e + 1, count):
            is_rival = entry_rows[other, entries.STATUS] == statuses.IDLE and entry_rows[other, entries.QUEUE] == root
            if is_rival and entry_rows[other, entries.AGAIN] == 0 and competes_before(entry_rows, other, e):
                e = other
        return e
    puts_up[:] = NOBODY
    for other in range(e, count):
        if (
            entry_rows[other, entries.STATUS] == statuses.IDLE
            and node_rows[entry_rows[other, entries.QUEUE], quota_nodes.ROOT] == root
        ):
            first = puts_up[entry_rows[other, entries.QUEUE]]
            if first >= 0 and not competes_before(entry_rows, other, first):
                continue  # its queue has another, with a reservation
            request_assigned(view, d.heads, d.requests, other)
            measure_climb(view.tree, d.heads, d.requests, other)
            puts_up[entry_rows[other, entries.QUEUE]] = other
    # Lower cohorts first: a cohort is higher than all below it.
    for height in range(1, node_rows[root, quota_nodes.HEIGHT] + 1):
        for b in range(len(node_rows)):
            if (
                node_rows[b, quota_nodes.ROOT] == root
                and node_rows[b, quota_nodes.HEIGHT] == height
                and node_rows[b, quota_nodes.IS_QUEUE] == 0
            ):
                puts_up[b] = winner_of(view.tree, d.heads, puts_up, b)
    return int(puts_up[root])


@kernel
def measure_climb(tree: QuotaTree, heads: Heads, requests: Requests, e: int) -> None:
    """Note the share of each quota node below the root if the entry were admitted, from its queue up."""
    q = heads.entries[e, entries.QUEUE]
    charge(tree, requests, q, 1)
    b, step = q, 0
    while tree.quota_nodes[b, quota_nodes.PARENT] >= 0:
        heads.climb[e, 0, step] = share_ratio(tree, b)
        heads.climb[e, 1, step] = 1.0 if borrows_requested(tree, requests, b) else 0.0
        b = tree.quota_nodes[b, quota_nodes.PARENT]
        step += 1
    charge(tree, requests, q, -1)


@inlined
def borrows_requested(tree: QuotaTree, requests: Requests, b: int) -> bool:
    """Whether a quota node borrows anything that is requested."""
    for i in range(requests.marks[counters.REQUESTED]):
        fr = requests.frs[i, requested.FLAVOR_RESOURCE]
        if (
            requests.frs[i, requested.AMOUNT] > 0
            and tree.quota[b, quotas.DEFINED, fr] == 1
            and borrows_with(tree, b, fr, 0)
        ):
            return True
    return False


@kernel
def winner_of(tree: QuotaTree, heads: Heads, puts_up: I64, cohort: int) -> int:
    """The entry that a cohort puts up; NOBODY: none below it is left."""
    best, best_quota_node = NOBODY, NOBODY
    for kind in (quota_nodes.FIRST_COHORT, quota_nodes.FIRST_QUEUE):
        b = tree.quota_nodes[cohort, kind]
        while b >= 0:
            e = puts_up[b]
            if e >= 0 and (best < 0 or wins(tree, heads, e, b, best, best_quota_node)):
                best, best_quota_node = e, b
            b = tree.quota_nodes[b, quota_nodes.NEXT]
    return int(best)


@inlined
def step_of(tree: QuotaTree, heads: Heads, e: int, b: int) -> int:
    """How many steps above its queue an entry meets a quota node."""
    at, step = heads.entries[e, entries.QUEUE], 0
    while at != b:
        at = tree.quota_nodes[at, quota_nodes.PARENT]
        step += 1
    return step


@kernel
def wins(tree: QuotaTree, heads: Heads, e: int, b: int, other: int, other_quota_node: int) -> bool:
    """Whether an entry put up by quota node b beats another: not borrowing, then share, then priority, then time."""
    if heads.entries[e, entries.AWAITED] != heads.entries[other, entries.AWAITED]:
        return bool(heads.entries[e, entries.AWAITED] == 1)
    climb, other_climb = heads.climb[e], heads.climb[other]
    step, other_step = step_of(tree, heads, e, b), step_of(tree, heads, other, other_quota_node)
    if climb[1, step] != other_climb[1, other_step]:
        return bool(climb[1, step] == 0.0)
    order = compare_shares(tree, b, climb[0, step], other_quota_node, other_climb[0, other_step])
    if order != 0:
        return bool(order < 0)
    one, two = heads.entries[e], heads.entries[other]
    if one[entries.PRIORITY] != two[entries.PRIORITY]:
        return bool(one[entries.PRIORITY] > two[entries.PRIORITY])
    if one[entries.SUBMITTED] != two[entries.SUBMITTED]:
        return bool(one[entries.SUBMITTED] < two[entries.SUBMITTED])
    return bool(one[entries.TIE] < two[entries.TIE])
