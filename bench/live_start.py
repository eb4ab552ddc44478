"""How long a replica takes from its first request to its first decision on a large cluster, and how much memory.

Almost all pods run already, each with the note that Tidegate left with it; the last thousand wait. The replica is
`tidegate run --mode bind` with the quotas of the race, its kernels compiled before it lists anything; without a
journal, as that is the default (`--journal`: with one). It starts when the server has settled: filling it keeps it busy
for a while, and is not what is measured.

    python bench/live.py --nodes 10000 --pods 100000 --json

With `--daemonsets 10` it starts a second time with the pods of ten DaemonSets on each node, and tells the ratios.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from kubebench import Options, Plane
from kubereplica import Replica
from live_cluster import PODS, add_daemon_sets, add_waiting, fill, pod_name, unbound, write_policy
from live_replica import first_decision_s, paces, peak_mb, start, steps, wait_for_decision

#: Pods that wait.
_WAITING = 1_000

#: How long a replica may take before it is given up.
_MOST_S = 300


class StartOptions(NamedTuple):
    """What is started on what."""

    nodes: int
    pods: int
    plain: bool = False
    journals: bool = False
    daemon_sets: int = 0  # measured without them, and then with a pod of each on each node


def measure(options: StartOptions, console: Console) -> dict[str, Any]:
    """Fill a cluster, start a replica on it, and tell how that went."""
    nodes, pods = options.nodes, options.pods
    with Plane(Options(kwok=False, scheduler=False, controllers="")) as plane, tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        fill(plane, nodes, pods, _WAITING)
        filled_s = time.perf_counter() - began
        settled_s = plane.settle()
        shown = msgspec.json.encode(plane.admin.get(f"{PODS}/{pod_name(0)}"))
        console.print(f"filled with {nodes} nodes and {pods} pods in {filled_s:.0f} s", highlight=False)
        policy = write_policy(Path(folder), nodes)
        went = _start_one(plane, Path(folder), policy, options)
        if options.daemon_sets:
            went |= _compare(plane, Path(folder), policy, options, went)
    facts = {"nodes": nodes, "pods": pods, "pod_bytes": len(shown), "filled_s": round(filled_s, 1)}
    facts |= {"settled_s": round(settled_s, 1), "journal": options.journals}
    return {**facts, "load_average": round(os.getloadavg()[0], 1), **went}


def _start_one(plane: Plane, folder: Path, policy: Path, options: StartOptions) -> dict[str, Any]:
    with start(plane, folder, policy, plain=options.plain, journals=options.journals) as replica:
        went = _watch(plane, replica)
        replica.stop()
    replica.log.unlink()  # the next one has its own
    return went


def _compare(
    plane: Plane, folder: Path, policy: Path, options: StartOptions, without: dict[str, Any]
) -> dict[str, Any]:
    """Start once more with the pods of DaemonSets, and as many pods that wait as before."""
    add_daemon_sets(plane, options.nodes, options.daemon_sets)
    add_waiting(plane, options.pods, _WAITING)
    plane.settle()
    went = _start_one(plane, folder, policy, options)
    more, ratios = options.nodes * options.daemon_sets, dict[str, float]()
    for name in ("list_to_first_decision_s", "cpu_s_until_then", "peak_mb_at_first_decision"):
        ratios[name] = round(went[name] / without[name], 3)
    each = {
        "cpu_us": round((went["cpu_s_until_then"] - without["cpu_s_until_then"]) / more * 1e6, 1),
        "bytes": round((went["peak_mb_at_first_decision"] - without["peak_mb_at_first_decision"]) / more * 2**20),
    }
    return {"daemon_set_pods": more, "with_daemon_sets": went, "ratio": ratios, "each_daemon_set_pod": each}


def _watch(plane: Plane, replica: Replica) -> dict[str, Any]:
    """Wait for the first decision, then until everybody who waited is bound."""
    cpu_s = wait_for_decision(replica, _MOST_S)
    first_mb = peak_mb(replica)
    replica.wait(lambda: replica.metric('tidegate_writes_total{outcome="done"}') >= _WAITING, "every binding", _MOST_S)
    plane.wait_for(lambda: not unbound(plane), _MOST_S, "every pod bound")
    first, *later = steps(replica)
    return {
        "list_to_first_decision_s": round(first_decision_s(replica), 2),
        "cpu_s_until_then": round(cpu_s, 2),  # of two cores that others use too, this is what can be compared
        "first_step_ms": first["ms"],
        "peak_mb_at_first_decision": first_mb,
        "peak_mb": peak_mb(replica),
        **paces(later),
    }
