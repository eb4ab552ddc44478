"""Objects that fuzzing begins with: one or more of every kind that is followed, as people write them."""

from __future__ import annotations

import json
from typing import Any

from kubebench.objects import job, node, pod
from kubejobs import _runtime, make
from tidegate.kube.mirror.handover_annotation import HandoverNote, write_note
from tidegate.kube.mirror.job_patch import BEFORE
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.model.observed_status import ObservedStatus, PodSetAssignment

Thing = dict[str, Any]

DRIVER, QUEUE = "gpu.nvidia.com", "kueue.x-k8s.io/queue-name"
_GPU = "nvidia.com/gpu"


def _meta(name: str, **more: Any) -> Thing:
    return {"name": name, "creationTimestamp": "2026-11-16T08:00:00Z", "generation": 1, **more}


def _whole(kind: str, spec: Any, **top: Any) -> Thing:
    return {"kind": kind, "metadata": _meta(kind.lower()), "spec": spec, **top}


def _queue_objects() -> list[Thing]:
    amounts = [{"name": "cpu", "nominalQuota": 100}, {"name": _GPU, "nominalQuota": 16, "borrowingLimit": 8}]
    groups = [{"coveredResources": ["cpu", _GPU], "flavors": [{"name": "any", "resources": amounts}]}]
    queue = {"namespaceSelector": {}, "cohortName": "c", "resourceGroups": groups, "queueingStrategy": "StrictFIFO"}
    limits = {"type": "Container", "max": {"cpu": "8"}, "default": {"cpu": "1"}, "defaultRequest": {"memory": "1Gi"}}
    return [
        _whole("ClusterQueue", {**queue, "preemption": {"withinClusterQueue": "LowerPriority"}}),
        _whole("Cohort", {"parentName": "root", "resourceGroups": groups}),
        _whole("LocalQueue", {"clusterQueue": "clusterqueue", "stopPolicy": "None"}),
        _whole("ResourceFlavor", {"nodeLabels": {"pool": "a"}, "nodeTaints": [], "topologyName": "topology"}),
        _whole("Topology", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}),
        _whole("AdmissionCheck", {"controllerName": "kueue.x-k8s.io/provisioning-request"}),
        _whole("Namespace", {}),
        _whole("WorkloadPriorityClass", None, value=100),
        _whole("PriorityClass", None, value=1000, globalDefault=True),
        _whole("LimitRange", {"limits": [limits]}),
        _whole("RuntimeClass", None, overhead={"podFixed": {"cpu": "100m"}}),
        _runtime("plain", "tidegate"),
        {**_runtime("plain", ""), "kind": "TrainingRuntime"},
    ]


def _claim_objects() -> list[Thing]:
    expression = f"device.driver == '{DRIVER}'"
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(4)]
    asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "deviceclass", "count": 1}}]}
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "uid": "pods-0"}]}
    return [
        _whole("ResourceSlice", {"driver": DRIVER, "nodeName": "n0", "pool": pool, "devices": devices}),
        _whole("DeviceClass", {"selectors": [{"cel": {"expression": expression}}]}),
        _whole("ResourceClaim", {"devices": asked}),
        _whole("ResourceClaim", {"devices": asked}, status=status),
    ]


def _jobs() -> list[Thing]:
    kinds = ("Job", "StatefulSet", "JobSet", "TrainJob", "PyTorchJob", "TFJob", "MPIJob", "RayJob", "RayCluster")
    made = [make(kind, "j", suspend=suspend, scheduler="tidegate") for kind in kinds for suspend in (False, True)]
    for like, kind in (("PyTorchJob", "XGBoostJob"), ("PyTorchJob", "PaddleJob"), ("PyTorchJob", "JAXJob")):
        one = make(like, "j", suspend=True)
        spec = one["spec"]
        field = {"XGBoostJob": "xgbReplicaSpecs", "PaddleJob": "paddleReplicaSpecs", "JAXJob": "jaxReplicaSpecs"}[kind]
        made.append({**one, "kind": kind, "spec": {field: spec["pytorchReplicaSpecs"], "runPolicy": {"suspend": True}}})
    partial = job("j", 4, suspend=True, scheduler="tidegate")
    partial["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2", BEFORE: "{}"}
    done = job("j", 4, scheduler="tidegate")
    done["status"] = {"succeeded": 2, "startTime": "x", "conditions": [{"type": "Complete", "status": "False"}]}
    return [*made, partial, done]


