"""The quota tree at one moment: what each queue and cohort owns, uses, borrows and lends, and how many workloads wait.

What is borrowed under a root is lent by the nodes with unused quota there, in proportion to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.quota import available, share_for_weight, share_ratio
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.journal.quota_names import FlavorResourceName, quota_names_of
from tidegate.measure.quota import lent_of
from tidegate.model.arrays import F64, I64
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.quota_nodes import NO_LIMIT
from tidegate.state.tables.workloads import Phase


class LotUse(NamedTuple):
    """One lot of a queue or cohort, in the units that quota is counted in."""

    lot: FlavorResourceName
    nominal: int  # its own
    shared: int  # of a cohort: its own and what those below lend it; of a queue as nominal
    used: int  # of a cohort: what those below use of what is shared there
    borrowed: int  # used above what it has
    lent: int  # of its own, used by others
    free: int  # that it could use now, borrowed included
    borrow_limit: int | None
    lend_limit: int | None


class BranchUse(NamedTuple):
    """A queue or cohort."""

    name: str
    is_queue: bool
    depth: int  # 0: a root
    parent: str  # empty: none
    weight_milli: int
    share: float | None  # dominant share for its weight, per mille; None: infinite, it has no weight
    closed: bool
    waiting: int  # workloads; of a cohort, of all below it
    admitted: int
    lots: tuple[LotUse, ...]


class ShareTree(NamedTuple):
    """All queues and cohorts, each after its parent: cohorts first, each by name."""

    at_ms: int
    branches: tuple[BranchUse, ...]


def share_tree_of(state: ClusterState) -> ShareTree:
    """The share tree of a state; without branches where no queue counts quota."""
    if not state.quota:
        return ShareTree(state.now_ms, ())
    tree = _Reader(state)
    order = [b for root in tree.roots() for b in tree.below(root)]
    return ShareTree(state.now_ms, tuple(tree.branch(b) for b in order))


class _Reader:
    """Reads branches of one state."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._tree = state, quota_view_of(state).tree
        self._branches, self._top = state.quota.quota_nodes, state.quota.quota_nodes.top
        self._names = quota_names_of(state.policy.shares)
        self._children: dict[int, list[int]] = {}
        for b in range(self._top):
            self._children.setdefault(int(self._branches.parent[b]), []).append(b)
        for rows in self._children.values():
            rows.sort(key=lambda b: (int(self._branches.is_queue[b]), self._names.branches[b]))
        self._waiting, self._admitted = self._count()
        self._lent = self._lend()

    def roots(self) -> list[int]:
        """Cohorts, then queues without one."""
        return self._children.get(NONE, [])

    def below(self, b: int) -> list[int]:
        """A branch and all below it, in order."""
        return [b, *(row for child in self._children.get(b, ()) for row in self.below(child))]

    def _count(self) -> tuple[I64, I64]:
        """Workloads that wait and that are admitted, by branch."""
        state, table = self._state, self._state.workloads
        rows = state.live_workloads()
        branch = state.quota.queue_requests.queue[table.work_class[rows]]
        known = branch != NONE
        waits = table.phase[rows] == Phase.PENDING
        return self._climb(branch[known & waits]), self._climb(branch[known & ~waits])

    def _climb(self, branch: I64) -> I64:
        """Counts by branch, with all that is below."""
        counts = np.bincount(branch, minlength=self._top)[: self._top].astype(np.int64)
        for root in self.roots():
            for b in reversed(self.below(root)):
                if self._branches.parent[b] != NONE:
                    counts[self._branches.parent[b]] += counts[b]
        return counts

    def _lend(self) -> F64:
        """What each branch lends of each lot; a cohort lends what it owns itself."""
        branches, top = self._branches, self._top
        is_queue = branches.is_queue[:top, None] == 1
        nominal, used = branches.nominal[:top].astype(np.float64), branches.usage[:top].astype(np.float64)
        above = np.where(is_queue, np.maximum(used - nominal, 0), 0)
        unused = np.where(is_queue, np.maximum(nominal - used, 0), nominal)
        limit = branches.lend_limit[:top]
        lendable = np.where(limit == NO_LIMIT, unused, np.minimum(unused, limit))
        alone = is_queue & (branches.parent[:top, None] == NONE)
        lendable = np.where(alone, 0, lendable)
        each = [lent_of(above[None, :, [at]], lendable[None, :, [at]], branches.root[:top])[0] for at in self._lots()]
        return np.stack(each, axis=1)

    def _lots(self) -> range:
        return range(len(self._names.lots))

    def branch(self, b: int) -> BranchUse:
        """One row."""
        branches, parent = self._branches, int(self._branches.parent[b])
        share = active(share_for_weight)(self._tree, b, active(share_ratio)(self._tree, b))
        return BranchUse(
            name=self._names.branches[b],
            is_queue=bool(branches.is_queue[b]),
            depth=self._depth(b),
            parent=self._names.branches[parent] if parent != NONE else "",
            weight_milli=int(branches.weight_milli[b]),
            share=float(share) if np.isfinite(share) else None,
            closed=bool(branches.closed[b]),
            waiting=int(self._waiting[b]),
            admitted=int(self._admitted[b]),
            lots=tuple(self._lot(b, at) for at in self._lots() if branches.defined[b, at]),
        )

    def _depth(self, b: int) -> int:
        parent = int(self._branches.parent[b])
        return 0 if parent == NONE else 1 + self._depth(parent)

    def _lot(self, b: int, at: int) -> LotUse:
        branches = self._branches
        nominal, used = int(branches.nominal[b, at]), int(branches.usage[b, at])
        shared = nominal if branches.is_queue[b] else int(branches.subtree[b, at])
        borrow, lend = int(branches.borrow_limit[b, at]), int(branches.lend_limit[b, at])
        return LotUse(
            lot=self._names.lots[at],
            nominal=nominal,
            shared=shared,
            used=used,
            borrowed=max(0, used - shared),
            lent=round(float(self._lent[b, at])),
            free=int(active(available)(self._tree, b, at)),
            borrow_limit=None if borrow == NO_LIMIT else borrow,
            lend_limit=None if lend == NO_LIMIT else lend,
        )
