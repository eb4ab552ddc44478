"""How fast the engine places at scale: a week's worth of work on a large mixed fleet, journal on disk.

    python bench/scale.py --nodes 10000 --jobs 1000000 --json
    python bench/scale.py --nodes 1000 --jobs 20000 --plain --json

The twin submits at an offered load of 1.2, so that work waits and refusals dominate. One process, one core.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.engine.run import run
from tidegate.jit.registry import kernels_as
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.simulation import TwinOptions
from tidegate.model.struct import resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work, WorkKind
from tidegate.sim.submissions import TwinJobs
from tidegate.sim.world import SimWorld
from tidegate.state.cluster import ClusterState

OFFERED_LOAD = 1.2
CYCLE_MS = 10_000

#: GPU model, GPUs, CPU cores, memory in GiB, share of the nodes.
SHAPES = (
    ("h100", 8, 192, 2048, 0.25),
    ("a100", 8, 128, 1024, 0.25),
    ("a100", 4, 64, 512, 0.10),
    ("l40s", 4, 64, 512, 0.15),
    ("v100", 8, 96, 768, 0.10),
    ("t4", 4, 48, 192, 0.10),
    ("a10", 2, 32, 128, 0.05),
)
BIG, SMALL, ANY = ("a100", "h100"), ("a10", "l40s", "t4"), ()

#: Share of the jobs, pods, GPUs a pod (or a fraction), cores a GPU, GiB a GPU, models, median minutes.
MIX = (
    (0.10, 1, 0.10, 20, 80, SMALL, 3),
    (0.10, 1, 0.25, 24, 64, ANY, 3),
    (0.08, 1, 0.50, 8, 32, ANY, 4),
    (0.06, 1, 0.50, 16, 64, ANY, 4),
    (0.05, 1, 0.75, 8, 32, ANY, 5),
    (0.12, 1, 1, 8, 48, ANY, 4),
    (0.08, 1, 1, 12, 96, BIG, 6),
    (0.05, 1, 1, 6, 32, ANY, 4),
    (0.06, 1, 2, 8, 64, ANY, 5),
    (0.05, 1, 4, 12, 96, ANY, 6),
    (0.04, 1, 8, 12, 96, ANY, 6),
    (0.02, 1, 8, 16, 128, ("h100",), 6),
    (0.04, 4, 1, 8, 48, ANY, 5),
    (0.04, 8, 1, 8, 64, ANY, 5),
    (0.04, 16, 1, 10, 64, ANY, 6),
    (0.02, 32, 1, 8, 64, ANY, 6),
    (0.01, 64, 1, 8, 48, ANY, 6),
    (0.02, 2, 8, 12, 96, ANY, 8),
    (0.01, 4, 8, 12, 96, BIG, 8),
    (0.01, 8, 4, 12, 96, ANY, 8),
)
QUEUES = (("research", 0, 0.5), ("product", 10, 0.3), ("batch", -5, 0.2))


def fleet(nodes: int) -> list[Node]:
    """Nodes of every shape, mixed."""
    shares = np.cumsum([shape[4] for shape in SHAPES])
    made = []
    for number in range(nodes):
        model, gpus, cores, memory, _ = SHAPES[int(np.searchsorted(shares, (number * 0.618034) % 1.0 * shares[-1]))]
        capacity = resources({"cpu": cores * 1000, "memory": memory * 1024, "pods": 250})
        shape = NodeShape(name=f"{model}x{gpus}", gpu_model=model, gpu_count=gpus, capacity=capacity)
        made.append(Node(name=f"node-{number:06d}", shape=shape))
    return made


def work_of(row: tuple[Any, ...], queue: str, priority: int) -> Work:
    _, pods, gpus, cores, memory, models, _ = row
    if gpus < 1:
        gpu = GpuRequest(share=Share.FRACTION, count=1, milli=round(gpus * 1000), models=models)
    else:
        gpu = GpuRequest(share=Share.WHOLE, count=gpus, models=models)
    request = resources({"cpu": round(cores * gpus * 1000), "memory": round(memory * gpus * 1024)})
    kind = WorkKind.TRAINING if pods > 1 else WorkKind.BATCH
    pod_set = PodSet(count=pods, request=request, gpu=gpu)
    return Work(queue=queue, kind=kind, priority=priority, pod_sets=(pod_set,))


def jobs(count: int, gpus: int, seed: int) -> TwinJobs:
    """Work of many classes, arriving at the offered load."""
    rng = np.random.default_rng(seed)
    works = [work_of(row, queue, priority) for row in MIX for queue, priority, _ in QUEUES]
    weights = np.array([row[0] * share for row in MIX for _, _, share in QUEUES])
    median_ms = np.array([row[6] * 60_000 for row in MIX for _ in QUEUES])
    work = rng.choice(len(works), count, p=weights / weights.sum()).astype(np.int32)
    runtime_ms = (median_ms[work] * np.exp(rng.normal(0, 0.6, count))).astype(np.int64) + 1000
    none = np.zeros(count, np.int64)
    ids = [f"job-{number:08d}" for number in range(count)]
    made = TwinJobs(ids, tuple(works), work, none, runtime_ms, none, none, none, none + 1000, none, none, none)
    span_ms = float((made.gpu_milli() / 1000 * runtime_ms).sum()) / gpus / OFFERED_LOAD
    return made._replace(submit_ms=np.sort(rng.integers(0, math.ceil(span_ms), count)))


class Counting(Journal):
    """A journal on disk that counts."""

    placements, decisions, holds, steps_taken, bytes_known = 0, 0, 0, 0, 0

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Write the step down and count its decisions."""
        super().append(now_ms, events, result)
        kinds = np.bincount(result.decisions.kind, minlength=13)
        self.placements += int(kinds[DecisionKind.PLACE])
        self.holds += int(kinds[DecisionKind.HOLD])
        self.decisions += len(result.decisions.id)
        self.steps_taken += 1


