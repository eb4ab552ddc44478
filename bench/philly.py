"""The Philly trace through queues: 15 virtual clusters of one cohort with 500 GPUs; apart, borrowing, and reclaiming.

The last two have 63 nodes of 8 GPUs: Kueue's mode and Tidegate's own, side by side.

Each policy of `examples/philly` is run in the twin on the whole trace, and measured. The times are of the run alone,
with compiled kernels that were run before (`warm_s` says how long that took); CPU seconds say what it would take on
a machine that does nothing else.

    python bench/philly.py --data ../shared/traces/philly/philly.csv --json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from tidegate.api.kernels import Kernels
from tidegate.api.scenario_input import read_policy
from tidegate.api.simulation import run_setup
from tidegate.cli.scenario import ScenarioOptions, read_scenario
from tidegate.config.convert import Setup
from tidegate.measure.collector import RunMeasures
from tidegate.measure.findings import find
from tidegate.sim.scenario import Scenario, ScenarioChanges, finish_setup, with_policy
from tidegate.sim.submissions import TwinJobs, jobs_of
from tidegate.sources.options import Format, SourceOptions

POLICIES = Path(__file__).parent.parent / "examples" / "philly"

NAMES = ("apart", "borrow", "reclaim", "reclaim-on-nodes", "own-on-nodes")

#: The most that one run may take.
TARGET_S = 10.0

#: Jobs that are run once before, so that kernels are loaded.
_WARM = 500


def main() -> None:
    """Run the policies and print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/traces/philly/philly.csv"))
    parser.add_argument("--policies", default=",".join(NAMES), help="names of files in examples/philly")
    parser.add_argument("--jobs", type=int, default=0, help="only the first of them; 0: all")
    parser.add_argument("--plain", action="store_true", help="plain kernels, for small runs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report = bench(
        given.data, given.policies.split(","), given.jobs, Kernels.PLAIN if given.plain else Kernels.COMPILED
    )
    print(json.dumps(report) if given.json else _as_text(report))


def bench(data: Path, policies: list[str], most_jobs: int, kernels: Kernels) -> dict[str, Any]:
    """Run each policy on the trace, or on its first jobs."""
    begun = time.perf_counter()
    read = read_scenario(ScenarioOptions([str(data)], reading=SourceOptions(format=Format.PHILLY)), None)
    read_s = time.perf_counter() - begun
    work = sorted(read.setup.work, key=lambda planned: planned.workload.submitted_ms)
    read = read._replace(setup=read.setup._replace(work=work[:most_jobs] if most_jobs else work))
    setups = {name: _setup(read, name) for name in policies}
    return {
        "jobs": len(read.setup.work),
        "gpus": _gpus(next(iter(setups.values()))),
        "read_s": round(read_s, 3),
        "target_s": TARGET_S,
        "policies": [_run(name, setup, kernels) for name, setup in setups.items()],
    }


def _setup(read: Scenario, name: str) -> Setup:
    return finish_setup(with_policy(read, read_policy(POLICIES / f"{name}.yaml").content), ScenarioChanges())


def _gpus(setup: Setup) -> float:
    return sum(quota.nominal for queue in setup.policy.shares.queues for quota in queue.quotas) / 1000


def _run(name: str, setup: Setup, kernels: Kernels) -> dict[str, Any]:
    begun = time.perf_counter()
    _timed(setup, jobs_of(setup.work[:_WARM]), kernels)
    warm_s = time.perf_counter() - begun
    seconds, cpu_seconds, measured = _timed(setup, jobs_of(setup.work), kernels)
    return {
        "policy": name,
        "cycle_ms": setup.policy.cycle_ms,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "warm_s": round(warm_s, 3),
        "jobs_per_s": round(len(setup.work) / cpu_seconds),
        **_results(measured),
    }


def _timed(setup: Setup, jobs: TwinJobs, kernels: Kernels) -> tuple[float, float, RunMeasures]:
    """Seconds, CPU seconds, and what the run came to; measuring included."""
    wall, cpu = time.perf_counter(), time.process_time()
    measured = run_setup(setup, None, kernels, jobs)
    return time.perf_counter() - wall, time.process_time() - cpu, measured


def _results(measured: RunMeasures) -> dict[str, Any]:
    summary = measured.summary
    wait, total = summary.total.wait, summary.total
    return {
        "finished": total.finished,
        "mean_wait_s": round(wait.mean_ms / 1000, 1) if wait else None,
        "p95_wait_s": round(wait.p95_ms / 1000, 1) if wait else None,
        "allocation_share": summary.allocation_share,
        "due_share": summary.due_share(),
        "due_fairness": summary.due_fairness(),
        "use_fairness": summary.use_fairness(),
        "borrowed_gpu_h": round(sum(share.borrowed_gpu_h for share in summary.shares), 1),
        "preemptions": total.preemptions,
        "lost_gpu_h": round(sum(share.preempted_lost_gpu_h for share in summary.shares), 1),
        "findings": [finding.text for finding in find(summary, measured.lives, measured.quota)],
    }


def _as_text(report: dict[str, Any]) -> str:
    lines = [f"{report['jobs']:,} jobs, {report['gpus']:g} GPUs of quota; read in {report['read_s']:.1f} s"]
    for run in report["policies"]:
        told = "within" if run["cpu_seconds"] <= report["target_s"] else "ABOVE"
        took = f"{run['seconds']:6.1f} s ({run['cpu_seconds']:.1f} CPU s, {told} {report['target_s']:g})"
        lines.append(
            f"{run['policy']:<16} {took}"
            f"  mean wait {run['mean_wait_s'] or 0:,.0f} s, due {run['due_share'] or 0:.1%},"
            f" borrowed {run['borrowed_gpu_h']:,.0f} GPU-h, {run['preemptions']:,} preemptions,"
            f" lost {run['lost_gpu_h']:,.0f} GPU-h"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
