"""The whole loop on a real control plane: work comes, is placed, bound, run and finished."""

from __future__ import annotations

from collections import Counter

from kubebench import job, pod
from kubebench.plane import SERVER
from kubelive import Live
from tidegate.engine.step import step
from tidegate.model.facts import FactKind, WriteOutcome
from tidegate.state.cluster import ClusterState

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"


def pods(plane):
    return {one["metadata"]["name"]: one for one in plane.admin.get(_PODS)["items"]}


def places(plane):
    return Counter(one["spec"].get("nodeName") for one in pods(plane).values())


def ours(name, gpus=1, **more):
    return pod(name, gpus, scheduler="tidegate", **more)


def is_complete(plane, *names):
    conditions = [plane.admin.get(f"{_JOBS}/{name}")["status"].get("conditions", []) for name in names]
    return all(any(one["type"] == "Complete" for one in found) for found in conditions)


def told(live):
    return Counter(FactKind(kind).name for _, events, _ in live.steps.kept for kind in events.kind.tolist())


def test_pods_groups_and_jobs_run_and_finish(cluster):
    cluster.admin.post(_PODS, ours("single", 2, runs="1s"))
    for number in range(4):
        cluster.admin.post(_PODS, ours(f"g-{number}", 2, runs="1s", group=("g", 4)))
    cluster.admin.post(_JOBS, job("open", 2, 2, runs="1s", scheduler="tidegate"))
    cluster.admin.post(_JOBS, job("shut", 4, 2, runs="1s", suspend=True, scheduler="tidegate"))
    with Live.on(cluster) as live:
        live.until(
            lambda: (
                is_complete(cluster, "open", "shut")
                and {one["status"]["phase"] for one in pods(cluster).values()} == {"Succeeded"}
                and not len(live.state.live_workloads())
            ),
            most_s=40,
        )
    assert live.world.outcomes[WriteOutcome.FAILED] == live.world.outcomes[WriteOutcome.UNKNOWN] == 0
    assert sum(places(cluster).values()) == 11
    counted = told(live)
    assert counted["WORKLOAD_SUBMITTED"] == counted["WORKLOAD_FINISHED"] == 4
    assert counted["POD_BOUND"] == 11


def test_work_waits_for_room_and_never_shares_a_gpu(cluster):
    for number in range(6):
        cluster.admin.post(_PODS, ours(f"p{number}", 8, runs="1s"))
    most = 0

    def done():
        nonlocal most
        there = [one for one in pods(cluster).values() if one["status"]["phase"] != "Succeeded"]
        running = Counter(one["spec"]["nodeName"] for one in there if "nodeName" in one["spec"])
        most = max([most, *running.values()])
        return all(one["status"]["phase"] == "Succeeded" for one in pods(cluster).values())

    with Live.on(cluster) as live:
        live.until(done, most_s=40)
    assert most == 1


def test_foreign_pods_take_up_room(cluster):
    for number in range(2):
        cluster.admin.post(_PODS, pod(f"theirs-{number}", 8, nodeName=f"n{number}"))
    with Live.on(cluster) as live:
        cluster.admin.post(_PODS, ours("mine", 8, runs="1s"))
        live.until(lambda: len(live.steps.kept) > 3 and told(live)["WORKLOAD_SUBMITTED"])
        assert "nodeName" not in pods(cluster)["mine"]["spec"]
        cluster.admin.delete(f"{_PODS}/theirs-1")
        live.until(lambda: pods(cluster)["mine"]["spec"].get("nodeName") == "n1")


def test_a_pod_is_told_why_it_waits(cluster):
    cluster.admin.post(_PODS, ours("big", 9))
    cluster.admin.post(_PODS, ours("claims", 1, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))

    def reason(name):
        conditions = pods(cluster)[name]["status"].get("conditions", [])
        return next((one["reason"] for one in conditions if one["type"] == "PodScheduled"), None)

    with Live.on(cluster) as live:
        live.until(lambda: reason("big") and reason("claims"))
    assert (reason("big"), reason("claims")) == ("PodTooLarge", "NotSupported")


def test_a_lost_node_suspends_the_job_which_comes_back_elsewhere(cluster):
    cluster.admin.post(_JOBS, job("j", 1, 8, runs="3s", suspend=True, scheduler="tidegate"))
    with Live.on(cluster) as live:
        live.until(lambda: sum(count for name, count in places(cluster).items() if name))
        (lost,) = places(cluster)
        cluster.admin.delete(f"{_NODES}/{lost}")
        live.until(lambda: cluster.admin.get(f"{_JOBS}/j")["spec"]["suspend"] is True, what="the suspension")
        for name in pods(cluster):  # as the controllers that we do not run would
            cluster.admin.delete(f"{_PODS}/{name}", {"gracePeriodSeconds": 0})
        live.until(lambda: is_complete(cluster, "j"), most_s=40)
    assert lost not in places(cluster)


def test_who_takes_over_decides_nothing_that_is_decided(cluster):
    cluster.admin.post(_JOBS, job("j", 2, 4, runs="", scheduler="tidegate"))
    for number in range(2):
        cluster.admin.post(_PODS, ours(f"g-{number}", 4, group=("g", 2)))
    with Live.on(cluster) as first:
        first.until(lambda: None not in places(cluster) and sum(places(cluster).values()) == 4)
    before = places(cluster)
    with Live.on(cluster) as second:
        second.until(lambda: len(second.steps.kept) > 3)
        assert [len(result.decisions.id) for _, _, result in second.steps.kept] == [0] * len(second.steps.kept)
        cluster.admin.post(_PODS, ours("more", 1))
        second.until(lambda: told(second)["WORKLOAD_SUBMITTED"] == 3)
    assert places(cluster) == before + Counter([None])


def test_a_server_that_is_killed_in_between_costs_nothing(cluster):
    with Live.on(cluster) as live:
        live.until(lambda: live.steps.kept)
        for number in range(8):
            cluster.admin.post(_PODS, ours(f"p{number}", 1))
        cluster.processes[SERVER].stop(kill=True)
        steps = len(live.steps.kept)
        live.until(lambda: len(live.steps.kept) > steps + 3)
        cluster.processes[SERVER].start()
        cluster.processes[SERVER].wait_until(cluster.admin.is_up, 60)
        live.until(lambda: None not in places(cluster) and sum(places(cluster).values()) == 8, most_s=60)


def test_what_was_recorded_replays_to_the_same_decisions(cluster):
    for number in range(5):
        cluster.admin.post(_PODS, ours(f"p{number}", 4, runs="1s"))
    with Live.on(cluster) as live:
        live.until(lambda: all(one["status"]["phase"] == "Succeeded" for one in pods(cluster).values()), most_s=40)
    again = ClusterState()
    for now_ms, events, result in live.steps.kept:
        assert step(again, events, now_ms).decisions.id.tolist() == result.decisions.id.tolist()
    assert again.digest() == live.state.digest()


def test_we_touch_nothing_but_what_we_own(cluster):
    """All writes so far, as the server noted them: bindings, suspending jobs, and saying why."""
    written = {
        (line["verb"], line["objectRef"]["resource"], line["objectRef"].get("subresource", ""))
        for line in cluster.audited()
        if line["user"]["username"] == "tidegate" and line["verb"] not in ("get", "list", "watch")
    }
    own = {("create", "pods", "binding"), ("patch", "jobs", ""), ("patch", "pods", "status"), ("create", "events", "")}
    assert written <= own
