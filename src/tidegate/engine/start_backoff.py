"""Back-off of work whose start fails: it is tried again at once, and after that later each time.

A cluster may refuse a start for good, as an admission policy does. Without a back-off such work holds quota that it
never uses, and others are preempted for it in a loop.
"""

from __future__ import annotations

from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

#: Back-off after the second failure in a row; it doubles with each further one.
FIRST_MS, MOST_MS = 10_000, 3_600_000

#: A failure this long after the last one begins a new row.
FORGET_MS = 2 * MOST_MS


def note_failed_start(state: ClusterState, row: int) -> None:
    """Note that a start could not be carried out. One attempt counts once, however many of its pods failed."""
    reservations, table = state.quota.reservations, state.workloads
    if row >= reservations.top or table.phase[row] != Phase.ASSUMED or table.pending_eviction[row]:
        return
    if state.now_ms - reservations.failed_ms[row] > FORGET_MS:
        reservations.failed_starts[row] = 0
    reservations.failed_starts[row] += 1
    reservations.failed_ms[row] = state.now_ms
    delay = delay_ms(int(reservations.failed_starts[row]))
    reservations.not_before_ms[row] = state.now_ms + delay if delay else 0


def forget_failed_starts(state: ClusterState, row: int) -> None:
    """Clear the back-off of a workload that requests something else now: its start may succeed."""
    reservations = state.quota.reservations
    if row < reservations.top and reservations.failed_starts[row]:
        reservations.failed_starts[row] = reservations.failed_ms[row] = reservations.not_before_ms[row] = 0


def delay_ms(failures: int) -> int:
    """How long a workload waits after so many failures in a row."""
    return min(FIRST_MS << min(failures - 2, 20), MOST_MS) if failures > 1 else 0
