"""The bundled demo trace: a week of a mixed team cluster, generated from a seed.

Training gangs, notebooks, batch and inference of three teams on 208 GPUs, with what such clusters have: work that loads
for a while, notebooks that hold a GPU and hardly use it, gangs that keep their GPUs after the last step, services sized
for their peak. Invented, in proportions that published traces show; it is no measurement of a real cluster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.model.hardware import Node, NodeShape
from tidegate.model.simulation import PlannedWorkload, RunProfile, TwinOptions
from tidegate.model.struct import labels, resources
from tidegate.model.units import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS
from tidegate.model.work import GpuRequest, PodSet, Share, Work, WorkKind, Workload

_GIB = 1024


class _Pool(NamedTuple):
    name: str
    nodes: int
    model: str
    gpus: int
    gpu_memory_gib: int
    cores: int
    memory_gib: int


_POOLS = (
    _Pool("h100", 14, "h100", 8, 80, 192, 2048),
    _Pool("a100", 8, "a100", 8, 80, 128, 1024),
    _Pool("l40s", 8, "l40s", 4, 48, 64, 512),
)
_TEAMS = ("research", "product", "platform")


def sample_nodes() -> list[Node]:
    """The fleet of the sample."""
    nodes = []
    for pool in _POOLS:
        capacity = resources({"cpu": pool.cores * 1000, "memory": pool.memory_gib * _GIB, "pods": 110})
        reserved = resources({"cpu": 4000, "memory": 16 * _GIB})
        shape = NodeShape(
            name=f"{pool.model}x{pool.gpus}",
            gpu_model=pool.model,
            gpu_count=pool.gpus,
            gpu_memory_mib=pool.gpu_memory_gib * _GIB,
            nvlink_group_size=pool.gpus,
            capacity=capacity,
            reserved=reserved,
        )
        for index in range(pool.nodes):
            name = f"{pool.name}-{index:02d}"
            nodes.append(Node(name=name, shape=shape, labels=labels({"tidegate.io/pool": pool.name})))
    return nodes


def sample_options(seed: int = 1) -> TwinOptions:
    """How the machines of the sample behave."""
    return TwinOptions(
        seed=seed,
        api_latency_ms=200,
        start_ms=20_000,
        grace_ms=30_000,
        observe_every_ms=HOUR_MS,
        node_fails_every_ms=60 * DAY_MS,
        node_repair_ms=4 * HOUR_MS,
    )


def sample_work(seed: int = 1) -> list[PlannedWorkload]:
    """The work of the sample's week."""
    rng = np.random.default_rng(seed)
    return [*_services(), *_trainings(rng), *_notebooks(rng), *_batches(rng)]


def _pod(count: int, gpu: GpuRequest, cores: float, memory_gib: float) -> PodSet:
    request = resources({"cpu": round(cores * 1000), "memory": round(memory_gib * _GIB)})
    return PodSet(count=count, request=request, gpu=gpu)


def _whole(count: int, *models: str) -> GpuRequest:
    return GpuRequest(share=Share.WHOLE, count=count, models=tuple(sorted(models)))


def _services() -> list[PlannedWorkload]:
    """Inference, sized for its peak and up all week."""
    planned = []
    for team, name, replicas, gpus, model, busy in (
        ("product", "chat-70b", 3, 4, "h100", 420),
        ("product", "search-embed", 6, 1, "l40s", 250),
        ("product", "rerank", 4, 1, "l40s", 180),
        ("platform", "code-assist", 2, 2, "a100", 300),
        ("research", "eval-server", 2, 1, "l40s", 90),
    ):
        work = Work(
            queue=team,
            kind=WorkKind.INFERENCE,
            priority=100,
            pod_sets=(_pod(1, _whole(gpus, model), 8 * gpus, 64 * gpus),),
            preemptible=False,
        )
        run = RunProfile(
            runtime_ms=WEEK_MS - HOUR_MS,
            load_ms=4 * MINUTE_MS,
            busy_milli=busy,
            daily_swing_milli=700,
            vram_mib=40 * _GIB,
        )
        ids = [f"{name}-{replica}" for replica in range(replicas)]
        planned += [PlannedWorkload(workload=Workload(id=id_, work=work), run=run) for id_ in ids]
    return planned


