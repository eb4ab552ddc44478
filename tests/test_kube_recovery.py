"""Work whose nodes, pods or owners change under it: drains, lost nodes, resumed victims, resized Jobs."""

from __future__ import annotations

import json

import pytest

from kubebench.objects import job, node, pod
from kubepaper import QUEUES, job_pods, ours, paper, patched, queued
from tidegate.kube.actuator.pending_writes import WriteKind
from tidegate.kube.mirror.job_patch import GATE, HOST
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.decisions import DecisionKind
from tidegate.model.facts import WriteOutcome

GANG = {"tidegate.io/recovery": "gang"}


def cordon(cluster, name):
    cluster.change(f"node/{name}", spec__unschedulable=True)


def labelled(thing, **labels):
    thing["metadata"].setdefault("labels", {}).update(labels)
    return thing


def sweep(cluster, pods=4, gpus=4, **more):
    """A Job of independent pods that runs, bound by us: the nodes of its pods."""
    cluster.put(job("sweep", pods, gpus, scheduler="tidegate", **more))
    job_pods(cluster, "sweep", pods, gpus=gpus)
    cluster.step()
    cluster.obey()
    return cluster.nodes_of(*(f"sweep-{n}" for n in range(pods)))


def decided(cluster):
    return [DecisionKind(kind).name for kind in cluster.result.decisions.kind.tolist()]


def test_a_drained_pod_is_bound_to_another_node():
    cluster = paper(nodes=3)
    nodes = sweep(cluster)
    cordon(cluster, nodes[0])
    assert cluster.step() == []  # a cordon alone moves nothing
    drained = [n for n in range(4) if nodes[n] == nodes[0]]
    for number in drained:
        cluster.remove(f"pod/sweep-{number}")
    job_pods(cluster, "sweep", 2, first=4, gpus=4)
    cluster.step()
    cluster.obey()
    assert nodes[0] not in cluster.nodes_of("sweep-4", "sweep-5")
    assert "EVICT" not in decided(cluster)
    cluster.remove(f"node/{nodes[0]}")
    assert cluster.step() == []  # nothing of it is there any more
    assert not decided(cluster)


def test_a_pod_made_again_before_its_node_is_cordoned_goes_elsewhere_too():
    cluster = paper(nodes=3)
    nodes = sweep(cluster)
    cluster.remove("pod/sweep-0")
    assert cluster.step() == []  # its place waits for the next pod
    cordon(cluster, nodes[0])
    cluster.step()
    job_pods(cluster, "sweep", 1, first=4, gpus=4)
    cluster.step()
    cluster.obey()
    assert cluster.nodes_of("sweep-4") != [nodes[0]]


def test_a_lost_node_costs_its_own_pods_and_no_others():
    cluster = paper(nodes=3)
    nodes = sweep(cluster)
    cluster.remove(f"node/{nodes[0]}")
    assert all(kind is not WriteKind.STOP for kind, _ in cluster.step())
    assert decided(cluster) == ["PLACE", "PLACE"]
    for number in range(4):
        if nodes[number] == nodes[0]:
            cluster.remove(f"pod/sweep-{number}")  # as the pod garbage collector does
    job_pods(cluster, "sweep", 2, first=4, gpus=4)
    cluster.step()
    cluster.obey()
    assert set(cluster.nodes_of("sweep-4", "sweep-5")).isdisjoint({nodes[0], None})


@pytest.mark.parametrize("pods", [1, 2])
def test_a_gang_that_loses_a_node_is_stopped_and_placed_again_whole(pods):
    cluster = paper(nodes=3)
    cluster.put(labelled(job("train", pods, 8, scheduler="tidegate"), **GANG))
    job_pods(cluster, "train", pods, gpus=8)
    cluster.step()
    cluster.obey()
    (first, *_) = cluster.nodes_of("train-0")
    cordon(cluster, first)
    cluster.remove("pod/train-0")
    assert ("stop", "job/train") in cluster.step()
    assert decided(cluster)[0] == "EVICT"


def return_node(cluster, name):
    """A node is made again under its name: another object."""
    made = node(name, 8)
    made["metadata"]["uid"] = f"node/{name}-again"
    cluster.put(made, status__conditions=[{"type": "Ready", "status": "True"}])


