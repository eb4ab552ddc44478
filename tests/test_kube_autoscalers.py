"""What node autoscalers are told on a real control plane: of demand that lasts, and of nothing shorter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kubebench import Options, Plane, job, node, pod
from kubejobs import queued
from kubelive import Live
from shared import shared
from tidegate.kube.actuator.provisioning import NodeRequestKind, NodeRequestOptions
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.world import WorldOptions

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
_BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
_KINDS = ("provisioningrequests", "capacitybuffers")
_TEMPLATES = "/api/v1/namespaces/default/podtemplates"
_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


@pytest.fixture(scope="module")
def plane(kube_programs):
    files = [shared(f"crds/cluster-autoscaler/autoscaling.x-k8s.io_{kind}.yaml") for kind in _KINDS]
    with Plane(Options(build=False)) as plane:
        for file in files:
            plane.install(file)
        yield plane


@pytest.fixture
def cluster(plane):
    plane.admin.post(_NODES, node("n0"))
    yield plane
    plane.clear(_JOBS, _PODS, _NODES)


def condition(plane, name):
    found = plane.admin.get(f"{_PODS}/{name}")["status"].get("conditions", [])
    return next((one for one in found if one["type"] == "PodScheduled"), {})


def test_a_pod_is_unschedulable_only_once_its_demand_has_lasted(cluster):
    cluster.admin.post(_PODS, pod("a", 8, scheduler="tidegate"))
    with Live.on(cluster, options=WorldOptions(scale_up_delay_ms=3_000)) as live:
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
    options = WorldOptions(
        ownership=Ownership(scheduler="", gates=True),
        scale_up_delay_ms=1_500,
        node_requests=NodeRequestOptions(NodeRequestKind.REQUEST, _CLASS),
    )
    cluster.admin.post(_JOBS, queued(job("fits", 1, 8, runs="", suspend=True)))
    with Live.on(cluster, options=options) as live:
        live.until(lambda: cluster.admin.get(f"{_JOBS}/fits")["spec"]["suspend"] is False)
        cluster.admin.post(_JOBS, queued(job("waits", 2, 8, suspend=True)))
        live.until(lambda: cluster.admin.get(_REQUESTS)["items"] and cluster.admin.get(_TEMPLATES)["items"])
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


def is_running(plane, name):
    return plane.admin.get(f"{_JOBS}/{name}")["spec"]["suspend"] is False


def test_room_is_kept_for_a_suspended_job_until_it_starts_also_by_who_takes_over(cluster):
    """A CapacityBuffer in the shape of its pods; a leader that did not write it takes it back all the same."""
    gates = Ownership(scheduler="", gates=True)
    options = WorldOptions(
        ownership=gates, scale_up_delay_ms=1_500, node_requests=NodeRequestOptions(NodeRequestKind.BUFFER)
    )
    cluster.admin.post(_JOBS, queued(job("fits", 1, 8, runs="", suspend=True)))
    with Live.on(cluster, options=options) as live:
        live.until(lambda: is_running(cluster, "fits"))
        cluster.admin.post(_JOBS, queued(job("waits", 2, 8, suspend=True)))
        live.until(lambda: cluster.admin.get(_BUFFERS)["items"] and cluster.admin.get(_TEMPLATES)["items"])
    (buffer,) = cluster.admin.get(_BUFFERS)["items"]
    assert buffer["spec"]["replicas"] == 2
    assert buffer["metadata"]["ownerReferences"][0]["name"] == "waits"  # it goes with the job
    template = cluster.admin.get(f"{_TEMPLATES}/{buffer['spec']['podTemplateRef']['name']}")["template"]
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    for number in (1, 2):  # as an autoscaler would
        cluster.admin.post(_NODES, node(f"n{number}"))
    with Live.on(cluster, options=options) as live:
        live.until(lambda: is_running(cluster, "waits"), what="the job let go")
        live.until(lambda: not cluster.admin.get(_BUFFERS)["items"] and not cluster.admin.get(_TEMPLATES)["items"])


def test_room_that_a_buffer_keeps_is_anybodys(cluster):
    """Nobody holds what a CapacityBuffer of somebody else asks for: no team is charged, and work takes it."""
    template = {"metadata": {"name": "chunk"}, "template": {"metadata": {}, "spec": pod("x", 8)["spec"]}}
    cluster.admin.post(_TEMPLATES, {"apiVersion": "v1", "kind": "PodTemplate", **template})
    spec = {"podTemplateRef": {"name": "chunk"}, "replicas": 1}
    about = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "warm"}}
    cluster.admin.post(_BUFFERS, {**about, "spec": spec})
    cluster.admin.post(_PODS, pod("a", 8, scheduler="tidegate"))
    with Live.on(cluster) as live:
        live.until(lambda: condition(cluster, "a").get("status") == "True")
    assert cluster.admin.get(f"{_BUFFERS}/warm")["spec"] == {
        **spec, "provisioningStrategy": "buffer.x-k8s.io/active-capacity"
    }  # fmt: skip
    cluster.admin.delete(f"{_BUFFERS}/warm")
    cluster.admin.delete(f"{_TEMPLATES}/chunk")


def test_a_means_that_the_cluster_has_not_is_refused_at_the_start(cluster, tmp_path):
    """The server that has the kinds is asked for one that it has not."""
    policy = tmp_path / "tidegate.yaml"
    policy.write_text("version: 1\npolicy:\n  placement: bestfit\n")
    cluster.admin.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/capacitybuffers.autoscaling.x-k8s.io")
    cluster.wait_for(lambda: "capacitybuffers" not in str(cluster.admin.get("/apis/autoscaling.x-k8s.io/v1beta1")))
    command = [sys.executable, "-m", "tidegate", "run", "--kubeconfig", str(cluster.kubeconfig("tidegate"))]
    options = ["--mode", "gate", "--policy", str(policy), "--ask-nodes-by", "capacity-buffer", "--allow-no-queues"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "the cluster has no capacitybuffers.autoscaling.x-k8s.io/v1beta1" in ended.stderr
    assert "leave the option out" in ended.stderr
