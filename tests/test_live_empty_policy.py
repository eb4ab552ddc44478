"""Policies that are missing or empty, of a live run on a real control plane: a shadow may begin, who writes may not."""

from __future__ import annotations

import pytest

from kubebench import pod
from kubequeues import one_queue
from kubereplica import Replica

_PODS, _MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
_EMPTY = "version: 1\npolicy: {placement: bestfit}\n"


def ours(name, gpus):
    made = pod(name, gpus, scheduler="tidegate", runs="")
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    return made


def strict(*arguments, **more):
    """A replica as it is by default: it wants queues."""
    replica = Replica(*arguments, **more)
    replica.command.remove("--allow-no-queues")
    return replica


def test_a_policy_that_is_emptied_while_it_leads_is_refused_and_quota_holds(cluster, tmp_path):
    queues = tmp_path / "policy"
    queues.mkdir()
    (queues / "queues.yaml").write_text(one_queue(4))
    with strict(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(queues)) as replica:
        cluster.admin.post(_PODS, ours("first", 4))
        replica.wait(lambda: cluster.admin.get(f"{_PODS}/first")["spec"].get("nodeName"), "a pod that is bound")
        (queues / "queues.yaml").write_text(one_queue(4).split("---")[0])  # a flavor, and no queue
        replica.wait(lambda: replica.metric("tidegate_policy_refused") == 1, "a refusal")
        assert "expected queues, found none" in replica.events("policy refused")[0]["error"]
        cluster.admin.post(_PODS, ours("second", 1))
        (queues / "queues.yaml").write_text(one_queue(5))
        replica.wait(lambda: cluster.admin.get(f"{_PODS}/second")["spec"].get("nodeName"), "quota for one more")
        cluster.admin.post(_PODS, ours("third", 1))
        replica.wait(lambda: replica.metric('kueue_pending_workloads{cluster_queue="q",status="inadmissible"}'), "one")
        assert not cluster.admin.get(f"{_PODS}/third")["spec"].get("nodeName")
        assert replica.stop() == 0


@pytest.mark.parametrize("mode", ["gate", "bind"])
def test_who_writes_does_not_begin_without_queues(cluster, tmp_path, mode):
    policy = tmp_path / "tidegate.yaml"
    policy.write_text(_EMPTY)
    with strict(cluster, tmp_path, mode, "--mode", mode, "--policy", str(policy)) as replica:
        assert replica.process.wait(30) == 2
    assert "expected queues, found none" in replica.log.read_text()


def test_a_shadow_begins_before_there_is_a_policy(cluster, tmp_path):
    named = ("--mode", "shadow", "--policy", "configmap:default/later")
    with strict(cluster, tmp_path, "s", *named, user="admin") as replica:
        replica.wait(replica.leads, "a leader")
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}}
        cluster.admin.post(_MAPS, {**made, "data": {"queues.yaml": one_queue(8)}})
        replica.wait(lambda: replica.metric('kueue_cluster_queue_status{cluster_queue="q",status="active"}'), "a queue")
        cluster.admin.delete(f"{_MAPS}/later")
        assert replica.stop() == 0
