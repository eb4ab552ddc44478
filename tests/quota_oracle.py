"""Kueue's quota arithmetic and its choice of victims once more, the straightforward way: all is summed anew.

Written from the rules, not from the kernels: names instead of rows, recursion instead of loops, lists instead of heaps.
Slow, and meant to be. Must not know: the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import NamedTuple

from tidegate.model.queues import FairStrategy, PreemptWhom, Queue, QueueSetup
from tidegate.model.reasons.catalogue import Reason

Lot = tuple[str, str]  # flavor, resource
Amounts = dict[Lot, int]


@dataclass(eq=False)
class Node:
    """A queue or a cohort."""

    name: str
    queue: Queue | None = None
    parent: Node | None = None
    cohorts: list[Node] = field(default_factory=list)
    queues: list[Node] = field(default_factory=list)
    nominal: Amounts = field(default_factory=dict)
    borrow: Amounts = field(default_factory=dict)
    lend: Amounts = field(default_factory=dict)
    weight: int = 1000

    def up(self) -> Iterator[Node]:
        """The cohorts around it, the nearest first."""
        at = self.parent
        while at is not None:
            yield at
            at = at.parent

    def root(self) -> Node:
        """The highest node around it."""
        return list(self.up())[-1] if self.parent else self


@dataclass(frozen=True)
class Holder:
    """A workload, and what it holds or asks for."""

    id: str
    queue: str
    amounts: tuple[tuple[Lot, int], ...]
    priority: int
    submitted_ms: int
    granted_ms: int = 0
    leaving: bool = False
    tie: int = 0
    protected: bool = False  # not to be preempted now


Victims = dict[str, Reason]


class Oracle:
    """The tree of some shares, and who holds what of it."""

    def __init__(self, shares: QueueSetup, holders: list[Holder]) -> None:
        self.holders = list(holders)
        self.strategies = shares.fair.strategies if shares.fair else ()
        self.fair = shares.fair is not None
        self.lots = list(shares.flavor_resources())
        self.nodes: dict[str, Node] = {}
        cohorts = {cohort.name: cohort for cohort in shares.cohorts}
        named = {queue.cohort for queue in shares.queues} | {one.parent for one in shares.cohorts} | set(cohorts)
        for name in sorted(named - {""}):
            self._add(f"cohort/{name}", cohorts.get(name))
        for queue in sorted(shares.queues, key=lambda queue: queue.name):
            self._add(f"queue/{queue.name}", queue)
            self._link(f"queue/{queue.name}", queue.cohort)
        for name, cohort in sorted(cohorts.items()):
            self._link(f"cohort/{name}", cohort.parent)

    def _add(self, name: str, spec) -> None:
        node = self.nodes[name] = Node(name, spec if isinstance(spec, Queue) else None)
        for quota in spec.quotas if spec else ():
            lot = (quota.flavor, quota.resource)
            node.nominal[lot] = quota.nominal
            if quota.borrow_limit is not None:
                node.borrow[lot] = quota.borrow_limit
            if quota.lend_limit is not None:
                node.lend[lot] = quota.lend_limit
        node.weight = spec.weight_milli if spec else 1000

    def _link(self, name: str, cohort: str) -> None:
        if cohort:
            node, parent = self.nodes[name], self.nodes[f"cohort/{cohort}"]
            node.parent = parent
            (parent.queues if node.queue else parent.cohorts).append(node)

    def queue(self, name: str) -> Node:
        """A queue's node."""
        return self.nodes[f"queue/{name}"]

    # -- arithmetic --------------------------------------------------------------------------------------------

    def subtree(self, node: Node, lot: Lot) -> int:
        """Quota here, and what children give upwards."""
        below = sum(self.subtree(child, lot) - self.own(child, lot) for child in node.queues + node.cohorts)
        return node.nominal.get(lot, 0) + below

    def own(self, node: Node, lot: Lot) -> int:
        """Quota that is never lent."""
        return max(0, self.subtree(node, lot) - node.lend[lot]) if lot in node.lend and node.parent else 0

    def usage(self, node: Node, lot: Lot) -> int:
        """What is used here, or by children beyond what they keep."""
        if node.queue:
            return sum(dict(held.amounts).get(lot, 0) for held in self.holders if held.queue == node.queue.name)
        return sum(max(0, self.usage(child, lot) - self.own(child, lot)) for child in node.queues + node.cohorts)

    def own_left(self, node: Node, lot: Lot) -> int:
        """What is left of what is never lent."""
        return max(0, self.own(node, lot) - self.usage(node, lot))

    def available(self, node: Node, lot: Lot) -> int:
        """What could be used now."""
        if node.parent is None:
            return self.subtree(node, lot) - self.usage(node, lot)
        above, own = self.available(node.parent, lot), self.own(node, lot)
        if lot in node.borrow:
            used = max(0, self.usage(node, lot) - own)
            above = min(above, self.subtree(node, lot) - own - used + node.borrow[lot])
        return self.own_left(node, lot) + above

    def potential(self, node: Node, lot: Lot) -> int:
        """What could be used if nobody used anything."""
        if node.parent is None:
            return self.subtree(node, lot)
        most = self.own(node, lot) + self.potential(node.parent, lot)
        return min(most, self.subtree(node, lot) + node.borrow[lot]) if lot in node.borrow else most

    def borrows(self, node: Node, lot: Lot, amount: int = 0) -> bool:
        """Whether it uses more than its quota with so much more."""
        return self.usage(node, lot) + amount > self.subtree(node, lot)

    def over(self, node: Node, lots: set[Lot]) -> bool:
        """Whether it uses more than its quota of any of these."""
        return any(self.borrows(node, lot) for lot in lots)

    def given(self, node: Node, lot: Lot) -> bool:
        """Whether quota of a lot is given here or below."""
        return lot in node.nominal or any(self.given(child, lot) for child in node.queues + node.cohorts)

    def ratio(self, node: Node) -> float:
        """The dominant resource share, weight aside; -1: borrows nothing."""
        best = -1.0
        for resource in {name for _, name in self.lots} if node.parent else ():
            lots = [lot for lot in self.lots if lot[1] == resource]
            over = (self.usage(node, lot) - self.subtree(node, lot) for lot in lots if self.given(node, lot))
            borrowed = sum(max(0, amount) for amount in over)
            lendable = sum(self.potential(node.parent, lot) for lot in lots if self.given(node.root(), lot))
            if borrowed > 0:
                best = max(best, borrowed * 1000 / lendable if lendable > 0 else 0.0)
        return best

    def share(self, node: Node, ratio: float) -> float:
        """The share of a node with this ratio, for its weight."""
        if ratio <= 0:
            return 0.0
        return ratio / (node.weight / 1000) if node.weight else math.inf

    def compare(self, one: Node, ratio: float, other: Node, other_ratio: float) -> int:
        """Which share is lower for its weight: -1, 0 or 1."""
        shares = [self.share(one, ratio), self.share(other, other_ratio)]
        if shares == [math.inf, math.inf]:
            shares = [ratio, other_ratio]
        return (shares[0] > shares[1]) - (shares[0] < shares[1])

    # -- victims -----------------------------------------------------------------------------------------------

    def victims(self, who: Holder, need: set[Lot]) -> Victims:
        """Whom a workload preempts for what it asks for, and why; `need` is what it cannot have without."""
        return self.search(who, need).victims()

    def search(self, who: Holder, need: set[Lot]) -> _Classic | _Fair:
        """The search for victims, for who needs its steps one by one."""
        return _Fair(self, who, need) if self.fair else _Classic(self, who, need)


