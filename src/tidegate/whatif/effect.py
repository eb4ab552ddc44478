"""The effect of changes: on the workload in question, and on every other.

The baseline is what happens without any change: what starts or is evicted anyway does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.engine.step import step
from tidegate.journal.quota_names import QuotaNames, quota_names_of
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import Facts
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState
from tidegate.state.id_map import UNKNOWN
from tidegate.state.tables.workloads import Phase
from tidegate.whatif.changes import Change, StopWorkloads, work_of
from tidegate.whatif.fork_trials import PlayedTrial, Refusal, play


class EvictedWorkload(NamedTuple):
    """A workload that would have to go."""

    number: int
    reason: Reason
    cause: int  # number of the workload it goes for; -1: none


class ChangeEffect(NamedTuple):
    """What would happen."""

    starts: bool
    at_once: bool  # False: when those who have to go have left
    grants: tuple[tuple[int, int, int], ...] = ()  # lot, amount, pods of each row
    places: tuple[tuple[str, int], ...] = ()  # name of the node, GPUs, for each of its pods
    refusal: Refusal | None = None  # why it waits on
    started: tuple[int, ...] = ()  # others who start
    sent_away: tuple[EvictedWorkload, ...] = ()
    kept: tuple[int, ...] = ()  # others who would have started without the changes
    names: QuotaNames = QuotaNames()  # what numbers mean then


def find_effect(state: ClusterState, number: int, changes: Sequence[Change]) -> ChangeEffect:
    """Make the changes on a fork, decide, and tell what is different."""
    played = play(state, number, changes)
    before, after = _running(play(state, number, ()).state), _running(played.state)
    was = _running(state)
    stopped = {change.workload for change in changes if isinstance(change, StopWorkloads)}
    return ChangeEffect(
        starts=played.starts,
        at_once=played.starts and not played.rounds,
        grants=_grants(played, number),
        places=_places(played, number),
        refusal=None if played.starts else _refusal(played, number),
        started=tuple(sorted(after - before - was - {number})),
        sent_away=_sent_away(played, after | stopped),
        kept=tuple(sorted(before - after - was - stopped - {number})),
        names=quota_names_of(played.state.policy.shares),
    )


def _running(state: ClusterState) -> set[int]:
    table = state.workloads
    holds = np.isin(table.phase[: table.top], (Phase.ASSUMED, Phase.RUNNING))
    return set(table.number[: table.top][holds].tolist())


def _rows(played: PlayedTrial, number: int, kind: DecisionKind) -> list[int]:
    rows: list[int] = np.flatnonzero((played.decisions.workload == number) & (played.decisions.kind == kind)).tolist()
    return rows


def _grants(played: PlayedTrial, number: int) -> tuple[tuple[int, int, int], ...]:
    evidence = played.decisions.evidence
    rows = _rows(played, number, DecisionKind.ADMIT) if played.starts else []
    return tuple((int(evidence[at, 0]), int(evidence[at, 1]), int(evidence[at, 2])) for at in rows)


def _places(played: PlayedTrial, number: int) -> tuple[tuple[str, int], ...]:
    decisions, state = played.decisions, played.state
    rows = _rows(played, number, DecisionKind.PLACE) if played.starts else []
    nodes = [state.node_specs[state.node_numbers.row(int(decisions.node[at]))].name for at in rows]
    return tuple((name, int(decisions.devices[at]).bit_count()) for name, at in zip(nodes, rows, strict=True))


def _refusal(played: PlayedTrial, number: int) -> Refusal:
    """Why it still waits, with numbers: its reason is reset first, because a reason is reported only on change."""
    fork = played.state.fork()
    facts = Facts()
    facts.policy(fork.policy, fork.now_ms)
    facts.changed(number, work_of(fork, number), fork.now_ms)
    decided = step(fork, facts.batch(), fork.now_ms).decisions
    told = np.flatnonzero((decided.workload == number) & (decided.kind == DecisionKind.HOLD))
    if len(told):
        last = int(told[-1])
        return Refusal(Reason(int(decided.code[last])), tuple(decided.evidence[last].tolist()))
    row = fork.workload_numbers.row(number)
    return Refusal(Reason(int(fork.workloads.held_code[row])) if row != UNKNOWN else Reason.NONE, ())


def _sent_away(played: PlayedTrial, over: set[int]) -> tuple[EvictedWorkload, ...]:
    """Workloads that were evicted and did not start again."""
    decisions = played.decisions
    told = np.flatnonzero(np.isin(decisions.kind, (DecisionKind.PREEMPT, DecisionKind.EVICT)))
    found = {
        int(decisions.workload[at]): EvictedWorkload(
            int(decisions.workload[at]),
            Reason(int(decisions.code[at])),
            int(decisions.cause[at]) if decisions.kind[at] == DecisionKind.PREEMPT else -1,
        )
        for at in told.tolist()
    }
    return tuple(found[number] for number in sorted(found) if number not in over)
