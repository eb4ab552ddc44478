"""What workloads hold of the topology, taken out and put back: for good, or to see what would be.

Must not know: why, or how spots are found.
"""

from __future__ import annotations

from tidegate.engine.topology.cycle_view import Grove
from tidegate.engine.topology.usage import add_spots, remove_spots
from tidegate.jit.registry import inlined
from tidegate.state.quota_tables import Held
from tidegate.state.tables import quota_reservations


@inlined
def free_spots(grove: Grove | None, held: Held, j: int) -> None:
    """Take what workload j holds out of the topology, if there is one."""
    if grove is not None:
        first = held.tickets[j, quota_reservations.FIRST_SPOT]
        remove_spots(grove.forest, grove.spots, first, first + held.tickets[j, quota_reservations.SPOTS])


@inlined
def fill_spots(grove: Grove | None, held: Held, j: int) -> None:
    """Put what workload j holds back into the topology, if there is one."""
    if grove is not None:
        first = held.tickets[j, quota_reservations.FIRST_SPOT]
        add_spots(grove.forest, grove.spots, first, first + held.tickets[j, quota_reservations.SPOTS])
