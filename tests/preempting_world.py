"""A world that only answers: whoever is told to go is gone by the next step. Nothing ever happens from outside."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from builders import Cluster, fleet
from tidegate.journal.store import JournalStep
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import (
    Cohort,
    FairSharing,
    FairStrategy,
    Flavor,
    FlavorGroup,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
)
from tidegate.model.work import PodSet, Work, Workload
from tidegate.state.tables.workloads import Phase

BOTH = (FairStrategy.FINAL_SHARE, FairStrategy.INITIAL_SHARE)
FINAL = (FairStrategy.FINAL_SHARE,)


def pod_group(name: str, queue: str, gpus: int, *, priority: int = 0, at: int = 0) -> Workload:
    """A workload that is charged for so many GPUs."""
    pods = PodSet(count=1, charge=(("gpu", gpus),))
    return Workload(id=name, work=Work(queue=queue, priority=priority, pod_sets=(pods,)), submitted_ms=at)


def fair_cluster(
    queues: tuple[str, ...], gpus: int, admission: str, *, strategies=BOTH, within=PreemptWhom.LOWER_PRIORITY
) -> Cluster:
    """Queues that own nothing in a cohort that owns so many GPUs, under fair sharing, with nodes enough for all."""
    rule = PreemptionRule(within_queue=within, reclaim_in_cohort=PreemptWhom.ANY)
    made = tuple(
        Queue(
            name=name,
            cohort="all",
            groups=(FlavorGroup(resources=("gpu",), flavors=("any",)),),
            quotas=(Quota(flavor="any", resource="gpu", nominal=0),),
            preemption=rule,
        )
        for name in queues
    )
    cohort = Cohort(name="all", quotas=(Quota(flavor="any", resource="gpu", nominal=gpus),))
    shares = QueueSetup(
        flavors=(Flavor(name="any"),), cohorts=(cohort,), queues=made, fair=FairSharing(strategies=strategies)
    )
    cluster = Cluster(fleet("1x cpux0 pods=1000"))
    cluster.set_policy(Policy(admission=AdmissionKind(admission), shares=shares))
    return cluster


class Settled(NamedTuple):
    """What came of letting the engine go on alone."""

    rested: bool  # it came to rest
    preempted: Counter[str]  # how often each was
    steps: list[JournalStep]


def settle(cluster: Cluster, most: int = 60, *, starts: bool = False) -> Settled:
    """Step until nothing is decided and nobody leaves; victims are gone by the next step, and `starts`: work starts."""
    preempted: Counter[str] = Counter()
    steps: list[JournalStep] = []
    for _ in range(most):
        events = cluster._facts.batch()
        cluster.step()
        steps.append(JournalStep(len(steps), cluster.now_ms, "", events, cluster.result))
        decisions = cluster.result.decisions
        away = decisions.workload[decisions.kind == DecisionKind.PREEMPT]
        preempted.update(cluster.ids[number] for number in away.tolist())
        answered = answer(cluster, starts=starts)
        if not answered and not len(decisions.id):
            return Settled(True, preempted, steps)
    return Settled(False, preempted, steps)


def answer(cluster: Cluster, *, starts: bool = False) -> bool:
    """Tell what came of the decisions: those told to go are gone. Whether there was anything to tell."""
    told = False
    for name in sorted(cluster.numbers):
        row = cluster.state.workload_numbers.row(cluster.numbers[name])
        phase = cluster.state.workloads.phase[row] if row >= 0 else Phase.NONE
        if phase == Phase.TERMINATING:
            cluster.tell(FactKind.POD_GONE, name)
            told = True
        elif phase == Phase.ASSUMED and starts:
            cluster.tell(FactKind.POD_STARTED, name)
    return told


def holders(cluster: Cluster) -> list[str]:
    """Who holds what it asked for."""
    table, rows = cluster.state.workloads, cluster.state.workload_numbers
    phases = {name: table.phase[rows.row(number)] for name, number in cluster.numbers.items() if rows.row(number) >= 0}
    return sorted(name for name, phase in phases.items() if phase in (Phase.ASSUMED, Phase.RUNNING))
