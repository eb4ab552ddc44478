"""The topology of the state: made of its nodes and policy, with the spots that workloads hold, and kept in line.

It can be made again at any time. A leaf that goes and comes back finds its pods again: spots keep its name.
Must not know: who gets spots, or why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.columns import questions
from tidegate.engine.topology.query import Wanted, question_of
from tidegate.engine.topology.usage import add_spots, remove_spots
from tidegate.jit.registry import active
from tidegate.model.arrays import I64
from tidegate.model.hardware import is_device
from tidegate.model.policy import AdmissionKind
from tidegate.model.queues import footprint_of
from tidegate.model.units import WHOLE_MILLI
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.tables.nodes import BROKEN_MILLI
from tidegate.state.tables.quota_reservations import Again
from tidegate.state.topology import HOST, PODS, Topology, plant

#: Rows without a holder that are put up with, beside as many as are in use.
_HOLES = 64


class HeldSpot(NamedTuple):
    """Pods of a workload in one leaf, by name."""

    pod_set: int  # ordinal
    flavor: str
    values: tuple[str, ...]
    pods: int
    lost: int = 0


def topology_of(state: ClusterState) -> Topology | None:
    """The topology, in line with nodes, policy and work; None: no flavor has one."""
    tables = state.shares
    if not tables.flavors.topology[: tables.flavors.top].any():
        return None
    if tables.topology is None or tables.uprooted:
        if tables.uprooted:
            roots = np.flatnonzero(tables.branches.parent[: tables.branches.top] == NONE)
            tables.branches.epoch[roots] += 1
            tables.branches.stirred[roots] = 1
            _forget_names(state)
        tables.uprooted = False
        tables.topology = _replant(state)
    _ask_for_new(state, tables.topology)
    _notice_spotless(state, tables.topology)
    return tables.topology


def uproot(state: ClusterState) -> None:
    """Nodes, or what others hold on them, have changed."""
    tables = state.shares
    if tables and tables.flavors.topology[: tables.flavors.top].any():
        tables.uprooted = True


def _forget_names(state: ClusterState) -> None:
    """Forget the names of leaves that nobody has spots in: those that are there are named again."""
    tables, rows = state.shares, held_rows(state)
    names, used = list(tables.spot_names), np.unique(tables.spots.name[rows])
    tables.spot_names = {names[name]: at for at, name in enumerate(used.tolist())}
    tables.spots.name[rows] = np.searchsorted(used, tables.spots.name[rows])


def _replant(state: ClusterState) -> Topology:
    """Make the topology anew, and give everybody the spots that they hold."""
    tables, shares = state.shares, state.policy.shares
    topology = plant(state.node_specs, shares.flavors, shares.topologies, twins=shares.topology.twins)
    for taken in state.foreign.values():
        topology.set_foreign(taken.foreign)
    for name, row in tables.flavor_rows.items():
        tables.flavors.tree[row] = topology.flavors.get(name, NONE)
    topology.leaf_names = np.zeros(max(topology.leaves.top, 1), np.int64)
    for name, tree in topology.flavors.items():
        first = int(topology.trees.first_leaf[tree])
        for leaf in range(first, first + int(topology.trees.leaves[tree])):
            topology.leaf_names[leaf] = tables.spot_name(name, topology.spot(leaf, tree, 0).values)
    _ask_for_new(state, topology)
    _settle_spots(state, topology)
    return topology


def _settle_spots(state: ClusterState, topology: Topology) -> None:
    """Find the leaves of all spots again, and take what their pods take."""
    tables, spots = state.shares, state.shares.spots
    leaf_of = np.array([leaf_of_name(topology, *name) for name in tables.spot_names], np.int64)
    rows = held_rows(state)
    was_there = spots.leaf[rows] >= 0
    spots.leaf[rows] = leaf_of[spots.name[rows]]
    _notice_lost(state, rows[was_there & (spots.leaf[rows] == NONE)])
    first_set = state.work_classes.first_set[state.workloads.work_class[spots.workload[rows]]]
    spots.kind[rows] = topology.kind_rows[first_set + spots.pod_set[rows]]
    held = np.ascontiguousarray(spots.block[rows])
    active(add_spots)(topology.forest(), held, 0, len(held))


def _notice_lost(state: ClusterState, rows: I64) -> None:
    """Spots whose leaf is gone: whoever has no pods of ours that would show it needs others."""
    tables, spots = state.shares, state.shares.spots
    holders = spots.workload[rows]
    rows = rows[(state.workloads.first_pod[holders] == NONE) & (tables.tickets.leaving[holders] == 0)]
    spots.lost[rows] = 1
    tables.tickets.again[spots.workload[rows]] = Again.FAILED


def _notice_spotless(state: ClusterState, topology: Topology) -> None:
    """Take what pods of ours that were placed without a spot take of the leaves: they are as good as others' pods.

    Where admission takes a place, so are devices that are broken.
    """
    pods, tickets = state.pods, state.shares.tickets
    placed = np.flatnonzero(pods.node[: pods.top] >= 0)
    placed = placed[tickets.spots[pods.workload[placed]] == 0] if len(placed) else placed
    broken = _broken_devices(state)
    if not len(placed) and not broken.any() and not topology.leaves.spotless.any():
        return
    taken = np.outer(broken, _vector_of_device(topology))
    topology.spotless_pods = {}
    for pod_class in np.unique(pods.pod_class[placed]).tolist():
        nodes = pods.node[placed[pods.pod_class[placed] == pod_class]]
        topology.spotless_pods[pod_class] = _vector_of(state, topology, pod_class)
        np.add.at(taken, nodes, topology.spotless_pods[pod_class])
    leaves = topology.leaves
    for leaf, rows in enumerate(topology.nodes):
        more = taken[list(rows)].sum(axis=0) - leaves.spotless[leaf]
        leaves.empty[leaf] -= more
        leaves.free[leaf] -= more
        leaves.spotless[leaf] += more


def _broken_devices(state: ClusterState) -> I64:
    """How many devices of each node are broken, where it matters which device a pod has."""
    broken: I64 = (state.nodes.left[: state.nodes.top] < -BROKEN_MILLI // 2).sum(axis=1)
    return broken if state.policy.admission is AdmissionKind.TIDEGATE else np.zeros_like(broken)


def _vector_of_device(topology: Topology) -> I64:
    """One device in the units of quota."""
    devices = {name: 1 for name in topology.resources if is_device(name)}
    return topology.vector(devices | ({"gpu": WHOLE_MILLI} if "gpu" in topology.resources else {}))


def _vector_of(state: ClusterState, topology: Topology, pod_class: int) -> I64:
    """What a pod of a class takes of a leaf, in the units of quota."""
    classes = state.pod_classes
    gpus = int(classes.gpus[pod_class])
    amounts = {
        "cpu": int(classes.cpu[pod_class]),
        "memory": int(classes.memory[pod_class]) << 20,
        "gpu": gpus * int(classes.milli[pod_class]),
        PODS: 1,
        **{name: gpus for name in topology.resources if is_device(name)},
        **{name: int(classes.extra[pod_class, place]) for place, name in enumerate(state.extras)},
    }
    return topology.vector({name: amount for name, amount in amounts.items() if name in topology.resources})


def leaf_of_name(topology: Topology, flavor: str, values: tuple[str, ...]) -> int:
    """The leaf that a spot's name means; NONE: it is not there."""
    tree = topology.flavors.get(flavor, NONE)
    return NONE if tree == NONE else topology.leaf_of(tree, values)


