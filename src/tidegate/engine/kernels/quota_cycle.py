"""One cycle over the queues with quota: one head of each, nominated together, committed one by one.

What an entry takes is taken from the tree at once, so that the next one sees it. What is only reserved for the rest of
the cycle is noted and taken back at its end. The steps are those of Kueue, so that its decisions follow.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, counters, entries, flavor_tries, modes, statuses, workload_flags
from tidegate.engine.kernels.commit_entry import CLAIMS, ROOM_TAKEN, SHIFTED, evict, evict_victims, grant_again
from tidegate.engine.kernels.commit_places import (
    ENOUGH,
    EXTERNAL_EPOCH,
    NO_ASSIGNMENTS,
    NO_QUOTA,
    admit,
    lack_beside_promised,
    refuse_quota,
    settle_with_places,
    tries_on,
)
from tidegate.engine.kernels.cycle_quota import mark_preempted, move_replaced, take_for_now
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleParams, CycleScratch, Heads, Preemption
from tidegate.engine.kernels.domain_assignment import found_fits, give_back_found, open_assignments
from tidegate.engine.kernels.entry_order import competes_before, sort_entries
from tidegate.engine.kernels.eviction_plan import PREEMPTED_FOR
from tidegate.engine.kernels.nominate import head_of, nominate, nominate_again, open_entry, request_assigned
from tidegate.engine.kernels.quota import move_usage, remove_usage
from tidegate.engine.kernels.starvation import note_passed_over
from tidegate.engine.kernels.tournament import pick_fairly
from tidegate.engine.kernels.victim_set import has_quota, move_held
from tidegate.engine.kernels.withhold_places import (
    PASSED_OVER,
    RESERVED,
    begin_reservations,
    drop_reservation,
    end_reservations,
    take_again,
)
from tidegate.engine.topology.cycle_view import TopologyView, move_domains
from tidegate.jit.registry import entry, inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Hot
from tidegate.state.quota_tables import QuotaTree, QuotaView
from tidegate.state.tables import claims, queue_requests, quota_nodes, quota_reservations, reserved_places, workloads
from tidegate.state.tables.quota_reservations import Again

AWAITS_VICTIMS = int(Reason.AWAITS_VICTIMS)
OUTPACED = int(Reason.OUTPACED)
SHARED_VICTIMS = int(Reason.SHARED_VICTIMS)
GATED = int(Reason.PREEMPTION_GATED)
TOPOLOGY_OUTPACED = int(Reason.TOPOLOGY_OUTPACED)
NO_REPLACEMENT_DOMAIN = int(Reason.NO_REPLACEMENT_DOMAIN)
FAILED = int(Again.FAILED)
DONE, MORE_ROOM = 0, 1
NOBODY = -1


@entry
def cycle_queues(c: Cycle, topology: TopologyView | None, params: CycleParams) -> int:
    """Run one cycle; MORE_ROOM: nothing was changed, and it needs rows for more targets."""
    hot, view, d = c.hot, c.quota, c.scratch
    marks, node_rows, entry_rows = d.requests.marks, view.tree.quota_nodes, d.heads.entries
    marks[counters.TARGETS] = 0
    marks[counters.OVERFLOW] = 0
    marks[counters.VICTIMS] = 0
    marks[counters.UNDONE] = 0
    marks[counters.CLAIMED] = 0
    count = nominate_heads(c, topology, params)
    if marks[counters.OVERFLOW] == 1 or (
        params.places == 1 and marks[counters.TARGETS] + len(d.preemption.flags) > len(d.preemption.targets)
    ):
        return MORE_ROOM
    begin_reservations(hot)
    for b in range(len(node_rows)):
        node_rows[b, quota_nodes.DIRTY] = 0
    if params.fair == 0:
        put_behind_reserved(hot, entry_rows, count)
        sort_entries(entry_rows, count)
    nominated = marks[counters.TARGETS]
    for i in range(count):
        e = entry_rows[i, entries.ORDER] if params.fair == 0 else pick_fairly(view, d, count)
        marks[counters.TARGETS] = nominated  # targets found again are of use only until the entry is committed
        settle_entry(c, topology, params, e)
    take_back(view.tree, d, topology)
    end_reservations(hot)
    for e in range(count):
        if entry_rows[e, entries.STATUS] == statuses.ADMITTED and entry_rows[e, entries.REPLACES] > 0:
            move_replaced(view, d.preemption, entry_rows[e], 0)
        if entry_rows[e, entries.STATUS] == statuses.ADMITTED and entry_rows[e, entries.AGAIN] > 0:
            grant_again(hot, view, d.heads, topology, e, c.out)
        requeue(c, params, e)
    mark_outpaced_dirty(node_rows, entry_rows, count, marks[counters.CLAIMED])
    return DONE


@kernel
def put_behind_reserved(hot: Hot, entry_rows: I64, count: int) -> None:
    """Let no entry pass one that is ahead in its queue, and has a reservation, because it borrows less.

    What is reserved goes to no entry that borrows as high and has as much priority, even if it waits for longer.
    """
    for r in range(count if hot.counters[RESERVED] > 0 else 0):
        if hot.workloads[entry_rows[r, entries.WORKLOAD], workloads.RESERVES] != PASSED_OVER:
            continue
        entry_rows[r, entries.OVERDUE] = 1
        for e in range(count):
            if entry_rows[e, entries.QUEUE] == entry_rows[r, entries.QUEUE] and competes_before(entry_rows, r, e):
                entry_rows[e, entries.BEHIND] = max(entry_rows[e, entries.BEHIND], entry_rows[r, entries.BORROW])


@inlined
def mark_outpaced_dirty(node_rows: I64, entry_rows: I64, count: int, claimed: int) -> None:
    """Mark dirty the trees of entries that lost to others of this cycle: nodes are shared by all trees."""
    for e in range(count):
        claimed += int(entry_rows[e, entries.STATUS] == statuses.ADMITTED)
    for e in range(count if claimed > 0 else 0):
        if entry_rows[e, entries.STATUS] == statuses.SKIPPED:
            node_rows[node_rows[entry_rows[e, entries.QUEUE], quota_nodes.ROOT], quota_nodes.DIRTY] = 1


@kernel
def nominate_heads(c: Cycle, topology: TopologyView | None, params: CycleParams) -> int:
    """Nominate the head of every queue whose tree is dirty; return how many."""
    view, d = c.quota, c.scratch
    node_rows, count = view.tree.quota_nodes, nominate_those_again(view, d, topology, params)
    count = nominate_those_with_reservation(c, topology, params, count)
    for q in range(len(node_rows)):
        if node_rows[q, quota_nodes.IS_QUEUE] == 0 or node_rows[node_rows[q, quota_nodes.ROOT], quota_nodes.DIRTY] == 0:
            continue
        j = head_of(view.tree, view.held, view.asked.queue_requests, params.now_ms, q)
        if j < 0:
            continue
        if node_rows[q, quota_nodes.STRICT] == 1 and has_entry(d.heads.entries, count, q):
            continue  # a head with reserved places: no other passes it
        nominate_one(view, d, topology, params, count, q, j)
        count += 1
    d.requests.marks[counters.ENTRIES] = count
    return count


@inlined
def has_entry(entry_rows: I64, count: int, q: int) -> bool:
    """Whether one of the first entries is of a queue, and holds no quota yet."""
    for e in range(count):
        if entry_rows[e, entries.QUEUE] == q and entry_rows[e, entries.AGAIN] == 0:
            return True
    return False


@inlined
def nominate_those_with_reservation(c: Cycle, topology: TopologyView | None, params: CycleParams, count: int) -> int:
    """Nominate workloads with reserved places, in whatever tree they are pending; return how many entries there are."""
    hot, view = c.hot, c.quota
    before = NOBODY
    for i in range(hot.counters[RESERVED] if params.places == 1 else 0):
        j = hot.reserved[i, reserved_places.WORKLOAD]
        q = view.asked.queue_requests[hot.workloads[j, workloads.WORK_CLASS], queue_requests.QUEUE]
        if j != before and q >= 0:
            nominate_one(view, c.scratch, topology, params, count, q, j)
            count += 1
        before = j
    return count


@inlined
def nominate_those_again(view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams) -> int:
    """Nominate the holders of quota whose assignment is searched again; return how many."""
    count = 0
    if topology is not None:
        for i in range(len(topology.again)):
            j = topology.again[i]
            nominate_one(view, d, topology, params, count, view.held.reservations[j, quota_reservations.QUEUE], j)
            count += 1
    return count


@kernel
def nominate_one(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int, q: int, j: int
) -> None:
    """Nominate workload j of a queue as entry e."""
    entry = d.heads.entries[e]
    open_entry(view, d.heads, params.cycle, e, q, j)
    if view.held.workloads[j, workloads.RESERVES] == PREEMPTED_FOR:
        entry[entries.AWAITED] = 1  # room goes to the workload it was made for
        restrict_to_reserved(view, d.heads, e)
    open_assignments(topology, view.held, entry)
    nominate(view, d, topology, params, e)
    d.requests.marks[counters.TARGETS] = entry[entries.FIRST_TARGET] + entry[entries.TARGETS]


@inlined
def restrict_to_reserved(view: QuotaView, heads: Heads, e: int) -> None:
    """Restrict entry e to the flavors that its places are reserved in."""
    entry = heads.entries[e]
    for a in range(view.asked.queue_requests[entry[entries.CLASS], queue_requests.ASKS]):
        fr = view.held.claims[entry[entries.WORKLOAD], claims.RESERVED_FLAVOR_RESOURCE, a]
        heads.choice[e, choices.NOMINATED, a] = fr
        if fr != 0:
            entry[entries.RESTRICTED] = 1


@kernel
def take_back(tree: QuotaTree, d: CycleScratch, topology: TopologyView | None) -> None:
    """Take back what was only reserved for the cycle, and forget its victims."""
    for i in range(d.requests.marks[counters.UNDONE]):
        remove_usage(tree, d.undo[i, 0], d.undo[i, 1], d.undo[i, 2])
    for e in range(d.requests.marks[counters.ENTRIES]):
        give_back_found(topology, d.heads.entries[e])
    for i in range(d.requests.marks[counters.VICTIMS]):
        d.preemption.flags[d.preemption.flags[i, workload_flags.VICTIM], workload_flags.PREEMPTED] = 0


@kernel
def settle_entry(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> None:
    """Commit an entry: admit it, evict its victims, or say why not."""
    hot, view, d, out = c.hot, c.quota, c.scratch, c.out
    lack = look_again(hot, view, d, topology, params, e)
    entry = d.heads.entries[e]
    mode = entry[entries.MODE]
    if entry[entries.AGAIN] == FAILED and params.fails_fast == 1 and mode != modes.FIT:
        entry[entries.STATUS], entry[entries.CODE] = statuses.EVICTED, NO_REPLACEMENT_DOMAIN
        evict(hot, view.held.reservations, entry, params.now_ms, out)
    elif mode in (modes.NO_FIT, modes.WAIT):
        entry[entries.STATUS] = statuses.REFUSED
        if hot.workloads[entry[entries.WORKLOAD], workloads.RESERVES] == PREEMPTED_FOR:
            drop_reservation(hot, entry[entries.WORKLOAD])
        if mode == modes.WAIT:
            refuse_quota(c, topology, params, e)
    elif mode == modes.PREEMPT and entry[entries.TARGETS] == 0 and (params.places == 0 or entry[entries.AGAIN] > 0):
        entry[entries.STATUS] = statuses.REFUSED
        refuse_quota(c, topology, params, e)
    elif mode == modes.PREEMPT and view.held.reservations[entry[entries.WORKLOAD], quota_reservations.GATED] == 1:
        entry[entries.STATUS], entry[entries.CODE] = statuses.BLOCKED, GATED
    elif params.places == 1 and entry[entries.AGAIN] == 0 and mode != modes.DEFERRED:
        settle_with_places(c, topology, params, e, lack)
        take_again(hot)
    elif mode == modes.DEFERRED:
        entry[entries.STATUS], entry[entries.CODE] = statuses.AWAITING, AWAITS_VICTIMS
        take_for_now(view, d, topology, e)
    elif shares_victims(entry, d.preemption):
        entry[entries.STATUS], entry[entries.CODE] = statuses.SKIPPED, SHARED_VICTIMS
    elif lack != ENOUGH:
        entry[entries.STATUS] = statuses.SKIPPED
        entry[entries.CODE] = OUTPACED if lack == NO_QUOTA else TOPOLOGY_OUTPACED
    elif mode == modes.PREEMPT:
        entry[entries.STATUS], entry[entries.CODE] = statuses.PREEMPTING, AWAITS_VICTIMS
        mark_preempted(entry, d.preemption, d.requests.marks)
        take_for_now(view, d, topology, e)
        entry[entries.PENDING] = evict_victims(hot, view.held.reservations, d.preemption, entry, params.now_ms, out)
    elif entry[entries.AGAIN] > 0:
        entry[entries.STATUS] = statuses.ADMITTED
        take_for_now(view, d, topology, e)  # what it leaves is not free before the cycle is over
    else:
        admit(c, topology, params, e)


@kernel
def look_again(
    hot: Hot, view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int
) -> int:
    """What an entry lacks after those before it; nominated again if they took its victims or its domains."""
    entry, flags = d.heads.entries[e], d.preemption.flags
    if entry[entries.MODE] == modes.NO_FIT:
        return NO_QUOTA
    if params.places == 1 and entry[entries.AGAIN] == 0:
        return lack_beside_promised(hot, view, d, topology, e)
    overlaps = params.retargets == 1 and shares_victims(entry, d.preemption)
    lack = ENOUGH if overlaps else lack_now(view, d, topology, e)
    if not overlaps and (lack != NO_ASSIGNMENTS or params.recomputes == 0):
        return lack
    for sign in (1, -1):
        for i in range(d.requests.marks[counters.VICTIMS] if overlaps else 0):
            victim = flags[i, workload_flags.VICTIM]
            move_held(view.tree, view.held, topology, victim, sign)
            flags[victim, workload_flags.REMOVED] = int(sign > 0)
        if sign > 0:
            nominate_again(view, d, topology, params, e)
    if overlaps and entry[entries.MODE] == modes.FIT:
        entry[entries.MODE] = modes.DEFERRED
    return lack_now(view, d, topology, e)


@inlined
def shares_victims(entry: I64, preemption: Preemption) -> bool:
    """Whether an entry has a target that was evicted for an earlier entry."""
    for i in range(entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]):
        if preemption.flags[preemption.targets[i, 0], workload_flags.PREEMPTED] == 1:
            return True
    return False


@kernel
def lack_now(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> int:
    """What an entry lacks of its assignment, once all victims of the cycle and its own are gone."""
    entry, lack = d.heads.entries[e], ENOUGH
    move_victims(view, d, topology, e, 1)
    request_assigned(view, d.heads, d.requests, e)
    if entry[entries.AGAIN] == 0 and not has_quota(view.tree, d.requests, entry[entries.QUEUE], 1):
        lack = NO_QUOTA
    elif not found_fits(topology, entry):
        lack = NO_ASSIGNMENTS
    move_victims(view, d, topology, e, -1)
    return lack


@kernel
def move_victims(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int, sign: int) -> None:
    """Take the victims of the cycle in an entry's tree, and its own targets, out of the tree; or put them back."""
    tree, held, entry, preemption = view.tree, view.held, d.heads.entries[e], d.preemption
    root, first = tree.quota_nodes[entry[entries.QUEUE], quota_nodes.ROOT], entry[entries.FIRST_TARGET]
    victims = d.requests.marks[counters.VICTIMS]
    for i in range(victims + entry[entries.TARGETS]):
        j = preemption.flags[i, workload_flags.VICTIM] if i < victims else preemption.targets[first + i - victims, 0]
        if i >= victims and preemption.flags[j, workload_flags.PREEMPTED] == 1:
            continue  # it is among the victims already
        move_domains(topology, held, j, sign)
        if tree.quota_nodes[held.reservations[j, quota_reservations.QUEUE], quota_nodes.ROOT] == root:
            move_usage(tree, held, j, sign)  # elsewhere its quota is of no use here


