"""Objects in, orders out, with the engine between them and no server: who gets bound where, and what is given back."""

from __future__ import annotations

import json

import pytest

from kubebench.objects import job, node, pod
from kubepaper import QUEUES, job_pods, ours, paper, queued, said
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.facts import WriteOutcome
from tidegate.model.reasons.catalogue import Reason


def test_a_pod_that_names_us_is_bound_and_others_are_left_alone():
    cluster = paper()
    cluster.put(ours("mine", 8))
    cluster.put(pod("theirs", 8))
    assert cluster.step() == [("bind", "pod/mine")]
    cluster.obey()
    assert cluster.nodes_of("mine", "theirs") == ["n0", None]


def test_pods_of_others_take_up_room_until_they_are_over():
    cluster = paper(nodes=1)
    cluster.put(pod("theirs", 4), spec__nodeName="n0", status__phase="Running")
    cluster.put(ours("mine", 8))
    assert cluster.step() == []
    cluster.change("pod/theirs", status__phase="Succeeded")
    assert cluster.step() == [("bind", "pod/mine")]


def test_a_group_is_bound_once_it_is_whole():
    cluster = paper()
    cluster.put(ours("a", 8, group=("g", 2)))
    assert cluster.step() == []
    cluster.put(ours("b", 8, group=("g", 2)))
    assert cluster.step() == [("bind", "pod/a"), ("bind", "pod/b")]
    cluster.obey()
    assert sorted(cluster.nodes_of("a", "b")) == ["n0", "n1"]


def test_roles_of_a_group_are_told_apart():
    cluster = paper()
    cluster.put(ours("a-small", 1, group=("g", 3)))
    cluster.put(ours("b-big", 8, group=("g", 3)))
    cluster.put(ours("c-small", 1, group=("g", 3)))
    assert len(cluster.step()) == 3
    cluster.obey()
    small = cluster.nodes_of("a-small", "c-small")
    assert small[0] == small[1] != cluster.nodes_of("b-big")[0]


def test_a_suspended_job_is_started_and_its_pods_are_bound_as_they_come():
    cluster = paper(gpus=8)
    cluster.put(job("j", 2, 8, suspend=True, scheduler="tidegate"))
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is False
    job_pods(cluster, "j", 2, gpus=8)
    assert cluster.step() == [("bind", "pod/j-0"), ("bind", "pod/j-1")]
    cluster.obey()
    assert sorted(cluster.nodes_of("j-0", "j-1")) == ["n0", "n1"]


def test_a_pod_that_a_job_makes_again_gets_the_place_of_the_one_that_failed():
    cluster = paper()
    cluster.put(job("j", 2, 8, scheduler="tidegate"))
    job_pods(cluster, "j", 2, gpus=8)
    cluster.step()
    cluster.obey()
    (place,) = cluster.nodes_of("j-1")
    cluster.change("pod/j-1", status__phase="Failed")
    cluster.put(ours("waits", 8))
    assert cluster.step() == []
    job_pods(cluster, "j", 1, first=2, gpus=8)
    assert cluster.step() == [("bind", "pod/j-2")]
    cluster.obey()
    assert cluster.nodes_of("j-2") == [place]
    cluster.change("pod/j-1", metadata__labels={"a": "b"})  # news of who is over mean nothing
    assert cluster.step() == []


def test_a_job_that_is_over_makes_room():
    cluster = paper(nodes=1)
    cluster.put(job("j", 1, 8, scheduler="tidegate"))
    job_pods(cluster, "j", 1, gpus=8)
    cluster.put(ours("next", 8))
    assert cluster.step() == [("bind", "pod/j-0")]
    cluster.obey()
    cluster.change("pod/j-0", status__phase="Succeeded")
    assert cluster.step() == []  # its controller may want it again
    cluster.change("job/j", status__conditions=[{"type": "Complete", "status": "True"}])
    assert cluster.step() == [("bind", "pod/next")]


