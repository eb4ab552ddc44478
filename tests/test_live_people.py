"""What people see of a run on a real control plane: Events, conditions, log lines and metrics tell the same story."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest

from kubebench import Options, Plane, job, node, pod
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.journal.decision_text import time_text
from tidegate.manifests.timestamps import read_time_ms

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_GATE = [{"name": "tidegate.io/admission"}]
_PREEMPTS = ("preemption: {withinClusterQueue: LowerPriority}",)


@pytest.fixture
def queues(tmp_path):
    path = tmp_path / "queues.yaml"
    path.write_text(one_queue(8, *_PREEMPTS))
    return path


def queued(thing):
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return thing


def described(plane, name):
    """What `kubectl describe` shows below an object: type, reason and text of its Events, the oldest first."""
    items = [one for one in plane.admin.get(_EVENTS)["items"] if one["regarding"]["name"] == name]
    items = [one for one in items if one.get("reportingController", "").startswith("tidegate")]
    items.sort(key=lambda one: one["eventTime"])
    return [(one["type"], one["reason"], one["note"]) for one in items]


def reasons(plane, name):
    return [reason for _, reason, _ in described(plane, name)]


def scheduled(plane, name):
    conditions = plane.admin.get(f"{_PODS}/{name}")["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def priority_class(plane):
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    plane.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**kind, "metadata": {"name": "high"}, "value": 100})


def test_gate_tells_the_story_of_a_job_that_is_preempted(kube_programs, tmp_path, queues):
    with Plane(Options(build=False)) as plane:
        plane.admin.post(_NODES, node("n0"))
        priority_class(plane)
        with Replica(plane, tmp_path, "g", "--mode", "gate", "--policy", str(queues)) as replica:
            replica.wait(replica.leads, "a leader")
            plane.admin.post(_JOBS, queued(job("low", 1, 8, runs="6s", suspend=True)))
            replica.wait(lambda: plane.admin.get(f"{_JOBS}/low")["status"].get("active"), "a job that runs")
            plane.admin.post(_JOBS, queued(job("high", 1, 8, runs="2s", suspend=True, priorityClassName="high")))
            replica.wait(lambda: "Resumed" in reasons(plane, "low"), "the end of the story", 60)
            plane.admin.post(_PODS, queued(pod("gated", 8, schedulingGates=_GATE)))
            replica.wait(lambda: scheduled(plane, "gated").get("message", "").startswith("Waits in"), "a condition")
            replica.wait(
                lambda: replica.metric('kueue_evicted_workloads_total{cluster_queue="q",reason="Preempted"}'), "m"
            )
            replica.wait(
                lambda: replica.metric('tidegate_time_to_running_seconds_count{cluster_queue="q"}') >= 2, "SLI"
            )
            assert replica.metric('tidegate_time_to_bound_seconds_count{cluster_queue="q"}') >= 2
            assert replica.stop() == 0
        assert scheduled(plane, "gated")["reason"] == "SchedulingGated"
        told = {reason: (kind, note) for kind, reason, note in described(plane, "low")}
        assert {"Admitted", "Preempted", "Requeued", "Resumed"} <= told.keys()
        kind, note = told["Preempted"]
        assert note.startswith(
            "Preempted for default/job.batch/high of queue default/team, priority 100: work of its own queue"
        )
        assert "GPU-hours" in note
        assert "8 nvidia.com/gpu of flavor any" in note
        assert kind == "Normal"
        assert {"Queued", "Pending", "Admitted"} <= set(reasons(plane, "high"))
    lines = {(line["object"], line["decision"]): line for line in replica.events("decision")}
    stopped, started = lines["default/job.batch/low", "preempt"], lines["default/job.batch/high", "place"]
    assert stopped["preempted_for"] == "default/job.batch/high"
    assert stopped["reason"] == "PREEMPTED_IN_QUEUE"
    assert stopped["nodes"] == started["nodes"] == {"n0": 1}
    assert (started["queue"], started["cluster_queue"]) == ("default/team", "q")
    assert started["victims"] == ["default/job.batch/low"]
    assert "8 nvidia.com/gpu of flavor any" in started["quota"]
    assert started["reason"] == "ADMITTED"


def test_bind_says_why_pods_wait_and_where_they_go(cluster, tmp_path):
    policy = tmp_path / "tidegate.yaml"
    policy.write_text("version: 1\npolicy:\n  placement: bestfit\n")
    cluster.admin.post(_PODS, pod("whole", 8, scheduler="tidegate", runs="1h"))
    cluster.admin.post(_PODS, pod("half", 8, scheduler="tidegate", group=("g", 3)))
    cluster.admin.post(_PODS, pod("vast", 9, scheduler="tidegate"))
    with Replica(cluster, tmp_path, "b", "--mode", "bind", "--policy", str(policy)) as replica:
        replica.wait(lambda: "Scheduled" in reasons(cluster, "whole"), "a pod that is bound")
        replica.wait(lambda: "PodGroupIncomplete" in reasons(cluster, "half"), "word of the group", 30)
        assert ("Normal", "Scheduled", "Successfully assigned default/whole to n0") in described(cluster, "whole")
        assert "1 of its 3 pods: 2 are missing" in scheduled(cluster, "half")["message"]
        kind, reason, note = described(cluster, "vast")[-1]
        assert (kind, reason) == ("Warning", "FailedScheduling")
        assert "one pod asks for more than any matching node has when empty" in note
        assert scheduled(cluster, "vast")["reason"] == "PodTooLarge"
        replica.wait(
            lambda: replica.metric('kueue_pending_workloads{cluster_queue="default",status="inadmissible"}'), "m"
        )
        assert replica.stop() == 0


def test_a_shadow_and_the_queues_command_agree_on_what_runs(cluster, tmp_path, queues):
    """Work that ran before anybody looked, over quota, started by nobody we know, is charged to the queue it names."""
    for number in range(2):
        cluster.admin.post(_JOBS, queued(job(f"j{number}", 1, 8, runs="1h", scheduler="x")))
    bind_all(cluster, 2)
    kubeconfig = str(cluster.kubeconfig("tidegate"))
    with Replica(cluster, tmp_path, "s", "--policy", str(queues)) as replica:
        name = 'kueue_cluster_queue_resource_usage{cluster_queue="q",cohort="",flavor="any",resource="nvidia.com/gpu"}'
        replica.wait(lambda: replica.metric(name) == 16, "what runs is charged", 30)
        assert replica.metric('kueue_admitted_active_workloads{cluster_queue="q"}') == 2
        assert replica.metric('kueue_evicted_workloads_total{cluster_queue="q",reason="Preempted"}') == 0
        tree = json.loads(call("queues", "--kubeconfig", kubeconfig, "--policy", str(queues), "--json").stdout)
        assert replica.stop() == 0
    (queue,) = [branch for branch in tree["branches"] if branch["name"] == "q"]
    (lot,) = [lot for lot in queue["lots"] if lot["resource"] == "nvidia.com/gpu"]
    assert (lot["used"], queue["admitted"]) == (16, 2)
    report = json.loads(call("shadow-report", str(replica.journal), "--json").stdout)
    assert report["over_quota"] == 1
    (over,) = [row for row in report["differences"] if row["would"] == "held"]
    assert (over["queue"], over["reason"]) == ("default/team", "WAITS_FOR_QUOTA")


def bind_all(plane, count):
    """Do what a scheduler that minds no quota does: bind pods, each to a node of its own."""
    plane.wait_for(lambda: len(plane.admin.get(_PODS)["items"]) == count)
    for number, one in enumerate(plane.admin.get(_PODS)["items"]):
        name, target = one["metadata"]["name"], {"apiVersion": "v1", "kind": "Node", "name": f"n{number}"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        plane.admin.post(f"{_PODS}/{name}/binding", binding)


def call(*arguments):
    """A command of Tidegate."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


