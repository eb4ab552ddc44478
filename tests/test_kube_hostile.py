"""What nobody sane would submit, on a real control plane: it gets a reason, nothing crashes, and nobody else waits."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time

import pytest

from kubebench import ApiError, job, node, pod
from kubelive import Live, wall_ms
from tidegate.state.check import check

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"

#: How long work that asks for nothing odd may take to be bound beside what does.
_PROMPT_S = 10


def ours(name, gpus=1, **more):
    return pod(name, gpus, scheduler="tidegate", **more)


def is_bound(plane, name):
    return "nodeName" in plane.admin.get(f"{_PODS}/{name}")["spec"]


def bind_promptly(cluster, live, name="plain"):
    """Others must not notice."""
    cluster.admin.post(_PODS, ours(name, 1))
    live.until(lambda: is_bound(cluster, name), most_s=_PROMPT_S, what="work that asks for nothing odd")


def reasons(cluster, name):
    return {
        one["reason"]: one["note"] for one in cluster.admin.get(_EVENTS)["items"] if one["regarding"]["name"] == name
    }


def test_a_node_with_a_billion_gpus(cluster):
    cluster.admin.post(_NODES, node("vast", 10**9))
    cluster.admin.post(_PODS, ours("greedy", 10**9))
    with Live.on(cluster) as live:
        bind_promptly(cluster, live)
        for number in range(3):
            cluster.admin.post(_PODS, ours(f"full-{number}", 8))
        live.until(lambda: all(is_bound(cluster, f"full-{number}") for number in range(3)))
        live.until(lambda: _scheduled(cluster, "greedy"), what="a reason")
        assert not is_bound(cluster, "greedy")


def _scheduled(cluster, name):
    conditions = cluster.admin.get(f"{_PODS}/{name}")["status"].get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "PodScheduled"), "")


def test_a_job_with_a_million_pods_has_a_reason(cluster):
    cluster.admin.post(_JOBS, job("huge", 10**6, suspend=True, scheduler="tidegate"))
    with Live.on(cluster) as live:
        bind_promptly(cluster, live)
        live.until(lambda: reasons(cluster, "huge"), what="an event")
    assert "asks for 1,000,000 pods, at most 100,000" in reasons(cluster, "huge")["NotSupported"]
    assert cluster.admin.get(f"{_JOBS}/huge")["spec"]["suspend"] is True


def test_a_job_as_large_as_it_may_be_delays_nobody(cluster):
    cluster.admin.post(_JOBS, job("large", 100_000, suspend=True, scheduler="tidegate"))
    with Live.on(cluster) as live:
        live.until(lambda: len(live.state.live_workloads()), most_s=_PROMPT_S)
        bind_promptly(cluster, live)
        live.until(lambda: reasons(cluster, "large"), what="an event")
    assert reasons(cluster, "large")["Pending"].endswith(("(GangPartial)", "(LacksGpu)"))


def test_labels_and_annotations_at_their_limits(cluster):
    labels = {f"{'p' * 60}.{'q' * 60}.example/{'k' * 59}{number:04d}": "v" * 63 for number in range(300)}
    odd = ours("labelled")
    odd["metadata"]["labels"] |= labels
    odd["metadata"]["annotations"]["note"] = "n" * 200_000
    cluster.admin.post(_PODS, odd)
    for number in range(20):
        cluster.admin.post(_NODES, node(f"tagged-{number:02d}", labels=labels))
    with Live.on(cluster) as live:
        bind_promptly(cluster, live)
        live.until(lambda: is_bound(cluster, "labelled"))


def test_names_at_their_limits(cluster):
    longest = "j" * 63
    cluster.admin.post(_JOBS, job(longest, 1, 9, suspend=True, scheduler="tidegate"))
    cluster.admin.post(_PODS, ours("p" * 253, 1, group=("g" * 63, 1)))
    with Live.on(cluster) as live:
        live.until(lambda: is_bound(cluster, "p" * 253) and reasons(cluster, longest))


@pytest.mark.parametrize(
    "amounts",
    [
        {"nvidia.com/gpu": str(2**62)},
        {"cpu": "1n", "memory": "1"},
        {"cpu": "9223372036854775807", "memory": "8Ei"},
        {"example.com/odd": "9223372036854775807"},
    ],
)
def test_amounts_at_their_limits(cluster, amounts):
    odd = ours("odd", 0)
    odd["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    cluster.admin.post(_PODS, odd)
    with Live.on(cluster) as live:
        bind_promptly(cluster, live)
        live.until(lambda: is_bound(cluster, "odd") or _scheduled(cluster, "odd"), what="a place or a reason")


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_two_hours_off(cluster, hours):
    cluster.admin.post(_JOBS, job("timed", 2, 4, suspend=True, scheduler="tidegate"))
    with Live(cluster.kubeconfig("tidegate"), clock=lambda: wall_ms() + hours * 3_600_000) as live:
        bind_promptly(cluster, live)
        live.until(lambda: _is_complete(cluster, "timed"))


def test_a_clock_that_jumps_to_and_fro(cluster):
    began = time.monotonic()

    def clock():
        return wall_ms() + (7_200_000 if int((time.monotonic() - began) * 4) % 2 else -7_200_000)

    for number in range(4):
        cluster.admin.post(_PODS, ours(f"p{number}", 8, runs="1s"))
    with Live(cluster.kubeconfig("tidegate"), clock=clock) as live:
        live.until(lambda: all(one["status"]["phase"] == "Succeeded" for one in cluster.admin.get(_PODS)["items"]))
    times = [now_ms for now_ms, _, _ in live.steps.kept]
    assert times == sorted(times)


def _is_complete(cluster, name):
    found = cluster.admin.get(f"{_JOBS}/{name}")["status"].get("conditions", [])
    return any(one["type"] == "Complete" for one in found)


def _change(api, draw, number):
    name = f"shifty-{number % 7}"
    path = f"{_JOBS}/{name}"
    kind = draw.randrange(7)
    if kind == 0:
        api.post(_JOBS, job(name, draw.randint(1, 3), 2, suspend=True, scheduler="tidegate"))
    elif kind == 1:
        api.patch(path, {"spec": {"suspend": draw.random() < 0.5}})
    elif kind == 2:
        api.patch(path, {"spec": {"parallelism": draw.randint(0, 4)}})
    elif kind == 3:
        api.patch(path, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    elif kind == 4:
        api.delete(path, {"propagationPolicy": "Background"})
    elif kind == 5:
        api.patch(f"{_NODES}/n1", {"spec": {"unschedulable": draw.random() < 0.5}})
    elif number % 40 == 0:
        api.delete(_PODS, {"gracePeriodSeconds": 0})


def test_objects_that_change_under_us(cluster):
    """Somebody suspends, resizes, relabels and deletes at random while we decide; what is left alone still runs."""
    draw, stop = random.Random(6), threading.Event()
    api = cluster.api("admin")

    def meddle():
        for number in itertools.count():
            if stop.is_set():
                return
            with contextlib.suppress(ApiError):
                _change(api, draw, number)
            time.sleep(0.01)

    meddler = threading.Thread(target=meddle)
    with Live.on(cluster) as live:
        meddler.start()
        try:
            end = time.monotonic() + 8
            live.until(lambda: check(live.state) or time.monotonic() > end, most_s=30)
        finally:
            stop.set()
            meddler.join()
        cluster.admin.patch(f"{_NODES}/n1", {"spec": {"unschedulable": False}})
        cluster.admin.post(_JOBS, job("steady", 2, 4, runs="1s", suspend=True, scheduler="tidegate"))
        live.until(lambda: _is_complete(cluster, "steady"), most_s=40, what="a job that nobody touches")
