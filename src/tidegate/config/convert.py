"""Converts tidegate.yaml to specs: nodes, policy, work and the options of the twin.

Takes documents that `tidegate.config.validate` found valid, and never fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import UNSET

from tidegate.config.convert_queues import build_queue_setup, taint_of, toleration_of
from tidegate.config.schema import (
    ConfigDocument,
    OrderEntry,
    PlacementEntry,
    PolicyEntry,
    PoolEntry,
    ShapeEntry,
    TwinEntry,
)
from tidegate.config.schema_work import PodsEntry, TopologyRequestEntry, UseEntry, WorkEntry
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import OrderRule, PlacementRule, Policy
from tidegate.model.simulation import InitialState, PlannedWorkload, RunProfile, TwinOptions
from tidegate.model.struct import labels, resources
from tidegate.model.units import WHOLE_MILLI
from tidegate.model.work import GpuRequest, PodSet, Share, SliceRule, SpreadRule, TopologyRequest, Work, Workload

POOL_LABEL = "tidegate.io/pool"
HOST_LABEL = "kubernetes.io/hostname"


class Setup(NamedTuple):
    """All that a run of the twin needs."""

    nodes: list[Node]
    policy: Policy
    work: list[PlannedWorkload]
    twin: TwinOptions
    snapshot: InitialState = InitialState()


def build(document: ConfigDocument) -> Setup:
    """Make everything that the document describes."""
    return Setup(
        nodes=[node for pool in document.cluster.pools for node in pool_nodes(pool)],
        policy=build_policy(document.policy),
        work=[planned for entry in document.work for planned in planned_workloads(entry)],
        twin=build_twin(document.twin),
    )


def pool_nodes(pool: PoolEntry) -> Iterator[Node]:
    """The nodes of a pool, in the order of their names."""
    shape = _shape(pool.name, pool.shape)
    taints = tuple(taint_of(taint) for taint in pool.taints)
    width = max(4, len(str(pool.count - 1)))
    for number in range(pool.count):
        name = f"{pool.name}-{number:0{width}d}"
        named = {**pool.labels, POOL_LABEL: pool.name, HOST_LABEL: name}
        yield Node(name=name, shape=shape, labels=labels(named), taints=taints)


def _shape(name: str, entry: ShapeEntry) -> NodeShape:
    amounts = {"cpu": int(entry.cpu), "memory": int(entry.memory), "pods": entry.pods}
    return NodeShape(
        name=name,
        gpu_model=entry.gpu,
        gpu_count=entry.gpus,
        gpu_memory_mib=int(entry.gpu_memory),
        nvlink_group_size=entry.nvlink_group,
        capacity=resources({**entry.other, **amounts}),
        reserved=resources({"cpu": int(entry.reserved.cpu), "memory": int(entry.reserved.memory)}),
    )


def build_policy(entry: PolicyEntry) -> Policy:
    """The policy."""
    order, placement = full_order(entry), full_placement(entry)
    return Policy(
        name=entry.name,
        order=OrderRule(
            kind=order.kind,
            strict=order.strict,
            reserve_after_ms=int(order.reserve_after),
            without_estimate=order.without_estimate,
            las_limits_gpu_s=order.limits,
        ),
        placement=PlacementRule(kind=placement.kind, seed=placement.seed),
        admission=entry.admission,
        shares=build_queue_setup(entry),
        cycle_ms=int(entry.cycle),
        waits=entry.waits,
    )


def full_order(entry: PolicyEntry) -> OrderEntry:
    """The order with its options, also where only its name was written."""
    return entry.order if isinstance(entry.order, OrderEntry) else OrderEntry(kind=entry.order)


def full_placement(entry: PolicyEntry) -> PlacementEntry:
    """The placement with its options, also where only its name was written."""
    return entry.placement if isinstance(entry.placement, PlacementEntry) else PlacementEntry(kind=entry.placement)


def build_twin(entry: TwinEntry) -> TwinOptions:
    """The twin's options."""
    return TwinOptions(
        seed=entry.seed,
        api_latency_ms=int(entry.api_latency),
        start_ms=int(entry.start),
        grace_ms=int(entry.grace),
        admission_fails_milli=int(entry.admission_fails),
        answers_lost_milli=int(entry.answers_lost),
        observe_every_ms=int(entry.observe_every),
        node_fails_every_ms=int(entry.node_fails_every),
        node_repair_ms=int(entry.node_repair),
    )


def planned_workloads(entry: WorkEntry) -> Iterator[PlannedWorkload]:
    """The workload, or its copies one after the other; they share what they ask for."""
    work, run = _work(entry), _run_profile(entry, entry.use)
    for number in range(entry.copies):
        submitted_ms = entry.submit + number * entry.every
        workload = Workload(
            id=f"{entry.id}-{number}" if entry.copies > 1 else entry.id,
            work=work,
            submitted_ms=submitted_ms,
            estimate_ms=0 if entry.estimate is UNSET else int(entry.estimate),
        )
        yield PlannedWorkload(workload=workload, run=run)


def _work(entry: WorkEntry) -> Work:
    return Work(
        queue=entry.queue,
        kind=entry.kind,
        priority=entry.priority,
        pod_sets=tuple(pod_set(pods) for pods in entry.pod_entries()),
        preemptible=entry.preemptible,
        protected_ms=int(entry.protected),
        checkpoint_every_ms=int(entry.checkpoint),
        restart_cost_ms=int(entry.restart),
        tolerated_wait_ms=int(entry.tolerates_wait),
    )


def _run_profile(entry: WorkEntry, use: UseEntry) -> RunProfile:
    return RunProfile(
        runtime_ms=int(entry.runtime),
        load_ms=int(use.load),
        idle_tail_ms=int(use.idle_tail),
        busy_milli=int(use.busy),
        daily_swing_milli=int(use.swing),
        vram_mib=int(use.gpu_memory),
        fails_every_ms=int(entry.fails_every),
    )


def pod_set(entry: PodsEntry) -> PodSet:
    """Pods of one kind."""
    return PodSet(
        name=entry.name,
        count=entry.count,
        min_count=entry.min_count,
        request=resources({**entry.other, "cpu": int(entry.cpu), "memory": int(entry.memory)}),
        gpu=_gpu_request(entry),
        selector=labels(entry.selector),
        tolerations=tuple(toleration_of(toleration) for toleration in entry.tolerations),
        topology=_topology_request(entry.topology),
    )


def _topology_request(entry: TopologyRequestEntry) -> TopologyRequest:
    spread = entry.spread
    return TopologyRequest(
        required=entry.required,
        preferred=entry.preferred,
        unconstrained=entry.unconstrained,
        slices=tuple(SliceRule(level=rule.level, size=rule.size) for rule in entry.slices),
        group=entry.group,
        spread=None if spread is UNSET else SpreadRule(level=spread.level, most=spread.most, required=spread.required),
    )


def _gpu_request(entry: PodsEntry) -> GpuRequest:
    if not entry.gpus:
        return GpuRequest()
    models, memory_mib = tuple(sorted(set(entry.models))), int(entry.gpu_memory)
    count, part = divmod(entry.gpus, WHOLE_MILLI)
    if part:
        return GpuRequest(share=Share.FRACTION, count=1, milli=part, memory_mib=memory_mib, models=models)
    return GpuRequest(share=Share.WHOLE, count=count, memory_mib=memory_mib, models=models)
