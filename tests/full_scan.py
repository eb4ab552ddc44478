"""What a full scan decides: nothing, or something that changed did not wake who waits for it."""

from __future__ import annotations

import numpy as np

from builders import Cluster
from tidegate.engine.step import step
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import Facts
from tidegate.model.policy import AdmissionKind
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState, Counter
from tidegate.state.column_table import NONE

_STARTS = (DecisionKind.ADMIT, DecisionKind.PLACE)
_MOST_STEPS = 50


def missed_wakes(cluster: Cluster) -> list[tuple[DecisionKind, str, Reason]]:
    """What a full scan of the state at rest decides beyond telling why work waits.

    Kueue does not try again to preempt for those who wait where others only took more: in its mode, starts alone count.
    """
    state, now_ms = _at_rest(cluster.state, cluster.now_ms)
    _mark_all(state)
    decisions = step(state, Facts().batch(), now_ms).decisions
    own = not state.quota or state.policy.admission is AdmissionKind.TIDEGATE
    return [
        (DecisionKind(kind), cluster.ids[number], Reason(code))
        for kind, number, code in zip(
            decisions.kind.tolist(), decisions.workload.tolist(), decisions.code.tolist(), strict=True
        )
        if kind in _STARTS or (own and kind != DecisionKind.HOLD)
    ]


def _at_rest(state: ClusterState, now_ms: int) -> tuple[ClusterState, int]:
    """A fork that has decided all that it decides by itself, and when that was; nobody has answered yet."""
    fork = state.fork()
    for _ in range(_MOST_STEPS):
        result = step(fork, Facts().batch(), now_ms)
        if result.next_wake_ms is not None and result.next_wake_ms <= now_ms + 1:
            now_ms += 1  # what was placed in a step may be preempted in the next
        elif not len(result.decisions.id):
            return fork, now_ms
    raise AssertionError("it does not come to rest")


def _mark_all(state: ClusterState) -> None:
    """Have everybody who waits tried again, as if everything had changed."""
    branches = state.quota.quota_nodes
    roots = np.flatnonzero(branches.parent[: branches.top] == NONE)
    branches.epoch[roots] += 1
    branches.dirty[roots] = 1
    state.work_classes.held_epoch[:] = -1
    state.counters[[Counter.ROOM_EPOCH, Counter.ORDER_EPOCH]] += 1
