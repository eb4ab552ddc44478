"""What workloads hold of quota, by name: to carry over, to mirror from the world, and to give back.

Must not know: cycles, flavors' order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.engine.kernels.commit_entry import give_up_all
from tidegate.engine.kernels.quota import remove_usage
from tidegate.engine.topology.build import HeldSpot, free_held, hold_spots, spots_of
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.observed_status import Standing
from tidegate.model.work import Work
from tidegate.state.classes import MOST_PODS
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.quota_tables import Book, clear_tickets


class Holding(NamedTuple):
    """What one workload holds."""

    row: int
    queue: str
    granted_ms: int
    leaving: bool
    claims: tuple[tuple[int, str, str, int], ...]  # pod set ordinal, resource, flavor, amount
    pods: tuple[int, ...]  # by pod set
    spots: tuple[HeldSpot, ...] = ()
    awaits: tuple[int, ...] = ()  # by pod set: 1 if its spots are found later


def book_of(state: ClusterState) -> Book:
    """Everything about shares for kernels, with room for every workload."""
    state.shares.follow(state.shares.tickets, state.workloads.top)
    return state.shares.book(state.work_classes, state.pod_sets, state.workloads)


def holdings(state: ClusterState) -> list[Holding]:
    """What every workload holds."""
    return [holding_of(state, int(row)) for row in np.flatnonzero(state.shares.tickets.branch != NONE)]


def holding_of(state: ClusterState, row: int) -> Holding:
    """What a workload holds, by name."""
    tables, w = state.shares, int(state.workloads.work_class[row])
    queues = {at: name[6:] for name, at in tables.branch_rows.items() if name.startswith("queue/")}
    flavors = list(tables.flavor_rows)
    claims = []
    for a in range(int(tables.demands.asks[w])):
        lot, ask = int(tables.tickets.lot[row, a]) - 1, int(tables.demands.first_ask[w]) + a
        if lot >= 0:
            ordinal = int(tables.needs.ordinal[tables.asks.pod_set[ask]])
            resource, flavor = tables.resources[tables.lots.resource[lot]], flavors[tables.lots.flavor[lot]]
            claims.append((ordinal, resource, flavor, int(tables.tickets.amount[row, a])))
    return Holding(
        row=row,
        queue=queues[int(tables.tickets.branch[row])],
        granted_ms=int(tables.tickets.granted_ms[row]),
        leaving=bool(tables.tickets.leaving[row]),
        claims=tuple(claims),
        pods=tuple(tables.tickets.pods[row].tolist()),
        spots=spots_of(state, row),
        awaits=tuple(tables.tickets.awaits[row].tolist()),
    )


def hold_again(state: ClusterState, held: list[Holding]) -> None:
    """Let workloads hold what they held, where their queue still exists."""
    write_holdings(state, sorted(held, key=lambda holding: (holding.granted_ms, holding.row)))


def write_holdings(state: ClusterState, held: list[Holding]) -> None:
    """Let workloads that hold nothing hold exactly this; the sums up the tree are the caller's matter."""
    write_alike(state, ((holding.row, holding.granted_ms, holding) for holding in held))


def write_alike(state: ClusterState, held: Iterable[tuple[int, int, Holding]]) -> None:
    """The same of many that hold the same: the row of each, since when, and what it holds but for these two."""
    book_of(state)  # makes room for their tickets
    alike: dict[_Alike, list[int]] = {}  # rows of those that hold the same
    queues: dict[int, tuple[list[int], list[int]]] = {}  # rows of its holders, and since when
    rest: list[Holding] = []
    for row, granted_ms, holding in held:
        if holding.spots or holding.leaving or any(holding.awaits):
            rest.append(holding)
        branch = state.shares.branch_rows.get(f"queue/{holding.queue}", NONE)
        if branch == NONE:
            continue
        rows, since = queues.setdefault(branch, ([], []))
        rows.append(row)
        since.append(granted_ms)
        w = int(state.workloads.work_class[row])
        alike.setdefault(_Alike(branch, w, holding.claims, holding.pods), []).append(row)
    for branch, (rows, since) in queues.items():
        _enlist(state, branch, np.array(rows, np.int64), since)
    for kind, rows in alike.items():
        _write_claims(state, kind, np.array(rows, np.int64))
    for holding in rest:
        _write_rest(state, holding)


class _Alike(NamedTuple):
    """What workloads of one class hold of one queue."""

    branch: int
    work_class: int
    claims: tuple[tuple[int, str, str, int], ...]
    pods: tuple[int, ...]


