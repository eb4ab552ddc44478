"""HOLD decisions of queues: the head reports its own reason, the workloads behind it that others go before them."""

from __future__ import annotations

from tidegate.engine.kernels.columns import counters, decision_columns, entries, statuses
from tidegate.engine.kernels.gang_placement import Output, write
from tidegate.engine.kernels.pending_queue import note_reported
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.state.quota_tables import Reserved
from tidegate.state.tables import queue_requests, quota_nodes, quota_reservations, work_classes, workloads

HOLD = int(DecisionKind.HOLD)
BACKS_OFF = int(Reason.BACKS_OFF)
BEHIND_HEAD = int(Reason.BEHIND_HEAD)
BEHIND_EQUAL = int(Reason.BEHIND_EQUAL)
DONE, MORE_ROOM = 0, 1


@entry
def report_heads(node_rows: I64, held: Reserved, entry_rows: I64, marks: I64, out: Output) -> int:
    """Write a HOLD for every head of the cycle whose reason changed; a head tried again at once reports later."""
    works, workload_rows = held.work_classes, held.workloads
    while marks[counters.ENTRIES] > 0:
        if out.written[0] >= len(out.rows):
            return MORE_ROOM
        marks[counters.ENTRIES] -= 1
        entry = entry_rows[marks[counters.ENTRIES]]
        again = (
            entry[entries.STATUS] == statuses.SKIPPED
            and node_rows[node_rows[entry[entries.QUEUE], quota_nodes.ROOT], quota_nodes.DIRTY] == 1
        )
        if entry[entries.STATUS] not in (statuses.IDLE, statuses.ADMITTED) and not again:
            report_entry(works, workload_rows, entry, out)
    return DONE


@entry
def report_pending(held: Reserved, demands: I64, classes: int, out: Output) -> int:
    """Write a HOLD for every pending workload whose reason is unreported."""
    for w in range(classes):
        if held.work_classes[w, work_classes.WAITING] > 0 and not report_class(held, demands[w], w, out):
            return MORE_ROOM
    return DONE


@kernel
def report_entry(works: I64, workload_rows: I64, entry: I64, out: Output) -> None:
    """Write why the head of a queue waits, if its reason changed."""
    j, code = entry[entries.WORKLOAD], entry[entries.CODE]
    if code == 0 or workload_rows[j, workloads.HELD_CODE] == code:
        return
    if entry[entries.AGAIN] > 0:
        workload_rows[j, workloads.HELD_CODE] = code  # it holds quota: it is not pending
    else:
        note_reported(works, workload_rows, j, code)
    row = out.rows[write(out, HOLD, j, code)]
    row[decision_columns.EVIDENCE] = entry[entries.FLAVOR_RESOURCE]
    row[decision_columns.EVIDENCE + 1] = entry[entries.MISSING]
    row[decision_columns.EVIDENCE + 2] = entry[entries.ASKED] if code in ROOM_CODES else entry[entries.QUEUE]


@kernel
def report_class(held: Reserved, demand: I64, w: int, out: Output) -> bool:
    """Write a HOLD for the unreported workloads of a class, the last first; False: out of rows."""
    work_class, workload_rows = held.work_classes[w], held.workloads
    j, ahead = work_class[work_classes.TAIL], work_class[work_classes.WAITING] - 1
    if demand[queue_requests.QUEUE] < 0 and demand[queue_requests.REFUSED] == 0:
        return True
    while j >= 0 and work_class[work_classes.UNREPORTED] > 0:
        if workload_rows[j, workloads.HELD_CODE] != 0:
            ahead -= 1
            j = workload_rows[j, workloads.PREV]
            continue
        if out.written[0] >= len(out.rows):
            return False
        code = BEHIND_HEAD if j == work_class[work_classes.HEAD] else BEHIND_EQUAL
        if held.reservations[j, quota_reservations.NOT_BEFORE_MS] > 0:
            code = BACKS_OFF
        if demand[queue_requests.REFUSED] > 0:
            code = demand[queue_requests.REFUSED]
        if held.reservations[j, quota_reservations.BLOCKED] > 0:
            code = held.reservations[j, quota_reservations.BLOCKED]
        row = out.rows[write(out, HOLD, j, code)]
        if code == BEHIND_EQUAL:
            row[decision_columns.EVIDENCE] = ahead
        note_reported(held.work_classes, workload_rows, j, code)
        ahead -= 1
        j = workload_rows[j, workloads.PREV]
    return True