class Claim(NamedTuple):
    """Somebody who could be taken, and by what right."""

    rank: int  # 0: it uses quota that is nearer to the preemptor, 1: it is of another queue, 2: of the same
    victim: Holder
    top: Node | None  # the lowest cohort of both; None: they share the queue
    why: Reason  # NONE: only by who does not borrow


class _Search:
    """What both ways have in common."""

    def __init__(self, tree: Oracle, who: Holder, need: set[Lot]) -> None:
        self.tree, self.who, self.need = tree, who, need
        self.node = tree.queue(who.queue)
        self.rule = self.node.queue.preemption
        self.asked = dict(who.amounts)

    def allowed(self, victim: Holder) -> bool:
        """Whether the queue's rules let the workload preempt a victim at all."""
        if not self.need & dict(victim.amounts).keys() or (victim.protected and not victim.leaving):
            return False
        whom = self.rule.within_queue if victim.queue == self.who.queue else self.rule.reclaim_in_cohort
        if whom in (PreemptWhom.NEVER, PreemptWhom.ANY):
            return whom is PreemptWhom.ANY
        if self.who.priority != victim.priority or whom is PreemptWhom.LOWER_PRIORITY:
            return self.who.priority > victim.priority
        return self.who.submitted_ms < victim.submitted_ms

    def rank(self, victim: Holder) -> tuple[object, ...]:
        """Who is taken first of equal claims."""
        own = victim.queue == self.who.queue
        return (not victim.leaving, own, victim.priority, -victim.granted_ms, -victim.submitted_ms, victim.tie)

    def fits(self, *, borrowing: bool) -> bool:
        """Whether everything asked for could be had now."""
        return all(
            amount <= max(0, self.tree.available(self.node, lot))
            and (borrowing or not self.tree.borrows(self.node, lot, amount))
            for lot, amount in self.asked.items()
            if amount
        )

    def fill_back(self, taken: list[tuple[Holder, Reason]], *, borrowing: bool) -> Victims:
        """Put back, the latest first, whom it does without; all are back in the end."""
        left, last = list(taken[:-1]), taken[-1:]
        for one in reversed(taken[:-1]):
            self.tree.holders.append(one[0])
            if self.fits(borrowing=borrowing):
                left.remove(one)
            else:
                self.tree.holders.remove(one[0])
        for one in left + last:
            self.tree.holders.append(one[0])
        return {holder.id: why for holder, why in left + last}


