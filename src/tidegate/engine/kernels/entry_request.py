"""How much an entry requests: its pods times the charge of each, or the increase over the slice it replaces.

A job that grows submits a larger slice of itself: it is charged for the difference, on the flavors that it has.
"""

from __future__ import annotations

from tidegate.engine.kernels.columns import entries
from tidegate.engine.kernels.cycle_scratch import Heads
from tidegate.jit.registry import inlined, kernel
from tidegate.state.quota_tables import QuotaView, Requirements
from tidegate.state.tables import claims, flavor_resources, pod_set_needs, queue_requests, resource_requests, workloads

NOTHING = -1


@inlined
def pods_of_ask(asked: Requirements, heads: Heads, e: int, ask: int) -> int:
    """Pods of a resource request."""
    return int(
        heads.pods[
            e, asked.pod_set_needs[asked.resource_requests[ask, resource_requests.POD_SET], pod_set_needs.ORDINAL]
        ]
    )


@inlined
def whole_amount(asked: Requirements, heads: Heads, e: int, ask: int) -> int:
    """The amount of a resource request; the charge of a pod is small enough for the sum to stay within UNLIMITED."""
    return int(pods_of_ask(asked, heads, e, ask) * asked.resource_requests[ask, resource_requests.AMOUNT])


@inlined
def amount_of(view: QuotaView, heads: Heads, e: int, ask: int) -> int:
    """The amount of a resource request beyond what is held for it already."""
    amount = whole_amount(view.asked, heads, e, ask)
    if heads.entries[e, entries.REPLACES] == 0:
        return amount
    before = claim_before(view, heads, e, ask)
    if before == NOTHING:
        return amount
    return int(max(0, amount - view.held.claims[heads.entries[e, entries.REPLACES] - 1, claims.AMOUNT, before]))


@kernel
def claim_before(view: QuotaView, heads: Heads, e: int, ask: int) -> int:
    """What the replaced slice holds for the same resource of the same pod set; NOTHING: nothing."""
    asked, replaced = view.asked, heads.entries[e, entries.REPLACES] - 1
    w = view.held.workloads[replaced, workloads.WORK_CLASS]
    first = asked.queue_requests[w, queue_requests.FIRST_ASK]
    ordinal = asked.pod_set_needs[asked.resource_requests[ask, resource_requests.POD_SET], pod_set_needs.ORDINAL]
    for a in range(asked.queue_requests[w, queue_requests.ASKS]):
        row = asked.resource_requests[first + a]
        if (
            row[resource_requests.RESOURCE] == asked.resource_requests[ask, resource_requests.RESOURCE]
            and asked.pod_set_needs[row[resource_requests.POD_SET], pod_set_needs.ORDINAL] == ordinal
        ):
            return a if view.held.claims[replaced, claims.FLAVOR_RESOURCE, a] != 0 else NOTHING
    return NOTHING


@inlined
def may_have(view: QuotaView, heads: Heads, e: int, ask: int, flavor: int) -> bool:
    """Whether a request may get a flavor: a slice that replaces another stays on its flavor."""
    if heads.entries[e, entries.REPLACES] == 0:
        return True
    before = claim_before(view, heads, e, ask)
    if before == NOTHING:
        return True
    fr = view.held.claims[heads.entries[e, entries.REPLACES] - 1, claims.FLAVOR_RESOURCE, before] - 1
    return bool(view.tree.flavor_resources[fr, flavor_resources.FLAVOR] == flavor)
