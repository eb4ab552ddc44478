"""The quota of queues, and the most that each can use, by the policy and the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidegate.model.hardware import Node, is_device
from tidegate.model.queues import UNLIMITED, Cohort, Flavor, Queue, QueueSetup, Quota, allocatable_of
from tidegate.model.units import WHOLE_MILLI

#: One resource in one flavor: what quota is counted in.
FlavorResource = tuple[str, str]


def gpu_milli_of(resource: str) -> int:
    """What one unit of a resource is in thousandths of a GPU; 0 if it is no GPU."""
    if resource == "gpu":
        return 1
    return WHOLE_MILLI if is_device(resource) else 0


class _QuotaNode(NamedTuple):
    parent: str
    quotas: dict[FlavorResource, Quota]


class _Tree:
    """Queues and cohorts by name, and what each has with all that is below it."""

    def __init__(self, shares: QueueSetup) -> None:
        self._nodes = {f"queue/{queue.name}": _quota_node(queue, queue.cohort) for queue in shares.queues}
        self._nodes |= {f"cohort/{cohort.name}": _quota_node(cohort, cohort.parent) for cohort in shares.cohorts}
        self._children: dict[str, list[str]] = {}
        for name, quota_node in self._nodes.items():
            self._children.setdefault(quota_node.parent, []).append(name)
        self._subtrees: dict[tuple[str, FlavorResource], int] = {}

    def most(self, name: str, lot: FlavorResource) -> int:
        """What a quota_node can use: what it keeps for itself, and what can be had from above, within its limit."""
        quota_node, subtree = self._nodes.get(name, _NOTHING), self._subtree(name, lot)
        if not quota_node.parent:
            return subtree
        quota = quota_node.quotas.get(lot)
        most = subtree - _lent(quota, subtree) + self.most(quota_node.parent, lot)
        limit = quota.borrow_limit if quota else None
        return min(most if limit is None else min(most, subtree + limit), UNLIMITED)

    def _subtree(self, name: str, lot: FlavorResource) -> int:
        """The quota of a quota_node and of all below it, as far as they lend."""
        if (name, lot) not in self._subtrees:
            quota = self._nodes.get(name, _NOTHING).quotas.get(lot)
            total = quota.nominal if quota else 0
            for child in self._children.get(name, ()):
                total += _lent(self._nodes[child].quotas.get(lot), self._subtree(child, lot))
            self._subtrees[name, lot] = min(total, UNLIMITED)
        return self._subtrees[name, lot]


_NOTHING = _QuotaNode("", {})


def _quota_node(spec: Queue | Cohort, parent: str) -> _QuotaNode:
    quotas = {(quota.flavor, quota.resource): quota for quota in spec.quotas}
    return _QuotaNode(f"cohort/{parent}" if parent else "", quotas)


def _lent(quota: Quota | None, subtree: int) -> int:
    return subtree if quota is None or quota.lend_limit is None else min(subtree, quota.lend_limit)


def highest_usable(shares: QueueSetup) -> dict[str, dict[FlavorResource, int]]:
    """For each queue the most that it can use of each flavor-resource, were all others idle."""
    tree = _Tree(shares)
    found: dict[str, dict[FlavorResource, int]] = {}
    for queue in shares.queues:
        mine = {(quota.flavor, quota.resource) for quota in queue.quotas}
        found[queue.name] = {lot: tree.most(f"queue/{queue.name}", lot) for lot in sorted(mine)}
    return found


# -- machines --------------------------------------------------------------------------------------------------


def supply_of(shares: QueueSetup, nodes: Iterable[tuple[Node, int]]) -> dict[FlavorResource, int]:
    """What the nodes have of each flavor-resource with quota; each node comes with how many of its kind there are."""
    lots = shares.flavor_resources()
    flavors = {flavor.name: flavor for flavor in shares.flavors}
    supply = dict.fromkeys(lots, 0)
    for node, count in nodes:
        has = dict(allocatable_of(node))
        for name, resource in lots:
            if name in flavors and _is_of(node, flavors[name]):
                supply[name, resource] += count * _amount(has, resource)
    return supply


def _is_of(node: Node, flavor: Flavor) -> bool:
    has = dict(node.labels)
    return all(has.get(key) == value for key, value in flavor.node_labels)


def _amount(has: dict[str, int], resource: str) -> int:
    """What a node has of a resource; GPUs are counted as devices, by whatever name quota knows them."""
    unit = gpu_milli_of(resource)
    return has["gpu"] // unit if unit and resource not in has and "gpu" in has else has.get(resource, 0)


class UnbackedQuota(NamedTuple):
    """Quota above what the nodes have."""

    owner: str  # queue; empty: all of them together
    lot: FlavorResource
    quota: int
    supply: int


def unbacked_quotas(shares: QueueSetup, supply: dict[FlavorResource, int]) -> Iterator[UnbackedQuota]:
    """Queues with more quota than all nodes have; where there is none, flavor-resources with more in total."""
    for lot, there in supply.items():
        owned = {queue.name: _owned(queue, lot) for queue in shares.queues}
        above = [name for name, quota in owned.items() if quota > there]
        for name in above:
            yield UnbackedQuota(name, lot, owned[name], there)
        total = sum(owned.values())
        if total > there and not above:
            yield UnbackedQuota("", lot, total, there)


class UnreachableLimit(NamedTuple):
    """A borrowing limit above what all nodes have."""

    queue: str
    lot: FlavorResource
    quota: int
    limit: int
    supply: int


def unreachable_limits(shares: QueueSetup, supply: dict[FlavorResource, int]) -> Iterator[UnreachableLimit]:
    """Borrowing limits that never limit, because there are fewer nodes than they allow."""
    for queue in shares.queues:
        for quota in queue.quotas:
            lot, limit = (quota.flavor, quota.resource), quota.borrow_limit
            if limit is not None and quota.nominal <= supply.get(lot, UNLIMITED) < quota.nominal + limit:
                yield UnreachableLimit(queue.name, lot, quota.nominal, limit, supply[lot])


def _owned(queue: Queue, lot: FlavorResource) -> int:
    return sum(quota.nominal for quota in queue.quotas if (quota.flavor, quota.resource) == lot)
