"""Which pods fill which places of a workload.

A workload is decided on as ordinals; pods come and go under names of their own. A roster has a slot for each ordinal:
the node that was decided, and the pod that fills it. Who fills which slot of a set makes no difference: all are alike.
Must not know: facts, writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from types import MappingProxyType

from tidegate.kube.mirror.jobs import SeenJob
from tidegate.kube.transport.writes import Ref
from tidegate.model.decisions import NOBODY
from tidegate.model.spec import Resources
from tidegate.model.work import PodSet, Work

# One for all: there are a hundred thousand rosters.
_NONE: Mapping[int, int] = MappingProxyType({})
_NO_FLAVORS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class WorkloadKind(IntEnum):
    """What a workload is made of."""

    POD = 0  # one pod, which nobody makes again
    GROUP = 1  # pods that say that they belong together
    JOB = 2  # an object whose controller makes pods, and makes them again


class WorkloadStage(IntEnum):
    """How far a workload is."""

    WAITING = 0
    PLACED = 1
    LEAVING = 2


class NodesRequested(IntEnum):
    """Whether nodes were asked for a workload."""

    NO = 0
    PERHAPS = 1  # by who led before us
    YES = 2


@dataclass(slots=True)
class PodSlot:
    """A place in a workload."""

    node: int = NOBODY  # number of the node that was decided
    decision: int = NOBODY
    pod: str = ""  # uid of who fills it
    bound: bool = False  # the world shows its pod on a node
    started: bool = False
    told: bool = False  # we asked for its pod to be bound
    lifted_to: int = NOBODY  # number of the node that its pod was sent to by a node selector
    claims: int = 0  # writes to its pod's claims that are still to come before it is bound
    done: bool = False  # its pod succeeded
    spare: bool = False  # nobody fills it any more, and what it held was given back

    def give_up(self) -> None:
        """Nothing is decided for it any more."""
        self.node, self.decision, self.told, self.spare, self.claims = NOBODY, NOBODY, False, False, 0

    def empty(self) -> None:
        """Its pod is gone; the place stays."""
        if self.bound:
            self.decision = NOBODY  # it was carried out: what becomes of the next pod is no answer to it
        self.pod, self.bound, self.started, self.told, self.claims = "", False, False, False, 0
        self.lifted_to = NOBODY

    def waits_for(self, decisions: tuple[int, ...]) -> bool:
        """Whether what was ordered for it is still under way, for one of these decisions if there are any."""
        return self.told and (not decisions or self.decision in decisions)

    @property
    def holds(self) -> bool:
        """Whether its pod has, or may get, room on a node."""
        return bool(self.pod) and (self.bound or self.told)


@dataclass(slots=True)
class WorkloadPods:
    """A workload: its slots, and who fills them."""

    number: int
    kind: WorkloadKind
    ref: Ref
    work: Work
    job: SeenJob | None = None  # as it was seen last
    stage: WorkloadStage = WorkloadStage.WAITING
    comes_back: bool = False  # placed anew while it leaves: it starts when everybody has left
    next_places: dict[int, tuple[int, int]] | None = None  # of its slots when it comes back: node and decision
    next_granted: Mapping[int, int] = field(default_factory=lambda: _NONE)  # the same of pods by pod set
    stopping: bool = False  # the write that stops it is under way
    stops: int = 0  # how often it was stopped again because its owner had resumed it
    started_at: int = 0  # generation of the job that the write which started it was made from; 0: none was done
    trimmed: int = 0  # generation of the job at which its size was set back, or its growth was reported
    noted: tuple[int, int] = (0, 0)  # generation of the job at which it was noted that it holds so many pods only
    undoing: str = ""  # version of the job in which we take back what we wrote; empty: we do not
    asked: NodesRequested = NodesRequested.NO
    starts_after: bool = False  # it starts when that is done
    granted: Mapping[int, int] = field(default_factory=lambda: _NONE)  # pods by pod set, where not all were
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_FLAVORS)  # admitted with, by pod set
    slots: list[PodSlot] = field(default_factory=list)
    admitted_ms: int = 0  # when it was admitted; 0: it is not, or nobody knows
    start_failed: bool = False  # it never ran: its latest start could not be written
    quota_text: str = ""  # the quota that it holds, for people to read
    ended: tuple[str, ...] = ()  # uids of pods of a group that have done their work: they still belong to it
    _latest: dict[int, int] | None = None  # by the first slot of a set: the one filled last; None: none of many

    def __post_init__(self) -> None:
        self.resize(self.work)

    def resize(self, work: Work) -> None:
        """Have the slots that the work asks for, all empty."""
        self.work, self.granted = work, _NONE
        self._lay_out()

    def grant(self, pod_set: int, pods: int) -> None:
        """Have fewer slots in a set than the work asks for, all empty."""
        self.granted = {**self.granted, pod_set: pods}
        self._lay_out()

    def note_grant(self, pod_set: int, pods: int, *, partly: bool) -> None:
        """Note that it comes back with fewer pods than it asks for, if it is still leaving."""
        if partly and self.stage is WorkloadStage.LEAVING:
            self.next_granted = {**self.next_granted, pod_set: pods}

    def place_next(self, ordinal: int, node: int, decision: int) -> None:
        """Note where a slot has its place when the workload comes back: until then its pods keep theirs."""
        self.next_places = {} if self.next_places is None else self.next_places
        self.next_places[ordinal] = (node, decision)

    def grant_next(self) -> None:
        """Have the slots that it comes back with, all empty."""
        self.granted = self.next_granted
        self._lay_out()

    def take_next_places(self) -> None:
        """Have the places that it comes back to."""
        for ordinal, (node, decision) in (self.next_places or {}).items():
            if ordinal < len(self.slots):
                self.slots[ordinal].node, self.slots[ordinal].decision = node, decision
        self._forget_next()

    def _forget_next(self) -> None:
        self.comes_back, self.next_places, self.next_granted = False, None, _NONE

    def admit(self, pod_set: str, flavor: str) -> None:
        """A pod set was admitted with a flavor; it may have one more for other resources."""
        known = self.flavors.get(pod_set, ())
        if flavor not in known:
            self.flavors = {**self.flavors, pod_set: (*known, flavor)}

    def lose_quota(self) -> None:
        """It is not admitted any more."""
        self.flavors = _NO_FLAVORS

    def _lay_out(self) -> None:
        self._latest = None
        count = sum(pods for _, pods in self.sizes())
        self.slots = [PodSlot()] if count == 1 else [PodSlot() for _ in range(count)]  # which has room for no other

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The pod sets, and how many slots each has."""
        for number, pods in enumerate(self.work.pod_sets):
            yield pods.name, self.granted.get(number, pods.count)

    @property
    def suspended(self) -> bool:
        """Whether it is a job that is suspended."""
        return self.job is not None and self.job.suspended

    @property
    def is_gated(self) -> bool:
        """Whether it is a job that is held by gates on its pods: it cannot be suspended."""
        return self.job is not None and not self.job.handling.suspend

    @property
    def may_be_edited(self) -> bool:
        """Whether it is made of pods that nobody makes again, none of which was sent to a node."""
        if self.kind is WorkloadKind.JOB or self.stage is WorkloadStage.LEAVING:
            return False
        return not any(slot.told or slot.bound for slot in self.slots)

    @property
    def is_done(self) -> bool:
        """Whether all its pods have done their work."""
        return all(slot.done for slot in self.slots)

    @property
    def id(self) -> str:
        """What people call it: no two kinds of work share it, "team-a/job.batch/train"."""
        return self.ref.text

    def seat(self, pod: str, pod_set: str) -> int:
        """Let a pod fill a free slot of its set; -1 if there is none. It looks on from the latest that was filled."""
        ordinals = self.ordinals(pod_set)
        begin = max(self._latest.get(ordinals.start, 0), ordinals.start) if self._latest else ordinals.start
        for ordinal in chain(range(begin, ordinals.stop), range(ordinals.start, min(begin, ordinals.stop))):
            slot = self.slots[ordinal]
            if not slot.pod and not slot.spare:
                slot.pod, slot.done = pod, False
                if len(ordinals) > 1:
                    self._latest = {**(self._latest or {}), ordinals.start: ordinal}
                return ordinal
        return -1

    def end(self, pod: str, *, done: bool) -> None:
        """Note that a pod is over: one of a group that has done its work still counts where the group breaks."""
        if done and self.kind is WorkloadKind.GROUP:
            self.ended += (pod,)

    def leave(self) -> None:
        """It is evicted."""
        self.lose_quota()
        self._forget_next()
        self.stage, self.starts_after, self.started_at = WorkloadStage.LEAVING, False, 0

    def note_start(self, generation: int) -> None:
        """Note that the write that starts its job, made from this generation, was done."""
        if self.stage is WorkloadStage.PLACED:
            self.started_at = generation

    def is_stopped(self, job: SeenJob) -> bool:
        """Whether somebody else has suspended the job since it was started, be it before it was seen to be started.

        Its start is one generation, and whatever suspends it after that is another.
        """
        if self.stage is not WorkloadStage.PLACED or not job.suspended:
            return False
        return not self.suspended or 0 < self.started_at < job.generation - 1

    def is_filled(self, ordinal: int, pod: str) -> bool:
        """Whether a pod still fills a slot."""
        return ordinal < len(self.slots) and self.slots[ordinal].pod == pod

    def ordinals(self, pod_set: str) -> range:
        """The slots of a pod set; of the only one, if there is one only."""
        first = 0
        if len(self.work.pod_sets) == 1:
            return range(len(self.slots))
        for name, pods in self.sizes():
            if name == pod_set:
                return range(first, first + pods)
            first += pods
        return range(0)

    def set_at(self, ordinal: int) -> str:
        """The pod set that a slot belongs to."""
        return next((name for name, _ in self.sizes() if ordinal in self.ordinals(name)), "")

    def request_at(self, ordinal: int) -> Resources:
        """What is held of a node for the pod of a slot, GPUs apart."""
        sets = self.work.pod_sets
        name = sets[0].name if len(sets) == 1 else self.set_at(ordinal)
        return next((pods.request for pods in sets if pods.name == name), ())

    def set_of(self, role: str, asks: PodSet) -> str:
        """The pod set of a pod that its labels call so; of one that they say nothing of, the set that asks the same."""
        named = self.job.handling.pod_set(role) if self.job is not None else role
        sets = self.work.pod_sets
        if any(pods.name == named for pods in sets):
            return named
        return next((pods.name for pods in sets if (pods.request, pods.gpu) == (asks.request, asks.gpu)), "")

    def to_spare(self, pod_set: str, pods: int) -> list[int]:
        """Slots of a set that nobody will fill any more, where so many of it are done with."""
        ordinals = self.ordinals(pod_set)
        left = pods - sum(self.slots[ordinal].spare for ordinal in ordinals)
        free = [ordinal for ordinal in ordinals if not self.slots[ordinal].pod and not self.slots[ordinal].spare]
        return free[: max(left, 0)]

    def kept(self, spared: Collection[int]) -> dict[str, list[int]]:
        """The slots by pod set, without those that are spare or are to be."""
        gone = frozenset(spared)
        return {
            name: [at for at in self.ordinals(name) if not self.slots[at].spare and at not in gone]
            for name, _ in self.sizes()
        }

    def spares(self) -> int:
        """How many slots nobody fills any more."""
        return sum(slot.spare for slot in self.slots)

    def give_up_places(self) -> None:
        """Nothing is decided any more: it waits again."""
        self.lose_quota()
        self._forget_next()
        self.stage, self.started_at = WorkloadStage.WAITING, 0
        for slot in self.slots:
            slot.give_up()

    def holders(self) -> Iterator[PodSlot]:
        """Slots whose pods have, or may get, room on a node."""
        return (slot for slot in self.slots if slot.holds)
