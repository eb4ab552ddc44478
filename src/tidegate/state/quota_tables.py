"""The share tree as columns: who owns how much, who uses how much, and what each workload holds or asks for.

A *branch* is a queue or a cohort of the tree; a *lot* is one resource in one flavor, the unit that quota is counted in.
The first letter of a column says the table: B branches, L lots, G groups, V flavor options, D demands, E entrances,
A asks, T tickets, M pod sets' needs, SPOT spots.
Must not know: how any of it comes to change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.model.arrays import I64
from tidegate.state.column_table import Table, named
from tidegate.state.tables import END
from tidegate.state.topology import Topology

#: A leaf by its flavor, and its values as a spot has them.
SpotName = tuple[str, tuple[str, ...]]

#: A limit that is not set.
NO_LIMIT = -1


class Branches(Table):
    """One row a queue or cohort; the parent of a root is END."""

    columns = (
        "parent", "is_queue", "first_cohort", "first_queue", "next", "root", "height", "weight_milli", "within",
        "reclaim", "borrow", "threshold", "borrow_moves", "preempt_moves", "prefers_preempting", "strict", "closed",
        "usage_based", "first_group", "groups", "first_class", "first_holder", "generation", "epoch", "stirred",
        "sticky", "rank", "topology_only",
    )  # fmt: skip
    fills: ClassVar = {
        "parent": END, "first_cohort": END, "first_queue": END, "next": END, "root": END, "first_class": END,
        "first_holder": END, "sticky": END, "rank": -1,
    }  # fmt: skip
    stacks: ClassVar = {
        "quota": (("nominal", "borrow_limit", "lend_limit", "defined", "subtree", "usage"), "lot"),
    }  # fmt: skip

    parent: I64
    is_queue: I64
    first_cohort: I64  # its child cohorts form a chain
    first_queue: I64  # and so do its queues
    next: I64  # sibling of the same kind
    root: I64
    height: I64  # distance to the furthest leaf
    weight_milli: I64
    within: I64  # PreemptWhom as a number, within the queue
    reclaim: I64  # in the cohort
    borrow: I64  # in the cohort while borrowing
    threshold: I64  # priority above which work is safe from those who borrow
    borrow_moves: I64  # 1: a flavor that must borrow is not taken before the next was looked at
    preempt_moves: I64  # 1: nor one that must preempt
    prefers_preempting: I64
    strict: I64
    closed: I64  # 1: admits nothing
    usage_based: I64
    first_group: I64
    groups: I64
    first_class: I64  # chain of the work classes that wait here
    first_holder: I64  # chain of the workloads that hold its quota
    generation: I64  # of a root: times that usage in the tree changed
    epoch: I64  # of a root: times that what was refused may be tried again
    stirred: I64  # of a root: 1 if something happened that a cycle must look at
    sticky: I64  # the workload that victims were sent away for: it goes first
    rank: I64  # by name
    topology_only: I64  # 1: all its flavors have a topology
    quota: I64  # (rows, 6, lots): the six that follow
    nominal: I64
    borrow_limit: I64
    lend_limit: I64
    defined: I64  # 1: quota is given for the lot, here or below
    subtree: I64  # quota here and below that is not kept from the parent
    usage: I64


(
    B_PARENT, B_IS_QUEUE, B_FIRST_COHORT, B_FIRST_QUEUE, B_NEXT, B_ROOT, B_HEIGHT, B_WEIGHT, B_WITHIN, B_RECLAIM,
    B_BORROW, B_THRESHOLD, B_BORROW_MOVES, B_PREEMPT_MOVES, B_PREFERS_PREEMPTING, B_STRICT, B_CLOSED, B_USAGE_BASED,
    B_FIRST_GROUP, B_GROUPS, B_FIRST_CLASS, B_FIRST_HOLDER, B_GENERATION, B_EPOCH, B_STIRRED, B_STICKY, B_RANK,
    B_TOPOLOGY_ONLY,
) = range(len(Branches.columns))  # fmt: skip
Q_NOMINAL, Q_BORROW_LIMIT, Q_LEND_LIMIT, Q_DEFINED, Q_SUBTREE, Q_USAGE = range(6)


class Lots(Table):
    """One row a resource in a flavor, in the order of `Shares.flavor_resources`."""

    columns = ("flavor", "resource")

    flavor: I64
    resource: I64


L_FLAVOR, L_RESOURCE = range(len(Lots.columns))


class FlavorRows(Table):
    """One row a flavor."""

    columns = ("topology", "tree")
    fills: ClassVar = {"tree": END}
    grids: ClassVar = {"lot_of": "resource"}

    topology: I64  # 1: it has one
    tree: I64  # its tree; END: none
    lot_of: I64  # (rows, resources): lot plus one; 0: none


F_TOPOLOGY, F_TREE = range(len(FlavorRows.columns))


class Groups(Table):
    """One row a flavor group of a queue; a queue has consecutive rows."""

    columns = ("first_option", "options")
    grids: ClassVar = {"covered": "resource"}

    first_option: I64
    options: I64
    covered: I64  # (rows, resources): 1 if the group gives it


G_FIRST_OPTION, G_OPTIONS = range(len(Groups.columns))


class Options(Table):
    """One row a flavor in a group, in the order they are tried."""

    columns = ("flavor", "place", "delays")

    flavor: I64  # -1: a flavor that does not exist
    place: I64  # among all options of its queue
    delays: I64  # 1: its nodes come with a check, and spots are found when it is ready; 2: spots are found elsewhere


V_FLAVOR, V_PLACE, V_DELAYS = range(len(Options.columns))


class Demands(Table):
    """What a work class asks of its queue, at the row of the work class."""

    columns = ("branch", "entrance", "first_ask", "asks", "next_class", "partial", "refused", "held", "held_code")
    fills: ClassVar = {"branch": END, "entrance": END, "next_class": END, "held": -1}

    branch: I64
    entrance: I64
    first_ask: I64
    asks: I64
    next_class: I64  # chain of its queue
    partial: I64  # 1: it may start with fewer pods
    refused: I64  # Reason why its queue cannot even look at it; 0: it can
    held: I64  # epoch of the tree at which it was refused: not tried before the next
    held_code: I64


D_BRANCH, D_ENTRANCE, D_FIRST_ASK, D_ASKS, D_NEXT_CLASS, D_PARTIAL, D_REFUSED, D_HELD, D_HELD_CODE = range(
    len(Demands.columns)
)


class Needs(Table):
    """What a pod set needs, at the row of the pod set."""

    columns = ("least", "leader", "ordinal", "topology")
    grids: ClassVar = {"mismatch": "option", "flavored": "blend"}

    least: I64  # pods it may start with
    leader: I64  # first pod set that must get the same flavors
    ordinal: I64  # place in its work
    topology: I64  # 1: it asks to be placed by topology
    mismatch: I64  # (rows, options of its queue): Reason why the flavor will not do; 0: it will
    flavored: I64  # (rows, blends): class of its pods on the nodes of these flavors, one a group


M_LEAST, M_LEADER, M_ORDINAL, M_TOPOLOGY = range(len(Needs.columns))


class Asks(Table):
    """One row a resource that a pod set is charged for; a work class has consecutive rows, by pod set and name."""

    columns = ("pod_set", "resource", "amount")

    pod_set: I64
    resource: I64
    amount: I64  # of one pod


A_POD_SET, A_RESOURCE, A_AMOUNT = range(len(Asks.columns))


class Tickets(Table):
    """What a workload holds of quota, at the row of the workload."""

    columns = (
        "branch", "granted_ms", "next", "prev", "leaving", "held", "not_before_ms", "blocked", "gated", "tried_cycle",
        "tried_generation", "entrance", "unhoused", "decision", "replaces", "replaced_by", "first_spot", "spots",
        "again", "pinned", "tries", "tries_epoch", "failed_starts", "failed_ms",
    )  # fmt: skip
    fills: ClassVar = {
        "branch": END, "next": END, "prev": END, "held": -1, "tried_cycle": -9, "unhoused": -1, "decision": -1,
        "replaces": END, "replaced_by": END, "tries_epoch": -1,
    }  # fmt: skip
    grids: ClassVar = {"tried": "try"}
    stacks: ClassVar = {
        "claims": (("lot", "amount", "reserved_lot"), "ask"),
        "counts": (("pods", "reclaimed", "awaits"), "set"),
    }

    branch: I64  # the queue whose quota it holds; END: none
    granted_ms: I64
    next: I64  # chain of the queue's holders
    prev: I64
    leaving: I64  # 1: told to go; holds until it is gone
    held: I64  # epoch of the tree at which this one alone was refused
    not_before_ms: I64
    blocked: I64  # Reason why it is not to be tried at all; 0: none
    gated: I64  # 1: may not preempt yet
    tried_cycle: I64  # cycle in which flavors were tried last
    tried_generation: I64
    entrance: I64  # that it came by, while it holds quota
    unhoused: I64  # room epoch at which there was no place for it, though it holds quota
    decision: I64  # id of the first ADMIT that its quota is from; -1: the world's
    replaces: I64  # the workload that it takes over from, as a larger slice of the same job
    replaced_by: I64  # and the other way round
    first_spot: I64  # its spots are consecutive rows
    spots: I64  # how many
    again: I64  # Again: why its spots are to be looked at once more
    pinned: I64  # 1: it cannot move
    tries: I64  # times that other flavors were tried at once since the epoch of the tree changed
    tries_epoch: I64  # to which one
    failed_starts: I64  # times in a row that its start could not be carried out
    failed_ms: I64  # when it could not the last time
    claims: I64  # (rows, 3, asks): the three that follow
    lot: I64  # (rows, asks): lot plus one that each ask was granted; 0: none
    amount: I64  # (rows, asks)
    reserved_lot: I64  # (rows, asks): lot plus one that places are reserved in while it waits; 0: in none
    counts: I64  # (rows, 3, sets): the three that follow
    pods: I64  # (rows, sets): granted
    reclaimed: I64  # (rows, sets): pods that are done and need no quota
    awaits: I64  # (rows, sets): 1 if its spots are found once its checks are ready
    tried: I64  # (rows, tries): flavors tried so far, by leader and group


(
    T_BRANCH, T_GRANTED, T_NEXT, T_PREV, T_LEAVING, T_HELD, T_NOT_BEFORE, T_BLOCKED, T_GATED, T_TRIED_CYCLE,
    T_TRIED_GENERATION, T_ENTRANCE, T_UNHOUSED, T_DECISION, T_REPLACES, T_REPLACED_BY, T_FIRST_SPOT, T_SPOTS,
    T_AGAIN, T_PINNED, T_TRIES, T_TRIES_EPOCH, T_FAILED_STARTS, T_FAILED_MS,
) = range(len(Tickets.columns))  # fmt: skip


class Again(IntEnum):
    """Why a workload that holds quota is looked at again."""

    NO = 0
    AWAITS = 1  # its checks are ready, and its nodes are there by now
    FAILED = 2  # a node that it has pods on has failed


class Spots(Table):
    """Pods of a set in one leaf of the topology; a workload has consecutive rows."""

    columns = ("leaf", "count", "pod_set", "kind", "name", "workload", "lost")
    fills: ClassVar = {"leaf": END, "kind": END}

    leaf: I64  # END: its domain is not there any more
    count: I64
    pod_set: I64  # ordinal in its work
    kind: I64  # of pod: what one takes
    name: I64  # of the leaf: it stays when the leaf goes and comes back
    workload: I64
    lost: I64  # 1: on the node that has failed; 2: on another that has


SPOT_LEAF, SPOT_COUNT, SPOT_SET, SPOT_KIND, SPOT_NAME, SPOT_WORKLOAD, SPOT_LOST = range(len(Spots.columns))


class Entrances(Table):
    """One row an entrance, and one more for each queue that work is submitted to directly."""

    columns = ("branch", "weight_milli", "closed", "at_ms")
    fills: ClassVar = {"branch": END, "weight_milli": 1000}
    grids: ClassVar = {"consumed": "resource", "rank": "one"}

    branch: I64
    weight_milli: I64
    closed: I64
    at_ms: I64  # when its use was decayed last
    consumed: I64  # (rows, resources): decayed use in thousandths
    rank: I64  # (rows, 1): by what it used of late; the highest used most


E_BRANCH, E_WEIGHT, E_CLOSED, E_AT = range(len(Entrances.columns))


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
        self.branches = Branches({"lot": 0})
        self.lots = Lots()
        self.flavors = FlavorRows({"resource": 0})
        self.groups = Groups({"resource": 0})
        self.options = Options()
        self.demands = Demands()
        self.needs = Needs({"option": 0, "blend": 1})
        self.asks = Asks()
        self.tickets = Tickets({"ask": 0, "set": 0, "try": 0})
        self.entrances = Entrances({"resource": 0, "one": 1})
        self.spots = Spots()
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

    def _held_spots(self) -> Spots:
        """The spots, without what is left in rows that nobody holds: that depends on when the topology was made."""
        spots: Spots = self.spots.copy()
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
        return bool(row < self.tickets.top and self.tickets.branch[row] != END)

    def spot_name(self, flavor: str, values: tuple[str, ...]) -> int:
        """The number of a leaf's name, made if it is new."""
        return self.spot_names.setdefault((flavor, values), len(self.spot_names))

    def chain_class(self, row: int) -> None:
        """Put a class of work before all that are in the chain of its queue, if it has one."""
        branch = int(self.demands.branch[row])
        if branch != END:
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


def carry_tickets(old: Tickets, shares: ShareTables) -> None:
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
        others[linked[linked != END]] = END
    table.block[rows] = [table.fills.get(name, 0) for name in table.columns]
    for name in (*table.grids, *table.stacks):
        getattr(table, name)[rows] = 0
