"""How long a replica takes from its first request to its first decision on a large cluster, and how much memory.

Almost all pods run already, each with the note that Tidegate left with it; the last thousand wait. The replica is
`tidegate run --mode bind` with the quotas of the race, its kernels compiled before it lists anything; without a
journal, as that is the default (`--journal`: with one). It starts when the server has settled: filling it keeps it busy
for a while, and is not what is measured.

    python bench/live.py --nodes 10000 --pods 100000 --json
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from kubebench import Options, Plane
from kubereplica import Replica
from live_cluster import PODS, fill, pod_name, unbound, write_policy
from live_replica import first_decision_s, paces, peak_mb, start, steps, wait_for_decision

#: Pods that wait.
_WAITING = 1_000

#: How long a replica may take before it is given up.
_MOST_S = 300


def measure(nodes: int, pods: int, console: Console, *, plain: bool, journals: bool) -> dict[str, Any]:
    """Fill a cluster, start a replica on it, and tell how that went."""
    with Plane(Options(kwok=False, scheduler=False, controllers="")) as plane, tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        fill(plane, nodes, pods, _WAITING)
        filled_s = time.perf_counter() - began
        settled_s = plane.settle()
        shown = msgspec.json.encode(plane.admin.get(f"{PODS}/{pod_name(0)}"))
        console.print(f"filled with {nodes} nodes and {pods} pods in {filled_s:.0f} s", highlight=False)
        policy = write_policy(Path(folder), nodes)
        with start(plane, Path(folder), policy, plain=plain, journals=journals) as replica:
            went = _watch(plane, replica)
            replica.stop()
    facts = {"nodes": nodes, "pods": pods, "pod_bytes": len(shown), "filled_s": round(filled_s, 1)}
    facts |= {"settled_s": round(settled_s, 1), "journal": journals}
    return {**facts, "load_average": round(os.getloadavg()[0], 1), **went}


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
