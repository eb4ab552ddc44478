"""Kueue's queues and what belongs to them, in both versions."""

from __future__ import annotations

import pytest

from manifest_texts import QUEUES, item, read, said
from tidegate.manifests.core_objects import read_priority_class
from tidegate.manifests.kueue_objects import (
    read_admission_check,
    read_configuration,
    read_resource_flavor,
    read_topology,
)
from tidegate.manifests.kueue_queues import read_cluster_queue, read_cohort, read_decayed_usage, read_local_queue
from tidegate.model.hardware import Taint
from tidegate.model.observed_status import DecayedUsage
from tidegate.model.queues import (
    UNLIMITED,
    CheckRule,
    Cohort,
    FairSharing,
    FairStrategy,
    Flavor,
    FlavorGroup,
    FlavorMove,
    FlavorPreference,
    Fungibility,
    LocalQueue,
    Namespace,
    PreemptionRule,
    PreemptWhom,
    Queue,
    Quota,
    StopPolicy,
    TopologyRule,
    UsageSharing,
)
from tidegate.model.work import NodeRequirement, Operator, Toleration


def queue(spec):
    found = item(f"{{metadata: {{name: q}}, spec: {spec}}}")
    read_queue = read_cluster_queue(found)
    assert not found.findings.errors, said(found)
    return read_queue


def test_what_a_queue_does_not_say_is_kueues_default():
    assert queue("{namespaceSelector: {}}") == Queue(name="q")
    assert queue("{}").namespaces is None


@pytest.mark.parametrize(
    ("spec", "field", "expected"),
    [
        ("{cohortName: c}", "cohort", "c"),
        ("{cohort: c}", "cohort", "c"),  # v1beta1
        ("{queueingStrategy: StrictFIFO}", "strict_fifo", True),
        ("{stopPolicy: HoldAndDrain}", "stop", StopPolicy.DRAIN),
        ("{fairSharing: {weight: 2}}", "weight_milli", 2000),
        ("{fairSharing: {weight: 500m}}", "weight_milli", 500),
        ("{fairSharing: {weight: 0}}", "weight_milli", 0),
        ("{admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}}", "usage_based", True),
        ("{admissionScope: {admissionMode: NoAdmissionFairSharing}}", "usage_based", False),
        ("{admissionChecks: [a, b]}", "checks", (CheckRule(name="a"), CheckRule(name="b"))),  # v1beta1
        (
            "{admissionChecksStrategy: {admissionChecks: [{name: a, onFlavors: [x]}]}}",
            "checks",
            (CheckRule(name="a", flavors=("x",)),),
        ),
        (
            "{namespaceSelector: {matchExpressions: [{key: dep, operator: In, values: [eng]}]}}",
            "namespaces",
            (NodeRequirement(key="dep", operator=Operator.IN, values=("eng",)),),
        ),
        (
            "{flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: MayStopSearch}}",
            "fungibility",
            Fungibility(when_can_borrow=FlavorMove.NEXT, when_can_preempt=FlavorMove.STOP),
        ),
        (
            "{flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}}",  # v1beta1
            "fungibility",
            Fungibility(when_can_borrow=FlavorMove.STOP, when_can_preempt=FlavorMove.STOP),
        ),
        (
            "{flavorFungibility: {whenCanBorrow: TryNextFlavor, preference: PreemptionOverBorrowing}}",
            "fungibility",
            Fungibility(when_can_borrow=FlavorMove.NEXT, preference=FlavorPreference.PREEMPT),
        ),
        (
            """{preemption: {withinClusterQueue: LowerOrNewerEqualPriority, reclaimWithinCohort: Any,
                borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: -3}}}""",
            "preemption",
            PreemptionRule(
                within_queue=PreemptWhom.LOWER_OR_NEWER,
                reclaim_in_cohort=PreemptWhom.ANY,
                borrow_in_cohort=PreemptWhom.LOWER_PRIORITY,
                borrow_priority_threshold=-3,
            ),
        ),
    ],
)
def test_the_fields_of_a_cluster_queue(spec, field, expected):
    assert getattr(queue(spec), field) == expected


GROUPS = """resourceGroups:
- coveredResources: [cpu, memory]
  flavors:
  - name: one
    resources:
    - {name: cpu, nominalQuota: 1.5, borrowingLimit: 500m}
    - {name: memory, nominalQuota: 1Gi, lendingLimit: 0}
  - name: two
    resources: [{name: cpu, nominalQuota: 1E}, {name: memory, nominalQuota: "0"}]
"""


def test_quota_is_counted_exactly():
    found = queue(str(item(GROUPS).value))
    assert found.groups == (FlavorGroup(resources=("cpu", "memory"), flavors=("one", "two")),)
    assert found.quotas == (
        Quota(flavor="one", resource="cpu", nominal=1500, borrow_limit=500),
        Quota(flavor="one", resource="memory", nominal=1 << 30, lend_limit=0),
        Quota(flavor="two", resource="cpu", nominal=UNLIMITED),
        Quota(flavor="two", resource="memory", nominal=0),
    )


def test_a_cohort():
    found = item("{metadata: {name: c}, spec: {parentName: p, fairSharing: {weight: 3}}}")
    assert read_cohort(found) == Cohort(name="c", parent="p", weight_milli=3000)
    found = item(f"{{metadata: {{name: c}}, spec: {item(GROUPS).value}}}")
    assert len(read_cohort(found).quotas) == 4


