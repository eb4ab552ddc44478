"""What is installed, on a real API server: accepted as it is made, applied again, refused where it must be."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from commands import ran
from deploy_files import DEPLOY
from install_file import PAGE
from kubebench import ApiError, Options, Plane, User
from kubelive import wall_ms
from kubequeues import one_queue
from tidegate.deploy.deployment_manifest import deployment
from tidegate.deploy.install_objects import objects
from tidegate.deploy.install_spec import InstallSpec
from tidegate.deploy.server_side_apply import INSTALLER, resource_of
from tidegate.kube.transport.writes import micro_time
from tidegate.live.election import SCOPE_CLAIMS
from tidegate.live.modes import Mode
from tidegate.live.scope_claim import CLAIM_PREFIX

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HERE, _APPS = "/api/v1/namespaces/tidegate", "/apis/apps/v1/namespaces/tidegate"
_OPERATOR = ("--service-monitor", "--prometheus-rule")


def monitoring(kind):
    """A kind of Prometheus' operator, which is not on this machine, with any fields."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture(scope="module")
def plane(kube_programs):
    nobody = User("nobody", ())
    with Plane(Options(build=False, controllers="", scheduler=False, kwok=False, users=(nobody,))) as plane:
        yield plane


@pytest.fixture
def fresh(plane):
    """Without an installation."""
    for thing in reversed(objects(InstallSpec())):
        meta = thing["metadata"]
        path = resource_of(thing).path(meta.get("namespace", ""), meta["name"])
        if thing["kind"] != "Namespace" and plane.admin.is_up(path):
            plane.admin.delete(path)
    if plane.admin.is_up(f"{_HERE}/configmaps/tidegate-policy"):
        plane.admin.delete(f"{_HERE}/configmaps/tidegate-policy")
    return plane


@pytest.fixture(scope="module")
def monitored(plane):
    for kind in ("ServiceMonitor", "PrometheusRule"):
        plane.admin.post(_CRDS, monitoring(kind))
        path = f"/apis/monitoring.coreos.com/v1/{kind.lower()}s"
        plane.wait_for(lambda path=path: plane.admin.is_up(path), what=f"{kind} served")
    return plane


def install(plane, *arguments, code=0, user="admin"):
    said = ran("install", "--kubeconfig", str(plane.kubeconfig(user)), "--yes", "--json", *arguments, code=code)
    return {(one["kind"], one["name"]): one["outcome"] for one in json.loads(said)} if code == 0 else said


def made(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [thing for thing in yaml.safe_load_all(done.stdout) if thing]


def accept(plane, things):
    """Have the server check objects, and not make them; fields that it does not know are refused."""
    for thing in things:
        meta = thing["metadata"]
        path = resource_of(thing).path(meta.get("namespace", ""), meta["name"])
        query = "fieldManager=test&force=true&dryRun=All&fieldValidation=Strict"
        answer = plane.admin.request("PATCH", f"{path}?{query}", thing, "application/apply-patch+yaml")
        assert answer["metadata"]["name"] == meta["name"]


# -- accepted ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def housed(monitored):
    """With the namespace: without it nothing that is in it can be tried."""
    monitored.admin.apply("/api/v1/namespaces", objects(InstallSpec())[0])
    return monitored


@pytest.mark.parametrize("mode", Mode)
def test_the_server_accepts_what_is_printed(housed, mode):
    made = ran("install", "--mode", mode, "--dry-run", "--admission-gate", "--dashboard", "--network-policy")
    accept(housed, yaml.safe_load_all(made))
    accept(housed, json.loads(ran("install", "--mode", mode, "--dry-run", *_OPERATOR, "--json"))["items"])


@pytest.mark.parametrize("mode", Mode)
def test_the_server_accepts_what_kustomize_makes(housed, renderers, mode):
    accept(housed, made(renderers["kustomize"], "build", DEPLOY / "overlays" / mode))
    accept(housed, made(renderers["kustomize"], "build", DEPLOY / "admission-gate"))


@pytest.mark.parametrize("mode", Mode)
def test_the_server_accepts_what_helm_makes(housed, renderers, mode):
    chosen = f"mode={mode},admissionGate=true,dashboard=true,serviceMonitor.enabled=true,tolerations[0].key=gpu"
    accept(housed, made(renderers["chart"], DEPLOY / "chart", "tidegate", chosen))


def test_pods_may_run_where_only_restricted_ones_may(housed):
    """The namespace enforces it; a pod that could be root is refused there."""
    template = deployment(InstallSpec())["spec"]["template"]
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template["spec"]}
    assert housed.admin.post(f"{_HERE}/pods?dryRun=All", whole)
    del template["spec"]["securityContext"]["runAsNonRoot"]
    with pytest.raises(ApiError, match="restricted"):
        housed.admin.post(f"{_HERE}/pods?dryRun=All", whole)


# -- applied -----------------------------------------------------------------------------------------------------


