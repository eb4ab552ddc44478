"""Kueue's queues: ClusterQueue, Cohort and LocalQueue, in v1beta1 and v1beta2, with Kueue's defaults."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, schema
from tidegate.manifests.object_meta import object_schema, read_meta
from tidegate.manifests.quantity import counted
from tidegate.manifests.selectors import SELECTOR, read_selector
from tidegate.model.observed_status import DecayedUsage
from tidegate.model.queues import (
    WHOLE_WEIGHT,
    CheckRule,
    Cohort,
    FlavorGroup,
    FlavorMove,
    FlavorPreference,
    Fungibility,
    LocalQueue,
    PreemptionRule,
    PreemptWhom,
    Queue,
    Quota,
    StopPolicy,
)
from tidegate.model.struct import resources
from tidegate.model.work import NodeRequirement

_QUOTA = schema("name nominalQuota borrowingLimit lendingLimit")
_GROUPS = schema("coveredResources", flavors=schema("name", resources=_QUOTA))
_WEIGHT = schema("weight")

CLUSTER_QUEUE = object_schema(
    schema(
        "cohort cohortName queueingStrategy stopPolicy admissionChecks",
        resourceGroups=_GROUPS,
        namespaceSelector=SELECTOR,
        flavorFungibility=schema("whenCanBorrow whenCanPreempt preference"),
        preemption=schema(
            "withinClusterQueue reclaimWithinCohort", borrowWithinCohort=schema("policy maxPriorityThreshold")
        ),
        admissionChecksStrategy=schema(admissionChecks=schema("name onFlavors")),
        admissionScope=schema("admissionMode"),
        fairSharing=_WEIGHT,
        unmodelled={"concurrentAdmissionPolicy": "Kueue's gate ConcurrentAdmission is off by default"},
    )
)
COHORT = object_schema(schema("parentName", resourceGroups=_GROUPS, fairSharing=_WEIGHT))
_CONSUMED = schema(idle="weightedShare", admissionFairSharingStatus=schema("lastUpdate", consumedResources=ANYTHING))
LOCAL_QUEUE = object_schema(
    schema("clusterQueue stopPolicy", fairSharing=_WEIGHT),
    schema(
        idle="admittedWorkloads conditions flavorUsage flavorsUsage flavors flavorsReservation pendingWorkloads "
        "reservingWorkloads",
        fairSharing=_CONSUMED,
    ),
)

_BY_USAGE = "UsageBasedAdmissionFairSharing"


def read_cluster_queue(item: Item) -> Queue:
    """Read a ClusterQueue."""
    spec, name = item.mapping("spec"), read_meta(item).name
    cohort = spec.text("cohortName") or spec.text("cohort")
    groups, quotas = _read_groups(spec)
    return Queue(
        name=name,
        cohort=cohort,
        groups=groups,
        quotas=quotas,
        preemption=_preemption(spec.mapping("preemption")),
        fungibility=_fungibility(spec.mapping("flavorFungibility")),
        weight_milli=_weight(spec.mapping("fairSharing")),
        strict_fifo=_is_strict(spec),
        stop=spec.choice("stopPolicy", StopPolicy, StopPolicy.NONE),
        checks=tuple(_checks(spec)),
        namespaces=_namespaces(spec),
        usage_based=spec.mapping("admissionScope").text("admissionMode") == _BY_USAGE,
    )


def read_cohort(item: Item) -> Cohort:
    """Read a Cohort."""
    spec, name = item.mapping("spec"), read_meta(item).name
    parent = spec.text("parentName")
    _, quotas = _read_groups(spec)
    return Cohort(name=name, parent=parent, quotas=quotas, weight_milli=_weight(spec.mapping("fairSharing")))


def read_local_queue(item: Item, namespace: str = "") -> LocalQueue:
    """Read a LocalQueue."""
    spec = item.mapping("spec")
    return LocalQueue(
        id=read_meta(item, namespace).id,
        queue=spec.text("clusterQueue"),
        weight_milli=_weight(spec.mapping("fairSharing")),
        stop=spec.choice("stopPolicy", StopPolicy, StopPolicy.NONE),
    )


def read_decayed_usage(item: Item, namespace: str = "") -> DecayedUsage | None:
    """Read the decayed usage of a LocalQueue; None if its status has none."""
    inner = item.mapping("status").mapping("fairSharing").mapping("admissionFairSharingStatus")
    if not inner.value:
        return None
    used = inner.amounts("consumedResources")
    milli = resources({name: counted("cpu", amount * _per_unit(name)) for name, amount in used.items()})
    return DecayedUsage(entrance=read_meta(item, namespace).id, milli=milli, at_ms=inner.time_ms("lastUpdate"))


def _per_unit(resource: str) -> int:
    return 1000 if resource == "cpu" else 1


def _is_strict(spec: Item) -> bool:
    strategy = spec.text("queueingStrategy", "BestEffortFIFO")
    if strategy not in ("StrictFIFO", "BestEffortFIFO"):
        spec.refuse("queueingStrategy", "one of StrictFIFO, BestEffortFIFO", strategy)
    return strategy == "StrictFIFO"


def _namespaces(spec: Item) -> tuple[NodeRequirement, ...] | None:
    """Which namespaces may submit; without a selector none may, as in Kueue."""
    if "namespaceSelector" not in spec:
        spec.warn("namespaceSelector", "is not there: no namespace may submit", "write {} to let all of them")
        return None
    return read_selector(spec.mapping("namespaceSelector"))


def _weight(item: Item) -> int:
    weight = item.quantity("weight")
    if weight is None:
        return WHOLE_WEIGHT
    milli = counted("cpu", weight)
    if weight and weight * 1000 != milli:
        item.note("weight", f"is rounded up to {milli} thousandths")
    return milli


def _preemption(item: Item) -> PreemptionRule:
    within = item.choice("withinClusterQueue", PreemptWhom, PreemptWhom.NEVER)
    if within is PreemptWhom.ANY:
        item.refuse("withinClusterQueue", "one of Never, LowerPriority, LowerOrNewerEqualPriority", within.value)
    reclaim = item.choice("reclaimWithinCohort", PreemptWhom, PreemptWhom.NEVER)
    if reclaim is PreemptWhom.LOWER_OR_NEWER:
        item.refuse("reclaimWithinCohort", "one of Never, LowerPriority, Any", reclaim.value)
    inner = item.mapping("borrowWithinCohort")
    borrow = inner.choice("policy", PreemptWhom, PreemptWhom.NEVER)
    if borrow not in (PreemptWhom.NEVER, PreemptWhom.LOWER_PRIORITY):
        inner.refuse("policy", "one of Never, LowerPriority", borrow.value)
    threshold = "maxPriorityThreshold" in inner
    return PreemptionRule(
        within_queue=within,
        reclaim_in_cohort=reclaim,
        borrow_in_cohort=borrow,
        borrow_priority_threshold=inner.whole("maxPriorityThreshold", least=-(2**31)) if threshold else None,
    )


def _fungibility(item: Item) -> Fungibility:
    borrow = item.choice("whenCanBorrow", FlavorMove, FlavorMove.STOP, {"Borrow": FlavorMove.STOP})
    preempt = item.choice("whenCanPreempt", FlavorMove, FlavorMove.NEXT, {"Preempt": FlavorMove.STOP})
    preference = item.choice("preference", FlavorPreference, FlavorPreference.BORROW)
    return Fungibility(when_can_borrow=borrow, when_can_preempt=preempt, preference=preference)


def _checks(spec: Item) -> Iterator[CheckRule]:
    for name in spec.texts("admissionChecks"):
        yield CheckRule(name=name)
    for item in spec.mapping("admissionChecksStrategy").items("admissionChecks"):
        yield CheckRule(name=item.needed_text("name"), flavors=item.texts("onFlavors"))


def _read_groups(spec: Item) -> tuple[tuple[FlavorGroup, ...], tuple[Quota, ...]]:
    groups: list[FlavorGroup] = []
    quotas: list[Quota] = []
    for item in spec.items("resourceGroups"):
        flavors = item.items("flavors")
        names = tuple(flavor.needed_text("name") for flavor in flavors)
        groups.append(FlavorGroup(resources=item.texts("coveredResources"), flavors=names))
        for flavor, name in zip(flavors, names, strict=True):
            quotas += [_quota(quota, name) for quota in flavor.items("resources")]
    return tuple(groups), tuple(quotas)


def _quota(item: Item, flavor: str) -> Quota:
    resource = item.needed_text("name")
    if "nominalQuota" not in item:
        item.report("nominalQuota", found="required field is missing", hint="write 0 to own none")
    return Quota(
        flavor=flavor,
        resource=resource,
        nominal=_amount(item, "nominalQuota", resource) or 0,
        borrow_limit=_amount(item, "borrowingLimit", resource),
        lend_limit=_amount(item, "lendingLimit", resource),
    )


def _amount(item: Item, key: str, resource: str) -> int | None:
    amount = item.quantity(key)
    return None if amount is None else counted(resource, amount)
