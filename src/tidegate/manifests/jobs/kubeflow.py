"""Kubeflow's jobs: PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob, MPIJob (v1 and v2beta1).

Each has a mapping from a role to its pods; the order of roles is Kueue's.
"""

from __future__ import annotations

from tidegate.config.messages import did_you_mean
from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import FieldSchema, each, merged, schema
from tidegate.manifests.jobs.batch import NOT_ENDED
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup
from tidegate.manifests.object_meta import object_schema
from tidegate.manifests.pod_template import TEMPLATE

_RUN_POLICY = schema(
    idle="backoffLimit cleanPodPolicy managedBy suspend ttlSecondsAfterFinished",
    unmodelled={"activeDeadlineSeconds": NOT_ENDED},
    schedulingPolicy=schema(
        "priorityClass",
        idle="scheduleTimeoutSeconds",
        unmodelled={
            "minAvailable": "all pods of a job start together",
            "minResources": "all pods of a job start together",
            "queue": "queues of Volcano are named by the label kueue.x-k8s.io/queue-name here",
        },
    ),
)
_REPLICAS = each(schema("replicas", idle="restartPolicy", template=TEMPLATE))
_ELASTIC = {"elasticPolicy": "a job keeps the number of pods that it starts with"}


class _Roles:
    """The roles of one kind of job, under one field."""

    def __init__(self, field: str, *roles: str) -> None:
        self.field = field
        self.roles = roles

    def split(self, item: Item, _: ClusterDefaults) -> JobParts:
        """Take a job of this kind apart."""
        spec = item.mapping("spec")
        inner = spec.mapping(self.field)
        for name in inner.value:
            if name not in self.roles:
                inner.refuse(name, f"one of {', '.join(self.roles)}", name, did_you_mean(name, self.roles))
        present = [role for role in self.roles if role in inner]
        if not present:
            spec.report(self.field, expected=f"one or more of {', '.join(self.roles)}", found="none")
        policy = spec.mapping("runPolicy").mapping("schedulingPolicy")
        groups = tuple(_group(role, inner.mapping(role)) for role in present)
        return JobParts(groups, priority_class=policy.text("priorityClass"))

    def kind(self, more: FieldSchema | None = None) -> JobKind:
        """The kind of job with these roles."""
        fields = schema(runPolicy=_RUN_POLICY)
        fields.fields |= schema(**{self.field: _REPLICAS}).fields  # type: ignore[arg-type]  # the name varies
        return JobKind(object_schema(merged(fields, more) if more else fields), self.split)


def _group(role: str, item: Item) -> ReplicaGroup:
    return ReplicaGroup(role.lower(), item.whole("replicas", 1), item.mapping("template"))


PYTORCH = _Roles("pytorchReplicaSpecs", "Master", "Worker").kind(schema(idle="nprocPerNode", unmodelled=_ELASTIC))
TENSORFLOW = _Roles("tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator").kind(
    schema(idle="successPolicy enableDynamicWorker")
)
XGBOOST = _Roles("xgbReplicaSpecs", "Master", "Worker").kind()
PADDLE = _Roles("paddleReplicaSpecs", "Master", "Worker").kind(schema(unmodelled=_ELASTIC))
JAX = _Roles("jaxReplicaSpecs", "Worker").kind()
MPI = _Roles("mpiReplicaSpecs", "Launcher", "Worker").kind(
    schema(
        idle="launcherCreationPolicy mpiImplementation runLauncherAsWorker slotsPerWorker sshAuthMountPath "
        "cleanPodPolicy mainContainer"
    )
)