def test_a_local_queue_and_what_it_used():
    found = item(
        """{metadata: {name: l, namespace: n}, spec: {clusterQueue: q, stopPolicy: Hold, fairSharing: {weight: 2}},
            status: {fairSharing: {weightedShare: 0, admissionFairSharingStatus: {lastUpdate: "1970-01-01T00:00:05Z",
              consumedResources: {cpu: 1500m, memory: 10}}}}}"""
    )
    assert read_local_queue(found) == LocalQueue(id="n/l", queue="q", weight_milli=2000, stop=StopPolicy.HOLD)
    milli = (("cpu", 1_500_000), ("memory", 10_000))
    assert read_decayed_usage(found) == DecayedUsage(entrance="n/l", milli=milli, at_ms=5000)
    assert read_decayed_usage(item("{metadata: {name: l}}")) is None


def test_a_resource_flavor():
    found = item(
        """{metadata: {name: f}, spec: {nodeLabels: {b: "2", a: "1"}, topologyName: t,
            nodeTaints: [{key: k, value: v, effect: NoSchedule}], tolerations: [{key: k, operator: Exists}]}}"""
    )
    assert read_resource_flavor(found) == Flavor(
        name="f",
        node_labels=(("a", "1"), ("b", "2")),
        node_taints=(Taint(key="k", value="v"),),
        tolerations=(Toleration(key="k", operator=Operator.EXISTS),),
        topology="t",
    )


def test_the_small_kinds():
    assert read_topology(item("{metadata: {name: t}, spec: {levels: [{nodeLabel: a}, {nodeLabel: b}]}}")).labels == (
        "a",
        "b",
    )
    assert read_admission_check(item("{metadata: {name: c}, spec: {controllerName: x/y}}")) == ("c", "x/y")
    found = read_priority_class(item("{metadata: {name: p}, value: -5}"))
    assert (found.name, found.value) == ("p", -5)


def test_kueues_configuration():
    found = item(
        """
        apiVersion: config.kueue.x-k8s.io/v1beta2
        fairSharing: {preemptionStrategies: [LessThanInitialShare]}
        admissionFairSharing: {usageHalfLifeTime: 168h, resourceWeights: {cpu: 0, memory: 1.5}}
        resources:
          quotaCheckStrategy: IgnoreUndeclared
          excludeResourcePrefixes: [x.com/]
          transformations: [{input: a, strategy: Replace, outputs: {b: 2}}]
        featureGates: {PriorityBoost: true, TopologyAwareScheduling: false, FlavorFungibility: false}
        """
    )
    told = read_configuration(found)
    assert told.fair == FairSharing(strategies=(FairStrategy.INITIAL_SHARE,))
    assert told.usage == UsageSharing(
        half_life_ms=168 * 3_600_000, sampling_ms=300_000, weights_milli=(("cpu", 0), ("memory", 1500))
    )
    assert (told.ignore_undeclared, told.excluded, told.gates) == (True, ("x.com/",), {"PriorityBoost"})
    assert (told.transformations[0].keeps, told.transformations[0].outputs) == (False, {"b": 2})
    assert told.topology == TopologyRule(enabled=False)
    assert said(found) == ["featureGates.FlavorFungibility: has no effect here: queues behave as with Kueue's defaults"]


@pytest.mark.parametrize(
    ("text", "fair"),
    [
        ("apiVersion: config.kueue.x-k8s.io/v1beta1\nfairSharing: {enable: true}", FairSharing()),
        ("apiVersion: config.kueue.x-k8s.io/v1beta1\nfairSharing: {}", None),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nfairSharing: {}", FairSharing()),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2", None),
    ],
)
def test_when_sharing_is_fair(text, fair):
    assert read_configuration(item(text)).fair == fair


def test_a_configuration_inside_a_config_map_counts():
    inner = """
apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data:
  controller_manager_config.yaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    fairSharing: {}
    resources: {excludeResourcePrefixes: [memory]}
"""
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {template: {spec: {containers: [{resources: {requests: {cpu: 1, memory: 1}}}]}}}
"""
    found = read(QUEUES, inner, job)
    assert found.said() == []
    assert found.loaded.shares.fair == FairSharing()
    assert found.work()["default/j"].pod_sets[0].charge == (("cpu", 1000),)
    assert found.work()["default/j"].pod_sets[0].request == (("cpu", 1000), ("memory", 1))


def test_a_folder_becomes_one_value():
    namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: n, labels: {team: a}}}"
    check = "{apiVersion: kueue.x-k8s.io/v1beta1, kind: AdmissionCheck, metadata: {name: c}, spec: {controllerName: x}}"
    checked = QUEUES.replace(
        "  cohortName: all\n", "  cohortName: all\n  admissionChecksStrategy: {admissionChecks: [{name: c}]}\n"
    )
    found = read(checked, namespace, check)
    shares = found.loaded.shares
    assert found.said() == []
    assert [flavor.name for flavor in shares.flavors] == ["default"]
    assert shares.queues[0].checks == (CheckRule(name="c", controller="x"),)
    assert shares.entrances == (LocalQueue(id="default/main", queue="team"),)
    assert shares.namespaces == (
        Namespace(name="n", labels=(("kubernetes.io/metadata.name", "n"), ("team", "a"))),
        Namespace(name="default", labels=(("kubernetes.io/metadata.name", "default"),)),
    )
