"""Numbers and lines for people, without a server: what is counted as what, and what is logged how often."""

from __future__ import annotations

import ast
import asyncio
import io
import json
from pathlib import Path

import msgspec
import pytest

import tidegate
from kubebench.objects import job, pod
from kubepaper import QUEUES, ours, paper, queued
from tidegate.kube.transport.response import ApiResponse
from tidegate.kube.world import WriteFailure
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.live.decision_log import FailureLog
from tidegate.live.installed_policy import find_installed_policy
from tidegate.live.logs import LogForm, open_log
from tidegate.live.metrics import Metrics
from tidegate.live.modes import Mode
from tidegate.live.policy_sources import ConfigMap, PolicyContent, PolicyError, PolicyFile
from tidegate.measure.over_quota import find_over_quota
from tidegate.model.facts import WriteOutcome
from tidegate.model.policy import Policy

_GATE = {"gates": True, "scheduler": ""}


def counted(cluster, metrics):
    """A step, counted."""
    orders = cluster.step()
    metrics.note_step(cluster.state, cluster.events, cluster.result, 0.001)
    return orders


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels) or 0


def started(mode=Mode.GATE):
    metrics = Metrics()
    metrics.start(mode)
    return metrics


def gated(name, gpus=8, **more):
    return queued(job(name, 1, gpus, suspend=True, **more))


def test_a_gang_that_could_not_be_bound_whole_is_no_eviction():
    cluster, metrics = paper(nodes=1, policy=QUEUES), started(Mode.BIND)
    for name in ("a", "b"):
        cluster.put(queued(ours(name, 4, group=("g", 2))))
    counted(cluster, metrics)
    first, second = cluster.orders
    cluster.carry_out(first)
    WriteOutcomes(cluster.reconciler).settle(first, WriteOutcome.DONE)
    WriteOutcomes(cluster.reconciler).settle(second, WriteOutcome.FAILED)
    counted(cluster, metrics)
    assert value(metrics, "tidegate_requeued_workloads_total", cluster_queue="q") == 1
    assert value(metrics, "kueue_evicted_workloads_total", cluster_queue="q", reason="BIND_FAILED") == 0


def test_preemptions_are_evictions_and_proposals_are_not():
    for mode, evictions in ((Mode.GATE, 1), (Mode.SHADOW, 0)):
        cluster, metrics = paper(nodes=1, policy=QUEUES, **_GATE), started(mode)
        cluster.put(gated("low"))
        counted(cluster, metrics)
        cluster.obey()
        cluster.put(queued(pod("high", 8, priority=10, schedulingGates=[{"name": "tidegate.io/admission"}])))
        counted(cluster, metrics)
        assert value(metrics, "kueue_evicted_workloads_total", cluster_queue="q", reason="Preempted") == evictions
        assert value(metrics, "kueue_admitted_workloads_total", cluster_queue="q") == evictions
        assert value(metrics, "tidegate_decisions_total", kind="PREEMPT", reason="PREEMPTED_IN_QUEUE") == 1


def test_work_without_a_queue_is_counted_beside_queues():
    cluster, metrics = paper(nodes=1, policy=QUEUES), started(Mode.BIND)
    cluster.put(ours("free", 8))
    cluster.put(queued(ours("named", 8)))
    counted(cluster, metrics)
    metrics.follow(cluster.state)
    pending = {
        name: sum(
            value(metrics, "kueue_pending_workloads", cluster_queue=name, status=s) for s in ("active", "inadmissible")
        )
        + value(metrics, "kueue_admitted_active_workloads", cluster_queue=name)
        for name in ("q", "default")
    }
    assert pending == {"q": 1, "default": 1}
    cluster.remove("pod/free")
    counted(cluster, metrics)
    metrics.follow(cluster.state)
    metrics.follow(cluster.state)
    text = metrics.text()[0].decode()
    assert 'kueue_pending_workloads{cluster_queue="default"' not in text


def test_a_replica_that_does_not_lead_any_more_says_nothing_of_queues():
    cluster, metrics = paper(nodes=1, policy=QUEUES), started(Mode.BIND)
    cluster.put(queued(ours("named", 8)))
    counted(cluster, metrics)
    metrics.follow(cluster.state)
    metrics.refused.set(3)
    assert "kueue_cluster_queue_resource_usage{" in metrics.text()[0].decode()
    metrics.end_term()
    assert "kueue_cluster_queue_resource_usage{" not in metrics.text()[0].decode()
    assert value(metrics, "tidegate_refused_objects") == 0


