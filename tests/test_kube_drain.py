"""`kubectl drain`, lost nodes and owners who edit, on a real control plane: gate mode and bind mode."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, node
from kubebench.objects import job, pod
from kubelive import Live, Steps
from kubepaper import QUEUES, queued
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.world import WorldOptions
from tidegate.live.handover import notes_after
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import WriteOutcome

_PODS, _JOBS, _NODES = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs", "/api/v1/nodes"

#: A pod that is evicted does not count as failed: its Job makes it again at once.
_FORGIVING = {
    "backoffLimit": 20,
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
}

MODES = {"bind": {}, "gate": {"scheduler": "", "gates": True}}


@pytest.fixture(scope="module")
def plane(kube_programs):
    """A control plane with the cluster's own scheduler, for gate mode."""
    with Plane(Options(build=False, audit=True)) as plane:
        yield plane


@pytest.fixture
def cluster(plane):
    """Three nodes of eight GPUs."""
    for number in range(3):
        plane.admin.post(_NODES, node(f"n{number}"))
    yield plane
    plane.clear(_JOBS, _PODS, _NODES)


def live_in(plane, mode, policy=None):
    options = WorldOptions(ownership=Ownership(**MODES[mode]))
    return Live.on(plane, options=options, **({"policy": policy} if policy else {}))


def sweep(plane, mode, pods=4, gpus=4, name="sweep", *, endless=False, **more):
    """A Job of independent pods that waits to be admitted."""
    scheduler = {"scheduler": "tidegate"} if mode == "bind" else {}
    made = job(name, pods, gpus, suspend=True, runs="", **scheduler, **more)
    made["spec"] |= _FORGIVING
    if endless:
        made["spec"].pop("completions", None)
    plane.admin.post(_JOBS, queued(made) if mode == "gate" else made)


def pods_of(plane, name="sweep"):
    found = (one for one in plane.admin.get(_PODS)["items"] if one["metadata"]["name"].startswith(name))
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def nodes_of(plane, name="sweep"):
    """The nodes on which pods run."""
    running = (one for one in pods_of(plane, name) if one["status"].get("phase") == "Running")
    return sorted(one["spec"]["nodeName"] for one in running)


def drain(plane, name):
    """What `kubectl drain` does: cordon the node, and evict its pods."""
    plane.admin.patch(f"{_NODES}/{name}", {"spec": {"unschedulable": True}})
    for one in pods_of(plane, ""):
        if one["spec"].get("nodeName") == name:
            evict(plane, one["metadata"]["name"])


def evict(plane, name, **options):
    about = {"name": name, "namespace": "default"}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about, "deleteOptions": options}
    plane.admin.post(f"{_PODS}/{name}/eviction", eviction)


