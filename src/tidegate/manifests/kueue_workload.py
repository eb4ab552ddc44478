"""Kueue's Workload, in v1beta1 and v1beta2: its request, as a Workload of the model."""

from __future__ import annotations

import msgspec

from tidegate.manifests.cluster_defaults import NO_DEFAULTS, ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, schema
from tidegate.manifests.label_names import PRIORITY_BOOST, check_labels
from tidegate.manifests.object_meta import ManifestMeta, object_schema, read_meta
from tidegate.manifests.pod_template import TEMPLATE, read_template, sized
from tidegate.manifests.selectors import TOLERATION, read_tolerations
from tidegate.manifests.topology_requests import ASSIGNMENT, REQUEST, read_topology_request
from tidegate.model.work import PodSet, Work, Workload

POD_SET = schema("name count minCount", template=TEMPLATE, topologyRequest=REQUEST)
CONDITION = schema("type status reason lastTransitionTime", idle="message observedGeneration")
_ASSIGNED = schema(
    "name count delayedTopologyRequest", flavors=ANYTHING, resourceUsage=ANYTHING, topologyAssignment=ASSIGNMENT
)
_UPDATE = schema("name", idle="labels annotations", nodeSelector=ANYTHING, tolerations=TOLERATION)
STATUS = schema(
    idle="accumulatedPastExecutionTimeSeconds accumulatedPastExexcutionTimeSeconds schedulingStats resourceRequests",
    unmodelled=dict.fromkeys(("nominatedClusterNames", "clusterName"), "there is one cluster (MultiKueue)"),
    conditions=CONDITION,
    admission=schema("clusterQueue", podSetAssignments=_ASSIGNED),
    requeueState=schema("requeueAt", idle="count"),
    reclaimablePods=schema("name count"),
    admissionChecks=schema(
        "name state lastTransitionTime requeueAfterSeconds", idle="message retryCount", podSetUpdates=_UPDATE
    ),
    unhealthyNodes=schema("name"),
    preemptionGates=schema("name position", idle="lastTransitionTime"),
)
WORKLOAD = object_schema(
    schema(
        "queueName priority priorityClassName priorityClassSource active",
        unmodelled={"maximumExecutionTimeSeconds": "work is not ended for its time"},
        podSets=POD_SET,
        priorityClassRef=schema("group kind name"),
        preemptionGates=schema("name"),
    ),
    STATUS,
)


def read_workload(item: Item, defaults: ClusterDefaults = NO_DEFAULTS) -> Workload:
    """Read the request of a Workload."""
    meta, spec = read_meta(item, defaults.namespace), item.mapping("spec")
    check_labels(item.mapping("metadata"), defaults.gates)
    items = spec.items("podSets")
    queue = spec.text("queueName")
    work = Work(
        queue=f"{meta.namespace}/{queue}" if queue else "",
        priority=_priority(spec, defaults) + _boost(item, meta, defaults),
        pod_sets=_updated(item, tuple(read_pod_set(inner, defaults, meta.namespace) for inner in items)),
    )
    return Workload(id=meta.id, work=work, submitted_ms=meta.created_ms)


def read_pod_set(item: Item, defaults: ClusterDefaults = NO_DEFAULTS, namespace: str = "") -> PodSet:
    """Read a pod set with its topology request."""
    count = item.whole("count", 1)
    least = item.whole("minCount", least=1) if "minCount" in item else 0
    needs = read_template(item.mapping("template"), defaults, namespace)
    named = sized(needs, item.text("name", "main"), count, least)
    return msgspec.structs.replace(named, topology=read_topology_request(item.mapping("topologyRequest")))


def _priority(spec: Item, defaults: ClusterDefaults) -> int:
    """The priority as written, or that of the class it refers to."""
    if "priority" in spec:
        return spec.whole("priority", least=-(2**31))
    inner = spec.mapping("priorityClassRef")
    name = inner.text("name") or spec.text("priorityClassName")
    of_pods = inner.text("group") == "scheduling.k8s.io" or spec.text("priorityClassSource").startswith("scheduling")
    known = defaults.pod_priorities if of_pods else defaults.workload_priorities
    return known[name].value if name in known else 0


def _boost(item: Item, meta: ManifestMeta, defaults: ClusterDefaults) -> int:
    written = meta.annotations.get(PRIORITY_BOOST, "")
    if not written or "PriorityBoost" not in defaults.gates:
        return 0
    if len(written) > 11 or not written.removeprefix("-").isdecimal():
        item.mapping("metadata").mapping("annotations").warn(PRIORITY_BOOST, "is not a whole number and adds nothing")
        return 0
    return int(written)


def _updated(item: Item, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """The pod sets with what admission checks have added to them: node selectors and tolerations."""
    by_name = {pod_set.name: pod_set for pod_set in pod_sets}
    for check in item.mapping("status").items("admissionChecks"):
        for update in check.items("podSetUpdates"):
            found = by_name.get(update.text("name"))
            if found is not None:
                selector = {**dict(found.selector), **update.pairs("nodeSelector")}
                tolerations = (*found.tolerations, *read_tolerations(update.items("tolerations")))
                by_name[found.name] = msgspec.structs.replace(
                    found, selector=tuple(sorted(selector.items())), tolerations=tolerations
                )
    return tuple(by_name[pod_set.name] for pod_set in pod_sets)