@kernel
def requeue(c: Cycle, params: CycleParams, e: int) -> None:
    """Requeue an entry that was not admitted: when it is tried again, and with which flavor it continues."""
    hot, view, d = c.hot, c.quota, c.scratch
    entry, node_rows = d.heads.entries[e], view.tree.quota_nodes
    status, q, j, w = entry[entries.STATUS], entry[entries.QUEUE], entry[entries.WORKLOAD], entry[entries.CLASS]
    root = node_rows[q, quota_nodes.ROOT]
    if status == statuses.ADMITTED or (
        status in (statuses.PREEMPTING, statuses.AWAITING) and entry[entries.PENDING] > 0
    ):
        node_rows[root, quota_nodes.DIRTY] = 1
        if params.places == 1:
            shifts = status != statuses.ADMITTED or entry[entries.BORROW] > 0 or params.fair != 0
            hot.counters[CLAIMS] |= SHIFTED if shifts else ROOM_TAKEN
    if status == statuses.ADMITTED:
        return
    if entry[entries.AGAIN] > 0:
        view.held.reservations[j, quota_reservations.HELD] = node_rows[
            root, quota_nodes.EPOCH
        ]  # until something changes
        return
    if status == statuses.REFUSED and view.held.workloads[j, workloads.PASSED_MS] < 0:
        note_passed_over(hot, j, params.now_ms, params.limit_ms if params.places == 1 else 0)
    epoch = hot.counters[EXTERNAL_EPOCH] if params.places == 1 else node_rows[root, quota_nodes.EPOCH]
    goes_on = (
        status in (statuses.REFUSED, statuses.SKIPPED)
        and entry[entries.TRYING] == 1
        and tries_on(view, d.requests.marks, entry, epoch, 1)
    )
    for slot in range(view.asked.tried.shape[1]):
        view.asked.tried[j, slot] = d.heads.tries[e, flavor_tries.TRIED, slot] if goes_on else 0
    reservation = view.held.reservations[j]
    reservation[quota_reservations.TRIED_CYCLE] = params.cycle
    reservation[quota_reservations.TRIED_GENERATION] = node_rows[root, quota_nodes.GENERATION]
    if (
        status in (statuses.PREEMPTING, statuses.AWAITING)
        and node_rows[q, quota_nodes.STRICT] == 0
        and view.held.workloads[j, workloads.RESERVES] == 0
    ):
        node_rows[q, quota_nodes.STICKY] = j
    if goes_on:
        node_rows[root, quota_nodes.DIRTY] = 1
    elif node_rows[q, quota_nodes.STRICT] == 0 and status == statuses.REFUSED:
        if (
            view.asked.queue_requests[w, queue_requests.HELD] != node_rows[root, quota_nodes.EPOCH]
        ):  # otherwise it is one with a reservation, again
            node_rows[root, quota_nodes.DIRTY] = 1
        view.asked.queue_requests[w, queue_requests.HELD] = node_rows[root, quota_nodes.EPOCH]
        view.asked.queue_requests[w, queue_requests.HELD_CODE] = entry[entries.CODE]
    elif node_rows[q, quota_nodes.STRICT] == 0 and status == statuses.BLOCKED:
        reservation[quota_reservations.HELD] = node_rows[root, quota_nodes.EPOCH]
        node_rows[root, quota_nodes.DIRTY] = 1