def test_times_until_work_is_bound_and_runs_are_observed_once_per_workload():
    cluster, metrics = paper(nodes=2), started(Mode.BIND)
    cluster.put(ours("before", 1), spec__nodeName="n0", status__phase="Running")
    counted(cluster, metrics)
    for name in ("a", "b"):
        cluster.put(ours(name, 4, group=("g", 2)))
    counted(cluster, metrics)
    cluster.change("pod/a", spec__nodeName="n0", status__phase="Running")
    counted(cluster, metrics)
    assert value(metrics, "tidegate_time_to_bound_seconds_count", cluster_queue="default") == 0
    cluster.change("pod/b", spec__nodeName="n0")
    counted(cluster, metrics)
    assert value(metrics, "tidegate_time_to_bound_seconds_count", cluster_queue="default") == 1
    assert value(metrics, "tidegate_time_to_running_seconds_count", cluster_queue="default") == 0
    cluster.change("pod/b", status__phase="Running")
    counted(cluster, metrics)
    assert value(metrics, "tidegate_time_to_running_seconds_count", cluster_queue="default") == 1


def test_objects_that_are_not_as_they_should_be_are_counted():
    cluster = paper(nodes=1, policy=QUEUES, **_GATE)
    gate = [{"name": "tidegate.io/admission"}]
    cluster.put(queued(job("past", 1, 8)))
    cluster.put(pod("left", 1, schedulingGates=gate))  # it names no queue
    cluster.put(queued(pod("ours", 1, schedulingGates=gate)))
    cluster.put(pod("theirs", 1), spec__nodeName="n0", status__phase="Running")
    counts = cluster.reconciler.lifecycle.counts()
    assert (counts.bypassed, counts.gates_left, counts.unmanaged, counts.refused) == (1, 1, 1, 0)


# -- over quota ----------------------------------------------------------------------------------------------------


def test_the_latest_that_hold_more_than_the_queue_has_are_over_quota():
    cluster = paper(nodes=3, policy=QUEUES, watches=True)
    for number in range(3):
        cluster.put(queued(pod(f"p{number}", 4)), spec__nodeName=f"n{number}", status__phase="Running")
    cluster.step()
    assert len(find_over_quota(cluster.state)) == 1
    before = cluster.state.digest()
    assert find_over_quota(cluster.state) == find_over_quota(cluster.state)
    assert cluster.state.digest() == before
    cluster.remove("pod/p1")
    cluster.step()
    assert find_over_quota(cluster.state) == []


def test_a_shadow_charges_labelled_pods_whoever_owns_them():
    """Pods of a Deployment name a queue by their label, and run without anybody's admission."""
    cluster, metrics = paper(nodes=2, policy=QUEUES, watches=True, unqueued=False), started(Mode.SHADOW)
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}]
    for number in range(2):
        place = {"spec__nodeName": f"n{number}", "status__phase": "Running", "metadata__ownerReferences": owner}
        cluster.put(queued(pod(f"web-{number}", 2)), **place)
    cluster.put(pod("unnamed", 2), spec__nodeName="n0", status__phase="Running", metadata__ownerReferences=owner)
    counted(cluster, metrics)
    metrics.follow(cluster.state)
    use = {"cluster_queue": "q", "cohort": "", "flavor": "any", "resource": "nvidia.com/gpu"}
    assert value(metrics, "kueue_cluster_queue_resource_usage", **use) == 4


# -- lines ---------------------------------------------------------------------------------------------------------


def test_a_failure_is_logged_once_a_minute_and_many_are_counted(monkeypatch):
    out, now_s = io.StringIO(), [100.0]
    monkeypatch.setattr("tidegate.live.decision_log.time.monotonic", lambda: now_s[0])
    failures = FailureLog(open_log(LogForm.JSON, stream=out))
    one = WriteFailure("bind", "default/pod/p", "failed", "403 Forbidden: no")
    failures.note([one, one])
    failures.note([one])
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert (line["event"], line["object"], line["message"]) == ("write failed", "default/pod/p", "403 Forbidden: no")
    now_s[0] += 61
    failures.note([one])
    assert len(out.getvalue().splitlines()) == 2
    failures.note([one._replace(object=f"default/pod/p{number}") for number in range(100)])
    now_s[0] += 11
    failures.note([])
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == 22
    assert (lines[-1]["event"], lines[-1]["writes"]) == ("more writes failed", 81)


