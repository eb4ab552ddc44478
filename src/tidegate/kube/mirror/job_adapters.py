"""Job adapters, one for each kind: how it is suspended, where its pod templates are, how it ends.

`manifests` decodes the requests of a kind. Kinds that cannot be suspended are held by scheduling gates on their pods.
Pods of a Deployment and groups of a LeaderWorkerSet queue as pods and groups, not as jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tidegate.kube.transport.resources import JOBS, Resource
from tidegate.model.work import Recovery

#: Keys from the top of an object to a field of it.
Path = tuple[str | int, ...]

_JOB_SET_ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
_REPLICA_ROLE = "training.kubeflow.org/replica-type"
_MPI_ROLE = "training.kubeflow.org/job-role"
_RAY_ROLE = "ray.io/group"


class TemplateList(NamedTuple):
    """Pod templates in a list or a mapping; the item's name, or the key, is the pod set."""

    at: Path
    inner: Path
    name: str = ""  # field with the name; empty: it is a mapping


#: The reclaimable pods of an object, which are done and not created again, by pod set.
ReclaimablePods = Callable[[Mapping[str, Any]], dict[str, int]]


class JobAdapter(NamedTuple):
    """How Tidegate handles a kind of job."""

    resource: Resource
    suspend: Path = ("spec", "suspend")  # empty: it cannot be suspended, and its pods are gated
    over: tuple[str, ...] = ()  # conditions of a finished job
    over_states: Mapping[Path, tuple[str, ...]] = {}  # values in other status fields of a finished job
    main: Mapping[str, Path] = {}  # pod sets with a template at a path of their own
    listed: tuple[TemplateList, ...] = ()
    roles: Mapping[str, str] = {}  # pod sets by the value of its pods' role label, where it differs
    unnamed: str = ""  # pod set of pods without such a label; empty: by their requests
    size: Path = ()  # path of the number of pods, if it may start with fewer
    reclaimable: ReclaimablePods | None = None  # finds its reclaimable pods
    recovery: Recovery = Recovery.GANG  # when it loses a pod or a node, unless its label overrides it
    patches: bool = False  # its templates are in a runtime, and it has a list of patches to them

    @property
    def key(self) -> tuple[str, str]:
        """Its group and kind."""
        return self.resource.group, self.resource.kind

    def templates(self, thing: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
        """The pod sets of an object and the paths of their templates."""
        for name, path in self.main.items():
            if isinstance(find(thing, path), dict):
                yield name, path
        for listed in self.listed:
            found = find(thing, listed.at)
            if isinstance(found, dict) and not listed.name:
                yield from ((str(key).lower(), (*listed.at, key, *listed.inner)) for key in found)
            elif isinstance(found, list):
                for number, item in enumerate(found):
                    named = item.get(listed.name) if isinstance(item, dict) else None
                    if isinstance(named, str):
                        yield named.lower(), (*listed.at, number, *listed.inner)

    def pod_set(self, role: str) -> str:
        """The pod set of a pod with this role label."""
        return self.roles.get(role, role) or self.unnamed


def find(thing: Any, path: Path) -> Any:
    """The value at a path of an object; None if there is none."""
    for key in path:
        if isinstance(thing, dict):
            thing = thing.get(key)
        elif isinstance(thing, list) and isinstance(key, int) and key < len(thing):
            thing = thing[key]
        else:
            return None
    return thing


def mappings(thing: Any, path: Path) -> list[dict[str, Any]]:
    """The mappings in the list at a path of an object."""
    found = find(thing, path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _whole(thing: Any, path: Path, default: int) -> int:
    """A count at a path of an object, or the default."""
    found = find(thing, path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default


def _reclaimable_of_job(thing: Mapping[str, Any]) -> dict[str, int]:
    """A Job with fewer completions left than its parallelism has reclaimable pods."""
    parallelism, succeeded = _whole(thing, ("spec", "parallelism"), 1), _whole(thing, ("status", "succeeded"), 0)
    completions = _whole(thing, ("spec", "completions"), parallelism)
    pods, left = min(parallelism, completions), completions - succeeded
    return {"main": pods - left} if succeeded and 0 <= left < pods else {}


def _reclaimable_of_job_set(thing: Mapping[str, Any]) -> dict[str, int]:
    """Jobs of a JobSet that succeeded are not created again."""
    pods: dict[str, int] = {}
    for job in mappings(thing, ("spec", "replicatedJobs")):
        parallelism = _whole(job, ("template", "spec", "parallelism"), 1)
        pods[str(job.get("name"))] = min(parallelism, _whole(job, ("template", "spec", "completions"), parallelism))
    told = mappings(thing, ("status", "replicatedJobsStatus"))
    names = [(str(one.get("name")), _whole(one, ("succeeded",), 0)) for one in told]
    return {name.lower(): succeeded * pods.get(name, 0) for name, succeeded in names}


def _replicas(plural: str, kind: str, field: str, version: str = "v1") -> JobAdapter:
    """One of Kubeflow's kinds: a mapping from a role to its pods."""
    return JobAdapter(
        Resource("kubeflow.org", version, plural, kind),
        suspend=("spec", "runPolicy", "suspend"),
        over=("Succeeded", "Failed"),
        listed=(TemplateList(("spec", field), ("template",)),),
    )


def _ray(plural: str, kind: str, *cluster: str, **more: Any) -> JobAdapter:
    """One of Ray's kinds, with the path of its cluster spec."""
    return JobAdapter(
        Resource("ray.io", "v1", plural, kind),
        main={"head": ("spec", *cluster, "headGroupSpec", "template"), **more.pop("main", {})},
        listed=(TemplateList(("spec", *cluster, "workerGroupSpecs"), ("template",), "groupName"),),
        roles={"headgroup": "head"},
        recovery=Recovery.PODS,
        **more,
    )


_TEMPLATE = {"main": ("spec", "template")}
_RAY_OVER = {
    ("status", "jobStatus"): ("SUCCEEDED", "FAILED", "STOPPED"),
    ("status", "jobDeploymentStatus"): ("Complete", "Failed"),
}

JOB = JobAdapter(
    JOBS,
    over=("Complete", "Failed"),
    main=_TEMPLATE,
    size=("spec", "parallelism"),
    reclaimable=_reclaimable_of_job,
    recovery=Recovery.PODS,
)
STATEFUL_SET = JobAdapter(
    Resource("apps", "v1", "statefulsets", "StatefulSet"), suspend=(), main=_TEMPLATE, recovery=Recovery.PODS
)

#: Kinds whose pods inherit the queue label and queue as pods.
DEPLOYMENT = Resource("apps", "v1", "deployments", "Deployment")
LEADER_WORKER_SET = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")

KINDS: tuple[JobAdapter, ...] = (
    JOB,
    STATEFUL_SET,
    JobAdapter(
        Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
        over=("Completed", "Failed"),
        listed=(TemplateList(("spec", "replicatedJobs"), ("template", "spec", "template"), "name"),),
        reclaimable=_reclaimable_of_job_set,
    ),
    JobAdapter(
        Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"), over=("Complete", "Failed"), patches=True
    ),
    _replicas("pytorchjobs", "PyTorchJob", "pytorchReplicaSpecs"),
    _replicas("tfjobs", "TFJob", "tfReplicaSpecs"),
    _replicas("xgboostjobs", "XGBoostJob", "xgbReplicaSpecs"),
    _replicas("paddlejobs", "PaddleJob", "paddleReplicaSpecs"),
    _replicas("jaxjobs", "JAXJob", "jaxReplicaSpecs"),
    _replicas("mpijobs", "MPIJob", "mpiReplicaSpecs", "v2beta1"),
    _ray("rayclusters", "RayCluster"),
    _ray(
        "rayjobs",
        "RayJob",
        "rayClusterSpec",
        over_states=_RAY_OVER,
        unnamed="submitter",
        main={"submitter": ("spec", "submitterPodTemplate")},
    ),
)

#: Labels with the pod set of a pod.
ROLE_LABELS = (_JOB_SET_ROLE, _REPLICA_ROLE, _MPI_ROLE, _RAY_ROLE)

#: Groups and kinds of jobs.
OWNERS = frozenset(adapter.key for adapter in KINDS)
