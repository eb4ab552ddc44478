"""Who takes over decides as who led before would have: quota, places and nominations are handed over by objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubebench.objects import job
from kubepaper import QUEUES, job_pods, ours, paper, queued, said
from kuberelay import Relay, active, make_pods, make_up, relay
from tidegate.kube.actuator.pending_writes import PendingWrite
from tidegate.kube.mirror.handover_annotation import MOST_BYTES, HandoverNote, annotated, in_runs, read_note, write_note
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.kube.transport.resources import JOBS
from tidegate.kube.transport.writes import Ref, edit, merge
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.live.handover import decode_shared_handover
from tidegate.manifests.label_names import HANDOVER_NOTE
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import WriteOutcome
from tidegate.model.observed_status import DomainAssignment, ObservedStatus, PodSetAssignment
from tidegate.model.policy import Policy
from tidegate.model.queues import UsageSharing


def test_quota_is_held_after_the_hand_over():
    cluster = relay()
    cluster.put(queued(job("a", 1, 8, suspend=True, scheduler="tidegate")))
    assert cluster.step() == [("start", "job/a")]
    cluster.obey()
    cluster.take_over()
    cluster.put(queued(job("b", 1, 8, suspend=True, scheduler="tidegate")))
    assert cluster.step() == []
    assert sum(cluster.usage()["queue/q"]) > 0


def test_places_of_pods_that_are_not_there_yet_are_kept():
    cluster = relay(3, Policy())
    cluster.put(job("j", 2, 8, suspend=True, scheduler="tidegate"))
    cluster.step()
    places = [cluster.reconciler.node_registry.name_of(slot.node) for slot in cluster.reconciler.workloads[0].slots]
    cluster.obey()
    cluster.take_over()
    assert cluster.step() == []  # it is started, and its places are taken
    cluster.put(ours("alone", 8))
    cluster.put(ours("waits", 1))
    assert cluster.step() == [("bind", "pod/alone")]
    cluster.obey()
    assert cluster.nodes_of("alone")[0] not in places
    job_pods(cluster, "j", 2, gpus=8)
    assert sorted(cluster.step()) == [("bind", "pod/j-0"), ("bind", "pod/j-1")]
    cluster.obey()
    assert sorted(cluster.nodes_of("j-0", "j-1")) == sorted(places)


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_a_job_whose_first_pods_are_done_goes_on_after_the_hand_over(bound):
    """Pods that are over are still there; those that follow them run elsewhere, or are still to be bound."""
    cluster = relay(2)
    cluster.put(queued(job("j", 2, 4, suspend=True, scheduler="tidegate")), spec__completions=4)
    cluster.step()
    cluster.obey()
    job_pods(cluster, "j", 2, gpus=4)
    cluster.step()
    cluster.obey()
    first = cluster.nodes_of("j-0", "j-1")
    for at in range(2):
        cluster.change(f"pod/j-{at}", status__phase="Succeeded")
    cluster.change("job/j", status__succeeded=2)
    cluster.change(f"node/{first[0]}", spec__unschedulable=True)  # so that the others run elsewhere
    cluster.step()
    cluster.obey()
    job_pods(cluster, "j", bound, first=2, gpus=4)
    cluster.step()
    cluster.obey()
    job_pods(cluster, "j", 2 - bound, first=2 + bound, gpus=4)
    for at in range(2, 2 + bound):
        cluster.change(f"pod/j-{at}", status__phase="Running")
    cluster.take_over()
    cluster.step()
    assert DecisionKind.EVICT not in cluster.result.decisions.kind.tolist()
    cluster.obey()
    assert all(node not in (None, first[0]) for node in cluster.nodes_of("j-2", "j-3"))
    assert cluster.usage()["queue/q"][1] == 8


@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("left", [True, False])
def test_a_job_that_is_done_in_part_goes_on_after_the_hand_over(bound, left):
    """Its first two pods are done and not made again; they may still be there."""
    cluster = relay(2)
    cluster.put(queued(job("j", 4, 2, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    job_pods(cluster, "j", 2 + bound, gpus=2)
    cluster.step()
    cluster.obey()
    for at in range(2):
        cluster.change(f"pod/j-{at}", status__phase="Succeeded")
        if not left:
            cluster.remove(f"pod/j-{at}")
    cluster.change("job/j", status__succeeded=2)
    job_pods(cluster, "j", 2 - bound, first=2 + bound, gpus=2)
    cluster.take_over()
    cluster.step()
    assert DecisionKind.EVICT not in cluster.result.decisions.kind.tolist()
    cluster.obey()
    assert all(cluster.nodes_of("j-2", "j-3"))
    assert cluster.usage()["queue/q"][1] == 4


_TAINT = {"key": "maintenance", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "change", [{"spec__unschedulable": True}, {"status__conditions": []}, {"spec__taints": [_TAINT]}]
)
def test_no_pod_goes_to_a_node_that_was_closed_while_nobody_led(change):
    cluster = relay(3)
    cluster.put(queued(job("j", 2, 4, suspend=True, scheduler="tidegate")))
    cluster.step()
    place = cluster.reconciler.node_registry.name_of(cluster.reconciler.workloads[0].slots[0].node)
    cluster.obey()
    job_pods(cluster, "j", 2, gpus=4)
    cluster.change(f"node/{place}", **change)
    cluster.take_over()
    cluster.step()
    cluster.obey()
    assert cluster.usage()["queue/q"][1] == 8
    assert all(node not in (None, place) for node in cluster.nodes_of("j-0", "j-1"))


def test_half_a_gang_that_was_being_bound_is_bound_whole():
    cluster = relay(3)
    for name in "ab":
        cluster.put(ours(name, 8, group=("g", 2)))
    cluster.policy = Policy()
    cluster.step()
    places = {order.write.key: json.loads(order.write.request.body)["target"]["name"] for order in cluster.orders}
    first = cluster.orders[0]
    assert cluster.carry_out(first)
    cluster.take_over()
    (other,) = {"pod/a", "pod/b"} - {first.write.key}
    assert cluster.step() == [("bind", other)]
    cluster.obey()
    assert cluster.nodes_of("a", "b") == [places["pod/a"], places["pod/b"]]


def test_a_victim_that_is_leaving_holds_its_quota_until_it_is_gone():
    cluster = relay(2)
    cluster.put(queued(job("low", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    held = cluster.usage()
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "job/low")]
    assert cluster.carry_out(cluster.orders[0])  # it is told to go; its pod takes its time
    cluster.take_over()
    assert cluster.step() == []
    assert cluster.usage() == held
    cluster.remove("pod/low-0")
    assert cluster.step() == [("bind", "pod/high")]
    cluster.obey()
    assert cluster.usage() == held
    cluster.remove("pod/high")
    assert cluster.step() == [("start", "job/low")]


@pytest.mark.parametrize("sees_it_leave", [False, True])
def test_work_that_leaves_while_nobody_leads_is_said_to_wait_again(sees_it_leave):
    """The leader that evicted it ended before its pods were gone: the next one says that it waits."""
    cluster = relay(2)
    cluster.put(queued(job("low", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "job/low")]
    assert cluster.carry_out(cluster.orders[0])
    if sees_it_leave:
        cluster.take_over()
        cluster.step()
    cluster.remove("pod/low-0")
    if not sees_it_leave:
        cluster.take_over()
    cluster.step()
    assert [one.object for one in said(cluster) if one.reason == "Requeued"] == ["low"]
    assert [one.object for one in said(cluster) if one.reason == "Requeued"] == []


@pytest.mark.parametrize("takes_over", [False, True])
def test_room_that_was_made_for_a_pod_is_kept_for_it_by_whoever_takes_over(takes_over):
    cluster = relay(2)
    cluster.put(queued(job("low", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "job/low")]
    assert cluster.carry_out(cluster.orders[0])
    if takes_over:
        cluster.take_over()
    cluster.put(queued(ours("urgent", 1, priority=20)))
    assert cluster.step() == []
    cluster.remove("pod/low-0")
    assert cluster.step()[0] == ("bind", "pod/high")


@pytest.mark.parametrize("takes_over", [False, True])
def test_who_keeps_room_because_it_was_passed_over_keeps_it_under_whoever_takes_over(takes_over):
    cluster = relay(1)
    cluster.put(queued(ours("small", 1)))
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("large", 8)))
    cluster.step()
    cluster.now_ms += 3_600_000
    cluster.put(queued(ours("next", 1)))
    assert cluster.step() == []
    if takes_over:
        cluster.take_over()
        assert cluster.step() == []
    cluster.remove("pod/small")
    assert cluster.step() == [("bind", "pod/large")]


def test_a_job_that_its_owner_suspended_waits_like_any_other():
    cluster = relay()
    cluster.put(queued(job("a", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    cluster.change("job/a", spec__suspend=True)
    cluster.objects["job/a"]["spec"]["suspend"] = True
    cluster.take_over()
    assert cluster.step() == [("start", "job/a")]


@pytest.mark.parametrize("seen", ["succeeded", "leaving"])
@pytest.mark.parametrize("evicted", [True, False])
def test_a_job_that_waits_does_not_run_because_pods_of_before_are_still_there(seen, evicted):
    """Found in a game day: a victim whose first pods had succeeded was started again by the next leader, beyond its
    queue's quota."""
    cluster = relay(2)
    cluster.put(queued(job("j", 2, 4, suspend=True, scheduler="tidegate")), spec__completions=4)
    cluster.step()
    cluster.obey()
    job_pods(cluster, "j", 2, gpus=4)
    cluster.step()
    cluster.obey()
    if seen == "succeeded":
        for at in range(2):
            cluster.change(f"pod/j-{at}", status__phase="Succeeded")
        cluster.change("job/j", status__succeeded=2)
        job_pods(cluster, "j", 2, first=2, gpus=4)
        cluster.step()
        cluster.obey()
    cluster.put(queued(ours("next", 8, priority=10)))
    if evicted:
        assert cluster.step() == [("stop", "job/j")]
        assert cluster.carry_out(cluster.orders[0])
    else:
        cluster.change("job/j", spec__suspend=True)
    for at in range(2, 4) if seen == "succeeded" else range(1):
        cluster.remove(f"pod/j-{at}")  # as its controller does; one pod may take its time
    if seen == "leaving":
        cluster.change("pod/j-1", metadata__deletionTimestamp="2026-11-16T09:00:00Z")
    cluster.take_over()
    assert ("start", "job/j") not in cluster.step()
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is True
    assert cluster.usage()["queue/q"][1] == 8
    if seen == "leaving":
        cluster.remove("pod/j-1")
        cluster.step()
        cluster.obey()
    assert all(cluster.nodes_of("next"))
    cluster.remove("pod/next")
    assert cluster.step() == [("start", "job/j")]


