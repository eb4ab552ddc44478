"""Commits an entry in Tidegate's own mode: quota and places together, victims for them, or a reservation."""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, counters, entries, modes, requested, search, statuses
from tidegate.engine.kernels.commit_entry import evict_victims, grant, release_replaced
from tidegate.engine.kernels.cycle_quota import (
    is_owed,
    is_within_reach,
    mark_preempted,
    move_replaced,
    reserve,
    shift_promised,
    use_for_now,
)
from tidegate.engine.kernels.cycle_scratch import Cycle, CycleParams, CycleScratch, Heads
from tidegate.engine.kernels.domain_assignment import forget_found, found_fits, take_found
from tidegate.engine.kernels.domain_places import place_entry
from tidegate.engine.kernels.eviction_plan import (
    AWAITED,
    EVICTIONS,
    NO_ROOM,
    PREEMPTED_FOR,
    asks_topology,
    keep_reserved_assignments,
    lift_quota,
    plan_evictions,
)
from tidegate.engine.kernels.fifo_cycle import lack_of, write_lack
from tidegate.engine.kernels.gang_placement import give_back
from tidegate.engine.kernels.nominate import nominate_bound, request_assigned
from tidegate.engine.kernels.placement_plan import plan_pods
from tidegate.engine.kernels.preemption_candidates import NEVER
from tidegate.engine.kernels.quota import available, minus
from tidegate.engine.kernels.score_cache import DRAWS
from tidegate.engine.kernels.starvation import (
    are_open,
    are_reserved,
    could_be_placed_before,
    is_new,
    is_passed_over,
    note_found,
    open_ending,
    reserve_nothing_yet,
    stay_chosen,
)
from tidegate.engine.kernels.victim_domains import plan_if_all_ended
from tidegate.engine.kernels.victim_scratch import VictimSearch
from tidegate.engine.kernels.victim_search import search_victims
from tidegate.engine.kernels.victim_set import has_quota
from tidegate.engine.kernels.withhold_places import (
    PASSED_OVER,
    RESERVED,
    drop_reservation,
    enforce,
    enforce_ahead,
    let_pass,
    place_reserved,
    release_all,
    release_of,
    reserve_places,
    withhold_all,
)
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.queues import PreemptWhom
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import Counter, Hot
from tidegate.state.quota_tables import QuotaTree, QuotaView
from tidegate.state.tables import (
    claims,
    pod_sets,
    queue_requests,
    quota_nodes,
    quota_reservations,
    resource_groups,
    work_classes,
    workloads,
)

ANY = list(PreemptWhom).index(PreemptWhom.ANY)
AWAITS_VICTIMS = int(Reason.AWAITS_VICTIMS)
OUTPACED = int(Reason.OUTPACED)
TOPOLOGY_OUTPACED = int(Reason.TOPOLOGY_OUTPACED)
PLACES_RESERVED, RESERVED_FOR_OTHERS = int(Reason.PLACES_RESERVED), int(Reason.RESERVED_FOR_OTHERS)
NOBODY = -1
EXTERNAL_EPOCH = int(Counter.EXTERNAL)

#: Times that a workload is tried between two external events, and once for each flavor and pod set.
MOST_TRIES = 8

#: The weight of a search for victims in that count, of which a few times are enough.
PLANNING_TRIES = 2

#: What an entry lacks.
ENOUGH, NO_QUOTA, NO_ASSIGNMENTS = range(3)


