"""What one pod asks for, which nodes it wants, and its class of service."""

from __future__ import annotations

from fractions import Fraction

import pytest

from manifest_texts import item, said
from tidegate.manifests.cluster_defaults import ClusterDefaults, Transformation
from tidegate.manifests.core_objects import read_limit_range
from tidegate.manifests.field_support import check_fields
from tidegate.manifests.gpus import read_devices
from tidegate.manifests.pod_requests import exceeds_limits, read_requests
from tidegate.manifests.pod_template import TEMPLATE, read_template
from tidegate.manifests.selectors import read_node_affinity, read_selector, read_tolerations
from tidegate.manifests.topology_requests import read_topology_annotations, read_topology_request
from tidegate.model.hardware import Taint, TaintEffect
from tidegate.model.work import GpuRequest, NodeRequirement, Operator, Share, SliceRule, TopologyRequest

REQUESTS = {
    "containers add up": (
        "containers: [{resources: {requests: {cpu: 1, memory: 1Gi}}}, {resources: {requests: {cpu: 500m}}}]",
        {"cpu": 1.5, "memory": 1 << 30},
    ),
    "a limit is a request where there is none": (
        "containers: [{resources: {limits: {cpu: 2, nvidia.com/gpu: 1}, requests: {cpu: 1}}}]",
        {"cpu": 1, "nvidia.com/gpu": 1},
    ),
    "init containers run before, one at a time": (
        """{initContainers: [{resources: {requests: {cpu: 3}}}, {resources: {requests: {memory: 5}}}],
            containers: [{resources: {requests: {cpu: 1, memory: 2}}}]}""",
        {"cpu": 3, "memory": 5},
    ),
    "a sidecar stays, and is there for those after it": (
        """{initContainers: [{resources: {requests: {cpu: 2}}},
                             {restartPolicy: Always, resources: {requests: {cpu: 1}}},
                             {resources: {requests: {cpu: 4}}}],
            containers: [{resources: {requests: {cpu: 3}}}]}""",
        {"cpu": 5},
    ),
    "a sidecar counts beside the containers": (
        """{initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}],
            containers: [{resources: {requests: {cpu: 3}}}]}""",
        {"cpu": 4},
    ),
    "overhead comes on top": (
        "{overhead: {cpu: 250m}, containers: [{resources: {requests: {cpu: 1}}}]}",
        {"cpu": 1.25},
    ),
    "what the pod asks for as a whole counts instead": (
        """{resources: {requests: {cpu: 4}, limits: {memory: 8}},
            containers: [{resources: {requests: {cpu: 1, memory: 1, nvidia.com/gpu: 2}}}]}""",
        {"cpu": 4, "memory": 8, "nvidia.com/gpu": 2},
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_pod_asks_for_in_all(name):
    text, expected = REQUESTS[name]
    spec = item(text)
    assert {key: float(value) for key, value in read_requests(spec).items()} == expected
    assert said(spec) == []


def test_a_runtime_class_adds_what_it_takes():
    spec = item("{runtimeClassName: kata, containers: [{resources: {requests: {cpu: 1}}}]}")
    around = ClusterDefaults(overheads={"kata": {"cpu": Fraction(1, 4)}})
    assert read_requests(spec, around) == {"cpu": Fraction(5, 4)}
    assert read_requests(spec) == {"cpu": 1}
    assert said(spec) == [
        (
            "runtimeClassName: the overhead of kata is not known and not counted; "
            "add the RuntimeClass to the folder, or write the overhead here"
        )
    ]


def bounds(text):
    return read_limit_range(item(text))


def test_a_limit_range_fills_in_and_forbids():
    found = bounds(
        """spec: {limits: [{type: Container, default: {cpu: 2}, defaultRequest: {cpu: 1}, max: {cpu: 3},
            min: {memory: 1}}]}"""
    )
    around = ClusterDefaults(container_bounds={"ns": found["Container"]})
    spec = item("containers: [{resources: {requests: {memory: 2}}}]")
    assert read_requests(spec, around, "ns") == {"cpu": 1, "memory": 2}
    assert not exceeds_limits(spec, around, "ns")
    assert read_requests(spec, around, "other") == {"memory": 2}
    greedy = item("containers: [{resources: {requests: {cpu: 4}, limits: {cpu: 3500m}}}]")
    assert exceeds_limits(greedy, around, "ns")
    assert said(greedy) == [
        f"containers: a container {why}: no queue takes it; change the job, or the namespace's LimitRange"
        for why in (
            "asks for more cpu than its limit",
            "asks for more cpu than the namespace allows",
            "asks for less memory than the namespace wants",
        )
    ]


def test_two_limit_ranges_are_the_narrower_of_both():
    found = bounds(
        """spec: {limits: [{type: Pod, max: {cpu: 4}, min: {cpu: 1}},
            {type: Pod, max: {cpu: 2, memory: 9}, min: {cpu: 2}}]}"""
    )["Pod"]
    assert (found.most, found.least) == ({"cpu": 2, "memory": 9}, {"cpu": 2})
    spec = item("containers: [{resources: {requests: {cpu: 1}}}]")
    assert exceeds_limits(spec, ClusterDefaults(pod_bounds={"ns": found}), "ns")


def template(spec, meta="{}"):
    return item(f"{{metadata: {meta}, spec: {spec}}}")


GPUS = {
    "none": ("{cpu: 1}", "{}", GpuRequest()),
    "whole": ("{nvidia.com/gpu: 8}", "{}", GpuRequest(share=Share.WHOLE, count=8)),
    "none asked for by zero": ("{nvidia.com/gpu: 0}", "{}", GpuRequest()),
    "another vendor's": ("{amd.com/gpu: 2}", "{}", GpuRequest(share=Share.WHOLE, count=2)),
    "Intel's": ("{gpu.intel.com/i915: 1}", "{}", GpuRequest(share=Share.WHOLE, count=1)),
    "cut": ("{nvidia.com/mig-1g.10gb: 2}", "{}", GpuRequest(share=Share.MIG, count=2, profile="1g.10gb")),
    "cut, with media": (
        "{nvidia.com/mig-1g.5gb.me: 1}",
        "{}",
        GpuRequest(share=Share.MIG, count=1, profile="1g.5gb+me"),
    ),
    "a fraction": ("{cpu: 1}", "{gpu-fraction: '0.25'}", GpuRequest(share=Share.FRACTION, count=1, milli=250)),
    "by memory": (
        "{cpu: 1}",
        "{gpu-memory: '4000'}",
        GpuRequest(share=Share.FRACTION, count=1, milli=1, memory_mib=4000),
    ),
}


@pytest.mark.parametrize("name", GPUS)
def test_which_gpus_a_pod_asks_for(name):
    limits, annotations, expected = GPUS[name]
    found = template(f"{{containers: [{{resources: {{limits: {limits}}}}}]}}", f"{{annotations: {annotations}}}")
    assert read_template(found).kind.gpu == expected
    assert not found.findings.errors


def test_quota_counts_by_kubernetes_name_and_the_node_by_device():
    limits = "{cpu: 500m, memory: 1Gi, amd.com/gpu: 2, x.com/nic: 1}"
    kind = read_template(template(f"{{containers: [{{resources: {{limits: {limits}}}}}]}}")).kind
    assert kind.charge == (("amd.com/gpu", 2), ("cpu", 500), ("memory", 1 << 30), ("x.com/nic", 1))
    assert kind.request == (("cpu", 500), ("memory", 1024), ("x.com/nic", 1))
    fraction = template("{containers: [{resources: {requests: {cpu: 1}}}]}", "{annotations: {gpu-fraction: '0.5'}}")
    assert read_template(fraction).kind.charge == (("cpu", 1000), ("gpu", 500))


NO_GPUS = {
    "two kinds": ("{nvidia.com/gpu: 1, amd.com/gpu: 1}", "{}", "GPUs of two kinds in one pod are not supported"),
    "whole and a fraction": ("{nvidia.com/gpu: 1}", "{gpu-fraction: '0.5'}", "nvidia.com/gpu and gpu-fraction"),
    "an unknown profile": ("{nvidia.com/mig-1g.11gb: 1}", "{}", "found nvidia.com/mig-1g.11gb; did you mean '1g."),
    "half a device": ("{nvidia.com/gpu: 500m}", "{}", "expected whole devices of nvidia.com/gpu, found 0.5"),
    "more than all of it": ("{cpu: 1}", "{gpu-fraction: '1.5'}", "expected a number above 0 and below 1"),
    "no number": ("{cpu: 1}", "{gpu-memory: 4Gi}", "expected MiB of GPU memory"),
}


@pytest.mark.parametrize("name", NO_GPUS)
def test_gpus_that_cannot_be_had(name):
    limits, annotations, expected = NO_GPUS[name]
    found = template(f"{{containers: [{{resources: {{limits: {limits}}}}}]}}", f"{{annotations: {annotations}}}")
    read_template(found)
    assert len(said(found)) == 1
    assert expected in said(found)[0]


def test_a_device_is_told_from_what_belongs_to_one():
    amounts = {"gpu.intel.com/i915": Fraction(1), "gpu.intel.com/i915_monitoring": Fraction(1)}
    assert read_devices(amounts, item("{}"), item("{}")).rest == {"gpu.intel.com/i915_monitoring": 1}


def test_resources_can_be_left_out_or_counted_as_others():
    rule = Transformation("nvidia.com/mig-1g.5gb", keeps=False, times="", outputs={"credits": Fraction(10)})
    kept = Transformation("nvidia.com/gpu", keeps=True, times="cpu", outputs={"credits": Fraction(-1)})
    around = ClusterDefaults(excluded=("networking.",), transformations=(rule, kept))
    asked = {"networking.x/y": Fraction(1), "cpu": Fraction(2), "nvidia.com/mig-1g.5gb": Fraction(3)}
    assert around.counted(asked) == {"cpu": 2, "credits": 30}
    assert around.counted({"cpu": Fraction(2), "nvidia.com/gpu": Fraction(1)}) == {
        "cpu": 2,
        "nvidia.com/gpu": 1,
        "credits": 0,
    }
    assert around.counted({"cpu": Fraction(2)}) == {"cpu": 2}


def test_node_affinity():
    found = item(
        """
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: gpus, operator: Gt, values: ["4"]}]
          - matchExpressions: [{key: spot, operator: DoesNotExist}]
        preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 10, preference: {matchExpressions: [{key: rack, operator: Exists}]}}
        """
    )
    terms, preferred = read_node_affinity(found)
    assert [len(term.requirements) for term in terms] == [2, 1]
    assert terms[0].holds({"zone": "a", "gpus": "8"})
    assert not terms[0].holds({"zone": "a", "gpus": "4"})
    assert terms[1].holds({})
    assert (preferred[0].weight, preferred[0].term.holds({"rack": "1"})) == (10, True)
    assert said(found) == []


def test_a_selector_selects_by_labels_and_expressions():
    found = item("{matchLabels: {team: a}, matchExpressions: [{key: dev, operator: NotIn, values: ['true']}]}")
    assert read_selector(found) == (
        NodeRequirement(key="team", values=("a",)),
        NodeRequirement(key="dev", operator=Operator.NOT_IN, values=("true",)),
    )
    assert read_selector(item("{}")) == ()
    assert said(found) == []


BROKEN_AFFINITY = {
    "{key: a, operator: in, values: [x]}": "did you mean 'In'?",
    "{key: a, operator: In}": "expected one value or more with In, found none",
    "{key: a, operator: Exists, values: [x]}": "expected no values with Exists",
    "{key: a, operator: Gt, values: [x]}": "expected one whole number",
    "{operator: Exists}": "required field is missing",
    "{key: a}": "required field is missing",
}


@pytest.mark.parametrize("text", BROKEN_AFFINITY)
def test_requirements_that_mean_nothing(text):
    found = item(
        f"requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{text}]}}]}}"
    )
    read_node_affinity(found)
    assert any(BROKEN_AFFINITY[text] in line for line in said(found))


@pytest.mark.parametrize(
    ("text", "tolerated"),
    [
        ("{operator: Exists}", {"a=1:NoSchedule", "a=2:NoExecute", "b=:NoSchedule"}),
        ("{key: a, operator: Exists}", {"a=1:NoSchedule", "a=2:NoExecute"}),
        ("{key: a, value: '1'}", {"a=1:NoSchedule"}),
        ("{key: a, operator: Exists, effect: NoExecute}", {"a=2:NoExecute"}),
        ("{key: b, operator: Equal}", {"b=:NoSchedule"}),
    ],
)
def test_tolerations(text, tolerated):
    taints = {
        "a=1:NoSchedule": Taint(key="a", value="1"),
        "a=2:NoExecute": Taint(key="a", value="2", effect=TaintEffect.NO_EXECUTE),
        "b=:NoSchedule": Taint(key="b"),
    }
    (found,) = read_tolerations([item(text)])
    assert {name for name, taint in taints.items() if found.tolerates(taint)} == tolerated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{operator: Exist, key: a}", "expected Equal or Exists, found 'Exist'"),
        ("{operator: Lt, key: a}", "taints compared as numbers"),
        ("{value: a}", "expected a key, or operator Exists"),
        ("{key: a, effect: Never}", "expected one of NoSchedule, PreferNoSchedule, NoExecute, found 'Never'"),
    ],
)
def test_tolerations_that_mean_nothing(text, expected):
    found = item(text)
    read_tolerations([found])
    assert expected in said(found)[0]


