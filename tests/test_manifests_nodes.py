"""Nodes, namespaces and priority classes."""

from __future__ import annotations

import pytest

from manifest_texts import item, read, said
from tidegate.manifests.core_objects import read_namespace, read_node, read_overhead, read_priority_class
from tidegate.model.hardware import Taint, TaintEffect
from tidegate.model.observed_status import UnmanagedPods

NODE = """
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels:
    node.kubernetes.io/instance-type: p5
    nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
    nvidia.com/gpu.memory: "81559"
    nvidia.com/cuda.driver-version.full: "580.1"
spec: {taints: [{key: gpu, value: "true", effect: NoExecute}]}
status:
  allocatable: {cpu: 63500m, memory: "1073741825", pods: "110", nvidia.com/gpu: "8", x.com/nic: 4}
  conditions: [{type: Ready, status: "True", lastHeartbeatTime: null}]
"""


def test_a_node_has_exact_amounts_and_those_of_its_shape():
    found = item(NODE)
    node = read_node(found)
    assert node.allocatable == (
        ("cpu", 63_500), ("memory", 1_073_741_825), ("nvidia.com/gpu", 8), ("pods", 110), ("x.com/nic", 4),
    )  # fmt: skip
    assert node.shape.capacity == (("cpu", 63_500), ("memory", 1024), ("pods", 110), ("x.com/nic", 4))
    assert (node.shape.gpu_count, node.shape.gpu_model) == (8, "NVIDIA-H100-80GB-HBM3")
    assert (node.shape.gpu_memory_mib, node.shape.name) == (81_559, "p5")
    assert dict(node.labels)["nvidia.com/cuda.driver-version.full"] == "580.1"
    assert node.taints == (Taint(key="gpu", value="true", effect=TaintEffect.NO_EXECUTE),)
    assert (node.ready, node.unschedulable) == (True, False)
    assert said(found) == []


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ("{conditions: [{type: Ready, status: 'True'}]}", True),
        ("{conditions: [{type: Ready, status: 'False'}]}", False),
        ("{conditions: [{type: Ready, status: Unknown}]}", False),
        ("{conditions: [{type: NetworkUnavailable, status: 'True'}]}", False),
        ("{conditions: []}", False),
        ("{}", True),
    ],
)
def test_whether_a_node_is_ready(status, ready):
    assert read_node(item(f"{{metadata: {{name: n}}, status: {status}}}")).ready is ready


def test_a_cordoned_node():
    assert read_node(item("{metadata: {name: n}, spec: {unschedulable: true}}")).unschedulable


def test_what_is_odd_about_a_node_is_said():
    found = item(
        """{metadata: {name: n, labels: {nvidia.com/gpu.replicas: "4", nvidia.com/gpu.memory: lots}},
            status: {allocatable: {nvidia.com/gpu: 80}}}"""
    )
    node = read_node(found)
    assert (node.shape.gpu_count, node.shape.gpu_memory_mib) == (62, 0)
    assert len(said(found)) == 4


def test_gpus_cut_in_parts_are_counted_by_name():
    node = read_node(item("{metadata: {name: n}, status: {allocatable: {nvidia.com/mig-1g.10gb: 7}}}"))
    assert (node.shape.gpu_count, node.shape.capacity) == (0, (("nvidia.com/mig-1g.10gb", 7),))


def test_vendors_are_told_apart_where_there_are_several():
    amd = NODE.replace("n1", "n2").replace('nvidia.com/gpu: "8"', "amd.com/gpu: 4")
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {template: {spec: {containers: [{resources: {limits: {amd.com/gpu: 2}}}]}}}
"""
    one, both = read(amd, job), read(NODE, amd, job)
    assert one.work()["default/j"].pod_sets[0].request == ()
    assert both.work()["default/j"].pod_sets[0].request == (("amd.com/gpu", 2),)
    assert [dict(node.shape.capacity).get("nvidia.com/gpu") for node in both.loaded.nodes] == [8, None]


def test_the_small_kinds():
    namespace = read_namespace(item("{metadata: {name: n, labels: {a: b}}}"))
    assert namespace.labels == (("a", "b"), ("kubernetes.io/metadata.name", "n"))
    found = read_priority_class(item("{metadata: {name: p}, value: 10, globalDefault: true}"))
    assert (found.name, found.value, found.default) == ("p", 10, True)
    assert read_overhead(item("overhead: {podFixed: {cpu: 1}}")) == {"cpu": 1}


PODS = """
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n1, containers: [{resources: {requests: {cpu: 1}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b},
  spec: {nodeName: n1, containers: [{resources: {limits: {nvidia.com/gpu: 1, cpu: 1}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: c},
  spec: {nodeName: n1, containers: [{resources: {requests: {cpu: 9}}}]}, status: {phase: Succeeded}}
---
{apiVersion: v1, kind: Pod, metadata: {name: d, ownerReferences: [{kind: Job, name: j, apiVersion: batch/v1}]},
  spec: {nodeName: n1, containers: [{resources: {requests: {cpu: 9}}}]}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: [{}]}}}}
"""


def test_pods_of_others_take_up_room():
    found = read(NODE, PODS)
    charge = (("cpu", 2000), ("nvidia.com/gpu", 1))
    assert found.loaded.foreign == (UnmanagedPods(node="n1", request=charge, charge=charge, pods=2),)
    assert list(found.work()) == ["default/j"]
