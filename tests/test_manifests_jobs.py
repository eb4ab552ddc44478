"""Every kind of job, and the pod sets that it becomes. Names and order are Kueue's."""

from __future__ import annotations

import pytest

from manifest_texts import CONTAINERS, QUEUES, read
from tidegate.model.work import WorkKind

TEMPLATE = f"{{spec: {CONTAINERS}}}"


def job(kind, spec, version="v1", meta="{name: j, labels: {kueue.x-k8s.io/queue-name: main}}"):
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {meta}\nspec: {spec}\n"


def roles(field, **replicas):
    pairs = ", ".join(f"{role}: {{replicas: {count}, template: {TEMPLATE}}}" for role, count in replicas.items())
    return f"{{{field}: {{{pairs}}}}}"


WORKERS = f"[{{groupName: GPU, replicas: 2, numOfHosts: 3, template: {TEMPLATE}}}]"
RAY = f"headGroupSpec: {{template: {TEMPLATE}}}, workerGroupSpecs: {WORKERS}"
KINDS = {
    "Job": (job("Job", f"{{parallelism: 4, completions: 9, template: {TEMPLATE}}}", "batch/v1"), [("main", 4)]),
    "Job with few completions": (
        job("Job", f"{{parallelism: 4, completions: 3, template: {TEMPLATE}}}", "batch/v1"),
        [("main", 3)],
    ),
    "JobSet": (
        job(
            "JobSet",
            f"""{{replicatedJobs: [
                {{name: Driver, template: {{spec: {{template: {TEMPLATE}}}}}}},
                {{name: workers, replicas: 2, template: {{spec: {{parallelism: 3, template: {TEMPLATE}}}}}}}]}}""",
            "jobset.x-k8s.io/v1alpha2",
        ),
        [("driver", 1), ("workers", 6)],
    ),
    "PyTorchJob": (
        job("PyTorchJob", roles("pytorchReplicaSpecs", Worker=3, Master=1), "kubeflow.org/v1"),
        [("master", 1), ("worker", 3)],
    ),
    "TFJob": (
        job("TFJob", roles("tfReplicaSpecs", Evaluator=1, Worker=2, PS=1, Chief=1), "kubeflow.org/v1"),
        [("chief", 1), ("ps", 1), ("worker", 2), ("evaluator", 1)],
    ),
    "XGBoostJob": (
        job("XGBoostJob", roles("xgbReplicaSpecs", Master=1, Worker=2), "kubeflow.org/v1"),
        [("master", 1), ("worker", 2)],
    ),
    "PaddleJob": (job("PaddleJob", roles("paddleReplicaSpecs", Worker=2), "kubeflow.org/v1"), [("worker", 2)]),
    "JAXJob": (job("JAXJob", roles("jaxReplicaSpecs", Worker=2), "kubeflow.org/v1"), [("worker", 2)]),
    "MPIJob v1": (
        job("MPIJob", roles("mpiReplicaSpecs", Worker=2, Launcher=1), "kubeflow.org/v1"),
        [("launcher", 1), ("worker", 2)],
    ),
    "MPIJob v2beta1": (
        job("MPIJob", roles("mpiReplicaSpecs", Worker=2, Launcher=1), "kubeflow.org/v2beta1"),
        [("launcher", 1), ("worker", 2)],
    ),
    "RayCluster": (job("RayCluster", f"{{{RAY}}}", "ray.io/v1"), [("head", 1), ("gpu", 6)]),
    "RayJob": (
        job("RayJob", f"{{rayClusterSpec: {{{RAY}}}}}", "ray.io/v1"),
        [("head", 1), ("gpu", 6), ("submitter", 1)],
    ),
    "RayJob over HTTP": (
        job("RayJob", f"{{submissionMode: HTTPMode, rayClusterSpec: {{{RAY}}}}}", "ray.io/v1"),
        [("head", 1), ("gpu", 6)],
    ),
    "RayService": (job("RayService", f"{{rayClusterConfig: {{{RAY}}}}}", "ray.io/v1"), [("head", 1), ("gpu", 6)]),
    "StatefulSet": (job("StatefulSet", f"{{replicas: 3, template: {TEMPLATE}}}", "apps/v1"), [("main", 3)]),
    "Pod": (job("Pod", CONTAINERS), [("main", 1)]),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_pod_sets_of_a_job(name):
    text, expected = KINDS[name]
    found = read(QUEUES, text)
    assert found.sets() == {"default/j": expected}
    assert found.said() == []
    work = found.work()["default/j"]
    assert work.queue == "default/main"
    assert dict(work.pod_sets[0].charge)["nvidia.com/gpu"] == 8


SEVERAL = {
    "Deployment": (job("Deployment", f"{{replicas: 2, template: {TEMPLATE}}}", "apps/v1"), [("main", 1)]),
    "ReplicaSet": (job("ReplicaSet", f"{{replicas: 2, template: {TEMPLATE}}}", "apps/v1"), [("main", 1)]),
    "LeaderWorkerSet": (
        job(
            "LeaderWorkerSet",
            f"{{replicas: 2, leaderWorkerTemplate: {{size: 4, workerTemplate: {TEMPLATE}}}}}",
            "leaderworkerset.x-k8s.io/v1",
        ),
        [("main", 4)],
    ),
    "LeaderWorkerSet with a leader": (
        job(
            "LeaderWorkerSet",
            f"""{{replicas: 2, leaderWorkerTemplate:
                {{size: 4, leaderTemplate: {TEMPLATE}, workerTemplate: {TEMPLATE}}}}}""",
            "leaderworkerset.x-k8s.io/v1",
        ),
        [("leader", 1), ("worker", 3)],
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_replicas_queue_one_by_one(name):
    text, expected = SEVERAL[name]
    found = read(QUEUES, text)
    assert found.sets() == {"default/j-0": expected, "default/j-1": expected}
    assert found.said() == []


def test_a_job_that_may_start_with_fewer_pods():
    labelled = (
        "{name: j, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {kueue.x-k8s.io/job-min-parallelism: '2'}}"
    )
    found = read(QUEUES, job("Job", f"{{parallelism: 4, template: {TEMPLATE}}}", "batch/v1", labelled))
    assert found.work()["default/j"].pod_sets[0].min_count == 2
    assert found.said() == []
    found = read(QUEUES, job("Job", f"{{parallelism: 1, template: {TEMPLATE}}}", "batch/v1", labelled))
    assert "a whole number from 1 to the parallelism of 1" in found.errors()[0]


def test_rays_own_containers_are_counted():
    options = "enableInTreeAutoscaling: true, gcsFaultToleranceOptions: {redisAddress: r}"
    spec = f"{{submissionMode: SidecarMode, rayClusterSpec: {{{options}, {RAY}}}}}"
    head = read(QUEUES, job("RayJob", spec, "ray.io/v1")).work()["default/j"].pod_sets[0]
    assert dict(head.charge) == {"cpu": 1000 + 500 + 500, "memory": (256 + 512 + 200) << 20, "nvidia.com/gpu": 8}


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 4, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
      - name: initializer
        template: {spec: {template: {spec: {containers: [{name: i, resources: {requests: {cpu: 2}}}]}}}}
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: i}]}}}
"""


@pytest.mark.parametrize(
    ("trainer", "expected", "gpus"),
    [
        ("{}", [("initializer", 1), ("node", 4)], 0),
        ("{numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}", [("initializer", 1), ("node", 2)], 8),
    ],
)
def test_a_train_job_is_its_runtime_and_what_it_says_instead(trainer, expected, gpus):
    spec = f"{{runtimeRef: {{name: torch}}, trainer: {trainer}}}"
    found = read(QUEUES, RUNTIME, job("TrainJob", spec, "trainer.kubeflow.org/v1alpha1"))
    assert found.sets() == {"default/j": expected}
    assert found.work()["default/j"].pod_sets[1].gpu.count == gpus
    assert found.said() == []


def test_a_volcano_job():
    spec = f"""{{queue: team, priorityClassName: high, runningEstimate: 2h, minAvailable: 2,
        tasks: [{{name: worker, replicas: 4, template: {TEMPLATE}}}]}}"""
    queue = (
        "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: team}, spec: {deserved: {cpu: 1}}}"
    )
    high = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}"
    found = read(job("Job", spec, "batch.volcano.sh/v1alpha1", "{name: j}"), queue, high)
    (planned,) = found.loaded.work
    assert planned.workload.estimate_ms == 7_200_000
    assert (planned.workload.work.queue, planned.workload.work.priority) == ("team", 9)
    assert [(pods.name, pods.count, pods.min_count) for pods in planned.workload.work.pod_sets] == [("worker", 4, 2)]


POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/pod-group-name: g}}
  annotations: {{kueue.x-k8s.io/pod-group-total-count: "{total}"}}
spec: {{containers: [{{resources: {{requests: {{cpu: {cpu}}}}}}}]}}
"""


