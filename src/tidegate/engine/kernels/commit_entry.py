"""Commits an entry: grants quota, evicts victims, and writes the decisions."""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, decision_columns, entries
from tidegate.engine.kernels.cycle_scratch import Heads, Preemption
from tidegate.engine.kernels.domain_assignment import hold_found
from tidegate.engine.kernels.entry_request import whole_amount
from tidegate.engine.kernels.gang_placement import NEXT_DECISION, Output, write
from tidegate.engine.kernels.node_fit import ASSUMED
from tidegate.engine.kernels.pending_queue import unlink
from tidegate.engine.kernels.quota import add_usage, move_usage
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Claims, Counter, Hot
from tidegate.state.quota_tables import QuotaTree, QuotaView, Requirements, Reserved
from tidegate.state.tables import (
    claims,
    domain_assignments,
    pod_set_needs,
    pod_sets,
    queue_requests,
    quota_nodes,
    quota_reservations,
    resource_requests,
    work_classes,
    workloads,
)
from tidegate.state.tables.quota_reservations import Again
from tidegate.state.tables.workloads import Phase

ADMIT, PREEMPT, RELEASE = int(DecisionKind.ADMIT), int(DecisionKind.PREEMPT), int(DecisionKind.RELEASE)
ASSIGN, EVICT = int(DecisionKind.ASSIGN), int(DecisionKind.EVICT)
DOMAIN_ASSIGNED, DOMAIN_REPLACED = int(Reason.DOMAIN_ASSIGNED), int(Reason.DOMAIN_REPLACED)
FAILED = int(Again.FAILED)
ADMITTED = int(Reason.ADMITTED)
ADMITTED_BORROWING = int(Reason.ADMITTED_BORROWING)
ADMITTED_PARTLY = int(Reason.ADMITTED_PARTLY)
REPLACED = int(Reason.REPLACED)
TERMINATING = int(Phase.TERMINATING)
SHIFTED, ROOM_TAKEN = int(Claims.SHIFTED), int(Claims.ROOM_TAKEN)
EXTERNAL, REPEATS, CLAIMS = int(Counter.EXTERNAL), int(Counter.REPEATS), int(Counter.CLAIMS)
NOBODY = -1


@kernel
def grant(
    hot: Hot, view: QuotaView, heads: Heads, topology: TopologyView | None, now_ms: int, e: int, out: Output
) -> None:
    """Grant entry e its assignment and write the decision, one row for each request."""
    asked, choice = view.asked, heads.choice[e]
    q, j, w = heads.entries[e, entries.QUEUE], heads.entries[e, entries.WORKLOAD], heads.entries[e, entries.CLASS]
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    asks = asked.queue_requests[w, queue_requests.ASKS]
    claim_rows = view.held.claims[j]
    code, start = admission_code(view.held, asked, heads, e), out.written[0]
    for a in range(asks):
        ordinal = asked.pod_set_needs[
            asked.resource_requests[first + a, resource_requests.POD_SET], pod_set_needs.ORDINAL
        ]
        count, fr = heads.pods[e, ordinal], choice[choices.FLAVOR_RESOURCE, a]
        amount = whole_amount(asked, heads, e, first + a) if fr != 0 else 0
        claim_rows[claims.FLAVOR_RESOURCE, a], claim_rows[claims.AMOUNT, a] = fr, amount
        if fr != 0 and count > 0:
            row = out.rows[write(out, ADMIT, j, code)]
            row[decision_columns.POD] = ordinal
            row[decision_columns.EVIDENCE] = fr - 1
            row[decision_columns.EVIDENCE + 1] = amount
            row[decision_columns.EVIDENCE + 2], row[decision_columns.EVIDENCE + 3] = count, choice[choices.LEVEL, a]
            add_usage(view.tree, q, fr - 1, amount)
    if out.written[0] == start:  # it requests nothing that is counted
        out.rows[write(out, ADMIT, j, code), decision_columns.EVIDENCE] = NOBODY
    for ordinal in range(view.held.work_classes[w, work_classes.SETS]):
        asked.counts[j, 0, ordinal] = heads.pods[e, ordinal]
    unlink(hot, j)
    enlist(view.tree, view.held, q, j, asked.queue_requests[w, queue_requests.LOCAL_QUEUE], now_ms)
    grant_assignments(view, heads, topology, e, DOMAIN_ASSIGNED, out)
    view.held.reservations[j, quota_reservations.DECISION] = (
        hot.counters[NEXT_DECISION] + start
    )  # ids are given in the order of writing
    hot.workloads[j, workloads.PHASE] = ASSUMED
    hot.workloads[j, workloads.SINCE_MS] = now_ms
    hot.workloads[j, workloads.HELD_CODE] = 0
    hot.workloads[j, workloads.STARTED_IN] = hot.counters[EXTERNAL]


