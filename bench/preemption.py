"""Generated clusters in which one gang of high priority comes among many small jobs, through the command line.

Each cluster has 4 to 8 nodes of 4 to 8 GPUs that are full of jobs with one GPU each, and more of them come than there
is room for. A gang of one or two whole nodes comes with priority 100, in the same queue or in one that reclaims what it
lent. It must cost no more preemptions than the gang has GPUs, start within 15 minutes, and no loop may be reported.

    python bench/preemption.py --clusters 20 --seed 1 --json
    python bench/preemption.py --clusters 1 --seed 7 --keep cluster.yaml
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

#: The longest that a gang may wait, in seconds, and the longest that a run may take.
MOST_WAIT_S, MOST_RUN_S = 15 * 60, 600

_HOUR_S = 3600


class Plan(NamedTuple):
    """What a cluster is like."""

    nodes: int
    gpus: int  # of each node
    gang: int  # nodes
    reclaims: bool  # the gang's queue reclaims what it lent; else it preempts within the queue
    grace_s: int
    placement: str
    load: float  # GPUs asked for, of those there are
    hours: float  # how long small jobs run, at the median
    comes_h: float  # when the gang comes
    checkpoint_s: int  # of small jobs; 0: none

    @property
    def asked(self) -> int:
        """GPUs of the gang."""
        return self.gang * self.gpus


def draw_plan(rng: random.Random) -> Plan:
    """A cluster that nobody has seen."""
    return Plan(
        nodes=rng.randint(4, 8),
        gpus=rng.randint(4, 8),
        gang=rng.randint(1, 2),
        reclaims=rng.random() < 0.5,
        grace_s=rng.choice([0, 30, 120, 300]),
        placement=rng.choice(["tide", "tide", "bestfit", "firstfit", "spread", "packing"]),
        load=rng.uniform(1.0, 1.3),
        hours=rng.uniform(2, 8),
        comes_h=rng.uniform(4, 10),
        checkpoint_s=rng.choice([0, 0, 1800]),
    )


def write_cluster(plan: Plan, rng: random.Random) -> str:
    """A tidegate.yaml of a cluster."""
    lines = [
        "cluster:",
        f"  pools: [{{name: p, count: {plan.nodes}, shape: {{gpu: h100, gpus: {plan.gpus}, cpu: 128, memory: 1Ti}}}}]",
        "policy:",
        "  cycle: 10s",
        f"  placement: {plan.placement}",
        "  queues:",
        *_queues(plan),
        f"twin: {{grace: {plan.grace_s}s}}",
        "work:",
        *_small_jobs(plan, rng),
        _gang(plan, rng),
    ]
    return "\n".join(lines) + "\n"


def _gang(plan: Plan, rng: random.Random) -> str:
    queue, comes_s = "prod" if plan.reclaims else "batch", int(plan.comes_h * _HOUR_S)
    return (
        f"  - {{id: gang, queue: {queue}, kind: training, priority: 100, submit: {comes_s}s,"
        f" runtime: {rng.randint(1, 4)}h, pods: {{count: {plan.gang}, gpus: {plan.gpus}}}}}"
    )


def _queues(plan: Plan) -> list[str]:
    total = plan.nodes * plan.gpus
    if not plan.reclaims:
        return [f"    - {{name: batch, gpus: {total}, preemption: {{within: LowerPriority}}}}"]
    return [
        f"    - {{name: batch, gpus: {total - plan.asked}, cohort: all}}",
        f"    - {{name: prod, gpus: {plan.asked}, cohort: all, preemption: {{reclaim: Any}}}}",
    ]


def _small_jobs(plan: Plan, rng: random.Random) -> list[str]:
    """Jobs of one GPU: enough to fill the cluster at once, and then as many as the load says."""
    total, at_s = plan.nodes * plan.gpus, 0.0
    lines: list[str] = []
    end_s, mean_s = (plan.comes_h + 6) * _HOUR_S, plan.hours * _HOUR_S
    checkpoint = f", checkpoint: {plan.checkpoint_s}s" if plan.checkpoint_s else ""
    while at_s < end_s:
        if len(lines) >= total:
            at_s += rng.expovariate(total * plan.load / mean_s)
        runs_s = int(mean_s * rng.uniform(0.3, 1.7))
        lines.append(
            f"  - {{id: low-{len(lines):04d}, queue: batch, submit: {int(at_s)}s, runtime: {runs_s}s{checkpoint},"
            " pods: {gpus: 1}}"
        )
    return lines


def simulate(text: str) -> dict[str, Any]:
    """What `tidegate simulate FILE --json` says of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(text)
        command = [sys.executable, "-m", "tidegate", "simulate", str(path), "--json"]
        env = {**os.environ, "XDG_STATE_HOME": folder}
        done = subprocess.run(command, env=env, capture_output=True, check=True, text=True, timeout=MOST_RUN_S)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def judge(plan: Plan, told: dict[str, Any]) -> dict[str, Any]:
    """How a cluster did: its figures, and what is wrong with them."""
    summary = told["summary"]
    gang = next(kind for kind in summary["kinds"] if kind["name"] == "training")
    wait_s = gang["wait"]["max_ms"] / 1000 if gang["wait"] else None
    preemptions = sum(share["preempted"] for share in summary["shares"])
    loops = len(summary.get("loops", ()))  # left out where there are none
    wrong = []
    if preemptions > plan.asked:
        wrong.append(f"{preemptions} preemptions for {plan.asked} GPUs")
    if wait_s is None or wait_s > MOST_WAIT_S:
        wrong.append(f"the gang waits {wait_s} s")
    if loops:
        wrong.append(f"{loops} loops")
    return {
        **plan._asdict(),
        "preemptions": preemptions,
        "preemptions_per_gpu": preemptions / plan.asked,
        "wait_s": wait_s,
        "loops": loops,
        "finished": summary["total"]["finished"],
        "wrong": wrong,
    }