@pytest.mark.parametrize("admitted", [True, False])
def test_a_victim_that_its_owner_resumed_and_that_was_admitted_since_keeps_its_place(admitted):
    """Found in a game day: the Job still says that it was evicted, as only its pods were written to since."""
    cluster = relay(2)
    cluster.put(queued(job("low", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "job/low")]
    assert cluster.carry_out(cluster.orders[0])
    if admitted:
        cluster._see("job/low")
        cluster.remove("pod/low-0")
        cluster.step()
        cluster.obey()
        cluster.change("job/low", spec__suspend=False)
        cluster.remove("pod/high")
        job_pods(cluster, "low", 1, first=1, gpus=8)
        assert ("bind", "pod/low-1") in cluster.step()
        cluster.obey()
    else:
        cluster.change("job/low", spec__suspend=False)
    cluster.take_over()
    assert cluster.step() == ([] if admitted else [("stop", "job/low")])
    assert cluster.usage()["queue/q"][1] == 8


def test_a_failed_bind_of_what_was_decided_before_us_harms_nobody_else():
    cluster = relay(3)
    for name in "ab":
        cluster.put(ours(name, 8, group=("g", 2)))
    cluster.put(ours("c", 8))
    cluster.policy = Policy()
    cluster.step()
    for order in cluster.orders:
        if order.write.key != "pod/b":
            cluster.carry_out(order)
    cluster.take_over()
    cluster.step()
    WriteOutcomes(cluster.reconciler).settle(cluster.orders[0], WriteOutcome.FAILED)
    told = cluster.step()
    assert ("stop", "pod/c") not in told
    assert ("stop", "pod/a") in told  # the gang is given back whole


def test_a_gang_whose_binds_all_fail_while_it_is_given_back_comes_back():
    """The second bind fails, the gang is told to go, and only then it is heard that the first failed, too."""
    cluster = paper()
    for name in "ab":
        cluster.put(ours(name, 8, group=("g", 2)))
    cluster.step()
    first, second = cluster.orders
    WriteOutcomes(cluster.reconciler).settle(second, WriteOutcome.FAILED)
    assert cluster.step() == [("stop", "pod/a")]
    WriteOutcomes(cluster.reconciler).settle(cluster.orders[0], WriteOutcome.DONE)  # it is said to be gone, and is not
    WriteOutcomes(cluster.reconciler).settle(first, WriteOutcome.FAILED)
    assert sorted(cluster.step()) == [("bind", "pod/a"), ("bind", "pod/b")]


def test_a_job_that_was_made_smaller_loses_less_work():
    cluster = relay()
    for number in range(2):
        _do(cluster, number, ("submit", 2, 2))
        cluster.obey()
        make_pods(cluster)
    _do(cluster, 2, ("shrink", 0))
    cluster.obey()
    cluster.put(queued(ours("high", 4, priority=10)))
    assert [key for _, key in cluster.step()] == ["job/j00"]  # it runs for longer, on half as many GPUs


_OPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 3), st.integers(1, 4)),
        st.tuples(st.just("pod"), st.integers(1, 8), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 5)),
        st.tuples(st.just("succeed"), st.integers(0, 5)),
        st.tuples(st.just("shrink"), st.integers(0, 5)),
        st.tuples(st.just("grow"), st.integers(0, 5)),
        st.tuples(st.just("leave")),
    ),
    min_size=3,
    max_size=14,
)
_GROWN_AGAIN = [("submit", 2, 4), ("shrink", 0), ("pod", 4, 0), ("grow", 0)]
_DONE_IN_PART = [("submit", 3, 1), ("shrink", 0), ("succeed", 0), ("succeed", 0), ("grow", 0), ("leave",)]
_SHRUNK_AND_EVICTED = [("submit", 3, 2), ("submit", 2, 1), ("shrink", 0), ("pod", 4, 2), ("leave",), ("finish", 0)]
_EVICTED_IN_PART = [("submit", 2, 4), ("succeed", 0), ("pod", 5, 2), ("submit", 3, 1)]
_USAGE = msgspec.structs.replace(
    QUEUES,
    shares=msgspec.structs.replace(
        QUEUES.shares,
        usage=UsageSharing(half_life_ms=60_000, sampling_ms=1_000),
        queues=(msgspec.structs.replace(QUEUES.shares.queues[0], usage_based=True),),
    ),
)


