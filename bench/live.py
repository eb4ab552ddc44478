"""Pods bound per second on a real API server: Tidegate beside kube-scheduler, one after the other, on the same cluster.

Pods are created first, then the scheduler starts. The rate is that of the API server's audit log: from the first
binding to the last. Tidegate is a user with its own RBAC, subject to priority and fairness; kube-scheduler has a client
limit of 5,000 requests a second and Kubernetes' own gangs.

    python bench/live.py --nodes 1000 --pods 2000 --json

With more than 20,000 pods nobody is raced: it is how long a replica takes to its first decision, and how much memory.

    python bench/live.py --nodes 10000 --pods 100000 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kubebench import Options, Plane, pod
from kubebench.plane import SCHEDULER
from kubelive import Live, wall_ms
from live_start import POLICY, ask_all, measure, ready, warm_up
from tidegate.engine.kernels.registry import use_compiled
from tidegate.journal.record import Journal
from tidegate.journal.store import JournalFile
from tidegate.kube.client import Request
from tidegate.kube.world import WorldOptions
from tidegate.model.decisions import StepResult
from tidegate.model.facts import EventBatch, Outcome

_PODS, _GROUPS = "/api/v1/namespaces/default/pods", "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
_AUDIT = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
_AUDIT += "- {level: Metadata, verbs: [create], resources: [{group: '', resources: [pods/binding]}]}\n- {level: None}\n"

#: Pods that schedulers race for; kube-scheduler needs minutes for more.
_MOST_RACED = 20_000


class Contest(NamedTuple):
    """What is to be bound, and by whom."""

    scheduler: str
    pods: int
    gang: int  # pods that start together; 1: each by itself


class Bound(NamedTuple):
    """How a contest went."""

    pods_per_s: float
    seconds: float
    bound: int
    step_p99_ms: float = 0.0
    steps: int = 0
    gave_up: str = ""  # why not every pod is bound


def main() -> None:
    """Run the contests and print what came out."""
    options = _options()
    if options.pods > _MOST_RACED:
        print(json.dumps(measure(options.nodes, options.pods, plain=options.plain)))
        return
    console = Console(stderr=True)
    gates = ("GenericWorkload=true", "GangScheduling=true")
    plane_options = Options(
        audit=True,
        audit_policy=_AUDIT,
        kwok=False,
        controllers="",
        gates=gates,
        apis=("scheduling.k8s.io/v1alpha2=true",),
    )
    results: dict[str, dict[str, Any]] = {}
    if not options.plain:
        use_compiled()
        warm_up(POLICY)
    with Plane(plane_options) as plane:
        plane.processes[SCHEDULER].stop()
        asyncio.run(_create(plane, "/api/v1/nodes", [ready(f"n{n:05d}") for n in range(options.nodes)]))
        for name, gang in (("single", 1), ("gang", options.gang)):
            results[name] = {}
            for scheduler in ("tidegate", "kube_scheduler"):
                contest = Contest(scheduler, options.pods - options.pods % gang, gang)
                went = _hold(plane, contest)
                console.print(f"{name:7} {scheduler:15} {went.pods_per_s:8.1f} pods/s", highlight=False)
                results[name] |= _shown(scheduler, went)
    print(json.dumps({"nodes": options.nodes, "pods": options.pods, **results}) if options.json else _table(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--gang", type=int, default=8, help="pods of a gang")
    parser.add_argument("--plain", action="store_true", help="plain kernels instead of compiled ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def _shown(scheduler: str, went: Bound) -> dict[str, Any]:
    shown: dict[str, Any] = {f"{scheduler}_pods_per_s": round(went.pods_per_s, 1), f"{scheduler}_bound": went.bound}
    if went.gave_up:
        shown[f"{scheduler}_gave_up"] = went.gave_up
    if went.steps:
        shown |= {"step_p99_ms": round(went.step_p99_ms, 2), "steps": went.steps}
    return shown


def _table(results: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':8}{'tidegate':>12}{'kube-scheduler':>16}   pods bound per second"]
    for name, went in results.items():
        lines.append(f"{name:8}{went['tidegate_pods_per_s']:>12}{went['kube_scheduler_pods_per_s']:>16}")
    return "\n".join(lines)


# -- a contest -----------------------------------------------------------------------------------------------------


def _hold(plane: Plane, contest: Contest) -> Bound:
    """Create the pods, let the scheduler loose on them, read the log, and clean up."""
    before = len(plane.audited())
    asyncio.run(_create_work(plane, contest))
    bind = _bind_by_us if contest.scheduler == "tidegate" else _bind_by_them
    try:
        went = bind(plane, contest)
    except TimeoutError as late:  # what it has bound by then counts, and the others still have their turn
        went = Bound(0.0, 0.0, 0, gave_up=str(late))
    times = [_seconds(line["stageTimestamp"]) for line in plane.audited()[before:] if _is_bound(line)]
    asyncio.run(_delete_all(plane, contest))
    if len(times) < 2:
        return went
    took = max(max(times) - min(times), 1e-3)
    return went._replace(pods_per_s=(len(times) - 1) / took, seconds=took, bound=len(times))


def _is_bound(line: dict[str, Any]) -> bool:
    return bool(line["stage"] == "ResponseComplete" and line["responseStatus"]["code"] < 300)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _bind_by_them(plane: Plane, contest: Contest) -> Bound:
    plane.processes[SCHEDULER].start()
    try:
        plane.wait_for(lambda: _unbound(plane) == 0, most_s=60 + contest.pods / 20, what="every pod bound")
    finally:
        plane.processes[SCHEDULER].stop()
    return Bound(0.0, 0.0, 0)


def _bind_by_us(plane: Plane, contest: Contest) -> Bound:
    with tempfile.TemporaryDirectory() as folder:
        file = JournalFile.create(Path(folder) / "journal")
        timed = _Timed(Journal(file, remember=False))
        with Live(plane.kubeconfig("tidegate"), POLICY, WorldOptions(), timed, timed.clock) as live:
            done, most_s = live.world.outcomes, 60 + contest.pods / 20
            live.until(lambda: done[Outcome.DONE] >= contest.pods, most_s, "every pod bound")
        file.close()
    return Bound(0.0, 0.0, 0, float(np.quantile(timed.took, 0.99)) * 1000, len(timed.took))


class _Timed:
    """A journal that notes how long steps take: the loop asks for the time right before each, and then writes here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._began = 0.0
        self.took: list[float] = []

    def clock(self) -> int:
        self._began = time.perf_counter()
        return wall_ms()

    def append(self, now_ms: int, events: EventBatch, result: StepResult) -> None:
        self.took.append(time.perf_counter() - self._began)
        self._journal.append(now_ms, events, result)