def _trainings(rng: np.random.Generator) -> list[PlannedWorkload]:
    """Gangs, submitted by day, of a few hours to two days."""
    planned = []
    for index in range(130):
        nodes = int(rng.choice([1, 2, 4, 8], p=[0.5, 0.3, 0.18, 0.02]))
        model = "h100" if nodes > 2 or rng.random() < 0.6 else "a100"
        team = str(rng.choice(_TEAMS, p=[0.6, 0.25, 0.15]))
        urgent = rng.random() < 0.25
        work = Work(
            queue=team,
            kind=WorkKind.TRAINING,
            priority=20 if urgent else 10,
            pod_sets=(_pod(nodes, _whole(8, model), 96, 800),),
            checkpoint_every_ms=30 * MINUTE_MS,
            restart_cost_ms=6 * MINUTE_MS,
        )
        hours = float(np.clip(rng.lognormal(1.3, 0.8), 0.3, 30))
        forgotten = rng.random() < 0.3
        run = RunProfile(
            runtime_ms=int(hours * HOUR_MS),
            load_ms=int(rng.integers(6, 25)) * MINUTE_MS,
            idle_tail_ms=int(rng.integers(30, 360)) * MINUTE_MS if forgotten else 2 * MINUTE_MS,
            busy_milli=int(rng.integers(520, 900)),
            vram_mib=70 * _GIB,
            fails_every_ms=20 * DAY_MS,
        )
        workload = Workload(
            id=f"train-{index:03d}",
            work=work,
            submitted_ms=_by_day(rng),
            estimate_ms=int(hours * HOUR_MS * float(rng.uniform(0.8, 2.5))),
        )
        planned.append(PlannedWorkload(workload=workload, run=run))
    return planned


def _notebooks(rng: np.random.Generator) -> list[PlannedWorkload]:
    """Notebooks that hold a GPU from morning to evening, whatever they use of it."""
    planned = []
    for day in range(5):
        for person in range(34):
            if rng.random() < 0.25:
                continue
            half = rng.random() < 0.4
            gpu = GpuRequest(share=Share.FRACTION, count=1, milli=500, memory_mib=20 * _GIB) if half else _whole(1)
            work = Work(
                queue=_TEAMS[person % 3],
                kind=WorkKind.INTERACTIVE,
                priority=50,
                pod_sets=(_pod(1, gpu, 6, 48),),
                preemptible=False,
            )
            start_ms = day * DAY_MS + int(rng.normal(9.2, 0.8) * HOUR_MS)
            run = RunProfile(
                runtime_ms=int(float(np.clip(rng.normal(8, 2), 1, 14)) * HOUR_MS),
                load_ms=MINUTE_MS,
                busy_milli=int(rng.integers(20, 160)),
                vram_mib=18 * _GIB,
            )
            workload = Workload(id=f"notebook-{_DAYS[day]}-{person:02d}", work=work, submitted_ms=max(start_ms, 0))
            planned.append(PlannedWorkload(workload=workload, run=run))
    return planned


_DAYS = ("mon", "tue", "wed", "thu", "fri")


def _batches(rng: np.random.Generator) -> list[PlannedWorkload]:
    """Sweeps and nightly jobs: many small ones at a time."""
    planned = []
    for sweep in range(60):
        team = str(rng.choice(_TEAMS, p=[0.5, 0.2, 0.3]))
        gpus = int(rng.choice([1, 2, 4], p=[0.7, 0.2, 0.1]))
        work = Work(
            queue=team,
            kind=WorkKind.BATCH,
            priority=0,
            pod_sets=(_pod(1, _whole(gpus), 8 * gpus, 64 * gpus),),
            checkpoint_every_ms=10 * MINUTE_MS,
        )
        nightly = rng.random() < 0.5
        at_ms = int(rng.integers(0, 7)) * DAY_MS + 22 * HOUR_MS if nightly else _by_day(rng)
        for trial in range(int(rng.integers(6, 30))):
            run = RunProfile(
                runtime_ms=int(float(np.clip(rng.lognormal(3.6, 0.7), 4, 400)) * MINUTE_MS),
                load_ms=2 * MINUTE_MS,
                busy_milli=int(rng.integers(350, 950)),
                vram_mib=30 * _GIB,
            )
            workload = Workload(id=f"sweep-{sweep:02d}-{trial:02d}", work=work, submitted_ms=at_ms + trial * 500)
            planned.append(PlannedWorkload(workload=workload, run=run))
    return planned


def _by_day(rng: np.random.Generator) -> int:
    """A time when people work: weekdays mostly, around noon mostly."""
    day = int(rng.choice(7, p=[0.19, 0.2, 0.19, 0.18, 0.16, 0.04, 0.04]))
    hour = float(np.clip(rng.normal(13, 3.2), 0, 23.9))
    return day * DAY_MS + int(hour * HOUR_MS)