@pytest.mark.parametrize("outcome", [WriteOutcome.FAILED, WriteOutcome.UNKNOWN])
def test_a_gang_of_which_one_cannot_be_bound_is_given_back_whole(outcome):
    cluster = paper()
    for name in ("a", "b"):
        cluster.put(ours(name, 8, group=("g", 2)))
    cluster.step()
    first, second = cluster.orders
    cluster.change(first.write.key, spec__nodeName="n0")
    WriteOutcomes(cluster.reconciler).settle(first, WriteOutcome.DONE)
    WriteOutcomes(cluster.reconciler).settle(second, outcome)
    if outcome is WriteOutcome.UNKNOWN:  # it stays assumed, and is tried again
        assert cluster.reconciler.take_writes() == [second._replace(again=1)]
        assert cluster.step() == []
        return
    assert cluster.step() == [("stop", "pod/a")]
    cluster.put(ours("next", 8))
    cluster.put(ours("last", 8))
    assert cluster.step() == [("bind", "pod/last")]  # what the other holds is held until it is gone
    cluster.remove("pod/a")
    assert cluster.step() == [("bind", "pod/next")]
    cluster.remove("pod/last")
    cluster.remove("pod/next")
    assert cluster.step() == []  # the one that is left waits for another
    cluster.put(ours("c", 8, group=("g", 2)))
    assert cluster.step() == [("bind", "pod/b"), ("bind", "pod/c")]


def test_a_job_that_is_sent_away_is_suspended_and_comes_back():
    cluster = paper(nodes=1)
    cluster.put(job("j", 1, 8, scheduler="tidegate"))
    job_pods(cluster, "j", 1, gpus=8)
    cluster.step()
    cluster.obey()
    cluster.remove("node/n0")
    assert cluster.step() == [("stop", "job/j")]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is True
    cluster.remove("pod/j-0")
    assert cluster.step() == []
    cluster.put(node("n9", 8), status__conditions=[{"type": "Ready", "status": "True"}])
    assert cluster.step() == [("start", "job/j")]


def test_a_job_that_is_placed_anew_while_it_leaves_starts_when_it_has_left():
    """Its node is lost, and there is room on another: the engine sends it away and places it in one step."""
    cluster = paper(nodes=2)
    cluster.put(job("j", 1, 8, scheduler="tidegate"))
    job_pods(cluster, "j", 1, gpus=8)
    cluster.step()
    cluster.obey()
    (lost,) = cluster.nodes_of("j-0")
    cluster.remove(f"node/{lost}")
    assert cluster.step() == [("stop", "job/j")]
    cluster.obey()
    assert cluster.step() == []  # its old pod is still there
    cluster.remove("pod/j-0")
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    job_pods(cluster, "j", 1, first=1, gpus=8)
    assert cluster.step() == [("bind", "pod/j-1")]
    cluster.obey()
    assert cluster.nodes_of("j-1") != [lost]


def test_who_takes_over_finds_everyone_at_their_places():
    cluster = paper()
    cluster.put(job("j", 2, 4, scheduler="tidegate"))
    job_pods(cluster, "j", 2, gpus=4)
    for name in ("a", "b"):
        cluster.put(ours(name, 4, group=("g", 2)))
    cluster.step()
    cluster.obey()
    cluster.change("pod/j-0", status__phase="Running")
    cluster.change("pod/j-1", status__phase="Succeeded")
    cluster.begin_anew()
    assert cluster.step() == []
    assert len(cluster.result.decisions.id) == 0
    cluster.put(ours("next", 1))
    assert cluster.step() == []
    cluster.change("job/j", status__conditions=[{"type": "Complete", "status": "True"}])
    assert cluster.step() == [("bind", "pod/next")]


