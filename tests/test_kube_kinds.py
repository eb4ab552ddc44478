"""Jobs of every kind on a real control plane: held at the door, admitted, run and finished; gated, or bound by us."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest

from kubebench import Options, Plane, node, pod
from kubedoor import install_door, submit
from kubejobs import PATHS, crd_files, install_runtimes, make, queued
from kubelive import BEST_FIT, Live
from kubeowners import RECIPES, Owners
from kubepaper import POOL, QUEUES, SPOT_TOLERATION, on_spot, spot_node
from tidegate.kube.mirror.job_patch import BEFORE, GATE, HOST
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.transport.reflector import ReflectorOptions
from tidegate.kube.world import WorldOptions
from tidegate.model.facts import WriteOutcome

_PODS, _JOBS, _NODES = PATHS["Pod"], PATHS["Job"], "/api/v1/nodes"

#: What is over by itself, and what runs until it is deleted; with the pods of each.
_ENDS = {"Job": 2, "JobSet": 3, "PyTorchJob": 3, "TFJob": 3, "MPIJob": 3, "TrainJob": 2, "RayJob": 4}
_STAYS = {"RayCluster": 3, "Deployment": 2, "StatefulSet": 2, "LeaderWorkerSet": 2}
_KINDS = [*_ENDS, *_STAYS]

#: How long owners have to make pods of jobs that nobody has let go.
_PAUSE_S = 3.0


@pytest.fixture(scope="module")
def plane(kube_programs):
    controllers = f"{Options().controllers},deployment-controller,replicaset-controller,statefulset-controller"
    files = crd_files()
    with Plane(Options(build=False, audit=True, controllers=controllers)) as plane:
        plane.install(*files)
        install_runtimes(plane)
        install_door(plane)
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        plane.admin.post(classes, {**meta, "value": 10})
        yield plane


@pytest.fixture
def cluster(cluster):
    """Two nodes of eight GPUs and nothing on them; owners go before what they would make again."""
    yield cluster
    cluster.clear(*(PATHS[kind] for kind in _KINDS))


def empty(plane):
    plane.clear(*(PATHS[kind] for kind in (*_KINDS, "Pod")), _NODES)


def pods_of(plane, name):
    return [one for one in plane.admin.get(_PODS)["items"] if one["metadata"]["name"].startswith(name)]


def is_over(plane, kind, name):
    status = plane.admin.get(f"{PATHS[kind]}/{name}").get("status", {})
    words = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
    return bool(words & {"Complete", "Completed", "Succeeded"}) or status.get("jobStatus") == "SUCCEEDED"


def is_running(plane, name, pods):
    found = pods_of(plane, name)
    return len(found) == pods and all(one["status"].get("phase") == "Running" for one in found)


def options(**ownership):
    return WorldOptions(ownership=Ownership(**ownership), reflector_options=ReflectorOptions(absent_s=2))


GATE_MODE = {"scheduler": "", "gates": True}


class Went:
    """What came of jobs of all kinds, submitted at once."""

    def __init__(self, plane, policy=BEST_FIT, make_node=node, **ownership):
        self.done, self.nodes, self.specs = dict.fromkeys(_KINDS), {}, {}
        for number in range(4):
            plane.admin.post(_NODES, make_node(f"n{number}"))
        with Owners(plane, *RECIPES) as owners:
            time.sleep(_PAUSE_S)  # nobody has let them go: whatever their owners make of them waits
            self.early = {name for one in plane.admin.get(_PODS)["items"] if (name := _placed(one))}
        with Owners(plane, *RECIPES) as owners, Live.on(plane, options=options(**ownership), policy=policy) as live:
            with suppress(TimeoutError):
                live.until(lambda: self._look(plane), most_s=60)
            for kind in _STAYS:
                plane.admin.delete(f"{PATHS[kind]}/{kind.lower()}")
            with suppress(TimeoutError):  # the garbage collector looks for new kinds every 30 s
                live.until(lambda: not len(live.state.live_workloads()), most_s=75)
            self.left = len(live.state.live_workloads())
        self.errors, self.world = owners.errors, live.world
        empty(plane)

    def _look(self, plane):
        for one in plane.admin.get(_PODS)["items"]:
            at, sent = one["spec"].get("nodeName"), one["spec"].get("nodeSelector", {}).get(HOST)
            if at:
                self.nodes[one["metadata"]["name"]] = (at, sent)
                self.specs[one["metadata"]["name"]] = one["spec"]
        for kind in _KINDS:
            name = kind.lower()
            over = is_over(plane, kind, name) if kind in _ENDS else is_running(plane, name, _STAYS[kind])
            self.done[kind] = self.done[kind] or over
        return all(self.done.values())


def _placed(one):
    """The name of a pod that has a node."""
    return one["metadata"]["name"] if one["spec"].get("nodeName") else ""


@pytest.fixture(scope="module")
def gated(plane):
    """All kinds, labelled; nobody suspended them but the door, and the cluster's own scheduler binds their pods."""
    for kind in _KINDS:
        submit(plane, PATHS[kind], queued(make(kind, kind.lower())))
    return Went(plane, on_spot(QUEUES, 1_000), spot_node, **GATE_MODE)


