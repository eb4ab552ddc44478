"""The leader loop: one term as leader, with facts in and decisions out; each step is recorded and counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tidegate.engine.propose import Shadow
from tidegate.engine.run import StepRecorder, run
from tidegate.kube.world import KubeWorld
from tidegate.live.decision_log import log_decisions
from tidegate.live.election import LeaseName
from tidegate.live.handover import notes_after, shared_handover_of, write_shared_handover
from tidegate.live.logs import ServiceLog
from tidegate.live.memory_tuning import trim
from tidegate.live.metrics import Metrics
from tidegate.live.modes import Mode
from tidegate.model.decisions import DecisionBatch, DecisionKind, StepResult
from tidegate.model.facts import FactBatch
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

#: Seconds between two updates of the gauges, and between two checks of the whole state.
_GAUGES_S, _CHECK_S = 5.0, 300.0


class LeaderContext(NamedTuple):
    """What the terms of a service share."""

    mode: Mode
    lease: LeaseName
    metrics: Metrics
    log: ServiceLog


class LeaderLoop:
    """One term as leader; the world of its run, and the record of its steps."""

    def __init__(
        self, context: LeaderContext, world: KubeWorld, journal: StepRecorder | None, shared_handover: str
    ) -> None:
        self.state = ClusterState()
        self._mode, self._lease, self._metrics, self._log = context
        self._world, self._journal = world, journal
        self._shared_handover = shared_handover  # as last written
        self._gauged_s = self._checked_s = time.monotonic()
        self._polled_s = 0.0  # when the latest poll returned
        self._waited_s = 0.0  # how long its oldest update had waited in the queue
        self.steps = 0

    def serve(self, stop: Callable[[], bool], look_after: Callable[[], None]) -> None:
        """Decide until the term ends."""
        self._stop, self._look_after_service = stop, look_after
        if self._mode.writes:
            run(self.state, self, self, lambda _: stop())
        else:
            self._watch()
        check(self.state)

    def _watch(self) -> None:
        """Propose decisions, and write none of them."""
        shadow, wake_ms = Shadow(self.state), None
        while not self._stop():
            events = self.poll(wake_ms)
            now_ms = self.now_ms()
            result = shadow.step(events, now_ms)
            self.append(now_ms, events, result)
            wake_ms = result.next_wake_ms

    def now_ms(self) -> int:
        """The time of the cluster."""
        return self._world.now_ms()

    def poll(self, until_ms: int | None) -> FactBatch:
        """Facts since the last poll; waits until there are some, a timer is due, or the term ends."""
        while True:
            self._look_after_service()
            self._look_after()
            events = self._world.poll(until_ms)
            due = until_ms is not None and self._world.api.listed.is_set() and self._world.now_ms() >= until_ms
            if len(events.kind) or due or self._stop():
                if not self._polled_s:
                    trim()  # return the memory that listing took, before the first step takes more
                self._polled_s, self._waited_s = time.monotonic(), self._world.api.updates.waited_s
                return events

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Write the decisions, with the handover annotations that go with them."""
        if len(decisions.id):
            self._hand_over(decisions)
        self._world.carry_out(decisions)

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """StepRecorder a step in journal, metrics and log."""
        took_s = time.monotonic() - self._polled_s
        if self._journal is not None:
            self._journal.append(now_ms, events, result)
        self.steps += 1
        self._metrics.note_step(self.state, events, result, took_s)
        self._metrics.lag_s.observe(self._waited_s)
        log_decisions(
            self._log, self._world.reconciler.lifecycle.describe(result.decisions), proposed=not self._mode.writes
        )
        kinds = Counter(DecisionKind(kind).name for kind in result.decisions.kind.tolist())
        self._log.debug(
            "step", facts=len(events.kind), decisions=dict(kinds), ms=round(took_s * 1000, 2), cycles=result.cycles
        )

    def _hand_over(self, decisions: DecisionBatch) -> None:
        """Prepare the handover to the next leader, before decisions are written."""
        for number, text in notes_after(self.state, decisions):
            self._world.note(number, text)
        self._write_shared_handover()

    def _write_shared_handover(self) -> None:
        text = shared_handover_of(self.state, self._world.reconciler.workloads)
        if text != self._shared_handover:
            self._shared_handover = text
            self._world.say(write_shared_handover(self._lease, text))

    def _look_after(self) -> None:
        now_s = time.monotonic()
        if now_s - self._gauged_s >= _GAUGES_S:
            self._gauged_s = now_s
            self._metrics.follow(self.state)
            self._metrics.note_objects(self._world.reconciler.lifecycle.counts())
            if self._mode.writes:
                self._write_shared_handover()
        if now_s - self._checked_s >= _CHECK_S:
            self._checked_s = now_s
            self.check()

    def check(self) -> None:
        """Check the invariants of the state: a violation is a bug, and ends the term."""
        try:
            check(self.state)
        except Exception:
            self._metrics.checks.labels("failed").inc()
            raise
        self._metrics.checks.labels("passed").inc()
        self._log.debug("checked", digest=self.state.digest(), steps=self.steps)
