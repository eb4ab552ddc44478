"""The pods of a workload: a slot for each ordinal of the engine, with the decided node and the pod in it.

The engine decides on ordinals; pods come and go under their own names. Pods of a pod set are interchangeable, so any
of them may take any slot of the set. A slot is also the expectation of a write: what was requested and not yet seen.
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
from tidegate.model.struct import Resources
from tidegate.model.work import PodSet, Work

# Shared by all: there are many workloads.
_NONE: Mapping[int, int] = MappingProxyType({})
_NO_FLAVORS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class WorkloadKind(IntEnum):
    """The kind of a workload."""

    POD = 0  # one pod, which is not created again
    GROUP = 1  # a pod group
    JOB = 2  # a job, whose controller creates its pods again


class WorkloadStage(IntEnum):
    """The stage of a workload."""

    WAITING = 0
    PLACED = 1
    EVICTED = 2


class NodesRequested(IntEnum):
    """Whether nodes were requested for a workload."""

    NO = 0
    PERHAPS = 1  # by the previous leader
    YES = 2


@dataclass(slots=True)
class PodSlot:
    """The slot of one pod in a workload."""

    node: int = NOBODY  # number of the decided node
    decision: int = NOBODY
    pod: str = ""  # uid of its pod
    bound: bool = False  # its pod is observed on a node
    started: bool = False
    requested: bool = False  # its binding, or the removal of its gate, was requested
    ungated_to: int = NOBODY  # number of the node in the node selector that its pod got
    claims: int = 0  # writes to its pod's claims before it is bound
    done: bool = False  # its pod succeeded
    reclaimed: bool = False  # its pod is not created again, and its quota was released

    def clear_decision(self) -> None:
        """Clear the decision."""
        self.node, self.decision, self.requested, self.reclaimed, self.claims = NOBODY, NOBODY, False, False, 0

    def empty(self) -> None:
        """Remove its pod, and keep the decided node."""
        if self.bound:
            self.decision = NOBODY  # it was carried out: the next pod's outcome does not belong to it
        self.pod, self.bound, self.started, self.requested, self.claims = "", False, False, False, 0
        self.ungated_to = NOBODY

    def waits_for(self, decisions: tuple[int, ...]) -> bool:
        """Whether a write for it is in flight, for one of these decisions if there are any."""
        return self.requested and (not decisions or self.decision in decisions)

    @property
    def holds(self) -> bool:
        """Whether its pod is bound, or may become bound."""
        return bool(self.pod) and (self.bound or self.requested)


@dataclass(slots=True)
class WorkloadPods:
    """A workload with its slots."""

    number: int
    kind: WorkloadKind
    ref: Ref
    work: Work
    job: SeenJob | None = None  # as last observed
    stage: WorkloadStage = WorkloadStage.WAITING
    starts_again: bool = False  # placed again while it is evicted: it starts when its pods are gone
    next_places: dict[int, tuple[int, int]] | None = None  # of its slots when it starts again: node and decision
    next_granted: Mapping[int, int] = field(default_factory=lambda: _NONE)  # the same of pods by pod set
    stopping: bool = False  # the write that stops it is in flight
    stops: int = 0  # how often it was stopped again because its owner unsuspended it
    started_at: int = 0  # generation of the job from which the write that started it was made; 0: none
    trimmed: int = 0  # generation at which its size was set back, or its growth was reported
    noted: tuple[int, int] = (0, 0)  # generation and number of pods in its latest annotation about a smaller size
    undoing: str = ""  # version of the job whose changes are being undone; empty: none
    asked: NodesRequested = NodesRequested.NO
    starts_after: bool = False  # it starts when the undo is done
    granted: Mapping[int, int] = field(
        default_factory=lambda: _NONE
    )  # admitted pods by pod set, where fewer than requested
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_FLAVORS)  # of the admission, by pod set
    slots: list[PodSlot] = field(default_factory=list)
    admitted_ms: int = 0  # when it was admitted; 0: it is not, or unknown
    start_failed: bool = False  # its latest start could not be written
    quota_text: str = ""  # the quota that it holds, as text
    ended: tuple[str, ...] = ()  # uids of pods of a group that succeeded: they still belong to it
    _latest: dict[int, int] | None = None  # by the first slot of a set: the slot assigned last

    def __post_init__(self) -> None:
        self.resize(self.work)

    def resize(self, work: Work) -> None:
        """Lay out empty slots for these requests."""
        self.work, self.granted = work, _NONE
        self._lay_out()

    def grant(self, pod_set: int, pods: int) -> None:
        """Lay out fewer slots for a pod set that is admitted partially."""
        self.granted = {**self.granted, pod_set: pods}
        self._lay_out()

    def note_grant(self, pod_set: int, pods: int, *, partly: bool) -> None:
        """Note a partial admission for its next start, while its evicted pods are still there."""
        if partly and self.stage is WorkloadStage.EVICTED:
            self.next_granted = {**self.next_granted, pod_set: pods}

    def place_next(self, ordinal: int, node: int, decision: int) -> None:
        """Note the node of a slot for the next start; until then its evicted pods keep their nodes."""
        self.next_places = {} if self.next_places is None else self.next_places
        self.next_places[ordinal] = (node, decision)

    def grant_next(self) -> None:
        """Lay out the slots of the next start, all empty."""
        self.granted = self.next_granted
        self._lay_out()

    def take_next_places(self) -> None:
        """Assign the nodes of the next start."""
        for ordinal, (node, decision) in (self.next_places or {}).items():
            if ordinal < len(self.slots):
                self.slots[ordinal].node, self.slots[ordinal].decision = node, decision
        self._forget_next()

    def _forget_next(self) -> None:
        self.starts_again, self.next_places, self.next_granted = False, None, _NONE

    def admit(self, pod_set: str, flavor: str) -> None:
        """Add a flavor that a pod set was admitted with."""
        known = self.flavors.get(pod_set, ())
        if flavor not in known:
            self.flavors = {**self.flavors, pod_set: (*known, flavor)}

    def lose_quota(self) -> None:
        """Forget the admission."""
        self.flavors = _NO_FLAVORS

    def _lay_out(self) -> None:
        self._latest = None
        count = sum(pods for _, pods in self.sizes())
        self.slots = [PodSlot()] if count == 1 else [PodSlot() for _ in range(count)]  # a list of exact size

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The pod sets, and how many slots each has."""
        for number, pods in enumerate(self.work.pod_sets):
            yield pods.name, self.granted.get(number, pods.count)

    @property
    def suspended(self) -> bool:
        """Whether its job is suspended."""
        return self.job is not None and self.job.suspended

    @property
    def is_gated(self) -> bool:
        """Whether it is a job that cannot be suspended and is held by gates on its pods."""
        return self.job is not None and not self.job.adapter.suspend

    @property
    def may_be_edited(self) -> bool:
        """Whether it is a pod or group, none of whose pods is bound or being bound."""
        if self.kind is WorkloadKind.JOB or self.stage is WorkloadStage.EVICTED:
            return False
        return not any(slot.requested or slot.bound for slot in self.slots)

    @property
    def is_done(self) -> bool:
        """Whether all its pods succeeded."""
        return all(slot.done for slot in self.slots)

    @property
    def id(self) -> str:
        """Its name in logs and Events, unique among kinds: "team-a/job.batch/train"."""
        return self.ref.text

    def seat(self, pod: str, pod_set: str) -> int:
        """Assign a pod to a free slot of its set; -1 if there is none. It continues from the latest one."""
        ordinals = self.ordinals(pod_set)
        begin = max(self._latest.get(ordinals.start, 0), ordinals.start) if self._latest else ordinals.start
        for ordinal in chain(range(begin, ordinals.stop), range(ordinals.start, min(begin, ordinals.stop))):
            slot = self.slots[ordinal]
            if not slot.pod and not slot.reclaimed:
                slot.pod, slot.done = pod, False
                if len(ordinals) > 1:
                    self._latest = {**(self._latest or {}), ordinals.start: ordinal}
                return ordinal
        return -1

    def end(self, pod: str, *, done: bool) -> None:
        """Note that a pod ended: one of a group that succeeded still belongs to the group."""
        if done and self.kind is WorkloadKind.GROUP:
            self.ended += (pod,)

    def leave(self) -> None:
        """Mark it evicted."""
        self.lose_quota()
        self._forget_next()
        self.stage, self.starts_after, self.started_at = WorkloadStage.EVICTED, False, 0

    def note_start(self, generation: int) -> None:
        """Note that the write that starts its job was done, made from this generation."""
        if self.stage is WorkloadStage.PLACED:
            self.started_at = generation

    def is_stopped(self, job: SeenJob) -> bool:
        """Whether its owner suspended the job since it was started, even before the start was observed.

        The start is one generation, and a later suspension another.
        """
        if self.stage is not WorkloadStage.PLACED or not job.suspended:
            return False
        return not self.suspended or 0 < self.started_at < job.generation - 1

    def is_filled(self, ordinal: int, pod: str) -> bool:
        """Whether a pod still has this slot."""
        return ordinal < len(self.slots) and self.slots[ordinal].pod == pod

    def ordinals(self, pod_set: str) -> range:
        """The slots of a pod set, or of the only one."""
        first = 0
        if len(self.work.pod_sets) == 1:
            return range(len(self.slots))
        for name, pods in self.sizes():
            if name == pod_set:
                return range(first, first + pods)
            first += pods
        return range(0)

    def set_at(self, ordinal: int) -> str:
        """The pod set of a slot."""
        return next((name for name, _ in self.sizes() if ordinal in self.ordinals(name)), "")

    def request_at(self, ordinal: int) -> Resources:
        """What the pod of a slot requests of a node, apart from GPUs."""
        sets = self.work.pod_sets
        name = sets[0].name if len(sets) == 1 else self.set_at(ordinal)
        return next((pods.request for pods in sets if pods.name == name), ())

    def set_of(self, role: str, asks: PodSet) -> str:
        """The pod set of a pod by its role label, or else the set with equal requests."""
        named = self.job.adapter.pod_set(role) if self.job is not None else role
        sets = self.work.pod_sets
        if any(pods.name == named for pods in sets):
            return named
        return next((pods.name for pods in sets if (pods.request, pods.gpu) == (asks.request, asks.gpu)), "")

    def to_reclaim(self, pod_set: str, pods: int) -> list[int]:
        """Free slots of a set to reclaim, if so many of its pods are not created again."""
        ordinals = self.ordinals(pod_set)
        left = pods - sum(self.slots[ordinal].reclaimed for ordinal in ordinals)
        free = [ordinal for ordinal in ordinals if not self.slots[ordinal].pod and not self.slots[ordinal].reclaimed]
        return free[: max(left, 0)]

    def kept(self, reclaimed_slots: Collection[int]) -> dict[str, list[int]]:
        """The slots by pod set, without those that are reclaimed or about to be."""
        gone = frozenset(reclaimed_slots)
        return {
            name: [at for at in self.ordinals(name) if not self.slots[at].reclaimed and at not in gone]
            for name, _ in self.sizes()
        }

    def reclaimable(self) -> int:
        """How many slots are reclaimed."""
        return sum(slot.reclaimed for slot in self.slots)

    def clear_decisions(self) -> None:
        """Clear all decisions: it is pending again."""
        self.lose_quota()
        self._forget_next()
        self.stage, self.started_at = WorkloadStage.WAITING, 0
        for slot in self.slots:
            slot.clear_decision()

    def holders(self) -> Iterator[PodSlot]:
        """Slots whose pods are bound, or may become bound."""
        return (slot for slot in self.slots if slot.holds)
