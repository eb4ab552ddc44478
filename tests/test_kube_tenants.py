"""What tenants write: no annotation, group or job of theirs crashes the loop, stalls it, or gets them quota."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from typing import Any

import msgspec
import pytest

from kubebench.objects import job
from kubefake import Fake, answer, stream
from kubejobs import make
from kubepaper import QUEUES, Paper, ours, paper, queued
from tidegate.engine.quota_reservations import holding_of
from tidegate.kube.mirror.handover_annotation import MOST_BYTES, VERSION, HandoverNote, read_note
from tidegate.kube.mirror.handover_check import HandoverCheck
from tidegate.kube.mirror.job_patch import BEFORE
from tidegate.kube.mirror.ownership import Ownership
from tidegate.kube.takeover import HandoverState, Takeover
from tidegate.kube.transport.reflector import cut_nesting
from tidegate.kube.world import KubeWorld, WorldOptions
from tidegate.manifests.label_names import GROUP, GROUP_FAST, HANDOVER_NOTE, QUEUE, ROLE
from tidegate.model.policy import Policy

GPU = "nvidia.com/gpu"


def take_over(cluster: Paper) -> None:
    """Another replica leads: it sees the objects, and the annotations on them."""

    def note_of(uid: str) -> HandoverNote | None:
        text = cluster.objects.get(uid, {}).get("metadata", {}).get("annotations", {}).get(HANDOVER_NOTE)
        return read_note(text) if text else None

    cluster.begin_anew()
    labels_of = cluster.reconciler.node_registry.labels_of
    check = HandoverCheck(note_of, cluster.policy.shares, labels_of, cluster.now_ms)
    Takeover(cluster.reconciler).resume(check, HandoverState())


def noted(thing: dict[str, Any], note: Any) -> dict[str, Any]:
    """An object with a hand-over annotation that its owner wrote."""
    thing["metadata"].setdefault("annotations", {})[HANDOVER_NOTE] = note if isinstance(note, str) else json.dumps(note)
    return thing


def grant(**changes: Any) -> dict[str, Any]:
    return {"pod_set": "main", "count": 1, "flavors": [[GPU, "any"], ["cpu", "any"]], **changes}


def standing(*grants: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"queue": "q", "grants": list(grants), **changes}


def gpus_held(cluster: Paper) -> dict[str, int]:
    """The GPUs that workloads are charged for, by id."""
    state = cluster.state
    held = {}
    for row in state.live_workloads().tolist():
        if state.quota.holds_quota(row):
            claims = holding_of(state, row).claims
            held[str(state.workload_ids[row])] = sum(amount for _, name, _, amount in claims if name == GPU)
    return held


# -- forged hand-over annotations --------------------------------------------------------------------------------


def test_a_forged_annotation_on_a_pod_that_waits_is_no_decision():
    cluster = paper(policy=QUEUES)
    cluster.put(queued(ours("legit", 8)))
    cluster.step()
    cluster.obey()
    forged = {"standing": standing(grant(charge=[])), "nodes": [["n1", 1]]}
    cluster.put(noted(queued(ours("evil", 8)), forged))
    assert cluster.step() == []
    take_over(cluster)
    assert cluster.reconciler.take_writes() == []
    assert cluster.step() == []
    assert gpus_held(cluster) == {"default/pod/legit": 8}


@pytest.mark.parametrize(
    "forged",
    [
        {"standing": standing(grant(charge=[[GPU, 0]])), "nodes": [["n0", 1]]},
        {"standing": standing(grant(flavors=[])), "nodes": [["n0", 1]]},
        {"standing": standing(grant(flavors=[[GPU, "nope"]])), "nodes": [["n0", 1]]},
        {"standing": standing(grant(), queue="nope"), "nodes": [["n0", 1]]},
        {"standing": standing(grant(pod_set="zzz")), "nodes": [["n0", 1]]},
        {"standing": standing(grant(count=0)), "nodes": [["n0", 1]]},
        {"standing": standing(grant(), reclaimable=[["main", 1]]), "nodes": [["n0", 1]]},
        {"standing": standing(grant(), evicted="x", finished=True, pinned=True, active=False), "nodes": [["n0", 1]]},
        {"standing": standing(), "nodes": []},
        {},
    ],
)
def test_a_running_pod_is_charged_what_it_asks_for_whatever_its_annotation_says(forged):
    cluster = paper(policy=QUEUES)
    cluster.put(noted(queued(ours("evil", 6)), forged), spec__nodeName="n0", status__phase="Running")
    take_over(cluster)
    cluster.step()
    assert gpus_held(cluster) == {"default/pod/evil": 6}
    cluster.put(queued(ours("more", 3)))
    assert cluster.step() == []


_HUGE = 2**70


@pytest.mark.parametrize(
    "forged",
    [
        {"standing": {}, "nodes": [["x", 500_000_000]]},
        {"standing": {}, "nodes": [["x", 2**40]]},
        {"standing": standing(grant(count=-1))},
        {"standing": standing(grant(count=-1, pod_set="zzz"))},
        {"standing": standing(grant(count=2**40))},
        {"standing": standing(grant(count=_HUGE))},
        {"standing": standing(grant(charge=[[GPU, _HUGE]])), "nodes": [["n0", 1]]},
        {"standing": standing(grant(charge=[[GPU, -(10**6)]])), "nodes": [["n0", 1]]},
        {"standing": standing(grant(), granted_ms=_HUGE), "nodes": [["n0", 1]]},
        {"standing": standing(grant(), evictions=_HUGE), "nodes": [["n0", 1]]},
        {"standing": {"requeue_at_ms": _HUGE}},
        {"standing": standing(grant(spots=[{"values": [], "count": 1}])), "nodes": [["n0", 1]]},
        {"standing": standing(grant(spots=[{"values": ["a", "b"], "count": 1}])), "nodes": [["n0", 1]]},
        {"standing": {"nominated": True, "order_ms": 1}},
        {"version": VERSION + 1, "standing": standing(grant())},
        "[" * 100_000,
        '{"standing": ' + "[" * 15_000,
    ],
)
@pytest.mark.parametrize("kind", ["pod", "running pod", "job", "group"])
def test_no_annotation_stops_the_loop(forged, kind):
    cluster = paper(policy=QUEUES)
    if kind == "job":
        cluster.put(noted(queued(job("evil", 2, 1, scheduler="tidegate")), forged))
    elif kind == "group":
        for number in range(2):
            cluster.put(noted(queued(ours(f"evil{number}", 1, group=("g", 2))), forged))
    else:
        at = {"spec__nodeName": "n0", "status__phase": "Running"} if kind == "running pod" else {}
        cluster.put(noted(queued(ours("evil", 1)), forged), **at)
    take_over(cluster)
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("legit", 4)))
    cluster.step()
    cluster.obey()
    assert cluster.nodes_of("legit") != [None]
    assert not cluster.reconciler.guard.failures


def test_a_kind_that_cannot_be_suspended_is_not_stopped_by_an_annotation():
    cluster = paper(policy=QUEUES)
    made = noted(queued(make("StatefulSet", "s", scheduler="tidegate")), {"standing": {"evicted": "PREEMPTED"}})
    cluster.put(made)
    take_over(cluster)
    assert not cluster.reconciler.guard.failures
    assert cluster.reconciler.take_writes() == []


def test_a_job_whose_annotation_says_fewer_pods_is_charged_for_all_that_it_asks_for():
    cluster = paper(policy=QUEUES)
    evil = noted(queued(job("evil", 4, 2, scheduler="tidegate")), {"standing": standing(grant(count=1))})
    evil["spec"]["suspend"] = False
    cluster.put(evil)
    owner = [{"kind": "Job", "name": "evil", "uid": "job/evil", "controller": True}]
    for number in range(4):
        cluster.put(ours(f"evil-{number}", 2), metadata__ownerReferences=owner, spec__nodeName="n0")
    take_over(cluster)
    cluster.step()
    assert gpus_held(cluster) == {"default/job.batch/evil": 8}


def test_a_job_whose_annotation_says_very_many_pods_holds_no_more_than_there_is_quota():
    """A job that shrank holds what its annotation says until the leader has lowered it: that is done at once."""
    cluster = paper(policy=QUEUES)
    forged = {"standing": standing(grant(count=100_000)), "nodes": [["n0", 100_000]]}
    evil = noted(queued(job("evil", 1, 2, scheduler="tidegate")), forged)
    evil["spec"]["suspend"] = False
    cluster.put(evil)
    owner = [{"kind": "Job", "name": "evil", "uid": "job/evil", "controller": True}]
    cluster.put(ours("evil-0", 2), metadata__ownerReferences=owner, spec__nodeName="n0")
    take_over(cluster)
    told = cluster.step()
    assert gpus_held(cluster) == {"default/job.batch/evil": 8}
    assert told == [("note_size", "job/evil")]
    cluster.obey()
    assert gpus_held(cluster) == {"default/job.batch/evil": 2}


def test_a_flavor_counts_only_if_the_nodes_belong_to_it():
    from msgspec.structs import replace

    from kubebench.objects import node
    from tidegate.model.queues import Flavor, FlavorGroup, Quota

    (queue,) = QUEUES.shares.queues
    flavors = (Flavor(name="spot", node_labels=(("pool", "spot"),)), Flavor(name="dear", node_labels=(("pool", "d"),)))
    quotas = tuple(
        Quota(flavor=flavor.name, resource=name, nominal=amount)
        for flavor in flavors
        for name, amount in (("cpu", 10**6), (GPU, 8))
    )
    groups = (FlavorGroup(resources=("cpu", GPU), flavors=("spot", "dear")),)
    shares = replace(QUEUES.shares, flavors=flavors, queues=(replace(queue, groups=groups, quotas=quotas),))
    cluster = Paper(replace(QUEUES, shares=shares))
    ready = [{"type": "Ready", "status": "True"}]
    cluster.put(node("n0", 8, labels={"pool": "d"}), status__conditions=ready)
    forged = {"standing": standing(grant(flavors=[[GPU, "spot"], ["cpu", "spot"]])), "nodes": [["n0", 1]]}
    cluster.put(noted(queued(ours("evil", 8)), forged), spec__nodeName="n0", status__phase="Running")
    take_over(cluster)
    cluster.step()
    (row,) = cluster.state.live_workloads().tolist()
    assert {(name, flavor) for _, name, flavor, _ in holding_of(cluster.state, row).claims} == {
        ("cpu", "dear"),
        (GPU, "dear"),
    }


def test_annotations_have_a_version_and_a_length_and_fields_of_newer_replicas_are_passed_over():
    text = '{"standing":{"queue":"q","grants":[],"new_field":1},"nodes":[["n0",8]],"newer":{}}'
    note = read_note(text)
    assert note is not None
    assert note.nodes == (("n0", 8),)
    assert read_note(json.dumps({"version": VERSION + 1})) is None
    assert read_note(json.dumps({"nodes": [["n" * 200, 1]] * 100})) is None
    assert len(json.dumps({"nodes": [["n" * 200, 1]] * 100})) > MOST_BYTES


# -- groups ------------------------------------------------------------------------------------------------------


def member(name: str, total: int = 2, gpus: int = 1, **annotations: str) -> dict[str, Any]:
    made = queued(ours(name, gpus, group=("g", total)))
    made["metadata"]["annotations"] |= annotations
    return made


def refusals(cluster: Paper) -> str:
    return " ".join(" ".join(why) for why in cluster.reconciler.refused.values())


def test_pods_of_different_shapes_under_one_role_are_refused():
    cluster = paper(policy=QUEUES)
    cluster.put(member("a", gpus=1, **{ROLE: "x"}))
    cluster.put(member("b", gpus=8, **{ROLE: "x"}))
    assert cluster.step() == []
    assert "ask for different things" in refusals(cluster)
    assert set(cluster.reconciler.refused) == {"pod/a", "pod/b"}
    cluster.remove("pod/b")
    cluster.put(member("c", gpus=1, **{ROLE: "x"}))
    assert sorted(cluster.step()) == [("bind", "pod/a"), ("bind", "pod/c")]


@pytest.mark.parametrize(
    ("totals", "text"),
    [((999_999, 1), "say 1 and 999,999"), ((3, 2), "say 2 and 3"), ((0, 0), "expected the number of pods")],
)
def test_pods_that_do_not_agree_on_the_size_of_their_group_are_refused(totals, text):
    cluster = paper(policy=QUEUES)
    for name, total in zip("ab", totals, strict=True):
        cluster.put(member(name, total, **{GROUP_FAST: "true"}))
    assert cluster.step() == []
    assert text in refusals(cluster)
    assert not cluster.reconciler.workloads


def test_pods_of_one_group_name_one_queue():
    cluster = paper(policy=QUEUES)
    cluster.put(member("a"))
    other = member("b")
    other["metadata"]["labels"][QUEUE] = "another"
    cluster.put(other)
    assert cluster.step() == []
    assert "different queues" in refusals(cluster)


def test_a_pod_that_changes_its_group_is_no_member_of_the_first_any_more():
    cluster = paper(policy=QUEUES)
    cluster.put(member("a"))
    moved = member("a")
    moved["metadata"]["labels"][GROUP] = "another"
    cluster.put(moved)
    cluster.remove("pod/a")
    cluster.put(member("b"))
    assert cluster.step() == []
    cluster.put(member("c"))
    assert sorted(cluster.step()) == [("bind", "pod/b"), ("bind", "pod/c")]


# -- jobs --------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_cannot_grow_beyond_all_bounds():
    cluster = paper(policy=QUEUES)
    cluster.put(queued(job("j", 9, 1, suspend=True, scheduler="tidegate")))
    assert cluster.step() == []
    cluster.change("job/j", spec__parallelism=2**31 - 1, spec__completions=2**31 - 1)
    assert cluster.step() == []
    assert "2,147,483,647 pods, at most 100,000" in refusals(cluster)


def test_more_resources_than_anybody_needs_are_refused():
    cluster = paper(policy=QUEUES)
    greedy = queued(ours("greedy", 1))
    amounts = {f"example.com/r{number}": "1" for number in range(100)}
    greedy["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    cluster.put(greedy)
    assert cluster.step() == []
    assert "ask for 100 resources, at most 64" in refusals(cluster)


# -- the whole loop ----------------------------------------------------------------------------------------------

DEEP = "[" * 100_000
JOB = {
    **job("evil", 1, suspend=True),
    "metadata": {
        "name": "evil", "namespace": "tenant", "uid": "j1", "resourceVersion": "1", "generation": 1,
        "creationTimestamp": "2026-11-16T08:00:00Z", "annotations": {BEFORE: DEEP, HANDOVER_NOTE: DEEP},
    },
}  # fmt: skip
POD = {
    **ours("p"),
    "metadata": {
        "name": "p", "namespace": "tenant", "uid": "p1", "resourceVersion": "1",
        "creationTimestamp": "2026-11-16T08:00:00Z",
        "annotations": {HANDOVER_NOTE: json.dumps({"standing": {}, "nodes": [["x", 2**40]]})},
    },
    "status": {"phase": "Pending"},
}  # fmt: skip


def serve(items: dict[str, list[Any]], nest: int = 0) -> Any:
    """A server that lists these objects, by the plural of their kind, and then is silent."""
    box: dict[str, Any] = {}
    ready = threading.Event()

    async def behave(asked: Any, writer: Any) -> None:
        if asked.is_watch:
            await stream(then="silence")(asked, writer)
        else:
            found = items.get(asked.path.rpartition("/")[2], [])
            body = json.dumps({"metadata": {"resourceVersion": "5"}, "items": found})
            await answer(200, body.replace('"NEST"', "[" * nest + "]" * nest).encode())(asked, writer)

    async def run() -> None:
        async with Fake(behave) as fake:
            box["access"] = fake.access
            ready.set()
            await asyncio.sleep(30)

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    assert ready.wait(10)
    return box["access"]


def first_facts(items: dict[str, list[Any]], nest: int = 0) -> tuple[int, KubeWorld]:
    options = WorldOptions(ownership=Ownership(watches=True), may_write=lambda: False)
    with KubeWorld(serve(items, nest), Policy(), lambda: int(time.time() * 1000), random.random, options) as world:
        for _ in range(40):
            found = len(world.poll(None).kind)
            if found:
                return found, world
    raise AssertionError("nothing came")


@pytest.mark.parametrize("items", [{"jobs": [JOB]}, {"pods": [POD]}], ids=["job", "pod"])
def test_an_annotation_does_not_end_the_world(items):
    _, world = first_facts(items)
    assert not world.reconciler.guard.failures
    assert len(world.reconciler.workloads) == 1


def test_an_object_that_is_nested_without_end_hides_no_other():
    config = {"opaque": {"driver": "x", "parameters": {"x": "NEST"}}}
    deep = {
        "metadata": {"name": "deep", "namespace": "tenant", "uid": "c1", "resourceVersion": "1"},
        "spec": {"devices": {"config": [config], "requests": []}},
    }
    other = {**POD, "metadata": {**POD["metadata"], "uid": "p2", "name": "q"}}
    _, world = first_facts({"resourceclaims": [deep], "pods": [other]}, nest=5_000)
    assert not world.reconciler.guard.failures
    assert len(world.reconciler.workloads) == 1
    assert world.reconciler._claims._claims["tenant", "deep"].spec is not None


@pytest.mark.parametrize("depth", [0, 3, 255, 256, 257, 5_000])
def test_what_is_nested_too_deep_is_cut(depth):
    text = b'{"a": "]}[{\\"", "b": ' + b'[{"x": ' * depth + b"1" + b"}]" * depth + b', "c": 2}'
    value = msgspec.json.decode(cut_nesting(text))
    assert (value["a"], value["c"]) == (']}[{"', 2)
    assert cut_nesting(text) == text or depth > 100
