"""`tidegate run` as processes on a real control plane: modes, leaders, hand-over, reload, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from kubebench import Options, Plane, job, node, pod
from kubebench.plane import SERVER
from kubeproxy import Proxy
from kubequeues import one_queue
from kubereplica import Replica
from shared import shared
from tidegate.journal.reader import find_ids
from tidegate.journal.replay import replay
from tidegate.journal.store import JournalError, JournalFile
from tidegate.live.observed_history import observe, run_twin
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import FactKind

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
_NOW = {"gracePeriodSeconds": 0, "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}

_PLAIN = "version: 1\npolicy:\n  placement: bestfit\n"


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "tidegate.yaml"
    path.write_text(_PLAIN)
    return path


@pytest.fixture
def queues(tmp_path):
    path = tmp_path / "queues.yaml"
    path.write_text(one_queue(8))
    return path


def ours(name, gpus=1, **more):
    return pod(name, gpus, scheduler="tidegate", **more)


def queued(thing):
    thing["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return thing


def phases(plane):
    return sorted(one["status"].get("phase", "") for one in plane.admin.get(_PODS)["items"])


def all_done(plane, count):
    return phases(plane) == ["Succeeded"] * count


def holder(plane, name="tidegate"):
    return plane.admin.get(f"{_LEASES}/{name}")["spec"]["holderIdentity"]


def admissions(path):
    """Ids of workloads in the order in which they were placed, and the journal's replay."""
    file = JournalFile.open(path)
    ids = find_ids(file)
    placed = {}
    for step in file.steps():
        decisions = step.result.decisions
        for kind, number in zip(decisions.kind.tolist(), decisions.workload.tolist(), strict=True):
            if kind == DecisionKind.PLACE:
                placed.setdefault(ids[number])
    file.close()
    return list(placed)


def test_bind_runs_work_stops_gracefully_and_its_journal_replays(cluster, tmp_path, policy):
    cluster.admin.post(_PODS, ours("single", 4, runs="1s"))
    for number in range(2):
        cluster.admin.post(_PODS, ours(f"g-{number}", 4, runs="1s", group=("g", 2)))
    cluster.admin.post(_JOBS, job("shut", 2, 4, runs="1s", suspend=True, scheduler="tidegate"))
    with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(policy)) as replica:
        replica.wait(lambda: all_done(cluster, 5), "work that is done", 40)
        replica.wait(lambda: replica.metric("tidegate_writes_waiting") == 0, "writes that are over")
        assert replica.leads()
        assert replica.get("/readyz") == (200, "ok\n")
        assert replica.metric('tidegate_writes_total{outcome="failed"}') == 0
        assert replica.metric('kueue_admitted_workloads_total{cluster_queue="default"}') == 3
        assert replica.stop() == 0
    assert holder(cluster) == ""
    assert replica.events("stopped")
    file = JournalFile.open(replica.journal)
    again = replay(file.steps())
    assert again.difference is None
    assert again.steps == len(file) > 3
    assert file.meta()["mode"] == "bind"
    file.close()


def test_a_standby_takes_over_and_admits_in_the_same_order(cluster, tmp_path, queues):
    """The leader is killed between two admissions; quota lets one job run at a time."""

    def submit(first):
        for number in range(first, first + 4):
            cluster.admin.post(_JOBS, queued(job(f"j{number}", 1, 8, runs="2s", suspend=True, scheduler="tidegate")))

    options = ("--mode", "bind", "--policy", str(queues))
    submit(0)
    with Replica(cluster, tmp_path, "alone", *options, "--lease", "first") as replica:
        replica.wait(lambda: all_done(cluster, 4), "four jobs that are done", 60)
        assert replica.stop() == 0
    uninterrupted = admissions(replica.journal)
    cluster.admin.delete(_JOBS, _NOW)
    cluster.wait_for(lambda: not cluster.admin.get(_PODS)["items"])
    submit(0)
    with (
        Replica(cluster, tmp_path, "a", *options) as first,
        Replica(cluster, tmp_path, "b", *options) as second,
    ):
        first.wait(lambda: first.leads() or second.leads(), "a leader")
        leader, other = (first, second) if first.leads() else (second, first)
        leader.wait(lambda: "Running" in phases(cluster) and "Succeeded" in phases(cluster), "the second job")
        leader.kill()
        assert other.get("/readyz") == (200, "ok\n")
        assert not other.leads()
        other.wait(other.leads, "another leader")
        other.wait(lambda: all_done(cluster, 4), "four jobs that are done", 60)
        assert other.stop() == 0
    assert admissions(leader.journal) + admissions(other.journal) == uninterrupted
    assert never_above(cluster, 8)
    assert cluster.admin.get(f"{_LEASES}/tidegate")["spec"]["leaseTransitions"] == 1