@settings(max_examples=100, deadline=None)
@example(ops=_DONE_IN_PART, at={4}, early={4}, policy=QUEUES)
@example(ops=_GROWN_AGAIN, at=set(), early={3}, policy=QUEUES)
@example(ops=_SHRUNK_AND_EVICTED, at={3}, early={2}, policy=QUEUES)
@example(ops=_EVICTED_IN_PART, at={2}, early=set(), policy=QUEUES)
@given(
    ops=_OPS,
    at=st.sets(st.integers(0, 13)),
    early=st.sets(st.integers(0, 13)),
    policy=st.sampled_from([QUEUES, _USAGE]),
)
def test_a_run_with_hand_overs_is_the_run_without(ops, at, early, policy):
    """Whoever leads, the same work is started at the same places, and every queue uses the same.

    Who leads may die before a Job that grew is set back, or before the annotation of one that shrank says so: then the
    next leader does it.
    """
    plain, relayed = relay(2, policy), relay(2, policy)
    for number, op in enumerate(ops):
        for cluster in (plain, relayed):
            _do(cluster, number, op)
        if number in early and op[0] in ("grow", "shrink"):
            relayed.take_over()
            relayed.now_ms -= 1000
            relayed.step()
        assert [_shown(order) for order in plain.orders] == [_shown(order) for order in relayed.orders]
        for cluster in (plain, relayed):
            cluster.obey()
            make_pods(cluster)
        assert plain.usage() == relayed.usage()
        if number in at:
            relayed.take_over()
            relayed.now_ms -= 1000  # the look of who takes over costs no time
            assert relayed.step() == []
    assert plain.objects.keys() == relayed.objects.keys()


