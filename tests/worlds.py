"""The same small cluster in every world: two nodes of eight GPUs, and jobs that run for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from builders import fleet
from builders import job as workload
from kubebench import Plane, job, node
from kubelive import Steps, wall_ms
from kubeproxy import Proxy
from tidegate.engine.run import World
from tidegate.kube.transport.kubeconfig import config_access
from tidegate.kube.transport.write_pool import WriteLimits
from tidegate.kube.world import KubeWorld, WorldOptions
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld

POLICY = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT), cycle_ms=100)

_JOBS, _NODES, _PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/nodes", "/api/v1/namespaces/default/pods"


class Asked(NamedTuple):
    """A job of so many pods, each with so many GPUs, which runs for so long."""

    name: str
    pods: int
    gpus: int
    seconds: int = 1


class Stage(Protocol):
    """A world with a cluster and jobs in it."""

    world: World
    now_passes: bool  # by itself, not only when somebody polls

    def refuse(self) -> None:
        """Let no admission come about, and say so."""

    def lose(self) -> None:
        """Let no answer to an admission come."""

    def calm(self) -> None:
        """Let everything go well again."""


class SimStage:
    """The twin."""

    now_passes = False

    def __init__(self, asked: list[Asked]) -> None:
        work = [
            PlannedWorkload(
                workload=workload(one.name, f"{one.pods}x{one.gpus}"), run=RunProfile(runtime_ms=one.seconds * 1000)
            )
            for one in asked
        ]
        options = TwinOptions(api_latency_ms=20, start_ms=50, grace_ms=30, observe_every_ms=0)
        self.world = SimWorld(fleet("2x h100x8"), jobs_of(work), POLICY, options)

    def refuse(self) -> None:
        """Let no admission come about, and say so."""
        self._set(admission_fails_milli=1000)

    def lose(self) -> None:
        """Let no answer to an admission come."""
        self._set(answers_lost_milli=1000)

    def calm(self) -> None:
        """Let everything go well again."""
        self._set(admission_fails_milli=0, answers_lost_milli=0)

    def _set(self, **options: int) -> None:
        self.world.options = msgspec.structs.replace(self.world.options, **options)


class KubeStage:
    """A real API server, with the job controller and kwok."""

    now_passes = True

    def __init__(self, plane: Plane, proxy: Proxy, asked: list[Asked]) -> None:
        self._proxy = proxy
        for number in range(2):
            plane.admin.post(_NODES, node(f"n{number}"))
        plane.wait_for(lambda: all(_is_ready(one) for one in plane.admin.get(_NODES)["items"]), what="ready nodes")
        for one in asked:
            made = job(one.name, one.pods, one.gpus, runs=f"{one.seconds}s", suspend=True, scheduler="tidegate")
            plane.admin.post(_JOBS, made)
        access = config_access([proxy.kubeconfig()], clock=wall_ms)
        options = WorldOptions(limits=WriteLimits(deadline_s=1.0))
        self.world = KubeWorld(access, POLICY, clock=wall_ms, jitter=lambda: 0.5, options=options)

    def refuse(self) -> None:
        """Let no admission come about, and say so."""
        self._proxy.refuses = 409

    def lose(self) -> None:
        """Let no answer to an admission come."""
        self._proxy.loses = "before"

    def calm(self) -> None:
        """Let everything go well again."""
        self._proxy.calm()


def _is_ready(thing: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in thing["status"].get("conditions", ()))


@contextmanager
def sim_stage(asked: list[Asked]) -> Iterator[SimStage]:
    """The twin."""
    yield SimStage(asked)


@contextmanager
def kube_stage(plane: Plane, asked: list[Asked]) -> Iterator[KubeStage]:
    """A cluster, which is empty again afterwards."""
    try:
        with Proxy(plane) as proxy:
            stage = KubeStage(plane, proxy, asked)
            with stage.world:
                yield stage
    finally:
        plane.clear(_JOBS, _PODS, _NODES)


__all__ = ["POLICY", "Asked", "KubeStage", "SimStage", "Stage", "Steps", "kube_stage", "sim_stage"]
