"""Quotas, flavors, cohorts and queues, with Kueue's semantics.

Amounts are exact integers in the unit that quota is counted in: `cpu` in milli-cores, `memory` in bytes, `gpu` in
milli-GPUs, everything else in units as written.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.model.hardware import Node, Taint, TopologyLevels
from tidegate.model.struct import Labels, Resources, Spec, resources
from tidegate.model.work import NodeRequirement, PodSet, Share, Toleration

#: An amount without a limit; sums stop here instead of wrapping.
UNLIMITED = 1 << 60

#: The most that one workload is charged of a resource: sums of a thousand of them are still exact.
LARGEST_CLAIM = 1 << 53

#: Controllers of checks that decide when domains are chosen: one adds nodes, the other dispatches work elsewhere.
PROVISIONING, MULTI_CLUSTER = "kueue.x-k8s.io/provisioning-request", "kueue.x-k8s.io/multikueue"

#: A weight of one.
WHOLE_WEIGHT = 1_000

_MIB = 1 << 20


class Quota(Spec, frozen=True):
    """What a queue or cohort owns of one resource in one flavor."""

    flavor: str
    resource: str
    nominal: int
    borrow_limit: int | None = None  # None: no limit
    lend_limit: int | None = None  # None: all of it


class Flavor(Spec, frozen=True):
    """A kind of capacity that quota is counted in."""

    name: str
    node_labels: Labels = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


class Cohort(Spec, frozen=True):
    """Queues that lend to each other."""

    name: str
    parent: str = ""
    quotas: tuple[Quota, ...] = ()
    weight_milli: int = WHOLE_WEIGHT


class PreemptWhom(StrEnum):
    """Whom a rule allows to preempt."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class PreemptionRule(Spec, frozen=True):
    """When a queue's work may preempt."""

    within_queue: PreemptWhom = PreemptWhom.NEVER
    reclaim_in_cohort: PreemptWhom = PreemptWhom.NEVER
    borrow_in_cohort: PreemptWhom = PreemptWhom.NEVER
    borrow_priority_threshold: int | None = None  # work above it is preempted only without borrowing


class FlavorMove(StrEnum):
    """Whether a flavor that fits is taken, or the next one tried first."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class FlavorPreference(StrEnum):
    """What is better when no flavor fits without either."""

    BORROW = "BorrowingOverPreemption"
    PREEMPT = "PreemptionOverBorrowing"


class Fungibility(Spec, frozen=True):
    """How a queue goes through its flavors."""

    when_can_borrow: FlavorMove = FlavorMove.STOP
    when_can_preempt: FlavorMove = FlavorMove.NEXT
    preference: FlavorPreference = FlavorPreference.BORROW


class FlavorGroup(Spec, frozen=True):
    """Resources that a pod gets from one flavor, and the flavors in the order they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class StopPolicy(StrEnum):
    """Whether a queue admits."""

    NONE = "None"
    HOLD = "Hold"  # admits nothing more
    DRAIN = "HoldAndDrain"  # and evicts what it has admitted


class CheckRule(Spec, frozen=True):
    """A check that must be ready before quota becomes admission."""

    name: str
    flavors: tuple[str, ...] = ()  # empty: whatever the flavor
    controller: str = ""


class Queue(Spec, frozen=True):
    """Where work waits, and what it may use."""

    name: str
    cohort: str = ""
    groups: tuple[FlavorGroup, ...] = ()
    quotas: tuple[Quota, ...] = ()
    preemption: PreemptionRule = PreemptionRule()
    fungibility: Fungibility = Fungibility()
    weight_milli: int = WHOLE_WEIGHT
    strict_fifo: bool = False
    stop: StopPolicy = StopPolicy.NONE
    checks: tuple[CheckRule, ...] = ()
    namespaces: tuple[NodeRequirement, ...] | None = ()  # labels a namespace must have; None: no namespace will do
    usage_based: bool = False  # LocalQueues that used less go first