def _do(cluster: Relay, number: int, op: tuple[Any, ...]) -> None:
    if op[0] == "submit":
        cluster.put(queued(job(f"j{number:02}", op[1], op[2], suspend=True, scheduler="tidegate")))
    elif op[0] == "pod":
        cluster.put(queued(ours(f"p{number:02}", op[1], priority=op[2])))
    elif op[0] in _IN_JOB:
        jobs = sorted(name for name in cluster.objects if name.startswith("job/"))
        running = [name for name in jobs if not cluster.objects[name]["spec"]["suspend"]]
        if running:
            _IN_JOB[op[0]](cluster, running[op[1] % len(running)])
    else:  # what controllers do, in their own time
        jobs = [
            name for name in cluster.objects if name.startswith("job/") and cluster.objects[name]["spec"]["suspend"]
        ]
        for name in jobs:
            _remove_pods(cluster, name)
    cluster.step()


def _finish(cluster: Relay, name: str) -> None:
    _remove_pods(cluster, name)
    cluster.remove(name)


def _succeed(cluster: Relay, name: str) -> None:
    """One pod of a job is done, and not made again."""
    first, *others = active(cluster, name) or [""]
    if others:
        cluster.change(first, status__phase="Succeeded")
        cluster.change(name, status__succeeded=cluster.objects[name].get("status", {}).get("succeeded", 0) + 1)