def _unbound(plane: Plane) -> int:
    return len(plane.admin.get(_PODS, fieldSelector="spec.nodeName=", limit="1")["items"])


# -- objects -------------------------------------------------------------------------------------------------------


async def _create_work(plane: Plane, contest: Contest) -> None:
    ours = contest.scheduler == "tidegate"
    if contest.gang > 1 and not ours:
        spec = {"schedulingPolicy": {"gang": {"minCount": contest.gang}}}
        groups = [
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": f"g{g}"},
                "spec": spec,
            }
            for g in range(contest.pods // contest.gang)
        ]
        await _create(plane, _GROUPS, groups)
    await _create(plane, _PODS, [_pod(number, contest) for number in range(contest.pods)])


def _pod(number: int, contest: Contest) -> dict[str, Any]:
    group = f"g{number // contest.gang}"
    if contest.scheduler == "tidegate":
        member = (group, contest.gang) if contest.gang > 1 else None
        return pod(f"p{number:06d}", 1, scheduler="tidegate", group=member)
    gang = {"schedulingGroup": {"podGroupName": group}} if contest.gang > 1 else {}
    made = pod(f"p{number:06d}", 1)
    made["spec"] |= gang
    return made


async def _create(plane: Plane, path: str, things: list[dict[str, Any]]) -> None:
    await ask_all(plane, [Request("POST", path, {}, msgspec.json.encode(thing)) for thing in things])


async def _delete_all(plane: Plane, contest: Contest) -> None:
    now = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    await ask_all(plane, [Request("DELETE", f"{_PODS}/p{n:06d}", {}, now) for n in range(contest.pods)])
    if contest.gang > 1 and contest.scheduler != "tidegate":
        groups = range(contest.pods // contest.gang)
        await ask_all(plane, [Request("DELETE", f"{_GROUPS}/g{g}") for g in groups])


if __name__ == "__main__":
    main()
