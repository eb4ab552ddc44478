"""Nomination of the head of a queue: flavors, victims, fewer pods if it may; a trial that changes nothing."""

from __future__ import annotations

from tidegate.engine.kernels.classic_victims import find_targets
from tidegate.engine.kernels.columns import choices, counters, entries, flavor_tries, modes
from tidegate.engine.kernels.cycle_scratch import CycleParams, CycleScratch, Heads, Requests, request
from tidegate.engine.kernels.domain_assignment import (
    ask_topology,
    forget_found,
    keep_found,
    search_as_if_empty,
    search_assignments,
)
from tidegate.engine.kernels.domain_fit import weigh_topology
from tidegate.engine.kernels.entry_request import amount_of
from tidegate.engine.kernels.flavor_assignment import assign
from tidegate.engine.topology.cycle_view import TopologyView, move_domains
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.quota_tables import QuotaTree, QuotaView, Requirements, Reserved
from tidegate.state.tables import (
    pod_set_needs,
    pod_sets,
    queue_requests,
    quota_nodes,
    quota_reservations,
    work_classes,
    workloads,
)
from tidegate.state.tables.quota_reservations import Again

CHECK_FAILED, OUTSIDE_LIMITS = int(Reason.CHECK_FAILED), int(Reason.OUTSIDE_LIMITS)
NOBODY = -1
FAILED = int(Again.FAILED)


@kernel
def head_of(tree: QuotaTree, held: Reserved, demands: I64, now_ms: int, q: int) -> int:
    """The workload of a queue that is tried next; NOBODY: none."""
    if tree.quota_nodes[q, quota_nodes.CLOSED] == 1:
        return NOBODY
    epoch = tree.quota_nodes[tree.quota_nodes[q, quota_nodes.ROOT], quota_nodes.EPOCH]
    strict = tree.quota_nodes[q, quota_nodes.STRICT]
    best = NOBODY
    w = tree.quota_nodes[q, quota_nodes.FIRST_CLASS]
    while w >= 0:
        if demands[w, queue_requests.REFUSED] == 0 and demands[w, queue_requests.HELD] != epoch:
            j = held.work_classes[w, work_classes.HEAD]
            while j >= 0 and not (
                held.workloads[j, workloads.RESERVES] == 0 and may_be_tried(held.reservations[j], strict, now_ms, epoch)
            ):
                j = held.workloads[j, workloads.NEXT]
            if j >= 0 and (best < 0 or goes_first(tree, held, demands, q, j, best)):
                best = j
        w = demands[w, queue_requests.NEXT_CLASS]
    sticky = tree.quota_nodes[q, quota_nodes.STICKY]
    if (
        sticky >= 0
        and tree.quota_nodes[q, quota_nodes.USAGE_BASED] == 0
        and held.workloads[sticky, workloads.RESERVES] == 0
    ):
        is_held = demands[held.workloads[sticky, workloads.WORK_CLASS], queue_requests.HELD] == epoch
        if not is_held and may_be_tried(held.reservations[sticky], strict, now_ms, epoch):
            best = sticky
    return int(best)


@inlined
def may_be_tried(reservation: I64, strict: int, now_ms: int, epoch: int) -> bool:
    """Whether a pending workload may be tried now.

    In a strict queue a workload that the queue refuses keeps its position, and those behind it wait.
    """
    if reservation[quota_reservations.BLOCKED] != 0 and (
        strict == 0 or reservation[quota_reservations.BLOCKED] not in (CHECK_FAILED, OUTSIDE_LIMITS)
    ):
        return False
    return bool(
        reservation[quota_reservations.HELD] != epoch and reservation[quota_reservations.NOT_BEFORE_MS] <= now_ms
    )


@inlined
def goes_first(tree: QuotaTree, held: Reserved, demands: I64, q: int, a: int, b: int) -> bool:
    """Whether workload a of a queue goes before workload b."""
    v, w = held.workloads[a, workloads.WORK_CLASS], held.workloads[b, workloads.WORK_CLASS]
    if tree.quota_nodes[q, quota_nodes.USAGE_BASED] == 1:
        used_a = held.used[demands[v, queue_requests.LOCAL_QUEUE], 0]
        used_b = held.used[demands[w, queue_requests.LOCAL_QUEUE], 0]
        if used_a != used_b:
            return bool(used_a < used_b)
        sticky = tree.quota_nodes[q, quota_nodes.STICKY]
        if sticky in (a, b):
            return bool(a == sticky)
    if held.work_classes[v, work_classes.PRIORITY] != held.work_classes[w, work_classes.PRIORITY]:
        return bool(held.work_classes[v, work_classes.PRIORITY] > held.work_classes[w, work_classes.PRIORITY])
    if held.workloads[a, workloads.SUBMITTED_MS] != held.workloads[b, workloads.SUBMITTED_MS]:
        return bool(held.workloads[a, workloads.SUBMITTED_MS] < held.workloads[b, workloads.SUBMITTED_MS])
    return bool(held.workloads[a, workloads.TIE] < held.workloads[b, workloads.TIE])


