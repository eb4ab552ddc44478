"""Pods that somebody edits while they wait: they are queued again as what they ask for now."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, node, pod
from kubepaper import QUEUES, ours, paper, queued
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.kube.mirror.job_patch import GATE
from tidegate.manifests.label_names import QUEUE

_PODS = "/api/v1/namespaces/default/pods"


def named(thing, queue):
    thing["metadata"].setdefault("labels", {})[QUEUE] = queue
    return thing


def relabelled(cluster, name, queue):
    thing = cluster.objects[f"pod/{name}"]
    cluster.put(named({**thing, "metadata": {**thing["metadata"], "labels": {**thing["metadata"]["labels"]}}}, queue))


def test_a_pod_whose_queue_is_corrected_is_admitted():
    cluster = paper(policy=QUEUES)
    cluster.put(named(ours("a", 8), "tema"))
    assert cluster.step() == []
    relabelled(cluster, "a", "team")
    assert cluster.step() == [("bind", "pod/a")]


def test_a_group_whose_queue_is_corrected_pod_by_pod_is_admitted_whole():
    cluster = paper(policy=QUEUES)
    for name in "ab":
        cluster.put(named(ours(name, 4, group=("g", 2)), "tema"))
    assert cluster.step() == []
    relabelled(cluster, "a", "team")
    assert cluster.step() == []
    relabelled(cluster, "b", "team")
    assert sorted(cluster.step()) == [("bind", "pod/a"), ("bind", "pod/b")]


def test_a_group_that_asks_for_more_while_it_waits_waits_for_that():
    cluster = paper(policy=QUEUES)
    cluster.put(queued(ours("first", 8)))
    cluster.step()
    cluster.obey()
    for name in "ab":
        cluster.put(queued(ours(name, 4, group=("g", 2))))
    assert cluster.step() == []
    cluster.change("pod/b", spec__nodeSelector={"kubernetes.io/hostname": "nowhere"})
    cluster.change("pod/a", spec__nodeSelector={"kubernetes.io/hostname": "nowhere"})
    cluster.remove("pod/first")
    assert cluster.step() == []


def test_a_pod_that_was_sent_to_its_node_is_not_queued_again():
    cluster = paper(policy=QUEUES)
    cluster.put(queued(ours("a", 8)))
    assert cluster.step() == [("bind", "pod/a")]
    cluster.change("pod/a", spec__nodeSelector={"kubernetes.io/hostname": "nowhere"})
    cluster.obey()
    assert cluster.nodes_of("a") == ["n0"]
    assert cluster.step() == []


def test_a_pod_whose_gate_somebody_takes_off_is_past_the_door():
    cluster = paper(policy=QUEUES, gates=True)
    gated = {"schedulingGates": [{"name": GATE}]}
    for name in "ab":
        cluster.put(queued(pod(name, 8, **gated)))
    assert len(cluster.step()) == 1
    cluster.obey()
    cluster.change("pod/b", spec__schedulingGates=None)
    cluster.change("pod/b", spec__nodeName="n0")
    assert cluster.step() == []
    assert list(cluster.reconciler.past) == ["pod/b"]
    assert [workload.id for workload in cluster.reconciler.workloads.values()] == ["default/pod/a"]


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False)) as plane:
        for name in ("n0", "n1"):
            plane.admin.post("/api/v1/nodes", node(name))
        yield plane


@pytest.mark.parametrize("mode", ["gate", "bind"])
def test_a_gated_pod_goes_where_its_owner_says_by_now(plane, tmp_path, mode):
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(8))
    scheduler = {"scheduler": "tidegate"} if mode == "bind" else {}
    gated = {"schedulingGates": [{"name": GATE}], **scheduler}
    with Replica(plane, tmp_path, "a", "--mode", mode, "--policy", str(policy)) as replica:
        plane.admin.post(_PODS, queued(pod("first", 8, nodeSelector={"kubernetes.io/hostname": "n0"}, **gated)))
        replica.wait(lambda: plane.admin.get(f"{_PODS}/first")["spec"].get("nodeName"), "the first pod has a node")
        plane.admin.post(_PODS, named(pod("next", 8, **gated), "tema"))
        replica.wait(lambda: "NoQueue" in str(plane.admin.get(f"{_PODS}/next")["status"]), "it waits")
        queue_and_node = {"metadata": {"labels": {QUEUE: "team"}}}
        plane.admin.patch(f"{_PODS}/next", queue_and_node)
        plane.admin.patch(f"{_PODS}/next", {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}})
        plane.admin.delete(f"{_PODS}/first", {"gracePeriodSeconds": 0})
        replica.wait(lambda: plane.admin.get(f"{_PODS}/next")["spec"].get("nodeName") == "n1", "it is on n1")
    plane.clear(_PODS)
