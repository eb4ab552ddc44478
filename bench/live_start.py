"""How long a replica takes from its first request to its first decision on a large cluster, and how much memory.

Almost all pods are bound already; the last thousand wait for us. The replica is a process of its own, with its kernels
compiled before the clock runs, as one that is about to lead has them.

    python bench/live.py --nodes 10000 --pods 100000 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kubebench import Options, Plane, node, pod
from kubelive import Live, wall_ms
from tidegate.engine.kernels.registry import use_compiled
from tidegate.engine.step import step
from tidegate.kube.client import Client, Request
from tidegate.kube.kubeconfig import config_access
from tidegate.model.decisions import StepResult
from tidegate.model.facts import EventBatch, Facts, Outcome
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.policy import PlacementKind, PlacementRule, Policy
from tidegate.model.spec import resources
from tidegate.model.work import GpuRequest, PodSet, Share, Work, Workload
from tidegate.state.cluster import ClusterState

POLICY = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT))
_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"

#: Pods that wait, and GPUs of a node that are taken.
_WAITING, _TAKEN = 1_000, 7
_IN_FLIGHT = 48


def warm_up(policy: Policy) -> None:
    """Have the kernels compiled before the clock runs, as a replica does before it leads."""
    state, facts = ClusterState(), Facts()
    shape = NodeShape(name="x", gpu_count=8, capacity=resources({"cpu": 1000, "memory": 1000, "pods": 10}))
    facts.policy(policy)
    facts.node(0, Node(name="n", shape=shape))
    pods = PodSet(count=2, request=(("cpu", 10),), gpu=GpuRequest(share=Share.WHOLE, count=1))
    for number in range(6):
        facts.submit(number, Workload(id=str(number), work=Work(pod_sets=(pods,))))
    step(state, facts.batch(), 0)


async def ask_all(plane: Plane, requests: list[Request]) -> None:
    """Carry requests out, many at a time; raise if one is refused."""
    async with Client(config_access([plane.kubeconfig("admin")], clock=lambda: 0)) as client:
        waiting = iter(requests)

        async def work() -> None:
            for request in waiting:
                answer = await client.ask(request)
                if not answer.ok:
                    raise RuntimeError(answer.text())

        await asyncio.gather(*(work() for _ in range(_IN_FLIGHT)))


def ready(name: str) -> dict[str, Any]:
    """A node that is ready without anybody who says so."""
    made = node(name)
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def measure(nodes: int, pods: int, *, plain: bool) -> dict[str, Any]:
    """Fill a cluster, start a replica on it, and tell how that went."""
    with Plane(Options(kwok=False, scheduler=False, controllers="")) as plane:
        began = time.perf_counter()
        asyncio.run(ask_all(plane, [_post(_NODES, ready(f"n{number:05d}")) for number in range(nodes)]))
        bound = pods - min(_WAITING, pods)
        asyncio.run(ask_all(plane, [_post(_PODS, _pod(number, nodes, bound)) for number in range(pods)]))
        filled_s = time.perf_counter() - began
        command = [sys.executable, __file__, str(plane.kubeconfig("tidegate")), str(pods - bound)]
        told = subprocess.run([*command, *(["--plain"] if plain else [])], check=True, capture_output=True, text=True)
    went: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return {"nodes": nodes, "pods": pods, "filled_s": round(filled_s, 1), **went}


def _post(path: str, thing: dict[str, Any]) -> Request:
    return Request("POST", path, {}, msgspec.json.encode(thing))


def _pod(number: int, nodes: int, bound: int) -> dict[str, Any]:
    """A pod of ours: the first ones are at their places, the last ones wait."""
    if number >= bound:
        return pod(f"p{number:06d}", 1, scheduler="tidegate")
    at, turn = number % nodes, number // nodes
    return pod(f"p{number:06d}", 1 if turn < _TAKEN else 0, scheduler="tidegate", nodeName=f"n{at:05d}")


class _Marks:
    """A record that notes when the first decision was made, and how long steps take.

    The loop asks for the time right before each step, and writes it down here right after.
    """

    def __init__(self) -> None:
        self.began = self._asked = time.perf_counter()
        self.took: list[float] = []
        self.first_s = self.peak_mb = 0.0

    def clock(self) -> int:
        self._asked = time.perf_counter()
        return wall_ms()

    def append(self, now_ms: int, events: EventBatch, result: StepResult) -> None:
        del now_ms, events
        self.took.append(time.perf_counter() - self._asked)
        if len(result.decisions.id) and not self.first_s:
            self.first_s, self.peak_mb = time.perf_counter() - self.began, _peak_mb()


def _run_replica(kubeconfig: Path, waiting: int, *, plain: bool) -> dict[str, Any]:
    if not plain:
        use_compiled()
        warm_up(POLICY)
    before_mb, marks = _peak_mb(), _Marks()
    with Live(kubeconfig, POLICY, record=marks, clock=marks.clock) as live:
        live.until(lambda: live.world.outcomes[Outcome.DONE] >= waiting, 600, "every pod bound")
        bound_s = time.perf_counter() - marks.began
    return {
        "list_to_first_decision_s": round(marks.first_s, 2),
        "peak_mb_at_first_decision": round(marks.peak_mb),
        "before_the_list_mb": round(before_mb),
        "all_bound_s": round(bound_s, 2),
        "cycle_p99_ms": round(float(np.quantile(marks.took, 0.99)) * 1000, 1),
        "steps": len(marks.took),
        "peak_mb": round(_peak_mb()),
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("waiting", type=int)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    print(json.dumps(_run_replica(options.kubeconfig, options.waiting, plain=options.plain)))


if __name__ == "__main__":
    _main()