class LocalQueue(Spec, frozen=True):
    """Where a team submits to a queue. Its id is `namespace/name`; `*/name` is in every one."""

    id: str
    queue: str
    weight_milli: int = WHOLE_WEIGHT
    stop: StopPolicy = StopPolicy.NONE


def in_any_namespace(queue: str) -> str:
    """The id of a LocalQueue that is there in every namespace; of `namespace/name` the one with that name."""
    return f"*/{queue.rpartition('/')[2]}"


class Namespace(Spec, frozen=True):
    """A namespace and its labels."""

    name: str
    labels: Labels = ()


class FairStrategy(StrEnum):
    """When fair sharing lets work of one share preempt work of another."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"


class FairSharing(Spec, frozen=True):
    """Between queues, the lower dominant resource share goes first."""

    strategies: tuple[FairStrategy, ...] = (FairStrategy.FINAL_SHARE, FairStrategy.INITIAL_SHARE)


class UsageSharing(Spec, frozen=True):
    """Between the LocalQueues of one queue, the one with less decayed usage goes first."""

    half_life_ms: int
    sampling_ms: int
    weights_milli: Resources = ()  # by resource; others count fully


class TopologyRule(Spec, frozen=True):
    """How domains of a topology are chosen, and what follows when a node fails. The defaults are Kueue's."""

    enabled: bool = True  # False: topologies and what is asked of them have no effect
    mixed: bool = True  # pods that may go anywhere fill the fullest domains first
    likes: bool = False  # preferred node affinity goes before everything else
    balanced: bool = False  # a preferred level is filled evenly
    elastic: bool = False  # work that grows or shrinks keeps the domains it has
    recomputes: bool = True  # work that lost its domains earlier in the cycle tries others at once
    twins: bool = True  # what is taken of a host is taken in all flavors that have it
    pins: bool = True  # a workload that is one pod keeps its domain whatever fails
    fails_fast: bool = True  # work on a failed node that has nowhere else to go is evicted, instead of waiting


class QueueSetup(Spec, frozen=True):
    """Queues, cohorts, flavors and topologies: who may use how much."""

    flavors: tuple[Flavor, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    queues: tuple[Queue, ...] = ()
    entrances: tuple[LocalQueue, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    topologies: tuple[TopologyLevels, ...] = ()
    fair: FairSharing | None = None  # None: classic order
    usage: UsageSharing | None = None
    partial: bool = True  # work that allows it may start with fewer pods
    retargets: bool = True  # work whose victims are taken in the cycle tries others at once
    ignore_undeclared: bool = False  # what no queue counts is not counted, instead of refused
    topology: TopologyRule = TopologyRule()

    def flavor_resources(self) -> tuple[tuple[str, str], ...]:
        """Every pair of flavor and resource that quota is given for, sorted: its place is its number in the journal."""
        quotas = [quota for queue in self.queues for quota in queue.quotas]
        quotas += [quota for cohort in self.cohorts for quota in cohort.quotas]
        return tuple(sorted({(quota.flavor, quota.resource) for quota in quotas}))


def charge_of(pod_set: PodSet) -> Resources:
    """What quota counts for one pod of the set."""
    if pod_set.charge is not None:
        return pod_set.charge
    amounts = {name: amount * _MIB if name == "memory" else amount for name, amount in pod_set.request}
    gpu = pod_set.gpu
    milli = gpu.milli if gpu.share is Share.FRACTION else 1000
    return resources({**amounts, "gpu": gpu.count * milli})


def footprint_of(pod_set: PodSet) -> Resources:
    """What one pod of the set takes of its node, in the units that quota is counted in."""
    return charge_of(pod_set) if pod_set.footprint is None else pod_set.footprint


def allocatable_of(node: Node) -> Resources:
    """What a node has for pods, in the units that quota is counted in."""
    if node.allocatable is not None:
        return node.allocatable
    reserved = dict(node.shape.reserved)
    has = {name: amount - reserved.get(name, 0) for name, amount in node.shape.capacity}
    amounts = {name: amount * _MIB if name == "memory" else amount for name, amount in has.items()}
    return resources({**amounts, "gpu": node.shape.gpu_count * 1000})
