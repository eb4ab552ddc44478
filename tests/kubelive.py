"""The whole loop against a control plane, for tests and benchmarks: facts, engine, journal, writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from kubebench import Plane
from tidegate.engine.run import StepRecorder, run
from tidegate.kube.transport.kubeconfig import config_access
from tidegate.kube.world import KubeWorld, WorldOptions
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState

BEST_FIT = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT))


def wall_ms() -> int:
    """The time of the clock on the wall."""
    return time.time_ns() // 1_000_000


class Steps:
    """A record that keeps every step."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, FactBatch, StepResult]] = []

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Keep a step."""
        self.kept.append((now_ms, events, result))


class Live:
    """An engine on a control plane."""

    def __init__(
        self,
        kubeconfig: Path,
        policy: Policy = BEST_FIT,
        options: WorldOptions | None = None,
        record: StepRecorder | None = None,
        clock: Callable[[], int] = wall_ms,
    ) -> None:
        access = config_access([kubeconfig], clock=wall_ms)
        self.state, self.steps = ClusterState(), Steps()
        self._record = record or self.steps
        self.world = KubeWorld(access, policy, clock=clock, jitter=lambda: 0.5, options=options)

    @classmethod
    def on(
        cls, plane: Plane, user: str = "tidegate", options: WorldOptions | None = None, policy: Policy = BEST_FIT
    ) -> Live:
        """An engine that is a user of a control plane."""
        return cls(plane.kubeconfig(user), policy, options)

    def __enter__(self) -> Self:
        self.world.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.world.__exit__(None, None, None)

    def until(self, holds: Callable[[], object], most_s: float = 30.0, what: str = "it") -> None:
        """Run until something holds; the state is checked at the end."""
        end = time.monotonic() + most_s

        def stop(_: ClusterState) -> bool:
            if time.monotonic() > end:
                problem = "; ".join([*self.world.api.problems(), self.world.latest_failure])
                raise TimeoutError(f"{what} did not come about in {most_s:.0f} s: {problem}")
            return bool(holds())

        run(self.state, self.world, self._record, stop)
        check(self.state)
