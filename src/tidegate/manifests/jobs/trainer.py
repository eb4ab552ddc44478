"""Kubeflow's TrainJob: a JobSet made of a runtime and the overrides of the job."""

from __future__ import annotations

from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import schema
from tidegate.manifests.jobs.batch import JOB_SET_TEMPLATE, NOT_ENDED, job_set_groups
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup
from tidegate.manifests.object_meta import object_schema, read_meta
from tidegate.manifests.pod_requests import RESOURCES

_JOB_SPEC = schema(
    idle="initializer managedBy suspend",
    unmodelled={
        "activeDeadlineSeconds": NOT_ENDED,
        "runtimePatches": "the runtime is taken as it is",
    },
    runtimeRef=schema("kind name", idle="apiGroup"),
    trainer=schema("numNodes", idle="args command env image numProcPerNode", resourcesPerNode=RESOURCES),
)
RUNTIME = object_schema(
    schema(
        idle="podGroupPolicy",
        mlPolicy=schema("numNodes", idle="flux jax mpi torch xgboost"),
        template=JOB_SET_TEMPLATE,
    )
)

#: The label of the replicated job that does the training, and the name of its container.
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_CONTAINER = "node"


def runtime_key(kind: str, name: str, namespace: str = "") -> str:
    """The name of a runtime among all of them: those of a cluster have no namespace."""
    return f"{kind}/{name}" if kind == "ClusterTrainingRuntime" else f"{kind}/{namespace}/{name}"


def split_train_job(item: Item, defaults: ClusterDefaults) -> JobParts:
    """A TrainJob: a pod set for each job of its runtime."""
    spec = item.mapping("spec")
    reference, trainer = spec.mapping("runtimeRef"), spec.mapping("trainer")
    kind, name = reference.text("kind", "ClusterTrainingRuntime"), reference.needed_text("name")
    runtime = defaults.training_runtimes.get(runtime_key(kind, name, read_meta(item, defaults.namespace).namespace))
    if runtime is None:
        hint = f"add the {kind} to the folder"
        reference.warn("name", f"there is no runtime {name}: one pod set of the trainer alone is assumed", hint)
        return JobParts((ReplicaGroup(_CONTAINER, trainer.whole("numNodes", 1), _bare_template(trainer)),))
    inner = runtime.mapping("spec")
    nodes = trainer.whole("numNodes", inner.mapping("mlPolicy").whole("numNodes", 1))
    return JobParts(_runtime_groups(inner.mapping("template").mapping("spec"), trainer, nodes))


def _bare_template(trainer: Item) -> Item:
    resources = trainer.get("resourcesPerNode") or {}
    return trainer.field("resourcesPerNode", {"spec": {"containers": [{"resources": resources}]}})


def _runtime_groups(spec: Item, trainer: Item, nodes: int) -> tuple[ReplicaGroup, ...]:
    jobs = spec.items("replicatedJobs")
    groups = job_set_groups(spec)
    return tuple(
        group._replace(pods=nodes, template=_for_trainer(group.template, trainer)) if _is_trainer(job) else group
        for job, group in zip(jobs, groups, strict=True)
    )


def _is_trainer(job: Item) -> bool:
    found = job.mapping("template").mapping("metadata").pairs("labels")
    return found.get(_STEP) == "trainer" or (_STEP not in found and job.text("name") == _CONTAINER)


def _for_trainer(template: Item, trainer: Item) -> Item:
    """The template, with the resources that the job asks for in its main container."""
    resources = trainer.get("resourcesPerNode")
    if resources is None:
        return template
    spec = template.mapping("spec")
    containers = [
        {**item.value, "resources": resources} if item.text("name") == _CONTAINER else item.value
        for item in spec.items("containers")
    ]
    changed = {**template.value, "spec": {**spec.value, "containers": containers}}
    return Item(changed, template.findings, template.origin, template.path)


TRAIN_JOB = JobKind(object_schema(_JOB_SPEC), split_train_job)
