"""Trials of changes on a fork: whether a workload starts, at once or when its victims have left, and what else does.

A trial adds the changes as facts at the state's own time and decides; the state itself does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.apply import apply
from tidegate.engine.decide import decide
from tidegate.engine.step import step
from tidegate.model.decisions import DecisionBatch, DecisionKind, join_decisions
from tidegate.model.facts import NO_FACTS, FactBatch, FactKind, Facts
from tidegate.model.policy import AdmissionKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.column_table import NONE
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.workloads import Phase
from tidegate.whatif.changes import Change, facts_of, work_of

#: Rounds in which victims leave and others may become victims, at most.
_MOST_ROUNDS = 6

#: Cycles of one round, as of a step.
_MOST_CYCLES = 1_000


class Refusal(NamedTuple):
    """Why a workload still waits: its last reason in a trial."""

    reason: Reason
    evidence: tuple[int, ...]


class PlayedTrial(NamedTuple):
    """What would happen."""

    starts: bool
    rounds: int  # times that victims had to leave first; 0: it starts at once
    decisions: DecisionBatch
    state: ClusterState  # as it would be then


def has_started(state: ClusterState, number: int, *, placed: bool) -> bool:
    """Whether a workload holds its quota, and its place where that is asked for."""
    row = state.workload_numbers.row(number)
    if row == UNKNOWN or state.workloads.phase[row] not in (Phase.ASSUMED, Phase.RUNNING):
        return False
    return not placed or bool(state.workloads.first_pod[row] != NONE)


def needs_place(state: ClusterState, number: int) -> bool:
    """Whether starting means having a place, or quota alone will do: in Kueue's mode it does, until it is granted."""
    if not state.quota or state.policy.admission is not AdmissionKind.KUEUE:
        return True
    row = state.workload_numbers.row(number)
    return bool(state.workloads.phase[row] == Phase.ASSUMED)


class Trials:
    """Tries changes on forks of a state, counted, and says whether a workload starts at once."""

    def __init__(self, state: ClusterState, number: int, watch: Callable[[int], None] | None = None) -> None:
        self.state, self.number = state, number
        self.placed = needs_place(state, number)
        self.tried = 0
        self.cost = 0  # heads looked at, about: what a trial takes time for
        waits = state.work_classes.waiting[: state.work_classes.top]
        self._heads = int((waits > 0).sum())
        self._alone: ClusterState | None = None
        self._watch = watch  # called with the cost so far

    def starts(self, changes: Sequence[Change]) -> bool:
        """Whether the workload starts at once if the changes are made."""
        self._count(self._heads)
        return self._starts(self.state, facts_of(self.state, changes))

    def starts_alone(self, changes: Sequence[Change]) -> bool:
        """Whether it would if nothing else waited: quick, and what fails here also fails among others."""
        self._count(1)
        alone = self.alone()
        return self._starts(alone, facts_of(alone, changes))

    def _count(self, heads: int) -> None:
        self.tried += 1
        self.cost += heads + 1
        if self._watch is not None:
            self._watch(self.cost)

    def _starts(self, state: ClusterState, facts: FactBatch) -> bool:
        fork = state.fork()
        _run(fork, facts, self.number, placed=self.placed)
        return has_started(fork, self.number, placed=self.placed)

    def alone(self) -> ClusterState:
        """The state without any other waiting workload."""
        if self._alone is None:
            self._alone = self.state.fork()
            apply(self._alone, _cancel_others(self.state, self.number), self.state.now_ms)
        return self._alone

    def refusal_alone(self, changes: Sequence[Change]) -> Refusal | None:
        """Why the workload waits with the changes and nothing else waiting; None: it starts."""
        self._count(1)
        fork = self.alone().fork()
        decided = _run(fork, facts_of(fork, changes), self.number, placed=self.placed)
        if has_started(fork, self.number, placed=self.placed):
            return None
        told = np.flatnonzero((decided.workload == self.number) & (decided.kind == DecisionKind.HOLD))
        if len(told):
            return Refusal(Reason(int(decided.code[told[-1]])), tuple(decided.evidence[told[-1]].tolist()))
        return Refusal(Reason(int(fork.workloads.held_code[fork.workload_numbers.row(self.number)])), ())

    def starts_in_time(self, changes: Sequence[Change]) -> bool:
        """Whether the workload starts, at once or when those preempted for it have left."""
        self._count(2 * self._heads)
        return play(self.state, self.number, changes).starts

    def starts_in_time_alone(self, changes: Sequence[Change]) -> bool:
        """The same, if nothing else waited."""
        self._count(2)
        return play(self.alone(), self.number, changes).starts


