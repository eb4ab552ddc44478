"""Work that is held for its queue and that bind mode never starts, as it names no scheduler of ours."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, job, node, pod
from kubepaper import QUEUES, paper, queued
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.kube.mirror.job_patch import GATE

_PODS, _JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
_EVENTS = "/api/v1/namespaces/default/events"
_GATED = {"schedulingGates": [{"name": GATE}]}


@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_in_bind_mode_held_work_of_the_usual_scheduler_is_refused_by_name(scheduler):
    cluster = paper(policy=QUEUES)
    cluster.put(queued(job("j", 1, suspend=True, scheduler=scheduler)))
    cluster.put(queued(pod("p", 1, scheduler=scheduler, **_GATED)))
    assert cluster.step() == []
    assert sorted(cluster.reconciler.refused) == ["job/j", "pod/p"]
    assert "write schedulerName: tidegate" in cluster.reconciler.refused["job/j"][0]
    cluster.change("job/j", spec__suspend=False)
    cluster.remove("pod/p")
    assert not cluster.reconciler.refused


@pytest.mark.parametrize(
    ("thing", "ownership"),
    [
        (queued(job("j", 1, suspend=True, scheduler="another")), {}),
        (queued(pod("p", 1, scheduler="another", **_GATED)), {}),
        (job("j", 1, suspend=True), {}),
        (queued(job("j", 1)), {}),
        (queued(pod("p", 1)), {}),
        (queued(job("j", 1, suspend=True)), {"gates": True}),
        (queued(pod("p", 1, **_GATED)), {"watches": True}),
    ],
)
def test_work_that_others_start_is_not_refused(thing, ownership):
    cluster = paper(policy=QUEUES, **ownership)
    cluster.put(thing)
    assert not cluster.reconciler.refused


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False)) as plane:
        plane.admin.post("/api/v1/nodes", node("n0"))
        yield plane


def test_its_owner_is_told_what_to_write(plane, tmp_path):
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(8))
    with Replica(plane, tmp_path, "a", "--mode", "bind", "--policy", str(policy)) as replica:
        plane.admin.post(_JOBS, queued(job("forgot", 1, suspend=True)))
        plane.admin.post(_PODS, queued(pod("forgot", 1, **_GATED)))

        def told():
            events = plane.admin.get(_EVENTS)["items"]
            kinds = {one["involvedObject"]["kind"] for one in events if "schedulerName: tidegate" in one["message"]}
            return kinds == {"Job", "Pod"}

        replica.wait(told, "an Event for each")
        replica.wait(lambda: replica.metric("tidegate_refused_objects") == 2, "both are counted")
    plane.clear(_JOBS, _PODS)
