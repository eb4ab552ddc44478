"""Reproduce the simulations of SRTF, SRSF and Tiresias-L in "Muri" (SIGCOMM'22) with Tidegate's engine.

python bench/muri.py --data ../shared/traces/muri_philly --trace trace1 --policy srtf --json
python bench/muri.py --data ../shared/traces/muri_philly --all
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rounds import RoundJob, RoundWorld
from tidegate.engine.run import run
from tidegate.jit.registry import kernels_as
from tidegate.model.decisions import StepResult
from tidegate.model.facts import FactBatch
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.struct import resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work
from tidegate.state.cluster import ClusterState

POLICIES = {"srtf": "SRTF", "srsf": "SRSF", "las": "Tiresias_L"}
NODES, GPUS_A_NODE = 8, 8
SLOWDOWN = 1.015  # of an iteration, for running under the scheduler
MODELS = ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0", "bert", "gpt2", "a2c", "dqn")
OVERHEADS_S = {
    1: (7, 7, 4, 4, 10, 10, 38, 5),
    2: (7, 7, 5, 4, 10, 10, 39, 5),
    4: (8, 8, 5, 5, 10, 10, 39, 6),
    8: (9, 9, 7, 5, 10, 10, 46, 6),
    16: (9, 10, 7, 7, 10, 10, 46, 8),
    32: (10, 10, 7, 8, 10, 10, 46, 8),
}


class Unrecorded:
    """A journal for measurements: counts, keeps nothing."""

    def __init__(self) -> None:
        self.decisions = 0

    def append(self, now_ms: int, events: FactBatch, result: StepResult) -> None:
        """Count the decisions."""
        del now_ms, events
        self.decisions += len(result.decisions.id)


def gang(gpus: int, policy: str) -> Work:
    """A job's pods. Tiresias-L looks at the total of free GPUs only: single GPUs anywhere. The others fill nodes."""
    each = 1 if policy == "las" else min(gpus, GPUS_A_NODE)
    rest = gpus % each
    sets = [PodSet(name="full", count=gpus // each, gpu=GpuRequest(share=Share.WHOLE, count=each))]
    if rest:
        sets.append(PodSet(name="rest", count=1, gpu=GpuRequest(share=Share.WHOLE, count=rest)))
    return Work(pod_sets=tuple(sets))


def read_jobs(path: Path, policy: str) -> list[RoundJob]:
    works: dict[int, Work] = {}
    jobs = []
    with path.open() as file:
        for row in csv.DictReader(file):
            gpus = int(row["num_gpu"])
            jobs.append(
                RoundJob(
                    id=f"{int(row['job_id']):08d}",
                    work=works.setdefault(gpus, gang(gpus, policy)),
                    gpus=gpus,
                    submit_s=float(row["submit_time"]) / 1000,
                    iterations=float(row["iterations"]),
                    iteration_s=float(row["iteration_time"]) * SLOWDOWN / 1000,
                    overhead_s=OVERHEADS_S[gpus][MODELS.index(row["model_name"])],
                )
            )
    return jobs


class Simulated(NamedTuple):
    """A simulation that came to its end."""

    world: RoundWorld
    decisions: int


def simulated(jobs: list[RoundJob], policy: str, nodes: int = NODES) -> Simulated:
    """Run jobs under a policy until all have ended."""
    order = OrderRule(kind=OrderKind(policy))
    rule = Policy(name=policy, order=order, placement=PlacementRule(kind=PlacementKind.FIRST_FIT), cycle_ms=1)
    shape = NodeShape(name="g8", gpu_count=GPUS_A_NODE, capacity=resources({"pods": 1000}))
    world = RoundWorld([Node(name=f"node-{row}", shape=shape) for row in range(nodes)], jobs, rule)
    journal = Unrecorded()
    run(ClusterState(), world, journal, lambda _: world.is_over())
    return Simulated(world, journal.decisions)


def run_one(folder: Path, trace: str, policy: str) -> dict[str, Any]:
    path = folder / f"{trace}.csv"
    if not path.exists():
        raise SystemExit(f"muri: no trace {path}")
    jobs = read_jobs(path, policy)
    started = time.perf_counter()
    world, decisions = simulated(jobs, policy)
    seconds = time.perf_counter() - started
    times = np.sort(world.ends_s - np.array([job.submit_s for job in world.jobs]))
    return {
        "trace": trace,
        "policy": policy,
        "avg_jct_s": round(float(times.mean()), 4),
        "makespan_s": round(float(world.ends_s.max()), 6),
        "p99_jct_s": round(float(times[int(0.99 * len(times))]), 6),
        "decisions": decisions,
        "seconds": round(seconds, 3),
    }


def compare_all(folder: Path) -> bool:
    """Run everything in the folder and print it against `published.csv`; say whether all averages are equal."""
    with (folder / "published.csv").open() as file:
        published = {(row["trace"], row["policy"]): row for row in csv.DictReader(file)}
    equal = True
    for path in sorted(folder.glob("trace*.csv")):
        for policy, name in POLICIES.items():
            result = run_one(folder, path.stem, policy)
            row = published.get((path.stem, name))
            if row is None:
                print(f"{path.stem:10} {policy:5} {result['avg_jct_s']:16.4f}   nothing published")
                continue
            off = abs(result["avg_jct_s"] - float(row["published_avg_jct_s"])) / float(row["published_avg_jct_s"])
            same = abs(result["avg_jct_s"] - float(row["published_avg_jct_s"])) < 0.001
            verdict = "equal" if same else f"DIFFERS by {off:.1e}"
            equal = equal and same
            print(
                f"{path.stem:10} {policy:5} {result['avg_jct_s']:16.4f} published {row['published_avg_jct_s']:>14}"
                f"   {verdict}   {result['seconds']:.1f} s",
                flush=True,
            )
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces")
    parser.add_argument("--trace", default="trace1")
    parser.add_argument("--policy", choices=POLICIES, default="srtf")
    parser.add_argument("--plain", action="store_true", help="run the kernels uncompiled")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--all", action="store_true", help="run everything in the folder against published.csv")
    options = parser.parse_args()
    with kernels_as(compiled=not options.plain):
        if options.all:
            raise SystemExit(0 if compare_all(options.data) else 1)
        result = run_one(options.data, options.trace, options.policy)
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        for key, value in result.items():
            print(f"{key:>12}  {value}")


if __name__ == "__main__":
    main()
