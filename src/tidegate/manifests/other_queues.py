"""Converts the queue trees of other systems into cohorts and queues.

What a queue owns becomes its nominal quota, what it may use at most its limit of borrowing, what it never lends its
limit of lending. A queue with others below becomes a cohort, whose quota counts on top of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegate.manifests.field_reader import Item
from tidegate.model.queues import (
    UNLIMITED,
    WHOLE_WEIGHT,
    Cohort,
    Flavor,
    FlavorGroup,
    PreemptionRule,
    PreemptWhom,
    Queue,
    Quota,
    StopPolicy,
)

Amounts = Mapping[str, int]

#: How deep queues may be below each other.
MOST_DEPTH = 32

#: The default of other systems: lower priority is preempted in a queue, and lent quota is reclaimed.
RECLAIMS = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)


class OtherQueue(NamedTuple):
    """A queue of another system."""

    name: str
    parent: str  # empty: the root
    owns: Amounts
    most: Amounts  # what it may use; a resource that is not there has no limit
    keeps: Amounts  # what it never lends
    item: Item
    weight_milli: int = WHOLE_WEIGHT
    strict_fifo: bool = False
    stop: StopPolicy = StopPolicy.NONE
    protected_ms: int = 0  # runtime before which its work may not be preempted


class OtherQueueTree(NamedTuple):
    """The cohorts and queues that a tree becomes."""

    flavors: tuple[Flavor, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    queues: tuple[Queue, ...] = ()


def build_quota_tree(
    system: str, nodes: list[OtherQueue], charged: Iterable[str], totals: Amounts | None
) -> OtherQueueTree:
    """Make cohorts and queues; `totals` is what the nodes have, if they are known."""
    if not nodes:
        return OtherQueueTree()
    return _Builder(system, nodes, sorted(charged), totals).tree()


class _Builder:
    """Makes one system's tree."""

    def __init__(self, system: str, nodes: list[OtherQueue], charged: list[str], totals: Amounts | None) -> None:
        self.system = system
        self.totals = totals
        self.nodes = {node.name: node for node in nodes}
        self.below: dict[str, list[str]] = {}
        for node in nodes:
            self.below.setdefault(node.parent, []).append(node.name)
        named = {name for node in nodes for name in (*node.owns, *node.most, *node.keeps)}
        self.named = sorted(named)
        self.free = [name for name in charged if name not in named]  # resources that no queue speaks of

    def tree(self) -> OtherQueueTree:
        """The whole tree."""
        cohorts, queues = [self._root()], []
        for node in self.nodes.values():
            if node.name in self.below:
                cohorts.append(self._cohort(node))
            else:
                queues.append(self._queue(node))
        return OtherQueueTree((Flavor(name=self.system),), tuple(cohorts), tuple(queues))

    def _root(self) -> Cohort:
        """The cohort of the nodes without a parent: all there is beyond what they own."""
        quotas = []
        for resource in self.named:
            owned = sum(self._subtree(name, resource) for name in self.below.get("", ()))
            there = UNLIMITED if self.totals is None else self.totals.get(resource, 0)
            quotas.append(self._quota(resource, max(min(there, UNLIMITED) - owned, 0)))
        return Cohort(name=root_of(self.system), quotas=tuple(quotas))

    def _cohort(self, node: OtherQueue) -> Cohort:
        quotas = []
        for resource in self.named:
            below = sum(self._subtree(name, resource) for name in self.below[node.name])
            owned = node.owns.get(resource, 0)
            if 0 < owned < below:
                found = f"owns less {resource} than the queues below it: theirs counts"
                node.item.warn("", found, "give it at least their sum")
            subtree = max(owned, below)
            quotas.append(self._limited(node, resource, max(owned - below, 0), subtree))
        return Cohort(
            name=node.name,
            parent=node.parent or root_of(self.system),
            quotas=tuple(quotas),
            weight_milli=node.weight_milli,
        )

    def _queue(self, node: OtherQueue) -> Queue:
        quotas = []
        for resource in self.named:
            owned = node.owns.get(resource, 0)
            quotas.append(self._limited(node, resource, owned, owned))
        quotas += [self._quota(resource, UNLIMITED) for resource in self.free]
        covered = tuple(sorted([*self.named, *self.free]))
        return Queue(
            name=node.name,
            cohort=node.parent or root_of(self.system),
            groups=(FlavorGroup(resources=covered, flavors=(self.system,)),) if covered else (),
            quotas=tuple(sorted(quotas, key=lambda quota: quota.resource)),
            preemption=RECLAIMS,
            weight_milli=node.weight_milli,
            strict_fifo=node.strict_fifo,
            stop=node.stop,
        )

    def _subtree(self, name: str, resource: str) -> int:
        """What a node and those below it own; the depth of the tree was checked."""
        below = sum(self._subtree(child, resource) for child in self.below.get(name, ()))
        return min(max(self.nodes[name].owns.get(resource, 0), below), UNLIMITED)

    def _limited(self, node: OtherQueue, resource: str, nominal: int, subtree: int) -> Quota:
        borrow = max(node.most[resource] - subtree, 0) if resource in node.most else None
        keeps = node.keeps.get(resource)
        lend = None if keeps is None else max(subtree - keeps, 0)
        return self._quota(resource, nominal, borrow, lend)

    def _quota(self, resource: str, nominal: int, borrow: int | None = None, lend: int | None = None) -> Quota:
        return Quota(flavor=self.system, resource=resource, nominal=nominal, borrow_limit=borrow, lend_limit=lend)


def root_of(system: str) -> str:
    """The name of the cohort that all nodes of a system are below."""
    return f"{system}-root"


def rooted(nodes: list[OtherQueue]) -> list[OtherQueue]:
    """The nodes whose way to the root ends; the others are named."""
    before = len(nodes) + 1
    while len(nodes) < before:
        before, by_name = len(nodes), {node.name: node for node in nodes}
        nodes = [node for node in nodes if _is_rooted(node, by_name)]
    return nodes


def _is_rooted(node: OtherQueue, by_name: dict[str, OtherQueue]) -> bool:
    if node.parent and node.parent not in by_name:
        hint = "add it to the folder, or leave the parent out"
        node.item.report("", found=f"its parent {node.parent!r} does not exist", hint=hint)
        return False
    seen, at = {node.name}, by_name.get(node.parent)
    while at is not None and at.name not in seen and len(seen) <= MOST_DEPTH:
        seen.add(at.name)
        at = by_name.get(at.parent)
    if at is not None:
        found = "its parents form a cycle" if at.name in seen else f"is more than {MOST_DEPTH} levels deep"
        node.item.report("", found=found, hint="give one of those above it no parent")
    return at is None


def protected_ms(name: str, nodes: Mapping[str, OtherQueue]) -> int:
    """Runtime before which work of a queue may not be preempted: its own, or that of the first one above it."""
    at = nodes.get(name)
    while at is not None:
        if at.protected_ms:
            return at.protected_ms
        at = nodes.get(at.parent)
    return 0