def test_the_twin_has_the_same_order_and_the_same_waits(cluster, tmp_path, queues):
    """The twin, given what was submitted and how long it ran: who comes when, and how long everybody waits."""
    sizes = [8, 4, 2, 8, 4, 4, 6, 2]
    for number, gpus in enumerate(sizes):
        cluster.admin.post(_JOBS, queued(job(f"j{number}", 1, gpus, runs="3s", suspend=True, scheduler="tidegate")))
    with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(queues)) as replica:
        replica.wait(lambda: all_done(cluster, len(sizes)), "all jobs", 60)
        replica.wait(lambda: replica.metric('tidegate_facts_total{kind="WORKLOAD_FINISHED"}') == len(sizes), "ends")
        assert replica.stop() == 0
    file = JournalFile.open(replica.journal)
    observed = observe(file.steps())
    file.close()
    twin = run_twin(observed, as_seen=True)
    live = {seen.id: seen.proposed_ms - seen.seen_ms for seen in observed.work}
    again = {seen.id: twin.placed_ms[seen.number] - seen.seen_ms for seen in observed.work}
    assert (
        sorted(live, key=live.get) == sorted(again, key=again.get) == list(dict.fromkeys(admissions(replica.journal)))
    )
    assert sum(again.values()) == pytest.approx(sum(live.values()), rel=0.05)
    for name, waited_ms in live.items():
        assert again[name] == pytest.approx(waited_ms, rel=0.05, abs=100)


def never_above(plane, gpus):
    """Whether jobs that ran at the same time never had more GPUs than that, as the objects tell it."""
    times = []

    def started():
        return [one for one in plane.admin.get(_JOBS)["items"] if "startTime" in one["status"]]

    plane.wait_for(lambda: all("completionTime" in one["status"] for one in started()), what="the ends of all jobs")
    for one in started():
        each = one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        held = int(each) * one["spec"]["parallelism"]
        times += [(one["status"]["startTime"], held), (one["status"]["completionTime"], -held)]
    level = 0
    for _, change in sorted(times):
        level += change
        if level > gpus:
            return False
    return True


def test_a_policy_is_reloaded_and_a_bad_one_refused(cluster, tmp_path, queues):
    cluster.admin.post(_JOBS, queued(job("big", 2, 8, runs="1s", suspend=True, scheduler="tidegate")))
    with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(queues)) as replica:
        replica.wait(lambda: replica.metric('tidegate_decisions_total{kind="HOLD",reason="ABOVE_QUOTA"}'), "a HOLD")
        queues.write_text(one_queue("many"))
        replica.wait(lambda: replica.metric("tidegate_policy_refused"), "a refusal")
        (refused,) = replica.events("policy refused")
        assert "nominalQuota" in refused["error"]
        assert "queues.yaml:14" in refused["error"]
        replica.wait(lambda: said(cluster, "PolicyRefused"), "an event")
        queues.write_text(one_queue(16))
        replica.process.send_signal(signal.SIGHUP)
        replica.wait(lambda: all_done(cluster, 2), "the job", 40)
        assert replica.metric("tidegate_policy_refused") == 0
        assert replica.metric('tidegate_policy_loads_total{result="taken"}') == 2
        assert replica.stop() == 0
    file = JournalFile.open(replica.journal)
    assert len({step.policy for step in file.steps()}) == 2
    assert replay(file.steps()).difference is None
    file.close()


def said(plane, reason):
    events = plane.admin.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return any(event["reason"] == reason for event in events)


def test_the_api_server_may_restart(cluster, tmp_path, policy):
    with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(policy)) as replica:
        replica.wait(replica.leads, "a leader")
        cluster.restart(SERVER, kill=True, down_s=4)
        cluster.admin.post(_PODS, ours("after", 1, runs="1s"))
        replica.wait(lambda: all_done(cluster, 1), "the pod", 60)
        replica.wait(replica.leads, "it leads again, or never noticed that for a while it did not")
        assert replica.stop() == 0


