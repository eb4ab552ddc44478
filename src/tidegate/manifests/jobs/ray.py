"""Ray: RayCluster, RayJob and RayService.

KubeRay adds containers of its own to the head; quota counts them, as Kueue does.
"""

from __future__ import annotations

from typing import Any

from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import Unsupported, schema
from tidegate.manifests.jobs.batch import NOT_ENDED
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup, with_container
from tidegate.manifests.object_meta import object_schema
from tidegate.manifests.pod_template import TEMPLATE
from tidegate.manifests.quantity import largest
from tidegate.model.units import parse_quantity
from tidegate.model.work import WorkKind

_CLUSTER_SPEC = schema(
    "enableInTreeAutoscaling",
    idle="authOptions gcsFaultToleranceOptions headServiceAnnotations historyServerOptions managedBy networkPolicy "
    "rayVersion suspend tlsOptions upgradeStrategy",
    autoscalerOptions=schema(
        "resources",
        idle="args command env envFrom image imagePullPolicy securityContext version volumeMounts idleTimeoutSeconds "
        "upscalingMode",
    ),
    headGroupSpec=schema(
        idle="enableIngress headService ingressOptions labels rayStartParams resources serviceType", template=TEMPLATE
    ),
    workerGroupSpecs=schema(
        "groupName replicas numOfHosts",
        idle="idleTimeoutSeconds labels priority rayStartParams resources scaleStrategy minReplicas maxReplicas "
        "suspend",
        template=TEMPLATE,
    ),
)
_JOB_SPEC = schema(
    "submissionMode",
    idle="backoffLimit deletionStrategy entrypoint entrypointNumCpus entrypointNumGpus entrypointResources jobId "
    "managedBy metadata runtimeEnvYAML shutdownAfterJobFinishes submitterConfig suspend ttlSecondsAfterFinished",
    unmodelled={"activeDeadlineSeconds": NOT_ENDED, "preRunningDeadlineSeconds": NOT_ENDED},
    refused={"clusterSelector": Unsupported("a job on a cluster that is there already", "give it a rayClusterSpec")},
    rayClusterSpec=_CLUSTER_SPEC,
    submitterPodTemplate=TEMPLATE,
)
_SERVICE_SPEC = schema(
    idle="deploymentUnhealthySecondThreshold excludeHeadPodFromServeSvc managedBy rayClusterDeletionDelaySeconds "
    "serveConfigV2 serveService serviceUnhealthySecondThreshold suspend upgradeStrategy",
    rayClusterConfig=_CLUSTER_SPEC,
)

#: What KubeRay gives to the containers that it adds.
_AUTOSCALER = {"requests": {"cpu": "500m", "memory": "512Mi"}}
_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}}
_CLEANUP = {"cpu": "200m", "memory": "256Mi"}


def split_cluster(item: Item, _: ClusterDefaults) -> JobParts:
    """A RayCluster: a head, and a pod set for each group of workers."""
    return JobParts(_cluster_groups(item, item.mapping("spec")), WorkKind.INTERACTIVE)


def split_job(item: Item, _: ClusterDefaults) -> JobParts:
    """A RayJob: its cluster, and the pod that submits to it."""
    spec = item.mapping("spec")
    if "rayClusterSpec" not in spec:
        spec.report("rayClusterSpec", found="required field is missing")
        return JobParts(())
    groups = _cluster_groups(item, spec.mapping("rayClusterSpec"))
    mode = spec.text("submissionMode", "K8sJobMode")
    if mode == "K8sJobMode":
        return JobParts((*groups, ReplicaGroup("submitter", 1, _submitter(spec))))
    if mode == "SidecarMode":
        head = groups[0]._replace(template=with_container(groups[0].template, _SUBMITTER))
        return JobParts((head, *groups[1:]))
    if mode not in ("HTTPMode", "InteractiveMode"):
        spec.refuse("submissionMode", "one of K8sJobMode, SidecarMode, HTTPMode, InteractiveMode", mode)
    return JobParts(groups)


def split_service(item: Item, _: ClusterDefaults) -> JobParts:
    """A RayService: its cluster."""
    return JobParts(_cluster_groups(item, item.mapping("spec").mapping("rayClusterConfig")), WorkKind.INFERENCE)


def _submitter(spec: Item) -> Item:
    if "submitterPodTemplate" in spec:
        return spec.mapping("submitterPodTemplate")
    return spec.field("submitterPodTemplate", {"spec": {"containers": [{"resources": _SUBMITTER}]}})


def _cluster_groups(item: Item, spec: Item) -> tuple[ReplicaGroup, ...]:
    head = spec.mapping("headGroupSpec").mapping("template")
    annotations = item.mapping("metadata").pairs("annotations")
    if "gcsFaultToleranceOptions" in spec or annotations.get("ray.io/ft-enabled") == "true":
        head = _with_cleanup(head)
    if spec.flag("enableInTreeAutoscaling"):
        own = spec.mapping("autoscalerOptions").get("resources")
        head = with_container(head, own if isinstance(own, dict) else _AUTOSCALER)
    workers = [
        ReplicaGroup(group.needed_text("groupName").lower(), _worker_count(group), group.mapping("template"))
        for group in spec.items("workerGroupSpecs")
    ]
    return (ReplicaGroup("head", 1, head), *workers)


def _worker_count(group: Item) -> int:
    return group.whole("replicas", 1) * max(group.whole("numOfHosts", 1), 1)


def _with_cleanup(head: Item) -> Item:
    """The head's template, with room for the job that cleans up after it in the same place."""
    spec = head.quiet().mapping("spec")
    containers = [item.value for item in spec.items("containers")]
    if not containers:
        return head
    asked = spec.items("containers")[0].mapping("resources").amounts("requests")
    needed = {name: parse_quantity(amount) for name, amount in _CLEANUP.items()}
    requests: dict[str, Any] = {name: f"{int(amount * 10**9)}n" for name, amount in largest(asked, needed).items()}
    own = containers[0].get("resources") or {}
    first = {**containers[0], "resources": {**own, "requests": requests}}
    changed = {**head.value, "spec": {**spec.value, "containers": [first, *containers[1:]]}}
    return Item(changed, head.findings, head.origin, head.path)


CLUSTER = JobKind(object_schema(_CLUSTER_SPEC), split_cluster)
JOB = JobKind(object_schema(_JOB_SPEC), split_job)
SERVICE = JobKind(object_schema(_SERVICE_SPEC), split_service)
