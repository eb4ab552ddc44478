"""Evictions on a real control plane: disruption budgets hold for whatever reason, and what is blocked is retried."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubebench import Options, Plane, node, pod
from kubelive import Live
from kubepaper import QUEUES
from tidegate.kube.transport.write_pool import WriteLimits
from tidegate.kube.world import WorldOptions
from tidegate.model.queues import StopPolicy

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_OPTIONS = WorldOptions(limits=WriteLimits(deadline_s=1))


@pytest.fixture(scope="module")
def plane(kube_programs):
    controllers = f"{Options().controllers},disruption-controller"
    with Plane(Options(build=False, scheduler=False, controllers=controllers)) as plane:
        plane.admin.post(_NODES, node("n0"))
        plane.admin.post(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10},
        )
        yield plane


@pytest.fixture
def cluster(plane):
    yield plane
    plane.clear(_BUDGETS)
    plane.clear(_PODS)


def queued(name, gpus, **more):
    made = pod(name, gpus, scheduler="tidegate", **more)
    made["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": "team", "app": name.partition("-")[0]}
    return made


def guard(plane, app, pods=1):
    """None of the pods of this app may be disrupted."""
    spec = {"minAvailable": pods, "selector": {"matchLabels": {"app": app}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}, "spec": spec}
    plane.admin.post(_BUDGETS, body)

    def is_minded():
        status = plane.admin.get(f"{_BUDGETS}/guard").get("status", {})
        return status.get("expectedPods") and status["currentHealthy"] == status["expectedPods"]

    return is_minded


def running(plane):
    found = plane.admin.get(_PODS)["items"]
    return sorted(
        one["metadata"]["name"]
        for one in found
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    )


def blocked(plane):
    return sorted(
        {one["regarding"]["name"] for one in plane.admin.get(_EVENTS)["items"] if one["reason"] == "EvictionBlocked"}
    )


def test_a_preempted_pod_stays_until_its_budget_allows(cluster):
    cluster.admin.post(_PODS, queued("low", 8))
    with Live.on(cluster, options=_OPTIONS, policy=QUEUES) as live:
        live.until(lambda: running(cluster) == ["low"])
        live.until(guard(cluster, "low"))
        cluster.admin.post(_PODS, queued("high", 8, priorityClassName="high"))
        live.until(lambda: blocked(cluster) == ["low"], what="an event")
        assert running(cluster) == ["low"]
        cluster.admin.delete(f"{_BUDGETS}/guard")
        live.until(lambda: running(cluster) == ["high"], most_s=60, what="the eviction tried again")


def test_a_drained_queue_minds_budgets_and_so_do_gangs(cluster):
    for number in range(2):
        cluster.admin.post(_PODS, queued(f"gang-{number}", 4, group=("gang", 2)))
    with Live.on(cluster, options=_OPTIONS, policy=QUEUES) as live:
        live.until(lambda: running(cluster) == ["gang-0", "gang-1"])
        live.until(guard(cluster, "gang", pods=2))
        (queue,) = QUEUES.shares.queues
        drained = replace(QUEUES.shares, queues=(replace(queue, stop=StopPolicy.DRAIN),))
        live.world.change_policy(replace(QUEUES, shares=drained))
        live.until(lambda: blocked(cluster), what="an event")
        assert running(cluster) == ["gang-0", "gang-1"]
        cluster.admin.delete(f"{_BUDGETS}/guard")
        live.until(lambda: running(cluster) == [], most_s=60, what="the evictions tried again")