def test_a_running_kueue_is_noticed(cluster, tmp_path, policy):
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": "kueue-0", "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
    meta = {"name": "c1f6bfd2.kueue.x-k8s.io"}
    cluster.admin.post(
        _LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
    )
    for mode in ("gate", "bind"):
        with Replica(cluster, tmp_path, mode, "--mode", mode, "--policy", str(policy)) as replica:
            assert replica.process.wait(30) == 3
            told = " ".join(replica.log.read_text().split())
            assert f"--mode {mode}: a Kueue runs here and owns the same work (Lease default/c1f6bfd2" in told
            assert "use --mode shadow" in told
    with Replica(cluster, tmp_path, "shadow", "--policy", str(policy)) as replica:
        replica.wait(replica.leads, "a leader")
        assert replica.events("running next to Kueue")
        assert replica.stop() == 0


def test_shadow_writes_nothing_but_its_lease(kube_programs, tmp_path):
    """On a cluster with Kueue's objects and another scheduler; the audit log has every request."""
    crds = shared("crds/kueue")
    with Plane(Options(build=False, audit=True)) as plane:
        install_kueue(plane, crds)
        plane.admin.post(_NODES, node("n0"))
        with Replica(plane, tmp_path, "s", "--policy", "kueue", "--lease", "default/shadow") as replica:
            replica.wait(replica.leads, "a leader")
            for number in range(3):
                plane.admin.post(_JOBS, queued(job(f"j{number}", 1, 4, runs="2s")))
            plane.admin.post(_PODS, queued(pod("alone", 4, runs="1s")))
            plane.admin.post(_PODS, pod("not-ours", 1, runs="1s"))
            replica.wait(lambda: all_done(plane, 5), "work that is done", 40)
            replica.wait(lambda: replica.metric('tidegate_facts_total{kind="WORKLOAD_FINISHED"}') == 4, "the ends")
            explained = call("explain", "j0", "--kubeconfig", str(plane.kubeconfig("tidegate")))
            assert explained.returncode == 2  # it is over, and the cluster says no more of it
            assert "no job 'j0' in this journal" in explained.stderr
            assert replica.stop() == 0
        lines = [line for line in plane.audited() if line["user"]["username"] == "tidegate"]
        written = {
            (line["verb"], line["objectRef"]["resource"], line["objectRef"].get("name", "shadow"))
            for line in lines
            if line["verb"] not in ("get", "list", "watch")
        }
        assert written == {("update", "leases", "shadow")}
        file = JournalFile.open(replica.journal)
        kinds = {int(kind) for step in file.steps() for kind in step.events.kind.tolist()}
        assert {FactKind.POD_BOUND, FactKind.POD_STARTED, FactKind.WORKLOAD_FINISHED} <= kinds
        assert replay(file.steps(), shadow=file.is_shadow).difference is None
        file.close()
    report = json.loads(call("shadow-report", str(replica.journal), "--json").stdout)
    assert (report["workloads"], report["started"], report["gpus"]) == (4, 4, 8)
    assert report["would_be_held"] >= 1  # quota is for one at a time, and the room for two
    reasons = {row["reason"] for row in report["differences"] if row["would"] == "held"}
    assert reasons
    assert reasons <= {"WAITS_FOR_QUOTA", "BEHIND_EQUAL"}
    assert report["twin"]["most_ms"] > report["happened"]["most_ms"]
    shown = call("shadow-report", str(replica.journal)).stdout
    assert "Started though Tidegate would have held it" in shown
    assert max(map(len, shown.splitlines())) <= 80