def _shrink(cluster: Relay, name: str) -> None:
    """A job is made smaller by its owner: its controller takes a pod away."""
    *others, last = active(cluster, name) or [""]
    if others:
        cluster.change(name, spec__parallelism=len(others))
        cluster.remove(last)


def _grow(cluster: Relay, name: str) -> None:
    """A job is made larger by its owner: its controller makes a pod more, whether there is quota for it or not."""
    spec, pods = cluster.objects[name]["spec"], [one for one in cluster.objects if one.startswith(f"pod/{name[4:]}-")]
    if pods and spec["parallelism"] < spec["completions"]:
        cluster.change(name, spec__parallelism=spec["parallelism"] + 1)
        make_up(cluster, name)


_IN_JOB = {"finish": _finish, "succeed": _succeed, "shrink": _shrink, "grow": _grow}


def _remove_pods(cluster: Relay, name: str) -> None:
    for pod in [one for one in cluster.objects if one.startswith(f"pod/{name[4:]}-")]:
        cluster.remove(pod)


def _shown(order: PendingWrite) -> tuple[str, str, Any]:
    body = json.loads(order.write.request.body)
    return order.write_kind.name, order.write.key, body.get("target") if isinstance(body, dict) else None


# -- notes -------------------------------------------------------------------------------------------------------


@given(st.lists(st.text("ab", min_size=1, max_size=2), max_size=20))
def test_runs_are_read_back(names):
    note = HandoverNote(standing=ObservedStatus(queue="q"), nodes=in_runs(names))
    again = read_note(write_note(note))
    assert again == note
    assert again.node_names() == names


def test_a_note_is_never_too_long_for_its_object():
    names = [f"node-with-a-rather-long-name-{number}" for number in range(5_000)]
    text = write_note(HandoverNote(standing=ObservedStatus(queue="q"), nodes=in_runs(names)))
    assert len(text) < MOST_BYTES
    assert read_note(text) == HandoverNote(standing=ObservedStatus(queue="q"))


def test_what_somebody_else_wrote_is_no_note():
    assert read_note("[") is read_note('{"standing": 3}') is None


