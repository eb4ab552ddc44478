"""The topology as tables: for each flavor with levels a tree of domains, with what is free in its leaves.

A *domain* is where nodes share the labels of a level and of all levels above; a *leaf* is a domain of the narrowest
level. All trees are in one table, one after the other, so that a cycle can search any of them. Rows are in the order of
their labels' values, level by level: the row is the rank, and the children of a domain are consecutive. It is built
from nodes and policy and can be built again at any time; usage comes from domain assignments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from tidegate.model.arrays import I64
from tidegate.model.hardware import Node, TopologyLevels
from tidegate.model.observed_status import DomainAssignment, UnmanagedPods
from tidegate.model.queues import LARGEST_CLAIM, Flavor, allocatable_of
from tidegate.model.struct import Labels, Resources
from tidegate.model.work import PodSet
from tidegate.state.column_table import NONE, ColumnTable
from tidegate.state.node_matching import Matching
from tidegate.state.tables.topology_domains import TopologyDomains
from tidegate.state.tables.topology_leaves import TopologyLeaves
from tidegate.state.tables.topology_trees import TopologyTrees

#: The label that names a node. Where it is the narrowest level, a leaf is one host and nodes are distinguished.
HOST = "kubernetes.io/hostname"

#: The resource of which every pod takes one.
PODS = "pods"


class TopologyArrays(NamedTuple):
    """The topology for kernels: all trees, what is free, and the kinds of pods."""

    trees: I64
    level_start: I64
    domains: I64
    leaves: I64
    empty: I64
    free: I64
    amounts: I64  # (kinds, resources): what one pod takes
    match: I64  # (filters, node classes): Reason why a node does not match; 0: it does
    liking: I64  # (filters, node classes): how much the pods prefer it


class PodKinds(ColumnTable):
    """One row for each amount that a pod can take of a leaf."""

    grids: ClassVar = {"amounts": "resource"}

    amounts: I64


class Topology:
    """The trees of all flavors, the names behind their rows, and the kinds of pods that request topology."""

    def __init__(self) -> None:
        self.resources: dict[str, int] = {}  # index of each
        self.trees = TopologyTrees({"level": 1})
        self.domains = TopologyDomains()
        self.leaves = TopologyLeaves({"resource": 0})
        self.kinds = PodKinds({"resource": 0})
        self.matching = Matching()
        self.flavors: dict[str, int] = {}  # tree of each flavor
        self.specs: list[Flavor] = []  # flavor of each tree
        self.levels: list[tuple[str, ...]] = []  # of each tree
        self.values: list[tuple[str, ...]] = []  # of each leaf: its labels' values from the widest level
        self.nodes: list[tuple[int, ...]] = []  # of each leaf: the rows that the nodes were given under
        self.leaf_rows: dict[tuple[int, tuple[str, ...]], int] = {}  # leaf by tree and key
        self.leaves_of: dict[int, tuple[int, ...]] = {}  # leaves by row of the node
        self.names: dict[str, int] = {}  # row of each node
        self.unmanaged: dict[int, Resources] = {}  # what unmanaged pods hold, by row of the node
        self._kinds: dict[Resources, int] = {}
        # What `engine` noted about the pod sets of the state, and about names.
        self.described = 0  # pod sets that exist
        self.questions: I64 = np.zeros((0, 0, 0), np.int64)  # (pod sets, trees, …): what each asks of each tree
        self.kind_rows: I64 = np.zeros(0, np.int64)  # of each pod set
        self.leaf_nodes: tuple[I64, I64] | None = None  # `nodes` in two columns: where each leaf's begin, and all rows
        self.node_leaves: tuple[I64, I64] | None = None  # `leaves_of` in two columns likewise
        self.unassigned_pods: dict[int, I64] = {}  # what one takes, by class, of the unassigned ones
        self.leaf_names: I64 = np.zeros(0, np.int64)  # number of the name of each leaf

    def arrays(self) -> TopologyArrays:
        """What kernels take. Valid until a new kind of pod comes."""
        return TopologyArrays(
            self.trees.block, self.trees.level_start, self.domains.block, self.leaves.block, self.leaves.empty,
            self.leaves.free, self.kinds.amounts, self.matching.filters.match, self.matching.filters.liking,
        )  # fmt: skip

    def copy(self) -> Topology:
        """A copy whose usage can be changed freely."""
        twin = Topology.__new__(Topology)
        twin.__dict__.update(self.__dict__)
        twin.leaves, twin.kinds, twin.matching = self.leaves.copy(), self.kinds.copy(), self.matching.copy()
        for name in ("resources", "unmanaged", "_kinds"):
            setattr(twin, name, dict(getattr(self, name)))
        twin.questions, twin.kind_rows = self.questions.copy(), self.kind_rows.copy()
        return twin

    # -- names -------------------------------------------------------------------------------------------------

    def leaf_of(self, tree: int, values: tuple[str, ...]) -> int:
        """The leaf that an assignment names; NONE if there is none."""
        return self.leaf_rows.get((tree, self._key(tree, values)), NONE)

    def assignment(self, leaf: int, tree: int, count: int) -> DomainAssignment:
        """Pods in a leaf, named as Kueue does: by the host alone where there is one."""
        return DomainAssignment(values=self._key(tree, self.values[leaf]), count=count)

    def _key(self, tree: int, values: tuple[str, ...]) -> tuple[str, ...]:
        return values[-1:] if self.trees.hosts[tree] else values

    # -- kinds of pods -----------------------------------------------------------------------------------------

    def kind_of(self, amounts: Resources) -> int:
        """The row of a kind of pod, by what one takes besides its slot."""
        row = self._kinds.get(amounts)
        if row is None:
            vector = self.vector({**dict(amounts), PODS: 1})
            row = self._kinds[amounts] = int(self.kinds.take(1)[0])
            self.kinds.amounts[row] = vector
        return row

    def filter_of(self, pod_set: PodSet, tree: int) -> int:
        """The row of what a pod set requests of nodes in a tree."""
        return self.matching.filter_of(pod_set, self.specs[tree], self.leaves.node_class)

    def vector(self, amounts: Mapping[str, int]) -> I64:
        """Amounts as a row, in the order of the resources; new resources get an index."""
        if not self.resources.keys() >= amounts.keys():
            self._widen(sorted({*self.resources, *amounts}))
        row = np.zeros(len(self.resources), np.int64)
        for name, amount in amounts.items():
            row[self.resources[name]] = max(-LARGEST_CLAIM, min(amount, LARGEST_CLAIM))  # so that sums do not wrap
        return row

    def _widen(self, names: list[str]) -> None:
        """Give all resources an index, by name, whatever came first."""
        old = [names.index(name) for name in self.resources]
        self.resources = {name: place for place, name in enumerate(names)}
        for table in (self.leaves, self.kinds):
            table.widen("resource", len(names))
            for grid in table.grids:
                moved = getattr(table, grid)
                kept = moved[:, : len(old)].copy()
                moved[:] = 0
                moved[:, old] = kept

    # -- unmanaged pods --------------------------------------------------------------------------------------------

    def set_unmanaged(self, held: UnmanagedPods) -> None:
        """Note what unmanaged pods hold on a node now."""
        node = self.names.get(held.node)
        if node is None:
            return
        amounts = {**dict(held.charge), PODS: held.pods}
        more = self.vector(amounts) - self.vector(dict(self.unmanaged.get(node, ())))
        self.unmanaged[node] = tuple(sorted(amounts.items()))
        for leaf in self.leaves_of.get(node, ()):
            self.leaves.empty[leaf] -= more
            self.leaves.free[leaf] -= more


def build(
    nodes: Mapping[int, Node], flavors: Iterable[Flavor], topologies: Iterable[TopologyLevels], *, twins: bool = True
) -> Topology:
    """The trees of all flavors that have levels, over these nodes: the same whatever order they come in.

    Without `twins`, usage of a host in one tree is not counted in the others.
    """
    topology = Topology()
    levels_of = {levels.name: levels.labels for levels in topologies}
    ordered = sorted(nodes.items(), key=lambda item: item[1].name)
    topology.names = {node.name: row for row, node in ordered}
    topology.vector(dict.fromkeys([PODS, *(name for _, node in ordered for name, _ in allocatable_of(node))], 0))
    built = [flavor for flavor in sorted(flavors, key=lambda f: f.name) if levels_of.get(flavor.topology)]
    topology.trees.widen("level", max((len(levels_of[f.topology]) for f in built), default=0) + 1)
    hosts: dict[str, list[int]] = {}
    for flavor in built:
        _build_tree(topology, flavor, levels_of[flavor.topology], ordered, hosts)
    for rows in hosts.values() if twins else ():
        topology.leaves.twin[rows] = [*rows[1:], rows[0]]
    return topology


class _Leaf(NamedTuple):
    """A leaf under construction."""

    values: tuple[str, ...]
    nodes: list[tuple[int, Node]]


def _build_tree(
    topology: Topology,
    flavor: Flavor,
    levels: tuple[str, ...],
    nodes: Sequence[tuple[int, Node]],
    hosts: dict[str, list[int]],
) -> None:
    is_host = levels[-1] == HOST
    made: dict[tuple[str, ...], _Leaf] = {}
    for row, node in nodes:
        labels = labels_of(node)
        if not _belongs(node, labels, flavor.node_labels, levels):
            continue
        values = tuple(labels[level] for level in levels)
        made.setdefault(values[-1:] if is_host else values, _Leaf(values, [])).nodes.append((row, node))
    leaves = sorted(made.values(), key=lambda leaf: leaf.values)
    tree = _add_domains(topology, levels, [leaf.values for leaf in leaves])
    topology.flavors[flavor.name] = tree
    topology.specs.append(flavor)
    topology.levels.append(levels)
    topology.trees.hosts[tree] = int(is_host)
    rows = _add_leaves(topology, tree, leaves)
    for row, leaf in zip(rows, leaves, strict=True):
        if is_host:
            hosts.setdefault(leaf.values[-1], []).append(row)
            topology.leaves.node_class[row] = topology.matching.node_class_of(leaf.nodes[0][1], row)


def labels_of(node: Node) -> dict[str, str]:
    """The labels of a node; one that is not Kubernetes' has its name where Kubernetes writes it."""
    return dict(node.labels) if node.allocatable is not None else {HOST: node.name, **dict(node.labels)}