def kueue(**words):
    pairs = ", ".join(f"kueue.x-k8s.io/{name.replace('_', '-')}: '{value}'" for name, value in words.items())
    return item(f"annotations: {{{pairs}}}")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (item("{}"), TopologyRequest()),
        (kueue(podset_required_topology="rack"), TopologyRequest(required="rack")),
        (kueue(podset_preferred_topology="rack", podset_group_name="g"), TopologyRequest(preferred="rack", group="g")),
        (kueue(podset_unconstrained_topology="true"), TopologyRequest(unconstrained=True)),
        (kueue(podset_unconstrained_topology="false"), TopologyRequest()),
        (
            kueue(podset_slice_required_topology="host", podset_slice_size="4"),
            TopologyRequest(slices=(SliceRule(level="host", size=4),)),
        ),
        (
            kueue(podset_slice_required_topology_constraints='[{"topology":"a","size":4},{"topology":"b","size":2}]'),
            TopologyRequest(slices=(SliceRule(level="a", size=4), SliceRule(level="b", size=2))),
        ),
    ],
)
def test_topology_annotations(found, expected):
    assert read_topology_annotations(found) == expected
    assert said(found) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (kueue(podset_unconstrained_topology="perhaps"), 'expected "true" or "false"'),
        (kueue(podset_slice_size="2"), "has no effect without kueue.x-k8s.io/podset-slice-required-topology"),
        (kueue(podset_slice_required_topology="a", podset_slice_size="x"), "a whole number of at least 1"),
        (kueue(podset_slice_required_topology_constraints="[]"), "one to 3 layers"),
        (kueue(podset_required_topology="a", podset_preferred_topology="b"), "has no effect next to"),
        (kueue(podset_group_name="g"), "has no effect without"),
    ],
)
def test_topology_annotations_that_mean_nothing(found, expected):
    read_topology_annotations(found)
    assert expected in said(found)[0]