# -- explain and queues on a cluster --------------------------------------------------------------------------------


def test_explain_and_queues_use_the_policy_of_the_installation(cluster, tmp_path, queues):
    """The policy is found from the Deployment; times come from objects; an administrator's changes are labelled."""
    kubeconfig = str(cluster.kubeconfig("admin"))
    where = ("--kubeconfig", kubeconfig)
    assert call("install", *where, "--yes", "--policy", str(queues)).returncode == 0
    try:
        cluster.admin.post(_JOBS, queued(job("runs", 1, 8, runs="1h", scheduler="x")))
        bind_all(cluster, 1)
        cluster.admin.post(_JOBS, queued(job("waits", 1, 8, suspend=True)))
        time.sleep(3)
        asked = call("explain", "waits", *where, "--kernels", "plain", "--json")
        assert "policy configmap:tidegate/tidegate-policy (Deployment tidegate/tidegate)" in " ".join(
            asked.stderr.split()
        )
        told = json.loads(asked.stdout)
        assert seconds(told["headline"], "is waiting, ") >= 3
        assert "its queue lacks 8 nvidia.com/gpu of flavor any" in told["headline"]
        makers = {change["kind"]: change["by"] for change in told["changes"]}
        assert makers["quota"] == "administrator"
        assert makers["stop"] == "namespace"  # the other job is the team's own
        (want,) = told["wants"]
        bound = cluster.admin.get(_PODS)["items"][0]["status"]["conditions"]
        since = next(one["lastTransitionTime"] for one in bound if one["type"] == "PodScheduled")
        assert want["holders"][0]["since_ms"] == read_time_ms(since)
        shown = call("explain", "waits", *where, "--kernels", "plain").stdout
        lines = [line for line in shown.splitlines() if "administrator" in line]
        assert any("quota" in line or "nvidia.com/gpu more" in line for line in lines)
        runs = json.loads(call("explain", "runs", *where, "--kernels", "plain", "--json").stdout)
        assert time_text(read_time_ms(since)) in runs["headline"]
        tree = call("queues", *where, "--json")
        assert "configmap:tidegate/tidegate-policy" in tree.stderr
        assert {branch["name"] for branch in json.loads(tree.stdout)["branches"]} == {"q"}
    finally:
        cluster.admin.delete("/apis/apps/v1/namespaces/tidegate/deployments", {})


def seconds(text, after):
    """The seconds that a text has after some words."""
    found = re.search(rf"{after}([0-9.]+)s", text)
    assert found is not None, text
    return float(found[1])


def test_without_an_installation_the_policy_is_kueues_and_says_so(cluster):
    asked = call("queues", "--kubeconfig", str(cluster.kubeconfig("admin")))
    assert asked.returncode == 2
    said = " ".join(asked.stderr.split())
    assert "kueue: the cluster does not serve Kueue's kinds" in said
    assert "name another with --policy" in said
