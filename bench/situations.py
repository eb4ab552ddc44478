"""Random situations with work that waits: share trees, fleets and loads, in both modes of admission.

What is drawn covers cohorts of no to three levels, classic and fair sharing, queues that preempt and that do not,
limits on borrowing and lending, several flavors with taints, and work of many sizes. The same seed, the same situation.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from tidegate.engine.step import step
from tidegate.model.facts import FactKind, Facts
from tidegate.model.hardware import Node, NodeShape, Taint
from tidegate.model.policy import AdmissionKind, PlacementKind, PlacementRule, Policy
from tidegate.model.queues import (
    Cohort,
    FairSharing,
    Flavor,
    FlavorGroup,
    FlavorMove,
    Fungibility,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
    StopPolicy,
)
from tidegate.model.struct import labels, resources
from tidegate.model.work import GpuRequest, PodSet, Share, Toleration, Work, Workload
from tidegate.state.cluster import ClusterState
from tidegate.state.tables.workloads import Phase

MODELS = ("h100", "a100", "l4")
SIZES = (0.5, 1, 1, 1, 2, 2, 4, 4, 8)
GIB = 1 << 30

#: What one of a resource is in the unit that quota is counted in.
UNITS = {"gpu": 1000, "cpu": 1000, "memory": GIB}


class Traits(NamedTuple):
    """What kind of situation it is."""

    admission: str
    sharing: str
    preemption: str
    depth: int  # levels of cohorts


class Drawn(NamedTuple):
    """A random situation: a state in which nothing more is decided, and who waits."""

    state: ClusterState
    waiting: list[int]
    traits: Traits


def draw(seed: int, workloads: int) -> Drawn:
    """A share tree, a fleet and a load, decided until nobody has to leave any more."""
    rng = np.random.default_rng(seed)
    traits = _draw_traits(seed, rng)
    policy, nodes = draw_policy(rng, traits)
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
    return Drawn(state, table.number[waits].tolist(), traits)


def _draw_traits(seed: int, rng: np.random.Generator) -> Traits:
    """Modes in turn, so that a few seeds have all of them; depth by chance."""
    return Traits(
        admission=("tidegate", "kueue")[seed % 2],
        sharing=("classic", "fair")[seed // 2 % 2],
        preemption=("off", "on")[seed // 4 % 2],
        depth=int(rng.integers(0, 4)),
    )


def settle(state: ClusterState, rounds: int = 20) -> None:
    """Let those who were told to go leave, until nobody is told any more; loops are left as they are."""
    for _ in range(rounds):
        table, facts = state.workloads, Facts()
        leaving = table.number[: table.top][table.phase[: table.top] == Phase.TERMINATING]
        if not len(leaving):
            return
        for number in leaving.tolist():
            facts.add(FactKind.POD_GONE, state.now_ms + 1, number)
        step(state, facts.batch(), state.now_ms + 1)


# -- policies --------------------------------------------------------------------------------------------------


def draw_policy(rng: np.random.Generator, traits: Traits) -> tuple[Policy, list[Node]]:
    """Two to six queues, one to three flavors; nodes in Tidegate's own mode."""
    models = MODELS[: int(rng.integers(1, 4))]
    flavors = tuple(_draw_flavor(rng, model) for model in models)
    counted = ("gpu",) if rng.random() < 0.4 else ("cpu", "gpu") if rng.random() < 0.7 else ("cpu", "gpu", "memory")
    cohorts = _draw_cohorts(rng, traits.depth, models)
    queues = tuple(
        _draw_queue(rng, f"q{number}", _pick(rng, [cohort.name for cohort in cohorts] or [""]), models, counted)
        for number in range(int(rng.integers(2, 7)))
    )
    if traits.preemption == "off":
        queues = tuple(msgspec.structs.replace(queue, preemption=PreemptionRule()) for queue in queues)
    shares = QueueSetup(
        flavors=flavors,
        cohorts=cohorts,
        queues=queues,
        fair=FairSharing() if traits.sharing == "fair" else None,
        ignore_undeclared=True,
    )
    own = traits.admission == "tidegate"
    policy = Policy(
        placement=PlacementRule(kind=PlacementKind.BEST_FIT),
        admission=AdmissionKind.TIDEGATE if own else AdmissionKind.KUEUE,
        shares=shares,
    )
    return policy, _draw_fleet(rng, models, flavors) if own else []