def test_pods_of_a_group_are_one_workload():
    pods = [POD.format(name=f"p{number}", cpu=cpu, total=3) for number, cpu in enumerate((1, 2, 1))]
    found = read(QUEUES, *pods)
    assert found.sets() == {"default/g": [("role-1", 2), ("role-2", 1)]}
    assert found.said() == []
    assert read(QUEUES, *pods[::2], pods[0].replace("p0", "p9")).sets() == {"default/g": [("main", 3)]}


def test_a_group_that_is_not_complete():
    found = read(QUEUES, POD.format(name="p", cpu=1, total=3))
    assert "expected 3 pods of the group, found '1'" in found.errors()[0]
    fast = POD.replace("annotations: {{", "annotations: {{kueue.x-k8s.io/pod-group-fast-admission: 'true', ")
    found = read(QUEUES, fast.format(name="p", cpu=1, total=3))
    assert (found.sets(), found.errors()) == ({"default/g": [("main", 3)]}, [])


CLASSES = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 100}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 10}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 3, globalDefault: true}
"""


@pytest.mark.parametrize(
    ("label", "pod_class", "priority"),
    [
        ("high", "high", 100),
        ("", "high", 10),
        ("", "", 3),
        ("", "system-node-critical", 2_000_001_000),
        ("none", "high", 0),
    ],
)
def test_priority_is_of_the_workload_class_then_of_the_pods_then_the_default(label, pod_class, priority):
    labels = f"kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: '{label}'"
    template = f"{{spec: {{priorityClassName: '{pod_class}', containers: []}}}}"
    found = read(
        QUEUES, CLASSES, job("Job", f"{{template: {template}}}", "batch/v1", f"{{name: j, labels: {{{labels}}}}}")
    )
    assert found.work()["default/j"].priority == priority
    assert len(found.said()) == (label == "none")


def test_a_namespace_with_a_default_queue_gives_it_to_jobs_that_name_none():
    found = read(
        QUEUES.replace("name: main", "name: default"), job("Job", f"{{template: {TEMPLATE}}}", "batch/v1", "{name: j}")
    )
    assert (found.work()["default/j"].queue, found.said()) == ("default/default", [])


def test_a_job_without_a_queue_is_named():
    found = read(job("Job", f"{{template: {TEMPLATE}}}", "batch/v1", "{name: j}"))
    assert found.work()["default/j"].queue == "default"
    assert found.said() == [
        "Job default/j: metadata: names no queue: no quota is counted; label it kueue.x-k8s.io/queue-name"
    ]


def test_tidegates_own_annotations():
    meta = """{name: j, creationTimestamp: "1970-01-01T00:00:10Z", labels: {kueue.x-k8s.io/queue-name: main},
        annotations: {tidegate.io/runtime: 2h, tidegate.io/submit: 30s, tidegate.io/kind: inference}}"""
    (planned,) = read(QUEUES, job("Job", f"{{template: {TEMPLATE}}}", "batch/v1", meta)).loaded.work
    assert planned.run.runtime_ms == 7_200_000
    assert planned.workload.submitted_ms == 40_000
    assert planned.workload.work.kind is WorkKind.INFERENCE
    (planned,) = read(QUEUES, KINDS["Job"][0]).loaded.work
    assert planned.run.runtime_ms == 3_600_000


def test_jobs_of_one_name_and_names_that_are_made_up():
    found = read(
        QUEUES,
        KINDS["Job"][0],
        KINDS["JobSet"][0],
        *[
            job(
                "Job",
                f"{{template: {TEMPLATE}}}",
                "batch/v1",
                "{generateName: g-, labels: {kueue.x-k8s.io/queue-name: main}}",
            )
        ]
        * 2,
    )
    assert sorted(found.sets()) == [
        "default/g",
        "default/g-2",
        "default/job.batch/j",
        "default/jobset.jobset.x-k8s.io/j",
    ]
    assert found.said() == []


def test_an_owner_speaks_for_jobs_of_its_group_alone():
    volcano = "ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: j, controller: true, uid: u}]"
    meta = f"{{name: other, labels: {{kueue.x-k8s.io/queue-name: main}}, {volcano}}}"
    owned = job("Job", f"{{template: {TEMPLATE}}}", "batch/v1", meta)
    found = read(QUEUES, KINDS["Job"][0], owned)
    assert sorted(found.sets()) == ["default/j", "default/other"]


def test_what_asks_for_no_pods_is_no_work():
    found = read(QUEUES, job("StatefulSet", f"{{replicas: 0, template: {TEMPLATE}}}", "apps/v1"))
    assert (found.sets(), found.said()) == ({}, ["StatefulSet default/j: spec: asks for no pods"])


def test_an_owner_in_the_folder_speaks_for_what_it_owns():
    owned = job(
        "ReplicaSet",
        f"{{template: {TEMPLATE}}}",
        "apps/v1",
        "{name: r, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: j}]}",
    )
    found = read(QUEUES, SEVERAL["Deployment"][0], owned)
    assert sorted(found.sets()) == ["default/j-0", "default/j-1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (job("PyTorchJob", roles("pytorchReplicaSpecs", Wroker=1), "kubeflow.org/v1"), "did you mean 'Worker'?"),
        (job("PyTorchJob", "{}", "kubeflow.org/v1"), "expected one or more of Master, Worker, found none"),
        (job("JobSet", "{replicatedJobs: []}", "jobset.x-k8s.io/v1alpha2"), "expected one or more, found none"),
        (job("RayJob", "{clusterSelector: {a: b}}", "ray.io/v1"), "give it a rayClusterSpec"),
        (
            job("CronJob", "{schedule: x}", "batch/v1"),
            "CronJob is refused: it makes Jobs over time; add the Jobs that it makes",
        ),
        (job("Job", "{template: {spec: {}}}", "batch/v1"), "spec.template.spec.containers: required field is missing"),
        (job("Job", f"{{parallelism: '4', template: {TEMPLATE}}}", "batch/v1"), "write it without quotes"),
        (job("Deployment", f"{{replicas: 200000, template: {TEMPLATE}}}", "apps/v1"), "expected at most 100,000"),
        (
            job("Job", f"{{template: {TEMPLATE}}}", "batch/v1", "{name: j, annotations: {tidegate.io/runtime: soon}}"),
            "expected a duration such as",
        ),
    ],
)
def test_jobs_that_cannot_be_read(text, expected):
    assert any(expected in line for line in read(QUEUES, text).errors())


def test_words_that_are_probably_mistyped():
    meta = "{name: j, labels: {kueue.x-k8s.io/queue-nam: main, kueue.x-k8s.io/queue-name: main, mine: x}}"
    found = read(QUEUES, job("Job", f"{{template: {TEMPLATE}}}", "batch/v1", meta))
    assert found.said() == [
        (
            "Job default/j: metadata.labels['kueue.x-k8s.io/queue-nam']: "
            "is not a label or annotation of that system: it has no effect; did you mean 'kueue.x-k8s.io/queue-name'?"
        )
    ]
