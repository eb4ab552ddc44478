"""Whole cycles with quota and topology: gangs of three queues in the 847-host network of Alibaba's Lingjun.

    python bench/topology_cycles.py --data ../shared/traces/topology --json
    python bench/topology_cycles.py --gangs 200 --plain

Three queues of one cohort own a third of the 6,776 GPUs each. Gangs of 1 to 64 hosts must or should stay under one
switch, or are spread over several; a quarter of them has a higher priority and may preempt. All of them are waiting at
the start; then, step by step, the oldest tenth of what runs finishes, victims go at once, and cycles run until nothing
more is admitted. Every admission takes quota, spots and places on exactly those spots, in one transaction.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.engine.step import step
from tidegate.jit.registry import kernels_as
from tidegate.model.decisions import DecisionKind, StepResult
from tidegate.model.facts import FactKind, Facts
from tidegate.model.hardware import Node, NodeShape, TopologyLevels
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import Flavor, FlavorGroup, PreemptionRule, PreemptWhom, Queue, QueueSetup, Quota
from tidegate.model.struct import labels, resources
from tidegate.model.work import GpuRequest, PodSet, Share, SliceRule, SpreadRule, TopologyRequest, Work, Workload
from tidegate.state.check import check
from tidegate.state.cluster import ClusterState
from tidegate.state.topology import HOST

SWITCHES = ("DSW", "PSW", "ASW")
QUEUES = ("red", "green", "blue")
SHAPE = NodeShape(
    name="host", gpu_model="gpu", gpu_count=8, capacity=resources({"cpu": 96_000, "memory": 1 << 20, "pods": 110})
)
REQUESTS = (
    TopologyRequest(required="ASW"),
    TopologyRequest(required="PSW"),
    TopologyRequest(preferred="ASW"),
    TopologyRequest(unconstrained=True),
    TopologyRequest(preferred="PSW", slices=(SliceRule(level="ASW", size=2),)),
    TopologyRequest(spread=SpreadRule(level="PSW", most=4)),
)
SIZES = (1, 2, 4, 8, 16, 32, 64)


def hosts(path: Path) -> list[Node]:
    """The hosts of the network, each with eight GPUs."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [
        Node(name=row["ip"], shape=SHAPE, labels=labels({HOST: row["ip"], **{s: row[s] for s in SWITCHES}}))
        for row in rows
    ]


def policy(nodes: int) -> Policy:
    """Three queues that own a third of the GPUs each, and lend them to each other."""
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
    queues = tuple(
        Queue(
            name=name,
            cohort="all",
            groups=(FlavorGroup(resources=("gpu",), flavors=("gpu",)),),
            quotas=(Quota(flavor="gpu", resource="gpu", nominal=nodes * 8_000 // len(QUEUES)),),
            preemption=rule,
        )
        for name in QUEUES
    )
    shares = QueueSetup(
        flavors=(Flavor(name="gpu", topology="clos"),),
        queues=queues,
        topologies=(TopologyLevels(name="clos", labels=(*SWITCHES, HOST)),),
        ignore_undeclared=True,
    )
    placement = PlacementRule(kind=PlacementKind.BEST_FIT)
    return Policy(placement=placement, admission=AdmissionKind.TIDEGATE, shares=shares)


def gangs(count: int, seed: int) -> list[Workload]:
    """Gangs of whole hosts, of all sizes and wishes."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        request = REQUESTS[int(rng.integers(len(REQUESTS)))]
        pods = SIZES[int(rng.integers(len(SIZES)))]
        if request.slices:
            pods = max(pods, request.slices[0].size)
        pod_set = PodSet(count=pods, gpu=GpuRequest(share=Share.WHOLE, count=8), topology=request)
        work = Work(queue=QUEUES[int(rng.integers(3))], priority=int(rng.integers(4) == 0) * 10, pod_sets=(pod_set,))
        made.append(Workload(id=f"gang-{number:05d}", work=work, submitted_ms=number))
    return made


class Run(NamedTuple):
    """What a run came to."""

    state: ClusterState
    admissions: int
    spots: int
    preemptions: int
    cycles: int
    steps_ms: list[float]


def run(path: Path, count: int, rounds: int, seed: int = 7, *, checked: bool = False) -> Run:
    """Submit all gangs, then let the oldest finish, round by round."""
    state, nodes = ClusterState(), hosts(path)
    facts = Facts()
    facts.policy(policy(len(nodes)))
    for number, node in enumerate(nodes):
        facts.node(number, node)
    for number, gang in enumerate(gangs(count, seed)):
        facts.submit(number, gang)
    found = Run(state, 0, 0, 0, 0, [])
    running: dict[int, None] = {}
    for at in range(1, rounds + 2):
        while True:
            start = time.perf_counter()
            result = step(state, facts.batch(), at * 1_000_000)
            found.steps_ms.append((time.perf_counter() - start) * 1000)
            if checked:
                check(state)
            found = note(found, result)
            facts = Facts()
            gone = follow(result, running)
            if not gone:
                break
            for number in gone:  # victims go at once
                facts.add(FactKind.POD_GONE, at * 1_000_000, number)
        facts = Facts()
        for number in list(running)[: max(1, len(running) // 10)]:
            del running[number]
            facts.add(FactKind.WORKLOAD_FINISHED, at * 1_000_000, number)
    return found


def follow(result: StepResult, running: dict[int, None]) -> list[int]:
    """Who runs now, and who has to go."""
    decisions = result.decisions
    running.update(dict.fromkeys(decisions.workload[decisions.kind == DecisionKind.ADMIT].tolist()))
    gone: list[int] = decisions.workload[np.isin(decisions.kind, (DecisionKind.PREEMPT, DecisionKind.EVICT))].tolist()
    for number in gone:
        running.pop(number, None)
    return gone


def note(found: Run, result: StepResult) -> Run:
    kind = result.decisions.kind
    return found._replace(
        admissions=found.admissions + len(np.unique(result.decisions.workload[kind == DecisionKind.ADMIT])),
        spots=found.spots + int((kind == DecisionKind.ASSIGN).sum()),
        preemptions=found.preemptions + int((kind == DecisionKind.PREEMPT).sum()),
        cycles=found.cycles + result.cycles,
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/traces/topology"))
    parser.add_argument("--gangs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--plain", action="store_true", help="kernels as plain Python")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = options.data / "topo.csv"
    with kernels_as(compiled=not options.plain):
        if not options.plain:
            run(path, 20, 2)  # compiles
        found = run(path, options.gangs, options.rounds)
    seconds = sum(found.steps_ms) / 1000
    report: dict[str, Any] = {
        "hosts": found.state.quota.topology.leaves.top if found.state.quota.topology else 0,
        "gangs": options.gangs,
        "admissions": found.admissions,
        "spots": found.spots,
        "preemptions": found.preemptions,
        "cycles": found.cycles,
        "engine_s": round(seconds, 3),
        "cycle_ms": round(1000 * seconds / max(found.cycles, 1), 3),
        "step_ms_p99": round(float(np.percentile(found.steps_ms, 99)), 1),
        "admissions_per_s": round(found.admissions / seconds),
    }
    print(json.dumps(report, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
