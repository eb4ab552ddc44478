"""How well an entry fits once it needs domain assignments too: now, after preemption, or never."""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, entries, modes
from tidegate.engine.kernels.cycle_scratch import CycleScratch, Heads
from tidegate.engine.kernels.domain_assignment import (
    ask_topology,
    forget_found,
    keep_found,
    search_as_if_empty,
    search_assignments,
)
from tidegate.engine.topology.columns import answers, questions, view_counters
from tidegate.engine.topology.cycle_view import TopologyView
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.topology_failures import TopologyFailure
from tidegate.state.quota_tables import QuotaView
from tidegate.state.tables import pod_set_needs, queue_requests, resource_requests
from tidegate.state.tables.quota_reservations import Again

NO_FLAVOR = int(Reason.NO_FLAVOR)
FLAVOR_TOPOLOGY = int(Reason.FLAVOR_TOPOLOGY)
TOPOLOGY_UNFIT = int(Reason.TOPOLOGY_UNFIT)
TOPOLOGY_TOO_SMALL = int(Reason.TOPOLOGY_TOO_SMALL)
TOPOLOGY_MISASKED = int(Reason.TOPOLOGY_MISASKED)
LACKS_ROOM = int(TopologyFailure.LACKS_ROOM)
LACKS_LEADER = int(TopologyFailure.LACKS_LEADER)
NO_DOMAINS = int(TopologyFailure.NO_DOMAINS)
UNSETTLED = int(TopologyFailure.UNSETTLED)
STALE = int(TopologyFailure.STALE)
NO_REPLACEMENT = int(TopologyFailure.NO_REPLACEMENT)
FAILED = int(Again.FAILED)


@inlined
def weigh_topology(view: QuotaView, d: CycleScratch, topology: TopologyView | None, e: int) -> None:
    """Weigh how well an entry fits with topology: what has no room now may have some after preemption."""
    if topology is not None:
        entry = d.heads.entries[e]
        if entry[entries.MODE] != modes.NO_FIT:
            entry[entries.MODE] = weigh_assignments(view, d.heads, topology, e, entry[entries.MODE])


@kernel
def weigh_assignments(view: QuotaView, heads: Heads, topology: TopologyView, e: int, mode: int) -> int:
    """Find assignments for an entry that has quota; or see whether it would have some if nothing of ours ran."""
    entry, again = heads.entries[e], heads.entries[e, entries.AGAIN]
    forget_found(entry)
    if not ask_topology(view, heads, topology, e):
        entry[entries.CODE], entry[entries.MISSING] = NO_FLAVOR, FLAVOR_TOPOLOGY
        return modes.NO_FIT
    if mode == modes.FIT:
        code = search_assignments(topology, 0)
        if code == 0:
            keep_found(view, heads, topology, e)
            return modes.FIT
        note_topology_failure(entry, topology, code, TOPOLOGY_UNFIT)
        needs_preemption(view, heads, e, topology.asked[topology.answer.numbers[answers.QUESTION]])
        mode = modes.PREEMPT
    if again != FAILED and topology.marks[view_counters.ASKED] > 0:  # nothing is preempted for work that lost a node
        code = search_as_if_empty(topology)
        if code != 0:
            note_topology_failure(entry, topology, code, TOPOLOGY_TOO_SMALL)
            return modes.NO_FIT
        for i in range(topology.marks[view_counters.ASKED]):
            needs_preemption(view, heads, e, topology.asked[i])
    return mode


@inlined
def note_topology_failure(entry: I64, topology: TopologyView, code: int, reason: int) -> None:
    """Note why there is no assignment: how many slices would fit, of how many; or what is wrong with the request."""
    numbers = topology.answer.numbers
    entry[entries.CODE] = reason
    entry[entries.FLAVOR_RESOURCE] = numbers[answers.FITS]
    entry[entries.MISSING] = numbers[answers.NEEDED]
    if code not in (LACKS_ROOM, LACKS_LEADER, NO_DOMAINS, UNSETTLED, STALE, NO_REPLACEMENT):
        entry[entries.CODE], entry[entries.FLAVOR_RESOURCE], entry[entries.MISSING] = TOPOLOGY_MISASKED, code, 0


@kernel
def needs_preemption(view: QuotaView, heads: Heads, e: int, question: I64) -> None:
    """Require preemption for all that a question's sets were assigned: quota is free, but in the wrong domain."""
    asked, w = view.asked, heads.entries[e, entries.CLASS]
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    for a in range(asked.queue_requests[w, queue_requests.ASKS]):
        ordinal = asked.pod_set_needs[
            asked.resource_requests[first + a, resource_requests.POD_SET], pod_set_needs.ORDINAL
        ]
        if (
            ordinal in (question[questions.SET], question[questions.LEADER_SET])
            and heads.choice[e, choices.FLAVOR_RESOURCE, a] != 0
        ):
            heads.choice[e, choices.MODE, a] = modes.PREEMPT
