"""One term as leader: facts in, decisions out, each step recorded and counted, the policy changed while it runs.

Must not know: how one comes to lead, or what ends it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.engine.propose import Shadow
from tidegate.engine.run import StepRecorder, run
from tidegate.kube.world import KubeWorld
from tidegate.live.decision_log import log_decisions
from tidegate.live.election import LeaseName
from tidegate.live.handover import SharedHandover, common_of, notes_after
from tidegate.live.handover_store import keep_common
from tidegate.live.logs import Log
from tidegate.live.metrics import Metrics
from tidegate.live.modes import Mode
from tidegate.live.scale_up_delay import DelayedWorld, LoopCare
from tidegate.model.decisions import DecisionBatch, DecisionKind, StepResult
from tidegate.model.facts import EventBatch
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState


@dataclass(frozen=True)
class LoopIntervals:
    """How often, in seconds, a leader looks after itself."""

    gauges_s: float = 5.0
    check_s: float = 300.0


class LeaderContext(NamedTuple):
    """What all terms of a service have."""

    mode: Mode
    lease: LeaseName
    metrics: Metrics
    log: Log


class LeaderLoop:
    """A term. It is also the record of its own steps: it writes them down and counts them."""

    def __init__(
        self, bench: LeaderContext, world: KubeWorld, journal: StepRecorder | None, common: SharedHandover
    ) -> None:
        self.state = ClusterState()
        self._mode, self._lease, self._metrics, self._log = bench
        self._world, self._journal = world, journal
        self._common = common  # as it was written last
        self._rhythm = LoopIntervals()
        self._gauged_s = self._checked_s = time.monotonic()
        self.steps = 0

    def serve(self, stop: Callable[[], bool], look_after: Callable[[], None]) -> None:
        """Decide until told to stop."""

        def turn() -> None:
            look_after()
            self._look_after()

        self._patient = DelayedWorld(self._world, LoopCare(turn, stop, self._hand_over))
        if self._mode.writes:
            run(self.state, self._patient, self, lambda _: stop())
        else:
            self._watch(stop)
        check(self.state)

    def _watch(self, stop: Callable[[], bool]) -> None:
        """Propose, and carry nothing out."""
        shadow, wake_ms = Shadow(self.state), None
        while not stop():
            events = self._patient.poll(wake_ms)
            now_ms = self._patient.now_ms()
            result = shadow.step(events, now_ms)
            self.append(now_ms, events, result)
            wake_ms = result.next_wake_ms

    def append(self, now_ms: int, events: EventBatch, result: StepResult) -> None:
        """Write a step down, and count it."""
        took_s = time.monotonic() - self._patient.polled_s
        if self._journal is not None:
            self._journal.append(now_ms, events, result)
        self.steps += 1
        self._metrics.note_step(self.state, events, result, took_s)
        self._metrics.lag_s.observe(self._patient.waited_s)
        log_decisions(
            self._log, self._world.reconciler.story.describe(result.decisions), proposed=not self._mode.writes
        )
        kinds = Counter(DecisionKind(kind).name for kind in result.decisions.kind.tolist())
        self._log.debug(
            "step", facts=len(events.kind), decisions=dict(kinds), ms=round(took_s * 1000, 2), cycles=result.cycles
        )

    def _hand_over(self, decisions: DecisionBatch) -> None:
        """Leave word for whoever takes over, before anything is carried out."""
        for number, text in notes_after(self.state, decisions):
            self._world.note(number, text)
        self._keep_common()

    def _keep_common(self) -> None:
        common = common_of(self.state, self._world.reconciler.workloads)
        if common != self._common:
            self._common = common
            self._world.say(keep_common(self._lease, common))

    def _look_after(self) -> None:
        now_s = time.monotonic()
        if now_s - self._gauged_s >= self._rhythm.gauges_s:
            self._gauged_s = now_s
            self._metrics.follow(self.state)
            self._metrics.note_objects(self._world.reconciler.story.counts())
            if self._mode.writes:
                self._keep_common()
        if now_s - self._checked_s >= self._rhythm.check_s:
            self._checked_s = now_s
            self.check()

    def check(self) -> None:
        """Check the whole state: what is not as it must be is a bug, and ends the term."""
        try:
            check(self.state)
        except Exception:
            self._metrics.checks.labels("failed").inc()
            raise
        self._metrics.checks.labels("passed").inc()
        self._log.debug("checked", digest=self.state.digest(), steps=self.steps)
