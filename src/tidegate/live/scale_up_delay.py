"""A cluster as a world whose polls wait until there is something to decide, and that is looked after meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tidegate.kube.world import KubeWorld
from tidegate.live.heap_trim import trim
from tidegate.model.decisions import DecisionBatch
from tidegate.model.facts import EventBatch


class LoopCare(NamedTuple):
    """What is done beside polling and writing."""

    look_after: Callable[[], None]  # while there is nothing to decide
    ends: Callable[[], bool]
    before_writing: Callable[[DecisionBatch], None]  # what was decided is about to be written


class DelayedWorld:
    """A cluster that comes back from a poll with facts, when a timer is due, or when it is to end."""

    def __init__(self, world: KubeWorld, care: LoopCare) -> None:
        self._world = world
        self._look_after, self._ends, self._before_writing = care
        self.polled_s = 0.0  # when the latest poll came back
        self.waited_s = 0.0  # how long its news had waited for it

    def now_ms(self) -> int:
        """The time."""
        return self._world.now_ms()

    def poll(self, until_ms: int | None) -> EventBatch:
        """Facts since the last poll; quiet while there are none."""
        while True:
            self._look_after()
            events = self._world.poll(until_ms)
            due = until_ms is not None and self._world.api.listed.is_set() and self._world.now_ms() >= until_ms
            if len(events.kind) or due or self._ends():
                if not self.polled_s:
                    trim()  # what reading the cluster took, before the first step takes more
                self.polled_s, self.waited_s = time.monotonic(), self._world.api.updates.waited_s
                return events

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Write what was decided."""
        if len(decisions.id):
            self._before_writing(decisions)
        self._world.carry_out(decisions)
