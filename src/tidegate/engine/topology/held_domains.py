"""Held domain assignments, taken out of the topology and put back: for good, or as a trial."""

from __future__ import annotations

from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.engine.topology.usage import move_assignments
from tidegate.jit.registry import inlined
from tidegate.state.quota_tables import Reserved
from tidegate.state.tables import quota_reservations


@inlined
def move_domains(topology: TopologyView | None, held: Reserved, j: int, sign: int) -> None:
    """Take what workload j holds out of the topology, if there is one (sign 1), or put it back (-1)."""
    if topology is not None:
        first = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
        end = first + held.reservations[j, quota_reservations.ASSIGNMENTS]
        move_assignments(topology.arrays, topology.assignments, first, end, sign)