@kernel
def open_entry(view: QuotaView, heads: Heads, cycle: int, e: int, q: int, j: int) -> None:
    """Make an entry of a head, or of a holder of quota, with the flavors it continues with unless that is outdated."""
    held, entry = view.held, heads.entries[e]
    entry[:] = 0
    w = held.workloads[j, workloads.WORK_CLASS]
    entry[entries.QUEUE] = q
    entry[entries.WORKLOAD] = j
    entry[entries.CLASS] = w
    entry[entries.AGAIN] = held.reservations[j, quota_reservations.AGAIN]
    entry[entries.PRIORITY] = held.work_classes[w, work_classes.PRIORITY]
    entry[entries.SUBMITTED] = held.workloads[j, workloads.SUBMITTED_MS]
    entry[entries.TIE] = held.workloads[j, workloads.TIE]
    replaced = held.reservations[j, quota_reservations.REPLACES]
    if (
        replaced >= 0
        and held.reservations[replaced, quota_reservations.QUEUE] == q
        and held.workloads[replaced, workloads.ENDING] == 0
    ):
        entry[entries.REPLACES] = replaced + 1
    reservation, root = held.reservations[j], view.tree.quota_nodes[q, quota_nodes.ROOT]
    outdated = reservation[quota_reservations.TRIED_GENERATION] < view.tree.quota_nodes[root, quota_nodes.GENERATION]
    if cycle - reservation[quota_reservations.TRIED_CYCLE] <= 1:
        outdated = False
    for slot in range(view.asked.tried.shape[1]):
        heads.tries[e, flavor_tries.RESUME, slot] = 0 if outdated else view.asked.tried[j, slot]
        heads.tries[e, flavor_tries.TRIED, slot] = 0  # of the entry that was in this row before


@kernel
def nominate(view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int) -> None:
    """Find an assignment for entry e: all its pods if they fit, with preemption if necessary, or as many as it may."""
    entry = d.heads.entries[e]
    entry[entries.FIRST_TARGET], entry[entries.TARGETS] = d.requests.marks[counters.TARGETS], 0
    if view.held.reservations[entry[entries.WORKLOAD], quota_reservations.BLOCKED] != 0:
        entry[entries.MODE] = modes.NO_FIT
        entry[entries.CODE] = view.held.reservations[entry[entries.WORKLOAD], quota_reservations.BLOCKED]
        return
    find_assignment(view, d, topology, params, e)
    if entry[entries.MODE] == modes.PREEMPT:
        reserve_assignments(view, d, topology, e)


@kernel
def find_assignment(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int
) -> None:
    """Find an assignment for entry e, without the domains of one that must preempt."""
    entry, asked = d.heads.entries[e], view.asked
    if entry[entries.AGAIN] > 0:
        keep_counts(view, d.heads, e)
        try_counts(view, d, topology, params, e)
        return
    scale(view.held, asked, d.heads, e, 0, 0)
    if (
        try_counts(view, d, topology, params, e)
        or asked.queue_requests[entry[entries.CLASS], queue_requests.PARTIAL] == 0
    ):
        return
    spare = spare_pods(view.held, asked, entry[entries.CLASS])
    low, high, good = 0, spare + 1, -1
    while low < high:
        middle = (low + high) // 2
        scale(view.held, asked, d.heads, e, middle, spare)
        if try_counts(view, d, topology, params, e):
            high = good = middle
        else:
            low = middle + 1
    scale(view.held, asked, d.heads, e, max(good, 0), spare if good >= 0 else 0)
    try_counts(view, d, topology, params, e)


@inlined
def reserve_assignments(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> None:
    """Find the domains of an entry without its targets, or as if nothing of ours ran: its claim to them."""
    if topology is not None:
        if d.heads.entries[e, entries.AGAIN] != FAILED:
            find_claim(view, d, topology, e)


@kernel
def find_claim(view: QuotaView, d: CycleScratch, topology: TopologyView, e: int) -> None:
    """Find the domains of an entry that must preempt, for the rest of the cycle."""
    entry, targets = d.heads.entries[e], d.preemption.targets
    first, end = entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]
    forget_found(entry)
    if not ask_topology(view, d.heads, topology, e):
        return
    for i in range(first, end):
        move_domains(topology, view.held, targets[i, 0], 1)
    if (search_as_if_empty(topology) if first == end else search_assignments(topology, 0)) == 0:
        keep_found(view, d.heads, topology, e)
    for i in range(first, end):
        move_domains(topology, view.held, targets[i, 0], -1)