def test_a_topology_request_of_a_workload():
    text = (
        "{required: block, podSetSliceRequiredTopology: rack, podSetSliceSize: 2, podSetGroupName: g, podIndexLabel: i}"
    )
    expected = TopologyRequest(required="block", slices=(SliceRule(level="rack", size=2),), group="g")
    assert read_topology_request(item(text)) == expected


REFUSED = {
    "{containers: [], resourceClaims: [{name: x}]}": "devices by claim (DRA)",
    "{containers: [{ports: [{hostPort: 80}]}]}": "a port of the node",
    "{containers: [], affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}}": "near",
    """{containers: [], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
        {nodeSelectorTerms: [{matchFields: [{key: metadata.name}]}]}}}}""": "nodes chosen by a field",
    "{containers: [], topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}": "spread",
    "{containers: [], nodeSelecter: {a: b}}": "did you mean 'nodeSelector'?",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_what_would_make_placement_wrong_is_refused_by_name(spec):
    found = template(spec)
    check_fields(found, TEMPLATE)
    read_template(found)
    assert found.findings.errors
    assert any(REFUSED[spec] in line for line in said(found))


def test_what_cannot_matter_is_accepted():
    found = template(
        """{restartPolicy: Never, serviceAccountName: s, hostname: h, dnsPolicy: Default,
            volumes: [{name: v, emptyDir: {}}, {name: c, configMap: {name: m}}], securityContext: {runAsUser: 1},
            containers: [{name: c, image: i, command: [x], args: [y], env: [{name: A, value: b}], workingDir: /,
              ports: [{containerPort: 80}], volumeMounts: [{name: v, mountPath: /v}], livenessProbe: {exec: {}}}]}"""
    )
    check_fields(found, TEMPLATE)
    read_template(found)
    assert said(found) == []