def test_work_that_slipped_away_is_forgotten():
    cluster = paper(nodes=1)
    cluster.put(ours("big", 9))
    cluster.put(job("j", 1, 9, scheduler="tidegate"))
    cluster.step()
    cluster.remove("pod/big")
    cluster.remove("job/j")
    cluster.step()
    assert len(cluster.state.live_workloads()) == 0


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "persistentVolumeClaim"),
        ({"containers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]}, "hostPort"),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "podAntiAffinity",
        ),
    ],
)
def test_what_cannot_be_bound_is_refused_by_name(spec, named):
    cluster = paper()
    cluster.put(ours("p", 1, **spec))
    assert cluster.step() == []
    assert any(named in why for why in cluster.reconciler.refused["pod/p"])
    told = said(cluster)
    assert [(one.object, one.reason, one.is_event) for one in told] == [
        ("pod/p", "NotSupported", False),
        ("p", "NotSupported", True),
    ]
    assert all(named in one.text for one in told)
    cluster.remove("pod/p")
    assert not cluster.reconciler.refused


def test_a_gated_pod_waits_for_who_gated_it():
    cluster = paper()
    cluster.put(ours("p", 1, schedulingGates=[{"name": "x"}]))
    assert cluster.step() == []
    cluster.change("pod/p", spec__schedulingGates=[])
    assert cluster.step() == [("bind", "pod/p")]


def test_pods_that_ask_the_same_are_read_once():
    cluster = paper()
    for number in range(50):
        cluster.put(ours(f"p{number}", 1, runs=f"{number}s"))
    for number in range(50):
        cluster.put(ours(f"q{number}", 2), spec__nodeName="n0")
    assert len(cluster.pod_specs) == 2


def test_a_pod_whose_bind_failed_waits_again():
    cluster = paper(nodes=1)
    cluster.put(ours("p", 1))
    cluster.step()
    WriteOutcomes(cluster.reconciler).settle(cluster.orders[0], WriteOutcome.FAILED)
    assert cluster.step() == [("bind", "pod/p")]
    assert cluster.step() == []


def test_a_pod_that_another_scheduler_took_first_is_where_it_is():
    for bound_first in (True, False):
        cluster = paper()
        cluster.put(ours("p", 8))
        cluster.step()
        (order,) = cluster.orders
        if not bound_first:
            WriteOutcomes(cluster.reconciler).settle(order, WriteOutcome.FAILED)
            cluster.step()
        other = "n1" if json.loads(order.write.request.body)["target"]["name"] == "n0" else "n0"
        cluster.change("pod/p", spec__nodeName=other)
        if bound_first:
            WriteOutcomes(cluster.reconciler).settle(order, WriteOutcome.FAILED)
        assert cluster.step() == []
        cluster.put(ours("q", 8))
        assert cluster.step() == [("bind", "pod/q")]
        cluster.obey()
        assert cluster.nodes_of("p", "q") == [other, "n0" if other == "n1" else "n1"]


def test_gated_work_is_started_and_bound_by_the_clusters_scheduler():
    cluster = paper(gates=True)
    labelled = job("j", 1, 8, suspend=True)
    labelled["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    cluster.put(labelled)
    cluster.put(job("free", 1, 8))
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job/j", "controller": True}]
    cluster.put(pod("j-0", 8), metadata__ownerReferences=owner)
    assert cluster.step() == []
    cluster.change("pod/j-0", spec__nodeName="n1")  # not where we would have put it
    cluster.put(ours("next", 8))
    assert cluster.step() == [("bind", "pod/next")]
    cluster.obey()
    assert cluster.nodes_of("next") == ["n0"]


def test_a_job_with_a_million_pods_is_refused_and_stalls_nobody():
    cluster = paper()
    cluster.put(job("huge", 1_000_000, 1, scheduler="tidegate"))
    cluster.put(ours("p", 1))
    assert cluster.step() == [("bind", "pod/p")]
    assert "at most 100,000" in cluster.reconciler.refused["job/huge"][0]


def test_a_node_with_a_billion_gpus_is_a_node():
    cluster = paper(nodes=0)
    cluster.put(node("odd", 10**9), status__conditions=[{"type": "Ready", "status": "True"}])
    cluster.put(ours("p", 8))
    assert cluster.step() == [("bind", "pod/p")]


@pytest.mark.parametrize("amount", ["-1", "1e999", "NaN", "", "9" * 300, None, 1.5, "0.5"])
def test_odd_amounts_give_a_reason_and_no_crash(amount):
    cluster = paper()
    odd = ours("odd", 1)
    odd["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": amount, "cpu": amount}}
    cluster.put(odd)
    cluster.put(ours("p", 8))
    assert ("bind", "pod/p") in cluster.step()


