"""Jobs of every kind as tests write them, each of two or three small pods; what is asked is a GPU for each worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubebench import Plane
from kubebench.objects import RUNTIME, job, pod, pod_spec
from shared import SHARED

Thing = dict[str, Any]

#: Files of the kinds that Kubernetes does not have of its own.
CRDS = {
    "JobSet": "jobset/jobset.x-k8s.io_jobsets.yaml",
    "PyTorchJob": "kubeflow-training-v1/kubeflow.org_pytorchjobs.yaml",
    "TFJob": "kubeflow-training-v1/kubeflow.org_tfjobs.yaml",
    "MPIJob": "kubeflow-mpi/kubeflow.org_mpijobs.yaml",
    "TrainJob": "kubeflow-trainer-v2/trainer.kubeflow.org_trainjobs.yaml",
    "ClusterTrainingRuntime": "kubeflow-trainer-v2/trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "RayJob": "kuberay/ray.io_rayjobs.yaml",
    "RayCluster": "kuberay/ray.io_rayclusters.yaml",
    "LeaderWorkerSet": "lws/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
}

#: Where objects of each kind are.
PATHS = {
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "Pod": "/api/v1/namespaces/default/pods",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/default/statefulsets",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
    "TFJob": "/apis/kubeflow.org/v1/namespaces/default/tfjobs",
    "MPIJob": "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs",
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
    "ClusterTrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
    "RayJob": "/apis/ray.io/v1/namespaces/default/rayjobs",
    "RayCluster": "/apis/ray.io/v1/namespaces/default/rayclusters",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets",
}


def crd_files(*kinds: str) -> list[Path]:
    """The definitions of kinds; tests skip where they are not on the machine."""
    files = [SHARED / "crds" / CRDS[kind] for kind in kinds or CRDS]
    missing = [str(file.relative_to(SHARED)) for file in files if not file.exists()]
    if missing:
        pytest.skip(f"needs ../shared/{missing[0]}, which is not on this machine")
    return files


def install_runtimes(plane: Plane) -> None:
    """Runtimes for TrainJobs, one for each scheduler: one job of nodes that train."""
    for name, scheduler in _RUNTIMES.items():
        plane.admin.post(PATHS["ClusterTrainingRuntime"], _runtime(name, scheduler))


#: Runtimes by name, with the scheduler of their pods.
_RUNTIMES = {"plain": "", "bound": "tidegate"}


def _runtime(name: str, scheduler: str) -> Thing:
    template = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}
    inner = {"template": {"metadata": _runs("1s"), "spec": _node_spec(scheduler)}}
    jobs = [{"name": "node", "replicas": 1, "template": {**template, "spec": inner}}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def _node_spec(scheduler: str) -> Thing:
    spec = pod_spec(1, scheduler=scheduler)
    spec["containers"][0]["name"] = "node"
    return spec


def _runs(runs: str) -> Thing:
    return {"annotations": {RUNTIME: runs}} if runs else {}


def _template(gpus: int, runs: str, spec: Thing) -> Thing:
    return {"metadata": _runs(runs), "spec": pod_spec(gpus, **spec)}


def _whole(api: str, kind: str, name: str, spec: Thing) -> Thing:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def make(kind: str, name: str, *, gpus: int = 1, runs: str = "1s", suspend: bool = False, **spec: Any) -> Thing:
    """A job of a kind, with two pods that work; `spec` is of its pods."""
    one = _template(gpus, runs, spec)
    if kind == "Job":
        return job(name, 2, gpus, runs=runs, suspend=suspend, **spec)
    if kind == "Pod":
        return pod(name, gpus, runs=runs, **spec)
    if kind in ("Deployment", "StatefulSet"):
        always = {"metadata": {"labels": {"app": name}}, "spec": {**one["spec"], "restartPolicy": "Always"}}
        more = {"serviceName": name} if kind == "StatefulSet" else {}
        inner = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": always, **more}
        return _whole("apps/v1", kind, name, inner)
    if kind == "LeaderWorkerSet":
        inner = {"size": 2, "workerTemplate": {"spec": {**one["spec"], "restartPolicy": "Always"}}}
        api = "leaderworkerset.x-k8s.io/v1"
        return _whole(api, kind, name, {"replicas": 1, "leaderWorkerTemplate": inner})
    made: Thing = _OF_OTHERS[kind](name, one, _template(0, runs, spec), suspend=suspend)
    return made


def _job_set(name: str, one: Thing, small: Thing, *, suspend: bool) -> Thing:
    jobs = [
        {"name": "driver", "replicas": 1, "template": {"spec": {"template": small}}},
        {"name": "workers", "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2, "template": one}}},
    ]
    return _whole("jobset.x-k8s.io/v1alpha2", "JobSet", name, {"suspend": suspend, "replicatedJobs": jobs})


def _kubeflow(kind: str, field: str, first: str, version: str = "v1") -> Any:
    def made(name: str, one: Thing, small: Thing, *, suspend: bool) -> Thing:
        roles = {first: {"replicas": 1, "template": small}, "Worker": {"replicas": 2, "template": one}}
        policy = {"runPolicy": {"suspend": suspend}} if suspend else {}
        return _whole(f"kubeflow.org/{version}", kind, name, {**policy, field: roles})

    return made


def _train_job(name: str, one: Thing, small: Thing, *, suspend: bool) -> Thing:
    del small
    trainer = {"numNodes": 2, "resourcesPerNode": one["spec"]["containers"][0]["resources"]}
    runtime = "bound" if one["spec"].get("schedulerName") else "plain"
    spec = {"suspend": suspend, "runtimeRef": {"name": runtime}, "trainer": trainer}
    return _whole("trainer.kubeflow.org/v1alpha1", "TrainJob", name, spec)


def _cluster_spec(one: Thing, small: Thing) -> Thing:
    forever = {"spec": one["spec"]}
    group = {"groupName": "gpu-workers", "replicas": 2, "minReplicas": 0, "maxReplicas": 4, "template": forever}
    head = {"rayStartParams": {}, "template": {"spec": small["spec"]}}
    return {"headGroupSpec": head, "workerGroupSpecs": [{**group, "rayStartParams": {}}]}


def _ray_job(name: str, one: Thing, small: Thing, *, suspend: bool) -> Thing:
    spec = {"suspend": suspend, "entrypoint": "python x.py", "submitterPodTemplate": small}
    return _whole("ray.io/v1", "RayJob", name, {**spec, "rayClusterSpec": _cluster_spec(one, small)})


def _ray_cluster(name: str, one: Thing, small: Thing, *, suspend: bool) -> Thing:
    return _whole("ray.io/v1", "RayCluster", name, {"suspend": suspend, **_cluster_spec(one, small)})


_OF_OTHERS = {
    "JobSet": _job_set,
    "PyTorchJob": _kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Master"),
    "TFJob": _kubeflow("TFJob", "tfReplicaSpecs", "Chief"),
    "MPIJob": _kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "v2beta1"),
    "TrainJob": _train_job,
    "RayJob": _ray_job,
    "RayCluster": _ray_cluster,
}


def queued(thing: Thing, queue: str = "team") -> Thing:
    """The object with the label of its queue."""
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = queue
    return thing
