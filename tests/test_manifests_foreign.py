"""Queues of Volcano, KAI and YuniKorn, in the same tree."""

from __future__ import annotations

import pytest

from manifest_texts import QUEUES, read
from tidegate.model.queues import UNLIMITED, FairSharing, PreemptWhom, StopPolicy
from tidegate.model.work import Share

NODES = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.product: H100}}
status: {allocatable: {cpu: 100, memory: 1000, nvidia.com/gpu: 60}, conditions: [{type: Ready, status: "True"}]}
"""


def volcano(name, spec, status="{}"):
    meta = f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {name}}}\n"
    return f"{meta}spec: {spec}\nstatus: {status}\n"


def quota(shares, name, resource):
    """Nominal, borrowing and lending of a queue or cohort."""
    (found,) = [one for one in (*shares.queues, *shares.cohorts) if one.name == name]
    (amount,) = [amount for amount in found.quotas if amount.resource == resource]
    return amount.nominal, amount.borrow_limit, amount.lend_limit


def test_a_volcano_queue():
    text = volcano(
        "team",
        """{weight: 4, parent: root, deserved: {nvidia.com/gpu: 16}, guarantee: {resource: {nvidia.com/gpu: 8}},
            capability: {nvidia.com/gpu: 32}, dequeueStrategy: fifo}""",
        "{state: Closed}",
    )
    found = read(text, NODES)
    shares = found.loaded.shares
    (queue,) = shares.queues
    assert quota(shares, "team", "nvidia.com/gpu") == (16, 16, 8)
    assert quota(shares, "volcano-root", "nvidia.com/gpu") == (44, None, None)
    assert quota(read(text).loaded.shares, "volcano-root", "nvidia.com/gpu") == (UNLIMITED - 16, None, None)
    assert quota(shares, "team", "cpu") == (UNLIMITED, None, None)
    assert (queue.cohort, queue.weight_milli, queue.strict_fifo) == ("volcano-root", 4000, True)
    assert queue.stop is StopPolicy.HOLD
    assert queue.preemption.reclaim_in_cohort is PreemptWhom.ANY
    assert (shares.fair, [flavor.name for flavor in shares.flavors]) == (FairSharing(), ["volcano"])
    assert found.said() == []


def test_volcano_queues_below_each_other():
    found = read(
        volcano("dept", "{deserved: {cpu: 10}, capability: {cpu: 20}}"),
        volcano("a", "{parent: dept, deserved: {cpu: 4}}"),
        volcano("b", "{parent: dept, deserved: {cpu: 3}, guarantee: {resource: {cpu: 1}}}"),
    )
    shares = found.loaded.shares
    assert {queue.name: queue.cohort for queue in shares.queues} == {"a": "dept", "b": "dept"}
    assert {cohort.name: cohort.parent for cohort in shares.cohorts} == {"volcano-root": "", "dept": "volcano-root"}
    assert quota(shares, "dept", "cpu") == (3000, 10_000, None)  # on top of what is below it
    assert quota(shares, "b", "cpu") == (3000, None, 2000)
    assert found.said() == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([volcano("a", "{parent: nobody}")], "its parent 'nobody' does not exist"),
        ([volcano("a", "{parent: b}"), volcano("b", "{parent: a}")], "its parents form a cycle"),
        ([volcano("a", "{deserved: {cpu: 5}, capability: {cpu: 4}}")], "is more cpu than the capability"),
        ([volcano("a", "{deserved: {cpu: 1}, guarantee: {resource: {cpu: 4}}}")], "is more cpu than deserved"),
        ([volcano("a", "{deserved: {cpu: 1}, extendClusters: [{name: x}]}")], "work sent to other clusters"),
        ([volcano("a", "{wieght: 1}")], "did you mean 'weight'?"),
        (
            [volcano(f"q{n}", f"{{parent: q{n + 1}}}") for n in range(40)] + [volcano("q40", "{}")],
            "more than 32 levels deep",
        ),
    ],
)
def test_trees_that_cannot_be(texts, expected):
    assert any(expected in line for line in read(*texts).errors())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            "{deserved: {cpu: 1}, priority: 3}",
            "spec.priority: 3 has no effect here: Volcano's queue priority has no counterpart",
        ),
        ("{deserved: {cpu: 1}, reclaimable: false}", "spec.reclaimable: false has no counterpart"),
        ("{weight: 2}", "spec.deserved: is not there: the queue owns nothing, and shares what is left by its weight"),
    ],
)
def test_what_cannot_be_mapped_of_volcano_is_said(spec, expected):
    found = read(volcano("a", spec))
    assert found.errors() == []
    assert any(expected in line for line in found.said())


KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: dept}
spec:
  resources:
    gpu: {quota: 16, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: dept
  preemptMinRuntime: 5m
  reclaimMinRuntime: 5m
  resources:
    gpu: {quota: 0.5, limit: 8, overQuotaWeight: 2}
    cpu: {quota: 1000, limit: -1, overQuotaWeight: 2}
    memory: {quota: 10, limit: -1, overQuotaWeight: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: notebook, labels: {kai.scheduler/queue: team}, annotations: {gpu-fraction: "0.25"}}
spec: {schedulerName: kai-scheduler, containers: [{resources: {requests: {cpu: 1}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: whole, labels: {kai.scheduler/queue: team}}
spec: {containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cut, labels: {runai/queue: team}}
spec: {containers: [{resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}]}
"""


