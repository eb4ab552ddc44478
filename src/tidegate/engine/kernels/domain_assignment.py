"""Domain assignments for an entry: its topology request, what was found, and what that takes beyond what it holds."""

from __future__ import annotations

from tidegate.engine.kernels.columns import choices, entries
from tidegate.engine.kernels.cycle_scratch import Heads
from tidegate.engine.topology.columns import questions, view_counters
from tidegate.engine.topology.cycle_view import TopologyView, move_domains
from tidegate.engine.topology.search import find_gang
from tidegate.engine.topology.search_buffers import AS_IF_EMPTY, ASSIGNMENT_COLUMNS, FRESH, REPLACE
from tidegate.engine.topology.usage import assignments_fit, move_assignments
from tidegate.jit.registry import inlined, kernel
from tidegate.model.arrays import I64
from tidegate.state.quota_tables import QuotaView, Reserved
from tidegate.state.tables import (
    domain_assignments,
    flavor_options,
    flavor_resources,
    flavors,
    pod_set_needs,
    queue_requests,
    quota_nodes,
    quota_reservations,
    resource_groups,
    resource_requests,
    work_classes,
)
from tidegate.state.tables.quota_reservations import Again

FAILED = int(Again.FAILED)

#: Why a pod set has no tree: no topology; not looked up yet; its flavors have no topology; its question is asked.
SKIPPED, DELAYED, TREELESS, ASKED = -1, -2, -3, -4
NOBODY = -1


@inlined
def asked_fits(topology: TopologyView | None) -> bool:
    """Whether there are domain assignments for all current questions."""
    if topology is not None:
        if topology.marks[view_counters.ASKED] > 0:
            return search_assignments(topology, 0) == 0
    return True


@kernel
def search_assignments(topology: TopologyView, more: int) -> int:
    """Search assignments for all current questions, with more options than usual; 0, or the TopologyFailure."""
    question_rows = topology.asked[: topology.marks[view_counters.ASKED]]
    options = topology.marks[view_counters.OPTIONS] | more
    return find_gang(topology.arrays, topology.search, question_rows, topology.kept, options, topology.answer)


@kernel
def search_as_if_empty(topology: TopologyView) -> int:
    """Search assignments as if no preemptible work ran; 0, or the TopologyFailure."""
    move_unassigned(topology, 1)
    code = search_assignments(topology, AS_IF_EMPTY)
    move_unassigned(topology, -1)
    return int(code)


@inlined
def move_unassigned(topology: TopologyView, sign: int) -> None:
    """In Tidegate's own mode, remove unassigned workloads from what is held (sign 1), or restore them (-1)."""
    if topology.marks[view_counters.PLACES] == 1:
        for leaf in range(len(topology.unassigned)):
            for r in range(topology.unassigned.shape[1]):
                topology.arrays.empty[leaf, r] += sign * topology.unassigned[leaf, r]


# -- the request -----------------------------------------------------------------------------------------------


@inlined
def open_assignments(topology: TopologyView | None, held: Reserved, entry: I64) -> None:
    """Reserve rows for what is found for an entry, twice if it holds some already."""
    if topology is not None:
        w, j = entry[entries.CLASS], entry[entries.WORKLOAD]
        entry[entries.FIRST_ASSIGNMENT] = entry[entries.FIRST_NET] = topology.marks[view_counters.FOUND]
        most = held.work_classes[w, work_classes.PODS] + held.work_classes[w, work_classes.SETS]
        topology.marks[view_counters.FOUND] += most + (
            most + 2 * held.reservations[j, quota_reservations.ASSIGNMENTS] if entry[entries.AGAIN] > 0 else 0
        )


