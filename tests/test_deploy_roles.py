"""The roles that are shipped, on a real API server: each mode does its work with exactly its own, and no more."""

from __future__ import annotations

import json

import pytest

from commands import ran
from kubeaccount import account, become
from kubebench import ApiError, Options, Plane, job, node, pod
from kubequeues import one_queue
from kubereplica import Replica

_JOBS, _PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
_HERE = "/api/v1/namespaces/tidegate"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_NOW = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False, audit=True)) as plane:
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        plane.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**high, "value": 1000})
        plane.admin.post("/api/v1/nodes", node("n0"))
        yield plane


@pytest.fixture
def installed(plane, tmp_path):
    """Installs a mode, and gives the server as its account sees it."""
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(8, "preemption: {withinClusterQueue: LowerPriority}"))

    def install(mode):
        config = str(plane.kubeconfig("admin"))
        told = json.loads(
            ran("install", "--mode", mode, "--policy", str(policy), "--kubeconfig", config, "--yes", "--json")
        )
        assert {one["outcome"] for one in told} <= {"created", "changed", "unchanged"}
        plane.admin.delete(_JOBS, _NOW)
        plane.admin.delete(_PODS, _NOW)
        plane.wait_for(lambda: not plane.admin.get(_PODS)["items"])
        plane.admin.post(_PODS, pod("of-others", scheduler="nobody"))  # what pods ask for is read from one of them
        return become(plane, "tidegate")

    return install


def replica(plane, tmp_path, mode):
    """The program as the account; arguments are those of the Deployment, as far as tests can have them."""
    policy = "configmap:tidegate-policy"
    return Replica(plane, tmp_path, mode, "--mode", mode, "--policy", policy, user=account("tidegate"))


def queued(thing):
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return thing


def conditions(plane, name):
    told = plane.admin.get(f"{_JOBS}/{name}").get("status", {}).get("conditions") or ()
    return {one["type"] for one in told if one["status"] == "True"}


def spoken(plane, since):
    """What the account asked of the server since then: verb, kind with its part, and the answer."""
    said = set()
    for line in plane.audited()[since:]:
        asked = line.get("objectRef")
        if line["user"]["username"] == account("tidegate") and asked and line["stage"] == "ResponseComplete":
            thing = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            said.add((line["verb"], thing, line["responseStatus"]["code"]))
    return said


def written(said):
    return {(verb, thing) for verb, thing, code in said if verb not in ("get", "list", "watch") and code < 400}


def refused(said):
    return {(verb, thing) for verb, thing, code in said if code in (401, 403)}


def forbids(ask, *arguments):
    with pytest.raises(ApiError) as refusal:
        ask(*arguments)
    assert refusal.value.status == 403, refusal.value
    return True


def test_shadow_writes_its_lease_and_may_write_nothing_else(plane, tmp_path, installed):
    api = installed("shadow")
    plane.admin.post(_JOBS, queued(job("waits", 1, 8, suspend=True)))
    since = len(plane.audited())
    with replica(plane, tmp_path, "shadow") as running:
        running.wait(lambda: running.events("proposal"), "a proposal")
        assert running.metric('kueue_admitted_workloads_total{cluster_queue="q"}') == 0  # nothing was done
        assert running.get("/readyz") == (200, "ok\n")
        assert running.stop() == 0
    said = spoken(plane, since)
    assert written(said) == {("update", "leases")}
    assert not refused(said)
    assert forbids(api.patch, f"{_JOBS}/waits", {"spec": {"suspend": False}})
    assert forbids(api.post, _PODS, pod("mine"))
    assert forbids(api.get, f"{_HERE}/secrets")
    assert forbids(api.get, f"{_HERE}/configmaps/another")
    assert forbids(api.patch, f"{_HERE}/configmaps/tidegate-policy", {"data": {"a": "b"}})
    assert forbids(api.get, _LEASES.format("tidegate") + "/another")
    assert forbids(api.post, _LEASES.format("default"), {"metadata": {"name": "tidegate"}})
    assert forbids(api.get, "/apis/apps/v1/deployments")


