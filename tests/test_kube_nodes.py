"""Nodes that are read together are what each of them is alone."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kube.mirror.nodes import NodeObject, NodeReader, read_node_object

_LABELS = st.dictionaries(
    st.sampled_from(
        [
            "zone",
            "kubernetes.io/hostname",
            "node.kubernetes.io/instance-type",
            "nvidia.com/gpu.product",
            "nvidia.com/gpu.memory",
            "nvidia.com/gpu.replicas",
            "nvidia.com/cuda.driver-version.full",
        ]
    ),
    st.sampled_from(["a", "b", "2", "81559"]),
)
_NODES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["n1", "n2"]), "labels": st.none() | _LABELS},
            optional={"deletionTimestamp": st.just("2026-01-01T00:00:00Z")},
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "unschedulable": st.booleans(),
                "taints": st.lists(st.just({"key": "gpu", "effect": "NoSchedule"}), max_size=1),
            },
        ),
        "status": st.fixed_dictionaries(
            {
                "conditions": st.lists(
                    st.fixed_dictionaries({"type": st.just("Ready"), "status": st.sampled_from(["True", "False"])}),
                    max_size=1,
                )
            },
            optional={"allocatable": st.sampled_from([{"cpu": "8", "nvidia.com/gpu": "8"}, {"cpu": "7500m"}])},
        ),
    }
)


@given(st.lists(_NODES, max_size=8))
def test_nodes_read_together_are_as_each_alone(values):
    reader = NodeReader()
    seen = [msgspec.convert(value, NodeObject) for value in values]
    assert [reader.read(one) for one in seen] == [read_node_object(one) for one in seen]
