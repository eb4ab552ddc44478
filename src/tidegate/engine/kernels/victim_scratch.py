"""Scratch of the victim search: candidates, their pods by node, what is taken out, and the best plan so far.

Nothing here outlives the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.columns import losses, search
from tidegate.model.arrays import I64

#: A loss above all others; one that is not known.
NEVER, UNKNOWN = 1 << 60, -1

#: Orders in which a node is cleared, each by its column: by loss; by loss a GPU; the smallest or the largest first,
#: because victims can be taken from a queue only while it is over its quota.
ORDERS = 4

#: Nodes that are tried for the first pod that needs victims, before the best result so far is taken.
MOST_TRIALS = 16

#: Candidates up to which all of them are tried at once, where node by node fails.
MOST_CANDIDATES = 256

#: Victims times pods up to which pods are planned again to spare each victim.
MOST_REPLANNED = 1 << 12


class VictimSearch(NamedTuple):
    """Everything that a search for victims writes."""

    workloads: I64  # (workloads, losses.COLUMNS)
    members: I64  # (workloads,): the candidates
    levels: I64  # (workloads,): their levels, each once, ascending
    start: I64  # (nodes + 1,): where the pods of candidates on each node begin
    pods: I64  # (pods,): those pods, node by node
    costs: I64  # (nodes,): the loss by clearing each for the planned pod; UNKNOWN, NEVER
    orders: I64  # (nodes,): the order of clearing with that loss
    first_costs: I64  # (nodes,): the same, as it is for the first pod that needs a node cleared, in every trial
    first_orders: I64  # (nodes,)
    tried: I64  # (nodes,): 1: it was the first to be cleared in a trial
    allowed: I64  # (nodes,): 1: pods may be planned there, in a search that is restricted
    taken: I64  # (workloads,): those taken out, in order
    best: I64  # (workloads,): the victims of the best plan
    plan: I64  # (pods, 3)
    old_plan: I64  # (pods, 3): the plan, while another is tried
    best_plan: I64  # (pods, 3)
    moved: I64  # (pods, 3): new places of victims' pods
    numbers: I64  # (search.COLUMNS,)
    terminating: I64  # (workloads + 1,): how many workloads are terminating, then their rows; kept between searches


def empty_victim_search(workloads: int, nodes: int, pods: int, planned: int) -> VictimSearch:
    """Scratch for a search among so many workloads and pods on so many nodes, for so many pods."""

    def zeros(*shape: int) -> I64:
        return np.zeros(shape, np.int64)

    return VictimSearch(
        workloads=zeros(workloads, losses.COLUMNS),
        members=zeros(workloads),
        levels=zeros(workloads),
        start=zeros(nodes + 1),
        pods=zeros(pods),
        costs=zeros(nodes),
        orders=zeros(nodes),
        first_costs=zeros(nodes),
        first_orders=zeros(nodes),
        tried=zeros(nodes),
        allowed=zeros(nodes),
        taken=zeros(workloads),
        best=zeros(workloads),
        plan=zeros(planned, 3),
        old_plan=zeros(planned, 3),
        best_plan=zeros(planned, 3),
        moved=zeros(pods, 3),
        numbers=zeros(search.COLUMNS),
        terminating=zeros(workloads + 1),
    )
