"""Is `explain`'s smallest change true? Random share trees, fleets and loads; each change is made, and a smaller one.

For every pending job that is drawn, the changes that `find_remedies` names are told as facts to a fresh fork: the job
must start in that step (or, where it preempts, once its victims are gone), and no smaller change of the same kind may
start it: one unit less, one priority lower, every proper part of a set.

    python bench/explain.py --jobs 1000 --json
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from tidegate.engine.kernels.registry import use_compiled
from tidegate.engine.step import step
from tidegate.journal.changes import Change, MoreBorrowing, MoreNodes, MoreQuota, SetPriority, facts_of, work_of
from tidegate.journal.remedies import Findings, Remedy, find_remedies
from tidegate.journal.trials import has_started, needs_place, play
from tidegate.model.facts import EventKind, Facts
from tidegate.model.hardware import Node, NodeShape, Taint
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.reasons import Reason
from tidegate.model.shares import (
    Cohort,
    FairSharing,
    Flavor,
    FlavorGroup,
    FlavorMove,
    Fungibility,
    PreemptionRule,
    PreemptWhom,
    Queue,
    Quota,
    Shares,
)
from tidegate.model.spec import labels, resources
from tidegate.model.work import GpuRequest, PodSet, Share, Toleration, Work, Workload
from tidegate.state.cluster import ClusterState
from tidegate.state.tables import Phase

MODELS = ("h100", "a100", "l4")
SIZES = (0.5, 1, 1, 1, 2, 2, 4, 4, 8)
_GIB = 1 << 30


class Drawn(NamedTuple):
    """A random situation: a state in which nothing more is decided, and who waits."""

    state: ClusterState
    waiting: list[int]


# -- what is drawn ---------------------------------------------------------------------------------------------


def draw(seed: int, workloads: int) -> Drawn:
    """A share tree, a fleet and a load, decided until nobody has to leave any more."""
    rng = np.random.default_rng(seed)
    policy, nodes = draw_policy(rng)
    state, facts = ClusterState(), Facts()
    facts.policy(policy)
    for number, node in enumerate(nodes):
        facts.node(number, node)
    queues = [queue.name for queue in policy.shares.queues]
    workloads = int(rng.integers(8, workloads + 1))
    works = [draw_work(rng, queues) for _ in range(max(6, 2 * workloads // 3))]
    for number in range(workloads):
        work = works[int(rng.integers(len(works)))]
        facts.submit(number, Workload(id=f"job-{number:04d}", work=work, submitted_ms=number))
    step(state, facts.batch(), workloads)
    settle(state)
    table = state.workloads
    waits = np.flatnonzero(table.phase[: table.top] == Phase.PENDING)
    return Drawn(state, table.number[waits].tolist())


def settle(state: ClusterState, rounds: int = 20) -> None:
    """Let those who were told to go leave, until nobody is told any more; loops are left as they are."""
    for _ in range(rounds):
        table, facts = state.workloads, Facts()
        leaving = table.number[: table.top][table.phase[: table.top] == Phase.LEAVING]
        if not len(leaving):
            return
        for number in leaving.tolist():
            facts.add(EventKind.POD_GONE, state.now_ms + 1, number)
        step(state, facts.batch(), state.now_ms + 1)


def draw_policy(rng: np.random.Generator) -> tuple[Policy, list[Node]]:
    """Cohorts of one to three levels, two to six queues, one to three flavors; nodes in Tidegate's own mode."""
    tidegate = bool(rng.random() < 0.5)
    models = MODELS[: int(rng.integers(1, 4))]
    flavors = tuple(_flavor(rng, model) for model in models)
    depth = int(rng.integers(0, 4))
    cohorts = tuple(Cohort(name=f"c{level}", parent=f"c{level - 1}" if level else "") for level in range(depth))
    if cohorts and rng.random() < 0.3:
        extra = tuple(Quota(flavor=model, resource="gpu", nominal=4000) for model in models)
        cohorts = (msgspec_replace(cohorts[0], extra), *cohorts[1:])
    counted = ("gpu",) if rng.random() < 0.4 else ("cpu", "gpu") if rng.random() < 0.7 else ("cpu", "gpu", "memory")
    queues = tuple(
        _queue(rng, f"q{number}", f"c{int(rng.integers(depth))}" if depth else "", models, counted)
        for number in range(int(rng.integers(2, 7)))
    )
    shares = Shares(
        flavors=flavors,
        cohorts=cohorts,
        queues=queues,
        fair=FairSharing() if rng.random() < 0.3 else None,
        ignore_undeclared=True,
    )
    kind = AdmissionKind.TIDEGATE if tidegate else AdmissionKind.KUEUE
    policy = Policy(placement=PlacementRule(kind=PlacementKind.BEST_FIT), admission=kind, shares=shares)
    return policy, _fleet(rng, models, flavors) if tidegate else []


def msgspec_replace(cohort: Cohort, quotas: tuple[Quota, ...]) -> Cohort:
    return Cohort(name=cohort.name, parent=cohort.parent, quotas=quotas)


