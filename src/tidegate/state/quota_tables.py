"""The quota tree as tables: nominal quota, usage, and what each workload holds or requests.

A *quota node* is a queue or a cohort of the tree; a *flavor-resource* is one resource in one flavor, the unit in which
quota is counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.model.arrays import I64
from tidegate.state.column_table import NONE, ColumnTable, named
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

#: A leaf by its flavor, and its values as an assignment has them.
LeafName = tuple[str, tuple[str, ...]]


class QuotaTree(NamedTuple):
    """The quota tree for kernels."""

    quota_nodes: I64
    quota: I64  # (quota nodes, 6, flavor-resources)
    flavor_resources: I64


class Reserved(NamedTuple):
    """What workloads hold, for kernels."""

    reservations: I64
    claims: I64  # (workloads, 2, requests)
    workloads: I64
    work_classes: I64
    used: I64  # (local queues, 1): rank by decayed usage; the highest used most


class Requirements(NamedTuple):
    """What work requests and what flavors give, for kernels."""

    flavors: I64
    flavor_resource_of: I64
    resource_groups: I64
    covered: I64
    flavor_options: I64
    queue_requests: I64
    pod_set_needs: I64
    mismatch: I64
    flavored: I64
    resource_requests: I64
    pod_sets: I64
    counts: I64  # (workloads, 3, sets)
    tried: I64


class QuotaView(NamedTuple):
    """All quota tables, for kernels."""

    tree: QuotaTree
    held: Reserved
    asked: Requirements


_TABLES = (
    "quota_nodes", "flavor_resources", "flavors", "resource_groups", "flavor_options", "queue_requests",
    "pod_set_needs", "resource_requests", "reservations", "local_queues", "assignments",
)  # fmt: skip


class QuotaTables:
    """All tables of quota, and the names of their rows."""

    def __init__(self) -> None:
        self.quota_nodes = QuotaNodes({"flavor_resource": 0})
        self.flavor_resources = FlavorResources()
        self.flavors = Flavors({"resource": 0})
        self.resource_groups = ResourceGroups({"resource": 0})
        self.flavor_options = FlavorOptions()
        self.queue_requests = QueueRequests()
        self.pod_set_needs = PodSetNeeds({"option": 0, "blend": 1})
        self.resource_requests = ResourceRequests()
        self.reservations = QuotaReservations({"ask": 0, "set": 0, "try": 0})
        self.local_queues = LocalQueues({"resource": 0, "one": 1})
        self.assignments = DomainAssignments()
        self.resources: list[str] = []
        self.flavor_rows: dict[str, int] = {}
        self.quota_node_rows: dict[str, int] = {}  # "queue/x" or "cohort/x"
        self.local_queue_rows: dict[str, int] = {}
        self.cycle = 0  # cycles run so far
        self.room_epoch = -1  # of the nodes, at the latest cycle
        self.leaf_names: dict[LeafName, int] = {}  # number of each leaf that was ever seen
        self.topology_stale = False  # nodes changed since the topology was built: all pending work may be tried again
        self.topology: Topology | None = None  # made of nodes, policy and assignments: a cache, never written down
        self.room: Any = None  # scratch of a cycle: a cache, never written down

    def __bool__(self) -> bool:
        """Whether there are queues with quota at all."""
        return bool(self.quota_node_rows)

    def copy(self) -> QuotaTables:
        """A copy that shares nothing that changes."""
        twin = QuotaTables.__new__(QuotaTables)
        twin.__dict__.update(self.__dict__)
        for name in _TABLES:
            setattr(twin, name, getattr(self, name).copy())
        twin.resources, twin.flavor_rows = list(self.resources), dict(self.flavor_rows)
        twin.quota_node_rows, twin.local_queue_rows = dict(self.quota_node_rows), dict(self.local_queue_rows)
        twin.leaf_names = dict(self.leaf_names)
        twin.topology = None if self.topology is None else self.topology.copy()
        twin.room = None
        return twin

    def dump(self) -> dict[str, Any]:
        """Everything, as plain values and bytes."""
        tables = {name: getattr(self, name) for name in _TABLES} | {"assignments": self._held_assignments()}
        return {
            "tables": {name: table.dump() for name, table in tables.items()},
            "resources": self.resources,
            "names": [list(rows.items()) for rows in (self.flavor_rows, self.quota_node_rows, self.local_queue_rows)],
            "cycle": [self.cycle, self.room_epoch, self.topology_stale],
            "leaf_names": list(self.leaf_names),
        }

    def _held_assignments(self) -> DomainAssignments:
        """The held assignments, without what is left in free rows: that depends on when the topology was built."""
        assignments: DomainAssignments = self.assignments.copy()
        holders = np.flatnonzero(self.reservations.assignments[: self.reservations.top])
        ends = np.zeros(assignments.top + 1, np.int64)  # the offset of a workload's assignments
        np.add.at(ends, self.reservations.first_assignment[holders], 1)
        np.add.at(ends, self.reservations.first_assignment[holders] + self.reservations.assignments[holders], -1)
        assignments.block[: assignments.top][np.cumsum(ends)[:-1] == 0] = assignments.defaults
        return assignments

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> QuotaTables:
        """The tables that were dumped."""
        tables = cls()
        for name, table in named("quota tables", dumped["tables"], _TABLES).items():
            setattr(tables, name, type(getattr(tables, name)).load(table))
        tables.resources = dumped["resources"]
        tables.flavor_rows, tables.quota_node_rows, tables.local_queue_rows = map(dict, dumped["names"])
        tables.cycle, tables.room_epoch, tables.topology_stale = dumped["cycle"]
        names = [(flavor, tuple(values)) for flavor, values in dumped["leaf_names"]]
        tables.leaf_names = {name: number for number, name in enumerate(names)}
        return tables

    def resource(self, name: str) -> int:
        """The number of a resource, created if it is new."""
        if name not in self.resources:
            self.resources.append(name)
            for table in (self.flavors, self.resource_groups, self.local_queues):
                table.widen("resource", len(self.resources))
        return self.resources.index(name)

    def flavor(self, name: str) -> int:
        """The row of a flavor, created if it is new."""
        if name not in self.flavor_rows:
            self.flavor_rows[name] = int(self.flavors.take(1)[0])
        return self.flavor_rows[name]

    def flavor_resource(self, flavor: str, resource: str) -> int:
        """The row of a flavor-resource, created if it is new."""
        f, r = self.flavor(flavor), self.resource(resource)
        fr = int(self.flavors.flavor_resource_of[f, r]) - 1
        if fr < 0:
            fr = int(self.flavor_resources.take(1)[0])
            self.flavor_resources.flavor[fr], self.flavor_resources.resource[fr] = f, r
            self.flavors.flavor_resource_of[f, r] = fr + 1
            self.quota_nodes.widen("flavor_resource", fr + 1)
            self.quota_nodes.borrow_limit[:, fr] = self.quota_nodes.lend_limit[:, fr] = NO_LIMIT
        return fr

    def holds_quota(self, row: int) -> bool:
        """Whether the workload of a row holds quota."""
        return bool(row < self.reservations.top and self.reservations.queue[row] != NONE)

    def leaf_name(self, flavor: str, values: tuple[str, ...]) -> int:
        """The number of a leaf's name, created if it is new."""
        return self.leaf_names.setdefault((flavor, values), len(self.leaf_names))

    def chain_class(self, row: int) -> None:
        """Put a work class before all others in the chain of its queue, if it has one."""
        quota_node = int(self.queue_requests.queue[row])
        if quota_node != NONE:
            self.queue_requests.next_class[row] = self.quota_nodes.first_class[quota_node]
            self.quota_nodes.first_class[quota_node] = row

    def follow(self, table: ColumnTable, rows: int) -> None:
        """Have as many rows as the table that this one accompanies."""
        table.reserve(rows)
        table.top = max(table.top, rows)

    def view(self, work_classes: ColumnTable, pod_sets: ColumnTable, workloads: ColumnTable) -> QuotaView:
        """What kernels take. Valid until a table grows."""
        reservations, groups, needs = self.reservations, self.resource_groups, self.pod_set_needs
        return QuotaView(
            QuotaTree(self.quota_nodes.block, self.quota_nodes.quota, self.flavor_resources.block),
            Reserved(
                reservations.block, reservations.claims, workloads.block, work_classes.block, self.local_queues.rank
            ),
            Requirements(
                self.flavors.block, self.flavors.flavor_resource_of, groups.block, groups.covered,
                self.flavor_options.block, self.queue_requests.block, needs.block, needs.mismatch, needs.flavored,
                self.resource_requests.block, pod_sets.block, reservations.counts, reservations.tried,
            ),
        )  # fmt: skip


#: Columns of quota reservations that no policy changes.
_CARRIED = (
    "not_before_ms", "blocked", "gated", "decision", "replaces", "replaced_by", "again", "pinned", "failed_starts",
    "failed_ms",
)  # fmt: skip


def carry_reservations(old: QuotaReservations, quota: QuotaTables) -> None:
    """Carry over the columns of waiting and of replaced slices: no policy changes them."""
    new = quota.reservations
    quota.follow(new, old.top)
    for name in _CARRIED:
        getattr(new, name)[: old.top] = getattr(old, name)[: old.top]
    width = min(old.axes["set"], new.axes["set"])
    new.reclaimed[: old.top, :width] = old.reclaimed[: old.top, :width]


def clear_reservations(quota: QuotaTables, rows: I64) -> None:
    """Set quota reservations to their defaults: the rows go to other workloads."""
    table = quota.reservations
    rows = rows[rows < table.top]
    for mine, others in ((table.replaces, table.replaced_by), (table.replaced_by, table.replaces)):
        linked = mine[rows]
        others[linked[linked != NONE]] = NONE
    table.block[rows] = [table.fills.get(name, 0) for name in table.columns]
    for name in (*table.grids, *table.stacks):
        getattr(table, name)[rows] = 0