@pytest.mark.parametrize("steps", [True, False])
def test_a_node_that_is_made_again_under_its_name_still_has_its_pods(steps):
    """Found in a game day: work was sent to the node as if it were empty, and its pods waited there for room."""
    cluster = paper(nodes=2)
    nodes = sweep(cluster, 3)
    (lost,) = {name for name in nodes if nodes.count(name) == 2}
    cluster.remove(f"node/{lost}")
    if steps:
        cluster.step()
        cluster.obey()
    return_node(cluster, lost)
    cluster.step()
    assert "EVICT" not in decided(cluster)
    cluster.obey()
    cluster.put(ours("large", 8))
    assert cluster.step() == []
    cluster.put(ours("small", 4))
    assert cluster.step() == [("bind", "pod/small")]
    cluster.obey()
    assert cluster.nodes_of("small") != [lost]
    for number in range(3):
        if nodes[number] == lost:
            cluster.remove(f"pod/sweep-{number}")
    job_pods(cluster, "sweep", 2, first=3, gpus=4)
    assert sorted(cluster.step()) == [("bind", "pod/sweep-3"), ("bind", "pod/sweep-4")]
    cluster.obey()
    assert cluster.nodes_of("sweep-3", "sweep-4") == [lost, lost]


def test_pods_that_leave_hold_room_on_a_node_that_is_made_again():
    cluster = paper(nodes=2)
    cluster.put(labelled(job("train", 2, 8, scheduler="tidegate"), **GANG))
    job_pods(cluster, "train", 2, gpus=8)
    cluster.step()
    cluster.obey()
    (lost,) = cluster.nodes_of("train-0")
    cluster.remove(f"node/{lost}")
    assert cluster.step() == [("stop", "job/train")]
    cluster.obey()
    return_node(cluster, lost)
    cluster.put(ours("next", 8, priority=10))
    assert cluster.step() == []
    cluster.remove("pod/train-0")
    assert cluster.step() == [("bind", "pod/next")]
    cluster.obey()
    assert cluster.nodes_of("next") == [lost]


def test_a_node_that_comes_after_its_pod_has_that_pod():
    cluster = paper(nodes=1)
    cluster.put(job("j", 1, 8, scheduler="tidegate"))
    job_pods(cluster, "j", 1, gpus=8)
    cluster.change("pod/j-0", spec__nodeName="late")
    cluster.step()
    cluster.obey()
    return_node(cluster, "late")
    cluster.step()
    cluster.put(ours("first", 8))
    cluster.put(ours("second", 8))
    assert len(cluster.step()) == 1
    cluster.obey()
    assert cluster.nodes_of("first", "second") in (["n0", None], [None, "n0"])


def gated_pod(name, owner, gpus=4):
    made = pod(name, gpus, schedulingGates=[{"name": GATE}])
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"job/{owner}", "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def host_of(cluster, name):
    return cluster.objects[f"pod/{name}"]["spec"].get("nodeSelector", {}).get(HOST)


def gated_sweep(cluster, pods=1, gpus=4):
    cluster.put(queued(job("sweep", pods, gpus, suspend=True)))
    cluster.step()
    cluster.obey()
    for number in range(pods):
        cluster.put(gated_pod(f"sweep-{number}", "sweep", gpus))
    cluster.step()
    cluster.obey()


def test_in_gate_mode_a_drained_pod_is_sent_to_another_node():
    cluster = paper(nodes=2, policy=QUEUES, gates=True, scheduler="")
    gated_sweep(cluster, 2)
    host = host_of(cluster, "sweep-0")
    for name in ("sweep-0", "sweep-1"):
        cluster.change(f"pod/{name}", spec__nodeName=host)
    cluster.step()
    cordon(cluster, host)
    cluster.step()
    cluster.remove("pod/sweep-0")
    cluster.put(gated_pod("sweep-2", "sweep"))
    cluster.step()
    cluster.obey()
    assert host_of(cluster, "sweep-2") not in (host, None)
    assert cluster.objects["job/sweep"]["spec"]["suspend"] is False


def test_a_pod_that_waits_for_a_host_that_was_cordoned_is_made_again_and_sent_elsewhere():
    cluster = paper(nodes=2, policy=QUEUES, gates=True, scheduler="")
    gated_sweep(cluster, 2)
    host = host_of(cluster, "sweep-0")
    cluster.change("pod/sweep-1", spec__nodeName=host)  # the cluster's scheduler was quicker with this one
    cluster.step()
    cordon(cluster, host)
    assert cluster.step() == [("stop", "pod/sweep-0")]
    cluster.obey()
    assert "pod/sweep-0" not in cluster.objects
    cluster.put(gated_pod("sweep-2", "sweep"))
    cluster.step()
    cluster.obey()
    assert host_of(cluster, "sweep-2") not in (host, None)


