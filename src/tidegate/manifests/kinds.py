"""The kinds of objects: which are read, in which versions, and which are ignored."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.manifests import core_objects, kai, kueue_objects, kueue_queues, kueue_workload, volcano
from tidegate.manifests.field_support import FieldSchema
from tidegate.manifests.jobs import apps, batch, kubeflow, pod, ray, trainer
from tidegate.manifests.jobs.pod_parts import JobKind

KUEUE = "kueue.x-k8s.io"
KUEUE_CONFIG = "config.kueue.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
KAI = "scheduling.run.ai"
TRAINER = "trainer.kubeflow.org"

#: Group and kind.
GroupKind = tuple[str, str]


class KindInfo(NamedTuple):
    """A kind of object that is read."""

    versions: tuple[str, ...]
    form: FieldSchema
    job: JobKind | None = None
    namespaced: bool = True


def _kueue(form: FieldSchema, *, namespaced: bool = False) -> KindInfo:
    return KindInfo(("v1beta1", "v1beta2"), form, namespaced=namespaced)


def _cluster(form: FieldSchema, *versions: str) -> KindInfo:
    return KindInfo(versions, form, namespaced=False)


def _job(kind: JobKind, *versions: str) -> KindInfo:
    return KindInfo(versions, kind.form, kind)


KINDS: dict[GroupKind, KindInfo] = {
    (KUEUE, "ClusterQueue"): _kueue(kueue_queues.CLUSTER_QUEUE),
    (KUEUE, "Cohort"): _kueue(kueue_queues.COHORT),
    (KUEUE, "LocalQueue"): _kueue(kueue_queues.LOCAL_QUEUE, namespaced=True),
    (KUEUE, "ResourceFlavor"): _kueue(kueue_objects.FLAVOR),
    (KUEUE, "Topology"): _kueue(kueue_objects.TOPOLOGY),
    (KUEUE, "AdmissionCheck"): _kueue(kueue_objects.CHECK),
    (KUEUE, "WorkloadPriorityClass"): _kueue(kueue_objects.PRIORITY),
    (KUEUE, "Workload"): _kueue(kueue_workload.WORKLOAD, namespaced=True),
    (KUEUE_CONFIG, "Configuration"): _kueue(kueue_objects.CONFIGURATION),
    ("", "Node"): _cluster(core_objects.NODE, "v1"),
    ("", "Namespace"): _cluster(core_objects.NAMESPACE, "v1"),
    ("", "LimitRange"): KindInfo(("v1",), core_objects.LIMIT_RANGE),
    ("", "Pod"): _job(pod.POD, "v1"),
    ("scheduling.k8s.io", "PriorityClass"): _cluster(core_objects.PRIORITY, "v1"),
    ("node.k8s.io", "RuntimeClass"): _cluster(core_objects.RUNTIME_CLASS, "v1"),
    ("batch", "Job"): _job(batch.JOB, "v1"),
    ("apps", "Deployment"): _job(apps.DEPLOYMENT, "v1"),
    ("apps", "ReplicaSet"): _job(apps.REPLICA_SET, "v1"),
    ("apps", "StatefulSet"): _job(apps.STATEFUL_SET, "v1"),
    ("jobset.x-k8s.io", "JobSet"): _job(batch.JOB_SET, "v1alpha2"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _job(apps.LEADER_WORKER_SET, "v1"),
    ("kubeflow.org", "PyTorchJob"): _job(kubeflow.PYTORCH, "v1"),
    ("kubeflow.org", "TFJob"): _job(kubeflow.TENSORFLOW, "v1"),
    ("kubeflow.org", "XGBoostJob"): _job(kubeflow.XGBOOST, "v1"),
    ("kubeflow.org", "PaddleJob"): _job(kubeflow.PADDLE, "v1"),
    ("kubeflow.org", "JAXJob"): _job(kubeflow.JAX, "v1"),
    ("kubeflow.org", "MPIJob"): _job(kubeflow.MPI, "v1", "v2beta1"),
    (TRAINER, "TrainJob"): _job(trainer.TRAIN_JOB, "v1alpha1"),
    (TRAINER, "ClusterTrainingRuntime"): _cluster(trainer.RUNTIME, "v1alpha1"),
    (TRAINER, "TrainingRuntime"): KindInfo(("v1alpha1",), trainer.RUNTIME),
    ("ray.io", "RayCluster"): _job(ray.CLUSTER, "v1", "v1alpha1"),
    ("ray.io", "RayJob"): _job(ray.JOB, "v1", "v1alpha1"),
    ("ray.io", "RayService"): _job(ray.SERVICE, "v1", "v1alpha1"),
    ("batch.volcano.sh", "Job"): _job(batch.VOLCANO_JOB, "v1alpha1"),
    (VOLCANO, "Queue"): _cluster(volcano.QUEUE, "v1beta1"),
    (KAI, "Queue"): _cluster(kai.QUEUE, "v2"),
}

#: Kinds that create work over time: they are refused, as that work is not known.
REFUSED_KINDS: dict[GroupKind, str] = {
    ("batch", "CronJob"): "it makes Jobs over time; add the Jobs that it makes",
    ("batch.volcano.sh", "CronJob"): "it makes Jobs over time; add the Jobs that it makes",
    ("ray.io", "RayCronJob"): "it makes RayJobs over time; add the RayJobs that it makes",
    ("workload.codeflare.dev", "AppWrapper"): "it wraps other objects; add those instead",
    ("sparkoperator.k8s.io", "SparkApplication"): "its driver makes pods while running; add a Job of their size",
}

_NOT_WORK = "it does not queue, place or run work"
_CORE = ("Service", "Secret", "ServiceAccount", "PersistentVolumeClaim", "PersistentVolume", "Event", "Endpoints")
_GROUPS = ("Workload", "PodGroup", "CompositePodGroup")

#: Kinds that are known and ignored, and why.
IGNORED_KINDS: dict[GroupKind, str] = {
    **{("", kind): _NOT_WORK for kind in _CORE},
    **{("scheduling.k8s.io", kind): "groups of Kubernetes' own scheduler are not read" for kind in _GROUPS},
    (KAI, "BindRequest"): "where a pod is bound is not read from it",
    ("", "ResourceQuota"): "what a namespace may ask for in all is not counted",
    ("apps", "DaemonSet"): "what its pods take of each node is not counted; lower the nodes' allocatable",
    ("", "PodTemplate"): "no work is made of it",
    ("", "ConfigMap"): "only queues.yaml and controller_manager_config.yaml are read in one",
    (KUEUE, "ProvisioningRequestConfig"): "admission checks are set by their controllers",
    (KUEUE, "MultiKueueConfig"): "there is one cluster",
    (KUEUE, "MultiKueueCluster"): "there is one cluster",
    (VOLCANO, "PodGroup"): "the jobs that it belongs to are read instead",
    (KAI, "PodGroup"): "the jobs that it belongs to are read instead",
    ("keda.sh", "ScaledJob"): "it makes Jobs over time; add the Jobs that it makes",
    ("serving.kserve.io", "InferenceService"): "the Deployments that it makes are read instead",
}

_WHY_IGNORED = {
    _NOT_WORK: (
        "policy rbac.authorization.k8s.io networking.k8s.io apiextensions.k8s.io admissionregistration.k8s.io "
        "coordination.k8s.io events.k8s.io monitoring.coreos.com bus.volcano.sh"
    ),
    "where data can be reached is not known here": "storage.k8s.io",
    "replicas and nodes are not scaled by it here": (
        "autoscaling autoscaling.k8s.io autoscaling.x-k8s.io autoscaling.aibrix.ai keda.sh karpenter.sh "
        "karpenter.k8s.aws karpenter.kwok.sh kube-green.com llmd.ai"
    ),
    "requests are not routed by it here": (
        "inference.networking.k8s.io inference.networking.x-k8s.io llm-d.ai gateway.networking.k8s.io"
    ),
    "devices by claim (DRA) are not read yet": "resource.k8s.io resource.nvidia.com",
    "how nodes are set up is not read from it": "nvidia.com",
    "how simulated nodes behave is the twin's matter": "kwok.x-k8s.io",
    "KAI's settings have no counterpart": "kai.scheduler",
    "tiers of Volcano's HyperNodes are not read; use a Topology of Kueue": "topology.volcano.sh",
    "NUMA nodes are not modelled": "nodeinfo.volcano.sh",
    "it makes Jobs over time; add the Jobs that it makes": "flow.volcano.sh",
    "Volcano's settings have no counterpart": "config.volcano.sh",
    "it builds other files; add what it builds": "kustomize.config.k8s.io",
}

#: API groups whose kinds are all ignored, and why.
IGNORED_GROUPS = {group: why for why, groups in _WHY_IGNORED.items() for group in groups.split()}