def collect(plane, name):
    """What the pod garbage collector does with a pod of a node that is gone."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    plane.admin.patch(f"{_PODS}/{name}/status", {"status": {"phase": "Failed", "conditions": [target]}})
    plane.admin.delete(f"{_PODS}/{name}", {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})


def decided(live, *kinds):
    wanted = {int(kind) for kind in kinds}
    return sum(int(kind) in wanted for _, _, result in live.steps.kept for kind in result.decisions.kind)


@pytest.mark.parametrize("mode", MODES)
def test_a_drain_moves_the_pods_of_the_node_and_no_others(cluster, mode):
    sweep(cluster, mode)
    with live_in(cluster, mode) as live:
        live.until(lambda: len(nodes_of(cluster)) == 4, what="the sweep running")
        drained = nodes_of(cluster)[0]
        stay = {one["metadata"]["uid"] for one in pods_of(cluster) if one["spec"]["nodeName"] != drained}
        drain(cluster, drained)
        live.until(lambda: len(nodes_of(cluster)) == 4 and drained not in nodes_of(cluster), what="the pods elsewhere")
        assert stay <= {one["metadata"]["uid"] for one in pods_of(cluster)}
        cluster.admin.delete(f"{_NODES}/{drained}")
        live.until(lambda: len(live.state.node_specs) == 2, what="the node gone")
        assert cluster.admin.get(f"{_JOBS}/sweep")["spec"]["suspend"] is False
        assert not decided(live, DecisionKind.EVICT, DecisionKind.PREEMPT)
    assert stay <= {one["metadata"]["uid"] for one in pods_of(cluster)}


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_node_costs_only_its_pods(cluster, mode):
    sweep(cluster, mode)
    with live_in(cluster, mode) as live:
        live.until(lambda: len(nodes_of(cluster)) == 4, what="the sweep running")
        lost = nodes_of(cluster)[0]
        gone = [one["metadata"]["name"] for one in pods_of(cluster) if one["spec"]["nodeName"] == lost]
        cluster.admin.delete(f"{_NODES}/{lost}")
        for name in gone:
            collect(cluster, name)
        live.until(lambda: len(nodes_of(cluster)) == 4 and lost not in nodes_of(cluster), what="four pods again")
        assert not decided(live, DecisionKind.EVICT, DecisionKind.PREEMPT)


@pytest.mark.parametrize("mode", MODES)
def test_a_gang_is_restarted_whole_on_other_nodes(cluster, mode):
    scheduler = {"scheduler": "tidegate"} if mode == "bind" else {}
    made = queued(job("gang", 2, 8, suspend=True, runs="", **scheduler))
    made["metadata"]["labels"]["tidegate.io/recovery"] = "gang"
    made["spec"] |= _FORGIVING
    cluster.admin.post(_JOBS, made)
    with live_in(cluster, mode) as live:
        live.until(lambda: len(nodes_of(cluster, "gang")) == 2, what="the gang running")
        before = {one["metadata"]["uid"] for one in pods_of(cluster, "gang")}
        drained = nodes_of(cluster, "gang")[0]
        drain(cluster, drained)
        live.until(
            lambda: len(nodes_of(cluster, "gang")) == 2 and drained not in nodes_of(cluster, "gang"),
            what="the gang elsewhere",
            most_s=60,
        )
        assert before.isdisjoint(one["metadata"]["uid"] for one in pods_of(cluster, "gang"))
        assert decided(live, DecisionKind.EVICT) == 1


def test_a_running_job_that_grows_is_set_back_and_says_so(cluster):
    sweep(cluster, "gate", pods=2, gpus=2, endless=True)
    with live_in(cluster, "gate", QUEUES) as live:
        live.until(lambda: len(nodes_of(cluster)) == 2, what="the sweep running")
        cluster.admin.patch(f"{_JOBS}/sweep", {"spec": {"parallelism": 6}})
        live.until(lambda: cluster.admin.get(f"{_JOBS}/sweep")["spec"]["parallelism"] == 2, what="its size set back")
        events = "/apis/events.k8s.io/v1/namespaces/default/events"
        live.until(
            lambda: any(one["reason"] == "Trimmed" for one in cluster.admin.get(events)["items"]), what="an Event"
        )
        assert len(nodes_of(cluster)) == 2
        assert not decided(live, DecisionKind.EVICT, DecisionKind.PREEMPT)


class Annotating(Steps):
    """A record of a leader that hands its work over."""

    live: Live

    def append(self, now_ms, events, result):
        super().append(now_ms, events, result)
        for number, text in notes_after(self.live.state, result.decisions):
            self.live.world.note(number, text)


def leader(plane):
    """A leader that binds, under a quota of eight GPUs."""
    record = Annotating()
    record.live = Live(plane.kubeconfig("tidegate"), QUEUES, WorldOptions(ownership=Ownership()), record)
    return record.live


def test_a_job_that_shrank_and_grows_while_nobody_leads_is_set_back(cluster):
    made = queued(job("sweep", 2, 4, suspend=True, runs="", scheduler="tidegate"))
    made["spec"] |= _FORGIVING
    del made["spec"]["completions"]
    cluster.admin.post(_JOBS, made)
    with leader(cluster) as live:
        live.until(lambda: len(nodes_of(cluster)) == 2, what="the sweep running")
        cluster.admin.patch(f"{_JOBS}/sweep", {"spec": {"parallelism": 1}})
        cluster.admin.post(_PODS, queued(pod("next", 4, runs="", scheduler="tidegate")))
        live.until(lambda: nodes_of(cluster, "next"), what="what it gave back taken")
    cluster.admin.patch(f"{_JOBS}/sweep", {"spec": {"parallelism": 2}})
    with leader(cluster) as live:
        live.until(lambda: cluster.admin.get(f"{_JOBS}/sweep")["spec"]["parallelism"] == 1, what="its size set back")
        live.until(lambda: len(pods_of(cluster)) == 1, what="one pod left")
        live.until(lambda: len(nodes_of(cluster)) == 1, what="the pod that is left running")
        assert len(nodes_of(cluster, "next")) == 1
        assert not decided(live, DecisionKind.EVICT, DecisionKind.PREEMPT)


def test_a_burst_of_jobs_is_started_without_an_eviction(cluster):
    for number in range(30):
        made = queued(job(f"burst-{number:02d}", 1, 1, suspend=True, runs="2s"))
        cluster.admin.post(_JOBS, made)
    with live_in(cluster, "gate") as live:
        live.until(
            lambda: sum("Complete" in str(one["status"]) for one in cluster.admin.get(_JOBS)["items"]) == 30,
            what="all of them done",
            most_s=90,
        )
        assert not decided(live, DecisionKind.EVICT, DecisionKind.PREEMPT)
        assert live.world.outcomes[WriteOutcome.FAILED] == 0


def test_a_victim_that_its_owner_resumes_does_not_keep_its_preemptor_waiting(cluster):
    """Resumed before it has left it is stopped again; resumed later it bypasses admission, and that is reported."""
    sweep(cluster, "gate", pods=1, gpus=8, name="low")
    with live_in(cluster, "gate", QUEUES) as live:
        live.until(lambda: len(nodes_of(cluster, "low")) == 1, what="the victim running")
        urgent = queued(job("urgent", 1, 8, suspend=True, runs="", priorityClassName="system-cluster-critical"))
        cluster.admin.post(_JOBS, urgent)
        live.until(lambda: cluster.admin.get(f"{_JOBS}/low")["spec"]["suspend"], what="the victim stopped")
        cluster.admin.patch(f"{_JOBS}/low", {"spec": {"suspend": False}})
        live.until(lambda: len(nodes_of(cluster, "urgent")) == 1, what="the urgent job running", most_s=60)

        def settled():
            bypassed = [ref.name for ref in live.world.reconciler.past.values()]
            return cluster.admin.get(f"{_JOBS}/low")["spec"]["suspend"] is True or bypassed == ["low"]

        live.until(settled, what="the victim stopped again, or reported")
