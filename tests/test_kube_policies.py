"""Queues, priorities and runtimes from the cluster: what the objects come to, and what follows when they change."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, job, node, pod
from kubedoor import submit
from kubejobs import PATHS, crd_files, queued
from kubelive import Live
from shared import SHARED
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.mirror.queue_objects import QueueObjects, read_policy_objects
from tidegate.kube.world import WorldOptions
from tidegate.model.facts import FactKind

_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_FILES = ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "topologies", "workloadpriorityclasses")
_JOBS, _PODS = PATHS["Job"], PATHS["Pod"]


def kueue(kind, name, spec=None, namespace="", **top):
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, **top}
    return made if spec is None else {**made, "spec": spec}


def cluster_queue(name="q", gpus="8", **more):
    quotas = [{"name": "cpu", "nominalQuota": "1000"}, {"name": "nvidia.com/gpu", "nominalQuota": gpus}]
    group = {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "any", "resources": quotas}]}
    return kueue("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": [group], **more})


def team():
    return kueue("LocalQueue", "team", {"clusterQueue": "q"}, "default")


def test_objects_come_to_shares_and_surroundings():
    read = read_policy_objects(
        [
            team(),
            cluster_queue(),
            kueue("ResourceFlavor", "any", {}),
            kueue("Cohort", "all", {}),
            kueue("Topology", "racks", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}),
            kueue("WorkloadPriorityClass", "urgent", value=7),
        ]
    )
    assert read.is_good
    assert [queue.name for queue in read.shares.queues] == ["q"]
    assert [(entrance.id, entrance.queue) for entrance in read.shares.entrances] == [("default/team", "q")]
    assert [topology.name for topology in read.shares.topologies] == ["racks"]
    assert read.around.workload_priorities["urgent"].value == 7


def test_the_order_in_which_objects_come_makes_no_difference():
    things = [cluster_queue("b"), cluster_queue("a"), team(), kueue("ResourceFlavor", "any", {})]
    assert read_policy_objects(things).shares == read_policy_objects(reversed(things)).shares


def test_what_is_wrong_is_told_with_object_and_field():
    read = read_policy_objects([cluster_queue(gpus="a lot")])
    assert not read.is_good
    assert "ClusterQueue q" in read.findings[0]
    assert "nominalQuota" in read.findings[0]


def test_news_that_change_nothing_are_no_news():
    book = QueueObjects()
    book.see("1", cluster_queue())
    assert book.read() is not None
    book.see("1", cluster_queue())
    assert book.read() is None
    book.see("1", None)
    assert book.read() is not None


@pytest.fixture(scope="module")
def plane(kube_programs):
    missing = [name for name in _FILES if not (SHARED / f"crds/kueue/kueue.x-k8s.io_{name}.yaml").exists()]
    if missing:
        pytest.skip(f"needs ../shared/crds/kueue/kueue.x-k8s.io_{missing[0]}.yaml, which is not on this machine")
    with Plane(Options(build=False, scheduler=False)) as plane:
        plane.install(*(SHARED / f"crds/kueue/kueue.x-k8s.io_{name}.yaml" for name in _FILES), *crd_files("JobSet"))
        plane.admin.post("/api/v1/nodes", node("n0"))
        submit(plane, f"{_KUEUE}/resourceflavors", kueue("ResourceFlavor", "any", {}))
        submit(
            plane,
            f"{_KUEUE}/clusterqueues",
            cluster_queue(gpus="4", preemption={"withinClusterQueue": "LowerPriority"}),
        )
        submit(plane, f"{_KUEUE}/namespaces/default/localqueues", team())
        submit(plane, f"{_KUEUE}/workloadpriorityclasses", kueue("WorkloadPriorityClass", "urgent", value=100))
        yield plane


@pytest.fixture
def cluster(plane):
    yield plane
    plane.clear(_JOBS, _PODS)


def run_steps(plane):
    return Live.on(plane, options=WorldOptions(ownership=Ownership(), queues=True))


def running(plane):
    return sorted(one["metadata"]["name"] for one in plane.admin.get(_PODS)["items"] if one["spec"].get("nodeName"))


def policies(live):
    return sum(int((events.kind == FactKind.POLICY_CHANGED).sum()) for _, events, _ in live.steps.kept)


def test_quota_is_what_the_clusters_queues_say_and_follows_them(cluster):
    for name in ("a", "b"):
        cluster.admin.post(_PODS, queued(pod(name, 4, scheduler="tidegate")))
    with run_steps(cluster) as live:
        live.until(lambda: running(cluster) == ["a"])
        assert policies(live) == 1
        cluster.admin.patch(f"{_KUEUE}/clusterqueues/q", {"spec": cluster_queue(gpus="8")["spec"]})
        live.until(lambda: running(cluster) == ["a", "b"], what="more quota, and the other one with it")
        assert policies(live) == 2
    cluster.admin.patch(f"{_KUEUE}/clusterqueues/q", {"spec": cluster_queue(gpus="4")["spec"]})


def test_a_job_has_the_priority_of_its_class_whenever_that_comes(cluster):
    low = queued(job("low", 1, 4, runs="", scheduler="tidegate"))
    late = queued(job("late", 1, 4, runs="", suspend=True, scheduler="tidegate"))
    late["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "late"
    cluster.admin.post(_JOBS, low)
    with run_steps(cluster) as live:
        live.until(lambda: running(cluster))
        cluster.admin.post(_JOBS, late)
        live.until(lambda: len(live.state.live_workloads()) == 2)
        submit(cluster, f"{_KUEUE}/workloadpriorityclasses", kueue("WorkloadPriorityClass", "late", value=5))
        live.until(lambda: [name[:4] for name in running(cluster)] == ["late"], what="the one that is more important")
    assert cluster.admin.get(f"{_JOBS}/low")["spec"]["suspend"] is True