def test_notes_go_into_patches_of_every_kind():
    ref = Ref(JOBS, "ns", "j", "u")
    merged = json.loads(annotated(merge(ref, {"spec": {"suspend": False}}), "x").request.body)
    assert merged["metadata"] == {"annotations": {HANDOVER_NOTE: "x"}, "uid": "u"}
    fresh = [{"op": "add", "path": "/metadata/annotations", "value": {"other": "y"}}]
    whole = json.loads(annotated(edit(ref, fresh), "x").request.body)
    assert whole[-1]["value"] == {"other": "y", HANDOVER_NOTE: "x"}
    bare = json.loads(annotated(edit(ref, []), "x", KubeObjectMeta(resource_version="7")).request.body)
    assert bare[-2:] == [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {HANDOVER_NOTE: "x"}},
    ]
    added = json.loads(annotated(edit(ref, []), "x", KubeObjectMeta(annotations={"a": "b"})).request.body)
    assert added[-1] == {"op": "add", "path": "/metadata/annotations/tidegate.io~1standing", "value": "x"}


# -- notes of other versions: upgrade, and rollback ----------------------------------------------------------------


def _with_more(value: Any) -> Any:
    """A value as a later version may write it: with a field more wherever there are fields."""
    if isinstance(value, dict):
        return {**{name: _with_more(inner) for name, inner in value.items()}, "since_v9": {"deep": [1, None]}}
    return [_with_more(inner) for inner in value] if isinstance(value, list) else value


def _running(note: Callable[[str], str]) -> Relay:
    """A job of eight GPUs runs, its pod on a node, with the note of another version; there is quota for eight."""
    cluster = relay()
    cluster.put(queued(job("a", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    job_pods(cluster, "a", 1, gpus=8)
    cluster.step()
    cluster.obey()
    for thing in cluster.objects.values():
        annotations = thing["metadata"].get("annotations") or {}
        if HANDOVER_NOTE in annotations:
            annotations[HANDOVER_NOTE] = note(annotations[HANDOVER_NOTE])
    return cluster


@pytest.mark.parametrize(
    "note",
    [
        lambda text: json.dumps(_with_more(json.loads(text))),  # of a later version: more fields
        lambda text: json.dumps({"v": 9, "zip": "H4sIAAAA"}),  # of a later version: another form altogether
        lambda text: "not even JSON",
        lambda text: json.dumps({"standing": {"queue": json.loads(text)["standing"]["queue"]}}),  # of an older: fewer
        lambda text: "",
    ],
)
def test_quota_is_held_whatever_another_version_wrote(note):
    cluster = _running(note)
    cluster.take_over()
    cluster.step()
    assert sum(cluster.usage()["queue/q"]) > 0
    cluster.put(queued(job("b", 1, 8, suspend=True, scheduler="tidegate")))
    assert ("start", "job/b") not in cluster.step()
    cluster.remove("pod/a-0")
    cluster.change("job/a", status__conditions=[{"type": "Complete", "status": "True"}])
    assert ("start", "job/b") in cluster.step()  # what was held is given back once


def test_what_a_later_version_adds_to_a_note_changes_nothing_else():
    known = HandoverNote(
        standing=ObservedStatus(
            queue="q",
            grants=(PodSetAssignment(pod_set="main", count=1, spots=(DomainAssignment(values=("a",), count=1),)),),
            admitted=True,
        ),
        nodes=(("n0", 1),),
    )
    assert read_note(json.dumps(_with_more(json.loads(write_note(known))))) == known
    consumed, waiting = [{"entrance": "default/team", "milli": [["cpu", 5]]}], {"default/a": {"nominated": True}}
    kept = {"consumed": consumed, "waiting": waiting}
    more = {**kept, "new": 1}
    more["consumed"] = _with_more(kept["consumed"])
    more["waiting"] = {"default/a": {"nominated": True, "new": 2}}
    assert (
        decode_shared_handover(json.dumps(more))
        == decode_shared_handover(json.dumps(kept))
        != decode_shared_handover("")
    )
    assert decode_shared_handover("[" * 100_000) == decode_shared_handover("")