class _Classic(_Search):
    def victims(self) -> Victims:
        claims = self.claims()
        for borrowing in self.attempts(claims):
            found = self.attempt(claims, borrowing=borrowing)
            if found:
                return found
        return {}

    def claims(self) -> list[Claim]:
        """Everybody who could be taken, the first to be taken first."""
        own = [v for v in self.tree.holders if v.queue == self.who.queue and self.allowed(v)]
        hierarchy, priority = self.foreigners()
        claims = [
            *(Claim(0, victim, top, Reason.RECLAIMED_IN_COHORT) for victim, top in hierarchy),
            *(Claim(1, victim, top, self.why(victim)) for victim, top in priority),
            *(Claim(2, victim, None, Reason.PREEMPTED_IN_QUEUE) for victim in own),
        ]
        return sorted(claims, key=lambda claim: (not claim.victim.leaving, claim.rank, self.rank(claim.victim)))

    def attempts(self, claims: list[Claim]) -> list[bool]:
        """Whether the preemptor may borrow, attempt by attempt."""
        foreign = [claim for claim in claims if claim.top is not None]
        forbidden = self.rule.borrow_in_cohort is PreemptWhom.NEVER
        under = all(self.node.nominal.get(lot, 0) > self.tree.usage(self.node, lot) for lot in self.need)
        if not foreign or (forbidden and not under):
            return [True]
        return [False, True] if forbidden and all(claim.rank > 0 for claim in foreign) else [True, False]

    def why(self, victim: Holder) -> Reason:
        """How a victim that there is no better claim on may be taken."""
        threshold = self.rule.borrow_priority_threshold
        if self.rule.borrow_in_cohort is PreemptWhom.NEVER or victim.priority >= self.who.priority:
            return Reason.NONE
        above = threshold is not None and victim.priority > threshold
        return Reason.NONE if above else Reason.RECLAIMED_WHILE_BORROWING

    def foreigners(self):
        """Those of other queues, by whether the quota that they use is nearer to the preemptor."""
        hierarchy, priority, below = [], [], self.node
        if self.rule.reclaim_in_cohort is PreemptWhom.NEVER:
            return hierarchy, priority
        nearer, rest = self.fits_quota(self.node, dict(self.asked))
        for top in self.node.up():
            for victim in self.below(top, below):
                (hierarchy if nearer else priority).append((victim, top))
            fits, rest = self.fits_quota(top, rest)
            nearer, below = nearer or fits, top
        return hierarchy, priority

    def fits_quota(self, node: Node, rest: Amounts) -> tuple[bool, Amounts]:
        """Whether a node's quota has room for the rest, and what is left of it above."""
        fits = not any(self.tree.borrows(node, lot, amount) for lot, amount in rest.items() if self.asked[lot])
        return fits, {lot: max(0, amount - self.tree.own_left(node, lot)) for lot, amount in rest.items()}

    def below(self, top: Node, skipped: Node) -> Iterator[Holder]:
        """Candidates under a cohort, in branches that are over their quota."""
        for child in top.cohorts:
            if child is not skipped and self.tree.over(child, self.need):
                yield from self.below(child, skipped)
        for child in top.queues:
            if child is not self.node and self.tree.over(child, self.need):
                yield from (v for v in self.tree.holders if v.queue == child.queue.name and self.allowed(v))

    def attempt(self, claims: list[Claim], *, borrowing: bool) -> Victims:
        taken = []
        for claim in claims:
            if not self.valid(claim, borrowing=borrowing):
                continue
            self.tree.holders.remove(claim.victim)
            taken.append((claim.victim, claim.why or Reason.RECLAIMED_IN_COHORT))
            if self.fits(borrowing=borrowing):
                return self.fill_back(taken, borrowing=borrowing)
        self.tree.holders.extend(victim for victim, _ in taken)
        return {}

    def valid(self, claim: Claim, *, borrowing: bool) -> bool:
        """Whether somebody may be taken now: its queue and every cohort below the common one are over their quota."""
        if claim.top is None:
            return True
        if borrowing and claim.why is Reason.NONE:
            return False
        at = self.tree.queue(claim.victim.queue)
        while at is not claim.top:
            if not self.tree.over(at, self.need):
                return False
            at = at.parent
        return True


