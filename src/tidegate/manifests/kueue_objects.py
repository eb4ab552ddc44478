"""Kueue's smaller objects: ResourceFlavor, Topology, AdmissionCheck, WorkloadPriorityClass and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from tidegate.manifests.cluster_defaults import Transformation
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, Unsupported, schema
from tidegate.manifests.object_meta import object_schema, read_meta
from tidegate.manifests.quantity import counted
from tidegate.manifests.selectors import TAINT, TOLERATION, read_taints, read_tolerations
from tidegate.model.hardware import TopologyLevels
from tidegate.model.queues import FairSharing, FairStrategy, Flavor, TopologyRule, UsageSharing
from tidegate.model.struct import labels
from tidegate.model.units import UnitError, parse_duration_ms, parse_quantity

FLAVOR = object_schema(schema("topologyName", nodeLabels=ANYTHING, nodeTaints=TAINT, tolerations=TOLERATION))
TOPOLOGY = object_schema(schema(levels=schema("nodeLabel")))
CHECK = object_schema(schema("controllerName", idle="parameters retryDelayMinutes"))
PRIORITY = object_schema(top="value", idle="description")

_NOT_ENDED = "work is neither ended nor sent back for the time it takes to start"
CONFIGURATION = schema(
    "apiVersion kind",
    idle="namespace webhook leaderElection metrics health pprofBindAddress controller tls manageJobsWithoutQueueName "
    "managedJobsNamespaceSelector internalCertManagement clientConnection integrations visibilityServer "
    "objectRetentionPolicies metadata queueVisibility multiKueue",
    unmodelled={"waitForPodsReady": _NOT_ENDED},
    fairSharing=schema("enable preemptionStrategies"),
    admissionFairSharing=schema("usageHalfLifeTime usageSamplingInterval", resourceWeights=ANYTHING),
    resources=schema(
        "quotaCheckStrategy excludeResourcePrefixes",
        transformations=schema("input strategy multiplyBy", outputs=ANYTHING),
        refused={"deviceClassMappings": Unsupported("devices by claim (DRA)")},
    ),
    featureGates=ANYTHING,
)

#: Gates of Kueue that make a difference to what is read here; others change what decides, or nothing.
_GATES = (
    "PriorityBoost", "PartialAdmission", "RecomputeAssignmentUponPreemptionTargetsOverlap", "TASProfileMixed",
    "TASRespectNodeAffinityPreferred", "TASBalancedPlacement", "TASRecomputeAssignmentWithinSchedulingCycle",
    "TASFailedNodeReplacementFailFast", "TopologyAwareScheduling", "TASHandleOverlappingFlavors",
    "SkipReassignmentForPodOwnedWorkloads",
)  # fmt: skip


def read_resource_flavor(item: Item) -> Flavor:
    """Read a ResourceFlavor."""
    spec = item.mapping("spec")
    return Flavor(
        name=read_meta(item).name,
        node_labels=labels(spec.pairs("nodeLabels")),
        node_taints=read_taints(spec.items("nodeTaints")),
        tolerations=read_tolerations(spec.items("tolerations")),
        topology=spec.text("topologyName"),
    )


def read_topology(item: Item) -> TopologyLevels:
    """Read a Topology."""
    spec = item.mapping("spec")
    levels = tuple(level.needed_text("nodeLabel") for level in spec.items("levels"))
    return TopologyLevels(name=read_meta(item).name, labels=levels)


class NamedCheck(NamedTuple):
    """An admission check and its controller."""

    name: str
    controller: str


def read_admission_check(item: Item) -> NamedCheck:
    """Read an AdmissionCheck."""
    return NamedCheck(read_meta(item).name, item.mapping("spec").text("controllerName"))


class KueueConfiguration(NamedTuple):
    """The configuration of Kueue."""

    fair: FairSharing | None = None
    usage: UsageSharing | None = None
    ignore_undeclared: bool = False
    partial: bool = True
    retargets: bool = True
    excluded: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    gates: frozenset[str] = frozenset()
    topology: TopologyRule = TopologyRule()


def topology_rule(gates: Mapping[str, bool]) -> TopologyRule:
    """How domains are chosen with these feature gates; others have Kueue's defaults."""
    return TopologyRule(
        enabled=gates.get("TopologyAwareScheduling", True),
        mixed=gates.get("TASProfileMixed", True),
        likes=gates.get("TASRespectNodeAffinityPreferred", False),
        balanced=gates.get("TASBalancedPlacement", False),
        elastic=gates.get("ElasticJobsViaWorkloadSlicesWithTAS", False),
        recomputes=gates.get("TASRecomputeAssignmentWithinSchedulingCycle", True),
        twins=gates.get("TASHandleOverlappingFlavors", True),
        pins=gates.get("SkipReassignmentForPodOwnedWorkloads", True),
        fails_fast=gates.get("TASFailedNodeReplacementFailFast", True),
    )