@inlined
def keep_counts(view: QuotaView, heads: Heads, e: int) -> None:
    """Set the pod counts of an entry that holds quota: those it was granted, less what is done."""
    j, counts = heads.entries[e, entries.WORKLOAD], view.asked.counts
    w = heads.entries[e, entries.CLASS]
    first = view.held.work_classes[w, work_classes.FIRST_SET]
    for ordinal in range(view.held.work_classes[w, work_classes.SETS]):
        left = max(0, view.asked.pod_sets[first + ordinal, pod_sets.COUNT] - counts[j, 1, ordinal])
        heads.pods[e, ordinal] = min(counts[j, 0, ordinal], left)


@inlined
def spare_pods(held: Reserved, asked: Requirements, w: int) -> int:
    """Pods that a partial admission may leave out."""
    spare, first = 0, held.work_classes[w, work_classes.FIRST_SET]
    for s in range(first, first + held.work_classes[w, work_classes.SETS]):
        spare += asked.pod_sets[s, pod_sets.COUNT] - asked.pod_set_needs[s, pod_set_needs.LEAST]
    return spare


@kernel
def scale(held: Reserved, asked: Requirements, heads: Heads, e: int, part: int, spare: int) -> None:
    """Set the pod counts: all that still need quota, or all less this part of what may be left out."""
    j, w = heads.entries[e, entries.WORKLOAD], heads.entries[e, entries.CLASS]
    first = held.work_classes[w, work_classes.FIRST_SET]
    for s in range(first, first + held.work_classes[w, work_classes.SETS]):
        ordinal, count = asked.pod_set_needs[s, pod_set_needs.ORDINAL], asked.pod_sets[s, pod_sets.COUNT]
        if spare > 0:
            heads.pods[e, ordinal] = count - (count - asked.pod_set_needs[s, pod_set_needs.LEAST]) * part // spare
        else:
            heads.pods[e, ordinal] = max(0, count - asked.counts[j, 1, ordinal])


@kernel
def try_counts(view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int) -> bool:
    """Assign flavors for the counts of the entry, and find victims if that takes preemption."""
    entry = d.heads.entries[e]
    d.requests.marks[counters.TARGETS], entry[entries.TARGETS] = entry[entries.FIRST_TARGET], 0
    assign(view, d, params, e)
    weigh_topology(view, d, topology, e)
    mode = entry[entries.MODE]
    if mode == modes.FIT:
        return True
    if mode != modes.PREEMPT:
        return False
    request_assigned(view, d.heads, d.requests, e)
    q, j = entry[entries.QUEUE], entry[entries.WORKLOAD]
    if params.places == 1:  # places are found when the entry is committed: here possible quota is enough
        entry[entries.TARGETS] = find_targets(view, d, None, params.fair, q, j)
    else:
        entry[entries.TARGETS] = find_targets(view, d, topology, params.fair, q, j)
    return bool(entry[entries.TARGETS] > 0)


@kernel
def request_assigned(view: QuotaView, heads: Heads, requests: Requests, e: int) -> None:
    """Request everything that entry e was assigned."""
    requests.marks[counters.REQUESTED] = 0
    w, choice = heads.entries[e, entries.CLASS], heads.choice[e]
    first = view.asked.queue_requests[w, queue_requests.FIRST_ASK]
    for a in range(view.asked.queue_requests[w, queue_requests.ASKS]):
        if choice[choices.FLAVOR_RESOURCE, a] != 0:
            need = 1 if choice[choices.MODE, a] == modes.PREEMPT else 0
            request(requests, choice[choices.FLAVOR_RESOURCE, a] - 1, amount_of(view, heads, e, first + a), need)


@kernel
def nominate_again(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int
) -> None:
    """Nominate entry e again, bound to the flavors of its first nomination."""
    choice = d.heads.choice[e]
    for a in range(choice.shape[1]):
        choice[choices.NOMINATED, a] = choice[choices.FLAVOR_RESOURCE, a]
    nominate_bound(view, d, topology, params, e)


@kernel
def nominate_bound(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int
) -> None:
    """Nominate entry e again, bound to the flavors that are noted as those of a first nomination."""
    for slot in range(d.heads.tries.shape[2]):
        d.heads.tries[e, flavor_tries.RESUME, slot] = 0
    d.heads.entries[e, entries.RESTRICTED] = 1
    nominate(view, d, topology, params, e)
    d.heads.entries[e, entries.RESTRICTED] = 0