class _Fair(_Search):
    def victims(self) -> Victims:
        tree, root = self.tree, self.node.root()
        if not self.node.parent:
            foreign = []
        else:
            foreign = [n for n in tree.nodes.values() if n.queue and n is not self.node and n.root() is root]
        over = {n.queue.name for n in foreign if tree.over(n, self.need)}
        candidates = [v for v in tree.holders if (v.queue == self.who.queue or v.queue in over) and self.allowed(v)]
        self.lines = self.lined_up(candidates)
        self.pruned: set[Node] = set()
        asking = Holder(id="", queue=self.who.queue, amounts=self.who.amounts, priority=0, submitted_ms=0)
        tree.holders.append(asking)
        self.asking, self.taken, self.rejected = asking, [], []
        done = self.first() or (len(tree.strategies) > 1 and self.second())
        tree.holders.remove(asking)
        if done:
            return self.fill_back(self.taken, borrowing=True)
        tree.holders.extend(victim for victim, _ in self.taken)
        return {}

    def lined_up(self, candidates: list[Holder]) -> dict[str, list[Holder]]:
        lines: dict[str, list[Holder]] = {}
        for victim in sorted(candidates, key=self.rank):
            lines.setdefault(victim.queue, []).append(victim)
        return lines

    def take(self, queue: str, why: Reason) -> bool:
        victim = self.lines[queue].pop(0)
        self.tree.holders.remove(victim)
        self.taken.append((victim, why))
        self.tree.holders.remove(self.asking)
        fits = self.fits(borrowing=True)
        self.tree.holders.append(self.asking)
        return fits

    def targets(self) -> Iterator[Node]:
        """Queues to take from, until there are none."""
        if not self.node.parent:
            while self.lines.get(self.who.queue) and self.node not in self.pruned:
                yield self.node
            return
        root = self.node.root()
        while root not in self.pruned:
            target = self.descend(root)
            if target is not None:
                yield target

    def descend(self, cohort: Node) -> Node | None:
        tree, path = self.tree, {self.node, *self.node.up()}
        for child in cohort.queues:
            if not self.lines.get(child.queue.name) or (tree.ratio(child) < 0 and child is not self.node):
                self.pruned.add(child)
        for child in cohort.cohorts:
            if tree.ratio(child) < 0 and child not in path:
                self.pruned.add(child)
        queues = [child for child in cohort.queues if child not in self.pruned]
        cohorts = [child for child in cohort.cohorts if child not in self.pruned]
        if not queues and not cohorts:
            self.pruned.add(cohort)
            return None

        def by_share(one: Node, other: Node) -> int:
            return tree.compare(one, tree.ratio(one), other, tree.ratio(other))

        def by_share_and_first(one: Node, other: Node) -> int:
            first, second = (self.rank(self.lines[node.queue.name][0]) for node in (one, other))
            return by_share(one, other) or (1 if first < second else -1)

        queue = max(queues, key=cmp_to_key(by_share_and_first)) if queues else None
        below = max(reversed(cohorts), key=cmp_to_key(by_share)) if cohorts else None
        if below is None or (queue is not None and by_share(below, queue) < 0):
            return queue
        return self.descend(below)

    def nearest(self, target: Node) -> tuple[Node, Node]:
        """The branches below the lowest cohort that the preemptor and a target share."""
        mine, its = [self.node, *self.node.up()], [target, *target.up()]
        common = next(node for node in mine if node in its)
        return mine[mine.index(common) - 1], its[its.index(common) - 1]

    def first(self) -> bool:
        entitled = not self.tree.over(self.node, self.need)
        for target in self.targets():
            name = target.queue.name
            if target is self.node or entitled:
                why = Reason.PREEMPTED_IN_QUEUE if target is self.node else Reason.RECLAIMED_IN_COHORT
                if self.take(name, why):
                    return True
                continue
            while self.lines[name]:
                if not self.is_fair(target, self.lines[name][0]):
                    self.rejected.append(self.lines[name].pop(0))
                    continue
                if self.take(name, Reason.PREEMPTED_FOR_SHARE):
                    return True
                break
        return False

    def is_fair(self, target: Node, victim: Holder) -> bool:
        tree, (mine, its) = self.tree, self.nearest(target)
        my, old = tree.ratio(mine), tree.ratio(its)
        if tree.strategies[0] is FairStrategy.INITIAL_SHARE:
            return tree.compare(mine, my, its, old) < 0
        tree.holders.remove(victim)
        fair = tree.compare(mine, my, its, tree.ratio(its)) <= 0
        tree.holders.append(victim)
        return fair

    def second(self) -> bool:
        self.lines, self.pruned = self.lined_up(self.rejected), set()
        for target in self.targets():
            self.pruned.add(target)
            if target is self.node:
                continue
            mine, its = self.nearest(target)
            if self.tree.compare(mine, self.tree.ratio(mine), its, self.tree.ratio(its)) < 0 and self.take(
                target.queue.name, Reason.PREEMPTED_FOR_SHARE
            ):
                return True
        return False
