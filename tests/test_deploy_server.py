"""What is installed, on a real API server: accepted as it is made, applied again, refused where it must be."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from commands import ran
from deploy_files import DEPLOY
from kubebench import ApiError, Options, Plane, User
from tidegate.deploy.deployment_manifest import deployment
from tidegate.deploy.install_spec import InstallSpec
from tidegate.deploy.objects import objects
from tidegate.deploy.server_side_apply import INSTALLER, resource_of
from tidegate.live.modes import Mode

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HERE = "/api/v1/namespaces/tidegate"
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


@pytest.fixture(scope="module")
def monitored(plane):
    for kind in ("ServiceMonitor", "PrometheusRule"):
        plane.admin.post(_CRDS, monitoring(kind))
        path = f"/apis/monitoring.coreos.com/v1/{kind.lower()}s"
        plane.wait_for(lambda path=path: plane.admin.is_up(path), what=f"{kind} served")
    return plane


def install(plane, *arguments, code=0, user="admin"):
    said = ran("install", "--kubeconfig", str(plane.kubeconfig(user)), "--yes", "--json", *arguments, code=code)
    return {(one["kind"], one["name"]): one["fate"] for one in json.loads(said)} if code == 0 else said


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
    accept(housed, yaml.safe_load_all(ran("install", "--mode", mode, "--dry-run", "--door", "--board")))
    accept(housed, json.loads(ran("install", "--mode", mode, "--dry-run", *_OPERATOR, "--json"))["items"])


@pytest.mark.parametrize("mode", Mode)
def test_the_server_accepts_what_kustomize_makes(housed, renderers, mode):
    accept(housed, made(renderers["kustomize"], "build", DEPLOY / "overlays" / mode))
    accept(housed, made(renderers["kustomize"], "build", DEPLOY / "door"))


@pytest.mark.parametrize("mode", Mode)
def test_the_server_accepts_what_helm_makes(housed, renderers, mode):
    chosen = f"mode={mode},door=true,board=true,serviceMonitor.enabled=true,tolerations[0].key=gpu"
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
    assert {fate for key, fate in first.items() if key[0] != "Namespace"} == {"created"}
    again = install(plane)
    assert again == {key: "kept" if key[0] == "ConfigMap" else "unchanged" for key in first}
    changed = {key for key, fate in install(plane, "--mode", "bind").items() if fate == "changed"}
    assert changed == {
        ("ClusterRole", "tidegate"), ("Role", "tidegate/tidegate"), ("Deployment", "tidegate/tidegate"),
    }  # fmt: skip
    policy = tmp_path / "mine.yaml"
    policy.write_text("version: 1\npolicy: {placement: tide}\n")
    assert (
        install(plane, "--mode", "bind", "--policy", str(policy))["ConfigMap", "tidegate/tidegate-policy"] == "changed"
    )
    assert plane.admin.get(f"{_HERE}/configmaps/tidegate-policy")["data"] == {"tidegate.yaml": policy.read_text()}
    assert install(plane, "--mode", "shadow")["ConfigMap", "tidegate/tidegate-policy"] == "kept"
    role = plane.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/tidegate")
    assert role["rules"] == next(thing for thing in objects(InstallSpec()) if thing["kind"] == "ClusterRole")["rules"]
    assert {one["manager"] for one in role["metadata"]["managedFields"]} == {INSTALLER}


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