def test_kai_queues_and_their_work():
    found = read(KAI)
    shares = found.loaded.shares
    assert found.said() == []
    assert quota(shares, "team", "gpu") == (500, 7500, None)
    assert quota(shares, "team", "cpu") == (1000, None, None)
    assert quota(shares, "team", "memory") == (10_000_000, None, None)
    assert quota(shares, "dept", "gpu") == (15_500, None, None)
    assert shares.queues[0].weight_milli == 2000
    work = found.work()
    assert {name: dict(one.pod_sets[0].charge)["gpu"] for name, one in work.items()} == {
        "default/notebook": 250,
        "default/whole": 2000,
        "default/cut": 3000,  # by slices, as KAI counts
    }
    assert work["default/notebook"].pod_sets[0].gpu.share is Share.FRACTION
    assert {one.queue for one in work.values()} == {"team"}
    assert {one.protected_ms for one in work.values()} == {300_000}


def test_what_cannot_be_mapped_of_kai_is_said():
    found = read(
        KAI.replace("parentQueue: dept", "parentQueue: dept\n  priority: 100")
        .replace("preemptMinRuntime: 5m", "preemptMinRuntime: 1m")
        .replace("cpu: {quota: 1000, limit: -1, overQuotaWeight: 2}", "cpu: {quota: 1000}")
    )
    assert found.errors() == []
    assert found.said() == [
        (
            "Queue team: spec.priority: 100 has no effect here: "
            "KAI's queue priority has no counterpart; queues keep equal rank"
        ),
        "Queue team: spec.resources.cpu.limit: is 0 or not there: the queue may use none of it; write -1 for no limit",
        "Queue team: spec.resources.gpu.overQuotaWeight: differs for cpu: that of GPUs counts for all",
        (
            "Queue team: spec.reclaimMinRuntime: counts for both: "
            "work is safe from its own queue and from others for the same time"
        ),
    ]


YUNIKORN = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: Dev
      resources: {guaranteed: {vcore: 10, memory: 10Gi}, max: {vcore: 20000m, memory: 20Gi, nvidia.com/gpu: 8}}
    - name: prod
      parent: true
      queues: [{name: a, resources: {guaranteed: {nvidia.com/gpu: 4}}}]
"""


def indented(text):
    return "\n".join(f"    {line}" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        YUNIKORN,
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yunikorn-configs}\ndata:\n  queues.yaml: |\n"
        + indented(YUNIKORN),
    ],
)
def test_yunikorn_queues_in_a_file_or_a_config_map(text):
    found = read(text, NODES)
    shares = found.loaded.shares
    assert found.said() == []
    assert {queue.name: queue.cohort for queue in shares.queues} == {"root.dev": "root", "root.prod.a": "root.prod"}
    assert quota(shares, "root.dev", "cpu") == (10_000, 10_000, None)
    assert quota(shares, "root.dev", "memory") == (10 << 30, 10 << 30, None)
    assert quota(shares, "root.dev", "nvidia.com/gpu") == (0, 8, None)
    assert quota(shares, "root.prod.a", "nvidia.com/gpu") == (4, None, None)
    assert quota(shares, "yunikorn-root", "nvidia.com/gpu") == (56, None, None)


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ("{name: a, maxapplications: 3}", "maxapplications: 3 has no effect here: work is not counted by number"),
        ("{name: a, properties: {application.sort.policy: fair}}", "fair has no counterpart"),
        ("{name: a, properties: {priority.offset: '5'}}", "YuniKorn's priority offsets have no counterpart"),
        ("{name: a, limits: [{users: [x]}]}", "limits of users and groups are not counted"),
    ],
)
def test_what_cannot_be_mapped_of_yunikorn_is_said(queue, expected):
    found = read(f"partitions: [{{name: default, queues: [{{name: root, queues: [{queue}]}}]}}]")
    assert found.errors() == []
    assert any(expected in line for line in found.said())


def test_a_yunikorn_tree_that_is_too_deep_or_wrong():
    deep = "{name: a, queues: [" * 25 + "{name: z}" + "]}" * 25
    assert read(f"partitions: [{{queues: [{deep}]}}]").errors() == []
    wrong = "{name: a, resources: {guaranteed: {vcore: 5}, max: {vcore: 1}}, quues: []}"
    errors = read(f"partitions: [{{queues: [{wrong}]}}]").errors()
    assert any("is more cpu than max" in line for line in errors)
    assert any("did you mean 'queues'?" in line for line in errors)


def test_work_that_names_a_queue_which_is_not_there():
    found = read(KAI.replace("kai.scheduler/queue: team", "kai.scheduler/queue: taem"))
    assert any("there is no queue 'taem' of kai; did you mean 'team'?" in line for line in found.said("warning"))
    found = read(KAI.replace("kai.scheduler/queue: team", "kai.scheduler/queue: dept"))
    assert any("there is no leaf queue 'dept' of kai" in line for line in found.said("warning"))


def test_queues_of_several_systems_are_told_apart():
    found = read(QUEUES, volcano("team", "{deserved: {cpu: 1}}"), KAI)
    shares = found.loaded.shares
    assert [queue.name for queue in shares.queues] == ["team", "volcano:team", "kai:team"]
    assert found.errors() == []
    assert found.work()["default/whole"].queue == "kai:team"
    assert found.work()["default/whole"].protected_ms == 300_000
    assert shares.fair is None  # Kueue's configuration decides
    assert len(found.said("note")) == 2