def _flavor(rng: np.random.Generator, model: str) -> Flavor:
    tainted = rng.random() < 0.25
    return Flavor(
        name=model,
        node_labels=labels({"pool": model}),
        node_taints=(Taint(key="spot", value="true"),) if tainted else (),
    )


def _queue(
    rng: np.random.Generator, name: str, cohort: str, models: tuple[str, ...], counted: tuple[str, ...]
) -> Queue:
    offered = models[: int(rng.integers(1, len(models) + 1))]
    limits = {"gpu": 1000, "cpu": 1000, "memory": _GIB}
    quotas = []
    for model in offered:
        gpus = int(rng.choice([0, 2, 4, 8, 8, 12, 16]))
        for resource in counted:
            unit = limits[resource]
            nominal = gpus * unit * (1 if resource == "gpu" else 8) + int(rng.integers(0, 3)) * unit
            borrow = int(rng.integers(0, 9)) * unit if cohort and rng.random() < 0.4 else None
            lend = int(rng.integers(0, 9)) * unit if cohort and rng.random() < 0.3 else None
            quotas.append(Quota(flavor=model, resource=resource, nominal=nominal, borrow_limit=borrow, lend_limit=lend))
    preempts = rng.random() < 0.4
    rule = PreemptionRule(
        within_queue=PreemptWhom(rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
        reclaim_in_cohort=PreemptWhom(rng.choice(["Never", "LowerPriority", "Any"])) if cohort else PreemptWhom.NEVER,
    )
    return Queue(
        name=name,
        cohort=cohort,
        groups=(FlavorGroup(resources=counted, flavors=offered),),
        quotas=tuple(quotas),
        preemption=rule if preempts else PreemptionRule(),
        fungibility=Fungibility(
            when_can_borrow=FlavorMove(rng.choice(["MayStopSearch", "TryNextFlavor"])),
            when_can_preempt=FlavorMove(rng.choice(["MayStopSearch", "TryNextFlavor"])),
        ),
        strict_fifo=bool(rng.random() < 0.25),
        weight_milli=int(rng.choice([500, 1000, 2000])),
    )


def _fleet(rng: np.random.Generator, models: tuple[str, ...], flavors: tuple[Flavor, ...]) -> list[Node]:
    nodes = []
    for model, flavor in zip(models, flavors, strict=True):
        shape = NodeShape(
            name=model,
            gpu_model=model,
            gpu_count=8,
            gpu_memory_mib=80 << 10,
            capacity=resources({"cpu": 96_000, "memory": 1 << 20, "pods": 110}),
        )
        nodes += [
            Node(name=f"{model}-{at}", shape=shape, labels=labels({"pool": model}), taints=flavor.node_taints)
            for at in range(int(rng.integers(1, 5)))
        ]
    return nodes


def draw_work(rng: np.random.Generator, queues: list[str]) -> Work:
    gpus = float(rng.choice(SIZES))
    models = (str(rng.choice(MODELS)),) if rng.random() < 0.2 else ()
    share = Share.FRACTION if gpus < 1 else Share.WHOLE
    gpu = GpuRequest(share=share, count=max(int(gpus), 1), milli=round(gpus * 1000) if gpus < 1 else 0, models=models)
    count = int(rng.choice([1, 1, 1, 2, 4]))
    pod_set = PodSet(
        count=count,
        min_count=1 if count > 1 and rng.random() < 0.2 else 0,
        request=resources(
            {"cpu": int(rng.choice([500, 1000, 4000, 8000])), "memory": int(rng.choice([1, 8, 32])) << 10}
        ),
        gpu=gpu,
        tolerations=(Toleration(key="spot", value="true"),) if rng.random() < 0.4 else (),
        selector=labels({"pool": str(rng.choice(MODELS))}) if rng.random() < 0.15 else (),
    )
    return Work(queue=str(rng.choice(queues)), priority=int(rng.choice([0, 0, 5, 10, 100])), pod_sets=(pod_set,))


# -- what is checked -------------------------------------------------------------------------------------------


def starts(state: ClusterState, number: int, changes: tuple[Change, ...], *, at_once: bool) -> bool:
    """Whether a fresh fork on which the changes are made starts the job: in that very step, or once victims left."""
    if not at_once:
        return play(state, number, changes).starts
    fork = state.fork()
    step(fork, facts_of(state, changes), state.now_ms)
    return has_started(fork, number, placed=needs_place(state, number))


def smaller(state: ClusterState, number: int, remedy: Remedy) -> list[tuple[Change, ...]]:
    """Every change of the same kind that is just smaller; of a set all proper parts, of a large one the largest."""
    changes = remedy.changes
    sizes = range(len(changes)) if len(changes) <= 4 else (len(changes) - 1,)
    found = [part for size in sizes for part in combinations(changes, size)]
    for at, change in enumerate(changes):
        rest = (changes[:at], changes[at + 1 :])
        found += [(*rest[0], less, *rest[1]) for less in _less(state, number, change)]
    return [changes for changes in found if changes]


def _less(state: ClusterState, number: int, change: Change) -> list[Change]:
    if isinstance(change, MoreQuota | MoreBorrowing) and change.amount is not None:
        return [change._replace(amount=amount) for amount in _amounts_below(change.amount, change.lot.resource)]
    if isinstance(change, MoreNodes):
        return [change._replace(nodes=nodes) for nodes in range(1, change.nodes)]
    if isinstance(change, SetPriority):
        low = work_of(state, number).priority
        return [
            change._replace(priority=priority)
            for priority in range(max(low + 1, change.priority - 40), change.priority)
        ]
    return []


def _amounts_below(amount: int, resource: str) -> list[int]:
    """One unit less, and whole steps of what people ask for below."""
    step_ = {"gpu": 500, "cpu": 500, "memory": _GIB}[resource]
    steps = range(step_, amount, max(step_, amount // 24 // step_ * step_))
    return sorted({amount - 1, *steps} - {0})


class Verdict(NamedTuple):
    """What became of one job's explanation."""

    kinds: tuple[str, ...]
    starts: bool
    least: bool
    tried: int
    seconds: float
    none: str  # why there is no change


def judge(state: ClusterState, number: int) -> tuple[Verdict, Findings, list[Any]]:
    """Ask for the smallest changes and check every one of them."""
    began = time.perf_counter()
    found = find_remedies(state, number)
    seconds = time.perf_counter() - began
    wrong: list[Any] = []
    for remedy in found.remedies:
        if not starts(state, number, remedy.changes, at_once=remedy.at_once):
            wrong.append(("does not start it", remedy))
        for less in smaller(state, number, remedy):
            if starts(state, number, less, at_once=remedy.at_once):
                wrong.append(("a smaller one does", remedy, less))
                break
    kinds = tuple("+".join(sorted({type(change).__name__ for change in r.changes})) for r in found.remedies)
    none = "" if found.remedies else _why_none(state, number, found)
    verdict = Verdict(
        kinds,
        not any(w[0] == "does not start it" for w in wrong),
        not any(w[0] == "a smaller one does" for w in wrong),
        found.tried,
        seconds,
        none,
    )
    return verdict, found, wrong


def _why_none(state: ClusterState, number: int, found: Findings) -> str:
    if found.leaving or found.due:
        return "starts without any change"
    if found.blocked:
        return found.blocked.name
    return Reason(int(state.workloads.held_code[state.workload_numbers.row(number)])).name


def run(jobs: int, workloads: int, first_seed: int = 0) -> dict[str, Any]:
    """Judge this many pending jobs, a few of each random situation."""
    verdicts: list[Verdict] = []
    wrong: list[str] = []
    seed = first_seed
    while len(verdicts) < jobs:
        drawn = draw(seed, workloads)
        rng = np.random.default_rng(seed)
        picked = rng.permutation(len(drawn.waiting))[: min(8, jobs - len(verdicts))]
        for at in picked.tolist():
            verdict, _, bad = judge(drawn.state, drawn.waiting[at])
            verdicts.append(verdict)
            if verdict.none and "-v" in __import__("sys").argv:
                print("none", seed, drawn.waiting[at], verdict)
            wrong += [f"seed {seed} job {drawn.waiting[at]}: {what}" for what in bad]
        seed += 1
    return _report(verdicts, wrong, seed - first_seed)


def _report(verdicts: list[Verdict], wrong: list[str], situations: int) -> dict[str, Any]:
    seconds = np.array([verdict.seconds for verdict in verdicts])
    kinds = Counter(kind for verdict in verdicts for kind in verdict.kinds)
    return {
        "jobs": len(verdicts),
        "situations": situations,
        "with_change": sum(bool(verdict.kinds) for verdict in verdicts),
        "with_single_change": sum(any("+" not in kind for kind in verdict.kinds) for verdict in verdicts),
        "changes": sum(kinds.values()),
        "kinds": dict(kinds.most_common()),
        "admits": sum(verdict.starts for verdict in verdicts),
        "smallest": sum(verdict.least for verdict in verdicts),
        "no_change": dict(Counter(verdict.none for verdict in verdicts if verdict.none).most_common()),
        "tries": {"mean": float(np.mean([v.tried for v in verdicts])), "max": max(v.tried for v in verdicts)},
        "seconds": {
            "p50": float(np.median(seconds)),
            "p99": float(np.quantile(seconds, 0.99)),
            "max": float(seconds.max()),
        },
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="pending jobs to ask about")
    parser.add_argument("--workloads", type=int, default=40, help="workloads of each situation")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="with compiled kernels")
    parser.add_argument("--json", action="store_true", dest="as_json")
    arguments = parser.parse_args()
    if arguments.compiled:
        use_compiled()
    report = run(arguments.jobs, arguments.workloads, arguments.seed)
    if arguments.as_json:
        print(json.dumps(report))
        return
    for key, value in report.items():
        print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
