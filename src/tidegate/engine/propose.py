"""Proposals for a cluster that another scheduler runs: the state follows facts alone, and nothing is assumed.

A proposal is reported when it is new or changed, not at every step.
"""

from __future__ import annotations

import numpy as np

from tidegate.engine.apply import apply
from tidegate.engine.step import step
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionBatch, StepResult, pick_decisions, pick_tallies
from tidegate.model.facts import NO_FACTS, FactBatch
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState, Counter


class Shadow:
    """Follows a state and proposes decisions."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._proposed: dict[int, bytes] = {}  # by number of the workload: the latest proposal

    def step(self, events: FactBatch, now_ms: int) -> StepResult:
        """Apply the facts and return the decisions that changed. The state is as the world reports it."""
        state = self._state
        apply(state, events, now_ms)
        self._let_gangs_be()
        trial = state.fork()
        result = step(trial, NO_FACTS, now_ms)
        state.counters[Counter.NEXT_DECISION] = trial.counters[Counter.NEXT_DECISION]
        decisions = pick_decisions(result.decisions, self._changed_proposals(result.decisions))
        return result._replace(decisions=decisions, tally=pick_tallies(result.tally, decisions.id))

    def _let_gangs_be(self) -> None:
        """Drop pending evictions of incomplete gangs: other schedulers start the pods of a gang one by one."""
        pending_eviction = self._state.workloads.pending_eviction
        pending_eviction[pending_eviction == Reason.GANG_BROKEN] = Reason.NONE

    def _changed_proposals(self, decisions: DecisionBatch) -> I64:
        """Rows of workloads whose proposal changed."""
        of: dict[int, list[int]] = {}
        for row, number in enumerate(decisions.workload.tolist()):
            of.setdefault(number, []).append(row)
        told: dict[int, bytes] = {}
        news: list[int] = []
        for number, rows in of.items():
            columns = (decisions.kind, decisions.pod, decisions.node, decisions.code)
            told[number] = b"".join(column[rows].tobytes() for column in columns)
            if self._proposed.get(number) != told[number]:
                news += rows
        self._proposed = told
        return np.array(sorted(news), np.int64)