@kernel
def admit(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> None:
    """Grant an entry its quota and end the slice that it replaces."""
    hot, view, d, out = c.hot, c.quota, c.scratch, c.out
    entry = d.heads.entries[e]
    entry[entries.STATUS] = statuses.ADMITTED
    grant(hot, view, d.heads, topology, params.now_ms, e, out)
    if entry[entries.REPLACES] > 0:
        release_replaced(hot, view.held, entry, params.now_ms, out)
        move_replaced(view, d.preemption, entry, 1)


@kernel
def find_places(c: Cycle, topology: TopologyView | None, e: int) -> bool:
    """Place all pods of an entry, in its assigned domains if it has some, or say why there is no room."""
    hot, rule, view, d = c.hot, c.rule, c.quota, c.scratch
    heads, entry = d.heads, d.heads.entries[e]
    sets = plan_pods(view, heads, e)
    asks_topology(view, d, topology, e)
    unfit = place_entry(hot, rule, view, heads, topology, e, sets, c.out)
    if unfit < 0:
        return True
    if entry[entries.ASSIGNMENTS] > 0:
        entry[entries.STATUS], entry[entries.CODE] = statuses.SKIPPED, TOPOLOGY_OUTPACED
        return False
    entry[entries.STATUS] = statuses.REFUSED
    entry[entries.CODE] = lack_of(hot, rule, heads.plan[unfit, pod_sets.POD_CLASS])
    write_lack(
        hot,
        rule,
        entry[entries.WORKLOAD],
        entry[entries.CODE],
        heads.plan[:sets],
        unfit,
        entry[entries.FLAVOR_RESOURCE :],
    )
    return False


@kernel
def settle_with_places(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int, lack: int) -> None:
    """Admit an entry with its places, evict victims and reserve the places, or say why not."""
    hot, view, d, out = c.hot, c.quota, c.scratch, c.out
    entry = d.heads.entries[e]
    j, before = entry[entries.WORKLOAD], hot.workloads[entry[entries.WORKLOAD], workloads.RESERVES]
    enforce_ahead(hot, d.heads.entries, d.requests.marks[counters.ENTRIES], e)
    if before == PASSED_OVER and are_open(hot, j) and is_elsewhere(view, d.heads, e):
        if entry[entries.MODE] == modes.FIT and lack != NO_QUOTA and starts_at_once(c, topology, params, e):
            return
        lack = nominate_where_reserved(hot, view, d, topology, params, e)
        if entry[entries.MODE] in (modes.NO_FIT, modes.WAIT):
            entry[entries.STATUS] = statuses.REFUSED
            drop_reservation(hot, j)
            return
    fits = entry[entries.MODE] == modes.FIT
    if fits and lack == NO_QUOTA:
        entry[entries.STATUS], entry[entries.CODE] = statuses.SKIPPED, OUTPACED
        if hot.counters[RESERVED] > 0 and d.requests.marks[counters.CLAIMED] == 0:
            entry[entries.STATUS], entry[entries.CODE] = statuses.REFUSED, RESERVED_FOR_OTHERS
        return
    if fits and starts_at_once(c, topology, params, e):
        return
    if before == PREEMPTED_FOR:
        let_pass(hot, j)  # at the places that were cleared for it, and no others
    release_of(hot, j)
    came = NO_ROOM
    if may_preempt(view.tree, entry[entries.QUEUE]) and (
        hot.workloads[j, workloads.RESERVES] == PREEMPTED_FOR
        or tries_on(view, d.requests.marks, entry, hot.counters[EXTERNAL_EPOCH], PLANNING_TRIES)
    ):
        came = plan_evictions(c, topology, params, e)
    if came == EVICTIONS:
        entry[entries.STATUS], entry[entries.CODE] = statuses.PREEMPTING, AWAITS_VICTIMS
        mark_preempted(entry, d.preemption, d.requests.marks)
        entry[entries.PENDING] = evict_victims(hot, view.held.reservations, d.preemption, entry, params.now_ms, out)
        note_terminating(d.victims, d.preemption.targets, entry)
    elif came == AWAITED and fits and place_reserved(hot, j, out):
        drop_reservation(hot, j)
        admit(c, topology, params, e)
        return
    elif came == AWAITED:
        entry[entries.STATUS], entry[entries.CODE] = statuses.AWAITING, AWAITS_VICTIMS
    elif lack != NO_QUOTA and reserve_if_passed_over(c, topology, params, e):
        entry[entries.STATUS], entry[entries.CODE] = statuses.AWAITING, PLACES_RESERVED
        keep_reserved_assignments(c, topology, e, d.heads.plan[: plan_pods(view, d.heads, e)])
    else:
        entry[entries.STATUS] = statuses.REFUSED
        if lack == NO_QUOTA:
            refuse_quota(c, topology, params, e)
        elif fits and fits_without_reservations(c, topology, e):
            entry[entries.CODE] = RESERVED_FOR_OTHERS
        return
    entry[entries.PENDING] += before == 0  # from now on another workload is the head of its queue
    asks = view.asked.queue_requests[entry[entries.CLASS], queue_requests.ASKS]
    for a in range(view.held.claims.shape[2]):
        view.held.claims[j, claims.RESERVED_FLAVOR_RESOURCE, a] = (
            d.heads.choice[e, choices.FLAVOR_RESOURCE, a] if a < asks else 0
        )
    enforce(hot, j)
    take_found(topology, entry)
    reserve_quota(hot, view, d, e)


@kernel
def starts_at_once(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> bool:
    """Admit an entry that has quota if it fits now, or fits the places that are reserved for it."""
    hot, d = c.hot, c.scratch
    j = d.heads.entries[e, entries.WORKLOAD]
    release_of(hot, j)
    if not find_places(c, topology, e):
        if hot.workloads[j, workloads.RESERVES] != PASSED_OVER or d.heads.entries[e, entries.ASSIGNMENTS] > 0:
            return False
        # Its quota is not for places of other flavors, or of another number of pods.
        plan = d.heads.plan[: plan_pods(c.quota, d.heads, e)]
        if not are_reserved(hot, j, plan) or not place_reserved(hot, j, c.out):
            return False
    drop_reservation(hot, j)
    admit(c, topology, params, e)
    return True


@inlined
def is_elsewhere(view: QuotaView, heads: Heads, e: int) -> bool:
    """Whether places are reserved for entry e in other flavors than those it was nominated for."""
    reserved, differs = view.held.claims[heads.entries[e, entries.WORKLOAD], claims.RESERVED_FLAVOR_RESOURCE], False
    for a in range(view.asked.queue_requests[heads.entries[e, entries.CLASS], queue_requests.ASKS]):
        differs = differs or (reserved[a] != 0 and reserved[a] != heads.choice[e, choices.FLAVOR_RESOURCE, a])
    return bool(differs)


@kernel
def nominate_where_reserved(
    hot: Hot, view: QuotaView, d: CycleScratch, topology: TopologyView | None, params: CycleParams, e: int
) -> int:
    """Nominate entry e again, for the flavors that its places are reserved in; return what it lacks."""
    for a in range(view.asked.queue_requests[d.heads.entries[e, entries.CLASS], queue_requests.ASKS]):
        d.heads.choice[e, choices.NOMINATED, a] = view.held.claims[
            d.heads.entries[e, entries.WORKLOAD], claims.RESERVED_FLAVOR_RESOURCE, a
        ]
    nominate_bound(view, d, topology, params, e)
    return lack_beside_promised(hot, view, d, topology, e)


@kernel
def lack_beside_promised(hot: Hot, view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> int:
    """What an entry lacks now, with terminating work still there, and later, without it and with what is promised."""
    entry = d.heads.entries[e]
    q = entry[entries.QUEUE]
    request_assigned(view, d.heads, d.requests, e)
    fits = has_quota(view.tree, d.requests, q, 1)
    if fits and d.requests.marks[counters.UNDONE] > 0:
        lift_quota(hot, view, d.victims, entry[entries.WORKLOAD], 1)
        shift_promised(view.tree, d, 1)
        fits = has_quota(view.tree, d.requests, q, 1)
        shift_promised(view.tree, d, -1)
        lift_quota(hot, view, d.victims, entry[entries.WORKLOAD], -1)
    if not fits:
        return NO_QUOTA
    return ENOUGH if found_fits(topology, entry) else NO_ASSIGNMENTS


@kernel
def tries_on(view: QuotaView, marks: I64, entry: I64, epoch: int, times: int) -> bool:
    """Whether an entry keeps trying in an epoch: it may find and lose the same room in turn without end."""
    reservation = view.held.reservations[entry[entries.WORKLOAD]]
    queue = view.tree.quota_nodes[entry[entries.QUEUE]]
    flavors = 0
    if reservation[quota_reservations.TRIES_EPOCH] != epoch:
        reservation[quota_reservations.TRIES_EPOCH], reservation[quota_reservations.TRIES] = epoch, 0
    reservation[quota_reservations.TRIES] += times
    for group in range(queue[quota_nodes.FIRST_GROUP], queue[quota_nodes.FIRST_GROUP] + queue[quota_nodes.GROUPS]):
        flavors += view.asked.resource_groups[group, resource_groups.OPTIONS]
    if (
        reservation[quota_reservations.TRIES]
        <= MOST_TRIES + flavors * view.held.work_classes[entry[entries.CLASS], work_classes.SETS]
    ):
        return True
    marks[counters.EPOCH_BOUND] = 1
    return False


@kernel
def fits_without_reservations(c: Cycle, topology: TopologyView | None, e: int) -> bool:
    """Whether an entry that finds no place would find one if nothing were reserved for others."""
    hot, view, d, out = c.hot, c.quota, c.scratch, c.out
    if hot.counters[RESERVED] == 0:
        return False
    start, draws, sets = out.written[0], hot.counters[DRAWS], plan_pods(view, d.heads, e)
    release_all(hot)
    fits = place_entry(hot, c.rule, view, d.heads, topology, e, sets, out) < 0
    give_back(hot, d.heads.entries[e, entries.WORKLOAD])
    withhold_all(hot, NOBODY, 0)
    out.written[0], hot.counters[DRAWS] = start, draws
    return fits


@kernel
def reserve_quota(hot: Hot, view: QuotaView, d: CycleScratch, e: int) -> None:
    """Keep quota for an entry until the end of the cycle: its request, less what terminating work will leave it."""
    q, j = d.heads.entries[e, entries.QUEUE], d.heads.entries[e, entries.WORKLOAD]
    request_assigned(view, d.heads, d.requests, e)
    for i in range(d.requests.marks[counters.REQUESTED]):
        d.requests.frs[i, requested.REST] = available(view.tree, q, d.requests.frs[i, requested.FLAVOR_RESOURCE])
    lift_quota(hot, view, d.victims, j, 1)
    shift_promised(view.tree, d, 1)
    for i in range(d.requests.marks[counters.REQUESTED]):
        later = available(view.tree, q, d.requests.frs[i, requested.FLAVOR_RESOURCE])
        d.requests.frs[i, requested.REST] = minus(later, d.requests.frs[i, requested.REST])
    shift_promised(view.tree, d, -1)
    lift_quota(hot, view, d.victims, j, -1)
    for i in range(d.requests.marks[counters.REQUESTED]):
        fr, amount = d.requests.frs[i, requested.FLAVOR_RESOURCE], d.requests.frs[i, requested.AMOUNT]
        promised = max(0, min(amount, d.requests.frs[i, requested.REST]))
        use_for_now(view.tree, d, q, fr, minus(amount, promised), promised)


@inlined
def may_preempt(tree: QuotaTree, q: int) -> bool:
    """Whether the work of a queue may preempt any other."""
    return bool(tree.quota_nodes[q, quota_nodes.WITHIN] != NEVER or tree.quota_nodes[q, quota_nodes.RECLAIM] != NEVER)


@inlined
def note_terminating(s: VictimSearch, targets: I64, entry: I64) -> None:
    """Count the targets of an entry among the terminating workloads."""
    for i in range(entry[entries.FIRST_TARGET], entry[entries.FIRST_TARGET] + entry[entries.TARGETS]):
        s.terminating[0] += 1
        s.terminating[s.terminating[0]] = targets[i, 0]


@kernel
def reserve_if_passed_over(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> bool:
    """Reserve places for an entry that has quota and was passed over for too long; one of a queue at a time."""
    hot, d = c.hot, c.scratch
    entry = d.heads.entries[e]
    j, plan = entry[entries.WORKLOAD], d.heads.plan[: plan_pods(c.quota, d.heads, e)]
    if not is_owed(c, params, e):
        drop_reservation(hot, j)
        return False
    stands = hot.workloads[j, workloads.RESERVES] == PASSED_OVER and are_reserved(hot, j, plan) and are_open(hot, j)
    if stands and stay_chosen(hot, j, params.now_ms, params.limit_ms):
        return True
    if not is_passed_over(hot, j, params.now_ms, params.limit_ms) or reserves_already(hot, d, params, e):
        return bool(stands)
    if not could_be_placed(c, topology, params, e):
        return bool(stands)
    reserve_places(hot, j, d.victims.best_plan[: d.victims.numbers[search.BEST_PLANNED]], PASSED_OVER)
    note_found(hot, j, params.now_ms, params.limit_ms)
    return True


@kernel
def could_be_placed(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> bool:
    """Whether an entry would find places if all running work had ended, next to what is reserved for others.

    The best plan of the search has these places: those that are free soonest.
    """
    hot, d = c.hot, c.scratch
    plan, j = d.heads.plan[: plan_pods(c.quota, d.heads, e)], d.heads.entries[e, entries.WORKLOAD]
    release_all(hot)
    withhold_all(hot, j, 1)
    found = plans_if_all_ended(c, topology, params, e, plan)
    release_all(hot)
    withhold_all(hot, j, 0)
    return found


@inlined
def plans_if_all_ended(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int, plan: I64) -> bool:
    """`could_be_placed`, with the reservations of others withheld already."""
    hot, rule, d = c.hot, c.rule, c.scratch
    if topology is not None:
        if asks_topology(c.quota, d, topology, e):
            return bool(plan_if_all_ended(hot, rule, topology, d.victims, plan, params.now_ms))
    open_ending(hot, d.victims, params.now_ms)
    return bool(search_victims(hot, rule, None, None, d.victims, plan))


@kernel
def reserves_already(hot: Hot, d: CycleScratch, params: CycleParams, e: int) -> bool:
    """Whether there is a new reservation for another passed-over workload of the queue of entry e."""
    entry_rows = d.heads.entries
    for other in range(d.requests.marks[counters.ENTRIES]):
        if other != e and entry_rows[other, entries.QUEUE] == entry_rows[e, entries.QUEUE]:
            j = entry_rows[other, entries.WORKLOAD]
            if hot.workloads[j, workloads.RESERVES] == PASSED_OVER and is_new(hot, j, params.now_ms, params.limit_ms):
                return True
    return False


@kernel
def refuse_quota(c: Cycle, topology: TopologyView | None, params: CycleParams, e: int) -> None:
    """Keep the quota that its queue is entitled to for a head without victims, as Kueue does.

    In Tidegate's own mode a head that was passed over for too long keeps it from cycle to cycle.
    """
    hot, view, d = c.hot, c.quota, c.scratch
    entry = d.heads.entries[e]
    j = entry[entries.WORKLOAD]
    if (
        params.places == 1
        and is_passed_over(hot, j, params.now_ms, params.limit_ms)
        and not reserves_already(hot, d, params, e)
    ):
        known = could_be_placed_before(hot, j)
        owed = is_owed(c, params, e) and is_within_reach(view, d, e)
        if owed and (known or could_be_placed(c, topology, params, e)):
            reserve_nothing_yet(hot, j, PASSED_OVER)
            if not known:
                note_found(hot, j, params.now_ms, params.limit_ms)
        else:
            drop_reservation(hot, j)
    claims_quota = (
        entry[entries.MODE] != modes.WAIT and view.tree.quota_nodes[entry[entries.QUEUE], quota_nodes.RECLAIM] != ANY
    )
    if params.places == 1:
        forget_found(entry)  # nodes belong to all trees, and it is not nominated in every cycle: it keeps quota only
    if claims_quota or hot.workloads[j, workloads.RESERVES] == PASSED_OVER:
        first = d.requests.marks[counters.UNDONE]
        reserve(view, d, topology, e)
        if (
            params.places == 1
            and hot.workloads[j, workloads.RESERVES] == 0
            and view.tree.quota_nodes[entry[entries.QUEUE], quota_nodes.STRICT] == 0
        ):
            d.requests.marks[counters.CLAIMED] = 1  # it is held from now on, and claims nothing in the next cycle
            d.undo[first : d.requests.marks[counters.UNDONE], 4] = 1
