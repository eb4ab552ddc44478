"""Job, JobSet and Volcano's Job."""

from __future__ import annotations

from tidegate.manifests.cluster_defaults import ClusterDefaults
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, Unsupported, schema
from tidegate.manifests.jobs.pod_parts import JobKind, JobParts, ReplicaGroup
from tidegate.manifests.kueue_objects import read_duration_ms
from tidegate.manifests.label_names import MIN_PARALLELISM
from tidegate.manifests.object_meta import TEMPLATE_META, object_schema
from tidegate.manifests.pod_template import TEMPLATE
from tidegate.model.work import WorkKind

NOT_ENDED = "work is not ended for its time"
_JOB_SPEC = schema(
    "parallelism completions",
    idle="backoffLimit backoffLimitPerIndex completionMode managedBy manualSelector maxFailedIndexes podFailurePolicy "
    "podReplacementPolicy selector successPolicy suspend ttlSecondsAfterFinished",
    unmodelled={"activeDeadlineSeconds": NOT_ENDED},
    template=TEMPLATE,
)
JOB_SET_SPEC = schema(
    idle="coordinator failurePolicy managedBy network startupPolicy successPolicy suspend ttlSecondsAfterFinished",
    unmodelled={"volumeClaimPolicies": "where its data can be reached is not known here, and taken to be everywhere"},
    replicatedJobs=schema(
        "name replicas",
        idle="groupName",
        unmodelled={"dependsOn": "all pods of a job start together"},
        template=schema(metadata=TEMPLATE_META, spec=_JOB_SPEC),
    ),
)
_NETWORK = schema("mode", idle="highestTierAllowed highestTierName")
_TASK = schema(
    "name replicas minAvailable",
    idle="maxRetry policies",
    unmodelled={
        "dependsOn": "all pods of a job start together",
        "topologyPolicy": "NUMA nodes are not modelled",
    },
    refused={"partitionPolicy": Unsupported("tasks in partitions", "use one task for each partition")},
    template=TEMPLATE,
)
_VOLCANO_SPEC = schema(
    "minAvailable priorityClassName queue runningEstimate",
    idle="maxRetry minSuccess plugins policies schedulerName ttlSecondsAfterFinished",
    unmodelled={"volumes": "where its data can be reached is not known here, and taken to be everywhere"},
    tasks=_TASK,
    networkTopology=_NETWORK,
)


def split_job(item: Item, _: ClusterDefaults) -> JobParts:
    """A Job: one pod set, as many pods as run at a time."""
    spec = item.mapping("spec")
    count, template = _pods_of(spec), spec.mapping("template")
    return JobParts((ReplicaGroup("main", count, template, _least(item, count)),), WorkKind.BATCH)


def _pods_of(spec: Item) -> int:
    parallelism = spec.whole("parallelism", 1)
    return min(parallelism, spec.whole("completions", parallelism))


def _least(item: Item, count: int) -> int:
    """Pods that a Job may start with (Kueue's partial admission)."""
    written = item.mapping("metadata").pairs("annotations").get(MIN_PARALLELISM)
    if written is None:
        return 0
    if not (written.isdecimal() and 0 < int(written[:10]) <= count):
        inner = item.mapping("metadata").mapping("annotations")
        inner.refuse(MIN_PARALLELISM, f"a whole number from 1 to the parallelism of {count}, as text", written)
        return 0
    return int(written)


def split_job_set(item: Item, _: ClusterDefaults) -> JobParts:
    """A JobSet: a pod set for each replicated job."""
    return JobParts(job_set_groups(item.mapping("spec")))


def job_set_groups(spec: Item) -> tuple[ReplicaGroup, ...]:
    """The pods of a JobSet's spec."""
    jobs = spec.items("replicatedJobs")
    if not jobs:
        spec.report("replicatedJobs", expected="one or more", found="none")
    groups = []
    for job in jobs:
        inner = job.mapping("template").mapping("spec")
        count = job.whole("replicas", 1) * _pods_of(inner)
        groups.append(ReplicaGroup(job.needed_text("name").lower(), count, inner.mapping("template")))
    return tuple(groups)


def split_volcano_job(item: Item, _: ClusterDefaults) -> JobParts:
    """Volcano's Job: a pod set for each task; it may start with fewer pods where it says so."""
    spec = item.mapping("spec")
    tasks = spec.items("tasks")
    if not tasks:
        spec.report("tasks", expected="one or more", found="none")
    groups = [_task(task, number) for number, task in enumerate(tasks)]
    total, least = sum(group.pods for group in groups), spec.whole("minAvailable")
    if 0 < least < total and len(groups) == 1:
        groups = [groups[0]._replace(least=least)]
    elif 0 < least < total and least != sum(group.least or group.pods for group in groups):
        spec.warn("minAvailable", "has no effect here over several tasks", "set minAvailable of the tasks")
    _review_network(spec)
    return JobParts(
        groups=tuple(groups),
        priority_class=spec.text("priorityClassName"),
        queue=spec.text("queue", "default"),
        estimate_ms=read_duration_ms(spec, "runningEstimate"),
    )


def _task(task: Item, number: int) -> ReplicaGroup:
    count = task.whole("replicas", 1)
    least = task.whole("minAvailable", count)
    name = task.text("name") or f"default{number}"
    return ReplicaGroup(name, count, task.mapping("template"), least if 0 < least < count else 0)


def _review_network(spec: Item) -> None:
    if "networkTopology" not in spec:
        return
    if spec.mapping("networkTopology").text("mode", "hard") == "hard":
        hint = "use mode soft, or a topology annotation on the tasks"
        spec.report("networkTopology", found="is not supported: tiers of Volcano's HyperNodes", hint=hint)
    else:
        spec.warn("networkTopology", "has no effect here: tiers of Volcano's HyperNodes")


JOB = JobKind(object_schema(_JOB_SPEC), split_job)
JOB_SET = JobKind(object_schema(JOB_SET_SPEC), split_job_set)
VOLCANO_JOB = JobKind(object_schema(_VOLCANO_SPEC), split_volcano_job)

#: The spec that a training runtime has under its template.
JOB_SET_TEMPLATE = schema(metadata=ANYTHING, spec=JOB_SET_SPEC)