def test_installing_again_changes_what_changed_and_keeps_the_policy(plane, tmp_path):
    first = install(plane)
    assert {outcome for key, outcome in first.items() if key[0] != "Namespace"} == {"created"}
    again = install(plane)
    assert again == {key: "kept" if key[0] == "ConfigMap" else "unchanged" for key in first}
    policy = tmp_path / "mine.yaml"
    policy.write_text(one_queue(8))
    install(plane, "--policy", str(policy))
    again = install(plane, "--mode", "bind")
    assert {key for key, outcome in again.items() if outcome == "changed"} == {
        ("ClusterRole", "tidegate"), ("Role", "tidegate/tidegate"), ("Deployment", "tidegate/tidegate"),
    }  # fmt: skip
    assert ("ConfigMap", "tidegate/tidegate-policy") not in again
    policy.write_text(one_queue(4))
    assert (
        install(plane, "--mode", "bind", "--policy", str(policy))["ConfigMap", "tidegate/tidegate-policy"] == "changed"
    )
    assert plane.admin.get(f"{_HERE}/configmaps/tidegate-policy")["data"] == {"mine.yaml": policy.read_text()}
    assert install(plane, "--mode", "shadow")["ConfigMap", "tidegate/tidegate-policy"] == "kept"
    role = plane.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/tidegate")
    assert role["rules"] == next(thing for thing in objects(InstallSpec()) if thing["kind"] == "ClusterRole")["rules"]
    assert {one["manager"] for one in role["metadata"]["managedFields"]} == {INSTALLER}


def test_the_steps_of_the_docs_work_one_after_the_other(fresh, tmp_path):
    """As docs/install.md has them: the first is piped into kubectl, the others are applied, and the policy stays."""
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues" / "all.yaml").write_text(one_queue(8))
    commands = re.findall(r"^    tidegate (install .*)$", PAGE.read_text(), re.MULTILINE)
    assert [re.search(r"--mode (\w+)", one)[1] for one in commands[1:]] == ["gate", "bind", "gate"]  # then an upgrade
    for command in commands:
        ours, piped, _ = command.partition(" | kubectl apply --server-side --field-manager=tidegate-install -f -")
        words = ours.replace("queues/", f"{tmp_path}/queues").split()[1:]
        if piped:
            assert "ConfigMap" not in kubectl_applied(fresh, yaml.safe_load_all(ran("install", *words)))
        else:
            assert "failed" not in install(fresh, *words).values()
    assert fresh.admin.get(f"{_HERE}/configmaps/tidegate-policy")["data"] == {"all.yaml": one_queue(8)}
    printed = list(yaml.safe_load_all(ran("install", "--mode", "bind", "--dry-run")))
    assert "ConfigMap" not in kubectl_applied(fresh, printed)  # piped once more, over an installation with a policy
    assert fresh.admin.get(f"{_HERE}/configmaps/tidegate-policy")["data"] == {"all.yaml": one_queue(8)}
    assert set(install(fresh, "--mode", "bind").values()) == {"unchanged"}


def kubectl_applied(plane, things):
    """What `kubectl apply --server-side --field-manager=tidegate-install` does; the kinds."""
    kinds = []
    for thing in things:
        meta = thing["metadata"]
        path = resource_of(thing).path(meta.get("namespace", ""), meta["name"])
        plane.admin.request("PATCH", f"{path}?fieldManager={INSTALLER}", thing, "application/apply-patch+yaml")
        kinds.append(thing["kind"])
    return kinds


def test_what_kubectl_applied_on_its_own_is_taken_over_when_asked_for(fresh, tmp_path):
    for thing in objects(InstallSpec())[1:]:  # the namespace is there
        path = resource_of(thing).path(thing["metadata"].get("namespace", ""))
        fresh.admin.post(f"{path}?fieldManager=kubectl-client-side-apply", thing)
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(8))
    wanted = ("--mode", "gate", "--policy", str(policy))
    said = install(fresh, *wanted, code=1)
    assert 'conflict with "kubectl-client-side-apply"' in said
    assert "--force-conflicts takes these fields over" in said
    assert "failed" not in install(fresh, *wanted, "--force-conflicts").values()
    assert set(install(fresh, *wanted).values()) == {"unchanged"}


def test_a_policy_is_never_emptied_in_silence(fresh, tmp_path):
    full, empty = tmp_path / "full.yaml", tmp_path / "empty.yaml"
    full.write_text(one_queue(8))
    empty.write_text("version: 1\npolicy: {placement: bestfit}\n")
    for mode in ("gate", "bind"):
        assert "expected queues, found none" in install(fresh, "--mode", mode, code=2)
        assert "expected queues, found none" in install(fresh, "--mode", mode, "--policy", str(empty), code=2)
    assert not fresh.admin.is_up(f"{_HERE}/configmaps/tidegate-policy")
    install(fresh, "--mode", "gate", "--policy", str(full))
    assert "has 1; --allow-no-queues" in install(fresh, "--policy", str(empty), code=2)
    assert fresh.admin.get(f"{_HERE}/configmaps/tidegate-policy")["data"] == {"full.yaml": full.read_text()}
    install(fresh, "--policy", str(empty), "--allow-no-queues")
    assert "bestfit" in fresh.admin.get(f"{_HERE}/configmaps/tidegate-policy")["data"]["tidegate.yaml"]
    assert "expected queues, found none" in install(fresh, "--mode", "gate", code=2)  # the one that is there