def is_all_placed(state: ClusterState, world: SimWorld) -> bool:
    """Whether the last workload has its place: what is left is waiting for the end."""
    return world.has_submitted_all() and not state.work_classes.waiting.any()


def measure(nodes: int, count: int, policy: str, seed: int) -> dict[str, Any]:
    machines = fleet(nodes)
    gpus = sum(node.shape.gpu_count for node in machines)
    work = jobs(count, gpus, seed)
    rule = Policy(name=policy, placement=PlacementRule(kind=PlacementKind(policy)), cycle_ms=CYCLE_MS)
    hours = work.gpu_milli() / 1000 * work.runtime_ms
    with tempfile.TemporaryDirectory() as folder:
        file = JournalFile.create(Path(folder) / "scale.db")
        journal = Counting(file, remember=False)
        world = SimWorld(machines, work, rule, TwinOptions(seed=seed, observe_every_ms=0))
        state = ClusterState()
        started = time.perf_counter()
        run(state, world, journal, lambda _: world.is_over() or is_all_placed(state, world))
        seconds = time.perf_counter() - started
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        file.close()
    return {
        "nodes": nodes,
        "gpus": gpus,
        "shapes": len(SHAPES),
        "jobs": count,
        "classes_of_work": len(np.unique(work.work)),
        "gang_share_of_gpu_hours": round(float(hours[work.pods() > 1].sum() / hours.sum()), 3),
        "fraction_share_of_jobs": round(float((work.gpu_milli() < 1000).mean()), 3),
        "offered_load": OFFERED_LOAD,
        "policy": policy,
        "cycle_ms": CYCLE_MS,
        "steps": journal.steps_taken,
        "placements": journal.placements,
        "decisions": journal.decisions,
        "holds": journal.holds,
        "seconds": round(seconds, 3),
        "placements_per_s": round(journal.placements / seconds),
        "journal_mib": round(size / 2**20, 1),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "digest": state.digest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--policy", default="bestfit", choices=[kind.value for kind in PlacementKind])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="run the kernels uncompiled")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with kernels_as(compiled=not options.plain):
        if not options.plain:
            measure(200, 2_000, options.policy, options.seed)  # warm
        result = measure(options.nodes, options.jobs, options.policy, options.seed)
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        for key, value in result.items():
            print(f"{key:>24}  {value}")


if __name__ == "__main__":
    main()