@pytest.fixture(scope="module")
def bound(plane, gated):
    """All kinds, with pods that name us as their scheduler."""
    for kind in _KINDS:
        submit(plane, PATHS[kind], make(kind, kind.lower(), scheduler="tidegate"))
    return Went(plane)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_job_waits_until_it_is_let_go(gated, bound, kind):
    assert not [name for name in gated.early | bound.early if name.startswith(kind.lower())]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_job_that_is_gated_is_let_go_and_runs(gated, kind):
    assert gated.done[kind], (gated.errors[-3:], gated.world.latest_failure)


def test_gated_pods_go_where_they_were_sent(gated):
    assert len(gated.nodes) >= sum(_ENDS.values())
    assert [name for name, (at, sent) in gated.nodes.items() if at != sent] == []
    assert gated.world.outcomes[WriteOutcome.FAILED] == gated.left == 0


def test_gated_pods_get_the_labels_and_tolerations_of_their_flavor(gated):
    """Nodes of the flavor are tainted: without them no pod would run."""
    kinds = {kind for kind in _KINDS if any(name.startswith(kind.lower()) for name in gated.specs)}
    assert kinds == set(_KINDS)
    without = {
        name: (spec.get("nodeSelector"), spec["tolerations"])
        for name, spec in gated.specs.items()
        if not POOL.items() <= spec.get("nodeSelector", {}).items() or spec["tolerations"].count(SPOT_TOLERATION) != 1
    }
    assert without == {}


@pytest.mark.parametrize("kind", _KINDS)
def test_a_job_whose_pods_we_bind_runs(bound, kind):
    assert bound.done[kind], (bound.errors[-3:], bound.world.latest_failure)


def gating(plane):
    """An engine that gates work of a queue with eight GPUs."""
    return Live.on(plane, options=options(**GATE_MODE), policy=QUEUES)


def job_of(plane, name):
    return plane.admin.get(f"{_JOBS}/{name}")


def template_of(plane, name):
    return job_of(plane, name)["spec"]["template"]["spec"]


def high(name, **more):
    return queued(pod(name, 8, priorityClassName="high", **more))


def test_a_preempted_job_comes_back_with_its_nodes_free_to_change(cluster):
    submit(cluster, _JOBS, queued(make("Job", "low", gpus=4, runs="4s")))
    with gating(cluster) as live:
        live.until(lambda: is_running(cluster, "low", 2), what="the job running")
        (first,) = {one["spec"]["nodeName"] for one in pods_of(cluster, "low")}
        assert template_of(cluster, "low")["schedulingGates"] == [{"name": GATE}]
        assert {one["spec"]["nodeSelector"][HOST] for one in pods_of(cluster, "low")} == {first}
        submit(cluster, _PODS, high("urgent", runs="1s"))
        live.until(lambda: is_running(cluster, "urgent", 1), what="the urgent pod running")
        assert job_of(cluster, "low")["spec"]["suspend"] is True
        live.until(lambda: BEFORE not in job_of(cluster, "low")["metadata"].get("annotations", {}), what="a clean job")
        assert "schedulingGates" not in template_of(cluster, "low")
        cluster.admin.patch(f"{_NODES}/{first}", {"spec": {"unschedulable": True}})
        live.until(lambda: is_over(cluster, "Job", "low"), most_s=40, what="the job over")
    (second,) = {one["spec"]["nodeName"] for one in pods_of(cluster, "low") if one["status"]["phase"] == "Succeeded"}
    assert second != first
    assert live.world.outcomes[WriteOutcome.FAILED] == 0, live.world.latest_failure


def _fields(thing):
    """What an object asks for, without what tells its current state."""
    return {**thing["spec"], "suspend": None, "runPolicy": {**thing["spec"].get("runPolicy", {}), "suspend": None}}


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob", "MPIJob", "TrainJob", "RayJob", "RayCluster"])
def test_what_flavors_brought_is_taken_back_from_a_job_that_is_suspended_again(plane, kind):
    """With tolerations of its own, which stay."""
    for number in range(2):
        plane.admin.post(_NODES, spot_node(f"n{number}"))
    theirs = {"key": "own", "operator": "Exists"}
    own = {} if kind == "TrainJob" else {"tolerations": [theirs], "nodeSelector": {"pool": "spot"}}
    submit(plane, PATHS[kind], queued(make(kind, "low", gpus=4, **own)))

    def see():
        return plane.admin.get(f"{PATHS[kind]}/low")

    before = see()
    with Live.on(plane, options=options(**GATE_MODE), policy=on_spot(QUEUES)) as live:
        live.until(lambda: _fields(see()) != _fields(before), what="a start")
        assert '"operator": "Equal"' in json.dumps(see()["spec"])
        submit(plane, _PODS, high("urgent"))
        live.until(lambda: BEFORE not in see()["metadata"].get("annotations", {}), most_s=40, what="a clean job")
        live.until(lambda: is_running(plane, "urgent", 1), what="the urgent pod running")
        assert _fields(see()) == _fields(before)
        assert live.world.outcomes[WriteOutcome.FAILED] == 0, live.world.latest_failure
    empty(plane)


