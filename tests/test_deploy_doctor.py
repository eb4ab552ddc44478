"""`tidegate doctor` on a real API server: what is well, what is not, and what to do; as the account that runs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from kubeaccount import account, become
from kubebench import Options, Plane, User, node, pod
from kubelive import wall_ms
from kubequeues import one_queue
from test_deploy_server import claim
from tidegate.cli.main import app
from tidegate.kube.transport.writes import micro_time
from tidegate.live.election import SCOPE_CLAIMS

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/tidegate/leases"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CHECKS = [
    "server",
    "clock",
    "kinds",
    "permissions",
    "kueue",
    "lease",
    "policy",
    "quota",
    "admission-gate",
    "annotations",
    "instances",
    "managers",
    "leftovers",
]


@pytest.fixture(scope="module")
def plane(kube_programs, tmp_path_factory):
    policy = tmp_path_factory.mktemp("policy") / "queues.yaml"
    policy.write_text(one_queue(8))
    nobody = User("nobody", ())
    with Plane(Options(build=False, controllers="", scheduler=False, kwok=False, users=(nobody,))) as plane:
        plane.admin.post("/api/v1/nodes", node("n0"))
        install(plane, "--mode", "gate", "--admission-gate", "--policy", str(policy))
        become(plane, "tidegate")
        yield plane


def install(plane, *arguments):
    done = CliRunner().invoke(app, ["install", "--kubeconfig", str(plane.kubeconfig("admin")), "--yes", *arguments])
    assert done.exit_code == 0, done.output


def look(plane, *arguments, user="admin"):
    """The exit code, and findings by check."""
    done = CliRunner().invoke(app, ["doctor", "--kubeconfig", str(plane.kubeconfig(user)), "--json", *arguments])
    findings = json.loads(done.stdout)
    assert [one["check"] for one in findings] == _CHECKS
    assert all(bool(one["remedy"]) == bool(one["expected"]) == (one["level"] != "ok") for one in findings)
    return done.exit_code, {one["check"]: one for one in findings}


def levels(found):
    return {check: one["level"] for check, one in found.items() if one["level"] != "ok"}


def lead(plane, renewed_ms):
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": micro_time(renewed_ms)}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "tidegate"}, "spec": spec}
    plane.admin.apply(_LEASES, body)


def test_what_is_installed_is_well_but_for_nobody_leading(plane):
    code, found = look(plane, "--mode", "gate", user=account("tidegate"))
    assert code == 0
    # The account may not look at the door, at other namespaces, nor at what is installed.
    assert levels(found) == dict.fromkeys(("lease", "admission-gate", "annotations", "instances", "managers"), "warn")
    assert found["server"]["found"].startswith("v1.36")
    code, found = look(plane, "--mode", "gate", "--account", "tidegate")
    assert (code, levels(found)) == (0, {"lease": "warn"})
    assert found["permissions"]["found"].startswith("tidegate/tidegate may do all")
    assert found["admission-gate"]["found"] == "installed: work that names a queue is held"
    lead(plane, wall_ms())
    code, found = look(plane)
    assert (code, levels(found)) == (0, {})
    assert found["lease"]["found"].startswith("pod-1 leads, renewed ")
    lead(plane, wall_ms() - 7_200_000)
    assert levels(look(plane)[1]) == {"lease": "warn"}


def test_what_may_not_be_done_is_named(plane):
    code, found = look(plane, "--mode", "bind", "--account", "tidegate")
    assert code == 1
    assert levels(found)["permissions"] == "fail"
    assert "create pods/binding" in found["permissions"]["found"]
    assert found["permissions"]["remedy"].startswith("tidegate install --mode bind")
    code, found = look(plane, "--mode", "shadow", "--account", "tidegate")  # which was installed for gate
    assert (code, found["permissions"]["level"]) == (0, "warn")
    assert "may also get jobs.batch" in found["permissions"]["found"]
    code, found = look(plane, user="nobody")
    assert code == 1
    assert "we may not: list nodes, watch nodes" in found["permissions"]["found"]
    assert levels(found)["kueue"] == "warn"
    assert levels(found)["policy"] == "fail"


def test_a_policy_that_is_missing_or_broken_is_told(plane, tmp_path):
    code, found = look(plane, "--policy", "configmap:missing")
    assert (code, levels(found)["policy"]) == (1, "fail")
    assert "there is no such ConfigMap" in found["policy"]["found"]
    broken = tmp_path / "tidegate.yaml"
    broken.write_text("version: 1\npolicy: {placement: nowhere}\n")
    code, found = look(plane, "--policy", str(broken))
    assert (code, levels(found)["policy"]) == (1, "fail")
    assert "nowhere" in found["policy"]["found"]
    assert look(plane, "--policy", "kueue")[1]["policy"]["level"] == "fail"  # the server has no such kinds


def test_quotas_are_compared_with_what_pods_ask_for_and_nodes_have(plane, tmp_path):
    plane.admin.delete("/api/v1/nodes/n0")
    policy = tmp_path / "tidegate.yaml"
    policy.write_text("version: 1\npolicy: {queues: [{name: research, gpus: 8}]}\n")
    _, found = look(plane, "--policy", str(policy))
    assert found["quota"]["found"] == "queue research counts nvidia.com/gpu, which no node has"
    plane.admin.post("/api/v1/nodes", node("n0", 8))
    assert look(plane, "--policy", str(policy))[1]["quota"]["level"] == "ok"
    odd = pod("odd", 0)
    odd["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "research"
    odd["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fpga": "1"}}
    lost = pod("lost", 1)
    lost["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "reserch"
    for made in (odd, lost):
        plane.admin.post("/api/v1/namespaces/default/pods", made)
    _, found = look(plane, "--policy", str(policy))
    assert found["quota"]["level"] == "warn"
    assert "pods of queue research ask for example.com/fpga, which is not counted" in found["quota"]["found"]
    assert "pods name the queue default/reserch, which is no LocalQueue" in found["quota"]["found"]
    plane.clear("/api/v1/namespaces/default/pods")
    plane.admin.delete("/api/v1/nodes/n0")


def test_before_it_is_installed_nothing_fails(plane):
    code, found = look(plane, "--namespace", "later")
    assert (code, levels(found)) == (0, {"lease": "warn", "policy": "warn", "instances": "warn"})  # of the other tests
    assert found["policy"]["remedy"] == "tidegate install, which brings one"


def test_a_door_that_is_half_there_is_told(plane):
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/tidegate-suspend"
    plane.admin.delete(path)
    code, found = look(plane, "--mode", "gate")
    assert (code, levels(found)["admission-gate"]) == (1, "fail")
    assert "tidegate-suspend" in found["admission-gate"]["found"]
    install(plane, "--mode", "gate", "--admission-gate")
    assert look(plane, "--mode", "gate")[1]["admission-gate"]["level"] == "ok"


def test_annotations_that_anybody_may_write_are_told(plane):
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/tidegate-reserved-annotations"
    plane.admin.delete(path)
    code, found = look(plane, "--mode", "gate")
    assert (code, levels(found)["annotations"]) == (0, "warn")
    install(plane, "--mode", "gate", "--admission-gate")
    assert look(plane, "--mode", "gate")[1]["annotations"]["level"] == "ok"


def test_a_running_kueue_is_an_owner_for_who_writes(plane):
    where = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    spec = {"holderIdentity": "kueue-1", "renewTime": micro_time(wall_ms())}
    name = "c1f6bfd2.kueue.x-k8s.io"
    plane.admin.post(where, {"metadata": {"name": name}, "spec": spec})
    code, found = look(plane, "--mode", "gate")
    assert (code, levels(found)["kueue"]) == (1, "fail")
    assert f"Lease default/{name}" in found["kueue"]["found"]
    code, found = look(plane)
    assert (code, found["kueue"]["level"]) == (0, "ok")
    plane.admin.delete(f"{where}/{name}")


def test_another_instance_that_manages_the_same_work_is_a_fault_for_who_writes(plane):
    claim(plane, "default/tidegate", "bind", "tidegate")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SCOPE_CLAIMS.namespace}/leases/{SCOPE_CLAIMS.name}"
    code, found = look(plane, "--mode", "gate", user=account("tidegate"))
    assert (code, found["instances"]["level"]) == (1, "fail")  # though the account may look at nothing else
    assert "another instance manages the same work: Lease default/tidegate (bind" in found["instances"]["found"]
    assert look(plane)[1]["instances"]["level"] == "warn"
    plane.admin.delete(path)
    assert look(plane, "--mode", "gate")[1]["instances"]["level"] == "ok"


def test_another_instance_with_a_scheduler_of_its_own_is_no_fault(plane):
    """Its Lease is held, too; its claim says that it manages other pods."""
    claim(plane, "default/tidegate", "bind", "another")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SCOPE_CLAIMS.namespace}/leases/{SCOPE_CLAIMS.name}"
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    spec = {"holderIdentity": "pod-2", "leaseDurationSeconds": 15, "renewTime": micro_time(wall_ms())}
    plane.admin.post(leases, {"metadata": {"name": "tidegate"}, "spec": spec})
    try:
        assert look(plane, "--mode", "bind")[1]["instances"]["level"] == "ok"
        assert look(plane, "--mode", "gate")[1]["instances"]["level"] == "fail"
    finally:
        plane.admin.delete(f"{leases}/tidegate")
        plane.admin.delete(path)


def test_kinds_in_another_version_are_told(plane):
    assert "JobSet" in look(plane)[1]["kinds"]["found"]  # not installed
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": "jobset.x-k8s.io",
        "names": {"kind": "JobSet", "plural": "jobsets"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": anything}],
    }
    plane.admin.post(
        _CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "jobsets.jobset.x-k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
            },
            "spec": spec,
        },
    )
    plane.wait_for(lambda: plane.admin.is_up("/apis/jobset.x-k8s.io/v1"), what="JobSet served")
    code, found = look(plane)
    assert (code, found["kinds"]["level"]) == (0, "warn")
    assert found["kinds"]["found"] == "JobSet v1"
    assert found["kinds"]["expected"] == "jobset.x-k8s.io/v1alpha2"


def test_a_clock_that_is_off_is_told(plane, monkeypatch):
    monkeypatch.setattr("tidegate.cli.doctor.wall_ms", lambda: wall_ms() + 7_200_000)
    code, found = look(plane)
    assert (code, found["clock"]["level"]) == (0, "warn")
    assert "s ahead of the server's" in found["clock"]["found"]


# -- an installation that is not alone, not its own, or gone -------------------------------------------------------


def test_an_empty_policy_is_a_fault_for_who_writes(plane, tmp_path):
    empty = tmp_path / "tidegate.yaml"
    empty.write_text("version: 1\npolicy: {placement: bestfit}\n")
    for mode, level in (("shadow", "ok"), ("gate", "fail"), ("bind", "fail")):
        assert look(plane, "--mode", mode, "--policy", str(empty))[1]["policy"]["level"] == level


def test_a_second_instance_is_told(plane):
    where = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": micro_time(wall_ms())}
    plane.admin.post(where, {"metadata": {"name": "tidegate"}, "spec": spec})
    try:
        code, found = look(plane, "--mode", "gate")
        assert (code, found["instances"]["level"]) == (1, "fail")
        assert "default/tidegate (another leads)" in found["instances"]["found"]
        assert look(plane)[1]["instances"]["level"] == "warn"
    finally:
        plane.admin.delete(f"{where}/tidegate")


def test_fields_of_another_manager_are_told_and_can_be_taken_over(plane):
    path = "/apis/policy/v1/namespaces/tidegate/poddisruptionbudgets"
    theirs = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "tidegate"}}
    plane.admin.apply(path, {**theirs, "spec": {"maxUnavailable": 2}}, manager="helm")
    found = look(plane, "--mode", "gate")[1]["managers"]
    assert (found["level"], "helm (of 1 objects)" in found["found"]) == ("warn", True)
    assert "--force-conflicts" in found["remedy"]
    install(plane, "--mode", "gate", "--admission-gate", "--force-conflicts")
    assert look(plane, "--mode", "gate")[1]["managers"]["level"] == "ok"


def test_gates_and_annotations_that_nobody_minds_are_told(plane):
    pods = "/api/v1/namespaces/default/pods"
    plane.admin.post(pods, pod("held", schedulingGates=[{"name": "tidegate.io/admission"}]))
    noted = pod("noted")
    noted["metadata"]["annotations"] = {"tidegate.io/standing": "{}"}
    plane.admin.post(pods, noted)
    lead(plane, wall_ms() - 7_200_000)
    found = look(plane, "--mode", "gate")[1]["leftovers"]
    assert found["level"] == "warn"
    assert "pods and templates with a gate: 1; objects with annotations: 1" in found["found"]
    assert "tidegate uninstall" in found["remedy"]
    lead(plane, wall_ms())
    assert look(plane, "--mode", "gate")[1]["leftovers"]["level"] == "ok"
    for name in ("held", "noted"):
        plane.admin.delete(f"{pods}/{name}")
