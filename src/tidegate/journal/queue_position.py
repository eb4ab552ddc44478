"""The queue position of a waiting workload: what goes before it, its quota shortage, and who holds that quota."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.quota import available
from tidegate.engine.quota_reservations import quota_view_of
from tidegate.jit.registry import active
from tidegate.journal.quota_names import FlavorResourceName
from tidegate.model.arrays import I64
from tidegate.model.policy import OrderKind
from tidegate.model.queues import PreemptWhom
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.quota_tables import QuotaTree
from tidegate.state.tables.quota_nodes import NO_LIMIT
from tidegate.state.tables.workloads import Phase

_NEVER = list(PreemptWhom).index(PreemptWhom.NEVER)


class OrderRelation(StrEnum):
    """Why one workload of a queue goes before another."""

    MADE_ROOM = "others were preempted for it"
    USED_LESS = "its LocalQueue used less recently"
    PRIORITY = "higher priority"
    TIME = "submitted earlier"


class QueuePosition(NamedTuple):
    """The place of a workload among those that wait in its queue."""

    queue: str  # empty: no queue counts quota, all wait in one line
    ahead: tuple[tuple[int, OrderRelation], ...]  # numbers, the first to go first
    waiting: int  # in the whole queue, itself included


class QuotaHolder(NamedTuple):
    """A workload that holds of a lot."""

    number: int
    queue: str
    amount: int
    since_ms: int
    leaving: bool


def date_holders(state: ClusterState, since_ms: Mapping[int, int]) -> None:
    """Let workloads that hold something have held it since these times, by their numbers."""
    for row in state.live_workloads().tolist():
        at_ms = since_ms.get(int(state.workloads.number[row]), 0)
        if at_ms and state.workloads.phase[row] != Phase.PENDING:
            state.workloads.since_ms[row] = min(at_ms, int(state.workloads.since_ms[row]))
            if row < state.quota.reservations.top and state.quota.reservations.queue[row] != NONE:
                state.quota.reservations.granted_ms[row] = min(at_ms, int(state.quota.reservations.granted_ms[row]))


class QuotaShortage(NamedTuple):
    """What a workload wants of one lot, and what stands in its way."""

    lot: FlavorResourceName
    asked: int
    free: int  # that its queue could use now, borrowed included; below zero where more is in use than there is
    nominal: int
    used: int  # by its queue
    borrow_limit: int | None
    reclaims: bool  # its queue may take back from others what they borrow
    holders: tuple[QuotaHolder, ...]  # in its queue, the largest first
    borrowers: tuple[QuotaHolder, ...]  # in queues of the cohort that use more than their quota

    @property
    def missing(self) -> int:
        """How much more its queue would have to have."""
        return max(0, self.asked - max(0, self.free))


def queue_names(state: ClusterState) -> dict[int, str]:
    """The names of queues by row."""
    return {row: name[6:] for name, row in state.quota.quota_node_rows.items() if name.startswith("queue/")}


def queue_row(state: ClusterState, row: int) -> int:
    """The row of the queue that a workload waits in, or holds quota of; NONE: none."""
    tables, w = state.quota, int(state.workloads.work_class[row])
    return int(tables.queue_requests.queue[w]) if tables and w < tables.queue_requests.top else NONE


# -- the line --------------------------------------------------------------------------------------------------


def find_queue_position(state: ClusterState, number: int) -> QueuePosition | None:
    """The place of a waiting workload in its queue, or among all where none counts quota; None: in no such order."""
    row, table = state.workload_numbers.row(number), state.workloads
    if row < 0 or table.phase[row] != Phase.PENDING:
        return None
    branch = queue_row(state, row)
    waits = np.flatnonzero(table.phase[: table.top] == Phase.PENDING)
    if state.quota and branch != NONE:
        waits = waits[state.quota.queue_requests.queue[table.work_class[waits]] == branch]
    elif state.quota or state.policy.order.kind is not OrderKind.FIFO:
        return None
    mine = _rank(state, branch, row)
    ahead = sorted((_rank(state, branch, other), other) for other in waits.tolist() if other != row)
    found = [(int(table.number[other]), _why(rank, mine)) for rank, other in ahead if rank < mine]
    return QueuePosition(queue_names(state)[branch] if branch != NONE else "", tuple(found), len(waits))


def _rank(state: ClusterState, branch: int, row: int) -> tuple[int, ...]:
    """What the order of a queue compares: smaller goes first."""
    table, tables, used, made_room = state.workloads, state.quota, 0, False
    w = int(table.work_class[row])
    if branch != NONE:
        made_room = int(tables.quota_nodes.sticky[branch]) == row
        if tables.quota_nodes.usage_based[branch]:
            used = int(tables.local_queues.rank[tables.queue_requests.local_queue[w], 0])
    priority = int(state.work_classes.priority[w])
    return (used, -int(made_room), -priority, int(table.submitted_ms[row]), int(table.tie[row]))


def _why(theirs: tuple[int, ...], mine: tuple[int, ...]) -> OrderRelation:
    """The first thing that tells two ranks apart."""
    differs = next(at for at, (a, b) in enumerate(zip(theirs, mine, strict=True)) if a != b)
    return (
        OrderRelation.USED_LESS,
        OrderRelation.MADE_ROOM,
        OrderRelation.PRIORITY,
        OrderRelation.TIME,
        OrderRelation.TIME,
    )[differs]


# -- what it lacks ---------------------------------------------------------------------------------------------


def requests_of(state: ClusterState, row: int) -> dict[str, int]:
    """What all pods of a workload are charged, by resource."""
    tables, w = state.quota, int(state.workloads.work_class[row])
    first, asked = int(tables.queue_requests.first_ask[w]), dict[str, int]()
    for ask in range(first, first + int(tables.queue_requests.asks[w])):
        resource, s = (
            tables.resources[tables.resource_requests.resource[ask]],
            int(tables.resource_requests.pod_set[ask]),
        )
        asked[resource] = asked.get(resource, 0) + int(tables.resource_requests.amount[ask]) * int(
            state.pod_sets.count[s]
        )
    return asked


def flavors_of(state: ClusterState, row: int) -> list[tuple[str, frozenset[str]]]:
    """The flavors of a workload's queue that take its pods, in order, each with the resources that its group gives."""
    tables, branch = state.quota, queue_row(state, row)
    if branch == NONE:
        return []
    names, found, place = list(tables.flavor_rows), [], 0
    sets = _sets(state, row)
    first = int(tables.quota_nodes.first_group[branch])
    for group in range(first, first + int(tables.quota_nodes.groups[branch])):
        gives = frozenset(name for r, name in enumerate(tables.resources) if tables.resource_groups.covered[group, r])
        start = int(tables.resource_groups.first_option[group])
        for flavor in tables.flavor_options.flavor[start : start + int(tables.resource_groups.options[group])].tolist():
            if not tables.pod_set_needs.mismatch[sets, place].any():
                found.append((names[flavor], gives))
            place += 1
    return found


