"""Pods bound per second on a real API server: Tidegate beside kube-scheduler, one after the other, on the same cluster.

Pods are created first, then the scheduler starts. The rate is that of the API server's audit log: from the scheduler's
first request for pods to its last binding. Tidegate is `tidegate run --mode bind` with quotas, notes for whoever takes
over and a journal, as a user with its own RBAC, subject to priority and fairness. kube-scheduler has a client limit of
5,000 requests a second, Kubernetes' own gangs, and the rights of system:masters; it knows no quotas.

    python bench/live.py --nodes 1000 --pods 5000 --json

With more than 20,000 pods nobody is raced: it is how long a replica takes to its first decision, and how much memory.

    python bench/live.py --nodes 10000 --pods 100000 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kubebench import Options, Plane
from kubebench.plane import SCHEDULER
from live_audit import AUDIT_POLICY, Audit
from live_cluster import GROUPS_API, NODES, Contest, ask_all, make_work, post, ready, unbound, unmake_work, write_policy
from live_replica import paces, start, steps
from live_start import StartOptions, measure

_GATES = ("GenericWorkload=true", "GangScheduling=true")
_PLANE = Options(
    audit=True, audit_policy=AUDIT_POLICY, kwok=False, controllers="", gates=_GATES, apis=(f"{GROUPS_API}=true",)
)

#: Pods that schedulers race for; kube-scheduler needs minutes for more.
_MOST_RACED = 20_000


class Bound(NamedTuple):
    """How a contest went."""

    pods_per_s: float  # from the first look at pods to the last binding
    binding_pods_per_s: float  # from the first binding to the last
    bound: int
    held: bool  # whether what must not start did not
    more: dict[str, Any]


def main() -> None:
    """Run the contests and print what came out."""
    options = _options()
    console = Console(stderr=True)
    if options.pods > _MOST_RACED:
        wanted = StartOptions(options.nodes, options.pods, options.plain, options.journal, options.daemonsets)
        print(json.dumps(measure(wanted, console)))
        return
    results: dict[str, dict[str, Any]] = {}
    with Plane(_PLANE) as plane, tempfile.TemporaryDirectory() as folder:
        plane.processes[SCHEDULER].stop()
        asyncio.run(ask_all(plane, [post(NODES, ready(f"n{number:05d}")) for number in range(options.nodes)]))
        policy = write_policy(Path(folder), options.nodes)
        for name, gang in (("single", 1), ("gang", options.gang)):
            results[name] = {}
            for scheduler in ("tidegate", "kube_scheduler"):
                contest = Contest(scheduler, options.pods - options.pods % gang, gang)
                went = _hold(plane, contest, policy, plain=options.plain)
                console.print(f"{name:7} {scheduler:15} {went.pods_per_s:8.1f} pods/s", highlight=False)
                results[name] |= _shown(scheduler, went)
    print(json.dumps({**_conditions(options), **results}) if options.json else _table(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--gang", type=int, default=8, help="pods of a gang")
    parser.add_argument("--journal", action="store_true", help="write a journal at the start of a large cluster, too")
    parser.add_argument("--daemonsets", type=int, default=0, help="DaemonSets of a large cluster: with and without")
    parser.add_argument("--plain", action="store_true", help="plain kernels instead of compiled ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def _conditions(options: argparse.Namespace) -> dict[str, Any]:
    """What both ran under."""
    return {
        "nodes": options.nodes,
        "pods": options.pods,
        "gang_size": options.gang,
        "load_average": round(os.getloadavg()[0], 1),
        "tidegate": {"user": "tidegate, by RBAC", "quotas": "8 queues of a cohort and one that owns nothing"},
        "kube_scheduler": {
            "user": "system:masters",
            "quotas": "it knows none",
            "qps": _PLANE.scheduler_qps,
            "gates": list(_GATES),
            "gangs": f"PodGroup of {GROUPS_API}",
        },
    }


def _shown(scheduler: str, went: Bound) -> dict[str, Any]:
    shown = {
        "pods_per_s": round(went.pods_per_s, 1),
        "binding_pods_per_s": round(went.binding_pods_per_s, 1),
        "bound": went.bound,
        "held_what_must_wait": went.held,
        **went.more,
    }
    return {f"{scheduler}_{name}": value for name, value in shown.items()}


def _table(results: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':8}{'tidegate':>12}{'kube-scheduler':>16}   pods bound per second"]
    for name, went in results.items():
        lines.append(f"{name:8}{went['tidegate_pods_per_s']:>12}{went['kube_scheduler_pods_per_s']:>16}")
    return "\n".join(lines)


# -- a contest -----------------------------------------------------------------------------------------------------


def _hold(plane: Plane, contest: Contest, policy: Path, *, plain: bool) -> Bound:
    """Create the pods, let the scheduler loose on them, read the log, and clean up."""
    never = make_work(plane, contest)
    audit = Audit(plane.folder / "audit.log", contest.scheduler.replace("_", "-"))
    more: dict[str, Any] = {}
    with _tidegate(plane, policy, more, plain=plain) if contest.is_ours else _kube_scheduler(plane):
        late = _await_bindings(audit, contest.pods)
    audit.close()
    waiting = unbound(plane)
    unmake_work(plane, contest)
    if late:
        more["gave_up"] = late  # what it has bound by then counts, and the others still have their turn
    return _rate(audit, held=len(waiting) == never or bool(late and len(waiting) > never), more=more)


def _rate(audit: Audit, *, held: bool, more: dict[str, Any]) -> Bound:
    times = sorted(audit.bound_s)
    if len(times) < 2:
        return Bound(0.0, 0.0, len(times), held, more)
    whole_s, binding_s = times[-1] - audit.looked_s, max(times[-1] - times[0], 1e-3)
    more["first_binding_s"] = round(times[0] - audit.looked_s, 2)
    return Bound(len(times) / whole_s, (len(times) - 1) / binding_s, len(times), held, more)


def _await_bindings(audit: Audit, pods: int) -> str:
    """Wait until every pod is bound; why not, if that takes too long."""
    most_s = 600 + pods / 20  # the kernels may have to be compiled first
    until_s = time.monotonic() + most_s
    while len(audit.bound_s) < pods:
        if time.monotonic() > until_s:
            return f"{len(audit.bound_s)} of {pods} pods were bound in {most_s:.0f} s"
        time.sleep(0.1)
        audit.read()
    return ""


@contextmanager
def _kube_scheduler(plane: Plane) -> Iterator[None]:
    plane.processes[SCHEDULER].start()
    try:
        yield
    finally:
        plane.processes[SCHEDULER].stop()


@contextmanager
def _tidegate(plane: Plane, policy: Path, more: dict[str, Any], *, plain: bool) -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory() as folder,
        start(plane, Path(folder), policy, plain=plain, journals=True) as replica,
    ):
        yield
        replica.stop()
        more |= paces(steps(replica))


if __name__ == "__main__":
    main()
