"""The share tree as columns: who owns how much, who uses how much, and what each workload holds or asks for.

A *branch* is a queue or a cohort of the tree; a *lot* is one resource in one flavor, the unit that quota is counted in.
The first letter of a column says the table: B branches, L lots, G groups, V flavor options, D demands, E entrances,
A asks, T tickets, M pod sets' needs, SPOT spots.
Must not know: how any of it comes to change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, Table, named
from tidegate.state.tables.domain_assignments import DomainAssignments
from tidegate.state.tables.flavor_options import FlavorOptions
from tidegate.state.tables.flavor_resources import FlavorResources
from tidegate.state.tables.flavors import Flavors
from tidegate.state.tables.local_queues import LocalQueues
from tidegate.state.tables.pod_set_needs import PodSetNeeds
from tidegate.state.tables.queue_requests import QueueRequests
from tidegate.state.tables.quota_nodes import NO_LIMIT, QuotaNodes
from tidegate.state.tables.quota_reservations import QuotaReservations
from tidegate.state.tables.resource_groups import ResourceGroups
from tidegate.state.tables.resource_requests import ResourceRequests
from tidegate.state.topology import Topology

#: A leaf by its flavor, and its values as a spot has them.
SpotName = tuple[str, tuple[str, ...]]


class Tree(NamedTuple):
    """The share tree for kernels."""

    branches: I64
    quota: I64  # (branches, 6, lots)
    lots: I64


class Held(NamedTuple):
    """What workloads hold, for kernels."""

    tickets: I64
    claims: I64  # (workloads, 2, asks)
    workloads: I64
    work_classes: I64
    used: I64  # (entrances, 1): rank by what was used of late; the highest used most


class Asked(NamedTuple):
    """What work asks for and what flavors give, for kernels."""

    flavors: I64
    lot_of: I64
    groups: I64
    covered: I64
    options: I64
    demands: I64
    needs: I64
    mismatch: I64
    flavored: I64
    asks: I64
    pod_sets: I64
    counts: I64  # (workloads, 3, sets)
    tried: I64


class Book(NamedTuple):
    """Everything about shares, for kernels."""

    tree: Tree
    held: Held
    asked: Asked


_TABLES = (
    "branches", "lots", "flavors", "groups", "options", "demands", "needs", "asks", "tickets", "entrances", "spots",
)  # fmt: skip


class ShareTables:
    """All tables of the share tree, and the names of their rows."""

    def __init__(self) -> None:
        self.branches = QuotaNodes({"lot": 0})
        self.lots = FlavorResources()
        self.flavors = Flavors({"resource": 0})
        self.groups = ResourceGroups({"resource": 0})
        self.options = FlavorOptions()
        self.demands = QueueRequests()
        self.needs = PodSetNeeds({"option": 0, "blend": 1})
        self.asks = ResourceRequests()
        self.tickets = QuotaReservations({"ask": 0, "set": 0, "try": 0})
        self.entrances = LocalQueues({"resource": 0, "one": 1})
        self.spots = DomainAssignments()
        self.resources: list[str] = []
        self.flavor_rows: dict[str, int] = {}
        self.branch_rows: dict[str, int] = {}  # "queue/x" or "cohort/x"
        self.entrance_rows: dict[str, int] = {}
        self.cycle = 0  # cycles run so far
        self.room_epoch = -1  # of the nodes, at the latest cycle
        self.spot_names: dict[SpotName, int] = {}  # number of each leaf that was ever seen
        self.uprooted = False  # nodes changed since the topology was made: everybody may be tried again
        self.topology: Topology | None = None  # made of nodes, policy and spots: a cache, never written down
        self.room: Any = None  # what a cycle writes on: a cache, never written down

    def __bool__(self) -> bool:
        """Say whether there are queues with quota at all."""
        return bool(self.branch_rows)

    def copy(self) -> ShareTables:
        """A copy that shares nothing that changes."""
        twin = ShareTables.__new__(ShareTables)
        twin.__dict__.update(self.__dict__)
        for name in _TABLES:
            setattr(twin, name, getattr(self, name).copy())
        twin.resources, twin.flavor_rows = list(self.resources), dict(self.flavor_rows)
        twin.branch_rows, twin.entrance_rows = dict(self.branch_rows), dict(self.entrance_rows)
        twin.spot_names = dict(self.spot_names)
        twin.topology = None if self.topology is None else self.topology.copy()
        twin.room = None
        return twin

    def dump(self) -> dict[str, Any]:
        """Everything, as plain values and bytes."""
        tables = {name: getattr(self, name) for name in _TABLES} | {"spots": self._held_spots()}
        return {
            "tables": {name: table.dump() for name, table in tables.items()},
            "resources": self.resources,
            "names": [list(rows.items()) for rows in (self.flavor_rows, self.branch_rows, self.entrance_rows)],
            "cycle": [self.cycle, self.room_epoch, self.uprooted],
            "spot_names": list(self.spot_names),
        }

    def _held_spots(self) -> DomainAssignments:
        """The spots, without what is left in rows that nobody holds: that depends on when the topology was made."""
        spots: DomainAssignments = self.spots.copy()
        holders = np.flatnonzero(self.tickets.spots[: self.tickets.top])
        ends = np.zeros(spots.top + 1, np.int64)  # where somebody's spots begin less where they end
        np.add.at(ends, self.tickets.first_spot[holders], 1)
        np.add.at(ends, self.tickets.first_spot[holders] + self.tickets.spots[holders], -1)
        spots.block[: spots.top][np.cumsum(ends)[:-1] == 0] = spots.defaults
        return spots

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> ShareTables:
        """The tables that were dumped."""
        tables = cls()
        for name, table in named("quota tables", dumped["tables"], _TABLES).items():
            setattr(tables, name, type(getattr(tables, name)).load(table))
        tables.resources = dumped["resources"]
        tables.flavor_rows, tables.branch_rows, tables.entrance_rows = map(dict, dumped["names"])
        tables.cycle, tables.room_epoch, tables.uprooted = dumped["cycle"]
        names = [(flavor, tuple(values)) for flavor, values in dumped["spot_names"]]
        tables.spot_names = {name: number for number, name in enumerate(names)}
        return tables

    def resource(self, name: str) -> int:
        """The number of a resource, made if it is new."""
        if name not in self.resources:
            self.resources.append(name)
            for table in (self.flavors, self.groups, self.entrances):
                table.widen("resource", len(self.resources))
        return self.resources.index(name)

    def flavor(self, name: str) -> int:
        """The row of a flavor, made if it is new."""
        if name not in self.flavor_rows:
            self.flavor_rows[name] = int(self.flavors.take(1)[0])
        return self.flavor_rows[name]

    def lot(self, flavor: str, resource: str) -> int:
        """The row of a lot, made if it is new."""
        f, r = self.flavor(flavor), self.resource(resource)
        lot = int(self.flavors.lot_of[f, r]) - 1
        if lot < 0:
            lot = int(self.lots.take(1)[0])
            self.lots.flavor[lot], self.lots.resource[lot] = f, r
            self.flavors.lot_of[f, r] = lot + 1
            self.branches.widen("lot", lot + 1)
            self.branches.borrow_limit[:, lot] = self.branches.lend_limit[:, lot] = NO_LIMIT
        return lot

    def holds_quota(self, row: int) -> bool:
        """Whether the workload of a row holds quota."""
        return bool(row < self.tickets.top and self.tickets.branch[row] != NONE)

    def spot_name(self, flavor: str, values: tuple[str, ...]) -> int:
        """The number of a leaf's name, made if it is new."""
        return self.spot_names.setdefault((flavor, values), len(self.spot_names))

    def chain_class(self, row: int) -> None:
        """Put a class of work before all that are in the chain of its queue, if it has one."""
        branch = int(self.demands.branch[row])
        if branch != NONE:
            self.demands.next_class[row] = self.branches.first_class[branch]
            self.branches.first_class[branch] = row

    def follow(self, table: Table, rows: int) -> None:
        """Have as many rows as the table that this one stands beside."""
        table.reserve(rows)
        table.top = max(table.top, rows)

    def book(self, work_classes: Table, pod_sets: Table, workloads: Table) -> Book:
        """What kernels take. Valid until a table grows."""
        tickets, groups, needs = self.tickets, self.groups, self.needs
        return Book(
            Tree(self.branches.block, self.branches.quota, self.lots.block),
            Held(tickets.block, tickets.claims, workloads.block, work_classes.block, self.entrances.rank),
            Asked(
                self.flavors.block, self.flavors.lot_of, groups.block, groups.covered, self.options.block,
                self.demands.block, needs.block, needs.mismatch, needs.flavored, self.asks.block, pod_sets.block,
                tickets.counts, tickets.tried,
            ),
        )  # fmt: skip


#: Columns of tickets that no policy changes.
_CARRIED = (
    "not_before_ms", "blocked", "gated", "decision", "replaces", "replaced_by", "again", "pinned", "failed_starts",
    "failed_ms",
)  # fmt: skip


def carry_tickets(old: QuotaReservations, shares: ShareTables) -> None:
    """Carry over what tickets say about waiting, and who takes over from whom: no policy changes that."""
    new = shares.tickets
    shares.follow(new, old.top)
    for name in _CARRIED:
        getattr(new, name)[: old.top] = getattr(old, name)[: old.top]
    width = min(old.axes["set"], new.axes["set"])
    new.reclaimed[: old.top, :width] = old.reclaimed[: old.top, :width]


def clear_tickets(shares: ShareTables, rows: I64) -> None:
    """Set tickets to their defaults: the rows go to other workloads."""
    table = shares.tickets
    rows = rows[rows < table.top]
    for mine, others in ((table.replaces, table.replaced_by), (table.replaced_by, table.replaces)):
        linked = mine[rows]
        others[linked[linked != NONE]] = NONE
    table.block[rows] = [table.fills.get(name, 0) for name in table.columns]
    for name in (*table.grids, *table.stacks):
        getattr(table, name)[rows] = 0
