"""`tidegate run` as processes on a real control plane: what an operator has to be able to rely on.

Threads that end, instances that manage the same work, outages, the start, and what signals make it say.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

from kubebench import Options, Plane, node
from kubebench.plane import SERVER
from kubeproxy import Proxy
from kubequeues import one_queue
from kubereplica import Replica
from shared import shared
from test_live_run import all_done, holder, install_kueue, ours, said

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "tidegate.yaml"
    path.write_text("version: 1\npolicy:\n  placement: bestfit\n")
    return path


def breaking(cluster, folder, part, name, *options):
    """A replica of which a thread breaks once the file `break` is in the folder."""
    replica = Replica(cluster, folder, name, *options)
    runner = str(Path(__file__).parent / "kubebreak.py")
    replica.command = [sys.executable, runner, str(folder / "break"), part, *replica.command[3:]]
    return replica


@pytest.mark.parametrize("part", ["lease", "policy", "watch"])
def test_a_thread_that_ends_ends_the_leader_and_the_standby_within_ten_seconds(cluster, tmp_path, policy, part):
    options = ("--mode", "bind", "--policy", str(policy))
    with (
        breaking(cluster, tmp_path, part, "a", *options) as first,
        breaking(cluster, tmp_path, part, "b", *options) as second,
    ):
        first.wait(lambda: first.leads() or second.leads(), "a leader")
        first.wait(lambda: first.get("/readyz")[0] == second.get("/readyz")[0] == 200, "two that are ready")
        (tmp_path / "break").touch()
        cluster.admin.post(_PODS, ours("p", 1))  # something that is watched
        for replica in (first, second):
            assert replica.process.wait(10) == 70
            (bug,) = replica.events("bug")
            assert "a bug" in bug["trace"]


def test_two_instances_under_different_leases_do_not_manage_the_same_pods(cluster, tmp_path, policy):
    """As when one is installed and another is started by hand, with the namespace of a kubeconfig."""
    options = ("--mode", "bind", "--policy", str(policy))
    with Replica(cluster, tmp_path, "installed", *options, "--lease", "installed") as first:
        first.wait(first.leads, "a leader")
        with (
            Replica(cluster, tmp_path, "by-hand", *options, "--lease", "by-hand") as second,
            Replica(cluster, tmp_path, "shadow", "--policy", str(policy), "--lease", "shadow") as shadow,
        ):
            second.wait(lambda: second.events("refusing to lead"), "a refusal")
            (refusal,) = second.events("refusing to lead")
            assert "the instance of Lease default/installed (bind, schedulerName tidegate; " in refusal["conflict"]
            assert "stop one of them, or run this one with --mode shadow" in refusal["conflict"]
            second.wait(lambda: "manages the same work" in second.get("/readyz")[1], "a probe that says why")
            assert second.get("/readyz")[0] == 503
            assert second.get("/healthz")[0] == 200
            assert second.metric("tidegate_scope_conflict") == 1
            second.wait(lambda: said(cluster, "ScopeConflict"), "an event")
            cluster.admin.post(_PODS, ours("p", 4, runs="1s"))
            first.wait(lambda: all_done(cluster, 1), "a pod that is done")
            assert not second.leads()
            shadow.wait(shadow.leads, "a shadow that leads")
            assert not second.events("leading")
            assert first.leads()
            assert first.stop() == 0
            second.wait(second.leads, "the other one, once the claim has lapsed")
            second.wait(lambda: second.metric("tidegate_scope_conflict") == 0, "no conflict")
            assert second.stop() == 0
    assert not first.events("refusing to lead")
    assert not shadow.events("refusing to lead")


def test_an_outage_of_the_api_server_is_not_called_a_bad_policy(cluster, tmp_path):
    config_map = {"metadata": {"name": "policy"}, "data": {"queues.yaml": one_queue(8)}}
    path = "/api/v1/namespaces/default/configmaps"
    cluster.admin.post(path, config_map)
    try:
        with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", "configmap:default/policy") as replica:
            replica.wait(replica.leads, "a leader")
            cluster.restart(SERVER, kill=True, down_s=15)
            replica.wait(lambda: replica.events("policy reachable again"), "the server", 40)
            (outage,) = replica.events("policy unreachable")
            assert "configmap:default/policy: " in outage["error"]
            assert not replica.events("policy refused")
            assert replica.metric("tidegate_policy_refused") == 0
            assert replica.metric("tidegate_policy_unreachable") == 0
            assert replica.metric('tidegate_policy_loads_total{result="unreachable"}') == 1
            cluster.admin.patch(f"{path}/policy", {"data": {"queues.yaml": one_queue("many")}})
            replica.wait(lambda: replica.events("policy refused"), "a refusal")
            assert replica.stop() == 0
    finally:
        cluster.admin.delete(f"{path}/policy")


def test_policy_objects_are_watched_and_not_listed_again_and_again(kube_programs, tmp_path):
    crds = shared("crds/kueue")
    with Plane(Options(build=False, audit=True)) as plane:
        install_kueue(plane, crds)
        with Replica(plane, tmp_path, "s", "--policy", "kueue") as replica:
            replica.wait(replica.leads, "a leader")
            time.sleep(3)
            since = len(plane.audited())
            time.sleep(3)
            lists = [line for line in plane.audited()[since:] if line["verb"] == "list"]
            assert not [line["objectRef"]["resource"] for line in lists if line["user"]["username"] == "tidegate"]
            quota = plane.admin.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/q")
            quota["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "6"
            plane.admin.request("PUT", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/q", quota)
            replica.wait(lambda: len(replica.events("policy")) == 2, "another policy", 10)
            assert replica.stop() == 0


_SLOW_COMPILER = """
import sys, time
from tidegate.live import kernel_warmup
def compile_first(tell):
    for done in range(70):
        tell(done, 70)
        time.sleep(0.1)
    return True
