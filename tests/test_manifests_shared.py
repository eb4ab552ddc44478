"""Real objects: the shared manifests, Kueue's decision tables, Kueue's examples, and the real schemas."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path
from subprocess import run

import pytest

from manifest_schemas import UNPUBLISHED, differences, schemas
from manifest_texts import read
from manifests_file import PAGE, page
from shared import shared
from tidegate.manifests.core_objects import read_limit_range, read_node
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.jobs.pod import read_pod
from tidegate.manifests.kinds import KINDS
from tidegate.manifests.kueue_objects import read_admission_check, read_resource_flavor, read_topology
from tidegate.manifests.kueue_queues import read_cluster_queue, read_cohort, read_local_queue
from tidegate.manifests.kueue_workload import read_pod_set, read_workload
from tidegate.manifests.object_index import take
from tidegate.manifests.topology_requests import read_topology_request
from tidegate.manifests.workload_status import read_observed_status, read_pod_set_assignment

MIRROR = Path(__file__).parent.parent.parent / ".mirror/kubernetes-sigs+kueue/repo"

#: What loads of each file: nodes, queues, workloads; and how often something is said, by severity.
FILES = {
    "device-plugin-config.yaml": ([], [], {"warning": 1}),
    "inference.yaml": ([], ["serving/big-0", "serving/big-1"], {"warning": 7}),
    "jobs.yaml": (
        [],
        ["default/train", "default/pt", "default/mpi", "default/tj", "default/rj", "default/plain"],
        {"warning": 15},
    ),
    "kai.yaml": (["team-a"], ["default/notebook"], {"warning": 3}),
    "karpenter.yaml": ([], [], {"warning": 7}),
    "keda.yaml": ([], [], {"warning": 2}),
    "kueue.yaml": (["team-a"], [], {"warning": 2}),
    "kwok-stages.yaml": ([], [], {"warning": 4}),
    "mig-parted.yaml": ([], [], {"warning": 1}),
    "sharing.yaml": ([], [], {"warning": 7}),
    "volcano.yaml": (["team-a"], ["team-a/train"], {}),
}


@pytest.mark.parametrize("name", FILES)
def test_every_shared_manifest_loads(name):
    queues, work, counts = FILES[name]
    found = read((shared("manifests") / name).read_text())
    assert found.errors() == []
    assert [queue.name for queue in found.loaded.shares.queues] == queues
    assert list(found.work()) == work
    assert {severity: len(found.said(severity)) for severity in ("warning", "note") if found.said(severity)} == counts


def test_all_of_them_load_together():
    texts = [file.read_text() for file in sorted(shared("manifests").glob("*.yaml"))]
    assert {file.name for file in shared("manifests").glob("*.yaml")} == set(FILES)
    found = read(*texts)
    assert found.errors() == []
    assert [queue.name for queue in found.loaded.shares.queues] == ["team-a", "volcano:team-a", "kai:team-a"]
    assert found.work()["team-a/train"].queue == "volcano:team-a"
    assert found.sets()["default/rj"] == [("head", 1), ("gpu", 1), ("submitter", 1)]
    assert found.sets()["default/tj"] == [("node", 2)]


#: Which kind of object stands under a name of the decision tables.
_NAMES = {
    "ClusterQueue": """clusterQueues clusterQueue secondaryClusterQueue baseCQs defaultClusterQueues cq
        additionalClusterQueues lendingClusterQueue""",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceFlavors flavors",
    "LocalQueue": "queues lqs additionalLocalQueues",
    "Workload": """workloads wantWorkloads admitted incoming candidate preemptor wls candidates workload
        preemptWorkloadSlice""",
    "Topology": "topologies",
    "AdmissionCheck": "admissionChecks",
    "Node": """nodes defaultNodes binaryTreesNodes multipodNodeset scatteredNodes defaultSingleNode
        nodesWithZeroCapacityInstance""",
    "Pod": "pods",
    "LimitRange": "objects",
}
KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}
CORE = ("Node", "Pod", "LimitRange")
READERS = {
    "ClusterQueue": read_cluster_queue,
    "Cohort": read_cohort,
    "ResourceFlavor": read_resource_flavor,
    "LocalQueue": read_local_queue,
    "Workload": lambda item: (read_workload(item), read_observed_status(item)),
    "Topology": read_topology,
    "AdmissionCheck": read_admission_check,
    "Node": read_node,
    "Pod": read_pod,
    "LimitRange": read_limit_range,
}


def objects(case):
    """The objects of a case, each with its kind."""
    for part in (case.get("case", {}), case.get("fixtures", {})):
        for name, value in part.items():
            if name in KIND_OF:
                for one in listed(value):
                    if isinstance(one, dict):
                        yield KIND_OF[name], one.get("Obj", one)


def listed(value):
    """The objects under a name: a list, one of them, or a mapping of names to objects."""
    if isinstance(value, list):
        return value
    return [value] if "metadata" in value or "Obj" in value else list(value.values())


def test_every_object_of_kueues_tables_is_read_without_errors():
    count = 0
    for file in sorted(shared("cases/kueue").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            case = json.loads(line)
            for kind, value in objects(case):
                findings = ManifestFindings()
                READERS[kind](take(value, kind, findings, group="" if kind in CORE else "kueue.x-k8s.io"))
                assert not findings.errors, (file.name, case["_case"], findings.texts())
                count += 1
    assert count > 6000


def test_pod_sets_and_assignments_of_kueues_tables_are_read_too():
    findings, count = ManifestFindings(), 0
    for file in sorted(shared("cases/kueue").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            case = json.loads(line)["case"]
            for name in ("wantAssignments", "wantNewAssignments"):
                for admission in case.get(name, {}).values():
                    for value in admission["podSetAssignments"]:
                        grant = read_pod_set_assignment(Item(value, findings, ObjectOrigin()))
                        assert bool(grant.spots) == ("topologyAssignment" in value)
                        count += 1
            for value in case.get("wlPods", ()):
                assert read_pod_set(Item(value, findings, ObjectOrigin())).charge is not None
            for value in case.get("podSets", ()):
                assert (
                    read_topology_request(Item(value.get("topologyRequest", {}), findings, ObjectOrigin())) is not None
                )
    assert (findings.texts(), count > 100) == ([], True)


@pytest.mark.parametrize("key", [key for key in KINDS if key not in UNPUBLISHED], ids=lambda key: f"{key[1]}.{key[0]}")
def test_every_field_of_the_real_schema_is_known_and_none_is_invented(key):
    missing, invented = differences(KINDS[key].form, schemas(key))
    assert {field for field in missing if not field.startswith(".metadata.")} == set()
    assert {field for field in invented if ".metadata." not in field and not field.endswith(_SOMETIMES)} <= _NO_STATUS


#: Fields that pods have in some versions of Kubernetes, and one that some kinds do not have.
_SOMETIMES = (".schedulingGroup", ".workloadRef")
_NO_STATUS = {".status"}

#: Examples of Kueue that are refused, each by name.
REFUSED = {
    "admin/minimal-cq.yaml": "there is no AdmissionCheck",
    "appwrapper/deployment-sample.yaml": "AppWrapper is refused",
    "appwrapper/leaderworkerset-sample.yaml": "AppWrapper is refused",
    "appwrapper/pytorch-sample.yaml": "AppWrapper is refused",
    "dra/sample-dra-capacity-job.yaml": "devices by claim (DRA)",
    "dra/sample-dra-counter-job.yaml": "devices by claim (DRA)",
    "dra/sample-dra-rct-job.yaml": "devices by claim (DRA)",
    "jobs/sample-cronjob.yaml": "CronJob is refused",
    "jobs/sample-sparkapplication.yaml": "SparkApplication is refused",
    "multikueue/dev/manager-kind-config.yaml": "unknown apiVersion 'kind.x-k8s.io/v1alpha4'",
    "multikueue/dev/worker-kind-config.yaml": "unknown apiVersion 'kind.x-k8s.io/v1alpha4'",
    "pod-based-workloads/sample-sandbox.yaml": "unknown apiVersion 'agents.x-k8s.io/v1alpha1'",
    "pod-based-workloads/tekton-hello-task.yaml": "unknown apiVersion 'tekton.dev/v1'",
    "pod-based-workloads/tekton-pipeline-run.yaml": "unknown apiVersion 'tekton.dev/v1'",
    "pod-based-workloads/tekton-pipeline.yaml": "unknown apiVersion 'tekton.dev/v1'",
    "pod-based-workloads/tekton-sleep-task.yaml": "unknown apiVersion 'tekton.dev/v1'",
    "pod-based-workloads/workflow-queue-per-template.yaml": "unknown apiVersion 'argoproj.io/v1alpha1'",
    "pod-based-workloads/workflow-single-queue.yaml": "unknown apiVersion 'argoproj.io/v1alpha1'",
    "tas/kind-cluster.yaml": "unknown apiVersion 'kind.x-k8s.io/v1alpha4'",
}


def test_kueues_own_examples_load():
    if not MIRROR.exists():
        pytest.skip("needs the mirror of kubernetes-sigs/kueue, which is not on this machine")
    folder = "site/static/examples"
    archive = run(["git", "archive", "HEAD", folder], cwd=MIRROR, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        files = {
            member.name.removeprefix(f"{folder}/"): tar.extractfile(member).read().decode()
            for member in tar.getmembers()
            if member.name.endswith(".yaml")
        }
    for name, text in sorted(files.items()):
        errors = read(text).errors()
        assert bool(errors) == (name in REFUSED), (name, errors)
        assert not errors or any(REFUSED[name] in line for line in errors)
    assert len(files) > 60


def test_the_page_about_manifests_is_up_to_date():
    assert PAGE.read_text() == page(), "run tests/manifests_file.py"
