"""Reproduce the openb placement experiment ("Beware of Fragmentation", ATC'23) with Tidegate's engine.

    python bench/openb.py --data ../shared/traces/openb --workload default --seed 42 --policy fgd --json
    python bench/openb.py --data ../shared/traces/openb --all

The engine places every pod through `step`; this script only reads the files and measures.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import statistics
import sys
import time
from collections import Counter as Count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.engine.placement_rule import set_typical
from tidegate.engine.step import step
from tidegate.jit.registry import kernels_as
from tidegate.journal.encoding import pack_result
from tidegate.measure.fragmentation import fragmented_milli
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactBatch, Facts, Submissions
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import PlacementKind, PlacementRule, Policy, TypicalPod
from tidegate.model.struct import resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work
from tidegate.state.cluster import ClusterState

POLICIES = ("random", "dotprod", "clustering", "packing", "bestfit", "fgd", "tide")
PUBLISHED_NAMES = {
    "random": "01-Random",
    "dotprod": "02-DotProd",
    "clustering": "03-GpuClustering",
    "packing": "04-GpuPacking",
    "bestfit": "05-BestFit",
    "fgd": "06-FGD",
}
PODS_A_NODE = 1001
PODS_A_STEP = 100


class Experiment(NamedTuple):
    """One workload of the folder."""

    works: list[Work]  # one for each distinct pod
    work_of: np.ndarray  # by row of the pod list
    milli_of: np.ndarray  # GPU milli, by row of the pod list
    orders: dict[int, np.ndarray]
    ranks: dict[int, np.ndarray]


def read_nodes(folder: Path) -> list[dict[str, str]]:
    with (folder / "openb_node_list_gpu_node.csv").open() as file:
        return list(csv.DictReader(file))


def read_experiment(folder: Path, workload: str) -> Experiment:
    with (folder / f"openb_pod_list_{workload}.csv").open() as file:
        pods = list(csv.DictReader(file))
    seen: dict[tuple[Any, ...], int] = {}
    works: list[Work] = []
    work_of = np.zeros(len(pods), np.int32)
    for row, pod in enumerate(pods):
        gpus, milli = int(pod["num_gpu"]), int(pod["gpu_milli"])
        key = (int(pod["cpu_milli"]), int(pod["memory_mib"]), gpus, milli if gpus else 0, pod.get("gpu_spec") or "")
        if key not in seen:
            seen[key] = len(works)
            works.append(Work(pod_sets=(pod_set(*key),)))
        work_of[row] = seen[key]
    milli_of = np.array([int(pod["num_gpu"]) * int(pod["gpu_milli"]) for pod in pods], np.int64)
    orders: dict[int, np.ndarray] = {}
    ranks: dict[int, np.ndarray] = {}
    with gzip.open(folder / "orders" / f"{workload}.csv.gz", "rt") as file:
        for line in file:
            kind, seed, *values = line.rstrip("\n").split(",")
            if kind in ("pods", "noderank"):
                (orders if kind == "pods" else ranks)[int(seed)] = np.array(values, np.int64)
    return Experiment(works, work_of, milli_of, orders, ranks)


def pod_set(cpu: int, memory: int, gpus: int, milli: int, spec: str) -> PodSet:
    models = tuple(sorted(model for model in spec.split("|") if model))
    if gpus == 0:
        gpu = GpuRequest(models=models)
    elif milli < 1000:
        gpu = GpuRequest(share=Share.FRACTION, count=1, milli=milli, models=models)
    else:
        gpu = GpuRequest(share=Share.WHOLE, count=gpus, models=models)
    return PodSet(request=resources({"cpu": cpu, "memory": memory}), gpu=gpu)


def opening(nodes: list[dict[str, str]], ranks: np.ndarray, policy: Policy) -> FactBatch:
    """The empty cluster. Names are made so that their order is the published tie-break rank."""
    facts = Facts()
    facts.policy(policy)
    for row, node in enumerate(nodes):
        capacity = {"cpu": int(node["cpu_milli"]), "memory": int(node["memory_mib"]), "pods": PODS_A_NODE}
        shape = NodeShape(
            name=node["model"], gpu_model=node["model"], gpu_count=int(node["gpu"]), capacity=resources(capacity)
        )
        facts.node(row, Node(name=f"{ranks[row]:06d}-{node['sn']}", shape=shape))
    return facts.batch()


def typical_pods(experiment: Experiment) -> tuple[TypicalPod, ...]:
    counts = Count(experiment.work_of.tolist())
    return tuple(
        TypicalPod(pod=experiment.works[work].pod_sets[0], count=count) for work, count in sorted(counts.items())
    )


def arrivals(experiment: Experiment, order: np.ndarray) -> list[tuple[FactBatch, int]]:
    """Pods in their order, one a millisecond, told in groups."""
    batches = []
    for first in range(0, len(order), PODS_A_STEP):
        rows = order[first : first + PODS_A_STEP]
        numbers = np.arange(first, first + len(rows), dtype=np.int64)
        none = np.zeros(len(rows), np.int64)
        ids = [f"pod-{number:07d}" for number in numbers.tolist()]
        facts = Facts()
        submissions = Submissions(experiment.work_of[rows], numbers, none, ids)
        facts.submit_many(numbers, experiment.works, submissions, numbers)
        batches.append((facts.batch(), int(numbers[-1])))
    return batches


def digest_of(folder: Path, workload: str, seed: int, policy: str, *, pods: int) -> str:
    """A fingerprint of the journal of the first pods."""
    experiment, nodes = read_experiment(folder, workload), read_nodes(folder)
    experiment.orders[seed] = experiment.orders[seed][:pods]
    placement = PlacementRule(kind=PlacementKind(policy), seed=seed, typical=typical_pods(experiment))
    state, _, results, _ = place_all(nodes, experiment, seed, placement)
    packed = b"".join(pack_result(result) for result in results)
    return hashlib.blake2b(packed + state.dump(), digest_size=16).hexdigest()


def place_all(
    nodes: list[dict[str, str]], experiment: Experiment, seed: int, placement: PlacementRule
) -> tuple[ClusterState, np.ndarray, list[Any], float]:
    """Run one experiment; return the state, who was placed, the results of the steps, and the seconds taken."""
    state = ClusterState()
    policy = Policy(placement=placement, waits=False)
    step(state, opening(nodes, experiment.ranks[seed], policy), 0)
    order = experiment.orders[seed]
    batches = arrivals(experiment, order)
    placed = np.zeros(len(order), bool)
    started = time.perf_counter()
    results = [step(state, events, now_ms) for events, now_ms in batches]
    seconds = time.perf_counter() - started
    for result in results:
        decisions = result.decisions
        placed[decisions.workload[decisions.kind == DecisionKind.PLACE]] = True
    return state, placed, results, seconds


def curve(arrived: np.ndarray, used: np.ndarray, total_milli: int) -> list[float]:
    """The published curve: mean allocation of the pods at each whole percent of arrival."""
    x = np.rint(100 * arrived / total_milli).astype(int)  # rint rounds half to even, as published
    y = np.array([round(100 * u / total_milli, 2) for u in used.tolist()])
    values = []
    for percent in range(131):
        here = x == percent
        if not here.any():
            here = (x == percent - 1) | (x == percent + 1)
        values.append(round(float(y[here].mean()), 2) if here.any() else float("nan"))
    return values


def run_one(folder: Path, workload: str, seed: int, policy: str, *, learn: bool = False) -> dict[str, Any]:
    experiment, nodes = read_experiment(folder, workload), read_nodes(folder)
    if seed not in experiment.orders:
        raise SystemExit(f"openb: no seed {seed} for {workload}; the folder has {sorted(experiment.orders)}")
    typical = () if learn else typical_pods(experiment)
    placement = PlacementRule(kind=PlacementKind(policy), seed=seed, typical=typical)
    state, placed, _, seconds = place_all(nodes, experiment, seed, placement)
    return summary(state, experiment, seed, placed) | {
        "workload": workload,
        "seed": seed,
        "policy": policy,
        "seconds": round(seconds, 4),
    }


def summary(state: ClusterState, experiment: Experiment, seed: int, placed: np.ndarray) -> dict[str, Any]:
    milli = experiment.milli_of[experiment.orders[seed]]
    arrived, used = np.cumsum(milli), np.cumsum(np.where(placed, milli, 0))
    nodes = state.nodes
    total = int(nodes.devices[: nodes.top].sum()) * 1000
    values = curve(arrived, used, total)
    measured = state.fork()
    set_typical(measured, typical_pods(experiment))
    devices = np.arange(nodes.left.shape[1])[None, :] < nodes.devices[: nodes.top, None]
    return {
        "arrived_milli": int(arrived[-1]),
        "used_milli": int(used[-1]),
        "failed_pods": int((~placed).sum()),
        "cpu_milli": int((nodes.cpu - nodes.cpu_free)[: nodes.top].sum()),
        "gpus_touched": int(((nodes.left[: nodes.top] < 1000) & devices).sum()),
        "frag_milli": round(fragmented_milli(measured), 2),
        "alloc_100": values[100],
        "alloc_130": values[130],
        "curve": values,
    }


class Row(NamedTuple):
    """One run against what was published."""

    workload: str
    policy: str
    seed: int
    result: dict[str, Any]
    differs: list[str]  # fields that are not as published


def compare_all(folder: Path) -> bool:
    """Run everything in the folder and print it against its published files; say whether all that must be equal is."""
    expected = read_keyed(folder / "expected_final_states.csv", ("workload", "policy", "seed"))
    curves = read_keyed(folder / "published_curves.csv", ("workload", "sc_policy", "seed"))
    means = read_keyed(folder / "published_allocation.csv", ("workload", "policy", "arrival_pct"))
    workloads = sorted(path.name.removesuffix(".csv.gz") for path in (folder / "orders").glob("*.csv.gz"))
    rows = []
    for workload in workloads:
        for policy in POLICIES:
            for seed in sorted(read_experiment(folder, workload).orders):
                result = run_one(folder, workload, seed, policy)
                published = PUBLISHED_NAMES.get(policy, "")
                differs = differences(
                    result,
                    expected.get((workload, published, str(seed))),
                    curves.get((f"openb_pod_list_{workload}", published, str(seed))) if policy != "random" else None,
                )
                rows.append(Row(workload, policy, seed, result, differs))
            print_rows([row for row in rows if (row.workload, row.policy) == (workload, policy)], means)
    wrong = [row for row in rows if row.differs]
    exact = sum(row.policy not in ("random", "tide") for row in rows)
    print(f"{exact - len(wrong)} of {exact} deterministic runs equal their published final states and curves")
    for row in wrong:
        print(f"  {row.workload} {row.policy} {row.seed}: {', '.join(row.differs)}")
    return not wrong and print_gains(rows, means)


def read_keyed(path: Path, keys: tuple[str, ...]) -> dict[tuple[str, ...], dict[str, str]]:
    if not path.exists():
        return {}
    with path.open() as file:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}


def differences(result: dict[str, Any], final: dict[str, str] | None, published: dict[str, str] | None) -> list[str]:
    """The names of what is not as published."""
    wrong = []
    if final is not None:
        pairs = {
            "failed_pods": "failed_pods",
            "used_milli": "used_gpu_milli_final",
            "cpu_milli": "cpu_milli_used_final",
            "gpus_touched": "gpus_touched_final",
            "frag_milli": "frag_gpu_milli_final",
        }
        wrong += [ours for ours, theirs in pairs.items() if abs(result[ours] - float(final[theirs])) > 0.011]
    if published is not None:
        off = [x for x, y in enumerate(result["curve"]) if not abs(y - float(published[str(x)])) <= 0.0101]
        wrong += [f"curve at {x}" for x in off]
    return wrong


def print_rows(rows: list[Row], means: dict[tuple[str, ...], dict[str, str]]) -> None:
    workload, policy = rows[0].workload, rows[0].policy
    ours = [statistics.mean(row.result[key] for row in rows) for key in ("alloc_100", "alloc_130")]
    name = PUBLISHED_NAMES.get(policy, "06-FGD")
    theirs = [means.get((workload, name, percent), {}).get("alloc_ratio_mean", "") for percent in ("100", "130")]
    seconds = max(row.result["seconds"] for row in rows)
    beside = "FGD published" if policy == "tide" else "published"
    print(
        f"{workload:12} {policy:11} @100 {ours[0]:6.2f} @130 {ours[1]:6.2f}   {beside} {theirs[0]:>7} {theirs[1]:>7}"
        f"   slowest {seconds:.2f} s",
        flush=True,
    )


def print_gains(rows: list[Row], means: dict[tuple[str, ...], dict[str, str]]) -> bool:
    """Print what `tide` gains on FGD's published means; say whether it gains what it must."""
    gains = []
    for workload in sorted({row.workload for row in rows}):
        of_tide = [row.result for row in rows if row.workload == workload and row.policy == "tide"]
        fgd = [means.get((workload, "06-FGD", percent)) for percent in ("100", "130")]
        if all(fgd):
            gains.append(
                [
                    statistics.mean(result[f"alloc_{percent}"] for result in of_tide) - float(mean["alloc_ratio_mean"])
                    for percent, mean in zip((100, 130), fgd, strict=True)
                    if mean
                ]
            )
    if not gains:
        return True
    least = [min(gain[i] for gain in gains) for i in range(2)]
    mean = [statistics.mean(gain[i] for gain in gains) for i in range(2)]
    print(
        f"tide gains on FGD's published means: least {least[0]:+.2f} / {least[1]:+.2f} points at 100 / 130 %, ", end=""
    )
    print(f"on average {mean[0]:+.2f} / {mean[1]:+.2f}")
    return bool(min(least) >= 0.5 and mean[0] >= 1.5 and mean[1] >= 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the openb files")
    parser.add_argument("--workload", default="default")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--policy", choices=POLICIES, default="fgd")
    parser.add_argument("--learn", action="store_true", help="learn the typical pods from the pods so far")
    parser.add_argument("--plain", action="store_true", help="run the kernels uncompiled")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--all", action="store_true", help="run everything in the folder against its published files")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"openb: no folder {options.data}; name one with the layout of ../shared/traces/openb")
    with kernels_as(compiled=not options.plain):
        if options.all:
            raise SystemExit(0 if compare_all(options.data) else 1)
        if not options.plain:
            run_one(options.data, options.workload, options.seed, options.policy, learn=options.learn)  # warm
        result = run_one(options.data, options.workload, options.seed, options.policy, learn=options.learn)
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        for key, value in result.items():
            if key != "curve":
                print(f"{key:>14}  {value}")


if __name__ == "__main__":
    main()