kernel_warmup.compile_first, kernel_warmup.warm_up = compile_first, lambda policy, compiled: None
from tidegate.cli.main import app
app(sys.argv[1:])
"""


def test_probes_are_answered_and_progress_is_logged_while_kernels_are_compiled(cluster, tmp_path, policy):
    replica = Replica(cluster, tmp_path, "a", "--policy", str(policy), "--kernels", "compiled")
    replica.command = [sys.executable, "-c", _SLOW_COMPILER, *replica.command[3:]]
    with replica:
        replica.wait(lambda: replica.get("/readyz")[1].startswith("compiling kernels: "), "compiling", 20)
        assert replica.get("/readyz")[0] == 503
        assert replica.get("/healthz") == (200, "ok\n")
        replica.process.send_signal(signal.SIGUSR1)
        replica.wait(lambda: replica.events("state"), "a dump while it starts")
        assert replica.events("state")[0]["starting"].startswith("compiling kernels: ")
        replica.wait(lambda: replica.get("/readyz")[0] == 200, "a replica that is ready", 30)
        (first, second) = replica.events("compiling kernels")
        assert first["done"] < second["done"] < second["total"] == 70
        assert replica.stop() == 0


def test_signals_dump_threads_and_state_and_change_the_log_level(cluster, tmp_path, policy):
    with Replica(cluster, tmp_path, "a", "--mode", "bind", "--policy", str(policy)) as replica:
        replica.wait(lambda: replica.metric('tidegate_facts_total{kind="NODE_ADDED"}') == 2, "a leader")
        replica.process.send_signal(signal.SIGUSR1)
        replica.wait(lambda: replica.events("state"), "a dump")
        (state,) = replica.events("state")
        assert (state["mode"], state["leads"], state["holder"], state["nodes"]) == ("bind", True, "a", 2)
        assert state["alive"] == state["watches"] == []
        threads = {line["name"] for line in replica.events("thread")}
        assert {"MainThread", "tidegate-kube", "tidegate-lease", "tidegate-policy", "tidegate-http"} <= threads
        assert not [line for line in replica.events() if line["level"] == "debug"]
        replica.process.send_signal(signal.SIGUSR2)
        replica.wait(lambda: replica.events("log level changed"), "another level")
        cluster.admin.post(_NODES, node("n2"))
        replica.wait(lambda: [line for line in replica.events() if line["level"] == "debug"], "debug lines")
        assert replica.stop() == 0


def proxied(cluster, folder, proxy, *options):
    replica = Replica(cluster, folder, "a", *options)
    replica.command[replica.command.index("--kubeconfig") + 1] = str(proxy.kubeconfig())
    return replica


@pytest.mark.parametrize("answered", [True, False])
def test_the_lease_is_given_back_only_when_no_write_is_in_flight(cluster, tmp_path, policy, answered):
    """A binding is on its way when it is to end: it is waited for, and if it is never answered the Lease expires."""
    with (
        Proxy(cluster) as proxy,
        proxied(cluster, tmp_path, proxy, "--mode", "bind", "--policy", str(policy)) as replica,
    ):
        replica.wait(replica.leads, "a leader")
        proxy.stalls = True
        cluster.admin.post(_PODS, ours("p", 4, runs="1h"))
        replica.wait(lambda: proxy.stalled, "a write in flight")
        replica.process.send_signal(signal.SIGTERM)
        time.sleep(3)
        assert replica.process.poll() is None
        assert holder(cluster) == "a"  # nobody else may lead yet
        if answered:
            proxy.calm()
        assert replica.process.wait(30) == 0
        assert holder(cluster) == ("" if answered else "a")
        assert bool(replica.events("stopped with writes in flight")) is not answered


def test_a_bug_does_not_hand_the_lease_over_while_a_write_is_in_flight(cluster, tmp_path, policy):
    options = ("--mode", "bind", "--policy", str(policy))
    replica = breaking(cluster, tmp_path, "policy", "a", *options)
    with Proxy(cluster) as proxy:
        replica.command[replica.command.index("--kubeconfig") + 1] = str(proxy.kubeconfig())
        with replica:
            replica.wait(replica.leads, "a leader")
            proxy.stalls = True
            cluster.admin.post(_PODS, ours("p", 4, runs="1h"))
            replica.wait(lambda: proxy.stalled, "a write in flight")
            (tmp_path / "break").touch()
            assert replica.process.wait(15) == 70
            assert holder(cluster) == "a"


_IMPATIENT = """
import sys
from tidegate.live.policy_watcher import PolicyWatcher
PolicyWatcher.first.__defaults__ = (2.0,)
from tidegate.cli.main import app
app(sys.argv[1:])
"""


def test_an_api_server_that_is_down_at_the_start_is_not_wrong_input(cluster, tmp_path):
    replica = Replica(cluster, tmp_path, "a", "--policy", "configmap:default/policy")
    config = yaml.safe_load(cluster.kubeconfig("tidegate").read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    replica.command[replica.command.index("--kubeconfig") + 1] = str(tmp_path / "config")
    replica.command = [sys.executable, "-c", _IMPATIENT, *replica.command[3:]]
    with replica:
        replica.wait(lambda: replica.get("/readyz") == (503, "reading the policy\n"), "a probe", 20)
        assert replica.process.wait(20) == 69
    assert "it may be valid: check the API server" in " ".join(replica.log.read_text().split())
