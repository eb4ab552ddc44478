"""Tidegate as users run it, `tidegate run --mode bind`, in a process of its own; and what its log says of it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from kubebench import Plane
from kubereplica import Replica

#: Times as they are by default; those of tests are shorter.
_TIMES = ("--lease-duration", "15s", "--renew-deadline", "10s", "--retry-period", "2s", "--policy-period", "5s")

#: How long kernels that are not in the cache may take to compile.
_MOST_STARTING_S = 600


def start(plane: Plane, folder: Path, policy: Path, *, plain: bool, journals: bool) -> Replica:
    """A replica that is about to be started; it has its kernels compiled before it lists anything."""
    kernels = ("--kernels", "plain" if plain else "compiled")
    options = ("--mode", "bind", "--policy", str(policy), *kernels, "--verbose", *_TIMES)
    return Replica(plane, folder, "bench", *options, journals=journals)


def steps(replica: Replica) -> list[dict[str, Any]]:
    """Every step that it made so far."""
    return replica.events("step")


def wait_for_decision(replica: Replica, most_s: float) -> float:
    """Wait until it has decided something; the CPU seconds that it took from the start of listing."""
    replica.wait(lambda: replica.events("waiting for the lease"), "a start", _MOST_STARTING_S)
    before_s = _cpu_s(replica)
    replica.wait(lambda: any(step["decisions"] for step in steps(replica)), "a decision", most_s)
    return _cpu_s(replica) - before_s


def _cpu_s(replica: Replica) -> float:
    """CPU seconds that it used so far."""
    fields = Path(f"/proc/{replica.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_decision_s(replica: Replica) -> float:
    """Seconds from the start of listing to the first decision."""
    began = seconds(replica.events("waiting for the lease")[0]["ts"])
    return next(seconds(step["ts"]) for step in steps(replica) if step["decisions"]) - began


def seconds(stamp: str) -> float:
    """A time as logs write it."""
    return datetime.fromisoformat(stamp).timestamp()


def peak_mb(replica: Replica) -> int:
    """The most memory that it had in use so far."""
    for line in Path(f"/proc/{replica.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


def paces(made: list[dict[str, Any]]) -> dict[str, Any]:
    """How long steps take, and cycles of them: the time of a step shared among its cycles."""
    took = np.array([step["ms"] for step in made], float)
    cycles = np.array([max(step["cycles"], 1) for step in made])
    each = np.repeat(took / cycles, cycles)
    return {
        "steps": len(made),
        "cycles": int(cycles.sum()),
        "cycle_p99_ms": round(float(np.quantile(each, 0.99)), 2),
        "step_p50_ms": round(float(np.quantile(took, 0.5)), 2),
        "step_p99_ms": round(float(np.quantile(took, 0.99)), 2),
        "step_max_ms": round(float(took.max()), 1),
    }
