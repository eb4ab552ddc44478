"""Back-off of work whose start fails: it is tried again at once, and after that later each time.

A cluster may refuse a start for good, as an admission policy does. Without a back-off such work holds quota that it
never uses, and others are preempted for it in a loop.
"""

from __future__ import annotations

from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

#: The second failure in a row waits so long, each further one twice as long as the one before.
FIRST_MS, MOST_MS = 10_000, 3_600_000

#: A failure that is so long after the last one is the first of its own row.
FORGET_MS = 2 * MOST_MS


def note_failed_start(state: ClusterState, row: int) -> None:
    """The start of a workload could not be carried out. One attempt counts once, however many of its pods failed."""
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
    """A workload asks for something else now: its start may well be carried out."""
    reservations = state.quota.reservations
    if row < reservations.top and reservations.failed_starts[row]:
        reservations.failed_starts[row] = reservations.failed_ms[row] = reservations.not_before_ms[row] = 0


def delay_ms(failures: int) -> int:
    """How long a workload waits after so many failures in a row."""
    return min(FIRST_MS << min(failures - 2, 20), MOST_MS) if failures > 1 else 0
