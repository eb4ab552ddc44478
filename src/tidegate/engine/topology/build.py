"""Builds the topology from nodes and policy, with the domain assignments that workloads hold, and keeps it current.

It can be built again at any time. A leaf that goes and comes back finds its pods again: assignments keep its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.topology.columns import questions
from tidegate.engine.topology.query import PodSetQuery, question_of
from tidegate.engine.topology.usage import move_assignments
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
from tidegate.state.topology import HOST, PODS, Topology, build

#: Rows without a holder that are tolerated, next to as many as are in use.
_HOLES = 64


class HeldAssignment(NamedTuple):
    """Pods of a workload in one leaf, by name."""

    pod_set: int  # ordinal
    flavor: str
    values: tuple[str, ...]
    pods: int
    lost: int = 0


def topology_of(state: ClusterState) -> Topology | None:
    """The current topology for nodes, policy and work; None: no flavor has one."""
    tables = state.quota
    if not tables.flavors.topology[: tables.flavors.top].any():
        return None
    if tables.topology is None or tables.topology_stale:
        if tables.topology_stale:
            roots = np.flatnonzero(tables.quota_nodes.parent[: tables.quota_nodes.top] == NONE)
            tables.quota_nodes.epoch[roots] += 1
            tables.quota_nodes.dirty[roots] = 1
            _forget_names(state)
        tables.topology_stale = False
        tables.topology = _rebuild(state)
    _ask_for_new(state, tables.topology)
    _notice_unassigned(state, tables.topology)
    return tables.topology


def invalidate(state: ClusterState) -> None:
    """Invalidate the topology: nodes, or what unmanaged pods hold on them, have changed."""
    tables = state.quota
    if tables and tables.flavors.topology[: tables.flavors.top].any():
        tables.topology_stale = True


def _forget_names(state: ClusterState) -> None:
    """Forget the names of leaves without assignments: those that exist are named again."""
    tables, rows = state.quota, held_rows(state)
    names, used = list(tables.leaf_names), np.unique(tables.assignments.name[rows])
    tables.leaf_names = {names[name]: at for at, name in enumerate(used.tolist())}
    tables.assignments.name[rows] = np.searchsorted(used, tables.assignments.name[rows])


def _rebuild(state: ClusterState) -> Topology:
    """Build the topology again, and restore all assignments."""
    tables, quota = state.quota, state.policy.shares
    topology = build(state.node_specs, quota.flavors, quota.topologies, twins=quota.topology.twins)
    for taken in state.unmanaged.values():
        topology.set_unmanaged(taken.unmanaged)
    for name, row in tables.flavor_rows.items():
        tables.flavors.tree[row] = topology.flavors.get(name, NONE)
    topology.leaf_names = np.zeros(max(topology.leaves.top, 1), np.int64)
    for name, tree in topology.flavors.items():
        first = int(topology.trees.first_leaf[tree])
        for leaf in range(first, first + int(topology.trees.leaves[tree])):
            topology.leaf_names[leaf] = tables.leaf_name(name, topology.assignment(leaf, tree, 0).values)
    _ask_for_new(state, topology)
    _settle_assignments(state, topology)
    return topology


def _settle_assignments(state: ClusterState, topology: Topology) -> None:
    """Find the leaves of all assignments again, and take what their pods take."""
    tables, assignments = state.quota, state.quota.assignments
    leaf_of = np.array([leaf_of_name(topology, *name) for name in tables.leaf_names], np.int64)
    rows = held_rows(state)
    was_there = assignments.leaf[rows] >= 0
    assignments.leaf[rows] = leaf_of[assignments.name[rows]]
    _notice_lost(state, rows[was_there & (assignments.leaf[rows] == NONE)])
    first_set = state.work_classes.first_set[state.workloads.work_class[assignments.workload[rows]]]
    assignments.kind[rows] = topology.kind_rows[first_set + assignments.pod_set[rows]]
    held = np.ascontiguousarray(assignments.block[rows])
    active(move_assignments)(topology.arrays(), held, 0, len(held), -1)


def _notice_lost(state: ClusterState, rows: I64) -> None:
    """Note assignments whose leaf is gone: a workload without pods of ours that would show it needs others."""
    tables, assignments = state.quota, state.quota.assignments
    holders = assignments.workload[rows]
    rows = rows[(state.workloads.first_pod[holders] == NONE) & (tables.reservations.terminating[holders] == 0)]
    assignments.lost[rows] = 1
    tables.reservations.again[assignments.workload[rows]] = Again.FAILED


def _notice_unassigned(state: ClusterState, topology: Topology) -> None:
    """Take what our unassigned pods take of the leaves: they count like unmanaged pods.

    Where admission takes a place, broken devices count too.
    """
    pods, reservations = state.pods, state.quota.reservations
    placed = np.flatnonzero(pods.node[: pods.top] >= 0)
    placed = placed[reservations.assignments[pods.workload[placed]] == 0] if len(placed) else placed
    broken = _broken_devices(state)
    if not len(placed) and not broken.any() and not topology.leaves.unassigned.any():
        return
    taken = np.outer(broken, _vector_of_device(topology))
    topology.unassigned_pods = {}
    for pod_class in np.unique(pods.pod_class[placed]).tolist():
        nodes = pods.node[placed[pods.pod_class[placed] == pod_class]]
        topology.unassigned_pods[pod_class] = _vector_of(state, topology, pod_class)
        np.add.at(taken, nodes, topology.unassigned_pods[pod_class])
    leaves = topology.leaves
    for leaf, rows in enumerate(topology.nodes):
        more = taken[list(rows)].sum(axis=0) - leaves.unassigned[leaf]
        leaves.empty[leaf] -= more
        leaves.free[leaf] -= more
        leaves.unassigned[leaf] += more


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
    """The leaf that an assignment's name means; NONE: it does not exist."""
    tree = topology.flavors.get(flavor, NONE)
    return NONE if tree == NONE else topology.leaf_of(tree, values)