@kernel
def ask_topology(view: QuotaView, heads: Heads, topology: TopologyView, e: int) -> bool:
    """Ask for the assignments of an entry, tree by tree; False: no flavor of a pod set has a topology for it."""
    entry = heads.entries[e]
    first = view.held.work_classes[entry[entries.CLASS], work_classes.FIRST_SET]
    sets = view.held.work_classes[entry[entries.CLASS], work_classes.SETS]
    topology.marks[view_counters.ASKED] = 0
    kept = 0
    for ordinal in range(sets):
        heads.trees[e, ordinal] = tree_for(view, heads, topology.assignments, e, ordinal)
        if heads.trees[e, ordinal] == TREELESS:
            return False
    for tree in range(topology.questions.shape[1]):
        for ordinal in range(sets):
            if heads.trees[e, ordinal] != tree:
                continue
            heads.trees[e, ordinal] = ASKED
            if entry[entries.AGAIN] == FAILED:
                kept = ask_replacement(view.held, heads, topology, e, first, ordinal, tree, kept)
            else:
                ask_from_scratch(view, heads, topology, e, first, sets, ordinal, tree)
    return True


@kernel
def tree_for(view: QuotaView, heads: Heads, assignments: I64, e: int, ordinal: int) -> int:
    """The tree that a pod set of an entry is placed in now, or why it is not placed."""
    entry, asked = heads.entries[e], view.asked
    s = view.held.work_classes[entry[entries.CLASS], work_classes.FIRST_SET] + ordinal
    if asked.pod_set_needs[s, pod_set_needs.TOPOLOGY] == 0 or heads.pods[e, ordinal] == 0:
        return SKIPPED
    again = entry[entries.AGAIN]
    if again > 0 and not is_looked_at(view.held, assignments, entry[entries.WORKLOAD], ordinal, again):
        return SKIPPED
    if again == FAILED and view.held.reservations[entry[entries.WORKLOAD], quota_reservations.PINNED] == 1:
        return SKIPPED
    flavor = flavor_of_set(view, heads, e, s)
    if flavor < 0 or asked.flavors[flavor, flavors.TREE] < 0:
        return TREELESS
    delays = delay_of(view, entry[entries.QUEUE], flavor)
    if delays == 2 or (delays == 1 and again == 0):
        return DELAYED
    return int(asked.flavors[flavor, flavors.TREE])


@inlined
def is_looked_at(held: Reserved, assignments: I64, j: int, ordinal: int, again: int) -> bool:
    """Whether a pod set of work that holds assignments is placed once more: it has none, or a node of it has failed."""
    first, has, failed = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT], False, False
    for i in range(first, first + held.reservations[j, quota_reservations.ASSIGNMENTS]):
        if assignments[i, domain_assignments.POD_SET] == ordinal:
            has = True
            failed = failed or assignments[i, domain_assignments.LOST] > 0
    return failed if again == FAILED else not has


@kernel
def flavor_of_set(view: QuotaView, heads: Heads, e: int, s: int) -> int:
    """The flavor with a topology that a pod set was given; a set that requests nothing follows its group. -1: none."""
    asked, w = view.asked, heads.entries[e, entries.CLASS]
    first, of_group, asks = asked.queue_requests[w, queue_requests.FIRST_ASK], NOBODY, 0
    for a in range(asked.queue_requests[w, queue_requests.ASKS]):
        row = asked.resource_requests[first + a]
        if (
            asked.pod_set_needs[row[resource_requests.POD_SET], pod_set_needs.LEADER]
            != asked.pod_set_needs[s, pod_set_needs.LEADER]
        ):
            continue
        asks += int(row[resource_requests.POD_SET] == s)
        fr = heads.choice[e, choices.FLAVOR_RESOURCE, a] - 1
        if fr < 0:
            continue
        flavor = view.tree.flavor_resources[fr, flavor_resources.FLAVOR]
        if asked.flavors[flavor, flavors.TOPOLOGY] == 1:
            if row[resource_requests.POD_SET] == s:
                return int(flavor)
            of_group = int(flavor)
    return of_group if asks == 0 else NOBODY


@kernel
def delay_of(view: QuotaView, q: int, flavor: int) -> int:
    """When assignments on a flavor of a queue are found: 0 at once, 1 once its checks are ready, 2 elsewhere."""
    groups, options = view.asked.resource_groups, view.asked.flavor_options
    for group in range(
        view.tree.quota_nodes[q, quota_nodes.FIRST_GROUP],
        view.tree.quota_nodes[q, quota_nodes.FIRST_GROUP] + view.tree.quota_nodes[q, quota_nodes.GROUPS],
    ):
        first = groups[group, resource_groups.FIRST_OPTION]
        for option in range(first, first + groups[group, resource_groups.OPTIONS]):
            if options[option, flavor_options.FLAVOR] == flavor:
                return int(options[option, flavor_options.DELAYS])
    return 0


