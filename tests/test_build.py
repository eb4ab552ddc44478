"""What a sound document becomes, and what its author is warned about."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings

import tidefiles
from tidefiles import job, pool, texts
from tidegate.config.convert import build
from tidegate.config.validate import read_document
from tidegate.model.hardware import Node, NodeShape, Taint, TaintEffect
from tidegate.model.policy import OrderKind, OrderRule, PlacementKind, PlacementRule, Policy
from tidegate.model.problem import Severity
from tidegate.model.simulation import InitialState, RunProfile, TwinOptions
from tidegate.model.struct import encode
from tidegate.model.units import HOUR_MS, MINUTE_MS
from tidegate.model.work import GpuRequest, Operator, PodSet, Share, Toleration, Work, WorkKind

HOSTS = [{"name": "a", "count": 2, "shape": {"gpu": "h100", "gpus": 8, "gpu_memory": "80Gi", "cpu": 10, "pods": 9}}]
WARNINGS = [
    ({"gpus": 16}, "no pool can host such a pod: in a it asks for 16 GPUs, a node has 8"),
    ({"gpus": 1, "models": ["a100"]}, "no pool can host such a pod: in a it asks for a100, a node has h100"),
    (
        {"gpus": 0.5, "gpu_memory": "90Gi"},
        ("no pool can host such a pod: in a it asks for 90Gi of GPU memory, a GPU has 80Gi"),
    ),
    (
        {"gpus": 1, "gpu_memory": "90Gi"},
        ("no pool can host such a pod: in a it asks for 90Gi of GPU memory, a GPU has 80Gi"),
    ),
    ({"cpu": "11"}, "no pool can host such a pod: in a it asks for 11 CPU, a node has 10 CPU"),
    ({"memory": "1Gi"}, "no pool can host such a pod: in a it asks for 1Gi of memory, a node has 0Mi of memory"),
    ({"other": {"hca": 1}}, "no pool can host such a pod: in a it asks for 1 hca, a node has 0 hca"),
    ({"selector": {"zone": "b"}}, "no pool can host such a pod: in a it selects zone=b, which nodes do not have"),
    ({"count": 17, "gpus": 1}, "these pods start together, and the empty cluster holds only 16 of them"),
    ({"count": 19, "gpus": 0.4}, "these pods start together, and the empty cluster holds only 18 of them"),
    (
        {"count": 19, "gpus": 0.5, "gpu_memory": "50Gi"},
        ("these pods start together, and the empty cluster holds only 16 of them"),
    ),
    ({"models": ["h100"]}, "has no effect unless gpus is more than 0"),
]


@pytest.mark.parametrize(("pods", "message"), WARNINGS)
def test_pods_without_a_host_are_warned_about(pods, message):
    document, report = read_document({"cluster": {"pools": HOSTS}, **job(pods=pods)})
    assert document is not None
    assert [problem.message() for problem in report.problems] == [message]
    assert report.problems[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    "pods",
    [
        {"count": 16, "gpus": 1, "gpu_memory": "80Gi"},
        {"count": 18, "gpus": 0.4},
        {"selector": {"tidegate.io/pool": "a"}},
        {"count": 99, "selector": {"kubernetes.io/hostname": "a-0001"}},
    ],
)
def test_pods_with_a_host_are_not(pods):
    assert texts({"cluster": {"pools": HOSTS}, **job(pods=pods)}) == []


def test_a_taint_keeps_pods_away_unless_tolerated_or_only_preferred():
    tainted = pool(taints=[{"key": "team", "value": "ml"}])
    assert texts({**tainted, **job()}) == [
        "work[0].pods: no pool can host such a pod: in a it does not tolerate the taint team=ml:NoSchedule"
    ]
    assert texts({**tainted, **job(pods={"tolerations": [{"key": "team", "operator": "Exists"}]})}) == []
    assert texts({**pool(taints=[{"key": "team", "effect": "PreferNoSchedule"}]), **job()}) == []


def test_only_a_few_pools_are_named_in_a_warning():
    pools = [{"name": f"p{n}", "count": 1} for n in range(5)]
    (text,) = texts({"cluster": {"pools": pools}, **job(pods={"gpus": 1})})
    assert text.endswith("in p2 it asks for 1 GPUs, a node has 0; and 2 more pools")


def test_too_many_comparisons_are_not_made():
    pools = [{"name": f"p{n}", "count": 1} for n in range(400)]
    work = [{"id": f"j{n}", "runtime": 1, "pods": {"gpus": 1, "cpu": n}} for n in range(300)]
    assert texts({"cluster": {"pools": pools}, "work": work}) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"policy": {"order": {"kind": "srtf", "strict": True}}},
            "policy.order.strict: has no effect unless kind is fifo",
        ),
        ({"policy": {"order": {"limits": [1]}}}, "policy.order.limits: has no effect unless kind is las"),
        (
            {"policy": {"order": {"without_estimate": "refuse"}}},
            "policy.order.without_estimate: has no effect unless kind is srtf or srsf",
        ),
        (
            {"policy": {"order": "srtf"}, **job(copies=3)},
            "work: srtf goes by estimates: 3 of 3 workloads have none and go last; write an estimate of their runtime",
        ),
        (
            {"policy": {"order": {"kind": "srsf", "without_estimate": "refuse"}}, **job()},
            (
                "work: srsf goes by estimates: 1 of 1 workloads have none and never start; "
                "write an estimate of their runtime"
            ),
        ),
        ({"policy": {"placement": {"seed": 1}}}, "policy.placement.seed: has no effect unless kind is random"),
        (job(every="1h"), "work[0].every: has no effect unless copies is more than 1"),
        (pool(shape={"gpu": "h100"}), "cluster.pools[0].shape.gpu: has no effect unless gpus is more than 0"),
    ],
)
def test_keys_without_effect_are_warned_about(data, message):
    assert texts(data) == [message]


def test_an_empty_document_builds_the_defaults():
    document, report = read_document({})
    assert document is not None
    assert len(report) == 0
    assert build(document) == ([], Policy(), [], TwinOptions(), InitialState())


def test_the_full_document_builds_what_it_says():
    document, report = read_document(yaml.safe_load(tidefiles.FULL))
    assert document is not None
    assert report.problems == []
    setup = build(document)
    shape = NodeShape(
        name="train", gpu_model="h100", gpu_count=8, gpu_memory_mib=80 << 10, nvlink_group_size=8,
        capacity=(("cpu", 192_000), ("memory", 2 << 20), ("pods", 110), ("rdma/hca", 8)),
        reserved=(("cpu", 4_000), ("memory", 16 << 10)),
    )  # fmt: skip
    labels = (("kubernetes.io/hostname", "train-0007"), ("tidegate.io/pool", "train"), ("zone", "a"))
    taint = Taint(key="team", value="ml")
    assert len(setup.nodes) == 8
    assert setup.nodes[7] == Node(name="train-0007", shape=shape, labels=labels, taints=(taint,))
    assert setup.policy == Policy(
        name="fair",
        order=OrderRule(kind=OrderKind.LAS, las_limits_gpu_s=(3250, 7200)),
        placement=PlacementRule(kind=PlacementKind.RANDOM, seed=7),
        cycle_ms=10_000,
    )
    assert setup.twin == TwinOptions(
        seed=1, api_latency_ms=200, start_ms=20_000, grace_ms=30_000, admission_fails_milli=10,
        observe_every_ms=HOUR_MS,
        node_fails_every_ms=60 * 24 * HOUR_MS, node_repair_ms=4 * HOUR_MS,
    )  # fmt: skip
    tolerated = Toleration(key="team", operator=Operator.IN, value="ml", effect=TaintEffect.NO_SCHEDULE)
    pods = PodSet(
        name="worker", count=4, request=(("cpu", 96_000), ("memory", 1 << 20), ("rdma/hca", 4)),
        gpu=GpuRequest(share=Share.WHOLE, count=8, memory_mib=70 << 10, models=("h100",)),
        selector=(("zone", "a"),), tolerations=(tolerated,),
    )  # fmt: skip
    work = Work(
        queue="research", kind=WorkKind.TRAINING, priority=10, pod_sets=(pods,), protected_ms=10 * MINUTE_MS,
        checkpoint_every_ms=30 * MINUTE_MS, restart_cost_ms=5 * MINUTE_MS, tolerated_wait_ms=HOUR_MS,
    )  # fmt: skip
    run = RunProfile(
        runtime_ms=12 * HOUR_MS, load_ms=10 * MINUTE_MS, idle_tail_ms=30 * MINUTE_MS, busy_milli=800,
        daily_swing_milli=300, vram_mib=60 << 10, fails_every_ms=72 * HOUR_MS,
    )  # fmt: skip
    assert [planned.workload.id for planned in setup.work] == [f"pretrain-{n}" for n in range(5)]
    assert [planned.workload.submitted_ms for planned in setup.work] == [(2 + n) * HOUR_MS for n in range(5)]
    assert all(planned.workload.work == work and planned.run == run for planned in setup.work)
    assert all(planned.workload.estimate_ms == 10 * HOUR_MS for planned in setup.work)


def test_names_of_nodes_are_as_wide_as_their_number_needs():
    document, _ = read_document(pool(count=10_001))
    assert document is not None
    nodes = build(document).nodes
    assert (nodes[0].name, nodes[-1].name) == ("a-00000", "a-10000")
    assert [node.name for node in nodes] == sorted(node.name for node in nodes)


@pytest.mark.parametrize(
    ("gpus", "request_"),
    [
        (0, GpuRequest()),
        (2, GpuRequest(share=Share.WHOLE, count=2)),
        (1.0, GpuRequest(share=Share.WHOLE, count=1)),
        (0.25, GpuRequest(share=Share.FRACTION, count=1, milli=250)),
        (1 / 3, GpuRequest(share=Share.FRACTION, count=1, milli=333)),
        (0.9999, GpuRequest(share=Share.WHOLE, count=1)),
    ],
)
def test_gpus_become_whole_devices_or_a_part_of_one(gpus, request_):
    document, _ = read_document(job(pods={"gpus": gpus}))
    assert document is not None
    assert build(document).work[0].workload.work.pod_sets[0].gpu == request_


@given(tidefiles.documents)
@settings(max_examples=150, deadline=None)
def test_a_valid_document_builds(data):
    document, report = read_document(data)
    assert document is not None, report.problems
    assert report.errors == 0
    setup = build(document)
    assert encode(setup)  # plain integers only: an amount of the file format would not encode
    assert len({node.name for node in setup.nodes}) == len(setup.nodes) == _total(document.cluster.pools, "count")
    assert len({planned.workload.id for planned in setup.work}) == len(setup.work) == _total(document.work, "copies")


def _total(entries, field):
    return sum(getattr(entry, field) for entry in entries)
