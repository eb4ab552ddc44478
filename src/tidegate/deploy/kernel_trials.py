"""Kernel trials: small runs that call every kernel with all types of arguments, so that all are compiled.

A kernel is compiled with all kernels that it calls, so it is enough to call those that Python calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from tidegate.engine.kernels.gang_placement import empty_output, place_pod
from tidegate.engine.kernels.node_fit import free_pod, log_change, move_pod, refusal
from tidegate.engine.kernels.observe_bound import more_devices
from tidegate.engine.kernels.pending_queue import note_reported, unlink
from tidegate.engine.kernels.quota import available, remove_usage, share_for_weight, share_ratio
from tidegate.engine.kernels.withhold_places import drop_reservation, end_reservations
from tidegate.engine.placement_rule import ready_rule
from tidegate.engine.step import step
from tidegate.jit.registry import compiled
from tidegate.journal.queue_position import tree_of
from tidegate.journal.writer import Journal
from tidegate.live.kernel_warmup import warm_up
from tidegate.measure.collector import RunCollector
from tidegate.measure.fragmentation import fragmented_milli
from tidegate.model.facts import FactKind, Facts
from tidegate.model.hardware import Node, NodeShape, TopologyLevels
from tidegate.model.policy import AdmissionKind, OrderKind, OrderRule, Policy
from tidegate.model.queues import (
    FairSharing,
    Flavor,
    FlavorGroup,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
)
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.model.struct import labels, resources
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.model.work import GpuRequest, PodSet, Share, TopologyRequest, Work, Workload
from tidegate.planning.capacity_replay import CapacityReplayer
from tidegate.planning.kernels.replay import Steps
from tidegate.planning.replay_jobs import PlanJobs
from tidegate.sim.batched_run import run_twin
from tidegate.sim.submissions import jobs_of
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState

#: Steps of a run, at most.
_MOST_STEPS = 150

_HOST = "kubernetes.io/hostname"
_LEVELS = ("rack", _HOST)
_RULE = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
_QUOTAS = (Quota("any", "gpu", 8), Quota("any", "cpu", 1_000_000))
_GROUP = FlavorGroup(("gpu", "cpu"), ("any",))
_QUEUES = tuple(Queue(name, "all", (_GROUP,), _QUOTAS, _RULE) for name in ("a", "b"))
_SHARES = QueueSetup(flavors=(Flavor("any"),), queues=_QUEUES)
_PLACED = replace(
    _SHARES, flavors=(Flavor("any", topology="network"),), topologies=(TopologyLevels("network", _LEVELS),)
)

#: Queues on nodes, by quota alone, and with a topology; in each mode of admission.
QUEUES = Policy(shares=_SHARES)
TOPOLOGY = Policy(admission=AdmissionKind.KUEUE, shares=_PLACED)


def trials() -> list[Callable[[], object]]:
    """All trials."""
    orders = [Policy(order=OrderRule(kind=kind)) for kind in (OrderKind.FIFO, OrderKind.SRTF, OrderKind.LAS)]
    queues = [
        QUEUES,
        replace(QUEUES, admission=AdmissionKind.KUEUE),
        TOPOLOGY,
        replace(TOPOLOGY, admission=AdmissionKind.TIDEGATE),
    ]
    fair = replace(QUEUES, shares=replace(_SHARES, fair=FairSharing()))
    return [
        *(partial(warm_up, policy, compiled=True) for policy in (orders[0], QUEUES)),
        *(partial(run_trial, policy, _nodes(3)) for policy in (*orders, *queues, fair)),
        *(partial(run_trial, replace(policy, cycle_ms=MINUTE_MS), []) for policy in queues[:2]),
        look_at_all,
        judge,
    ]


def _nodes(count: int) -> list[Node]:
    capacity = resources({"cpu": 64_000, "memory": 64_000, "pods": 20})
    shape = NodeShape(name="trial", gpu_count=8, gpu_memory_mib=80_000, capacity=capacity)
    named = [(f"n{number}", f"r{number % 2}") for number in range(count)]
    return [Node(name=name, shape=shape, labels=labels({_HOST: name, "rack": rack})) for name, rack in named]


def _work(count: int) -> list[PlannedWorkload]:
    sizes = (GpuRequest(share=Share.WHOLE, count=4), GpuRequest(share=Share.FRACTION, count=1, milli=300))
    made = []
    for number in range(count):
        whole = number % 4 > 0
        pods = PodSet(
            count=1 + number % 3,
            min_count=number % 2,
            request=(("cpu", 1000),),
            charge=(("gpu", 1 + number % 3), ("cpu", 1000)),
            gpu=sizes[not whole],
            topology=TopologyRequest(preferred="rack") if number % 5 == 0 else TopologyRequest(),
        )
        work = Work(queue="ab"[number % 2], priority=number % 3, pod_sets=(pods,))
        workload = Workload(id=f"w{number}", work=work, submitted_ms=number * 7 * MINUTE_MS, estimate_ms=HOUR_MS)
        made.append(PlannedWorkload(workload=workload, run=RunProfile(runtime_ms=HOUR_MS)))
    return made


def run_trial(policy: Policy, nodes: list[Node]) -> None:
    """Run work in the twin, on nodes that fail, or with quota only."""
    fails = TwinOptions(node_fails_every_ms=4 * HOUR_MS, admission_fails_milli=100, observe_every_ms=HOUR_MS)
    world = SimWorld(nodes, jobs_of(_work(24)), policy, fails if nodes else TwinOptions(observe_every_ms=0))
    state = ClusterState()
    left = iter(range(_MOST_STEPS))
    run_twin(
        state, world, RunCollector(state, Journal(), every_ms=HOUR_MS), lambda _: world.is_over() or next(left, -1) < 0
    )


def look_at_all() -> None:
    """Call the kernels that read a state."""
    state, facts = ClusterState(), Facts()
    facts.policy(QUEUES)
    for number, node in enumerate(_nodes(2)):
        facts.node(number, node)
    for number, each in enumerate(_work(4)):
        facts.submit(number, each.workload)
    step(state, facts.batch(), HOUR_MS)
    for kind in (FactKind.POD_GONE, FactKind.WORKLOAD_CANCELLED):
        leaving = Facts()
        leaving.add(kind, HOUR_MS, 0)
        step(state, leaving.batch(), HOUR_MS)
    fragmented_milli(state)
    for kernel, arguments in _called_rarely(state):
        form = compiled(kernel)
        form.compile(tuple(form.typeof_pyval(each) for each in arguments))


def _called_rarely(state: ClusterState) -> list[tuple[Any, tuple[object, ...]]]:
    """Kernels that Python calls in rare cases, with arguments."""
    hot, tree, works, table = state.hot(), tree_of(state), state.work_classes.block, state.workloads.block
    rule = ready_rule(state).rule
    return [
        (available, (tree, 0, 0)),
        (drop_reservation, (hot, 0)),
        (end_reservations, (hot,)),
        (free_pod, (hot, 0)),
        (log_change, (hot, 0)),
        (more_devices, (hot, 0, 0, 0)),
        (move_pod, (hot, 0, 0, 0, 1)),
        (note_reported, (works, table, 0, 0)),
        (place_pod, (hot, rule, 0, 0, 0, empty_output(1))),
        (refusal, (hot, 0, 0)),
        (remove_usage, (tree, 0, 0, 0)),
        (share_for_weight, (tree, 0, 0.0)),
        (share_ratio, (tree, 0)),
        (unlink, (hot, 0)),
    ]


def judge() -> None:
    """Replay jobs against a capacity, as plans do."""
    numbers = np.arange(1, 5, dtype=np.int64)
    jobs = PlanJobs(at_ms=numbers, run_ms=numbers * HOUR_MS, gpus_milli=numbers * 1000, pods=numbers)
    first = np.zeros(1, np.int64)
    CapacityReplayer(jobs, compiled=True).replay(Steps(first, first + 4000, first))
