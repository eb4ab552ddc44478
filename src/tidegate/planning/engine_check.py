"""Check of a capacity replay by the engine: one queue whose quota is the capacity, without nodes.

The engine is the one that runs a cluster; `planning.capacity_replay` only counts, and must give the same starts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.engine.run import run
from tidegate.jit.registry import kernels_as
from tidegate.model.arrays import I64
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import UNLIMITED, Flavor, FlavorGroup, Queue, QueueSetup, Quota
from tidegate.model.simulation import TwinOptions
from tidegate.model.work import GpuRequest, PodSet, Share, Work
from tidegate.planning.capacity_replay import CapacityReplayer, QueueOrder
from tidegate.planning.kernels.replay import BurstRule, Steps
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.sim.submissions import TwinJobs
from tidegate.sim.world import PolicyChange, SimWorld
from tidegate.state.cluster import ClusterState

_QUEUE, _FLAVOR = "batch", "any"


class Confirmed(NamedTuple):
    """What the engine said to what the judge had counted."""

    jobs: int
    capacity_changes: int
    differing_starts: int  # jobs that start at another time


def confirm(
    jobs: PlanJobs, order: QueueOrder, steps: Steps, burst_rule: BurstRule, *, compiled: bool = False
) -> Confirmed:
    """Let the engine decide what the judge counted, capacity changing as it did there."""
    counted = CapacityReplayer(jobs, order).replay(steps, burst_rule)
    starts = replay_in_twin(jobs, order, counted.change_ms, counted.change_milli, compiled=compiled)
    return Confirmed(jobs.total, len(counted.change_ms), int((starts != counted.start_ms).sum()))


def replay_in_twin(
    jobs: PlanJobs, order: QueueOrder, change_ms: I64, capacity_milli: I64, *, compiled: bool = False
) -> I64:
    """When each job starts if capacity changes at these times to these values; -1 for one that never does."""
    zero_ms = min(int(jobs.at_ms[0]), int(change_ms[0]))
    policies = [_policy(int(milli), order) for milli in capacity_milli]
    changes = [PolicyChange(int(at) - zero_ms, policy) for at, policy in zip(change_ms, policies, strict=True)]
    world = SimWorld([], _jobs(jobs, zero_ms), policies[0], TwinOptions(observe_every_ms=0), changes=changes[1:])
    starts = _Starts(jobs.total)
    with kernels_as(compiled=compiled):
        run(ClusterState(), world, starts, lambda _: world.is_over())
    return np.where(starts.at_ms < 0, -1, starts.at_ms + zero_ms)


class _Starts:
    """When each job was admitted."""

    def __init__(self, jobs: int) -> None:
        self.at_ms = np.full(jobs, -1, np.int64)

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Note who was admitted in a step."""
        del events
        decisions = result.decisions
        self.at_ms[decisions.workload[decisions.kind == int(DecisionKind.ADMIT)]] = now_ms


def _policy(milli: int, order: QueueOrder) -> Policy:
    quota = Quota(flavor=_FLAVOR, resource="gpu", nominal=min(milli, UNLIMITED))
    group = FlavorGroup(resources=("gpu",), flavors=(_FLAVOR,))
    queue = Queue(name=_QUEUE, groups=(group,), quotas=(quota,), strict_fifo=order is QueueOrder.STRICT)
    shares = QueueSetup(flavors=(Flavor(name=_FLAVOR),), queues=(queue,), ignore_undeclared=True)
    return Policy(admission=AdmissionKind.KUEUE, shares=shares, cycle_ms=1)  # at 1 ms every event counts


def _jobs(jobs: PlanJobs, zero_ms: int) -> TwinJobs:
    sizes, work = np.unique(jobs.gpus_milli, return_inverse=True)
    none = np.zeros(jobs.total, np.int64)
    width = len(str(jobs.total))
    return TwinJobs(
        ids=[f"{row:0{width}d}" for row in range(jobs.total)],  # ties are broken by id: by the order they came in
        works=tuple(_work(int(milli)) for milli in sizes),
        work=work.astype(np.int32),
        submit_ms=jobs.at_ms - zero_ms,
        runtime_ms=jobs.run_ms,
        estimate_ms=none,
        load_ms=none,
        idle_tail_ms=none,
        busy_milli=none + 1000,
        daily_swing_milli=none,
        vram_mib=none,
        fails_every_ms=none,
    )


def _work(milli: int) -> Work:
    gpu = GpuRequest(share=Share.WHOLE, count=1)
    return Work(queue=_QUEUE, pod_sets=(PodSet(gpu=gpu, charge=(("gpu", milli),)),))