@inlined
def grant_assignments(
    view: QuotaView, heads: Heads, topology: TopologyView | None, e: int, code: int, out: Output
) -> None:
    """Assign entry e the topology domains that were found for it, if there is a topology, and write them."""
    if topology is not None:
        hold_found(view, heads, topology, e)
        report_assignments(view.held, topology, heads.entries[e, entries.WORKLOAD], code, out)


@kernel
def report_assignments(held: Reserved, topology: TopologyView, j: int, code: int, out: Output) -> None:
    """Write the domain assignments of workload j, one row each."""
    first = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
    for i in range(first, first + held.reservations[j, quota_reservations.ASSIGNMENTS]):
        row, leaf = out.rows[write(out, ASSIGN, j, code)], topology.assignments[i, domain_assignments.LEAF]
        row[decision_columns.POD] = topology.assignments[i, domain_assignments.POD_SET]
        if leaf >= 0:
            row[decision_columns.NODE] = topology.hosts.rows[topology.hosts.start[leaf]]
        row[decision_columns.EVIDENCE] = topology.assignments[i, domain_assignments.COUNT]


@inlined
def grant_again(hot: Hot, view: QuotaView, heads: Heads, topology: TopologyView | None, e: int, out: Output) -> None:
    """Replace the domain assignments of entry e, which holds quota."""
    reservation = view.held.reservations[heads.entries[e, entries.WORKLOAD]]
    code = DOMAIN_REPLACED if heads.entries[e, entries.AGAIN] == FAILED else DOMAIN_ASSIGNED
    grant_assignments(view, heads, topology, e, code, out)
    reservation[quota_reservations.AGAIN], reservation[quota_reservations.HELD] = 0, NOBODY
    hot.workloads[heads.entries[e, entries.WORKLOAD], workloads.HELD_CODE] = 0


@kernel
def evict(hot: Hot, reservations: I64, entry: I64, now_ms: int, out: Output) -> None:
    """Evict the workload of an entry: it holds its quota until it is gone."""
    j, code = entry[entries.WORKLOAD], entry[entries.CODE]
    reservations[j, quota_reservations.TERMINATING], reservations[j, quota_reservations.AGAIN] = 1, 0
    write(out, EVICT, j, code)
    row = hot.workloads[j]
    row[workloads.PHASE], row[workloads.SINCE_MS], row[workloads.HELD_CODE] = TERMINATING, now_ms, code
    row[workloads.EVICTIONS] += 1
    hot.counters[CLAIMS] |= SHIFTED


@kernel
def admission_code(held: Reserved, asked: Requirements, heads: Heads, e: int) -> int:
    """The Reason of an admission: whole or partial, borrowing or not."""
    w = heads.entries[e, entries.CLASS]
    first = held.work_classes[w, work_classes.FIRST_SET]
    for s in range(first, first + held.work_classes[w, work_classes.SETS]):
        if heads.pods[e, asked.pod_set_needs[s, pod_set_needs.ORDINAL]] < asked.pod_sets[s, pod_sets.COUNT]:
            return ADMITTED_PARTLY
    return ADMITTED_BORROWING if heads.entries[e, entries.BORROW] > 0 else ADMITTED


@kernel
def enlist(tree: QuotaTree, held: Reserved, q: int, j: int, local_queue: int, granted_ms: int) -> None:
    """Add workload j to the holders of a queue's quota."""
    after, reservation = tree.quota_nodes[q, quota_nodes.FIRST_HOLDER], held.reservations[j]
    reservation[quota_reservations.QUEUE] = q
    reservation[quota_reservations.GRANTED_MS] = granted_ms
    reservation[quota_reservations.LOCAL_QUEUE] = local_queue
    reservation[quota_reservations.NEXT] = after
    reservation[quota_reservations.PREV] = NOBODY
    reservation[quota_reservations.TERMINATING] = 0
    reservation[quota_reservations.DECISION] = NOBODY
    if after >= 0:
        held.reservations[after, quota_reservations.PREV] = j
    tree.quota_nodes[q, quota_nodes.FIRST_HOLDER] = j
    tree.quota_nodes[tree.quota_nodes[q, quota_nodes.ROOT], quota_nodes.GENERATION] += 1
    if tree.quota_nodes[q, quota_nodes.STICKY] == j:
        tree.quota_nodes[q, quota_nodes.STICKY] = NOBODY


