"""Targets of a preemption: taken out of the tree one by one, and put back where the request fits without them."""

from __future__ import annotations

from tidegate.engine.kernels.columns import counters, requested
from tidegate.engine.kernels.cycle_scratch import CycleScratch, Requests
from tidegate.engine.kernels.domain_assignment import asked_fits
from tidegate.engine.kernels.quota import available, borrows_with, move_usage
from tidegate.engine.topology.cycle_view import TopologyView, move_domains
from tidegate.jit.registry import inlined, kernel
from tidegate.state.quota_tables import QuotaTree, QuotaView, Reserved


@inlined
def move_held(tree: QuotaTree, held: Reserved, topology: TopologyView | None, j: int, sign: int) -> None:
    """Take what workload j holds of quota and domains out (sign 1), or put it back (-1)."""
    move_usage(tree, held, j, sign)
    move_domains(topology, held, j, sign)


@kernel
def take_target(view: QuotaView, d: CycleScratch, topology: TopologyView | None, j: int, code: int) -> bool:
    """Take workload j out as a target; False: there is no row to note it."""
    preemption, requests = d.preemption, d.requests
    at = requests.marks[counters.TARGETS]
    if at >= len(preemption.targets):
        requests.marks[counters.OVERFLOW] = 1
        return False
    move_held(view.tree, view.held, topology, j, 1)
    preemption.targets[at, 0], preemption.targets[at, 1] = j, code
    requests.marks[counters.TARGETS] = at + 1
    return True


@kernel
def fill_back(
    view: QuotaView, d: CycleScratch, topology: TopologyView | None, q: int, start: int, borrowing: int
) -> None:
    """Put targets back, the latest first, where the request fits without them; the last one taken is needed."""
    tree, held, preemption, requests = view.tree, view.held, d.preemption, d.requests
    i = requests.marks[counters.TARGETS] - 2
    while i >= start:
        move_held(tree, held, topology, preemption.targets[i, 0], -1)
        if fits(tree, requests, topology, q, borrowing):
            last = requests.marks[counters.TARGETS] - 1
            preemption.targets[i, 0] = preemption.targets[last, 0]
            preemption.targets[i, 1] = preemption.targets[last, 1]
            requests.marks[counters.TARGETS] = last
        else:
            move_held(tree, held, topology, preemption.targets[i, 0], 1)
        i -= 1


@kernel
def restore(view: QuotaView, d: CycleScratch, topology: TopologyView | None, start: int) -> None:
    """Put all targets from `start` on back into the tree; they stay noted."""
    for i in range(start, d.requests.marks[counters.TARGETS]):
        move_held(view.tree, view.held, topology, d.preemption.targets[i, 0], -1)


@kernel
def fits(tree: QuotaTree, requests: Requests, topology: TopologyView | None, q: int, borrowing: int) -> bool:
    """Whether all that is requested is available to a queue now, in quota and in domains."""
    return has_quota(tree, requests, q, borrowing) and asked_fits(topology)


@kernel
def has_quota(tree: QuotaTree, requests: Requests, q: int, borrowing: int) -> bool:
    """Whether all that is requested is available to a queue now, without borrowing where that is not allowed."""
    for i in range(requests.marks[counters.REQUESTED]):
        fr, amount = requests.frs[i, requested.FLAVOR_RESOURCE], requests.frs[i, requested.AMOUNT]
        if amount == 0:
            continue
        if borrowing == 0 and borrows_with(tree, q, fr, amount):
            return False
        if amount > max(0, available(tree, q, fr)):
            return False
    return True