def _pods() -> list[Thing]:
    owner = {"kind": "Job", "name": "j", "uid": "jobs-0", "controller": True}
    claiming = pod("p", 0, scheduler="tidegate", resourceClaims=[{"name": "g", "resourceClaimName": "resourceclaim"}])
    claiming["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    gated = pod("p", 1, schedulingGates=[{"name": "tidegate.io/admission"}])
    owned = pod("p", 1, scheduler="tidegate")
    owned["metadata"]["ownerReferences"] = [owner]
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    picky = pod("p", 1, scheduler="tidegate", affinity=affinity, tolerations=[{"operator": "Exists"}])
    fraction = pod("p", 0, scheduler="tidegate")
    fraction["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    bound = {**pod("p", 1, scheduler="tidegate", nodeName="n0"), "status": {"phase": "Running"}}
    groups = [pod("p", 1, scheduler="tidegate", group=(name, 2)) for name in ("g", "g", "h")]
    return [
        pod("p", 1, scheduler="tidegate"),
        pod("p", 1),
        bound,
        owned,
        owned,
        claiming,
        gated,
        picky,
        fraction,
        *groups,
    ]


def seeds() -> dict[str, list[Thing]]:
    """Objects by kind."""
    made: dict[str, list[Thing]] = {}
    for thing in [*_queue_objects(), *_claim_objects(), *_jobs(), *_pods(), *_nodes()]:
        made.setdefault(thing["kind"], []).append(json.loads(json.dumps(thing)))
    return made


def _nodes() -> list[Thing]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    plain = node("n", 8, labels={"pool": "a", "rack": "r1"})
    tainted = {**node("n", 4), "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True}}
    return [{**one, "status": {**one["status"], **ready}} for one in (plain, tainted, node("n", 0))]


def notes() -> list[str]:
    """Hand-over annotations."""
    grant = PodSetAssignment(pod_set="main", count=1, flavors=(("cpu", "any"), (_GPU, "any")))
    standing = ObservedStatus(queue="q", grants=(grant,), granted_ms=1_800_000_000_000, evictions=1)
    whole = write_note(HandoverNote(standing=standing, nodes=(("n0", 1), ("n1", 1))))
    evicted = write_note(HandoverNote(standing=ObservedStatus(evicted="PREEMPTED", evictions=3)))
    return [whole, evicted, "{}", "[" * 5_000, '{"nodes": [["x", 1000000000000]]}']


#: Annotations and labels that mean something, with values that do.
WORDS = {
    HANDOVER_NOTE: notes(),
    BEFORE: ["{}", '{"/spec/parallelism": [3, 1]}', "[" * 5_000, "7"],
    QUEUE: ["team", "localqueue", "", "nope"],
    "kueue.x-k8s.io/pod-group-name": ["g", "h"],
    "kueue.x-k8s.io/pod-group-total-count": ["1", "2", "3", "999999", "-1", "٣"],
    "kueue.x-k8s.io/pod-group-fast-admission": ["true"],
    "kueue.x-k8s.io/role-hash": ["x", "main", "role-1"],
    "kueue.x-k8s.io/job-min-parallelism": ["1", "0", "99999999999", "x"],
    "kueue.x-k8s.io/podset-required-topology": ["rack", "kubernetes.io/hostname", "nope"],
    "kueue.x-k8s.io/podset-slice-size": ["1", "0", "-3"],
    "kueue.x-k8s.io/priority-class": ["workloadpriorityclass", "nope"],
    "kueue.x-k8s.io/workload-slice-replacement-for": ["default/x"],
    "leaderworkerset.sigs.k8s.io/name": ["lws"],
    "leaderworkerset.sigs.k8s.io/group-index": ["0"],
    "leaderworkerset.sigs.k8s.io/size": ["2", "x"],
    "gpu-fraction": ["0.5", "2", "1e9", "x"],
    "gpu-memory": ["4000", "0"],
    "tidegate.io/submit": ["3h", "x"],
    "tidegate.io/runtime": ["1s", "99999999999999999d"],
    "training.kubeflow.org/replica-type": ["worker", "Master"],
    "nvidia.com/gpu.memory": ["81920", "x", "9" * 40],
    "nvidia.com/gpu.replicas": ["4", "0", "x"],
}