def test_readable_lines_have_no_python_in_them():
    out = io.StringIO()
    open_log(LogForm.TEXT, stream=out).info(
        "decision", nodes={"n0": 2}, victims=["a/job.batch/b", "a/job.batch/c"], object="a/job.batch/d"
    )
    assert out.getvalue().rstrip().endswith("nodes=n0:2  victims=a/job.batch/b,a/job.batch/c  object=a/job.batch/d")


@pytest.mark.parametrize("package", ["kube", "live", "deploy", "cli"])
def test_no_message_has_the_repr_of_an_object(package):
    """Text of users may be quoted (`{text!r}`); errors and objects are said in words."""
    root = Path(tidegate.__file__).parent / package
    for path in root.rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name):
                assert one.func.id != "repr", f"{path}:{one.lineno}"
            if isinstance(one, ast.FormattedValue) and one.conversion == ord("r"):
                said = ast.unparse(one.value)
                assert said.rpartition(".")[2] in _TEXTS, f"{path}:{one.lineno}: {said}"


_TEXTS = ("text", "max_size", "name", "server", "namespace", "image", "part", "suffix", "group")


# -- policies ------------------------------------------------------------------------------------------------------


def test_the_digest_of_a_policy_depends_on_its_content_alone():
    assert Policy(name="a").digest() == Policy(name="b").digest()
    assert Policy(cycle_ms=5).digest() != Policy().digest()


def test_policies_are_named_by_where_they_come_from(tmp_path):
    text = "version: 1\npolicy:\n  placement: bestfit\n"
    path = tmp_path / "tidegate.yaml"
    path.write_text(text)
    config_map = ConfigMap("tidegate", "policy")
    found = PolicyContent(b"", {"tidegate.yaml": text.encode()})
    read = [PolicyFile(path).check(), config_map.read(found), config_map.read(found)]
    assert [policy.name for policy in read] == [str(path), "configmap:tidegate/policy", "configmap:tidegate/policy"]
    assert len({policy.digest() for policy in read}) == 1
    manifests = PolicyContent(
        b"", {"flavor.yaml": b"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: a}\n"}
    )
    again = [config_map.read(manifests), config_map.read(manifests)]
    assert again[0] == again[1]  # also where the keys are manifests
    assert again[0].name == "configmap:tidegate/policy"


class Server:
    """Answers for the Deployments that there are."""

    def __init__(self, *policies, status=200):
        self._things = [
            {
                "metadata": {"namespace": f"ns{number}", "name": "tidegate"},
                "spec": {"template": {"spec": {"containers": [{"args": ["run", *words]}]}}},
            }
            for number, words in enumerate(policies)
        ]
        self._status = status

    async def ask(self, request):
        if self._status != 200:
            return ApiResponse(self._status, "Forbidden", "no")
        return ApiResponse(200, body=msgspec.json.encode({"items": self._things}))


def found(*policies, **more):
    return asyncio.run(find_installed_policy(Server(*policies, **more)))


def test_the_policy_of_the_installation_is_found():
    assert found(["--policy=configmap:tidegate-policy"]).source == "configmap:ns0/tidegate-policy"
    assert found(["--policy", "configmap:other/one"]).source == "configmap:other/one"
    assert found(["--policy=kueue"]) == ("kueue", "Deployment ns0/tidegate")
    assert found().found.startswith("no Tidegate is installed")
    assert found(status=403).found.startswith("Deployments cannot be read (403 Forbidden: no)")


def test_a_policy_that_cannot_be_had_from_outside_is_asked_for():
    with pytest.raises(PolicyError, match="a file of its pod; name the policy with --policy"):
        found(["--policy=/etc/tidegate.yaml"])
    with pytest.raises(PolicyError, match="several Tidegates are installed"):
        found(["--policy=kueue"], ["--policy=kueue"])
