"""StatefulSets that are scaled while Tidegate admits them: to none, and to more than before."""

from __future__ import annotations

import pytest

from kubebench import Options, Plane, node
from kubebench.objects import pod_spec
from kubequeues import one_queue
from kubereplica import Replica
from tidegate.kube.mirror.job_patch import GATE
from tidegate.manifests.label_names import QUEUE

_PODS, _SETS = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/statefulsets"
_USAGE = 'kueue_cluster_queue_resource_usage{cluster_queue="q",cohort="",flavor="any",resource="nvidia.com/gpu"}'


@pytest.fixture(scope="module")
def plane(kube_programs):
    controllers = f"{Options().controllers},statefulset-controller"
    with Plane(Options(build=False, controllers=controllers)) as plane:
        plane.admin.post("/api/v1/nodes", node("n0"))
        yield plane


def stateful_set(name, replicas, scheduler):
    spec = {**pod_spec(2, scheduler=scheduler), "restartPolicy": "Always", "schedulingGates": [{"name": GATE}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {QUEUE: "team"}},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, QUEUE: "team"}}, "spec": spec},
        },
    }


@pytest.mark.parametrize("mode", ["gate", "bind"])
def test_a_set_that_is_scaled_to_none_gives_back_its_quota_and_grows_when_it_is_scaled_up(plane, tmp_path, mode):
    policy = tmp_path / "queues.yaml"
    policy.write_text(one_queue(8))

    def running():
        pods = plane.admin.get(_PODS)["items"]
        return sum(one["status"].get("phase") == "Running" for one in pods)

    def scale(replicas):
        plane.admin.patch(f"{_SETS}/serve", {"spec": {"replicas": replicas}})

    with Replica(plane, tmp_path, "a", "--mode", mode, "--policy", str(policy)) as replica:
        plane.admin.post(_SETS, stateful_set("serve", 2, "tidegate" if mode == "bind" else ""))
        replica.wait(lambda: running() == 2 and replica.metric(_USAGE) == 4, "two pods run")
        scale(0)
        replica.wait(lambda: replica.metric(_USAGE) == 0, "no quota is held")
        scale(4)
        replica.wait(lambda: running() == 4 and replica.metric(_USAGE) == 8, "four pods run")
    plane.clear(_SETS, _PODS)
