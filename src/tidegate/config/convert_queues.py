"""Converts queues, cohorts and flavors of tidegate.yaml, with quota in the units that it is counted in.

Takes policies that `tidegate.config.validate_queues` found valid, and never fails.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET

from tidegate.config.schema import PolicyEntry
from tidegate.config.schema_base import TaintEntry, TolerationEntry, TolerationOperator
from tidegate.config.schema_queues import (
    DEFAULT_FLAVOR,
    AmountsEntry,
    FlavorEntry,
    LocalQueueEntry,
    PreemptionEntry,
    QueueEntry,
    QuotaEntry,
    QuotaNodeEntry,
    Undeclared,
    UsageEntry,
)
from tidegate.model.hardware import Taint, TaintEffect, TopologyLevels
from tidegate.model.queues import (
    Cohort,
    FairSharing,
    FairStrategy,
    Flavor,
    FlavorGroup,
    Fungibility,
    LocalQueue,
    PreemptionRule,
    PreemptWhom,
    Queue,
    QueueSetup,
    Quota,
    UsageSharing,
)
from tidegate.model.struct import labels
from tidegate.model.work import Operator, Toleration

_MIB = 1 << 20


class ResourceKey(NamedTuple):
    """A key of the file that has an amount."""

    resource: str  # as quota counts it
    unit: int  # what one of it counts


KEYS = {
    "gpus": ResourceKey("gpu", 1),
    "cpu": ResourceKey("cpu", 1),
    "memory": ResourceKey("memory", _MIB),
    "pods": ResourceKey("pods", 1),
}


def build_queue_setup(policy: PolicyEntry) -> QueueSetup:
    """The queues of a policy with their quota; empty if there are none."""
    if not policy.queues:
        return QueueSetup()
    flavors = tuple(_flavor(entry) for entry in policy.flavors) or (Flavor(name=DEFAULT_FLAVOR),)
    only = flavors[0].name
    return QueueSetup(
        flavors=flavors,
        cohorts=tuple(
            Cohort(name=entry.name, parent=entry.parent, quotas=quotas_of(entry, only), weight_milli=int(entry.weight))
            for entry in policy.cohorts
        ),
        queues=tuple(_queue(entry, only, by_usage=policy.usage_sharing is not UNSET) for entry in policy.queues),
        entrances=tuple(entrance for entry in policy.queues for entrance in _entrances(entry)),
        topologies=tuple(TopologyLevels(name=entry.name, labels=tuple(entry.levels)) for entry in policy.topologies),
        fair=_fair(policy.fair_sharing),
        usage=_usage(policy.usage_sharing) if isinstance(policy.usage_sharing, UsageEntry) else None,
        ignore_undeclared=policy.undeclared is Undeclared.IGNORE,
    )


def _queue(entry: QueueEntry, only: str, *, by_usage: bool) -> Queue:
    quotas, moves = quotas_of(entry, only), entry.fungibility
    return Queue(
        name=entry.name,
        cohort=entry.cohort,
        groups=groups_of(quotas),
        quotas=quotas,
        preemption=_preemption(entry.preemption),
        fungibility=Fungibility(
            when_can_borrow=moves.when_can_borrow,
            when_can_preempt=moves.when_can_preempt,
            preference=moves.preference,
        ),
        weight_milli=int(entry.weight),
        strict_fifo=entry.strict,
        stop=entry.stop,
        usage_based=by_usage,
    )


def _preemption(entry: PreemptionEntry) -> PreemptionRule:
    return PreemptionRule(
        within_queue=PreemptWhom(entry.within),
        reclaim_in_cohort=PreemptWhom(entry.reclaim),
        borrow_in_cohort=PreemptWhom(entry.borrow),
        borrow_priority_threshold=entry.borrow_threshold if isinstance(entry.borrow_threshold, int) else None,
    )


def _entrances(queue: QueueEntry) -> list[LocalQueue]:
    full = [each if isinstance(each, LocalQueueEntry) else LocalQueueEntry(name=each) for each in queue.local_queues]
    return [LocalQueue(id=e.name, queue=queue.name, weight_milli=int(e.weight), stop=e.stop) for e in full]


# -- quota -----------------------------------------------------------------------------------------------------


def quotas_of(entry: QuotaNodeEntry, only: str) -> tuple[Quota, ...]:
    """The quota of a queue or cohort, flavor by flavor; amounts without a flavor are of the only flavor there is."""
    given: list[tuple[str, QuotaEntry]] = [(flavor.name, flavor) for flavor in entry.flavors] or [(only, entry)]
    return tuple(quota for flavor, quotas in given for quota in _quotas(flavor, quotas))


def _quotas(flavor: str, entry: QuotaEntry) -> list[Quota]:
    borrow, lend = amounts_of(entry.borrow), amounts_of(entry.lend)
    return [
        Quota(
            flavor=flavor,
            resource=resource,
            nominal=nominal,
            borrow_limit=borrow.get(resource),
            lend_limit=lend.get(resource),
        )
        for resource, nominal in amounts_of(entry).items()
    ]


def amounts_of(entry: AmountsEntry) -> dict[str, int]:
    """What is written, by resource, in the units that quota is counted in."""
    written = {key.resource: getattr(entry, name) for name, key in KEYS.items()}
    units = {key.resource: key.unit for key in KEYS.values()}
    given = {resource: int(amount) * units[resource] for resource, amount in written.items() if amount is not UNSET}
    return {**given, **entry.other}


def groups_of(quotas: tuple[Quota, ...]) -> tuple[FlavorGroup, ...]:
    """Resource groups: flavors with the same resources, in the order they are written."""
    given: dict[str, list[str]] = {}
    for quota in quotas:
        given.setdefault(quota.flavor, []).append(quota.resource)
    groups: dict[tuple[str, ...], list[str]] = {}
    for flavor, covered in given.items():
        groups.setdefault(tuple(sorted(covered)), []).append(flavor)
    return tuple(FlavorGroup(resources=covered, flavors=tuple(names)) for covered, names in groups.items())


# -- flavors and sharing ---------------------------------------------------------------------------------------


def _flavor(entry: FlavorEntry) -> Flavor:
    return Flavor(
        name=entry.name,
        node_labels=labels(entry.labels),
        node_taints=tuple(taint_of(taint) for taint in entry.taints),
        tolerations=tuple(toleration_of(toleration) for toleration in entry.tolerations),
        topology=entry.topology,
    )


def taint_of(entry: TaintEntry) -> Taint:
    """A taint."""
    return Taint(key=entry.key, value=entry.value, effect=entry.effect)


def toleration_of(entry: TolerationEntry) -> Toleration:
    """A toleration."""
    return Toleration(
        key=entry.key,
        operator=Operator.EXISTS if entry.operator is TolerationOperator.EXISTS else Operator.IN,
        value=entry.value,
        effect=TaintEffect(entry.effect) if entry.effect else None,
    )


def _fair(written: bool | list[FairStrategy]) -> FairSharing | None:  # noqa: FBT001  as it is written
    if isinstance(written, list) and written:
        return FairSharing(strategies=tuple(written))
    return FairSharing() if written else None


def _usage(entry: UsageEntry) -> UsageSharing:
    written = {name: getattr(entry.weights, name) for name in entry.weights.__struct_fields__}
    weights = {KEYS[name].resource: int(weight) for name, weight in written.items() if weight is not UNSET}
    return UsageSharing(
        half_life_ms=int(entry.half_life), sampling_ms=int(entry.sampling), weights_milli=tuple(sorted(weights.items()))
    )
