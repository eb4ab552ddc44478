"""The door as it is shipped, on a real API server: who is held, who passes, and that nobody else notices."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from deploy_files import DEPLOY
from kubebench import ApiError, Options, Plane, pod
from kubedoor import install_door, submit
from kubejobs import PATHS, crd_files, install_runtimes, make, queued
from tidegate.deploy.install_objects import gate_objects
from tidegate.deploy.reserved_annotations import reservation
from tidegate.kube.mirror.job_adapters import KINDS, OWNERS

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
    assert {thing["apiVersion"] for thing in gate_objects()} == {"admissionregistration.k8s.io/v1"}
    names = {kind: set() for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")}
    for thing in gate_objects():
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


_APIS = {
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "PyTorchJob": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1alpha1",
    "RayJob": "ray.io/v1",
}


def own(made, kind, api=""):
    owner = {"apiVersion": api or _APIS[kind], "kind": kind, "name": "x", "uid": "u", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def owned(name, kind, **more):
    return own(queued(pod(name, **more)), kind)


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
        thing = own(queued(make("Job", f"of-{kind.lower()}")), kind)
        assert suspended(submit(plane, PATHS["Job"], thing)) is wanted


def test_an_owner_whose_kind_is_of_another_group_speaks_for_nothing(plane):
    volcano = "batch.volcano.sh/v1alpha1"
    assert gates(submit(plane, _PODS, own(queued(pod("of-volcano")), "Job", volcano))) == _GATE
    thing = own(queued(make("JobSet", "of-volcano")), "Job", volcano)
    assert suspended(submit(plane, PATHS["JobSet"], thing)) is True


# -- what it is made of ----------------------------------------------------------------------------------------


def shipped():
    """The policies as their files say them, by name."""
    texts = [
        path.read_text() for path in (DEPLOY / "admission-gate").glob("*.yaml") if path.name != "kustomization.yaml"
    ]
    things = [thing for text in texts for thing in yaml.safe_load_all(text)]
    return {one["metadata"]["name"]: one["spec"] for one in things if one["kind"] == "MutatingAdmissionPolicy"}


def matched(spec):
    """Groups and plurals that a policy is about."""
    rules = spec["matchConstraints"]["resourceRules"]
    return {(group, plural) for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}


def test_every_kind_that_is_followed_is_held_by_its_own_field_or_by_gates_on_its_pods():
    policies = shipped()
    mutations = {name: json.dumps(spec["mutations"]) for name, spec in policies.items()}
    for kind in KINDS:
        key, pointer = (kind.resource.group, kind.resource.plural), "/".join(("", *map(str, kind.suspend)))
        suspending = [
            name for name in policies if key in matched(policies[name]) and f'\\"{pointer}\\"' in mutations[name]
        ]
        labelling = [name for name in policies if key in matched(policies[name]) and "labels" in mutations[name]]
        assert (len(suspending), len(labelling)) == ((1, 0) if kind.suspend else (0, 1)), kind.key
    held = {key for name in policies if name.startswith("tidegate-suspend") for key in matched(policies[name])}
    assert held == {(kind.resource.group, kind.resource.plural) for kind in KINDS if kind.suspend}  # and no other


def test_the_policies_know_the_owners_that_the_mirror_knows():
    policies = shipped()

    def owners(name):
        (found,) = [
            one["expression"] for one in policies[name]["matchConditions"] if one["name"] == "nobody-speaks-for-it"
        ]
        return set(re.findall(r'"([a-z0-9.-]+/[A-Z][A-Za-z]+)"', found))

    followed = {f"{kind.resource.group}/{kind.resource.kind}" for kind in KINDS}
    suspended_ = {f"{kind.resource.group}/{kind.resource.kind}" for kind in KINDS if kind.suspend}
    assert owners("tidegate-suspend") == owners("tidegate-suspend-run-policy") == followed
    assert {tuple(one.split("/")) for one in followed} == OWNERS
    assert owners("tidegate-gate-pods") == suspended_ | {"apps/DaemonSet"}


def test_annotations_are_reserved_on_every_kind_that_is_followed():
    (policy, _) = reservation({})
    assert matched(policy["spec"]) == {
        *((kind.resource.group, kind.resource.plural) for kind in KINDS),
        *((kind.resource.group, f"{kind.resource.plural}/status") for kind in KINDS),
        *(("", part) for part in ("pods", "pods/status", "pods/binding", "bindings")),
    }


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
