"""Preemption loops in the twin: proven, and then skipped until an external event.

Where another scheduler's rules are copied, work may be preempted and come back for ever. A loop is proven when the
state recurs without an external event in between: then what followed follows again, and running it shows nothing new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.state_key import state_key
from tidegate.model.arrays import I64
from tidegate.sim.fast_path import FEW_REPEATS
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState, Counter

#: After so many repeated preemptions without an external event the rest is skipped without a proof.
MOST_REPEATS = 1_000


class _Seen(NamedTuple):
    """When a state was seen, the decision that came next, and how often each workload had been evicted by then."""

    at_ms: int
    next_decision: int
    evictions: I64


class UntilOver:
    """Whether a run of the twin is over; to be called before each step."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._outside = -1  # the external epoch of the fields below
        self._repeats = 0
        self._seen: dict[bytes, _Seen] = {}  # states in which work had just been preempted again

    def __call__(self, state: ClusterState) -> bool:
        """Skip what a loop would repeat, if there is one; return whether nothing more happens."""
        if state.counters[Counter.REPEATS] > FEW_REPEATS:
            self._look_for_loop(state)
        return self._world.is_over()

    def _look_for_loop(self, state: ClusterState) -> None:
        external, repeats = (int(state.counters[which]) for which in (Counter.EXTERNAL, Counter.REPEATS))
        if external != self._outside:
            self._outside, self._repeats, self._seen = external, 0, {}
        if repeats == self._repeats:  # no work was preempted again since
            return
        self._repeats = repeats
        table = state.workloads
        preempted = table.number[np.flatnonzero(table.preempted_in[: table.top] == external)]
        next_decision = int(state.counters[Counter.NEXT_DECISION])
        now = _Seen(self._world.now_ms(), next_decision, table.evictions[: table.top].copy())
        before = self._seen.setdefault(state_key(state) + self._world.loop_key(preempted), now)
        if before is not now:
            turning = table.number[np.flatnonzero(now.evictions > before.evictions)]
            self._world.skip_loop(turning, now.at_ms - before.at_ms, before.next_decision)
            self._seen = {}  # time was skipped here: a turn must be seen again before more of it is
        elif repeats >= MOST_REPEATS:
            self._world.skip_loop(preempted, 0, next_decision)