@inlined
def open_question(topology: TopologyView, s: int, tree: int, ordinal: int, pods: int) -> int:
    """Ask for the pods of a set, alone and without what it holds; return the index of the question."""
    at = int(topology.marks[view_counters.ASKED])
    row = topology.asked[at]
    for i in range(len(row)):
        row[i] = topology.questions[s, tree, i]
    row[questions.MODE], row[questions.COUNT], row[questions.SET] = FRESH, pods, ordinal
    row[questions.LEADER_SET], row[questions.LEADER_KIND], row[questions.LEADER_HELD] = NOBODY, NOBODY, 0
    row[questions.FIRST_HELD], row[questions.HELD], row[questions.LOST] = 0, 0, 0
    topology.marks[view_counters.ASKED] = at + 1
    return at


@kernel
def ask_from_scratch(
    view: QuotaView, heads: Heads, topology: TopologyView, e: int, first: int, sets: int, ordinal: int, tree: int
) -> None:
    """Ask for assignments of a pod set, with the other set of its group; the larger of the two are the workers."""
    needs, workers, leader = view.asked.pod_set_needs, ordinal, NOBODY
    for other in range(ordinal + 1, sets):
        same = needs[first + other, pod_set_needs.LEADER] == needs[first + ordinal, pod_set_needs.LEADER]
        if leader < 0 and same and heads.trees[e, other] == tree:
            leader = other
            heads.trees[e, other] = ASKED
    if leader >= 0 and heads.pods[e, leader] > heads.pods[e, workers]:
        workers, leader = leader, workers
    at = open_question(topology, first + workers, tree, workers, heads.pods[e, workers])
    if leader >= 0:
        row = topology.asked[at]
        row[questions.LEADER_SET] = leader
        row[questions.LEADER_KIND] = topology.questions[first + leader, tree, questions.KIND]


@kernel
def ask_replacement(
    held: Reserved, heads: Heads, topology: TopologyView, e: int, first: int, ordinal: int, tree: int, kept: int
) -> int:
    """Ask for replacements of assignments on a failed node; return how many kept ones are written by now."""
    j, lost, start = heads.entries[e, entries.WORKLOAD], 0, kept
    row = topology.asked[open_question(topology, first + ordinal, tree, ordinal, heads.pods[e, ordinal])]
    begin = held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
    for i in range(begin, begin + held.reservations[j, quota_reservations.ASSIGNMENTS]):
        if topology.assignments[i, domain_assignments.POD_SET] != ordinal:
            continue
        if topology.assignments[i, domain_assignments.LOST] == 1:
            lost += topology.assignments[i, domain_assignments.COUNT]
        else:
            copy_assignment(topology.assignments[i], topology.kept[kept])
            kept += 1
    row[questions.MODE] = REPLACE
    row[questions.FIRST_HELD] = start
    row[questions.HELD] = kept - start
    row[questions.LOST] = lost
    return kept


# -- the result ------------------------------------------------------------------------------------------------


