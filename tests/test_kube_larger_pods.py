"""Pods that take more of their node than their workload asked for: resized in place, or changed by a webhook."""

from __future__ import annotations

import copy

import pytest

from kubebench import Options, Plane, job, node, pod
from kubelive import Live
from kubepaper import ours, paper

_PODS, _JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
_ON_N0 = {"kubernetes.io/hostname": "n0"}
_STRATEGIC = "application/strategic-merge-patch+json"


def asks(thing, **more):
    """The containers of a pod, of which the first asks for more."""
    containers = copy.deepcopy(thing["spec"]["containers"])
    containers[0]["resources"]["requests"] |= more
    return containers


@pytest.mark.parametrize(
    ("more", "fits"), [({"cpu": "120"}, False), ({"memory": "1000Gi"}, False), ({"cpu": "2"}, True)]
)
def test_what_a_pod_is_resized_to_is_not_given_to_others(more, fits):
    cluster = paper()
    cluster.put(ours("first", 1, nodeSelector=_ON_N0))
    cluster.step()
    cluster.obey()
    cluster.change("pod/first", spec__containers=asks(cluster.objects["pod/first"], **more))
    second = ours("second", 1, nodeSelector=_ON_N0)
    second["spec"]["containers"] = asks(second, cpu="100", memory="100Gi")
    cluster.put(second)
    assert cluster.step() == ([("bind", "pod/second")] if fits else [])
    cluster.remove("pod/first")
    assert cluster.step() == ([] if fits else [("bind", "pod/second")])
    assert cluster.reconciler.node_registry.unmanaged == 0


def test_a_resized_pod_is_no_pod_of_others():
    cluster = paper()
    cluster.put(ours("first", 1))
    cluster.step()
    cluster.obey()
    cluster.change("pod/first", spec__containers=asks(cluster.objects["pod/first"], cpu="120"))
    cluster.step()
    assert cluster.reconciler.node_registry.unmanaged == 0
    assert [taken.unmanaged.pods for taken in cluster.state.unmanaged.values()] == [0]


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False)) as plane:
        plane.admin.post("/api/v1/nodes", node("n0"))
        yield plane


def nodes_of(plane):
    return {thing["metadata"]["name"]: thing["spec"].get("nodeName") for thing in plane.admin.get(_PODS)["items"]}


def test_a_pod_that_is_resized_in_place_leaves_less_of_its_node(plane):
    with Live.on(plane) as live:
        plane.admin.post(_PODS, pod("first", 1, scheduler="tidegate"))
        live.until(lambda: nodes_of(plane)["first"], what="a binding")
        containers = asks(plane.admin.get(f"{_PODS}/first"), cpu="120")
        plane.admin.patch(f"{_PODS}/first/resize", {"spec": {"containers": containers}}, _STRATEGIC)
        live.until(lambda: live.state.unmanaged, what="what it takes beyond its workload")
        plane.admin.post(_PODS, pod("second", 1, scheduler="tidegate", cpu="100"))
        plane.admin.post(_PODS, pod("third", 1, scheduler="tidegate", cpu="5"))
        live.until(lambda: nodes_of(plane)["third"], what="a pod that fits")
        assert nodes_of(plane)["second"] is None
        plane.clear(_PODS)


def test_a_job_gives_no_more_of_a_node_than_its_pods_leave(plane):
    """A pod of a Job that got a sidecar on its way in: what it takes is not given away again."""
    with Live.on(plane) as live:
        plane.admin.post(_JOBS, job("sidecars", 1, 1, runs="", suspend=True, scheduler="tidegate"))
        live.until(lambda: [one for one in nodes_of(plane).values() if one], what="a binding")
        [name] = nodes_of(plane)
        containers = asks(plane.admin.get(f"{_PODS}/{name}"), cpu="120")
        plane.admin.patch(f"{_PODS}/{name}/resize", {"spec": {"containers": containers}}, _STRATEGIC)
        live.until(lambda: live.state.unmanaged, what="what it takes beyond its template")
        plane.admin.delete(f"{_JOBS}/sidecars", {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
        plane.clear(_JOBS, _PODS)
        live.until(lambda: not live.state.unmanaged, what="all of it given back")