def _enlist(state: ClusterState, branch: int, rows: I64, since: list[int]) -> None:
    """Put workloads among the holders of a queue's quota, each before the one before it."""
    tables, tickets = state.shares, state.shares.tickets
    tickets.branch[rows], tickets.granted_ms[rows] = branch, since
    tickets.entrance[rows] = tables.demands.entrance[state.workloads.work_class[rows]]
    tickets.leaving[rows], tickets.decision[rows] = 0, NONE
    before = int(tables.branches.first_holder[branch])
    tickets.next[rows], tickets.prev[rows] = np.append(before, rows[:-1]), np.append(rows[1:], NONE)
    if before != NONE:
        tickets.prev[before] = rows[0]
    tables.branches.first_holder[branch] = rows[-1]
    tables.branches.generation[tables.branches.root[branch]] += len(rows)
    if tables.branches.sticky[branch] in rows:
        tables.branches.sticky[branch] = NONE


def _write_claims(state: ClusterState, kind: _Alike, rows: I64) -> None:
    tables, tickets, w = state.shares, state.shares.tickets, kind.work_class
    width = tickets.axes["set"]
    tickets.pods[rows, : len(kind.pods)] = kind.pods[:width]
    tickets.awaits[rows], tickets.first_spot[rows], tickets.spots[rows] = 0, 0, 0
    claims = {(ordinal, resource): (flavor, amount) for ordinal, resource, flavor, amount in kind.claims}
    for a in range(int(tables.demands.asks[w])):
        ask = int(tables.demands.first_ask[w]) + a
        key = (int(tables.needs.ordinal[tables.asks.pod_set[ask]]), tables.resources[tables.asks.resource[ask]])
        if key not in claims:
            continue
        flavor, amount = claims[key]
        lot = tables.lot(flavor, key[1])
        tickets.lot[rows, a], tickets.amount[rows, a] = lot + 1, amount
        tables.branches.usage[kind.branch, lot] += amount * len(rows)


def _write_rest(state: ClusterState, holding: Holding) -> None:
    """What few have: spots, and that it was told to go."""
    tickets, row = state.shares.tickets, holding.row
    if tickets.branch[row] != NONE:
        tickets.leaving[row] = holding.leaving
        tickets.awaits[row, : len(holding.awaits)] = holding.awaits[: tickets.axes["set"]]
        hold_spots(state, row, holding.spots)


def let_go(state: ClusterState, rows: I64) -> None:
    """Workloads hold no quota any more; who waits in their trees may be tried again."""
    if state.shares and len(rows):
        book = book_of(state)
        free_held(state, rows)
        active(give_up_all)(book, rows)


def reclaim(state: ClusterState, row: int, ordinal: int) -> None:
    """One pod of a set is done: what quota was granted for it is free."""
    tables, tickets = state.shares, state.shares.tickets
    if not tables or row >= tickets.top or tickets.branch[row] == NONE or tickets.pods[row, ordinal] <= 0:
        return
    book, left, branch = book_of(state), int(tickets.pods[row, ordinal]), int(tickets.branch[row])
    w = int(state.workloads.work_class[row])
    for a in range(int(tables.demands.asks[w])):
        lot, ask = int(tickets.lot[row, a]), int(tables.demands.first_ask[w]) + a
        if lot and int(tables.needs.ordinal[tables.asks.pod_set[ask]]) == ordinal:
            amount = int(tickets.amount[row, a])
            active(remove_usage)(book.tree, branch, lot - 1, amount - amount * (left - 1) // left)
            tickets.amount[row, a] = amount * (left - 1) // left
    tickets.pods[row, ordinal] -= 1
    tickets.reclaimed[row, ordinal] += 1
    tables.branches.epoch[tables.branches.root[branch]] += 1


def leave_queue(state: ClusterState, rows: I64) -> None:
    """Workloads wait in their queue no more: room is kept for none of them."""
    tables = state.shares
    if tables and len(rows):
        branches = tables.demands.branch[state.workloads.work_class[rows]]
        known = branches != NONE
        kept = tables.branches.sticky[branches[known]] == rows[known]
        tables.branches.sticky[branches[known][kept]] = NONE


def forget_tickets(state: ClusterState, rows: I64) -> None:
    """The rows go to other workloads."""
    let_go(state, rows)
    clear_tickets(state.shares, rows)  # also where no queue is left: tickets are kept for when there is one again


def stir(state: ClusterState, rows: I64) -> None:
    """Have a cycle look at the trees that these workloads wait in."""
    tables = state.shares
    if tables and len(rows):
        branches = tables.demands.branch[state.workloads.work_class[rows]]
        tables.branches.stirred[tables.branches.root[branches[branches != NONE]]] = 1


def counts_of(work: Work, standing: Standing) -> list[int]:
    """The pods of each set of a work that were granted."""
    ordinals = {pod_set.name: ordinal for ordinal, pod_set in enumerate(work.pod_sets)}
    counts = [0] * len(work.pod_sets)
    for grant in standing.grants if counts else ():
        counts[ordinals.get(grant.pod_set, 0)] = min(max(grant.count, 0), MOST_PODS)
    return counts
