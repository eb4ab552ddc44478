"""Controllers for kinds of jobs whose own controllers the test bench does not run: parts of the tests, nothing more.

They do what matters to who admits work: make pods (or Jobs, or clusters) from the templates when a job is let go, take
them away when it is suspended, make those again that are lost, and say when the job is over. Labels, owners and status
fields are those of the real controllers; nothing else of them is here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from http.client import HTTPException
from typing import Any, NamedTuple, Self

from kubebench import Api, ApiError, Plane
from kubebench.objects import RUNTIME, pod_spec

Thing = dict[str, Any]

_CORE, _BATCH = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
_RAYS = "/apis/ray.io/v1/namespaces/default/rayclusters"
_OVER = ("Succeeded", "Failed")
_NOW = "2026-11-16T08:00:00Z"


class Child(NamedTuple):
    """Something that a job makes."""

    path: str
    thing: Thing


def _path(group: str, version: str, plural: str) -> str:
    return f"/apis/{group}/{version}/namespaces/default/{plural}"


class Owners:
    """Runs the controllers in a thread; use it in a with statement."""

    def __init__(self, plane: Plane, *kinds: str) -> None:
        self._api, self._kinds = plane.api("admin"), kinds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for kind in self._kinds:
                try:
                    self._look_after(kind)
                except (ApiError, OSError, HTTPException) as error:  # no server, or a child that changed meanwhile
                    self.errors.append(f"{kind}: {error}")

    def _look_after(self, kind: str) -> None:
        path, recipe = RECIPES[kind]
        listing = self._api.get(path)
        for thing in listing["items"]:
            recipe(self._api, path, {"apiVersion": listing["apiVersion"], "kind": kind, **thing})


def _bring_about(api: Api, owner: Thing, children: Iterator[Child]) -> list[Thing]:
    """Make the children that are missing; all of them, as they are."""
    found = []
    for path, thing in children:
        thing["metadata"]["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
        try:
            found.append(api.get(f"{path}/{thing['metadata']['name']}"))
        except ApiError:
            found.append(api.post(path, thing))
    return found


def _take_away(api: Api, children: Iterator[Child]) -> None:
    gone = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "gracePeriodSeconds": 0}
    for path, thing in children:
        with suppress(ApiError):
            api.delete(f"{path}/{thing['metadata']['name']}", gone)


def _say(api: Api, path: str, thing: Thing, status: Thing) -> None:
    api.patch(f"{path}/{thing['metadata']['name']}/status", {"status": status})


def _conditions(word: str) -> Thing:
    now = {"lastTransitionTime": _NOW, "lastUpdateTime": _NOW}
    return {"conditions": [{"type": word, "status": "True", "reason": word, "message": word, **now}]}


def _has(thing: Thing, *words: str) -> bool:
    found = thing.get("status", {}).get("conditions") or ()
    return any(one["type"] in words and one["status"] == "True" for one in found)


def _pod(name: str, template: Thing, labels: dict[str, str], **annotations: str) -> Child:
    made = deepcopy(template)
    meta = made.setdefault("metadata", {})
    meta["name"] = name
    meta["labels"] = {**meta.get("labels", {}), **labels}
    meta["annotations"] = {**meta.get("annotations", {}), **annotations}
    return Child(_CORE, {"apiVersion": "v1", "kind": "Pod", **made})


def _job(name: str, spec: Thing, labels: dict[str, str]) -> Child:
    made = deepcopy(spec)
    template = made["template"].setdefault("metadata", {})
    template["labels"] = {**template.get("labels", {}), **labels}
    made.setdefault("backoffLimit", 0)
    return Child(
        _BATCH, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": made}
    )


# -- one for each kind ---------------------------------------------------------------------------------------------


def _job_set_children(thing: Thing) -> Iterator[Child]:
    name = thing["metadata"]["name"]
    for replicated in thing["spec"]["replicatedJobs"]:
        for number in range(replicated.get("replicas", 1)):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
                "jobset.sigs.k8s.io/job-index": str(number),
            }
            yield _job(f"{name}-{replicated['name']}-{number}", replicated["template"]["spec"], labels)


def _job_set(api: Api, path: str, thing: Thing) -> None:
    if thing["spec"].get("suspend"):
        _take_away(api, _job_set_children(thing))
    elif not _has(thing, "Completed", "Failed"):
        jobs = _bring_about(api, thing, _job_set_children(thing))
        if all(_has(job, "Complete") for job in jobs):
            _say(api, path, thing, _conditions("Completed"))


def _train_job_children(api: Api, thing: Thing) -> Iterator[Child]:
    runtimes, name = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes", thing["metadata"]["name"]
    runtime = api.get(f"{runtimes}/{thing['spec']['runtimeRef']['name']}")
    spec = deepcopy(runtime["spec"]["template"]["spec"])
    for job in spec["replicatedJobs"]:
        inner = job["template"]["spec"]
        inner["parallelism"] = inner["completions"] = thing["spec"]["trainer"].get("numNodes", 1)
        for patch in thing["spec"].get("runtimePatches", ()):
            for change in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
                if change["name"] == job["name"]:
                    inner["template"]["spec"] |= change["template"]["spec"]["template"]["spec"]
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
    yield Child(_SETS, {**made, "spec": spec})


def _train_job(api: Api, path: str, thing: Thing) -> None:
    if thing["spec"].get("suspend"):
        _take_away(api, _train_job_children(api, thing))
    elif not _has(thing, "Complete", "Failed"):
        (inner,) = _bring_about(api, thing, _train_job_children(api, thing))
        if _has(inner, "Completed"):
            _say(api, path, thing, _conditions("Complete"))


def _replicas(thing: Thing) -> Thing:
    return next(value for key, value in thing["spec"].items() if key.endswith("ReplicaSpecs"))


def _replica_children(thing: Thing) -> Iterator[Child]:
    name, is_mpi = thing["metadata"]["name"], thing["kind"] == "MPIJob"
    for role, spec in _replicas(thing).items():
        word = "training.kubeflow.org/job-role" if is_mpi else "training.kubeflow.org/replica-type"
        labels = {"training.kubeflow.org/job-name": name, word: role.lower()}
        if role == "Launcher":
            yield _job(f"{name}-launcher", {"template": spec["template"]}, labels)
            continue
        for number in range(spec.get("replicas", 1)):
            yield _pod(f"{name}-{role.lower()}-{number}", spec["template"], labels)


def _kubeflow(api: Api, path: str, thing: Thing) -> None:
    if thing["spec"].get("runPolicy", {}).get("suspend"):
        _take_away(api, _replica_children(thing))
    elif not _has(thing, *_OVER):
        made = _bring_about(api, thing, _replica_children(thing))
        launchers = [one for one in made if one["kind"] == "Job"]
        over = all(_has(one, "Complete") for one in launchers) if launchers else _are_done(made)
        if over:
            _say(api, path, thing, _conditions("Succeeded"))
            _take_away(api, (child for child in _replica_children(thing) if launchers and child.path == _CORE))


def _are_done(pods: list[Thing]) -> bool:
    return all(one.get("status", {}).get("phase") == "Succeeded" for one in pods)


def _ray_children(thing: Thing) -> Iterator[Child]:
    name, spec = thing["metadata"]["name"], thing["spec"]
    labels = {"ray.io/cluster": name}
    yield _pod(f"{name}-head", spec["headGroupSpec"]["template"], {**labels, "ray.io/group": "headgroup"})
    for group in spec.get("workerGroupSpecs", ()):
        for number in range(group.get("replicas", 1) * group.get("numOfHosts", 1)):
            own = {**labels, "ray.io/group": group["groupName"]}
            yield _pod(f"{name}-{group['groupName']}-{number}", group["template"], own)


def _ray_cluster(api: Api, path: str, thing: Thing) -> None:
    del path
    if thing["spec"].get("suspend"):
        _take_away(api, _ray_children(thing))
    else:
        _bring_about(api, thing, _ray_children(thing))


def _ray_job_children(thing: Thing) -> Iterator[Child]:
    name, spec = thing["metadata"]["name"], thing["spec"]
    made = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": f"{name}-x7f2k"}}
    yield Child(_RAYS, {**made, "spec": deepcopy(spec["rayClusterSpec"])})
    bare = {"metadata": {"annotations": {RUNTIME: "1s"}}, "spec": pod_spec(0, cpu="500m")}
    yield _job(name, {"template": spec.get("submitterPodTemplate", bare)}, {})


def _ray_job(api: Api, path: str, thing: Thing) -> None:
    if thing["spec"].get("suspend"):
        _take_away(api, _ray_job_children(thing))
    elif thing.get("status", {}).get("jobDeploymentStatus") not in ("Complete", "Failed"):
        _, submitter = _bring_about(api, thing, _ray_job_children(thing))
        if _has(submitter, "Complete"):
            _say(api, path, thing, {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"})
            _take_away(api, (child for child in _ray_job_children(thing) if child.path == _RAYS))


def _leader_worker_children(thing: Thing) -> Iterator[Child]:
    name, inner = thing["metadata"]["name"], thing["spec"]["leaderWorkerTemplate"]
    size = inner.get("size", 1)
    for group in range(thing["spec"].get("replicas", 1)):
        for number in range(size):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(number),
            }
            template = inner["workerTemplate"] if number else inner.get("leaderTemplate", inner["workerTemplate"])
            own = f"{name}-{group}" if number == 0 else f"{name}-{group}-{number}"
            yield _pod(own, template, labels, **{"leaderworkerset.sigs.k8s.io/size": str(size)})


def _leader_workers(api: Api, path: str, thing: Thing) -> None:
    del path
    _bring_about(api, thing, _leader_worker_children(thing))


RECIPES = {
    "JobSet": (_SETS, _job_set),
    "TrainJob": (_path("trainer.kubeflow.org", "v1alpha1", "trainjobs"), _train_job),
    "PyTorchJob": (_path("kubeflow.org", "v1", "pytorchjobs"), _kubeflow),
    "TFJob": (_path("kubeflow.org", "v1", "tfjobs"), _kubeflow),
    "MPIJob": (_path("kubeflow.org", "v2beta1", "mpijobs"), _kubeflow),
    "RayCluster": (_RAYS, _ray_cluster),
    "RayJob": (_path("ray.io", "v1", "rayjobs"), _ray_job),
    "LeaderWorkerSet": (_path("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"), _leader_workers),
}