def test_a_bare_pod_that_waits_for_a_host_is_never_deleted_for_a_cordon():
    cluster = paper(nodes=2, policy=QUEUES, gates=True, scheduler="")
    cluster.put(queued(pod("alone", 8, schedulingGates=[{"name": GATE}])))
    cluster.step()
    cluster.obey()
    cordon(cluster, host_of(cluster, "alone"))
    assert cluster.step() == []


def test_a_victim_that_its_owner_resumes_is_stopped_again():
    cluster = paper(nodes=1, policy=QUEUES)
    cluster.put(queued(job("low", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    job_pods(cluster, "low", 1, gpus=8)
    cluster.step()
    cluster.obey()
    high = queued(ours("high", 8))
    high["spec"]["priority"] = 100
    cluster.put(high)
    cluster.step()
    cluster.obey()
    for _ in range(3):
        cluster.change("job/low", spec__suspend=False)
        assert cluster.step() == [("stop", "job/low")]
        assert cluster.orders[0].again > 0  # each time later
        cluster.obey()
        assert cluster.objects["job/low"]["spec"]["suspend"] is True
    cluster.remove("pod/low-0")
    cluster.step()
    cluster.obey()
    assert cluster.nodes_of("high") == ["n0"]


def charges(cluster):
    tables = cluster.state.quota
    return tables.quota_nodes.usage[tables.quota_node_rows["queue/q"]].max()


def test_a_job_that_changed_between_decision_and_write_is_decided_again():
    cluster = paper(nodes=4, policy=QUEUES, scheduler="", gates=True)
    cluster.put(queued(job("j", 1, 4, suspend=True)))
    assert cluster.step() == [("start", "job/j")]
    late = cluster.orders
    changed = json.loads(json.dumps(cluster.objects["job/j"]))
    changed["spec"]["parallelism"] = changed["spec"]["completions"] = 4
    cluster.put(changed)
    for write in late:
        assert not cluster.carry_out(write)
        WriteOutcomes(cluster.reconciler).settle(write, WriteOutcome.FAILED)
    cluster.step()
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is True  # 16 GPUs do not fit into a quota of 8
    assert not charges(cluster)
    assert "EVICT" not in decided(cluster)


def test_a_start_that_collides_is_made_again_and_counts_as_no_eviction():
    cluster = paper(nodes=1, policy=QUEUES, scheduler="", gates=True)
    cluster.put(queued(job("j", 1, 4, suspend=True)))
    cluster.step()
    for _ in range(3):
        (write,) = cluster.orders
        WriteOutcomes(cluster.reconciler).settle(write, WriteOutcome.FAILED)  # somebody wrote an annotation
        assert cluster.step() == [("start", "job/j")]
        assert cluster.orders[0].again == write.again + 1
        assert not decided(cluster)
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is False
    assert not cluster.state.workloads.evictions[: cluster.state.workloads.top].any()


@pytest.mark.parametrize("heard_first", [True, False])
def test_a_job_that_its_owner_suspends_right_after_its_start_is_decided_again(heard_first):
    """Updates of one object are taken together: that it ran meanwhile is not seen."""
    cluster = paper(nodes=1, policy=QUEUES, scheduler="", gates=True)
    cluster.put(queued(job("j", 1, 4, suspend=True)))
    cluster.step()
    (start,) = cluster.orders
    cluster.objects["job/j"] = started = patched(cluster.objects["job/j"], json.loads(start.write.request.body))
    started["metadata"]["generation"] += 1
    if heard_first:
        WriteOutcomes(cluster.reconciler).settle(start, WriteOutcome.DONE)
    cluster.change("job/j", spec__suspend=True)
    if not heard_first:
        WriteOutcomes(cluster.reconciler).settle(start, WriteOutcome.DONE)
    assert ("start", "job/j") in cluster.step()
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is False


def test_the_status_that_a_controller_writes_meanwhile_does_not_fail_a_start():
    cluster = paper(nodes=1, policy=QUEUES, scheduler="", gates=True)
    cluster.put(queued(job("j", 1, 4, suspend=True)))
    cluster.step()
    cluster.objects["job/j"]["metadata"]["resourceVersion"] = "99"
    assert cluster.carry_out(cluster.orders[0])


def test_a_job_that_grows_while_it_runs_is_set_back_and_charged_for_what_it_has():
    cluster = paper(nodes=2, policy=QUEUES, scheduler="", gates=True)
    gated_sweep(cluster, 1)
    cluster.change("pod/sweep-0", spec__nodeName="n0", status__phase="Running")
    cluster.step()
    before = charges(cluster)
    cluster.change("job/sweep", spec__parallelism=8, spec__completions=8)
    assert cluster.step() == [("trim", "job/sweep")]
    cluster.put(gated_pod("sweep-1", "sweep"))
    said = cluster.reconciler.take_events(10, cluster.now_ms)
    assert "admitted with 1 pods and asks for 8" in str([write.write.request.body for write in said])
    cluster.obey()
    assert cluster.objects["job/sweep"]["spec"]["parallelism"] == 1
    assert host_of(cluster, "sweep-1") is None
    assert charges(cluster) == before


@pytest.mark.parametrize("outcome", [WriteOutcome.FAILED, WriteOutcome.UNKNOWN])
def test_a_size_that_could_not_be_set_back_is_set_back_later(outcome):
    cluster = paper(nodes=2, policy=QUEUES, scheduler="", gates=True)
    gated_sweep(cluster, 1)
    cluster.change("pod/sweep-0", spec__nodeName="n0", status__phase="Running")
    cluster.step()
    cluster.change("job/sweep", spec__parallelism=8, spec__completions=8)
    cluster.step()
    WriteOutcomes(cluster.reconciler).settle(cluster.orders[0], outcome)
    assert cluster.step() == [("trim", "job/sweep")]
    assert cluster.orders[0].again == 1
    cluster.obey()
    assert cluster.objects["job/sweep"]["spec"]["parallelism"] == 1


def test_a_job_that_shrinks_while_it_runs_gives_back_its_quota():
    cluster = paper(nodes=2, policy=QUEUES)
    cluster.put(queued(job("sweep", 2, 4, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    job_pods(cluster, "sweep", 2, gpus=4)
    cluster.step()
    cluster.obey()
    cluster.change("job/sweep", spec__parallelism=1)
    cluster.remove("pod/sweep-1")
    cluster.put(queued(ours("next", 4)))
    assert ("bind", "pod/next") in cluster.step()


def running_sweep(pods, **spec):
    """A Job of two or three pods of four GPUs whose pods run."""
    cluster = paper(nodes=2, policy=QUEUES)
    made = queued(job("sweep", pods, 8 // pods, suspend=True, scheduler="tidegate"))
    made["spec"] |= spec
    cluster.put(made)
    cluster.step()
    cluster.obey()
    job_pods(cluster, "sweep", pods, gpus=8 // pods)
    cluster.step()
    cluster.obey()
    return cluster


def test_a_job_that_shrinks_and_grows_again_is_set_back_to_what_it_still_holds():
    cluster = running_sweep(2)
    cluster.change("job/sweep", spec__parallelism=1)
    cluster.remove("pod/sweep-1")
    cluster.put(queued(ours("next", 4)))
    cluster.step()
    cluster.obey()
    cluster.change("job/sweep", spec__parallelism=2)
    job_pods(cluster, "sweep", 1, first=2, gpus=4)
    assert cluster.step() == [("trim", "job/sweep")]
    cluster.obey()
    assert cluster.objects["job/sweep"]["spec"]["parallelism"] == 1


def grown_again():
    """A Job of three pods shrinks to two and grows again; its third pod finds no slot, and waits."""
    cluster = running_sweep(3)
    cluster.change("job/sweep", spec__parallelism=2)
    cluster.remove("pod/sweep-2")
    cluster.step()
    cluster.change("job/sweep", spec__parallelism=3)
    job_pods(cluster, "sweep", 1, first=3, gpus=2)
    assert cluster.step() == [("trim", "job/sweep")]
    return cluster


def test_a_pod_that_found_no_slot_takes_one_that_becomes_free():
    """The Job is set back, and its controller deletes another pod than the one that waits."""
    cluster = grown_again()
    cluster.obey()
    held = charges(cluster)
    cluster.remove("pod/sweep-0")
    assert ("bind", "pod/sweep-3") in cluster.step()
    cluster.obey()
    assert all(cluster.nodes_of("sweep-1", "sweep-3"))
    assert charges(cluster) == held


def test_a_pod_that_found_no_slot_and_is_gone_takes_none():
    cluster = grown_again()
    cluster.obey()
    cluster.remove("pod/sweep-3")
    cluster.remove("pod/sweep-0")
    cluster.step()
    job_pods(cluster, "sweep", 1, first=4, gpus=2)
    assert ("bind", "pod/sweep-4") in cluster.step()


def test_a_pod_that_replaces_one_that_takes_its_time_to_end_takes_its_slot():
    """The controller makes the next pod when it deletes one, not when that is gone."""
    cluster = running_sweep(2)
    cluster.change("pod/sweep-0", metadata__deletionTimestamp="2026-11-16T09:00:00Z")
    job_pods(cluster, "sweep", 1, first=2, gpus=4)
    assert cluster.step() == []
    cluster.remove("pod/sweep-0")
    assert cluster.step() == [("bind", "pod/sweep-2")]


def test_a_job_that_shrinks_to_nothing_goes_on_with_one_pod():
    cluster = running_sweep(2)
    cluster.change("job/sweep", spec__parallelism=0)
    for name in ("pod/sweep-0", "pod/sweep-1"):
        cluster.remove(name)
    cluster.step()
    cluster.change("job/sweep", spec__parallelism=1)
    job_pods(cluster, "sweep", 1, first=2, gpus=4)
    assert ("bind", "pod/sweep-2") in cluster.step()


def test_the_last_pod_of_a_job_with_more_pods_at_a_time_than_completions_is_placed_again():
    cluster = running_sweep(2, parallelism=4)
    cluster.change("pod/sweep-0", status__phase="Succeeded")
    cluster.change("job/sweep", status__succeeded=1)
    cluster.remove("pod/sweep-1")
    job_pods(cluster, "sweep", 1, first=2, gpus=4)
    assert ("bind", "pod/sweep-2") in cluster.step()


@pytest.mark.parametrize("late", [False, True])
def test_a_job_that_its_owner_suspends_before_it_is_seen_to_be_started_is_started_again(late):
    """Updates of one object are taken together: that it ran in between is never seen."""
    cluster = paper(policy=QUEUES)
    cluster.put(queued(job("j", 1, 4, suspend=True, scheduler="tidegate")))
    cluster.step()
    (start,) = cluster.orders
    thing = cluster.objects["job/j"]
    thing["metadata"] |= {"generation": thing["metadata"]["generation"] + 2, "resourceVersion": "9"}
    if late:
        WriteOutcomes(cluster.reconciler).settle(start, WriteOutcome.DONE)
        cluster._see("job/j")
    else:
        cluster._see("job/j")
        assert cluster.step() == []  # whether it was started is not known yet
        WriteOutcomes(cluster.reconciler).settle(start, WriteOutcome.DONE)
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is False
    cluster.put(queued(ours("next", 4)))
    assert cluster.step() == [("bind", "pod/next")]


@pytest.mark.parametrize("anew", [False, True])
def test_a_group_that_loses_a_pod_after_another_has_succeeded_runs_again_once_the_pod_is_made_again(anew):
    cluster = paper(policy=QUEUES)
    for name in "abc":
        cluster.put(queued(ours(name, 2, group=("g", 3))))
    cluster.step()
    cluster.obey()
    for name in "abc":
        cluster.change(f"pod/{name}", status__phase="Running")
    cluster.change("pod/a", status__phase="Succeeded")
    cluster.step()
    cluster.remove("pod/b")  # its owner, or a drain
    assert cluster.step() == [("stop", "pod/c")]
    cluster.obey()
    for name in ("b2", "c2"):
        cluster.put(queued(ours(name, 2, group=("g", 3))))
    if anew:
        cluster.begin_anew()
    assert sorted(cluster.step()) == [("bind", "pod/b2"), ("bind", "pod/c2")]
    cluster.obey()
    for name in ("b2", "c2"):
        cluster.change(f"pod/{name}", status__phase="Succeeded")
    cluster.put(queued(ours("next", 8)))
    assert cluster.step() == [("bind", "pod/next")]


def test_a_pod_of_a_kind_of_another_group_is_work_of_its_own():
    cluster = paper()
    made = ours("task-0", 8)
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "v", "uid": "v", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    cluster.put(made)
    assert cluster.step() == [("bind", "pod/task-0")]


def test_a_label_that_says_nothing_known_is_refused_by_name():
    cluster = paper()
    cluster.put(labelled(job("j", 1, 1, scheduler="tidegate", suspend=True), **{"tidegate.io/recovery": "maybe"}))
    assert cluster.step() == []
    (why,) = cluster.reconciler.refused.values()
    assert "expected gang or pods, found maybe" in why[0]
