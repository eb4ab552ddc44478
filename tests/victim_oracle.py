"""The victims of one workload by brute force: every legal set of them, and every placement, on a small cluster.

Written from the rules, not from the kernels. Quota is the matter of `quota_oracle`; it must be of one resource in one
flavor. Who is a victim:

- Legal is whom Kueue's rules allow, in some order. Where quota is enough and only places are lacking, the same work may
  be taken as if quota were lacking. Work that is leaving already is as good as gone, and costs nothing.
- Of sets that are enough, one of the lowest level is best: the level is the claim (quota that others borrowed, then
  borrowing in the cohort, then the same queue) and then the priority of the victim that ranks highest.
- Of these the one that loses the least work is best.

Slow, and meant to be: a dozen candidates at most. Must not know: the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from quota_oracle import Claim, Holder, Lot, Oracle
from tidegate.model.hardware import Node, TaintEffect
from tidegate.model.queues import FairStrategy, PreemptWhom, QueueSetup
from tidegate.model.work import PodSet, Share, Work

WHOLE = 1000

#: The claim on a victim and its priority; nobody: below all of them.
Level = tuple[int, int]
NO_LEVEL: Level = (-1, 0)


def work_lost(work: Work, ran_ms: int) -> int:
    """What preempting a workload costs, in thousandths of a GPU times milliseconds."""
    since = ran_ms % work.checkpoint_every_ms if work.checkpoint_every_ms else ran_ms
    return max(gpu_milli(work), 1) * (since + work.restart_cost_ms)


def gpu_milli(work: Work) -> int:
    """Thousandths of GPUs that all pods of a workload hold."""
    return sum(pods.count * pods.gpu.count * _milli(pods) for pods in work.pod_sets)


def _milli(pods: PodSet) -> int:
    """What a pod takes of each of its devices."""
    if pods.gpu.share is Share.FRACTION:
        return pods.gpu.milli
    return WHOLE if pods.gpu.share is Share.WHOLE else 0


# -- places ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundPod:
    """A pod that has its place: on these devices of a node."""

    node: str
    pods: PodSet  # the set that it is one of
    devices: tuple[int, ...] = ()


@dataclass
class Room:
    """What is free of one node."""

    node: Node
    cpu: int
    memory: int
    pods: int
    milli: list[int]  # by device
    vram: list[int]

    @classmethod
    def of(cls, node: Node, broken: Iterable[int] = ()) -> Room:
        has, reserved, count = dict(node.shape.capacity), dict(node.shape.reserved), node.shape.gpu_count
        cpu, memory = (has.get(name, 0) - reserved.get(name, 0) for name in ("cpu", "memory"))
        milli = [0 if device in set(broken) else WHOLE for device in range(count)]
        return cls(node, cpu, memory, has.get("pods", 0), milli, [node.shape.gpu_memory_mib] * count)

    def take(self, pods: PodSet, devices: Iterable[int], sign: int = 1) -> None:
        """Take what one pod asks for; sign -1 gives it back."""
        asked = dict(pods.request)
        self.cpu -= sign * asked.get("cpu", 0)
        self.memory -= sign * asked.get("memory", 0)
        self.pods -= sign
        for device in devices:
            self.milli[device] -= sign * _milli(pods)
            self.vram[device] -= sign * pods.gpu.memory_mib

    def choices(self, pods: PodSet) -> Iterator[tuple[int, ...]]:
        """The devices that one pod could have here; of choices that come to the same only one."""
        asked = dict(pods.request)
        if not accepts(self.node, pods) or self.pods < 1:
            return
        if self.cpu < asked.get("cpu", 0) or self.memory < asked.get("memory", 0):
            return
        if pods.gpu.share is Share.NONE:
            yield ()
        elif pods.gpu.share is Share.WHOLE:
            idle = [device for device, milli in enumerate(self.milli) if milli == WHOLE]
            if len(idle) >= pods.gpu.count and self.node.shape.gpu_memory_mib >= pods.gpu.memory_mib:
                yield tuple(idle[: pods.gpu.count])
        else:
            seen = set()
            for device, left in enumerate(zip(self.milli, self.vram, strict=True)):
                fits = left[0] >= pods.gpu.milli and left[1] >= pods.gpu.memory_mib
                if fits and left not in seen:
                    seen.add(left)
                    yield (device,)


def accepts(node: Node, pods: PodSet) -> bool:
    """Whether a node takes such pods at all, however full it is."""
    has = dict(node.labels)
    if not node.ready or node.unschedulable or any(has.get(key) != value for key, value in pods.selector):
        return False
    if pods.terms and not any(term.holds(has) for term in pods.terms):
        return False
    if pods.gpu.models and node.shape.gpu_model not in pods.gpu.models:
        return False
    hard = [taint for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE]
    return all(any(toleration.tolerates(taint) for toleration in pods.tolerations) for taint in hard)


def can_place(rooms: list[Room], sets: tuple[PodSet, ...]) -> bool:
    """Whether there is a place for every pod, each set within one domain of its required level."""
    if not sets:
        return True
    first, rest = sets[0], sets[1:]
    level = first.topology.required
    domains = {dict(room.node.labels).get(level) for room in rooms} if level else {None}
    for domain in sorted(domains, key=str):
        inside = [room for room in rooms if not level or dict(room.node.labels).get(level) == domain]
        if (not level or domain is not None) and _place_set(rooms, inside, first, first.count, rest):
            return True
    return False


def _place_set(rooms: list[Room], inside: list[Room], pods: PodSet, left: int, rest: tuple[PodSet, ...]) -> bool:
    """Place what is left of a set on some nodes, in their order, and the other sets after it."""
    if left == 0:
        return can_place(rooms, rest)
    for at, room in enumerate(inside):
        for devices in room.choices(pods):
            room.take(pods, devices)
            fits = _place_set(rooms, inside[at:], pods, left - 1, rest)
            room.take(pods, devices, -1)
            if fits:
                return True
    return False


# -- victims ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A workload that has its places."""

    holder: Holder
    pods: tuple[BoundPod, ...]
    lost: int = 0  # what preempting it costs


