"""The kinds of jobs that are followed, a row each: how one is suspended, where its pods' templates are, how it ends.

What a kind asks for is `manifests`' matter. Kinds without a field to suspend them are held by gates on their pods.
Pods of a Deployment and groups of a LeaderWorkerSet queue for themselves: they are pods and groups here, not jobs.
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
    """Templates in the items of a list, or under the keys of a mapping; the name or key is that of the pod set."""

    at: Path
    inner: Path
    name: str = ""  # field with the name; empty: it is a mapping


#: Pods of an object that are done and will not be made again, by pod set.
ReclaimablePods = Callable[[Mapping[str, Any]], dict[str, int]]


class JobAdapter(NamedTuple):
    """How a kind of job is handled."""

    resource: Resource
    suspend: Path = ("spec", "suspend")  # empty: there is no such field, and its pods are gated
    over: tuple[str, ...] = ()  # conditions that say that it is over
    over_states: Mapping[Path, tuple[str, ...]] = {}  # words in other fields of its status that say so
    main: Mapping[str, Path] = {}  # pod sets with a template at a place of its own
    listed: tuple[TemplateList, ...] = ()
    roles: Mapping[str, str] = {}  # pod sets that its pods' label calls by another name
    unnamed: str = ""  # pod set of pods without such a label; empty: by what they ask for
    size: Path = ()  # the number of pods, where it may start with fewer
    reclaimable: ReclaimablePods | None = None  # how it shows that pods are done and will not be made again
    recovery: Recovery = Recovery.GANG  # what happens when it loses a pod or a node, unless its label says otherwise
    patches: bool = False  # its templates are elsewhere, and it has a list of patches to them

    @property
    def key(self) -> tuple[str, str]:
        """Its group and kind."""
        return self.resource.group, self.resource.kind

    def templates(self, thing: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
        """The pod sets of an object whose templates it has, and where they are."""
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
        """The pod set of a pod whose label says this."""
        return self.roles.get(role, role) or self.unnamed


def find(thing: Any, path: Path) -> Any:
    """What stands at a place of an object; None if nothing does."""
    for key in path:
        if isinstance(thing, dict):
            thing = thing.get(key)
        elif isinstance(thing, list) and isinstance(key, int) and key < len(thing):
            thing = thing[key]
        else:
            return None
    return thing


def mappings(thing: Any, path: Path) -> list[dict[str, Any]]:
    """The mappings of a list at a place of an object."""
    found = find(thing, path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _whole(thing: Any, path: Path, default: int) -> int:
    """A count at a place of an object; the default if it is none."""
    found = find(thing, path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default


def _reclaimable_of_job(thing: Mapping[str, Any]) -> dict[str, int]:
    """A Job with fewer completions to go than it has pods at a time has pods to spare."""
    parallelism, succeeded = _whole(thing, ("spec", "parallelism"), 1), _whole(thing, ("status", "succeeded"), 0)
    completions = _whole(thing, ("spec", "completions"), parallelism)
    pods, left = min(parallelism, completions), completions - succeeded
    return {"main": pods - left} if succeeded and 0 <= left < pods else {}


def _reclaimable_of_job_set(thing: Mapping[str, Any]) -> dict[str, int]:
    """Jobs of a JobSet that have succeeded are not made again."""
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
    """One of Ray's kinds, with the spec of its cluster at a place of its own."""
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

#: Kinds that hand their queue on to their pods, which queue for themselves.
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

#: Labels of a pod that say which pod set of its job it belongs to.
ROLE_LABELS = (_JOB_SET_ROLE, _REPLICA_ROLE, _MPI_ROLE, _RAY_ROLE)

#: Groups and kinds of owners that speak for what they own.
OWNERS = frozenset(adapter.key for adapter in KINDS)
