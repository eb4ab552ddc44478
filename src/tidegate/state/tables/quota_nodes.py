"""Quota nodes: one row for each ClusterQueue and cohort; a root has no parent."""

from __future__ import annotations

from typing import ClassVar

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable

#: A limit that is not set.
NO_LIMIT = -1


class QuotaNodes(ColumnTable):
    """Quota nodes as a table."""

    fills: ClassVar = {
        "parent": NONE, "first_cohort": NONE, "first_queue": NONE, "next": NONE, "root": NONE, "first_class": NONE,
        "first_holder": NONE, "sticky": NONE, "rank": -1,
    }  # fmt: skip
    stacks: ClassVar = {
        "quota": (("nominal", "borrow_limit", "lend_limit", "defined", "subtree", "usage"), "flavor_resource"),
    }  # fmt: skip

    parent: I64
    is_queue: I64
    first_cohort: I64  # its child cohorts form a chain
    first_queue: I64  # its queues form another
    next: I64  # sibling of the same kind
    root: I64
    height: I64  # distance to the furthest leaf
    weight_milli: I64
    within: I64  # PreemptWhom as a number, within the queue
    reclaim: I64  # in the cohort
    borrow: I64  # in the cohort while borrowing
    threshold: I64  # priority above which work is safe from preemption while borrowing
    borrow_moves: I64  # 1: before a flavor that must borrow is taken, the next is tried
    preempt_moves: I64  # 1: likewise one that must preempt
    prefers_preempting: I64
    strict: I64
    closed: I64  # 1: admits nothing
    usage_based: I64
    first_group: I64
    groups: I64
    first_class: I64  # chain of the work classes that are pending here
    first_holder: I64  # chain of the workloads that hold its quota
    generation: I64  # of a root: times that usage in the tree changed
    epoch: I64  # of a root: times that what was refused may be tried again
    dirty: I64  # of a root: 1 if something happened that a cycle must look at (dirty)
    sticky: I64  # the workload that victims were evicted for: it goes first
    rank: I64  # by name
    topology_only: I64  # 1: all its flavors have a topology
    quota: I64  # (rows, 6, flavor-resources): the six that follow
    nominal: I64
    borrow_limit: I64
    lend_limit: I64
    defined: I64  # 1: quota is given for the flavor-resource, here or below
    subtree: I64  # quota here and below that is not kept from the parent
    usage: I64


(
    PARENT, IS_QUEUE, FIRST_COHORT, FIRST_QUEUE, NEXT, ROOT, HEIGHT, WEIGHT_MILLI, WITHIN, RECLAIM, BORROW,
    THRESHOLD, BORROW_MOVES, PREEMPT_MOVES, PREFERS_PREEMPTING, STRICT, CLOSED, USAGE_BASED, FIRST_GROUP, GROUPS,
    FIRST_CLASS, FIRST_HOLDER, GENERATION, EPOCH, DIRTY, STICKY, RANK, TOPOLOGY_ONLY,
) = range(len(QuotaNodes.columns))  # fmt: skip