def _ask_for_new(state: ClusterState, topology: Topology) -> None:
    """Write down what pod sets that are new ask of each tree, and what one of their pods takes."""
    first, end, trees = topology.described, state.pod_sets.top, len(topology.flavors)
    if first == end and topology.questions.shape[1:] == (trees, questions.COLUMNS):
        return
    room = state.pod_sets.capacity
    if len(topology.questions) < room:
        question_rows, kinds = np.zeros((room, trees, questions.COLUMNS), np.int64), np.zeros(room, np.int64)
        if first:
            question_rows[:first], kinds[:first] = topology.questions[:first], topology.kind_rows[:first]
        topology.questions, topology.kind_rows = question_rows, kinds
    for row in range(first, end):
        w = int(state.pod_sets.work_class[row])
        pod_set = state.works[w].pod_sets[row - int(state.work_classes.first_set[w])]
        topology.kind_rows[row] = topology.kind_of(footprint_of(pod_set))
        for flavor, tree in topology.flavors.items() if state.shares.needs.topology[row] else ():
            wanted = Wanted(pod_set, flavor, 0, is_implied=not pod_set.topology)
            topology.questions[row, tree] = question_of(topology, wanted)
    topology.described = end


# -- what workloads hold ---------------------------------------------------------------------------------------