def call(*arguments):
    """A command of Tidegate."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


def test_explain_and_queues_look_at_the_cluster(cluster, queues):
    for number in range(2):
        cluster.admin.post(_JOBS, queued(job(f"j{number}", 1, 8, runs="300s", suspend=number > 0, scheduler="x")))
    name = cluster.wait_for(lambda: next(iter(cluster.admin.get(_PODS)["items"]), None))["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    cluster.admin.post(f"{_PODS}/{name}/binding", binding)
    where = ("--kubeconfig", str(cluster.kubeconfig("tidegate")), "--policy", str(queues), "--kernels", "plain")
    waits = json.loads(call("explain", "default/j1", *where, "--json").stdout)
    assert "is waiting" in waits["headline"]
    assert "its queue lacks 8 nvidia.com/gpu" in waits["headline"]
    runs = call("explain", "j0", *where).stdout
    assert "has held its place" in " ".join(runs.split())
    tree = json.loads(call("queues", *where, "--json").stdout)
    (queue,) = [branch for branch in tree["branches"] if branch["name"] == "q"]
    assert (queue["waiting"], queue["admitted"]) == (1, 1)


def test_gate_lets_work_start_and_the_clusters_scheduler_binds(kube_programs, tmp_path, queues):
    with Plane(Options(build=False, audit=True)) as plane:
        for number in range(2):
            plane.admin.post(_NODES, node(f"n{number}"))
        for number in range(3):
            plane.admin.post(_JOBS, queued(job(f"j{number}", 2, 4, runs="2s", suspend=True)))
        plane.admin.post(_JOBS, job("without-a-queue", 1, 1, runs="1s", suspend=True))
        with Replica(plane, tmp_path, "g", "--mode", "gate", "--policy", str(queues)) as replica:
            replica.wait(lambda: all_done(plane, 6), "work that is done", 60)
            assert replica.stop() == 0
        assert "startTime" not in plane.admin.get(f"{_JOBS}/without-a-queue")["status"]  # which nobody has touched
        assert never_above(plane, 8)
        written = {
            (line["verb"], line["objectRef"]["resource"], line["objectRef"].get("subresource", ""))
            for line in plane.audited()
            if line["user"]["username"] == "tidegate" and line["verb"] not in ("get", "list", "watch")
        }
        assert ("create", "pods", "binding") not in written
        assert ("patch", "jobs", "") in written


def install_kueue(plane, crds):
    """Kueue's kinds and a queue of four GPUs; its program does not run."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted(crds.glob("*.yaml")):
        for thing in yaml.safe_load_all(file.read_text()):
            if thing and thing["kind"] == "CustomResourceDefinition":
                thing["spec"].pop("conversion", None)
                plane.admin.post(path, thing)
    plurals = {"ResourceFlavor": "resourceflavors", "ClusterQueue": "clusterqueues", "LocalQueue": "localqueues"}
    for thing in yaml.safe_load_all(one_queue(4)):
        where = "namespaces/default/" if thing["kind"] == "LocalQueue" else ""
        path = f"/apis/kueue.x-k8s.io/v1beta1/{where}{plurals[thing['kind']]}"
        plane.wait_for(lambda path=path: plane.admin.is_up(path), what="Kueue's kinds")
        plane.admin.post(path, thing)


def sleeper(cluster, folder, proxy, *options):
    """A replica behind a proxy that stands still before it writes, while the file `stall` is in the folder."""
    replica = Replica(cluster, folder, "sleeper", *options)
    replica.command[replica.command.index("--kubeconfig") + 1] = str(proxy.kubeconfig())
    runner = str(Path(__file__).parent / "kubestall.py")
    replica.command = [sys.executable, runner, str(folder / "stall"), *replica.command[3:]]
    (folder / "stall").touch()
    return replica


def test_a_leader_that_slept_through_anothers_term_writes_nothing_of_what_it_decided(cluster, tmp_path, policy):
    """It decides, stands still, loses its Lease, another leads and binds, dies; and it leads again without knowing."""
    options = ("--mode", "bind", "--policy", str(policy))
    with Proxy(cluster) as proxy, sleeper(cluster, tmp_path, proxy, *options) as replica:
        replica.wait(replica.leads, "a leader")
        cluster.admin.post(_PODS, ours("p", 4, runs="1h"))
        replica.wait((tmp_path / "stall.reached").exists, "a decision")
        proxy.loses = "before"  # its Lease too
        with Replica(cluster, tmp_path, "other", *options) as other:
            other.wait(lambda: phases(cluster) == ["Running"], "a pod that another bound", 40)
            other.kill()
        proxy.calm()
        replica.wait(lambda: holder(cluster) == "sleeper", "the Lease once more", 40)
        (tmp_path / "stall").unlink()
        replica.wait(lambda: len(replica.events("leading")) == 2, "a second term", 40)
        assert replica.events("lost the lease")
        assert replica.stop() == 0
    assert bindings_tried(cluster, "p") == 1  # the other's; not refused, but never sent


