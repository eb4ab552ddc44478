"""Facts about workloads into the state, inside a kernel, where quota is all that decides.

Each function changes the state, to the last bit, as `apply` does for a run of facts of its kind.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tidegate.engine.kernels.columns import submissions
from tidegate.engine.kernels.commit_entry import give_up_all
from tidegate.engine.kernels.pending_queue import link
from tidegate.jit.registry import kernel
from tidegate.model.arrays import F64, I64
from tidegate.state.cluster import Counter, Hot
from tidegate.state.quota_tables import QuotaView
from tidegate.state.tables import pod_classes, pod_sets, queue_requests, quota_nodes, work_classes, workloads
from tidegate.state.tables.workloads import Phase

TERMINATING = int(Phase.TERMINATING)
ROOM_EPOCH, ORDER_EPOCH = int(Counter.ROOM_EPOCH), int(Counter.ORDER_EPOCH)
PODS_FINISHED, LATEST_SUBMITTED = int(Counter.PODS_FINISHED), int(Counter.LATEST_SUBMITTED)

#: Place of work that has not been ordered yet: behind all that has.
TAIL = 1 << 40


class FreeRows(NamedTuple):
    """The rows of workloads: which are in use, and which are free."""

    spare: I64  # released rows; the last is used first
    marks: I64  # (2,): number of spare rows; rows ever used
    real: F64  # (rows, 2): remaining and attained service
    workload: I64  # defaults of a workload's row
    reservation: I64  # defaults of a quota reservation's row
    chosen: I64  # scratch: the rows that a run of facts is about


@kernel
def take_row(rows: FreeRows) -> int:
    """Take a row: a released one, or the next."""
    if rows.marks[0] > 0:
        rows.marks[0] -= 1
        return int(rows.spare[rows.marks[0]])
    rows.marks[1] += 1
    return int(rows.marks[1] - 1)


@kernel
def add_pending(hot: Hot, view: QuotaView, rows: FreeRows, told: I64, first: int, now_ms: int) -> None:
    """Add submitted workloads to the pending ones, numbered upwards from the first."""
    for i in range(len(told)):
        j, w = take_row(rows), told[i, submissions.WORK_CLASS]
        rows.chosen[i] = j
        row = hot.workloads[j]
        row[workloads.NUMBER] = first + i
        row[workloads.WORK_CLASS] = w
        row[workloads.SUBMITTED_MS] = told[i, submissions.SUBMITTED]
        row[workloads.ESTIMATE_MS], row[workloads.TIE] = told[i, submissions.ESTIMATE], told[i, submissions.TIE]
        row[workloads.PLACE_IN_LEVEL], row[workloads.SINCE_MS] = TAIL, now_ms
        rows.real[j, 0] = told[i, submissions.ESTIMATE] / 1000 if told[i, submissions.ESTIMATE] > 0 else math.inf
        for s in range(
            hot.work_classes[w, work_classes.FIRST_SET],
            hot.work_classes[w, work_classes.FIRST_SET] + hot.work_classes[w, work_classes.SETS],
        ):
            hot.pod_classes[hot.pod_sets[s, pod_sets.POD_CLASS], pod_classes.SEEN] += hot.pod_sets[s, pod_sets.COUNT]
        hot.counters[LATEST_SUBMITTED] = max(hot.counters[LATEST_SUBMITTED], told[i, submissions.SUBMITTED])
    link(hot, rows.chosen[: len(told)])
    hot.counters[ORDER_EPOCH] += 1
    mark_trees_dirty(hot, view, rows.chosen[: len(told)])


@kernel
def finish_workloads(hot: Hot, view: QuotaView, rows: FreeRows, gone: I64) -> None:
    """Remove workloads that are over: release their quota and their rows."""
    for i in range(len(gone)):
        hot.counters[PODS_FINISHED] += hot.work_classes[hot.workloads[gone[i], workloads.WORK_CLASS], work_classes.PODS]
    hot.counters[ROOM_EPOCH] += 1
    hot.counters[ORDER_EPOCH] += 1
    give_up_all(view, gone)
    for i in range(len(gone) - 1, -1, -1):  # the first of them is used first
        clear_workload(hot, view, rows, gone[i])
        rows.spare[rows.marks[0]] = gone[i]
        rows.marks[0] += 1


@kernel
def clear_workload(hot: Hot, view: QuotaView, rows: FreeRows, j: int) -> None:
    """Set the row of a workload, and its quota reservation, to the defaults."""
    for c in range(len(rows.workload)):
        hot.workloads[j, c] = rows.workload[c]
    for c in range(len(rows.reservation)):
        view.held.reservations[j, c] = rows.reservation[c]
    rows.real[j, :] = 0
    view.held.claims[j, :, :] = 0
    view.asked.counts[j, :, :] = 0
    view.asked.tried[j, :] = 0


@kernel
def requeue_gone(hot: Hot, view: QuotaView, left: I64, now_ms: int) -> None:
    """Requeue workloads that were terminating and are gone."""
    give_up_all(view, left)
    for i in range(len(left)):
        row = hot.workloads[left[i]]
        row[workloads.SINCE_MS], row[workloads.HELD_CODE], row[workloads.PASSED_MS] = now_ms, 0, -1
    hot.counters[ORDER_EPOCH] += 1
    link(hot, left)
    mark_trees_dirty(hot, view, left)


@kernel
def mark_trees_dirty(hot: Hot, view: QuotaView, waiting: I64) -> None:
    """Mark dirty the trees in which these workloads are pending."""
    node_rows = view.tree.quota_nodes
    for i in range(len(waiting)):
        q = view.asked.queue_requests[hot.workloads[waiting[i], workloads.WORK_CLASS], queue_requests.QUEUE]
        if q >= 0:
            node_rows[node_rows[q, quota_nodes.ROOT], quota_nodes.DIRTY] = 1


@kernel
def are_terminating(hot: Hot, rows: I64) -> bool:
    """Whether all of these workloads are terminating."""
    for i in range(len(rows)):
        if hot.workloads[rows[i], workloads.PHASE] != TERMINATING:
            return False
    return True
