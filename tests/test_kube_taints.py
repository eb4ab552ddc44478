"""Nodes whose taint evicts, on a real control plane: what we bind there stays, as its flavor tolerates the taint."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from kubebench import Options, Plane
from kubebench.objects import job, pod
from kubelive import Live
from kubepaper import QUEUES, on_spot, queued, spot_node
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.world import WorldOptions
from tidegate.model.hardware import TaintEffect

_PODS, _JOBS, _NODES = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs", "/api/v1/nodes"
_EVICTS = {"key": "spot", "value": "true", "effect": "NoExecute"}


@pytest.fixture
def cluster(kube_programs):
    """A node of a flavor, with the controller that evicts pods from tainted nodes."""
    controllers = f"{Options().controllers},taint-eviction-controller"
    with Plane(Options(build=False, scheduler=False, controllers=controllers)) as plane:
        plane.admin.post(_NODES, {**spot_node("n0"), "spec": {"taints": [_EVICTS]}})
        yield plane


def _policy():
    """A flavor of nodes with that taint."""
    policy = on_spot(QUEUES)
    (flavor,) = policy.shares.flavors
    taints = tuple(replace(one, effect=TaintEffect.NO_EXECUTE) for one in flavor.node_taints)
    tolerations = tuple(replace(one, effect=TaintEffect.NO_EXECUTE) for one in flavor.tolerations)
    flavors = (replace(flavor, node_taints=taints, tolerations=tolerations),)
    return replace(policy, shares=replace(policy.shares, flavors=flavors))


def test_pods_and_jobs_that_we_bind_stay_on_nodes_whose_taint_evicts(cluster):
    def running():
        there = cluster.admin.get(_PODS)["items"]
        return sorted(one["metadata"]["uid"] for one in there if one["status"].get("phase") == "Running")

    cluster.admin.post(_PODS, queued(pod("alone", 2, runs="", scheduler="tidegate")))
    cluster.admin.post(_JOBS, queued(job("sweep", 2, 2, suspend=True, runs="", scheduler="tidegate")))
    with Live.on(cluster, options=WorldOptions(ownership=Ownership()), policy=_policy()) as live:
        live.until(lambda: len(running()) == 3, what="all three pods running")
        before = running()
        time.sleep(2)
        assert running() == before
