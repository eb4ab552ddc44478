"""Held domain assignments, taken out of the topology and put back: for good, or to see what would happen."""

from __future__ import annotations

from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.engine.topology.usage import add_assignments, remove_assignments
from tidegate.jit.registry import inlined
from tidegate.state.quota_tables import Reserved
from tidegate.state.tables import quota_reservations


@inlined
def free_assignments(topology: TopologyView | None, held: Reserved, j: int) -> None:
    """Take what workload j holds out of the topology, if there is one."""
    if topology is not None:
        first = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
        remove_assignments(
            topology.arrays, topology.assignments, first, first + held.reservations[j, quota_reservations.ASSIGNMENTS]
        )


@inlined
def fill_assignments(topology: TopologyView | None, held: Reserved, j: int) -> None:
    """Put what workload j holds back into the topology, if there is one."""
    if topology is not None:
        first = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
        add_assignments(
            topology.arrays, topology.assignments, first, first + held.reservations[j, quota_reservations.ASSIGNMENTS]
        )