@kernel
def give_up(view: QuotaView, j: int) -> None:
    """Release the quota of workload j; what it had of the topology is free already."""
    tree, held = view.tree, view.held
    reservation = held.reservations[j]
    q = reservation[quota_reservations.QUEUE]
    if q < 0:
        return
    move_usage(tree, held, j, 1)
    before, after = reservation[quota_reservations.PREV], reservation[quota_reservations.NEXT]
    if before >= 0:
        held.reservations[before, quota_reservations.NEXT] = after
    else:
        tree.quota_nodes[q, quota_nodes.FIRST_HOLDER] = after
    if after >= 0:
        held.reservations[after, quota_reservations.PREV] = before
    held.claims[j, :, :] = 0
    view.asked.counts[j, 0, :] = 0
    view.asked.counts[j, 2, :] = 0
    reservation[quota_reservations.QUEUE] = NOBODY
    reservation[quota_reservations.NEXT] = NOBODY
    reservation[quota_reservations.PREV] = NOBODY
    reservation[quota_reservations.TERMINATING] = 0
    reservation[quota_reservations.FIRST_ASSIGNMENT] = 0
    reservation[quota_reservations.ASSIGNMENTS] = 0
    reservation[quota_reservations.AGAIN] = 0
    tree.quota_nodes[tree.quota_nodes[q, quota_nodes.ROOT], quota_nodes.GENERATION] += 1


@entry
def give_up_all(view: QuotaView, rows: I64) -> None:
    """Release the quota of workloads; what is pending in their trees may be tried again."""
    node_rows = view.tree.quota_nodes
    for i in range(len(rows)):
        j = rows[i]
        q = view.held.reservations[j, quota_reservations.QUEUE]
        if q >= 0:
            if view.held.reservations[j, quota_reservations.ASSIGNMENTS] > 0:
                mark_all_dirty(node_rows)
            give_up(view, j)
            node_rows[node_rows[q, quota_nodes.ROOT], quota_nodes.EPOCH] += 1
            node_rows[node_rows[q, quota_nodes.ROOT], quota_nodes.DIRTY] = 1
        q = view.asked.queue_requests[view.held.workloads[j, workloads.WORK_CLASS], queue_requests.QUEUE]
        if q >= 0 and node_rows[q, quota_nodes.STICKY] == j:
            node_rows[q, quota_nodes.STICKY] = NOBODY


@inlined
def mark_all_dirty(node_rows: I64) -> None:
    """Mark all trees dirty because domain assignments are free: pending workloads of every tree may be tried again."""
    for b in range(len(node_rows)):
        if node_rows[b, quota_nodes.PARENT] < 0:
            node_rows[b, quota_nodes.EPOCH] += 1
            node_rows[b, quota_nodes.DIRTY] = 1


@kernel
def evict_victims(hot: Hot, reservations: I64, preemption: Preemption, entry: I64, now_ms: int, out: Output) -> int:
    """Evict the victims of an entry; those evicted before are waited for. Return how many were evicted."""
    told, cause = 0, hot.workloads[entry[entries.WORKLOAD], workloads.NUMBER]
    for i in range(entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]):
        victim, code = preemption.targets[i, 0], preemption.targets[i, 1]
        if reservations[victim, quota_reservations.TERMINATING] == 1:
            continue
        told += 1
        reservations[victim, quota_reservations.TERMINATING] = 1
        out.rows[write(out, PREEMPT, victim, code), decision_columns.CAUSE] = cause
        row = hot.workloads[victim]
        row[workloads.PHASE], row[workloads.SINCE_MS], row[workloads.HELD_CODE] = TERMINATING, now_ms, code
        row[workloads.EVICTIONS] += 1
        if row[workloads.PREEMPTED_IN] == hot.counters[EXTERNAL]:
            hot.counters[REPEATS] += 1
        row[workloads.PREEMPTED_IN] = hot.counters[EXTERNAL]
    return told


@kernel
def release_replaced(hot: Hot, held: Reserved, entry: I64, now_ms: int, out: Output) -> None:
    """End the slice that an admitted entry replaces. It does not run again after that."""
    replaced = entry[entries.REPLACES] - 1
    row, workload = out.rows[write(out, RELEASE, replaced, REPLACED)], hot.workloads[replaced]
    row[decision_columns.POD] = NOBODY
    row[decision_columns.CAUSE] = hot.workloads[entry[entries.WORKLOAD], workloads.NUMBER]
    workload[workloads.ENDING] = 1
    if held.reservations[replaced, quota_reservations.TERMINATING] == 0:
        held.reservations[replaced, quota_reservations.TERMINATING] = 1
        hot.counters[CLAIMS] |= SHIFTED
        workload[workloads.PHASE] = TERMINATING
        workload[workloads.SINCE_MS] = now_ms
        workload[workloads.HELD_CODE] = REPLACED
