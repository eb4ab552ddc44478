"""Work of different kinds may have one name, and a name may be used again: what is known of one is not the other's."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from kubebench import Options, Plane, node, pod
from kubebench.objects import job
from kubejobs import PATHS, crd_files, make, queued
from kubelive import Live
from kubepaper import QUEUES, Paper, ours, paper, said
from kuberelay import relay
from tidegate.journal.reader import find_number, matching_ids
from tidegate.journal.store import JournalFile
from tidegate.journal.writer import Journal
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.takeover import Takeover
from tidegate.kube.transport.reflector import ReflectorOptions
from tidegate.kube.transport.resources import JOBS, NODES, PODS
from tidegate.kube.transport.writes import Ref
from tidegate.kube.world import WorldOptions
from tidegate.live.handover import decode_shared_handover, shared_handover_of
from tidegate.live.observed_history import ObservedHistory, SeenWorkload, run_twin
from tidegate.live.shadow_comparison import compare_with_twin
from tidegate.model.hardware import Node, NodeShape
from tidegate.model.observed_status import ObservedStatus
from tidegate.model.policy import Policy
from tidegate.model.work import PodSet, Work
from tidegate.sim.node_openings import Opening

_LWS, _JOB_SET = "leaderworkerset.sigs.k8s.io", "jobset.jobset.x-k8s.io"


def many_of_one_name(cluster: Paper) -> None:
    """A Job, a JobSet, a RayCluster, a pod, a group of pods and a group of a LeaderWorkerSet, all called w-0."""
    for kind in ("Job", "JobSet", "RayCluster"):
        cluster.put(make(kind, "w-0", suspend=True, scheduler="tidegate"))
    cluster.put(ours("w-0"))
    cluster.put(ours("member", group=("w-0", 1)))
    labels = {f"{_LWS}/name": "w", f"{_LWS}/group-index": "0"}
    cluster.put(ours("leader"), metadata__labels=labels, metadata__annotations={f"{_LWS}/size": "1"})


def test_work_of_one_name_is_as_much_work_as_there_are_kinds():
    cluster = paper(nodes=4)
    many_of_one_name(cluster)
    assert {write for write, _ in cluster.step()} == {"start", "bind"}
    assert [one.id for one in cluster.reconciler.workloads.values()] == [
        "default/job.batch/w-0",
        "default/jobset.jobset.x-k8s.io/w-0",
        "default/raycluster.ray.io/w-0",
        "default/pod/w-0",
        "default/podgroup/w-0",
        "default/podgroup.leaderworkerset.x-k8s.io/w-0",
    ]
    assert {str(name) for name in cluster.state.workload_ids if name} == {
        one.id for one in cluster.reconciler.workloads.values()
    }


def test_a_group_of_a_leader_worker_set_takes_no_members_of_a_group_of_its_name():
    cluster = paper(nodes=4)
    cluster.put(ours("member", group=("w-0", 2)))
    labels = {f"{_LWS}/name": "w", f"{_LWS}/group-index": "0"}
    cluster.put(ours("leader"), metadata__labels=labels, metadata__annotations={f"{_LWS}/size": "2"})
    assert cluster.step() == []
    said(cluster)
    cluster.now_ms += 6_000
    texts = {one.text for one in said(cluster) if one.reason == "PodGroupIncomplete"}
    assert texts == {"Pod group w-0 has 1 of its 2 pods: 1 is missing. It is queued when all of them are created."}


def test_events_of_one_moment_about_objects_of_one_name_are_all_written():
    cluster = paper(nodes=0)
    for kind in ("Job", "JobSet"):
        cluster.put(make(kind, "w", suspend=True, scheduler="tidegate"))
    cluster.step()
    writes = cluster.reconciler.take_events(100, cluster.now_ms)
    names = [json.loads(one.write.request.body)["metadata"]["name"] for one in writes]
    assert len(names) == len(set(names)) >= 2


# -- a name that is used again ---------------------------------------------------------------------------------


def passed_over():
    """A pod keeps room that it was passed over for, when its leader ends."""
    cluster = relay(1)
    cluster.put(queued(ours("small", 1)))
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("large", 8)))
    cluster.step()
    cluster.now_ms += 3_600_000
    cluster.put(queued(ours("next", 1)))
    assert cluster.step() == []
    return cluster


def test_a_pod_that_was_made_again_inherits_nothing():
    cluster = passed_over()
    text = shared_handover_of(cluster.state, cluster.reconciler.workloads)
    cluster.remove("pod/large")
    again = queued(ours("large", 8))
    again["metadata"]["uid"] = "pod/large/2"
    cluster.put(again)
    cluster.begin_anew()
    Takeover(cluster.reconciler).resume(lambda _: None, decode_shared_handover(text))
    given = [one for one in cluster.reconciler.take_facts().batch(1).payloads if isinstance(one, ObservedStatus)]
    assert given == []


def test_rollback_what_we_write_is_what_an_earlier_version_reads():
    class Earlier(msgspec.Struct):  # as it was before ids had kinds
        consumed: tuple[object, ...] = ()
        waiting: dict[str, ObservedStatus] = {}

    cluster = passed_over()
    kept = msgspec.json.decode(shared_handover_of(cluster.state, cluster.reconciler.workloads), type=Earlier)
    assert list(kept.waiting) == ["default/large"]
    assert kept.waiting["default/large"].passed_over_ms


def test_upgrade_what_an_earlier_version_wrote_is_read_where_it_means_one_workload():
    cluster = paper()
    for kind in ("Job", "JobSet"):
        cluster.put(make(kind, "two", suspend=True, scheduler="tidegate"))
    cluster.put(make("Job", "one", suspend=True, scheduler="tidegate"))
    text = json.dumps({"waiting": {f"default/{name}": {"nominated": True} for name in ("one", "two", "gone")}})
    cluster.reconciler.take_facts()

    class Nothing:
        def note_of(self, *_):
            return None

    Takeover(cluster.reconciler).resume(Nothing(), decode_shared_handover(text))
    events = cluster.reconciler.take_facts().batch(cluster.now_ms)
    numbers = [int(number) for number, arg in zip(events.subject, events.arg, strict=True) if arg >= 0]
    names = {cluster.reconciler.workloads[number].id for number in numbers}
    assert names == {"default/job.batch/one"}


def test_a_journal_tells_of_the_latest_of_a_name(tmp_path):
    cluster = paper(policy=Policy())
    file = JournalFile.create(tmp_path / "j.db", {})
    journal = Journal(file)
    for _ in range(2):
        cluster.put(ours("p"))
        cluster.step()
        journal.append(cluster.now_ms, cluster.events, cluster.result)
        cluster.remove("pod/p")
    journal.keep()
    assert find_number(file, "default/pod/p") == 1
    assert find_number(file, "default/pod/p", cluster.now_ms - 1) == 0
    assert find_number(file, "default/pod/p", 0) == 0
    assert find_number(file, "default/job.batch/p") is None
    file.close()


def test_a_shadow_compares_each_of_one_name_with_itself():
    work = Work(pod_sets=(PodSet(name="main", count=1),))
    seen = [
        SeenWorkload(
            n, "a/pod/p", work, 1_000 * n, 1_000 * n, {0: 1_000 * n + 500}, 1_000 * n + 500, {0}, 1_000 * n + 900
        )
        for n in range(2)
    ]
    nodes = (Node(name="n", shape=NodeShape(name="s", capacity=(("cpu", 8_000), ("pods", 10)))),)
    observed = ObservedHistory(0, 5_000, nodes, Policy(), tuple(seen), (Opening(0, 0, opens=True),))
    twin = run_twin(observed)
    assert set(twin.placed_ms) == {0, 1}
    assert compare_with_twin(observed, twin).twin.workloads == 2


# -- what people type ------------------------------------------------------------------------------------------

_IDS = ["team-a/job.batch/train", "team-a/jobset.jobset.x-k8s.io/train", "team-b/job.batch/train", "team-a/pod/other"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("team-a/job.batch/train", ["team-a/job.batch/train"]),
        ("other", ["team-a/pod/other"]),
        ("pod/other", ["team-a/pod/other"]),
        ("team-a/other", ["team-a/pod/other"]),
        ("team-a/pods/other", ["team-a/pod/other"]),
        ("team-b/train", ["team-b/job.batch/train"]),
        ("jobset/train", ["team-a/jobset.jobset.x-k8s.io/train"]),
        ("jobs.batch/train", ["team-a/job.batch/train", "team-b/job.batch/train"]),
        ("job/train", ["team-a/job.batch/train", "team-b/job.batch/train"]),
        ("team-a/jobs/train", ["team-a/job.batch/train"]),
        ("train", ["team-a/job.batch/train", "team-a/jobset.jobset.x-k8s.io/train", "team-b/job.batch/train"]),
        ("batch/train", []),
        ("rain", []),
        ("job/team-a/train", []),
        ("x/team-a/job.batch/train", []),
        ("", []),
    ],
)
def test_a_short_form_means_what_has_it(text, meant):
    assert matching_ids(text, _IDS) == meant


def test_ids_without_a_kind_have_short_forms_too():
    assert matching_ids("train", ["train", "team-a/train"]) == ["train"]
    assert matching_ids("train", ["team-a/train"]) == ["team-a/train"]
    assert matching_ids("train", ["train-1"]) == []


def test_objects_are_named_as_kubectl_does():
    assert Ref(JOBS, "a", "j").text == "a/job.batch/j"
    assert Ref(NODES, "", "n").text == "node/n"
    assert (JOBS.full_plural, PODS.full_plural) == ("jobs.batch", "pods")


# -- on a real control plane -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane(kube_programs):
    with Plane(Options(build=False)) as plane:
        plane.install(*crd_files("JobSet", "RayCluster"))
        yield plane


def test_work_of_one_name_runs_and_is_explained_one_by_one(plane, tmp_path):
    """A Job, a JobSet, a RayCluster, a pod and a group of one name ask for more than there is quota for."""
    plane.admin.post("/api/v1/nodes", node("n0"))
    for kind in ("Job", "JobSet", "RayCluster"):
        plane.admin.post(PATHS[kind], queued(make(kind, "same", gpus=4, suspend=True, scheduler="tidegate")))
    plane.admin.post(PATHS["Pod"], queued(pod("same", 4, runs="600s", scheduler="tidegate")))
    plane.admin.post(PATHS["Pod"], queued(pod("member", 4, runs="600s", scheduler="tidegate", group=("same", 1))))
    options = WorldOptions(ownership=Ownership(), reflector_options=ReflectorOptions(absent_s=2))
    with Live.on(plane, options=options, policy=QUEUES) as live:
        live.until(lambda: len(live.state.live_workloads()) == 5, what="five workloads")
        ids = {one.id for one in live.world.reconciler.workloads.values()}
        assert ids == {
            f"default/{kind}/same" for kind in ("job.batch", _JOB_SET, "raycluster.ray.io", "pod", "podgroup")
        }
        watched = {kind for kind, _ in live.world.api.stats_by_kind()}
        assert {"jobs.batch", "jobsets.jobset.x-k8s.io", "rayclusters.ray.io", "pods", "nodes"} <= watched
    (tmp_path / "queues.yaml").write_text(_POLICY)
    answer = _explain(plane, tmp_path, "same")
    assert answer.returncode == 2
    assert "same may be default/job.batch/same, default/jobset.jobset.x-k8s.io/same" in " ".join(answer.stderr.split())
    for name, whole in (("job/same", "job.batch"), ("default/jobsets/same", _JOB_SET), ("pod/same", "pod")):
        headline = json.loads(_explain(plane, tmp_path, name, "--json").stdout)["headline"]
        assert headline.startswith(f"default/{whole}/same ")
    first = plane.admin.get(f"{PATHS['Job']}/same")["metadata"]["uid"]
    plane.admin.delete(f"{PATHS['Job']}/same")
    plane.wait_for(lambda: not plane.admin.get(PATHS["Job"])["items"])
    plane.admin.post(PATHS["Job"], queued(job("same", 1, 1, suspend=True, scheduler="tidegate")))
    with Live.on(plane, options=options, policy=QUEUES) as live:
        known = live.world.reconciler.workloads
        live.until(lambda: ids <= {one.id for one in known.values()}, what="five workloads again")
        assert first not in {one.ref.uid for one in known.values()}
    plane.clear(*(PATHS[kind] for kind in ("Job", "JobSet", "RayCluster", "Pod")), "/api/v1/nodes")


def _explain(plane, tmp_path, *arguments):
    where = ("--kubeconfig", str(plane.kubeconfig("tidegate")), "--policy", str(tmp_path / "queues.yaml"))
    command = [sys.executable, "-m", "tidegate", "explain", *arguments, *where, "--kernels", "plain", "--no-changes"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


_POLICY = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: any
      resources:
      - {name: cpu, nominalQuota: 1000}
      - {name: nvidia.com/gpu, nominalQuota: 8}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: q}
"""