def test_what_somebody_else_owns_is_not_taken(plane):
    where = "/apis/policy/v1/namespaces/tidegate/poddisruptionbudgets"
    install(plane)
    theirs = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "tidegate"}}
    plane.admin.apply(where, {**theirs, "spec": {"maxUnavailable": 2}}, manager="somebody")
    said = install(plane, code=1)
    assert "conflict with" in said
    assert "somebody" in said
    assert plane.admin.get(f"{where}/tidegate")["spec"]["maxUnavailable"] == 2
    plane.admin.delete(f"{where}/tidegate")


def test_nothing_is_changed_where_somebody_else_owns_a_field(fresh, tmp_path):
    """A program that stays needs the role that it has."""
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(8))
    install(fresh, "--mode", "gate", "--policy", str(policy))
    role, program = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tidegate", f"{_APPS}/deployments/tidegate"
    before = fresh.admin.get(role)["rules"]
    fresh.admin.patch(program, {"spec": {"replicas": 3}})  # as kubectl scale does
    assert "conflict with" in install(fresh, "--mode", "shadow", code=1)
    assert fresh.admin.get(role)["rules"] == before
    install(fresh, "--mode", "shadow", "--force-conflicts")
    assert fresh.admin.get(role)["rules"] != before


def test_a_kind_that_is_missing_is_told_before_anything_is_made(kube_programs):
    with Plane(Options(build=False, controllers="", scheduler=False, kwok=False)) as plane:
        said = install(plane, "--service-monitor", code=2)
        assert "ServiceMonitor (monitoring.coreos.com/v1)" in said
        assert "nothing was applied" in said
        assert not plane.admin.is_up(_HERE)


def test_who_may_not_install_is_told(plane):
    said = install(plane, "--namespace", "elsewhere", code=1, user="nobody")
    assert "403 Forbidden" in said
    assert not plane.admin.is_up("/api/v1/namespaces/elsewhere")


def test_where_a_kueue_runs_only_shadow_is_installed(plane):
    where = "/apis/apps/v1/namespaces/default/deployments"
    labels = {"matchLabels": {"a": "b"}}
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    kueue = {"metadata": {"name": "kueue-controller-manager"}, "spec": {"selector": labels, "template": pods}}
    plane.admin.post(where, {"apiVersion": "apps/v1", "kind": "Deployment", **kueue})
    try:
        said = install(plane, "--mode", "gate", code=3)
        assert "Deployment default/kueue-controller-manager" in said
        assert set(install(plane).values()) <= {"created", "kept", "unchanged"}
    finally:
        plane.admin.delete(f"{where}/kueue-controller-manager")


def claim(plane, lease, mode, scheduler="", renewed_ms=None):
    """The claim of an instance that runs."""
    stamp = micro_time(wall_ms() if renewed_ms is None else renewed_ms)
    text = {"lease": lease, "scope": {"mode": mode, "scheduler": scheduler}, "holder": "pod-1", "renewTime": stamp}
    annotations = {f"{CLAIM_PREFIX}{lease.replace('/', '.')}": json.dumps({**text, "leaseDurationSeconds": 15})}
    meta = {"name": SCOPE_CLAIMS.name, "annotations": annotations}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}
    plane.admin.apply(f"/apis/coordination.k8s.io/v1/namespaces/{SCOPE_CLAIMS.namespace}/leases", body)


def test_where_another_instance_manages_the_same_work_only_shadow_is_installed(plane):
    claim(plane, "default/tidegate", "bind", "tidegate")
    try:
        said = install(plane, "--mode", "gate", code=3)
        assert "another instance manages the same work (Lease default/tidegate; bind, schedulerName tidegate)" in said
        assert "nothing was applied" in said
        install(plane, "--mode", "shadow")
        claim(plane, "default/tidegate", "bind", "other")
        install(plane, "--mode", "bind", "--allow-no-queues")  # pods of another scheduler
        claim(plane, "default/tidegate", "gate", renewed_ms=wall_ms() - 3_600_000)
        install(plane, "--mode", "gate", "--allow-no-queues")  # that one is gone
    finally:
        plane.admin.delete(
            f"/apis/coordination.k8s.io/v1/namespaces/{SCOPE_CLAIMS.namespace}/leases/{SCOPE_CLAIMS.name}"
        )


def test_a_second_namespace_does_not_take_the_roles_of_the_first(plane):
    install(plane)
    said = install(plane, "--namespace", "gpus", code=3)
    assert "Tidegate is installed in the namespace tidegate" in said
    assert "use --namespace tidegate" in said
    assert "gpus" not in {one["metadata"]["name"] for one in plane.admin.get("/api/v1/namespaces")["items"]}