def _ask_for_new(state: ClusterState, topology: Topology) -> None:
    """Write what new pod sets ask of each tree, and what one of their pods takes."""
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
        for flavor, tree in topology.flavors.items() if state.quota.pod_set_needs.topology[row] else ():
            wanted = PodSetQuery(pod_set, flavor, 0, is_implied=not pod_set.topology)
            topology.questions[row, tree] = question_of(topology, wanted)
    topology.described = end


# -- held assignments ------------------------------------------------------------------------------------------


def held_rows(state: ClusterState) -> I64:
    """Rows of the assignments that workloads hold."""
    reservations = state.quota.reservations
    holders = np.flatnonzero(reservations.assignments[: reservations.top])
    ranges = [
        np.arange(
            reservations.first_assignment[row], reservations.first_assignment[row] + reservations.assignments[row]
        )
        for row in holders
    ]
    return np.concatenate([np.zeros(0, np.int64), *ranges])


def assignments_of(state: ClusterState, row: int) -> tuple[HeldAssignment, ...]:
    """The assignments that a workload holds, by name."""
    tables, found = state.quota, []
    names = list(tables.leaf_names)
    first = int(tables.reservations.first_assignment[row])
    for at in range(first, first + int(tables.reservations.assignments[row])):
        flavor, values = names[tables.assignments.name[at]]
        ordinal, count, lost = (
            int(column[at])
            for column in (tables.assignments.pod_set, tables.assignments.count, tables.assignments.lost)
        )
        found.append(HeldAssignment(ordinal, flavor, values, count, lost))
    return tuple(found)


def hold_assignments(state: ClusterState, row: int, held: Sequence[HeldAssignment]) -> None:
    """Let a workload that holds no assignment hold exactly these."""
    tables, topology = state.quota, state.quota.topology
    rows = tables.assignments.take(len(held))
    tables.reservations.first_assignment[row] = rows[0] if len(rows) else 0
    tables.reservations.assignments[row] = len(rows)
    for at, assignment in zip(rows.tolist(), held, strict=True):
        values = _key(state, assignment)
        tables.assignments.name[at] = tables.leaf_name(assignment.flavor, values)
        tables.assignments.count[at], tables.assignments.pod_set[at] = assignment.pods, assignment.pod_set
        tables.assignments.workload[at], tables.assignments.lost[at] = row, assignment.lost
        if topology is not None:
            _settle_one(state, topology, at, assignment.flavor, values)


def free_held(state: ClusterState, rows: I64) -> None:
    """Release what the assignments of workloads take, which are about to give them up."""
    tables, topology = state.quota, state.quota.topology
    if topology is None:
        return
    for row in rows[tables.reservations.assignments[rows] > 0].tolist():
        first = int(tables.reservations.first_assignment[row])
        end = first + int(tables.reservations.assignments[row])
        active(move_assignments)(topology.arrays(), tables.assignments.block, first, end, 1)


def _settle_one(state: ClusterState, topology: Topology, at: int, flavor: str, values: tuple[str, ...]) -> None:
    tables = state.quota
    _ask_for_new(state, topology)
    w = int(state.workloads.work_class[tables.assignments.workload[at]])
    tables.assignments.leaf[at] = leaf_of_name(topology, flavor, values)
    tables.assignments.kind[at] = topology.kind_rows[
        int(state.work_classes.first_set[w]) + int(tables.assignments.pod_set[at])
    ]
    active(move_assignments)(topology.arrays(), tables.assignments.block, at, at + 1, -1)


def _key(state: ClusterState, assignment: HeldAssignment) -> tuple[str, ...]:
    """The values of an assignment as its leaf is named: by the host alone where the narrowest level is the host."""
    quota = state.policy.shares
    topology = next((flavor.topology for flavor in quota.flavors if flavor.name == assignment.flavor), "")
    levels = next((known.labels for known in quota.topologies if known.name == topology), ())
    return assignment.values[-1:] if levels and levels[-1] == HOST else assignment.values


def compact_assignments(state: ClusterState) -> None:
    """Close the gaps between assignments, once they are more than what is held."""
    reservations, assignments = state.quota.reservations, state.quota.assignments
    if assignments.top <= 2 * int(reservations.assignments[: reservations.top].sum()) + _HOLES:
        return
    rows = held_rows(state)
    holders = np.flatnonzero(reservations.assignments[: reservations.top])
    kept = assignments.block[rows]
    assignments.block[: assignments.top] = assignments.defaults
    assignments.block[: len(rows)] = kept
    assignments.top = len(rows)
    reservations.first_assignment[holders] = (
        np.cumsum(reservations.assignments[holders]) - reservations.assignments[holders]
    )