def _sets(state: ClusterState, row: int) -> I64:
    w = int(state.workloads.work_class[row])
    first = int(state.work_classes.first_set[w])
    return np.arange(first, first + int(state.work_classes.sets[w]))


def find_shortages(state: ClusterState, number: int) -> list[QuotaShortage]:
    """What a workload wants of every lot that could give it, in the order that flavors are tried."""
    row = state.workload_numbers.row(number)
    branch = queue_row(state, row) if row >= 0 else NONE
    if branch == NONE:
        return []
    asked = requests_of(state, row)
    lots = [
        FlavorResourceName(flavor, resource)
        for flavor, gives in flavors_of(state, row)
        for resource in sorted(asked)
        if resource in gives and asked[resource]
    ]
    rows = {lot: flavor_resource_row(state, lot) for lot in lots}
    return [_want(state, branch, lot, at, asked[lot.resource]) for lot, at in rows.items() if at >= 0]


def flavor_resource_row(state: ClusterState, lot: FlavorResourceName) -> int:
    """The row of a flavor-resource; NONE: no queue has quota of it."""
    tables = state.quota
    if lot.flavor not in tables.flavor_rows or lot.resource not in tables.resources:
        return NONE
    found = tables.flavors.flavor_resource_of[tables.flavor_rows[lot.flavor], tables.resources.index(lot.resource)]
    return int(found) - 1


