"""Observed history: what happened on a cluster, from the facts in a journal; and the same work in the twin."""

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
from tidegate.measure.job_records import NOT_YET, collect_job_records
from tidegate.measure.over_quota import find_over_quota
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactBatch, FactKind
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
    FactKind.POLICY_CHANGED,
    FactKind.WORKLOAD_CHANGED,
    FactKind.WORKLOAD_OBSERVED,
    FactKind.WORKLOAD_FINISHED,
    FactKind.POD_BOUND,
    FactKind.POD_DONE,
    FactKind.POD_GONE,
    FactKind.POD_FAILED,
)

#: Work that is first observed so long after its creation existed before the shadow started.
_FRESH_MS = MINUTE_MS

#: How much earlier work that was running is submitted in the twin than work that was pending.
_HEAD_MS = 1

#: The runtime of work of unknown runtime.
_LEAST_RUNTIME_MS = 1


@dataclass(slots=True)
class SeenWorkload:
    """The observed history of one workload, and what Tidegate would have done first."""

    number: int
    id: str
    work: Work
    submitted_ms: int
    seen_ms: int  # when it was first observed
    bound_ms: dict[int, int] = field(default_factory=dict)  # by pod: when it first had a node
    started_ms: int = NOT_YET  # when the last of its pods first ran
    running: set[int] = field(default_factory=set)
    over_ms: int = NOT_YET
    cancelled: bool = False
    proposed_ms: int = NOT_YET  # when it was first placed, or would have been
    decided_ms: int = NOT_YET  # the same, if it was done
    held: Reason = Reason.NONE  # why it would have been pending, last before it was placed
    evicted: Reason = Reason.NONE  # why it would have been evicted
    is_over_quota: bool = False  # it held more than its queue had
    over_quota_ms: int = 0  # for how long

    @property
    def pods(self) -> int:
        """How many pods it requests."""
        return sum(pods.count for pods in self.work.pod_sets)

    @property
    def gpu_milli(self) -> int:
        """How many GPUs it requests, in thousandths."""
        return sum(_milli(pods.gpu) * pods.count for pods in self.work.pod_sets)

    @property
    def placed_ms(self) -> int:
        """When the last of its pods was bound; NOT_YET: not all were."""
        return max(self.bound_ms.values()) if len(self.bound_ms) == self.pods else NOT_YET

    @property
    def begun_ms(self) -> int:
        """When it was placed, by any scheduler."""
        given = self.placed_ms if self.decided_ms == NOT_YET else self.decided_ms
        return given if given != NOT_YET else self.started_ms

    @property
    def is_old(self) -> bool:
        """Whether it existed before the shadow started."""
        return self.seen_ms - self.submitted_ms > _FRESH_MS

    @property
    def ran_before(self) -> bool:
        """Whether it was placed before the shadow started, so that its wait is unknown."""
        return self.is_old and self.placed_ms != NOT_YET and self.placed_ms <= self.seen_ms

    @property
    def comes_ms(self) -> int:
        """When it is submitted in the twin: work that was running comes first, to keep its nodes."""
        return self.seen_ms - _HEAD_MS * self.ran_before if self.is_old else self.submitted_ms

    def incomplete_milli_ms(self, until_ms: int) -> int:
        """GPU milli x ms that its pods held while others of the gang were not bound."""
        if not self.bound_ms or self.pods < 2:
            return 0
        whole_ms = next((at_ms for at_ms in (self.placed_ms, self.over_ms) if at_ms != NOT_YET), until_ms)
        each = self.gpu_milli // self.pods
        return sum(max(whole_ms - at_ms, 0) for at_ms in self.bound_ms.values()) * each


class ObservedHistory(NamedTuple):
    """What happened on a cluster."""

    start_ms: int
    end_ms: int
    nodes: tuple[Node, ...]  # all that ever existed, as last observed
    policy: Policy  # the last
    work: tuple[SeenWorkload, ...]
    openings: tuple[Opening, ...]  # when nodes became schedulable or unschedulable

    @property
    def gpu_ms(self) -> int:
        """The total time that GPUs were schedulable."""
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
    """Read a journal; `shadow`: its decisions were not written."""
    reader = _Reader(done=not shadow)
    for step in steps:
        reader.read(step)
    nodes, work = tuple(reader.nodes.values()), tuple(reader.work.values())
    return ObservedHistory(reader.start_ms, reader.end_ms, nodes, reader.policy, work, tuple(reader.openings))


