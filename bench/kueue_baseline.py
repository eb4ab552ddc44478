"""Kueue's performance generator in virtual time, decided by Tidegate in Kueue's mode: the same, and how much faster.

The protocol of the engine-only run: each workload set of each queue creates one workload after each of its intervals,
all queues in step. At an instant all finishes and arrivals are applied, then cycles run until one admits and evicts
nothing. Evictions and requeues take no time, an evicted workload starts over, runtime counts from admission.

    python bench/kueue_baseline.py --config baseline --json
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from typing import Any, NamedTuple

import numpy as np

from tidegate.engine.apply import apply
from tidegate.engine.decide import decide
from tidegate.jit.registry import use_compiled
from tidegate.model.decisions import DecisionBatch, DecisionKind
from tidegate.model.facts import ALL_PODS, FactKind, Facts, Submissions
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import (
    FairSharing,
    Flavor,
    FlavorGroup,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
)
from tidegate.model.work import PodSet, Work
from tidegate.state.cluster import ClusterState


class Kind(NamedTuple):
    """One workload set of every queue."""

    name: str
    times: int
    every_ms: int
    runtime_ms: int
    priority: int
    cores: int


class Config(NamedTuple):
    """A configuration of the generator, and what Kueue's own engine made of it, measured on one core."""

    cohorts: int
    queues: int
    kinds: tuple[Kind, ...]
    makespan_s: float
    evictions: int
    admissions_per_s: float
    tta_s: dict[str, float]


CONFIGS = {
    "baseline": Config(
        5,
        6,
        (
            Kind("small", 350, 100, 200, 50, 1),
            Kind("medium", 100, 500, 500, 100, 5),
            Kind("large", 50, 1200, 1000, 200, 20),
        ),
        76.8,
        5910,
        1052.0,
        {"small": 54.2, "medium": 41.0, "large": 0.0},
    ),
    "large-scale": Config(
        10,
        100,
        (
            Kind("small", 35, 60, 150, 50, 1),
            Kind("medium", 11, 300, 350, 100, 5),
            Kind("large", 4, 700, 700, 200, 20),
        ),
        4.65,
        3000,
        1483.0,
        {"small": 2.2, "medium": 1.7, "large": 0.0},
    ),
}

_NOMINAL_MILLI, _BORROW_MILLI = 20_000, 100_000


def make_policy(config: Config, *, fair: bool) -> Policy:
    """The queues of the generator."""
    rule = PreemptionRule(within_queue=PreemptWhom.LOWER_PRIORITY, reclaim_in_cohort=PreemptWhom.ANY)
    quota = Quota(flavor="rf", resource="cpu", nominal=_NOMINAL_MILLI, borrow_limit=_BORROW_MILLI)
    queues = tuple(
        Queue(
            name=f"cq-{cohort}-{queue}",
            cohort=f"cohort-{cohort}",
            groups=(FlavorGroup(resources=("cpu",), flavors=("rf",)),),
            quotas=(quota,),
            preemption=rule,
        )
        for cohort in range(config.cohorts)
        for queue in range(config.queues)
    )
    shares = QueueSetup(flavors=(Flavor(name="rf"),), queues=queues, fair=FairSharing() if fair else None)
    return Policy(name="kueue", admission=AdmissionKind.KUEUE, shares=shares)


class Generated(NamedTuple):
    """All workloads of a run, the first created first."""

    works: list[Work]
    work: np.ndarray
    created_ms: np.ndarray
    runtime_ms: np.ndarray
    kind: np.ndarray
    ids: list[str]


def generate(config: Config, policy: Policy) -> Generated:
    """Create one workload of each set of each queue after each of its intervals."""
    works, rows = [], []
    for queue in policy.shares.queues:
        for k, kind in enumerate(config.kinds):
            pods = PodSet(count=1, charge=(("cpu", kind.cores * 1000),))
            works.append(Work(queue=queue.name, priority=kind.priority, pod_sets=(pods,)))
            rows += [
                ((i + 1) * kind.every_ms, f"{queue.name}-{kind.name}-{i}", len(works) - 1, kind.runtime_ms, k)
                for i in range(kind.times)
            ]
    rows.sort(key=lambda row: row[:2])
    columns = list(zip(*rows, strict=True))
    return Generated(
        works,
        np.array(columns[2], np.int32),
        np.array(columns[0], np.int64),
        np.array(columns[3], np.int64),
        np.array(columns[4], np.int64),
        list(columns[1]),
    )