def test_what_was_not_written_in_a_lapse_that_nobody_noticed_is_not_forgotten(cluster, tmp_path, policy):
    """The Lease lapses for a moment, just when it would write, and is its own again before it looks."""
    (tmp_path / "stall.after").touch()
    with (
        Proxy(cluster) as proxy,
        sleeper(cluster, tmp_path, proxy, "--mode", "bind", "--policy", str(policy)) as replica,
    ):
        replica.wait(replica.leads, "a leader")
        cluster.admin.post(_PODS, ours("p", 4, runs="1h"))
        replica.wait((tmp_path / "stall.reached").exists, "a decision")
        proxy.loses = "before"
        time.sleep(3)  # longer than it may lead without renewing, shorter than others have to wait
        (tmp_path / "stall").unlink()
        time.sleep(0.5)
        renewed = lease(cluster)["renewTime"]
        proxy.calm()
        replica.wait(lambda: lease(cluster)["renewTime"] != renewed, "the Lease once more")
        time.sleep(0.2)  # it knows
        (tmp_path / "stall.after").unlink()
        replica.wait(lambda: phases(cluster) == ["Running"], "a pod that is bound", 20)
        assert replica.stop() == 0


def lease(plane):
    return plane.admin.get(f"{_LEASES}/tidegate")["spec"]


def bindings_tried(plane, name):
    """How often the API server was asked to bind a pod, whatever it said."""
    return sum(
        line["objectRef"].get("subresource") == "binding" and line["objectRef"]["name"] == name
        for line in plane.audited()
        if line["verb"] == "create" and line["stage"] == "ResponseComplete"
    )


def test_kinds_that_it_may_not_read_are_left_out_and_told_of(cluster, tmp_path, policy):
    cluster.admin.post(_PODS, ours("p", 4, runs="1s"))
    with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(policy), user="narrow") as replica:
        replica.wait(lambda: all_done(cluster, 1), "a pod that is done", 40)
        assert replica.get("/readyz") == (200, "ok\n")
        why = {line["resource"]: line["why"] for line in replica.events("left out")}
        assert why["statefulsets.apps"].startswith("StatefulSet is left out: 403 Forbidden")
        assert why["statefulsets.apps"].endswith("grant get, list and watch on statefulsets.apps")
        assert "pods" not in why
        assert replica.metric('tidegate_kind_left_out{resource="statefulsets.apps"}') == 1
        assert replica.metric('tidegate_kind_left_out{resource="pods"}') == 0
        cluster.admin.post(_JOBS, job("shut", 1, 1, runs="1s", suspend=True, scheduler="tidegate"))
        replica.wait(lambda: failed_writes(replica, "start"), "word of what may not be written", 30)
        failed = failed_writes(replica, "start")[0]
        assert failed["object"] == "default/job.batch/shut"
        assert failed["message"].startswith("403 Forbidden")
        assert 'cannot patch resource "jobs"' in failed["message"]
        assert replica.stop() == 0


def failed_writes(replica, kind):
    return [line for line in replica.events("write failed") if line["write"] == kind]


def test_a_shadow_follows_the_work_that_its_policy_is_about_also_after_a_reload(cluster, tmp_path, queues):
    """Without queues all work is followed; with queues what names one."""
    cluster.admin.post(_PODS, pod("free", 1))
    cluster.admin.post(_PODS, queued(pod("named", 1)))
    source = tmp_path / "source"
    source.mkdir()
    file = source / "queues.yaml"
    file.write_text(queues.read_text().partition("---")[0])  # a flavor, and no queue
    with Replica(cluster, tmp_path, "a", "--policy", str(source)) as replica:
        replica.wait(lambda: replica.events("leading"), "a leader")
        replica.wait(lambda: {"default/pod/free", "default/pod/named"} <= submitted(replica.journal), "all work")
        file.write_text(queues.read_text())
        replica.wait(lambda: len(replica.events("leading")) == 2, "a second look")
        replica.wait(lambda: submitted(replica.journal) == {"default/pod/named"}, "work with a queue")
        assert replica.events("listing the cluster again")
        assert replica.leads()
        assert not replica.events("lost the lease")
        assert replica.stop() == 0


def submitted(path):
    """Ids of all work that a journal knows, so far; one that is just being made knows nothing."""
    try:
        file = JournalFile.open(path)
    except JournalError:
        return set()
    try:
        return {name for step in file.steps() for name in step.events.submissions.ids}
    finally:
        file.close()
