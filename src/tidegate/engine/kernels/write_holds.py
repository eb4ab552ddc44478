"""What those who wait in queues are told: the head its own reason, the others who goes before them.

Must not know: how anything was decided.
"""

from __future__ import annotations

from tidegate.engine.kernels.cycle_scratch import (
    ADMITTED,
    ENTRIES,
    IDLE,
    SKIPPED,
    X_AGAIN,
    X_ASKED,
    X_CODE,
    X_LOT,
    X_MISSING,
    X_QUEUE,
    X_STATUS,
    X_WORKLOAD,
)
from tidegate.engine.kernels.gang_placement import O_EVIDENCE, Output, write
from tidegate.engine.kernels.pending_queue import note_told
from tidegate.jit.registry import entry, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import ROOM_CODES, Reason
from tidegate.state.quota_tables import B_ROOT, B_STIRRED, D_BRANCH, D_REFUSED, T_BLOCKED, T_NOT_BEFORE, Held
from tidegate.state.tables import J_HELD_CODE, J_PREV, W_HEAD, W_TAIL, W_UNTOLD, W_WAITING

HOLD = int(DecisionKind.HOLD)
BACKS_OFF = int(Reason.BACKS_OFF)
BEHIND_HEAD = int(Reason.BEHIND_HEAD)
BEHIND_EQUAL = int(Reason.BEHIND_EQUAL)
DONE, MORE_ROOM = 0, 1


@entry
def tell_heads(branches: I64, held: Held, entries: I64, marks: I64, out: Output) -> int:
    """Write a HOLD for every head of the cycle whose reason is news; who is tried again at once is told later."""
    works, workloads = held.work_classes, held.workloads
    while marks[ENTRIES] > 0:
        if out.written[0] >= len(out.rows):
            return MORE_ROOM
        marks[ENTRIES] -= 1
        entry = entries[marks[ENTRIES]]
        again = entry[X_STATUS] == SKIPPED and branches[branches[entry[X_QUEUE], B_ROOT], B_STIRRED] == 1
        if entry[X_STATUS] not in (IDLE, ADMITTED) and not again:
            tell_entry(works, workloads, entry, out)
    return DONE


@entry
def tell_waiting(held: Held, demands: I64, classes: int, out: Output) -> int:
    """Write a HOLD for whoever waits and has not been told why."""
    for w in range(classes):
        if held.work_classes[w, W_WAITING] > 0 and not tell_class(held, demands[w], w, out):
            return MORE_ROOM
    return DONE


@kernel
def tell_entry(works: I64, workloads: I64, entry: I64, out: Output) -> None:
    """Write why the head of a queue waits, if that is news."""
    j, code = entry[X_WORKLOAD], entry[X_CODE]
    if code == 0 or workloads[j, J_HELD_CODE] == code:
        return
    if entry[X_AGAIN] > 0:
        workloads[j, J_HELD_CODE] = code  # it holds quota: it is not among those who wait
    else:
        note_told(works, workloads, j, code)
    row = out.rows[write(out, HOLD, j, code)]
    row[O_EVIDENCE], row[O_EVIDENCE + 1] = entry[X_LOT], entry[X_MISSING]
    row[O_EVIDENCE + 2] = entry[X_ASKED] if code in ROOM_CODES else entry[X_QUEUE]


@kernel
def tell_class(held: Held, demand: I64, w: int, out: Output) -> bool:
    """Write a HOLD for the workloads of a class that have not been told, the last first; False: out of room."""
    work_class, workloads = held.work_classes[w], held.workloads
    j, ahead = work_class[W_TAIL], work_class[W_WAITING] - 1
    if demand[D_BRANCH] < 0 and demand[D_REFUSED] == 0:
        return True
    while j >= 0 and work_class[W_UNTOLD] > 0:
        if workloads[j, J_HELD_CODE] != 0:
            ahead -= 1
            j = workloads[j, J_PREV]
            continue
        if out.written[0] >= len(out.rows):
            return False
        code = BEHIND_HEAD if j == work_class[W_HEAD] else BEHIND_EQUAL
        if held.tickets[j, T_NOT_BEFORE] > 0:
            code = BACKS_OFF
        if demand[D_REFUSED] > 0:
            code = demand[D_REFUSED]
        if held.tickets[j, T_BLOCKED] > 0:
            code = held.tickets[j, T_BLOCKED]
        row = out.rows[write(out, HOLD, j, code)]
        if code == BEHIND_EQUAL:
            row[O_EVIDENCE] = ahead
        note_told(held.work_classes, workloads, j, code)
        ahead -= 1
        j = workloads[j, J_PREV]
    return True