def test_gate_lets_jobs_and_pods_go_and_takes_them_back_but_may_not_bind(plane, tmp_path, installed):
    api = installed("gate")
    since = len(plane.audited())
    plane.admin.post(_JOBS, queued(job("low", 1, 8, runs="4s", suspend=True)))
    with replica(plane, tmp_path, "gate") as running:
        plane.wait_for(lambda: plane.admin.get(f"{_JOBS}/low")["status"].get("active"), what="a job that runs")
        plane.admin.post(_JOBS, queued(job("high", 1, 8, runs="1s", suspend=True, priorityClassName="high")))
        running.wait(lambda: "Complete" in conditions(plane, "high"), "the job that was more urgent", 40)
        running.wait(lambda: "Complete" in conditions(plane, "low"), "the job that was sent away", 40)
        gated = queued(pod("gated", 8, schedulingGates=[{"name": "tidegate.io/admission"}]))
        plane.admin.post(_PODS, gated)
        running.wait(lambda: plane.admin.get(f"{_PODS}/gated")["spec"].get("nodeName"), "a pod that runs")
        plane.admin.post(_JOBS, queued(job("again", 1, 8, runs="1s", suspend=True, priorityClassName="high")))
        running.wait(lambda: "Complete" in conditions(plane, "again"), "a job for which a pod went", 40)
        assert running.stop() == 0
    said = spoken(plane, since)
    assert not refused(said)
    assert written(said) >= {
        ("patch", "jobs"), ("patch", "pods"), ("create", "pods/eviction"),
        ("create", "events"), ("patch", "configmaps"), ("update", "leases"),
    }  # fmt: skip
    plane.admin.post(_PODS, pod("other", scheduler="nobody"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    assert forbids(api.post, f"{_PODS}/other/binding", {"metadata": {"name": "other"}, "target": target})
    assert forbids(api.patch, "/api/v1/nodes/n0", {"metadata": {"labels": {"a": "b"}}})
    assert forbids(api.delete, f"{_JOBS}/low")
    assert forbids(api.post, _JOBS, job("mine", 1))
    assert forbids(api.apply, f"{_HERE}/configmaps", {"metadata": {"name": "another"}})
    assert forbids(api.post, f"{_HERE}/configmaps", {"metadata": {"name": "another"}})


def test_bind_binds_and_may_not_do_what_only_controllers_do(plane, tmp_path, installed):
    api = installed("bind")
    since = len(plane.audited())
    for number in range(2):
        plane.admin.post(_PODS, queued(pod(f"g-{number}", 4, scheduler="tidegate", group=("g", 2))))
    with replica(plane, tmp_path, "bind") as running:
        running.wait(lambda: bound(plane) == {"g-0", "g-1"}, "a gang that runs")
        plane.admin.post(_PODS, queued(pod("waits", 8, scheduler="tidegate", runs="1s")))
        running.wait(lambda: any(one.get("reason") for one in told(plane, "waits")), "a reason in its condition")
        plane.admin.post(
            _JOBS, queued(job("j", 1, 8, runs="1s", suspend=True, scheduler="tidegate", priorityClassName="high"))
        )
        running.wait(lambda: "Complete" in conditions(plane, "j"), "a job for which the gang went", 40)
        assert running.stop() == 0
    said = spoken(plane, since)
    assert not refused(said)
    assert written(said) >= {("create", "pods/binding"), ("patch", "pods/status"), ("create", "pods/eviction")}
    assert forbids(api.post, _PODS, pod("mine"))
    assert forbids(api.patch, "/api/v1/nodes/n0", {"metadata": {"labels": {"a": "b"}}})
    assert forbids(api.get, f"{_HERE}/secrets")
    assert forbids(api.delete, "/api/v1/nodes/n0")


def bound(plane):
    return {one["metadata"]["name"] for one in plane.admin.get(_PODS)["items"] if one["spec"].get("nodeName")}


def told(plane, name):
    return plane.admin.get(f"{_PODS}/{name}").get("status", {}).get("conditions") or ()
