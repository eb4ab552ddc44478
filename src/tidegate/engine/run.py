"""The whole loop, for twin and cluster alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidegate.engine.step import step
from tidegate.model.decisions import DecisionBatch, StepResult
from tidegate.model.facts import FactBatch
from tidegate.state.cluster import ClusterState


class World(Protocol):
    """Where facts come from and decisions go."""

    def now_ms(self) -> int:
        """The time; it never goes back."""

    def poll(self, until_ms: int | None) -> FactBatch:
        """Facts since the last poll, in order; may wait, but not beyond `until_ms`."""

    def carry_out(self, decisions: DecisionBatch) -> None:
        """Carry out decisions; outcomes come back later as facts."""


class StepRecorder(Protocol):
    """Writes each step down before it is carried out."""

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Write a step down."""


def run(state: ClusterState, world: World, journal: StepRecorder, stop: Callable[[ClusterState], bool]) -> None:
    """Poll, step, record and carry out, until `stop` says so."""
    wake_ms: int | None = None
    while not stop(state):
        wake_ms = run_once(state, world, journal, wake_ms)


def run_once(state: ClusterState, world: World, journal: StepRecorder, wake_ms: int | None) -> int | None:
    """Poll, step, record and carry out; return when the next step is needed at the latest."""
    events = world.poll(until_ms=wake_ms)
    now_ms = world.now_ms()
    result = step(state, events, now_ms)
    journal.append(now_ms, events, result)
    world.carry_out(result.decisions)
    return result.next_wake_ms