def held_rows(state: ClusterState) -> I64:
    """Rows of the spots that somebody holds."""
    tickets = state.shares.tickets
    holders = np.flatnonzero(tickets.spots[: tickets.top])
    ranges = [np.arange(tickets.first_spot[row], tickets.first_spot[row] + tickets.spots[row]) for row in holders]
    return np.concatenate([np.zeros(0, np.int64), *ranges])


def spots_of(state: ClusterState, row: int) -> tuple[HeldSpot, ...]:
    """The spots that a workload holds, by name."""
    tables, found = state.shares, []
    names = list(tables.spot_names)
    first = int(tables.tickets.first_spot[row])
    for at in range(first, first + int(tables.tickets.spots[row])):
        flavor, values = names[tables.spots.name[at]]
        ordinal, count, lost = (
            int(column[at]) for column in (tables.spots.pod_set, tables.spots.count, tables.spots.lost)
        )
        found.append(HeldSpot(ordinal, flavor, values, count, lost))
    return tuple(found)


def hold_spots(state: ClusterState, row: int, held: Sequence[HeldSpot]) -> None:
    """Let a workload that holds none hold exactly these spots."""
    tables, topology = state.shares, state.shares.topology
    rows = tables.spots.take(len(held))
    tables.tickets.first_spot[row], tables.tickets.spots[row] = rows[0] if len(rows) else 0, len(rows)
    for at, spot in zip(rows.tolist(), held, strict=True):
        values = _key(state, spot)
        tables.spots.name[at] = tables.spot_name(spot.flavor, values)
        tables.spots.count[at], tables.spots.pod_set[at] = spot.pods, spot.pod_set
        tables.spots.workload[at], tables.spots.lost[at] = row, spot.lost
        if topology is not None:
            _settle_one(state, topology, at, spot.flavor, values)


def free_held(state: ClusterState, rows: I64) -> None:
    """Workloads are about to give up their spots: what those took is free."""
    tables, topology = state.shares, state.shares.topology
    if topology is None:
        return
    for row in rows[tables.tickets.spots[rows] > 0].tolist():
        first = int(tables.tickets.first_spot[row])
        end = first + int(tables.tickets.spots[row])
        active(remove_spots)(topology.forest(), tables.spots.block, first, end)


def _settle_one(state: ClusterState, topology: Topology, at: int, flavor: str, values: tuple[str, ...]) -> None:
    tables = state.shares
    _ask_for_new(state, topology)
    w = int(state.workloads.work_class[tables.spots.workload[at]])
    tables.spots.leaf[at] = leaf_of_name(topology, flavor, values)
    tables.spots.kind[at] = topology.kind_rows[int(state.work_classes.first_set[w]) + int(tables.spots.pod_set[at])]
    active(add_spots)(topology.forest(), tables.spots.block, at, at + 1)


def _key(state: ClusterState, spot: HeldSpot) -> tuple[str, ...]:
    """The values of a spot as its leaf is named: by the host alone where the narrowest level is the host."""
    shares = state.policy.shares
    topology = next((flavor.topology for flavor in shares.flavors if flavor.name == spot.flavor), "")
    levels = next((known.labels for known in shares.topologies if known.name == topology), ())
    return spot.values[-1:] if levels and levels[-1] == HOST else spot.values


def compact_spots(state: ClusterState) -> None:
    """Close the gaps between spots, once they are more than what is held."""
    tickets, spots = state.shares.tickets, state.shares.spots
    if spots.top <= 2 * int(tickets.spots[: tickets.top].sum()) + _HOLES:
        return
    rows = held_rows(state)
    holders = np.flatnonzero(tickets.spots[: tickets.top])
    kept = spots.block[rows]
    spots.block[: spots.top] = spots.defaults
    spots.block[: len(rows)] = kept
    spots.top = len(rows)
    tickets.first_spot[holders] = np.cumsum(tickets.spots[holders]) - tickets.spots[holders]