def test_quota_is_kept_though_there_is_room():
    cluster = paper(nodes=2, policy=QUEUES)
    cluster.put(queued(ours("a", 6)))
    cluster.put(queued(ours("b", 6)))
    assert cluster.step() == [("bind", "pod/a")]
    cluster.obey()
    cluster.remove("pod/a")
    assert cluster.step() == [("bind", "pod/b")]


def test_a_victim_is_asked_to_go_and_holds_its_room_until_it_is_gone():
    cluster = paper(nodes=1, policy=QUEUES)
    cluster.put(queued(ours("low", 8)))
    cluster.step()
    cluster.obey()
    cluster.change("pod/low", status__phase="Running")
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "pod/low")]
    assert cluster.orders[0].write.request.path.endswith("/eviction")
    WriteOutcomes(cluster.reconciler).settle(cluster.orders[0], WriteOutcome.DONE)
    assert cluster.step() == []
    cluster.remove("pod/low")
    assert cluster.step() == [("bind", "pod/high")]


def test_a_job_that_is_preempted_comes_back():
    cluster = paper(nodes=1, policy=QUEUES)
    cluster.put(queued(job("j", 1, 8, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    job_pods(cluster, "j", 1, gpus=8)
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "job/j")]
    cluster.obey()
    cluster.remove("pod/j-0")
    assert cluster.step() == [("bind", "pod/high")]
    cluster.obey()
    cluster.change("pod/high", status__phase="Succeeded")
    assert cluster.step() == [("start", "job/j")]


def gated(name, pods=1, gpus=8, **more):
    return queued(job(name, pods, gpus, suspend=True, **more))


def test_a_gated_job_is_sent_to_its_node_and_taken_back_when_it_is_sent_away():
    cluster = paper(nodes=1, policy=QUEUES, gates=True, scheduler="")
    cluster.put(gated("j"))
    cluster.step()
    cluster.obey()
    spec = cluster.objects["job/j"]["spec"]
    assert spec["suspend"] is False
    assert spec["template"]["spec"]["schedulingGates"] == [{"name": "tidegate.io/admission"}]
    cluster.begin_anew(gates=True, scheduler="")  # who takes over knows that we started it, and where
    assert cluster.step() == []
    assert not cluster.reconciler.past
    cluster.put(queued(pod("high", 8, priority=10, schedulingGates=[{"name": "tidegate.io/admission"}])))
    assert cluster.step() == [("stop", "job/j")]
    cluster.obey()
    spec = cluster.objects["job/j"]["spec"]
    assert (spec["suspend"], spec["template"]["spec"].get("schedulingGates")) == (True, None)
    assert "tidegate.io/before" not in cluster.objects["job/j"]["metadata"].get("annotations", {})
    assert cluster.objects["pod/high"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n0"}


def test_what_changed_meanwhile_is_not_started_by_an_order_of_before():
    cluster = paper(nodes=1, gates=True, scheduler="")
    cluster.put(gated("j", 2, 1))
    assert cluster.step() == [("start", "job/j")]
    cluster.change("job/j", spec__parallelism=1)
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["suspend"] is False
    assert cluster.state.pods.top >= 1
    assert len(cluster.state.live_workloads()) == 1


def test_what_the_owner_wrote_meanwhile_stays():
    cluster = paper(nodes=1, policy=QUEUES, gates=True, scheduler="")
    cluster.put(gated("j"))
    cluster.step()
    cluster.obey()
    spec = cluster.objects["job/j"]["spec"]
    spec["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    cluster.put(cluster.objects["job/j"])
    cluster.put(queued(pod("high", 8, priority=10, schedulingGates=[{"name": "tidegate.io/admission"}])))
    cluster.step()
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


def test_a_note_that_somebody_else_wrote_changes_nothing_that_is_not_ours():
    cluster = paper(nodes=1, policy=QUEUES, gates=True, scheduler="")
    odd = gated("j")
    note = {"/spec/template/spec/containers": [[], []], "/spec/suspend": [False, True], "/spec/parallelism": "x", "": 1}
    odd["metadata"]["annotations"] = {"tidegate.io/before": json.dumps(note)}
    before = json.dumps(odd["spec"]["template"]["spec"]["containers"])
    cluster.put(odd)
    cluster.step()
    cluster.obey()
    assert json.dumps(cluster.objects["job/j"]["spec"]["template"]["spec"]["containers"]) == before
    for broken in ("", "[", "3", "null"):
        cluster.change("job/j", metadata__annotations={"tidegate.io/before": broken})
        cluster.step()


def test_work_past_the_door_is_told_of_and_left_alone():
    cluster = paper(gates=True, scheduler="")
    cluster.put(queued(job("past", 1, 8)))
    cluster.put(queued(pod("loose", 8)))
    assert cluster.step() == []
    assert sorted(ref.name for ref in cluster.reconciler.past.values()) == ["loose", "past"]
    cluster.change("job/past", spec__suspend=True)
    assert cluster.step() == [("start", "job/past")]
    cluster.remove("pod/loose")
    assert not cluster.reconciler.past


def test_a_job_with_volumes_is_refused_by_who_binds_and_left_to_the_scheduler_by_who_gates():
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    cluster = paper(nodes=1)
    cluster.put(job("j", 1, 1, scheduler="tidegate", volumes=volumes))
    job_pods(cluster, "j", 1, volumes=volumes)
    assert cluster.step() == []
    told = said(cluster)
    assert {one.object for one in told} == {"j", "pod/j-0", "j-0"}
    assert all(one.reason == "NotSupported" and "persistentVolumeClaim" in one.text for one in told)
    cluster = paper(nodes=1, gates=True, scheduler="")
    cluster.put(gated("j", 1, 1, volumes=volumes))
    cluster.step()
    cluster.obey()
    spec = cluster.objects["job/j"]["spec"]
    assert (spec["suspend"], spec["template"]["spec"].get("nodeSelector")) == (False, None)


def test_a_pod_of_a_group_that_has_succeeded_gives_its_room_back_and_the_rest_goes_on():
    for anew in (False, True):
        cluster = paper(nodes=1, policy=QUEUES)
        for name in ("a", "b"):
            cluster.put(queued(ours(name, 4, group=("g", 2))))
        cluster.step()
        cluster.obey()
        for name in ("a", "b"):
            cluster.change(f"pod/{name}", status__phase="Running")
        cluster.put(queued(ours("next", 4)))
        assert cluster.step() == []
        cluster.change("pod/a", status__phase="Succeeded")
        assert cluster.step() == [("bind", "pod/next")]
        cluster.obey()
        if anew:
            cluster.begin_anew()
            assert cluster.step() == []
        cluster.change("pod/b", status__phase="Succeeded")
        cluster.put(queued(ours("last", 4)))
        assert cluster.step() == [("bind", "pod/last")]
        assert len(cluster.state.live_workloads()) == 2


def test_a_job_gives_back_what_its_controller_will_not_use_again():
    cluster = paper(nodes=1, policy=QUEUES)
    cluster.put(queued(job("j", 2, 4, scheduler="tidegate")))
    job_pods(cluster, "j", 2, gpus=4)
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("next", 4)))
    cluster.change("pod/j-0", status__phase="Succeeded")
    assert cluster.step() == []  # as far as we know it may be made again
    cluster.change("job/j", status__succeeded=1)
    assert cluster.step() == [("bind", "pod/next")]
    cluster.obey()
    cluster.begin_anew()
    assert cluster.step() == []
    assert len(cluster.result.decisions.id) == 0


def test_a_job_that_starts_with_fewer_pods_gets_nodes_for_them():
    cluster = paper(nodes=2, gpus=4, policy=QUEUES)
    elastic = queued(job("j", 12, 1, suspend=True, scheduler="tidegate"))
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "4"}
    cluster.put(elastic)
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 8
    job_pods(cluster, "j", 8)
    cluster.step()
    cluster.obey()
    assert sorted(cluster.nodes_of(*(f"j-{at}" for at in range(8)))) == ["n0"] * 4 + ["n1"] * 4


