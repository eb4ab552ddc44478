"""Tidegate's annotations on a real API server: its account writes them, tenants do not, by no way that there is."""

from __future__ import annotations

import time

import pytest

from commands import ran
from kubeaccount import become
from kubebench import ApiError, Options, Plane, User, node, pod
from kubebench.objects import job

_PODS, _JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
_WRITTEN = ["pods", "pods/status", "pods/binding", "bindings", "jobs"]
_RULES = ({"apiGroups": ["", "batch"], "resources": _WRITTEN, "verbs": ["*"]},)
STANDING = "tidegate.io/standing"


@pytest.fixture(scope="module")
def plane(kube_programs):
    tenant = User("tenant", _RULES)
    with Plane(Options(build=False, controllers="", scheduler=False, kwok=False, users=(tenant,))) as plane:
        ran("install", "--kubeconfig", str(plane.kubeconfig("admin")), "--yes", "--mode", "bind", "--allow-no-queues")
        plane.admin.post("/api/v1/nodes", node("n0"))
        plane.account = become(plane, "tidegate")
        _await_policy(plane)
        yield plane


def _await_policy(plane):
    """The server takes a moment to heed a policy that was made."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            plane.api("tenant").post(f"{_PODS}?dryRun=All", noted(pod("probe")))
        except ApiError:
            return
        time.sleep(0.2)
    raise TimeoutError("the policy is not in force")


def noted(thing, word=STANDING):
    thing["metadata"].setdefault("annotations", {})[word] = "{}"
    return thing


def test_tenants_write_none_and_everything_else(plane):
    tenant = plane.api("tenant")
    for path, thing in (
        (_PODS, noted(pod("p"))),
        (_JOBS, noted(job("j", 1))),
        (_PODS, noted(pod("p"), "tidegate.io/x")),
    ):
        with pytest.raises(ApiError, match="are Tidegate's own"):
            tenant.post(path, thing)
    template = job("j", 1)
    noted(template["spec"]["template"])
    with pytest.raises(ApiError, match=r"spec\.template: annotations"):
        tenant.post(_JOBS, template)
    tenant.post(_PODS, noted(pod("p"), "tidegate.io/runtime"))
    tenant.post(_JOBS, job("j", 1, suspend=True))
    for path in (f"{_PODS}/p", f"{_PODS}/p/status", f"{_JOBS}/j"):
        with pytest.raises(ApiError, match="are Tidegate's own"):
            tenant.patch(path, {"metadata": {"annotations": {STANDING: "{}"}}})
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
    for path in (f"{_PODS}/p/binding", "/api/v1/namespaces/default/bindings"):
        with pytest.raises(ApiError, match="are Tidegate's own"):
            tenant.post(path, noted(binding))


def test_its_account_writes_them_and_tenants_go_on_with_the_rest(plane):
    tenant, account = plane.api("tenant"), plane.account
    tenant.post(_JOBS, job("k", 1, suspend=True))
    account.patch(f"{_JOBS}/k", {"metadata": {"annotations": {STANDING: "{}"}}, "spec": {"suspend": False}})
    tenant.patch(f"{_JOBS}/k", {"metadata": {"labels": {"a": "b"}}, "spec": {"parallelism": 2}})
    for value in ("[]", None):
        with pytest.raises(ApiError, match="are Tidegate's own"):
            tenant.patch(f"{_JOBS}/k", {"metadata": {"annotations": {STANDING: value}}})
    tenant.post(_PODS, pod("q", scheduler="tidegate"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    account.post(
        f"{_PODS}/q/binding",
        noted({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "q"}, "target": target}),
    )
    assert plane.admin.get(f"{_PODS}/q")["metadata"]["annotations"][STANDING] == "{}"
    plane.admin.patch(f"{_JOBS}/k", {"metadata": {"annotations": {STANDING: None}}})  # who administers may mend it
