"""Starts that the API server refuses for good, as a policy of the cluster may: others go on, and nothing spins."""

from __future__ import annotations

import time

import pytest

from kubebench import ApiError, Options, Plane, job, node, pod
from kubepaper import QUEUES, ours, paper
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.kube.mirror.job_patch import GATE
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.facts import FactKind, WriteOutcome

_JOBS, _PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
_POLICIES = "/apis/admissionregistration.k8s.io/v1"
_MOST_ANNOTATION_BYTES = 262_144


def test_a_write_that_fails_late_says_nothing_of_the_place_that_was_decided_since():
    """The gate of a pod cannot be lifted, so its binding fails, too: that is one failure, and not the loss of a pod."""
    cluster = paper(policy=QUEUES)
    cluster.put(queued(ours("a", 8, schedulingGates=[{"name": GATE}])))
    assert [kind for kind, _ in cluster.step()] == ["ungate", "bind"]
    lift, bind = cluster.orders
    WriteOutcomes(cluster.reconciler).settle(lift, WriteOutcome.FAILED)
    assert [kind for kind, _ in cluster.step()] == ["ungate", "bind"]
    again, _ = cluster.orders
    for late in (bind, again):
        WriteOutcomes(cluster.reconciler).settle(late, WriteOutcome.FAILED)
        assert cluster.step() == []
        assert cluster.events.kind.tolist() == [FactKind.OUTCOME]


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False)) as plane:
        for name, value in (("high", 1000), ("low", -10)):
            made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            plane.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**made, "value": value})
        plane.admin.post("/api/v1/nodes", node("n0"))
        yield plane


@pytest.fixture
def queues(plane, tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(one_queue(8, "preemption: {withinClusterQueue: LowerPriority}"))
    yield str(file)
    plane.clear(_JOBS, _PODS)


def queued(thing):
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return thing


def runs(plane, name):
    return not plane.admin.get(f"{_JOBS}/{name}")["spec"]["suspend"]


def refuse_starts_of(plane, name):
    """Have the server refuse to let a Job start, as Gatekeeper and the like do."""
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["UPDATE"]}]
    said = {"expression": f"object.spec.suspend || object.metadata.name != '{name}'", "message": "no cost center"}
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [said]}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    for kind, what in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound)):
        path = f"{_POLICIES}/{kind.lower().replace('policy', 'policies') if what is spec else kind.lower() + 's'}"
        made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        plane.admin.post(path, {**made, "spec": what})
    probe = job("probe", 1, suspend=True)
    probe["metadata"]["name"] = name
    plane.admin.post(_JOBS, probe)
    plane.wait_for(lambda: _is_refused(plane, name), what="a policy in force")
    plane.clear(_JOBS)


def _is_refused(plane, name):
    path = f"{_JOBS}/{name}?dryRun=All"
    try:
        plane.admin.patch(path, {"spec": {"suspend": False}})
    except ApiError as error:
        return "no cost center" in str(error)
    return False


def test_a_job_whose_start_is_refused_does_not_keep_the_quota_of_its_victims(plane, queues, tmp_path):
    refuse_starts_of(plane, "refused")
    with Replica(plane, tmp_path, "a", "--mode", "gate", "--policy", queues) as replica:
        plane.admin.post(_JOBS, queued(job("victim", 1, 8, runs="", suspend=True, priorityClassName="low")))
        replica.wait(lambda: runs(plane, "victim"), "the victim runs")
        plane.admin.post(_JOBS, queued(job("refused", 1, 8, runs="", suspend=True, priorityClassName="high")))
        replica.wait(lambda: not runs(plane, "victim"), "the victim is preempted")
        replica.wait(lambda: runs(plane, "victim"), "the victim runs again", 100)


def test_a_pod_whose_gate_cannot_be_lifted_does_not_spin(plane, queues, tmp_path):
    held = queued(pod("full", 8, scheduler="tidegate", schedulingGates=[{"name": GATE}]))
    held["metadata"]["annotations"]["note"] = "x" * (_MOST_ANNOTATION_BYTES - 50)  # no room for one of ours
    with Replica(plane, tmp_path, "a", "--mode", "bind", "--policy", queues) as replica:
        plane.admin.post(_PODS, held)
        replica.wait(lambda: replica.events("write failed"), "a refused write")
        time.sleep(4)
        tried = [line for line in replica.events("decision") if line["decision"] in ("place", "evict")]
        assert len(tried) <= 4, tried