@kernel
def keep_found(view: QuotaView, heads: Heads, topology: TopologyView, e: int) -> None:
    """Keep what the search found for an entry, with what it holds and keeps; and what exceeds what it holds."""
    entry, answer, found = heads.entries[e], topology.answer, topology.found
    at, j = entry[entries.FIRST_ASSIGNMENT], entry[entries.WORKLOAD]
    for i in range(answer.written[0]):
        copy_assignment(answer.assignments[i], found[at])
        found[at, domain_assignments.NAME] = topology.names[found[at, domain_assignments.LEAF]]
        at += 1
    held = view.held.reservations[j, quota_reservations.ASSIGNMENTS]
    first = view.held.reservations[j, quota_reservations.FIRST_ASSIGNMENT]
    if entry[entries.AGAIN] == 0:
        held = 0
    for i in range(first, first + held):
        if heads.trees[e, topology.assignments[i, domain_assignments.POD_SET]] != ASKED:
            copy_assignment(topology.assignments[i], found[at])
            found[at, domain_assignments.NAME] = topology.assignments[i, domain_assignments.NAME]
            at += 1
    entry[entries.ASSIGNMENTS] = at - entry[entries.FIRST_ASSIGNMENT]
    entry[entries.FIRST_NET], entry[entries.NETS] = entry[entries.FIRST_ASSIGNMENT], entry[entries.ASSIGNMENTS]
    if held > 0:
        entry[entries.FIRST_NET] = at
        for i in range(entry[entries.FIRST_ASSIGNMENT], entry[entries.FIRST_NET]):
            copy_assignment(found[i], found[at])
            for h in range(first, first + held):
                if (
                    topology.assignments[h, domain_assignments.NAME] == found[i, domain_assignments.NAME]
                    and topology.assignments[h, domain_assignments.POD_SET] == found[i, domain_assignments.POD_SET]
                ):
                    found[at, domain_assignments.COUNT] -= topology.assignments[h, domain_assignments.COUNT]
            at += int(found[at, domain_assignments.COUNT] > 0)
        entry[entries.NETS] = at - entry[entries.FIRST_NET]


@inlined
def copy_assignment(source: I64, target: I64) -> None:
    """Copy an assignment's columns that a search uses."""
    for column in range(ASSIGNMENT_COLUMNS):
        target[column] = source[column]


@inlined
def forget_found(entry: I64) -> None:
    """Drop the assignments of an entry."""
    entry[entries.ASSIGNMENTS], entry[entries.NETS] = 0, 0


@inlined
def found_fits(topology: TopologyView | None, entry: I64) -> bool:
    """Whether the assignments found for an entry are still free, as far as it does not hold them itself."""
    if topology is not None:
        return assignments_fit(
            topology.arrays, topology.found, entry[entries.FIRST_NET], entry[entries.FIRST_NET] + entry[entries.NETS]
        )
    return True


@inlined
def move_found(topology: TopologyView, entry: I64, sign: int) -> None:
    """Release what was found for an entry (sign 1), or take it (-1)."""
    first = entry[entries.FIRST_NET]
    move_assignments(topology.arrays, topology.found, first, first + entry[entries.NETS], sign)
    entry[entries.TAKEN] = int(sign < 0)


@inlined
def take_found(topology: TopologyView | None, entry: I64) -> None:
    """Take the assignments found for an entry until the end of the cycle."""
    if topology is not None:
        move_found(topology, entry, -1)


@inlined
def give_back_found(topology: TopologyView | None, entry: I64) -> None:
    """Release assignments that were only taken for the cycle."""
    if topology is not None:
        if entry[entries.TAKEN] == 1:
            move_found(topology, entry, 1)


@kernel
def hold_found(view: QuotaView, heads: Heads, topology: TopologyView, e: int) -> None:
    """Let the workload of an entry hold what was found for it, in place of what it holds."""
    entry, assignments = heads.entries[e], topology.assignments
    j, at = entry[entries.WORKLOAD], topology.marks[view_counters.ASSIGNMENTS]
    move_domains(topology, view.held, j, 1)
    reservation = view.held.reservations[j]
    reservation[quota_reservations.FIRST_ASSIGNMENT] = at
    reservation[quota_reservations.ASSIGNMENTS] = entry[entries.ASSIGNMENTS]
    for i in range(entry[entries.FIRST_ASSIGNMENT], entry[entries.FIRST_ASSIGNMENT] + entry[entries.ASSIGNMENTS]):
        copy_assignment(topology.found[i], assignments[at])
        assignments[at, domain_assignments.NAME] = topology.found[i, domain_assignments.NAME]
        assignments[at, domain_assignments.WORKLOAD] = j
        assignments[at, domain_assignments.LOST] = 0
        at += 1
    topology.marks[view_counters.ASSIGNMENTS] = at
    move_domains(topology, view.held, j, -1)
    for ordinal in range(view.held.work_classes[entry[entries.CLASS], work_classes.SETS]):
        view.asked.counts[j, 2, ordinal] = int(heads.trees[e, ordinal] == DELAYED)