def elastic_on_one_node(pods):
    """A job of one or two pods of four GPUs runs on one of two nodes; its queue has eight."""
    cluster = paper(nodes=2, gpus=8, policy=QUEUES)
    if pods == 1:
        cluster.put(queued(ours("other", 4)))
        cluster.step()
        cluster.obey()
        cluster.change(f"node/{cluster.nodes_of('other')[0]}", spec__unschedulable=True)  # so that the job is alone
    elastic = queued(job("j", 2, 4, suspend=True, scheduler="tidegate"))
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    cluster.put(elastic)
    cluster.step()
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["parallelism"] == pods
    job_pods(cluster, "j", pods, gpus=4)
    cluster.step()
    cluster.obey()
    assert len(set(cluster.nodes_of(*(f"j-{at}" for at in range(pods))))) == 1
    return cluster


def test_a_job_that_is_placed_anew_with_fewer_pods_starts_when_all_its_pods_have_left():
    """Found in a game day: it is sent away and admitted in part in one step, while its pods are still there."""
    cluster = elastic_on_one_node(2)
    cluster.put(queued(ours("next", 4)), metadata__creationTimestamp="2026-11-16T07:00:00Z")
    assert cluster.step() == []
    cluster.remove(f"node/{cluster.nodes_of('j-0')[0]}")
    assert sorted(cluster.step()) == [("bind", "pod/next"), ("stop", "job/j")]
    assert "ADMITTED_PARTLY" in [Reason(code).name for code in cluster.result.decisions.code.tolist()]
    cluster.obey()
    for name in ("pod/j-0", "pod/j-1"):
        cluster.change(name, metadata__deletionTimestamp="2026-11-16T09:00:00Z", status__phase="Running")
    cluster.remove("pod/j-0")
    assert cluster.step() == []  # the other one is still there
    cluster.remove("pod/j-1")
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 1
    job_pods(cluster, "j", 1, first=2, gpus=4)
    assert cluster.step() == [("bind", "pod/j-2")]


def test_a_job_that_is_placed_anew_with_more_pods_than_before_starts_with_all_of_them():
    cluster = elastic_on_one_node(1)
    cluster.change(f"node/{cluster.nodes_of('other')[0]}", spec__unschedulable=False)
    cluster.remove("pod/other")
    cluster.remove(f"node/{cluster.nodes_of('j-0')[0]}")
    assert cluster.step() == [("stop", "job/j")]
    cluster.obey()
    cluster.remove("pod/j-0")
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 2
    job_pods(cluster, "j", 2, first=2, gpus=4)
    cluster.step()
    cluster.obey()
    assert all(cluster.nodes_of("j-2", "j-3"))


def test_a_job_with_more_to_do_keeps_its_room():
    cluster = paper(nodes=1, policy=QUEUES)
    cluster.put(queued(job("j", 2, 4, scheduler="tidegate")), spec__completions=4)
    job_pods(cluster, "j", 2, gpus=4)
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("next", 4)))
    cluster.change("pod/j-0", status__phase="Succeeded")
    cluster.change("job/j", status__succeeded=1)
    assert cluster.step() == []
