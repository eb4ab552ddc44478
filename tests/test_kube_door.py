"""The door as it is shipped, on a real API server: who is held, who passes, and that nobody else notices."""

from __future__ import annotations

import pytest

from kubebench import ApiError, Options, Plane, pod
from kubedoor import install_door, submit
from kubejobs import PATHS, crd_files, install_runtimes, make, queued
from tidegate.deploy.objects import door

_GATE = [{"name": "tidegate.io/admission"}]
_QUEUE = "kueue.x-k8s.io/queue-name"
_PODS = PATHS["Pod"]
_SUSPENDED = ("Job", "JobSet", "TrainJob", "RayJob", "RayCluster")
_BY_RUN_POLICY = ("PyTorchJob", "TFJob", "MPIJob")


@pytest.fixture(scope="module")
def plane(kube_programs):
    files = crd_files()
    with Plane(Options(build=False, scheduler=False, kwok=False, controllers="")) as plane:
        plane.install(*files)
        install_runtimes(plane)
        install_door(plane)
        yield plane


def test_the_server_has_what_the_door_is_made_of(plane):
    group = plane.admin.get("/apis/admissionregistration.k8s.io/v1")["resources"]
    assert {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} <= {one["name"] for one in group}
    assert {thing["apiVersion"] for thing in door()} == {"admissionregistration.k8s.io/v1"}
    names = {kind: set() for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")}
    for thing in door():
        names[thing["kind"]].add(thing["spec"].get("policyName", thing["metadata"]["name"]))
    assert names["MutatingAdmissionPolicy"] == names["MutatingAdmissionPolicyBinding"]  # none without effect


def suspended(made):
    return made["spec"].get("suspend", made["spec"].get("runPolicy", {}).get("suspend"))


@pytest.mark.parametrize("kind", [*_SUSPENDED, *_BY_RUN_POLICY])
def test_jobs_of_a_queue_arrive_suspended_and_others_do_not(plane, kind):
    held = submit(plane, PATHS[kind], queued(make(kind, f"{kind.lower()}-held")))
    free = submit(plane, PATHS[kind], make(kind, f"{kind.lower()}-free"))
    assert suspended(held) is True
    assert not suspended(free)


@pytest.mark.parametrize("kind", _BY_RUN_POLICY)
def test_a_run_policy_that_is_there_keeps_what_it_says(plane, kind):
    thing = queued(make(kind, f"{kind.lower()}-policy"))
    thing["spec"]["runPolicy"] = {"backoffLimit": 3}
    assert submit(plane, PATHS[kind], thing)["spec"]["runPolicy"] == {"backoffLimit": 3, "suspend": True}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "LeaderWorkerSet"])
def test_what_cannot_be_suspended_hands_its_queue_on(plane, kind):
    thing = queued(make(kind, f"{kind.lower()}-held"))
    if kind == "LeaderWorkerSet":
        inner = thing["spec"]["leaderWorkerTemplate"]
        inner["leaderTemplate"] = {"metadata": {"labels": {"own": "label"}}, "spec": inner["workerTemplate"]["spec"]}
    spec = submit(plane, PATHS[kind], thing)["spec"]
    templates = spec["leaderWorkerTemplate"].values() if kind == "LeaderWorkerSet" else [spec["template"]]
    labels = [one["metadata"]["labels"] for one in templates if isinstance(one, dict)]
    assert [one[_QUEUE] for one in labels] == ["team"] * len(labels)
    assert kind != "LeaderWorkerSet" or {"own": "label"}.items() <= labels[0].items() | labels[1].items()


def gates(made):
    return made["spec"].get("schedulingGates")


def owned(name, kind, **more):
    made = queued(pod(name, **more))
    owner = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def test_pods_of_a_queue_arrive_behind_a_gate(plane):
    assert gates(submit(plane, _PODS, queued(pod("held")))) == _GATE
    assert gates(submit(plane, _PODS, pod("free"))) is None
    other = [{"name": "example.com/other"}]
    assert gates(submit(plane, _PODS, queued(pod("both", schedulingGates=other)))) == [*other, *_GATE]
    assert gates(submit(plane, _PODS, owned("replica", "ReplicaSet"))) == _GATE


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob", "RayCluster", "DaemonSet"])
def test_pods_that_somebody_speaks_for_pass(plane, kind):
    assert gates(submit(plane, _PODS, owned(f"of-{kind.lower()}", kind))) is None


def test_a_pod_that_has_its_node_passes(plane):
    assert gates(submit(plane, _PODS, queued(pod("static", nodeName="n0")))) is None


def test_a_job_that_another_made_passes_and_one_of_a_cron_job_does_not(plane):
    for kind, wanted in (("JobSet", False), ("RayJob", False), ("CronJob", True)):
        thing = queued(make("Job", f"of-{kind.lower()}"))
        thing["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
        ]
        assert suspended(submit(plane, PATHS["Job"], thing)) is wanted


def test_what_was_let_go_is_not_held_again(plane):
    submit(plane, PATHS["Job"], queued(make("Job", "let-go")))
    plane.admin.patch(f"{PATHS['Job']}/let-go", {"spec": {"suspend": False}})
    plane.admin.patch(f"{PATHS['Job']}/let-go", {"metadata": {"labels": {"more": "labels"}}})
    assert plane.admin.get(f"{PATHS['Job']}/let-go")["spec"]["suspend"] is False


def test_an_object_that_is_wrong_is_refused_for_what_is_wrong(plane):
    thing = queued(pod("wrong"))
    thing["spec"]["containers"] = []
    with pytest.raises(ApiError, match="containers"):
        plane.admin.post(_PODS, thing)