class _Reader:
    def __init__(self, *, done: bool) -> None:
        self._done = done  # decisions were written
        self._state = ClusterState()  # of a shadow: as observed
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
            self._hear(events, FactKind(kind), (at_ms, subject, pod, arg))
        self._propose(step)
        if not self._done:
            self._charge(step)

    def _charge(self, step: JournalStep) -> None:
        """Charge running work, whoever started it, and note workloads over their quota."""
        apply(self._state, step.events, step.now_ms)
        if np.isin(step.events.kind, _CHARGED).any():
            self._over_quota = [number for number in find_over_quota(self._state) if number in self.work]
            for number in self._over_quota:
                self.work[number].is_over_quota = True

    def _hear(self, events: FactBatch, kind: FactKind, row: tuple[int, int, int, int]) -> None:
        at_ms, subject, pod, arg = row
        if kind in (FactKind.NODE_ADDED, FactKind.NODE_CHANGED, FactKind.POLICY_CHANGED):
            told = events.payloads[arg]
            if isinstance(told, Policy):
                self.policy = told
            elif isinstance(told, Node):
                self.nodes[subject] = told
                self._note_opening(at_ms, subject, opens=told.ready and not told.unschedulable)
        elif kind is FactKind.NODE_REMOVED:
            self._note_opening(at_ms, subject, opens=False)
        elif kind is FactKind.WORKLOAD_SUBMITTED:
            all_told = events.submissions
            work = events.works[int(all_told.work[arg])]
            self.work[subject] = SeenWorkload(subject, all_told.ids[arg], work, int(all_told.submitted_ms[arg]), at_ms)
        elif subject in self.work:
            _follow(self.work[subject], kind, at_ms, pod)

    def _note_opening(self, at_ms: int, number: int, *, opens: bool) -> None:
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
                seen.evicted = Reason(code)


def _follow(seen: SeenWorkload, kind: FactKind, at_ms: int, pod: int) -> None:
    if kind is FactKind.POD_BOUND:
        seen.bound_ms.setdefault(pod, at_ms)
    elif kind is FactKind.POD_STARTED:
        seen.running.add(pod)
        seen.started_ms = at_ms if len(seen.running) == seen.pods else seen.started_ms
    elif kind in (FactKind.WORKLOAD_FINISHED, FactKind.WORKLOAD_CANCELLED):
        seen.over_ms, seen.cancelled = at_ms, kind is FactKind.WORKLOAD_CANCELLED


def _milli(gpu: GpuRequest) -> int:
    return gpu.count * (gpu.milli if gpu.share is Share.FRACTION else WHOLE_MILLI)


# -- the twin ----------------------------------------------------------------------------------------------------


class ReplayedHistory(NamedTuple):
    """The same work in the twin, by number: when it was placed, and when it ended."""

    placed_ms: dict[int, int]
    over_ms: dict[int, int]


def run_twin(observed: ObservedHistory, policy: Policy | None = None, *, as_seen: bool = False) -> ReplayedHistory:
    """Run the same submissions on the same nodes under a policy, with their observed runtimes.

    Nodes become schedulable and unschedulable as observed. Work from before the shadow is submitted when it was first
    observed, running work first. `as_seen`: all work is submitted when it was first observed.
    """
    began = [seen for seen in observed.work if seen.started_ms != NOT_YET and not seen.cancelled]
    if not began:
        return ReplayedHistory({}, {})
    chosen = msgspec.structs.replace(policy or observed.policy, cycle_ms=1)
    options = TwinOptions(observe_every_ms=0)
    coming = sorted(((seen.seen_ms if as_seen else seen.comes_ms), seen.id, seen) for seen in began)
    first_ms = coming[0][0]
    planned = [_planned(seen, observed.end_ms, comes_ms - first_ms) for comes_ms, _, seen in coming]
    first_openings_ms = first_ms + _HEAD_MS  # of nodes that existed when the first work was observed
    openings = [
        one._replace(at_ms=one.at_ms - first_ms if one.at_ms > first_openings_ms else 0) for one in observed.openings
    ]
    nodes = [msgspec.structs.replace(node, ready=True) for node in observed.nodes]
    world = OpeningWorld(nodes, jobs_of(planned), chosen, options, openings)
    journal = Journal()
    run(ClusterState(), world, journal, UntilOver(world))
    lives = collect_job_records(journal.steps)
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
    """A unique id: objects may be deleted and created again under their names."""
    return f"{seen.id}#{seen.number}"


def _planned(seen: SeenWorkload, end_ms: int, came_ms: int) -> PlannedWorkload:
    over_ms = seen.over_ms if seen.over_ms != NOT_YET else end_ms
    runtime_ms, load_ms = max(over_ms - seen.started_ms, _LEAST_RUNTIME_MS), max(seen.started_ms - seen.begun_ms, 0)
    workload = Workload(id=_twin_id(seen), work=seen.work, submitted_ms=came_ms)
    return PlannedWorkload(workload=workload, run=RunProfile(runtime_ms=runtime_ms, load_ms=load_ms))
