"""Objects as tests write them: nodes with GPUs, pods that ask for them, jobs.

Must not know: who schedules them.
"""

from __future__ import annotations

from typing import Any

#: How long the pod runs; see stages.yaml.
RUNTIME = "tidegate.io/runtime"


def node(name: str, gpus: int = 8, *, labels: dict[str, str] | None = None, **more: str) -> dict[str, Any]:
    """A node with GPUs under a device plugin; `more` resources by name."""
    room = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus), **more}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"capacity": room, "allocatable": room},
    }


def pod_spec(gpus: int = 1, *, scheduler: str = "", cpu: str = "1", **more: Any) -> dict[str, Any]:
    """The spec of a pod that asks for GPUs."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "work", "resources": {"requests": {"cpu": cpu, **limits}, "limits": limits}}
    named = {"schedulerName": scheduler} if scheduler else {}
    return {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **named, **more}


def pod(
    name: str, gpus: int = 1, *, runs: str = "", group: tuple[str, int] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod; `runs` is how long ("3s", empty: until it is deleted), `group` its pod group with the number of pods."""
    labels, annotations = {}, {RUNTIME: runs} if runs else {}
    if group:
        labels["kueue.x-k8s.io/pod-group-name"] = group[0]
        annotations["kueue.x-k8s.io/pod-group-total-count"] = str(group[1])
    meta = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(gpus, **spec)}


def job(name: str, pods: int, gpus: int = 1, *, runs: str = "1s", suspend: bool = False, **spec: Any) -> dict[str, Any]:
    """A Job whose pods all run at once."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "suspend": suspend,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {RUNTIME: runs} if runs else {}},
                "spec": pod_spec(gpus, **spec),
            },
        },
    }