def bench(clusters: int, seed: int) -> dict[str, Any]:
    """Draw so many clusters and judge each."""
    rows = []
    for number in range(clusters):
        rng = random.Random(f"{seed} {number}")
        plan = draw_plan(rng)
        rows.append({"number": number, **judge(plan, simulate(write_cluster(plan, rng)))})
    return {
        "clusters": clusters,
        "seed": seed,
        "max_preemptions_per_gpu": max(row["preemptions_per_gpu"] for row in rows),
        "max_wait_s": max((row["wait_s"] for row in rows if row["wait_s"] is not None), default=None),
        "loops": sum(row["loops"] for row in rows),
        "wrong": sum(bool(row["wrong"]) for row in rows),
        "rows": rows,
    }


def main() -> int:
    """Draw clusters, judge them, and print the figures; 1: some are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="only write the file of the first cluster here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.keep:
        rng = random.Random(f"{given.seed} 0")
        given.keep.write_text(write_cluster(draw_plan(rng), rng))
        return 0
    report = bench(given.clusters, given.seed)
    print(json.dumps(report) if given.json else _as_text(report))
    return 1 if report["wrong"] else 0


def _as_text(report: dict[str, Any]) -> str:
    lines = []
    for row in report["rows"]:
        what = "reclaims" if row["reclaims"] else "within"
        lines.append(
            f"{row['number']:>4}  {row['nodes']} x {row['gpus']} GPUs, gang of {row['gang']} nodes, {what:<8}"
            f" {row['placement']:<8}  {row['preemptions']:>5} preemptions, waits {row['wait_s'] or 0:>8,.0f} s"
            f"  {'; '.join(row['wrong'])}"
        )
    lines.append(
        f"{report['clusters']} clusters, {report['wrong']} wrong: at most {report['max_preemptions_per_gpu']:.2f}"
        f" preemptions a GPU of the gang, {report['max_wait_s'] or 0:,.0f} s, {report['loops']} loops"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
