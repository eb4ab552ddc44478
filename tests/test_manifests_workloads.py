"""Kueue's Workload: what it asks, and where it stands."""

from __future__ import annotations

import pytest

from manifest_texts import QUEUES, item, read, said
from tidegate.manifests.cluster_defaults import ClusterDefaults, PriorityClass
from tidegate.manifests.kueue_workload import read_workload
from tidegate.manifests.topology_requests import read_topology_assignment
from tidegate.manifests.workload_status import read_observed_status
from tidegate.model.observed_status import Check, CheckState, DomainAssignment, ObservedStatus, PodSetAssignment
from tidegate.model.work import TopologyRequest

WORKLOAD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: n, creationTimestamp: "1970-01-01T00:01:00Z"}
spec:
  queueName: main
  priority: 7
  podSets:
  - name: driver
    template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}
  - name: workers
    count: 4
    minCount: 2
    topologyRequest: {required: rack, podSetGroupName: g}
    template:
      metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: ignored}}
      spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}], nodeSelector: {a: b}}
"""


def test_what_a_workload_asks():
    found = item(WORKLOAD)
    workload = read_workload(found)
    assert (workload.id, workload.submitted_ms) == ("n/w", 60_000)
    assert (workload.work.queue, workload.work.priority) == ("n/main", 7)
    driver, workers = workload.work.pod_sets
    assert (driver.name, driver.count, driver.min_count) == ("driver", 1, 0)
    assert (workers.count, workers.min_count, workers.charge) == (4, 2, (("nvidia.com/gpu", 8),))
    assert workers.topology == TopologyRequest(required="rack", group="g")
    assert workers.selector == (("a", "b"),)
    assert said(found) == []


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ("{}", 0),
        ("{priority: -1}", -1),
        ("{priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}}", 5),
        ("{priorityClassRef: {group: scheduling.k8s.io, kind: PriorityClass, name: high}}", 50),
        ("{priorityClassName: high, priorityClassSource: kueue.x-k8s.io/workloadpriorityclass}", 5),  # v1beta1
        ("{priorityClassName: high, priorityClassSource: scheduling.k8s.io/priorityclass}", 50),  # v1beta1
    ],
)
def test_the_priority_of_a_workload(spec, priority):
    around = ClusterDefaults(
        workload_priorities={"high": PriorityClass("high", 5)}, pod_priorities={"high": PriorityClass("high", 50)}
    )
    assert read_workload(item(f"{{metadata: {{name: w}}, spec: {spec}}}"), around).work.priority == priority


def test_a_boost_counts_where_the_gate_is_on():
    found = item("{metadata: {name: w, annotations: {kueue.x-k8s.io/priority-boost: '-3'}}, spec: {priority: 5}}")
    assert read_workload(found).work.priority == 5
    assert len(said(found)) == 1
    assert read_workload(found, ClusterDefaults(gates=frozenset({"PriorityBoost"}))).work.priority == 2
    assert len(said(found)) == 1


def standing(status, spec="{podSets: [{name: main, count: 3}]}", meta="{name: w}"):
    found = item(f"{{metadata: {meta}, spec: {spec}, status: {status}}}")
    read_now = read_observed_status(found)
    assert not found.findings.errors, said(found)
    return read_now


def condition(kind, status="True", reason="R", at=5):
    return f"{{type: {kind}, status: '{status}', reason: {reason}, lastTransitionTime: '1970-01-01T00:00:0{at}Z'}}"


ADMISSION = (
    "admission: {clusterQueue: q, podSetAssignments: [{name: main, flavors: {cpu: f}, resourceUsage: {cpu: 3}}]}"
)
GRANT = PodSetAssignment(pod_set="main", count=3, flavors=(("cpu", "f"),), charge=(("cpu", 3000),))
HELD = ObservedStatus(queue="q", grants=(GRANT,), granted_ms=5000)


STANDINGS = {
    "nothing is known": ("{}", ObservedStatus()),
    "quota is granted": (f"{{conditions: [{condition('QuotaReserved')}], {ADMISSION}}}", HELD),
    "an admission without the condition grants nothing": (f"{{{ADMISSION}}}", ObservedStatus()),
    "the condition without an admission grants nothing": (
        f"{{conditions: [{condition('QuotaReserved')}]}}",
        ObservedStatus(),
    ),
    "the condition is false": (f"{{conditions: [{condition('QuotaReserved', 'False')}]}}", ObservedStatus()),
    "admitted, and ready": (
        f"{{conditions: [{condition('Admitted')}, {condition('PodsReady')}]}}",
        ObservedStatus(admitted=True, ready=True),
    ),
    "finished": (f"{{conditions: [{condition('Finished')}]}}", ObservedStatus(finished=True)),
    "preempted": (
        f"{{conditions: [{condition('Evicted', reason='Preempted', at=7)}, {condition('Preempted')}]}}",
        ObservedStatus(evicted="Preempted", preempted=True),
    ),
    "evicted, and queued anew": (
        f"{{conditions: [{condition('Evicted', reason='PodsReadyTimeout', at=7)}]}}",
        ObservedStatus(evicted="PodsReadyTimeout", order_ms=7000),
    ),
    "evicted by a check, and queued anew": (
        f"{{conditions: [{condition('Evicted', reason='AdmissionCheck', at=7)}]}}",
        ObservedStatus(evicted="AdmissionCheck", order_ms=7000),
    ),
    "evicted no more": (f"{{conditions: [{condition('Evicted', 'False')}]}}", ObservedStatus()),
    "parked": (f"{{conditions: [{condition('Requeued', 'False')}]}}", ObservedStatus(parked=True)),
    "on hold": (f"{{conditions: [{condition('QuotaReserved', 'False', 'OnHold')}]}}", ObservedStatus(parked=True)),
    "not before": ("{requeueState: {count: 1, requeueAt: '1970-01-01T00:00:09Z'}}", ObservedStatus(requeue_at_ms=9000)),
    "checks": (
        (
            "{admissionChecks: [{name: a, state: Ready}, {name: b, state: Retry, requeueAfterSeconds: 2, "
            "lastTransitionTime: '1970-01-01T00:00:01Z'}]}"
        ),
        ObservedStatus(
            checks=(Check(name="a", state=CheckState.READY), Check(name="b", state=CheckState.RETRY)),
            requeue_at_ms=3000,
        ),
    ),
    "pods that are done": ("{reclaimablePods: [{name: main, count: 2}]}", ObservedStatus(reclaimable=(("main", 2),))),
    "nodes that failed": ("{unhealthyNodes: [{name: n1}]}", ObservedStatus(unhealthy=("n1",))),
}


@pytest.mark.parametrize("name", STANDINGS)
def test_where_a_workload_stands(name):
    status, expected = STANDINGS[name]
    assert standing(status) == expected


@pytest.mark.parametrize(
    ("meta", "spec", "status", "expected"),
    [
        ("{name: w}", "{active: false}", "{}", ObservedStatus(active=False)),
        (
            "{name: w, annotations: {kueue.x-k8s.io/workload-slice-replacement-for: n/old}}",
            "{}",
            "{}",
            ObservedStatus(replaces="n/old"),
        ),
        ("{name: w, annotations: {kueue.x-k8s.io/admission-gated-by: x}}", "{}", "{}", ObservedStatus(parked=True)),
        ("{name: w}", "{preemptionGates: [{name: g}]}", "{}", ObservedStatus(gated=True)),
        (
            "{name: w}",
            "{preemptionGates: [{name: g}]}",
            "{preemptionGates: [{name: g, position: Open}]}",
            ObservedStatus(),
        ),
        (
            "{name: w}",
            "{preemptionGates: [{name: g}]}",
            "{preemptionGates: [{name: g, position: Closed}]}",
            ObservedStatus(gated=True),
        ),
    ],
)
def test_what_else_says_where_a_workload_stands(meta, spec, status, expected):
    assert standing(status, spec, meta) == expected


V1BETA1 = "{levels: [rack, host], domains: [{values: [r1, h1], count: 2}, {values: [r1, h2], count: 1}]}"
V1BETA2 = """{levels: [rack, host], slices: [{domainCount: 2, podCounts: {individual: [2, 1]},
    valuesPerLevel: [{universal: r1}, {individual: {prefix: h, roots: ["1", "2"]}}]}]}"""


@pytest.mark.parametrize("text", [V1BETA1, V1BETA2])
def test_both_ways_to_say_where_pods_are(text):
    assert read_topology_assignment(item(text)) == (
        DomainAssignment(values=("r1", "h1"), count=2),
        DomainAssignment(values=("r1", "h2"), count=1),
    )


def test_a_slice_with_one_count_for_all_and_a_suffix():
    text = """{levels: [host], slices: [{domainCount: 3, podCounts: {universal: 4},
        valuesPerLevel: [{individual: {suffix: -x, roots: [a, b, c]}}]}]}"""
    assert [spot.values for spot in read_topology_assignment(item(text))] == [("a-x",), ("b-x",), ("c-x",)]


@pytest.mark.parametrize(
    "text",
    [
        "{levels: [a], slices: [{domainCount: 2, podCounts: {individual: [1]}, valuesPerLevel: [{universal: x}]}]}",
        "{levels: [a, b], slices: [{domainCount: 1, podCounts: {universal: 1}, valuesPerLevel: [{universal: x}]}]}",
        "{levels: [a], slices: [{domainCount: 2, podCounts: {universal: 1}, valuesPerLevel: [{individual: {}}]}]}",
        "{levels: [a], slices: [{domainCount: 9999999, podCounts: {universal: 1}, valuesPerLevel: [{universal: x}]}]}",
    ],
)
def test_an_assignment_that_does_not_add_up_is_named(text):
    found = item(text)
    read_topology_assignment(found)
    assert found.findings.errors


def test_a_grant_that_waits_for_its_topology():
    text = """{conditions: [{type: QuotaReserved, status: 'True'}], admission: {clusterQueue: q, podSetAssignments:
        [{name: main, count: 1, delayedTopologyRequest: Pending}]}}"""
    assert standing(text).grants == (PodSetAssignment(pod_set="main", count=1, awaits_topology=True),)


def test_what_checks_add_to_pods_counts():
    found = item(
        WORKLOAD
        + """
status:
  admissionChecks:
  - name: p
    state: Ready
    podSetUpdates: [{name: workers, nodeSelector: {c: d}, tolerations: [{key: k, operator: Exists}]}]
"""
    )
    workers = read_workload(found).work.pod_sets[1]
    assert workers.selector == (("a", "b"), ("c", "d"))
    assert len(workers.tolerations) == 1


def test_a_workload_speaks_for_its_job():
    owned = WORKLOAD.replace(
        "{name: w, namespace: n,", "{name: w, ownerReferences: [{kind: Job, name: j, apiVersion: batch/v1}],"
    )
    job = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: []}}}}"
    found = read(QUEUES, owned, job)
    assert list(found.work()) == ["default/w"]
    assert found.said() == ["Job default/j: is not read: its Workload is in the folder and speaks for it"]
    assert dict(found.loaded.standings) == {"default/w": ObservedStatus()}
    assert dict(found.loaded.origins)["default/w"].text() == "t.yaml, document 1, Workload default/w"