def _want(state: ClusterState, branch: int, lot: FlavorResourceName, at: int, asked: int) -> QuotaShortage:
    branches = state.quota.quota_nodes
    limit = int(branches.borrow_limit[branch, at])
    holders = _holders(state, at)
    names = queue_names(state)
    over = {names[b] for b in names if branches.usage[b, at] > branches.subtree[b, at]}
    near = {names[b] for b in names if branches.root[b] == branches.root[branch]} - {names[branch]}
    return QuotaShortage(
        lot=lot,
        asked=asked,
        free=int(active(available)(tree_of(state), branch, at)),
        nominal=int(branches.nominal[branch, at]),
        used=int(branches.usage[branch, at]),
        borrow_limit=None if limit == NO_LIMIT else limit,
        reclaims=bool(branches.reclaim[branch] != _NEVER),
        holders=tuple(holder for holder in holders if holder.queue == names[branch]),
        borrowers=tuple(holder for holder in holders if holder.queue in over & near),
    )


def tree_of(state: ClusterState) -> QuotaTree:
    """The share tree, for the kernels of quota."""
    return quota_view_of(state).tree


def _holders(state: ClusterState, lot: int) -> list[QuotaHolder]:
    """Who holds of a lot, the largest first."""
    tickets, names = state.quota.reservations, queue_names(state)
    top = min(tickets.top, state.workloads.top)
    amounts = np.where(tickets.flavor_resource[:top] == lot + 1, tickets.amount[:top], 0).sum(axis=1)
    rows = np.flatnonzero((amounts > 0) & (tickets.queue[:top] != NONE)).tolist()
    found = [
        QuotaHolder(
            number=int(state.workloads.number[row]),
            queue=names[int(tickets.queue[row])],
            amount=int(amounts[row]),
            since_ms=int(tickets.granted_ms[row]),
            leaving=bool(tickets.terminating[row]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda holder: (-holder.amount, holder.since_ms, holder.number))


# -- room ------------------------------------------------------------------------------------------------------


class GpuHolders(NamedTuple):
    """GPUs of the nodes that could take a workload's pods, and who has them."""

    nodes: int
    gpus: int
    idle: int
    holders: tuple[QuotaHolder, ...]  # the largest first; amounts in milli


def find_gpu_holders(state: ClusterState, number: int) -> GpuHolders | None:
    """Who has the GPUs that a workload could use; None: it asks for none, or there are no nodes."""
    row = state.workload_numbers.row(number)
    classes = state.pod_sets.pod_class[_sets(state, row)]
    classes = classes[state.pod_classes.gpus[classes] > 0]
    if not len(classes) or not state.node_specs:
        return None
    nodes, pods = state.nodes, state.pods
    match = state.pod_classes.match[classes][:, nodes.node_class[: nodes.top]]
    live = np.isin(np.arange(nodes.top), list(state.node_specs))
    takes = live & (match == 0).any(axis=0)
    there = np.flatnonzero((pods.workload[: pods.top] >= 0) & (pods.node[: pods.top] >= 0))
    there = there[takes[pods.node[there]]]
    milli = state.pod_classes.milli[pods.pod_class[there]] * state.pod_classes.gpus[pods.pod_class[there]]
    held = np.bincount(pods.workload[there], milli, state.workloads.top).astype(np.int64)
    return GpuHolders(
        nodes=int(takes.sum()),
        gpus=int(nodes.devices[: nodes.top][takes].sum()),
        idle=int(nodes.idle[: nodes.top][takes].sum()),
        holders=_holders_of_room(state, held),
    )


def _holders_of_room(state: ClusterState, held: I64) -> tuple[QuotaHolder, ...]:
    table = state.workloads
    found = [
        QuotaHolder(
            number=int(table.number[row]),
            queue=state.works[int(table.work_class[row])].queue,
            amount=int(held[row]),
            since_ms=int(table.since_ms[row]),
            leaving=bool(table.phase[row] == Phase.TERMINATING),
        )
        for row in np.flatnonzero(held).tolist()
    ]
    return tuple(sorted(found, key=lambda holder: (-holder.amount, holder.since_ms, holder.number)))