def read_configuration(item: Item) -> KueueConfiguration:
    """Read the Configuration in the ConfigMap of Kueue's controller."""
    inner, gates = item.mapping("resources"), item.mapping("featureGates")
    for name in gates.value:
        if name not in _GATES:
            gates.warn(name, "has no effect here: queues behave as with Kueue's defaults")
    strategy = inner.text("quotaCheckStrategy", "BlockUndeclared")
    if strategy not in ("BlockUndeclared", "IgnoreUndeclared"):
        inner.refuse("quotaCheckStrategy", "one of BlockUndeclared, IgnoreUndeclared", strategy)
    return KueueConfiguration(
        fair=_fair(item),
        usage=_usage(item),
        ignore_undeclared=strategy == "IgnoreUndeclared",
        partial=gates.flag("PartialAdmission", default=True),
        retargets=gates.flag("RecomputeAssignmentUponPreemptionTargetsOverlap", default=True),
        excluded=inner.texts("excludeResourcePrefixes"),
        transformations=tuple(_transformation(rule) for rule in inner.items("transformations")),
        gates=frozenset(name for name in gates.value if gates.flag(name)) & frozenset(_GATES),
        topology=topology_rule({name: gates.flag(name) for name in gates.value}),
    )


def _fair(item: Item) -> FairSharing | None:
    inner = item.mapping("fairSharing")
    by_default = not item.text("apiVersion").endswith("/v1beta1")  # which had a switch for it, and off
    if "fairSharing" not in item or not inner.flag("enable", default=by_default):
        return None
    known = {strategy.value: strategy for strategy in FairStrategy}
    named = inner.texts("preemptionStrategies")
    for name in named:
        if name not in known:
            inner.refuse("preemptionStrategies", f"one of {', '.join(known)}", name)
    strategies = tuple(known[name] for name in named if name in known)
    return FairSharing(strategies=strategies) if strategies else FairSharing()


def _usage(item: Item) -> UsageSharing | None:
    if "admissionFairSharing" not in item:
        return None
    inner = item.mapping("admissionFairSharing")
    weights = inner.mapping("resourceWeights")
    found = {name: weights.quantity(name) for name in sorted(weights.value)}
    return UsageSharing(
        half_life_ms=read_duration_ms(inner, "usageHalfLifeTime"),
        sampling_ms=read_duration_ms(inner, "usageSamplingInterval") or 5 * 60_000,
        weights_milli=tuple((name, counted("cpu", weight)) for name, weight in found.items() if weight is not None),
    )


def read_duration_ms(item: Item, key: str) -> int:
    """A field that is a duration; 0 if it is not there."""
    written = item.text(key)
    try:
        return parse_duration_ms(written) if written else 0
    except UnitError as error:
        item.refuse(key, str(error), written)
        return 0


def _transformation(item: Item) -> Transformation:
    strategy, outputs = item.text("strategy", "Retain"), item.mapping("outputs")
    if strategy not in ("Retain", "Replace"):
        item.refuse("strategy", "one of Retain, Replace", strategy)
    factors = {name: _signed(outputs, name) for name in outputs.value}
    return Transformation(item.needed_text("input"), strategy == "Retain", item.text("multiplyBy"), factors)


def _signed(item: Item, key: str) -> Fraction:
    try:
        return parse_quantity(item.get(key))
    except UnitError as error:
        item.refuse(key, str(error), item.get(key))
        return Fraction()
