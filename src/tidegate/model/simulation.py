"""How work and machines behave in the twin: what no policy decides."""

from __future__ import annotations

from tidegate.model.observed_status import ObservedStatus
from tidegate.model.struct import Spec
from tidegate.model.work import Workload


class RunProfile(Spec, frozen=True):
    """How a workload behaves once it has its place: it loads, is busy, and may hold its GPUs idle afterwards."""

    runtime_ms: int  # of useful work, if never interrupted
    load_ms: int = 0  # before work: image, weights, data; again after each restart
    idle_tail_ms: int = 0  # after work: allocated, and nothing to do
    busy_milli: int = 1000  # GPU busy time during work, as a share
    daily_swing_milli: int = 0  # how far the busy share swings over a day; peak at 14:00
    vram_mib: int = 0  # held on each GPU from the end of loading to the end
    fails_every_ms: int = 0  # mean time between failures of a pod; 0: never


class PlannedWorkload(Spec, frozen=True):
    """A workload that the twin will submit, and how it will behave."""

    workload: Workload
    run: RunProfile


class TwinOptions(Spec, frozen=True):
    """How the twin's machines and control plane behave."""

    seed: int = 0
    api_latency_ms: int = 0  # from a decision to its effect
    start_ms: int = 0  # from bound to started
    grace_ms: int = 0  # from the eviction of a pod to its end
    admission_fails_milli: int = 0  # admissions that the API refuses, as a share
    answers_lost_milli: int = 0  # admissions that succeed although the response is lost, as a share
    observe_every_ms: int = 3_600_000  # how often use is observed
    node_fails_every_ms: int = 0  # mean time between failures of a node; 0: never
    node_repair_ms: int = 3_600_000


class InitialState(Spec, frozen=True):
    """The time at which a run begins, and the status of work then."""

    at_ms: int = 0
    standings: tuple[tuple[str, ObservedStatus], ...] = ()  # by the id of the workload