@dataclass
class Situation:
    """A cluster, and a workload that wants to start."""

    nodes: list[Node]
    shares: QueueSetup
    running: list[Running]
    preemptor: Holder
    pod_sets: tuple[PodSet, ...]
    broken: dict[str, tuple[int, ...]] = field(default_factory=dict)  # devices by node


class Answer(NamedTuple):
    """What the oracle found."""

    feasible: bool
    victims: frozenset[str] = frozenset()
    lost: int = 0
    level: Level = NO_LEVEL


INFEASIBLE = Answer(False)


def _amount(claim: Claim) -> int:
    return sum(amount for _, amount in claim.victim.amounts)


class VictimOracle:
    """Everything that can be asked about one situation."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.by_id = {running.holder.id: running for running in situation.running}
        holders = [running.holder for running in situation.running]
        self.leaving = [holder for holder in holders if holder.leaving]
        self.tree = Oracle(situation.shares, [holder for holder in holders if not holder.leaving])
        self.asked = dict(situation.preemptor.amounts)
        self.search = self.tree.search(situation.preemptor, self._need())
        self.claims = self._claims()
        self.candidates = sorted(self.claims)

    def _need(self) -> set[Lot]:
        """What takes preemption: what there is no quota for; where there is enough, all that is asked for."""
        node = self.tree.queue(self.situation.preemptor.queue)
        short = {lot for lot, amount in self.asked.items() if amount > max(0, self.tree.available(node, lot))}
        return short or {lot for lot, amount in self.asked.items() if amount}

    def _claims(self) -> dict[str, Claim]:
        if not self.tree.fair:
            return {claim.victim.id: claim for claim in self.search.claims()}
        search, node = self.search, self.search.node
        near = {n.queue.name for n in self.tree.nodes.values() if n.queue and n.root() is node.root()}
        over = {name for name in near if self.tree.over(self.tree.queue(name), search.need)}
        legal = [v for v in self.tree.holders if v.queue in {*over, node.queue.name} and search.allowed(v)]
        return {v.id: Claim(2 if v.queue == node.queue.name else 0, v, None, 0) for v in legal}

    def could_take(self, leaver: Holder) -> bool:
        """Whether somebody who leaves could have been preempted, if he had not left by himself."""
        if self.tree.fair or not self.search.allowed(leaver):
            return self.search.allowed(leaver)
        before, self.tree.holders = self.tree.holders, [*self.tree.holders, *self.leaving]
        claims = self.search.claims()
        self.tree.holders = before
        return any(claim.victim.id == leaver.id for claim in claims)

    def lost(self, victims: Iterable[str]) -> int:
        """The work that these victims lose."""
        return sum(self.by_id[victim].lost for victim in victims)

    def level(self, victims: Iterable[str]) -> Level:
        """The level of a set of victims: that of the one that ranks highest."""
        claims = [self.claims[victim] for victim in victims]
        return max(((claim.rank, claim.victim.priority) for claim in claims), default=NO_LEVEL)

    # -- what is enough ----------------------------------------------------------------------------------------

    def rooms(self, gone: Iterable[str]) -> list[Room]:
        """What is free once these are gone."""
        rooms = {node.name: Room.of(node, self.situation.broken.get(node.name, ())) for node in self.situation.nodes}
        for running in self.situation.running:
            for pod in running.pods if running.holder.id not in gone else ():
                rooms[pod.node].take(pod.pods, pod.devices)
        return list(rooms.values())

    def has_places(self, victims: Iterable[str]) -> bool:
        """Whether there is a place for every pod once these, and those who leave, are gone."""
        gone = {*victims, *(holder.id for holder in self.leaving)}
        return can_place(self.rooms(gone), self.situation.pod_sets)

    def has_quota(self, victims: Iterable[str], *, borrowing: bool = True) -> bool:
        """Whether there is quota once these, and those who leave, are gone."""
        gone = {*victims, *(holder.id for holder in self.leaving)}
        before, self.tree.holders = self.tree.holders, [v for v in self.tree.holders if v.id not in gone]
        fits = self.search.fits(borrowing=borrowing)
        self.tree.holders = before
        return fits

    def is_enough(self, victims: Iterable[str]) -> bool:
        """Whether the workload could start once these, and those who leave, are gone."""
        return self.has_places(victims) and self.has_quota(victims)

    # -- what is legal -----------------------------------------------------------------------------------------

    def is_legal(self, victims: Iterable[str]) -> bool:
        """Whether these may be preempted together."""
        victims = list(victims)
        if not all(victim in self.candidates for victim in victims):
            return False
        if self.tree.fair:
            return self._is_fair(victims)
        return any(self._is_legal_so(victims, borrowing=borrowing) for borrowing in self._attempts())

    def spares(self, victims: list[str]) -> list[str]:
        """The victims without whom the others are enough in the attempt in which all of them are preempted."""
        attempt = next((each for each in self._attempts() if self._is_legal_so(victims, borrowing=each)), None)
        if attempt is None:
            return []
        rest = {victim: [other for other in victims if other != victim] for victim in victims}
        return [v for v in victims if self.has_places(rest[v]) and self._is_legal_so(rest[v], borrowing=attempt)]

    def _attempts(self) -> list[bool]:
        """Whether the workload may borrow, attempt by attempt.

        Kueue's: who lacks quota, asks for more than its queue owns, and may not preempt to borrow, preempts nobody,
        unless a cohort below the root owns enough.
        """
        tree, node = self.tree, self.search.node
        short = [lot for lot in self.search.need if self.asked[lot] > max(0, tree.available(node, lot))]
        above = any(self.asked[lot] > node.nominal.get(lot, 0) and self._borrows_at_root(lot) for lot in short)
        if above and self.search.rule.borrow_in_cohort is PreemptWhom.NEVER:
            return []
        return self.search.attempts(list(self.claims.values()))

    def _borrows_at_root(self, lot: Lot) -> bool:
        """Whether no cohort below the root has quota for what the workload asks for."""
        tree, node, rest = self.tree, self.search.node, self.asked[lot]
        while node.parent is not None:
            if not tree.borrows(node, lot, rest):
                return False
            rest -= tree.own_left(node, lot)
            node = node.parent
        return True

    def _is_legal_so(self, victims: list[str], *, borrowing: bool) -> bool:
        """Whether these may be taken one after the other, and leave quota enough; the smallest first is easiest."""
        claims = sorted((self.claims[victim] for victim in victims), key=_amount)
        before, self.tree.holders = self.tree.holders, list(self.tree.holders)
        legal = True
        for claim in claims:
            valid = self.search.valid(claim, borrowing=borrowing)
            legal = legal and valid
            if valid:
                self.tree.holders.remove(claim.victim)
        legal = legal and self.search.fits(borrowing=borrowing)
        self.tree.holders = before
        return legal

    def _is_fair(self, victims: list[str]) -> bool:
        """Whether it is fair that these leave: the preemptor is entitled to it, or its share stays the lower one."""
        tree, node = self.tree, self.search.node
        before = tree.holders
        asked = self.situation.preemptor.amounts
        tree.holders = [*before, Holder(id="", queue=node.queue.name, amounts=asked, priority=0, submitted_ms=0)]
        entitled = not tree.over(node, self.search.need)
        foreign = [self.by_id[v].holder for v in victims if self.by_id[v].holder.queue != node.queue.name]
        tree.holders = [v for v in tree.holders if v.id not in victims]
        fair = entitled or all(self._is_fair_to(victim) for victim in foreign)
        tree.holders = before
        return fair

    def _is_fair_to(self, victim: Holder) -> bool:
        """Whether one victim may be taken for the sake of a share, now that all others are gone."""
        tree, search = self.tree, self.search
        mine, its = search.nearest(tree.queue(victim.queue))
        ratio, final = tree.ratio(mine), tree.ratio(its)
        tree.holders.append(victim)
        initial = tree.ratio(its)
        tree.holders.remove(victim)
        if FairStrategy.FINAL_SHARE in tree.strategies and tree.compare(mine, ratio, its, final) <= 0:
            return True
        return FairStrategy.INITIAL_SHARE in tree.strategies and tree.compare(mine, ratio, its, initial) < 0

    # -- what is best ------------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        """The best set of victims, or that there is none. Not for fair sharing, which knows no levels."""
        assert not self.tree.fair
        if self.is_enough(()):
            return Answer(True)
        if not self.has_places(self.candidates):
            return INFEASIBLE
        ranked = self._sets()
        for borrowing in self._attempts():
            for victims in ranked:
                if self.has_places(victims) and self._is_legal_so(list(victims), borrowing=borrowing):
                    return Answer(True, frozenset(victims), self.lost(victims), self.level(victims))
        return INFEASIBLE

    def _sets(self) -> list[tuple[str, ...]]:
        """Every set of candidates, the best first."""
        sets = [some for size in range(1, len(self.candidates) + 1) for some in combinations(self.candidates, size)]
        return sorted(sets, key=lambda some: (self.level(some), self.lost(some), len(some), some))