class Replay:
    """The run: instants, cycles, and what they cost."""

    def __init__(self, policy: Policy, jobs: Generated) -> None:
        self.state, self.jobs = ClusterState(), jobs
        facts = Facts()
        facts.policy(policy)
        apply(self.state, facts.batch(), 0)
        n = len(jobs.ids)
        self.admitted_ms = np.full(n, -1)
        self.first_wait_ms = np.zeros(n, np.int64)
        self.starts = np.zeros(n, np.int64)
        self.finishes: list[tuple[int, int, int]] = []
        self.submitted = 0
        self.now_ms = 0
        self.admissions = self.evictions = 0
        self.wasted_ms = 0
        self.engine_s = 0.0
        self.cycles: list[float] = []

    def run(self) -> None:
        """Run until everything has finished."""
        while self.submitted < len(self.jobs.ids) or self.finishes:
            self._next_instant()
            self._settle()

    def _next_instant(self) -> None:
        while self.finishes and self.starts[self.finishes[0][1]] != self.finishes[0][2]:
            heapq.heappop(self.finishes)
        times = [self.finishes[0][0]] if self.finishes else []
        if self.submitted < len(self.jobs.ids):
            times.append(int(self.jobs.created_ms[self.submitted]))
        if not times:
            return
        self.now_ms = min(times)
        facts = Facts()
        done = []
        while self.finishes and self.finishes[0][0] <= self.now_ms:
            _, number, start = heapq.heappop(self.finishes)
            if self.starts[number] == start:
                done.append(number)
        facts.add_many(FactKind.WORKLOAD_FINISHED, self.now_ms, np.array(done, np.int64))
        self._submit(facts)
        self._timed_apply(facts)

    def _submit(self, facts: Facts) -> None:
        first, jobs = self.submitted, self.jobs
        last = int(np.searchsorted(jobs.created_ms, self.now_ms, side="right"))
        if last == first:
            return
        self.submitted, due = last, slice(first, last)
        none = np.zeros(last - first, np.int64)
        told = Submissions(jobs.work[due], jobs.created_ms[due], none, jobs.ids[due])
        facts.submit_many(np.arange(first, last), jobs.works, told, jobs.created_ms[due])

    def _timed_apply(self, facts: Facts) -> None:
        batch = facts.batch()
        start = time.perf_counter()
        apply(self.state, batch, self.now_ms)
        self.engine_s += time.perf_counter() - start

    def _settle(self) -> None:
        """Run cycles until one admits and evicts nothing."""
        while True:
            start = time.perf_counter()
            decisions, _ = decide(self.state)
            took = time.perf_counter() - start
            self.engine_s += took
            self.cycles.append(took)
            if not self._carry_out(decisions):
                return

    def _carry_out(self, decisions: DecisionBatch) -> bool:
        admitted = decisions.workload[decisions.kind == DecisionKind.ADMIT]
        evicted = decisions.workload[decisions.kind == DecisionKind.PREEMPT]
        for number in evicted.tolist():
            self.wasted_ms += (self.now_ms - int(self.admitted_ms[number])) * self._cores(number)
            self.starts[number] += 1
        for number in admitted.tolist():
            self.starts[number] += 1
            self.admitted_ms[number] = self.now_ms
            finish = self.now_ms + int(self.jobs.runtime_ms[number])
            heapq.heappush(self.finishes, (finish, number, int(self.starts[number])))
        self.admissions += len(admitted)
        self.evictions += len(evicted)
        if len(evicted):
            facts = Facts()
            facts.add_many(FactKind.POD_GONE, self.now_ms, evicted, pod=ALL_PODS)
            self._timed_apply(facts)
        return bool(len(admitted) or len(evicted))

    def _cores(self, number: int) -> int:
        work = self.jobs.works[int(self.jobs.work[number])]
        return dict(work.pod_sets[0].charge or ())["cpu"] // 1000


def report(config: Config, replay: Replay) -> dict[str, Any]:
    """What came out, beside what Kueue's engine made of it."""
    jobs, cycles = replay.jobs, np.array(replay.cycles) * 1000
    waits = (replay.admitted_ms - jobs.created_ms) / 1000
    work_s = float((jobs.runtime_ms * [replay._cores(n) for n in range(len(jobs.ids))]).sum()) / 1000  # noqa: SLF001
    per_s = replay.admissions / replay.engine_s
    wasted = replay.wasted_ms / 1000
    return {
        "makespan_s": replay.now_ms / 1000,
        "evictions": replay.evictions,
        "admissions": replay.admissions,
        "admissions_per_s": round(per_s, 1),
        "engine_s": round(replay.engine_s, 4),
        "cycles": len(cycles),
        "cycle_ms": {
            "p50": round(float(np.quantile(cycles, 0.5)), 4),
            "p99": round(float(np.quantile(cycles, 0.99)), 4),
            "max": round(float(cycles.max()), 4),
        },
        "time_to_admission_s": {
            kind.name: round(float(waits[jobs.kind == k].mean()), 3) for k, kind in enumerate(config.kinds)
        },
        "wasted_cpu_s": wasted,
        "wasted_share": round(wasted / (work_s + wasted), 4),
        "kueue": {
            "makespan_s": config.makespan_s,
            "evictions": config.evictions,
            "admissions_per_s": config.admissions_per_s,
            "time_to_admission_s": config.tta_s,
        },
        "ratio_to_kueue": {
            "makespan": round(replay.now_ms / 1000 / config.makespan_s, 4),
            "evictions": round(replay.evictions / config.evictions, 4),
            "admissions_per_s": round(per_s / config.admissions_per_s, 1),
        },
    }


def main() -> None:
    """Run a configuration and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=sorted(CONFIGS), default="baseline")
    parser.add_argument("--fair", action="store_true", help="fair sharing between queues instead of the classic order")
    parser.add_argument("--plain", action="store_true", help="plain kernels instead of compiled ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    config = CONFIGS[options.config]
    policy = make_policy(config, fair=options.fair)
    if not options.plain:
        use_compiled()
        small = config._replace(cohorts=1, queues=2, kinds=tuple(kind._replace(times=3) for kind in config.kinds))
        warm = make_policy(small, fair=options.fair)
        Replay(warm, generate(small, warm)).run()
    replay = Replay(policy, generate(config, policy))
    replay.run()
    found = report(config, replay)
    print(json.dumps(found) if options.json else json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
