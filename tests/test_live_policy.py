"""A policy as a cluster enforces it: quota by the names of pods, queues by LocalQueues; what cannot be is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubebench.objects import job, node
from kubepaper import Paper, ours
from tidegate.live.policy_sources import ConfigMap, PolicyContent, PolicyError, PolicyFile
from tidegate.manifests.label_names import QUEUE
from tidegate.model.policy import Policy

GPU = "nvidia.com/gpu"


def read(tmp_path: Path, policy: str) -> Policy:
    path = tmp_path / "tidegate.yaml"
    path.write_text(f"version: 1\npolicy:\n{policy}")
    return PolicyFile(path).check()


def cluster_of(policy: Policy) -> Paper:
    made = Paper(policy)
    for number in range(4):
        made.put(node(f"n{number}", 8), status__conditions=[{"type": "Ready", "status": "True"}])
    return made


def named(thing: dict[str, Any], queue: str, namespace: str = "default") -> dict[str, Any]:
    thing["metadata"].setdefault("labels", {})[QUEUE] = queue
    thing["metadata"]["namespace"] = namespace
    return thing


def started(cluster: Paper) -> list[str]:
    return sorted(key.partition("/")[2] for _, key in cluster.step())


def test_gpus_of_a_tidegate_yaml_count_the_gpus_that_pods_ask_for(tmp_path):
    cluster = cluster_of(read(tmp_path, "  queues: [{name: research, gpus: 16}]\n"))
    for number in range(3):
        cluster.put(named(ours(f"p{number}", 8), "research"))
    assert started(cluster) == ["p0", "p1"]


def test_cpu_memory_and_pods_are_counted_too(tmp_path):
    cluster = cluster_of(read(tmp_path, "  queues: [{name: research, cpu: 3, memory: 1Ti, pods: 2}]\n"))
    for number in range(3):
        cluster.put(named(ours(f"p{number}", 0), "research"))
    assert started(cluster) == ["p0", "p1"]
    cluster = cluster_of(read(tmp_path, "  queues: [{name: research, cpu: 3}]\n"))
    for number in range(4):
        cluster.put(named(ours(f"p{number}", 0), "research"))
    assert started(cluster) == ["p0", "p1", "p2"]


def test_gpus_that_are_called_otherwise_are_not_free(tmp_path):
    cluster = cluster_of(read(tmp_path, "  queues: [{name: research, gpus: 16}]\n"))
    cluster.put(node("amd", 0, **{"amd.com/gpu": "8"}), status__conditions=[{"type": "Ready", "status": "True"}])
    other = named(ours("other", 0), "research")
    other["spec"]["containers"][0]["resources"]["limits"] = {"amd.com/gpu": "1"}
    cluster.put(other)
    part = named(ours("part", 0), "research")
    part["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    cluster.put(part)
    assert started(cluster) == []


def test_the_label_names_a_local_queue_of_its_namespace(tmp_path):
    queues = """\
  queues:
    - {name: research, gpus: 8}
    - {name: product, gpus: 8, local_queues: [shop/batch]}
    - {name: shared, gpus: 8, local_queues: [common]}
"""
    cluster = cluster_of(read(tmp_path, queues))
    cluster.put(named(ours("a", 1), "research", "one"))  # a queue without LocalQueues is there in every namespace
    cluster.put(named(ours("b", 1), "batch", "shop"))
    cluster.put(named(ours("c", 1), "batch", "other"))  # that LocalQueue is in another namespace
    cluster.put(named(ours("d", 1), "product", "shop"))  # a queue with LocalQueues of namespaces is not named itself
    cluster.put(named(ours("e", 1), "common", "any"))
    assert started(cluster) == ["a", "b", "e"]


def test_quota_is_enforced_for_jobs_and_across_a_cohort(tmp_path):
    queues = """\
  queues:
    - {name: a, cohort: c, gpus: 8, borrow: {gpus: 4}}
    - {name: b, cohort: c, gpus: 8, lend: {gpus: 8}}
"""
    cluster = cluster_of(read(tmp_path, queues))
    for number in range(4):
        cluster.put(named(job(f"j{number}", 1, 4, suspend=True, scheduler="tidegate"), "a"))
    assert started(cluster) == ["j0", "j1", "j2"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("  queues: [{name: q, gpus: 0.5}]\n", "policy.queues[q].gpus: expected whole GPUs"),
        ("  queues: [{name: q, cohort: c, gpus: 4, borrow: {gpus: 1.5}}]\n", "borrow.gpus: expected whole GPUs"),
        ("  order: srtf\n", "policy.order: expected fifo"),
        ("  waits: false\n", "policy.waits: expected true"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_the_field_and_the_fix(tmp_path, policy, text):
    with pytest.raises(PolicyError) as refused:
        read(tmp_path, policy)
    assert text in str(refused.value)
    assert "write" in str(refused.value) or "leave it out" in str(refused.value)


@pytest.mark.parametrize("key", ["../pwned", "/etc/pwned", "..", "a/b", "a\\b", ""])
def test_keys_of_a_config_map_are_no_paths(tmp_path, key):
    target = str(tmp_path / "pwned") if key.startswith("/") else key
    files = {target: b"version: 1\n", "tidegate.yaml": b"version: 1\npolicy: {placement: bestfit}\n"}
    with pytest.raises(PolicyError) as refused:
        ConfigMap("ns", "n").read(PolicyContent(b"", files))
    assert "expected keys that are file names" in str(refused.value)
    assert not (tmp_path / "pwned").exists()