def _belongs(node: Node, labels: dict[str, str], wanted: Labels, levels: tuple[str, ...]) -> bool:
    if node.unschedulable or not node.ready:
        return False
    return all(labels.get(key) == value for key, value in wanted) and all(level in labels for level in levels)


def _add_domains(topology: Topology, levels: tuple[str, ...], leaves: list[tuple[str, ...]]) -> int:
    """Rows for the domains of a new tree."""
    tree, table = int(topology.trees.take(1)[0]), topology.domains
    start = table.top
    above: dict[tuple[str, ...], int] = {(): NONE}
    topology.trees.first_domain[tree], topology.trees.levels[tree] = start, len(levels)
    for level in range(len(levels)):
        topology.trees.level_start[tree, level] = table.top
        wanted = sorted({values[: level + 1] for values in leaves})
        rows = dict(zip(wanted, table.take(len(wanted)).tolist(), strict=True))
        for values, row in rows.items():
            parent = table.parent[row] = above[values[:-1]]
            if parent != NONE:
                if not table.children[parent]:
                    table.first_child[parent] = row
                table.children[parent] += 1
        above = rows
    topology.trees.level_start[tree, len(levels) :] = table.top
    topology.trees.domains[tree] = table.top - start
    return tree


def _add_leaves(topology: Topology, tree: int, leaves: list[_Leaf]) -> list[int]:
    """Rows for the leaves of a new tree, with what their nodes have."""
    trees, table = topology.trees, topology.leaves
    rows: list[int] = table.take(len(leaves)).tolist()
    trees.first_leaf[tree], trees.leaves[tree] = table.top - len(rows), len(rows)
    bottom = int(trees.level_start[tree, trees.levels[tree]]) - len(rows)
    table.domain[rows] = np.arange(bottom, bottom + len(rows))
    table.twin[rows] = rows
    for row, leaf in zip(rows, leaves, strict=True):
        for node, spec in leaf.nodes:
            table.allocatable[row] += topology.vector(dict(allocatable_of(spec)))
            topology.leaves_of[node] = (*topology.leaves_of.get(node, ()), row)
        topology.values.append(leaf.values)
        topology.nodes.append(tuple(node for node, _ in leaf.nodes))
        topology.leaf_rows[tree, topology._key(tree, leaf.values)] = row  # noqa: SLF001 - its own maker
    table.empty[rows] = table.allocatable[rows]
    table.free[rows] = table.allocatable[rows]
    return rows