def test_a_job_that_may_start_with_fewer_pods_says_so_and_asks_for_all_again(cluster):
    partial = queued(make("Job", "partial", gpus=4, runs="3s"))
    partial["spec"] |= {"parallelism": 4, "completions": 4}
    partial["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    submit(cluster, _JOBS, partial)
    with gating(cluster) as live:
        live.until(lambda: is_running(cluster, "partial", 2), what="two of four pods running")
        assert job_of(cluster, "partial")["spec"]["parallelism"] == 2
        submit(cluster, _PODS, high("urgent", runs="1s"))
        live.until(lambda: job_of(cluster, "partial")["spec"]["parallelism"] == 4, what="all it asks for")
        assert job_of(cluster, "partial")["spec"]["suspend"] is True
        live.until(lambda: is_over(cluster, "Job", "partial"), most_s=60, what="the job over")
    assert job_of(cluster, "partial")["status"]["succeeded"] == 4


def test_pods_of_a_set_on_several_nodes_go_each_to_its_own(cluster):
    submit(cluster, _JOBS, queued(make("Job", "wide", gpus=8)))
    with Live.on(cluster, options=options(**GATE_MODE)) as live:
        live.until(lambda: pods_of(cluster, "wide"), what="its pods")
        assert template_of(cluster, "wide")["schedulingGates"] == [{"name": "tidegate.io/admission"}]
        live.until(lambda: is_over(cluster, "Job", "wide"), what="the job over")
    places = [(one["spec"]["nodeName"], one["spec"]["nodeSelector"][HOST]) for one in pods_of(cluster, "wide")]
    assert sorted(places) == [("n0", "n0"), ("n1", "n1")]


def test_pods_and_groups_wait_behind_a_gate_until_there_is_room(cluster):
    for number in range(2):
        submit(cluster, _PODS, queued(pod(f"g-{number}", 4, runs="3s", group=("g", 2))))
    with gating(cluster) as live:
        live.until(lambda: is_running(cluster, "g-", 2), what="the group running")
        submit(cluster, _PODS, queued(pod("single", 8, runs="1s")))
        live.until(lambda: len(live.state.live_workloads()) == 2, what="a pod that waits")
        assert "nodeName" not in pods_of(cluster, "single")[0]["spec"]
        live.until(lambda: all(one["status"]["phase"] == "Succeeded" for one in pods_of(cluster, "")), most_s=40)


def test_work_that_slipped_past_the_door_is_told_of_and_not_touched(cluster):
    submit(cluster, _JOBS, queued(make("Job", "slipped", runs="")))
    cluster.admin.patch(f"{_JOBS}/slipped", {"spec": {"suspend": False}})
    cluster.wait_for(lambda: is_running(cluster, "slipped", 2))
    before = job_of(cluster, "slipped")["metadata"]["generation"]
    with gating(cluster) as live:
        live.until(lambda: len(live.steps.kept) > 3)
        assert [ref.name for ref in live.world.reconciler.past.values()] == ["slipped"]
        assert len(live.state.live_workloads()) == 0
        submit(cluster, _PODS, queued(pod("other", 6)))
        live.until(lambda: is_running(cluster, "other", 1), what="work beside it")
        submit(cluster, _JOBS, queued(make("Job", "waits", gpus=8)))
        live.until(lambda: len(live.state.live_workloads()) == 2)
        cluster.admin.patch(f"{_JOBS}/waits", {"spec": {"suspend": False}})
        live.until(lambda: len(live.world.reconciler.past) == 2, what="the other one told of")
    assert job_of(cluster, "slipped")["metadata"]["generation"] == before


def test_we_own_what_we_wrote_and_no_more(cluster):
    submit(cluster, _JOBS, queued(make("Job", "owned", runs="")))
    with gating(cluster) as live:
        live.until(lambda: is_running(cluster, "owned", 2))
    managed = job_of(cluster, "owned")["metadata"]["managedFields"]
    gates = {".": {}, f'k:{{"name":"{GATE}"}}': {".": {}, "f:name": {}}}
    (ours,) = [one["fieldsV1"] for one in managed if one["manager"] == "tidegate"]
    assert ours == {
        "f:metadata": {"f:annotations": {".": {}, f"f:{BEFORE}": {}}},
        "f:spec": {"f:suspend": {}, "f:template": {"f:spec": {"f:schedulingGates": gates}}},
    }