def _cancel_others(state: ClusterState, number: int) -> FactBatch:
    table, facts = state.workloads, Facts()
    waits = np.flatnonzero(table.phase[: table.top] == Phase.PENDING)
    facts.add_many(FactKind.WORKLOAD_CANCELLED, state.now_ms, table.number[waits][table.number[waits] != number])
    facts.policy(
        state.policy, state.now_ms
    )  # the same policy and work, as facts: it is tried again and its reason reported again
    facts.changed(number, work_of(state, number), state.now_ms)
    return facts.batch()


def _run(fork: ClusterState, facts: FactBatch, number: int, *, placed: bool) -> DecisionBatch:
    """A step, as far as it can matter to one workload: it ends when that cannot start in this step any more."""
    if not fork.quota:
        return step(fork, facts, fork.now_ms).decisions
    apply(fork, facts, fork.now_ms)
    batches = []
    for _ in range(_MOST_CYCLES):
        decided, _ = decide(fork)
        batches.append(decided)
        if not has_started(fork, number, placed=placed) and _is_settled(fork, number):
            break
        if not len(decided.id) and not fork.quota.quota_nodes.dirty[: fork.quota.quota_nodes.top].any():
            break
    return join_decisions(batches)


def _is_settled(state: ClusterState, number: int) -> bool:
    """Whether a waiting workload was refused with all that ask for the same, and is not tried again in this step."""
    row = state.workload_numbers.row(number)
    if row == UNKNOWN or state.workloads.phase[row] != Phase.PENDING:
        return row == UNKNOWN
    tables, w = state.quota, int(state.workloads.work_class[row])
    branch = int(tables.queue_requests.queue[w])
    return branch != NONE and bool(
        tables.queue_requests.held[w] == tables.quota_nodes.epoch[tables.quota_nodes.root[branch]]
    )


# -- to the end ------------------------------------------------------------------------------------------------


def play(state: ClusterState, number: int, changes: Sequence[Change]) -> PlayedTrial:
    """Make the changes and decide; victims leave at once, until a workload starts or there are no more victims."""
    fork, placed = state.fork(), needs_place(state, number)
    leaving = _leaving(state)
    batches, facts, rounds = [], facts_of(fork, changes), 0
    for rounds in range(_MOST_ROUNDS):  # noqa: B007 - the last one counts
        batches.append(step(fork, facts, fork.now_ms).decisions)
        victims = _leaving(fork) - leaving
        if has_started(fork, number, placed=placed) or not victims:
            break
        facts = _gone(victims, fork.now_ms)
    return PlayedTrial(has_started(fork, number, placed=placed), rounds, join_decisions(batches), fork)


def play_leaving(state: ClusterState, number: int) -> bool:
    """Whether a workload starts once terminating workloads are gone."""
    fork, placed = state.fork(), needs_place(state, number)
    facts = _gone(_leaving(fork), fork.now_ms)
    step(fork, facts, fork.now_ms)
    return has_started(fork, number, placed=placed)


def starts_unchanged(state: ClusterState, number: int) -> bool:
    """Whether a workload starts without any change: the state has more to decide."""
    return _starts_with(state, number, NO_FACTS)


def starts_again(state: ClusterState, number: int) -> bool:
    """Whether a workload starts if all are only tried again from the first flavor: the policy is set again."""
    facts = Facts()
    facts.policy(state.policy, state.now_ms)
    return _starts_with(state, number, facts.batch())


def _starts_with(state: ClusterState, number: int, facts: FactBatch) -> bool:
    fork = state.fork()
    step(fork, facts, fork.now_ms)
    return has_started(fork, number, placed=needs_place(state, number))


def _leaving(state: ClusterState) -> frozenset[int]:
    table = state.workloads
    return frozenset(table.number[: table.top][table.phase[: table.top] == Phase.TERMINATING].tolist())


def _gone(numbers: frozenset[int], now_ms: int) -> FactBatch:
    facts = Facts()
    for number in sorted(numbers):
        facts.add(FactKind.POD_GONE, now_ms, number)
    return facts.batch()
