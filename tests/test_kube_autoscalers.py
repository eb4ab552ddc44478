"""What node autoscalers are told on a real control plane: of demand that lasts, and of nothing shorter."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, job, node, pod
from kubejobs import queued
from kubelive import Live
from shared import shared
from tidegate.kube.ledger import Reach
from tidegate.kube.world import WorldOptions

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
_TEMPLATES = "/api/v1/namespaces/default/podtemplates"
_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


@pytest.fixture(scope="module")
def plane(kube_programs):
    file = shared("crds/cluster-autoscaler/autoscaling.x-k8s.io_provisioningrequests.yaml")
    with Plane(Options(build=False)) as plane:
        plane.install(file)
        yield plane


@pytest.fixture
def cluster(plane):
    plane.admin.post(_NODES, node("n0"))
    yield plane
    gone = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "gracePeriodSeconds": 0}
    for path in (_JOBS, _PODS, _NODES):
        plane.admin.delete(path, gone)
    plane.wait_for(lambda: not plane.admin.get(_PODS)["items"] and not plane.admin.get(_NODES)["items"])


def condition(plane, name):
    found = plane.admin.get(f"{_PODS}/{name}")["status"].get("conditions", [])
    return next((one for one in found if one["type"] == "PodScheduled"), {})


def test_a_pod_is_unschedulable_only_once_its_demand_has_lasted(cluster):
    cluster.admin.post(_PODS, pod("a", 8, scheduler="tidegate"))
    with Live.on(cluster, options=WorldOptions(patience_ms=3_000)) as live:
        live.until(lambda: condition(cluster, "a").get("status") == "True")
        cluster.admin.post(_PODS, pod("b", 8, scheduler="tidegate"))
        words = []

        def told():
            word = condition(cluster, "b").get("reason")
            if word and word not in words:
                words.append(word)
            return "Unschedulable" in words

        live.until(told, what="the word that autoscalers know")
    assert words == ["LacksGpu", "Unschedulable"]
    assert "idle GPUs" in condition(cluster, "b")["message"]


def test_nodes_are_asked_for_a_suspended_job_and_no_more_once_it_starts(cluster):
    options = WorldOptions(reach=Reach(scheduler="", gates=True), patience_ms=1_500, provisioning_class=_CLASS)
    cluster.admin.post(_JOBS, queued(job("fits", 1, 8, runs="", suspend=True)))
    with Live.on(cluster, options=options) as live:
        live.until(lambda: cluster.admin.get(f"{_JOBS}/fits")["spec"]["suspend"] is False)
        cluster.admin.post(_JOBS, queued(job("waits", 2, 8, suspend=True)))
        live.until(lambda: cluster.admin.get(_REQUESTS)["items"], what="a request for nodes")
        (asked,) = cluster.admin.get(_REQUESTS)["items"]
        assert asked["spec"]["provisioningClassName"] == _CLASS
        ((name, count),) = [(one["podTemplateRef"]["name"], one["count"]) for one in asked["spec"]["podSets"]]
        assert count == 2
        template = cluster.admin.get(f"{_TEMPLATES}/{name}")["template"]
        assert template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        for number in (1, 2):  # as an autoscaler would
            cluster.admin.post(_NODES, node(f"n{number}"))
        live.until(lambda: cluster.admin.get(f"{_JOBS}/waits")["spec"]["suspend"] is False, what="the job let go")
        live.until(lambda: not cluster.admin.get(_REQUESTS)["items"] and not cluster.admin.get(_TEMPLATES)["items"])
