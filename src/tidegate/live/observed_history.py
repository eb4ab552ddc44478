"""What happened on a cluster, read from a journal; and the same work in the twin, as Tidegate would have had it.

What happened is told by facts alone: when work was submitted, when the last of its pods had a node, when it was over.
Must not know: how any of it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from tidegate.engine.apply import apply
from tidegate.engine.run import run
from tidegate.journal.store import JournalStep
from tidegate.journal.writer import Journal
from tidegate.measure.job_records import NOT_YET, collect_lives
from tidegate.measure.over_quota import find_over_quota
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import EventBatch, EventKind
from tidegate.model.hardware import Node
from tidegate.model.policy import Policy
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.model.units import MINUTE_MS, WHOLE_MILLI
from tidegate.model.work import GpuRequest, Share, Work, Workload
from tidegate.sim.loops import UntilOver
from tidegate.sim.node_openings import Opening, OpeningWorld
from tidegate.sim.submissions import jobs_of
from tidegate.state.cluster import ClusterState

#: Facts after which other work may hold quota.
_CHARGED = (
    EventKind.POLICY_CHANGED,
    EventKind.WORKLOAD_CHANGED,
    EventKind.WORKLOAD_OBSERVED,
    EventKind.WORKLOAD_FINISHED,
    EventKind.POD_BOUND,
    EventKind.POD_DONE,
    EventKind.POD_GONE,
    EventKind.POD_FAILED,
)

#: Work that is seen for the first time so long after it was made was there before anybody watched.
_FRESH_MS = MINUTE_MS

#: What ran before comes so much before what waits.
_HEAD_MS = 1

#: Shorter than any run: work of which nothing is known but that it ran.
_LEAST_RUNTIME_MS = 1


@dataclass(slots=True)
class SeenWorkload:
    """What was seen of one workload, and what Tidegate would have done with it first."""

    number: int
    id: str
    work: Work
    submitted_ms: int
    told_ms: int  # when it was first seen
    bound_ms: dict[int, int] = field(default_factory=dict)  # by pod: when it first had a node
    started_ms: int = NOT_YET  # when the last of its pods first ran
    running: set[int] = field(default_factory=set)
    over_ms: int = NOT_YET
    cancelled: bool = False
    proposed_ms: int = NOT_YET  # when it was placed first, or would have been
    decided_ms: int = NOT_YET  # the same, where that was done
    held: Reason = Reason.NONE  # why it would have waited, the latest before it had its place
    sent_away: Reason = Reason.NONE  # why it would have been sent away
    is_over_quota: bool = False  # it held more than its queue had
    over_quota_ms: int = 0  # for how long

    @property
    def pods(self) -> int:
        """How many pods it asks for."""
        return sum(pods.count for pods in self.work.pod_sets)

    @property
    def gpu_milli(self) -> int:
        """How many GPUs it asks for, in thousandths."""
        return sum(_milli(pods.gpu) * pods.count for pods in self.work.pod_sets)

    @property
    def placed_ms(self) -> int:
        """When the last of its pods had a node; NOT_YET: it never was whole."""
        return max(self.bound_ms.values()) if len(self.bound_ms) == self.pods else NOT_YET

    @property
    def begun_ms(self) -> int:
        """When it was given its place, by us or by others: from then on nobody else could have it."""
        given = self.placed_ms if self.decided_ms == NOT_YET else self.decided_ms
        return given if given != NOT_YET else self.started_ms

    @property
    def is_old(self) -> bool:
        """Whether it was there before anybody watched."""
        return self.told_ms - self.submitted_ms > _FRESH_MS

    @property
    def ran_before(self) -> bool:
        """Whether it had its place before anybody watched: nobody saw how long it waited for that."""
        return self.is_old and self.placed_ms != NOT_YET and self.placed_ms <= self.told_ms

    @property
    def comes_ms(self) -> int:
        """When it comes, for those who watch: what ran before keeps its place from others, so it comes before them."""
        return self.told_ms - _HEAD_MS * self.ran_before if self.is_old else self.submitted_ms

    def halves_milli_ms(self, until_ms: int) -> int:
        """GPU milli x ms that its pods held while others of the gang had no node yet."""
        if not self.bound_ms or self.pods < 2:
            return 0
        whole_ms = next((at_ms for at_ms in (self.placed_ms, self.over_ms) if at_ms != NOT_YET), until_ms)
        each = self.gpu_milli // self.pods
        return sum(max(whole_ms - at_ms, 0) for at_ms in self.bound_ms.values()) * each


class ObservedHistory(NamedTuple):
    """What happened on a cluster."""

    start_ms: int
    end_ms: int
    nodes: tuple[Node, ...]  # all that were ever there, as they were last
    policy: Policy  # the last
    work: tuple[SeenWorkload, ...]
    openings: tuple[Opening, ...]  # when a node came, was cordoned or not ready, was so no more, or went

    @property
    def gpu_ms(self) -> int:
        """For how long each GPU was open for work, together."""
        since_ms: dict[int, int] = {}
        total_ms = 0
        for at_ms, row, opens in (
            *self.openings,
            *(Opening(self.end_ms, row, False) for row in range(len(self.nodes))),
        ):
            if opens:
                since_ms.setdefault(row, at_ms)
            else:
                total_ms += self.nodes[row].shape.gpu_count * (at_ms - since_ms.pop(row, at_ms))
        return total_ms


def observe(steps: Iterable[JournalStep], *, shadow: bool = False) -> ObservedHistory:
    """Read what happened; `shadow`: what was decided was not done."""
    reader = _Reader(done=not shadow)
    for step in steps:
        reader.read(step)
    nodes, work = tuple(reader.nodes.values()), tuple(reader.work.values())
    return ObservedHistory(reader.start_ms, reader.end_ms, nodes, reader.policy, work, tuple(reader.openings))


class _Reader:
    def __init__(self, *, done: bool) -> None:
        self._done = done  # what was decided
        self._state = ClusterState()  # of a shadow: as the world shows it
        self._over_quota: list[int] = []  # numbers, since the step before
        self.start_ms, self.end_ms = -1, 0
        self.nodes: dict[int, Node] = {}
        self._rows: dict[int, int] = {}  # of the nodes, in the order they came
        self.openings: list[Opening] = []
        self.work: dict[int, SeenWorkload] = {}
        self.policy = Policy()

    def read(self, step: JournalStep) -> None:
        self.start_ms = step.now_ms if self.start_ms < 0 else self.start_ms
        for number in self._over_quota:
            self.work[number].over_quota_ms += step.now_ms - self.end_ms
        self.end_ms = step.now_ms
        events = step.events
        columns = zip(
            events.kind.tolist(), events.at_ms.tolist(), events.subject.tolist(), events.pod.tolist(),
            events.arg.tolist(), strict=True,
        )  # fmt: skip
        for kind, at_ms, subject, pod, arg in columns:
            self._hear(events, EventKind(kind), (at_ms, subject, pod, arg))
        self._propose(step)
        if not self._done:
            self._charge(step)

    def _charge(self, step: JournalStep) -> None:
        """Charge what runs, whoever started it, and note who holds more than there is."""
        apply(self._state, step.events, step.now_ms)
        if np.isin(step.events.kind, _CHARGED).any():
            self._over_quota = [number for number in find_over_quota(self._state) if number in self.work]
            for number in self._over_quota:
                self.work[number].is_over_quota = True

    def _hear(self, events: EventBatch, kind: EventKind, row: tuple[int, int, int, int]) -> None:
        at_ms, subject, pod, arg = row
        if kind in (EventKind.NODE_ADDED, EventKind.NODE_CHANGED, EventKind.POLICY_CHANGED):
            told = events.payloads[arg]
            if isinstance(told, Policy):
                self.policy = told
            elif isinstance(told, Node):
                self.nodes[subject] = told
                self._turn(at_ms, subject, opens=told.ready and not told.unschedulable)
        elif kind is EventKind.NODE_REMOVED:
            self._turn(at_ms, subject, opens=False)
        elif kind is EventKind.WORKLOAD_SUBMITTED:
            all_told = events.submissions
            work = events.works[int(all_told.work[arg])]
            self.work[subject] = SeenWorkload(subject, all_told.ids[arg], work, int(all_told.submitted_ms[arg]), at_ms)
        elif subject in self.work:
            _follow(self.work[subject], kind, at_ms, pod)

    def _turn(self, at_ms: int, number: int, *, opens: bool) -> None:
        self.openings.append(Opening(at_ms, self._rows.setdefault(number, len(self._rows)), opens))

    def _propose(self, step: JournalStep) -> None:
        decisions = step.result.decisions
        columns = zip(decisions.kind.tolist(), decisions.workload.tolist(), decisions.code.tolist(), strict=True)
        for kind, number, code in columns:
            seen = self.work.get(number)
            if seen is None:
                continue
            if kind == DecisionKind.PLACE:
                seen.proposed_ms = step.now_ms if seen.proposed_ms == NOT_YET else seen.proposed_ms
                seen.decided_ms = seen.proposed_ms if self._done else NOT_YET
            elif kind == DecisionKind.HOLD and seen.proposed_ms == NOT_YET:
                seen.held = Reason(code)
            elif kind in (DecisionKind.PREEMPT, DecisionKind.EVICT):
                seen.sent_away = Reason(code)


def _follow(seen: SeenWorkload, kind: EventKind, at_ms: int, pod: int) -> None:
    if kind is EventKind.POD_BOUND:
        seen.bound_ms.setdefault(pod, at_ms)
    elif kind is EventKind.POD_STARTED:
        seen.running.add(pod)
        seen.started_ms = at_ms if len(seen.running) == seen.pods else seen.started_ms
    elif kind in (EventKind.WORKLOAD_FINISHED, EventKind.WORKLOAD_CANCELLED):
        seen.over_ms, seen.cancelled = at_ms, kind is EventKind.WORKLOAD_CANCELLED


def _milli(gpu: GpuRequest) -> int:
    return gpu.count * (gpu.milli if gpu.share is Share.FRACTION else WHOLE_MILLI)


# -- the twin ----------------------------------------------------------------------------------------------------


class ReplayedHistory(NamedTuple):
    """How the same work fares in the twin, by its number: when it had its place, and when it was over."""

    placed_ms: dict[int, int]
    over_ms: dict[int, int]


def run_twin(observed: ObservedHistory, policy: Policy | None = None, *, as_told: bool = False) -> ReplayedHistory:
    """The same submissions on the same nodes under a policy, for as long as each was seen to run.

    Nodes open and close when they did. What was there before anybody watched comes when it was first seen, and what ran
    then comes first. `as_told`: so does all work, when it was first seen.
    """
    began = [seen for seen in observed.work if seen.started_ms != NOT_YET and not seen.cancelled]
    if not began:
        return ReplayedHistory({}, {})
    chosen = msgspec.structs.replace(policy or observed.policy, cycle_ms=1)
    options = TwinOptions(observe_every_ms=0)
    coming = sorted(((seen.told_ms if as_told else seen.comes_ms), seen.id, seen) for seen in began)
    first_ms = coming[0][0]
    planned = [_planned(seen, observed.end_ms, comes_ms - first_ms) for comes_ms, _, seen in coming]
    first_openings_ms = first_ms + _HEAD_MS  # of nodes that were there when the first work was seen
    openings = [
        one._replace(at_ms=one.at_ms - first_ms if one.at_ms > first_openings_ms else 0) for one in observed.openings
    ]
    nodes = [msgspec.structs.replace(node, ready=True) for node in observed.nodes]
    world = OpeningWorld(nodes, jobs_of(planned), chosen, options, openings)
    journal = Journal()
    run(ClusterState(), world, journal, UntilOver(world))
    lives = collect_lives(journal.steps)
    placed, over = lives.first_placed_ms, lives.finished_ms
    numbers = {_twin_id(seen): seen.number for seen in began}
    return ReplayedHistory(
        {
            numbers[name]: int(at_ms) + first_ms
            for name, at_ms in zip(lives.ids, placed, strict=True)
            if at_ms != NOT_YET
        },
        {numbers[name]: int(at_ms) + first_ms for name, at_ms in zip(lives.ids, over, strict=True) if at_ms != NOT_YET},
    )


def _twin_id(seen: SeenWorkload) -> str:
    """An id of its own: objects may be deleted and created again under their names."""
    return f"{seen.id}#{seen.number}"


def _planned(seen: SeenWorkload, end_ms: int, came_ms: int) -> PlannedWorkload:
    over_ms = seen.over_ms if seen.over_ms != NOT_YET else end_ms
    runtime_ms, load_ms = max(over_ms - seen.started_ms, _LEAST_RUNTIME_MS), max(seen.started_ms - seen.begun_ms, 0)
    workload = Workload(id=_twin_id(seen), work=seen.work, submitted_ms=came_ms)
    return PlannedWorkload(workload=workload, run=RunProfile(runtime_ms=runtime_ms, load_ms=load_ms))