def _pick(rng: np.random.Generator, names: list[str]) -> str:
    return names[int(rng.integers(len(names)))]


def _draw_cohorts(rng: np.random.Generator, depth: int, models: tuple[str, ...]) -> tuple[Cohort, ...]:
    """One below the other; sometimes the widest has quota of its own."""
    quotas = tuple(Quota(flavor=model, resource="gpu", nominal=4000) for model in models if rng.random() < 0.3)
    return tuple(
        Cohort(name=f"c{level}", parent=f"c{level - 1}" if level else "", quotas=() if level else quotas)
        for level in range(depth)
    )


def _draw_flavor(rng: np.random.Generator, model: str) -> Flavor:
    tainted = rng.random() < 0.25
    return Flavor(
        name=model,
        node_labels=labels({"pool": model}),
        node_taints=(Taint(key="spot", value="true"),) if tainted else (),
    )


def _draw_queue(
    rng: np.random.Generator, name: str, cohort: str, models: tuple[str, ...], counted: tuple[str, ...]
) -> Queue:
    offered = models[: int(rng.integers(1, len(models) + 1))]
    rule = PreemptionRule(
        within_queue=PreemptWhom(rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
        reclaim_in_cohort=PreemptWhom(rng.choice(["Never", "LowerPriority", "Any"])) if cohort else PreemptWhom.NEVER,
    )
    return Queue(
        name=name,
        cohort=cohort,
        groups=(FlavorGroup(resources=counted, flavors=offered),),
        quotas=tuple(quota for model in offered for quota in _draw_quotas(rng, model, counted, lends=bool(cohort))),
        preemption=rule,
        fungibility=Fungibility(
            when_can_borrow=FlavorMove(rng.choice(["MayStopSearch", "TryNextFlavor"])),
            when_can_preempt=FlavorMove(rng.choice(["MayStopSearch", "TryNextFlavor"])),
        ),
        strict_fifo=bool(rng.random() < 0.25),
        weight_milli=int(rng.choice([500, 1000, 2000])),
        stop=StopPolicy.HOLD if rng.random() < 0.05 else StopPolicy.NONE,
    )


def _draw_quotas(rng: np.random.Generator, model: str, counted: tuple[str, ...], *, lends: bool) -> list[Quota]:
    gpus = int(rng.choice([0, 2, 4, 8, 8, 12, 16]))
    quotas = []
    for resource in counted:
        unit = UNITS[resource]
        nominal = gpus * unit * (1 if resource == "gpu" else 8) + int(rng.integers(0, 3)) * unit
        borrow = int(rng.integers(0, 9)) * unit if lends and rng.random() < 0.4 else None
        lend = int(rng.integers(0, 9)) * unit if lends and rng.random() < 0.3 else None
        quotas.append(Quota(flavor=model, resource=resource, nominal=nominal, borrow_limit=borrow, lend_limit=lend))
    return quotas


# -- fleets and work -------------------------------------------------------------------------------------------


def _draw_fleet(rng: np.random.Generator, models: tuple[str, ...], flavors: tuple[Flavor, ...]) -> list[Node]:
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
    """One pod set: a fraction of a GPU to four pods with eight GPUs each, some that may start with fewer."""
    gpus = float(rng.choice(SIZES))
    models = (str(rng.choice(MODELS)),) if rng.random() < 0.2 else ()
    share = Share.FRACTION if gpus < 1 else Share.WHOLE
    gpu = GpuRequest(share=share, count=max(int(gpus), 1), milli=round(gpus * 1000) if gpus < 1 else 0, models=models)
    count = int(rng.choice([1, 1, 1, 2, 4]))
    request = {"cpu": int(rng.choice([500, 1000, 4000, 8000])), "memory": int(rng.choice([1, 8, 32])) << 10}
    pod_set = PodSet(
        count=count,
        min_count=1 if count > 1 and rng.random() < 0.2 else 0,
        request=resources(request),
        gpu=gpu,
        tolerations=(Toleration(key="spot", value="true"),) if rng.random() < 0.4 else (),
        selector=labels({"pool": str(rng.choice(MODELS))}) if rng.random() < 0.15 else (),
    )
    return Work(queue=str(rng.choice(queues)), priority=int(rng.choice([0, 0, 5, 10, 100])), pod_sets=(pod_set,))
