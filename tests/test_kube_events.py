"""What `kubectl describe` shows: Events and conditions of work that waits, starts, stops or is refused; no server."""

from __future__ import annotations

from kubebench.objects import job, pod
from kubepaper import QUEUES, job_pods, ours, paper, queued, said
from tidegate.journal.quota_names import quota_names_of
from tidegate.kube.actuator.event_recorder import EventRecorder, EventTarget
from tidegate.kube.takeover import HandoverState, Takeover
from tidegate.kube.transport.writes import pod_ref
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.facts import WriteOutcome
from tidegate.model.reasons.catalogue import Reason
from tidegate.model.work import Work

_GATE = [{"name": "tidegate.io/admission"}]
_HOUR_MS = 3_600_000


def gated(name, pods=1, gpus=8, **more):
    return queued(job(name, pods, gpus, suspend=True, **more))


def gate(**more):
    """A cluster of one node that is gated."""
    cluster = paper(nodes=1, policy=QUEUES, gates=True, scheduler="", **more)
    said(cluster)
    return cluster


def events(cluster):
    return [(one.object, one.reason) for one in said(cluster) if one.is_event]


def settle(cluster):
    cluster.step()
    cluster.obey()


def test_why_a_pod_waits_is_said_once_and_autoscalers_are_not_called():
    cluster = paper(nodes=1)
    for name in ("a", "b"):
        cluster.put(ours(name, 8))
    settle(cluster)
    told = {(one.object, one.reason, one.is_event): one for one in said(cluster)}
    assert told.keys() == {
        ("pod/b", "LacksGpu", False),
        ("b", "FailedScheduling", True),
        ("a", "Admitted", True),
        ("a", "Scheduled", True),
    }
    assert told["a", "Scheduled", True].text == "Successfully assigned default/a to n0"
    assert told["a", "Admitted", True].text == "Admitted, on n0 (1 pod)."
    waits = told["b", "FailedScheduling", True]
    assert waits.text.startswith("Waits: no node has 8 idle GPUs")
    assert waits.text.endswith("(LacksGpu)")
    assert not waits.warning  # it starts when GPUs are free
    settle(cluster)
    assert said(cluster) == []


def test_what_nothing_depends_on_waits_for_what_matters():
    cluster = paper(nodes=1)
    for number in range(10):
        cluster.put(ours(f"p{number:02d}", 9))
    cluster.step()
    assert said(cluster, -5) == []
    assert [len(said(cluster, 8)) for _ in range(4)] == [8, 8, 4, 0]  # conditions first, then Events


def test_demand_that_lasts_is_told_to_autoscalers_and_noise_is_not():
    cluster = paper(nodes=1)
    cluster.put(ours("a", 8))
    settle(cluster)
    said(cluster)
    for name in ("noise", "lasts"):
        cluster.put(ours(name, 8))
    cluster.step()
    assert [one.reason for one in said(cluster) if not one.is_event] == ["LacksGpu", "BehindEqual"]
    cluster.now_ms += 60_000
    cluster.remove("pod/noise")
    cluster.step()
    assert "Unschedulable" not in [one.reason for one in said(cluster)]
    cluster.now_ms += 60_000
    cluster.step()
    assert [(one.object, one.reason) for one in said(cluster)] == [("pod/lasts", "Unschedulable")]
    cluster.now_ms += 600_000
    cluster.step()
    assert said(cluster) == []


def test_what_is_above_quota_does_not_deserve_nodes_however_long_it_waits():
    cluster = paper(nodes=2, policy=QUEUES)
    for name in ("a", "b"):
        cluster.put(queued(ours(name, 8)))
    settle(cluster)
    assert "WaitsForQuota" in [one.reason for one in said(cluster)]
    cluster.now_ms += 10_000_000
    cluster.step()
    assert [(one.reason, one.is_event) for one in said(cluster)] == [("FailedScheduling", True)]  # said again


def test_a_job_that_can_never_start_has_a_warning_that_names_queue_flavor_and_amount():
    cluster = gate()
    cluster.reconciler.name_quota(names(cluster))
    cluster.put(gated("big", 2, 8))
    cluster.step()
    (told,) = said(cluster)
    assert (told.object, told.reason, told.warning) == ("big", "Pending", True)
    assert told.text == (
        "Waits in LocalQueue default/team of ClusterQueue q: it asks for 8 nvidia.com/gpu more of flavor any than its "
        "queue could ever use, borrowing included. Raise the quota or the borrowing limit, or ask for less. "
        "(AboveQuota)"
    )


def names(cluster):
    return quota_names_of(cluster.policy.shares)


def test_a_resource_that_the_queue_does_not_have_is_named():
    cluster = gate()
    cluster.reconciler.name_quota(names(cluster))
    odd = gated("odd", 1, 1)
    odd["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["example.com/dongle"] = "1"
    cluster.put(odd)
    cluster.step()
    (told,) = said(cluster)
    assert "a resource that its queue has no quota for: example.com/dongle." in told.text
    assert told.warning


def test_the_life_of_a_job_that_is_preempted():
    cluster = gate()
    cluster.reconciler.name_quota(names(cluster))
    Takeover(cluster.reconciler).resume(lambda _: None, HandoverState())  # the first look is over
    cluster.put(gated("low", 1, 8))
    settle(cluster)
    told = {one.reason: one for one in said(cluster)}
    assert told.keys() == {"Queued", "Admitted"}
    assert told["Queued"].text == "Queued in LocalQueue default/team of ClusterQueue q, priority 0."
    assert told["Admitted"].text.startswith("Admitted by LocalQueue default/team of ClusterQueue q with ")
    assert "8 nvidia.com/gpu of flavor any, on n0 (1 pod)." in told["Admitted"].text
    job_pods_of(cluster, "low")
    cluster.now_ms += 30 * 60_000
    said(cluster)
    cluster.put(queued(pod("high", 8, priority=10, schedulingGates=_GATE)))
    settle(cluster)
    told = {(one.object, one.reason): one for one in said(cluster) if one.is_event}
    preempted = told["low", "Preempted"]
    assert preempted.text.startswith(
        "Preempted for default/pod/high of queue default/team, priority 10: work of its own queue"
    )
    assert "It held its place for 30m" in preempted.text
    assert "(4.0" in preempted.text
    assert "on n0 (1 pod)" in preempted.text
    assert "8 nvidia.com/gpu of flavor any of LocalQueue default/team" in preempted.text
    assert not preempted.warning  # it comes back by itself
    assert ("high", "Queued") in told
    leave(cluster, "low")
    settle(cluster)
    told = {(one.object, one.reason) for one in said(cluster) if one.is_event}
    assert {("low", "Requeued"), ("low", "Pending"), ("high", "Admitted")} <= told
    cluster.remove("pod/high")
    settle(cluster)
    told = {(one.object, one.reason): one for one in said(cluster) if one.is_event}
    assert told["low", "Resumed"].text.startswith(
        "Resumed after an eviction: admitted again by LocalQueue default/team"
    )


def job_pods_of(cluster, name):
    """The pods of a gated job, as its controller makes them and the cluster's scheduler binds them."""
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job/{name}", "controller": True}]
    cluster.put(pod(f"{name}-0", 8), metadata__ownerReferences=owner, spec__nodeName="n0", status__phase="Running")
    settle(cluster)


def leave(cluster, name):
    cluster.remove(f"pod/{name}-0")


def test_a_gated_pod_keeps_its_reason_and_gets_our_message():
    cluster = gate()
    cluster.put(queued(pod("first", 8, schedulingGates=_GATE)))
    settle(cluster)
    said(cluster)
    cluster.put(queued(pod("second", 8, schedulingGates=_GATE)))
    cluster.step()
    shown, told = said(cluster)
    assert (shown.object, shown.reason, shown.is_event) == ("pod/second", "SchedulingGated", False)
    assert (told.object, told.reason, told.is_event) == ("second", "Pending", True)
    assert shown.text == told.text
    assert "lacks" in told.text


def test_pods_that_come_while_their_workload_waits_are_told_why():
    cluster = paper(nodes=1)
    cluster.put(job("j", 3, 8, scheduler="tidegate"))
    job_pods(cluster, "j", 1, gpus=8)
    cluster.step()
    assert {one.object for one in said(cluster)} == {"j", "pod/j-0", "j-0"}
    job_pods(cluster, "j", 1, first=1, gpus=8)
    cluster.step()
    assert {one.object for one in said(cluster)} == {"pod/j-1", "j-1"}


def test_a_group_that_is_not_whole_says_how_many_pods_are_missing():
    cluster = paper()
    said(cluster)
    for name in ("a", "b"):
        cluster.put(ours(name, 8, group=("g", 4)))
    cluster.step()
    assert said(cluster) == []  # the others may come in a moment
    cluster.now_ms += 6_000
    told = said(cluster)
    assert {(one.object, one.reason) for one in told} == {
        (name, "PodGroupIncomplete") for name in ("a", "b", "pod/a", "pod/b")
    }
    text = "Pod group g has 2 of its 4 pods: 2 are missing. It is queued when all of them are created."
    assert {one.text for one in told} == {text}
    assert all(one.warning for one in told if one.is_event)
    cluster.put(ours("c", 8, group=("g", 4)))
    cluster.now_ms += 1_000
    assert said(cluster) == []
    cluster.now_ms += 6_000
    assert {one.text for one in said(cluster)} == {
        "Pod group g has 3 of its 4 pods: 1 is missing. It is queued when all of them are created."
    }


def test_a_group_that_is_whole_in_time_is_not_reported():
    cluster = paper()
    said(cluster)
    for name in ("a", "b"):
        cluster.put(ours(name, 8, group=("g", 2)))
        said(cluster)
    cluster.now_ms += 60_000
    assert [one for one in said(cluster) if one.reason == "PodGroupIncomplete"] == []


def test_a_group_that_does_not_say_how_many_it_is_is_refused_by_the_annotation():
    cluster = paper()
    odd = ours("a", 8, group=("g", 4))
    del odd["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"]
    cluster.put(odd)
    assert "kueue.x-k8s.io/pod-group-total-count: expected the number of pods" in said(cluster)[0].text


def test_what_lasts_is_said_again_before_the_server_forgets_it_and_stops_when_it_is_over():
    cluster = gate()
    cluster.put(gated("big", 2, 8))
    cluster.put(queued(job("past", 1, 8)))
    cluster.step()
    assert events(cluster) == [("past", "AdmissionBypassed"), ("big", "Pending")]
    for _ in range(4):
        cluster.now_ms += _HOUR_MS - 600_000
        cluster.step()
        assert sorted(events(cluster)) == [("big", "Pending"), ("past", "AdmissionBypassed")]
        assert events(cluster) == []
    cluster.remove("job/big")
    cluster.change("job/past", spec__suspend=True)
    settle(cluster)
    events(cluster)
    cluster.now_ms += 2 * _HOUR_MS
    assert events(cluster) == []


def test_numbers_that_change_all_the_time_are_not_said_all_the_time():
    cluster = gate()
    cluster.put(gated("runs", 1, 8))
    settle(cluster)
    for number in range(3):
        cluster.put(gated(f"w{number}", 1, 8))
        cluster.step()
    first = [told for told in events(cluster) if told[1] == "Pending"]
    assert sorted(first) == [("w0", "Pending"), ("w1", "Pending"), ("w2", "Pending")]
    cluster.put(gated("early", 1, 8, priority=5))
    cluster.step()
    again = [name for name, reason in events(cluster) if reason == "Pending"]
    assert len(again) <= 2  # whose reason is another one now


def test_events_are_few_however_many_wait():
    cluster = gate()
    for number in range(100):
        cluster.put(gated(f"j{number:03d}", 2, 8))
    cluster.step()
    cluster.now_ms += 1000
    assert len(said(cluster)) == 20
    assert len(said(cluster)) == 0
    cluster.now_ms += 1000
    assert len(said(cluster)) == 20


def test_very_many_that_wait_are_told_in_turn_and_take_little_memory():
    recorder, work, now_ms = EventRecorder(120_000), Work(), 1_800_000_000_000
    for number in range(5_000):
        recorder.hold(number, work, Reason.LACKS_GPU, (8, 0, 1, 0))
    objects, conditions, events = Objects(), set(), set()
    for _ in range(2_400):
        now_ms += 500
        for write in recorder.take(64, now_ms, objects):
            (events if write.request.method == "POST" else conditions).add(write.request.path + str(write.request.body))
        assert len(recorder._events) <= 1_000 + 256
        assert len(recorder._conditions) <= 2 * 256
    assert len(conditions) >= 5_000
    assert len(events) >= 5_000


class Objects:
    """One pod for each workload."""

    def targets(self, number):
        yield EventTarget(pod_ref("default", f"p{number}", f"uid-{number}"), has_condition=True)

    def lasts(self, uid):
        del uid
        return True


def test_a_shadow_says_nothing():
    cluster = paper(nodes=1, policy=QUEUES, watches=True)
    cluster.put(gated("big", 2, 8))
    cluster.put(queued(ours("a", 8, group=("g", 4))))
    cluster.step()
    cluster.now_ms += 60_000
    assert said(cluster) == []


def test_a_job_that_starts_with_fewer_pods_is_told_so():
    cluster = gate()
    elastic = gated("elastic", 12, 1)
    elastic["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/job-min-parallelism"] = "4"
    cluster.put(elastic)
    cluster.step()
    told = {one.reason: one.text for one in said(cluster)}
    assert (
        told["PartiallyAdmitted"]
        == "Starts with 8 of 12 pods of set main: there is no quota for more, and it allows fewer."
    )


def test_a_job_that_comes_back_for_what_is_left_to_do_does_not_start_with_fewer_pods():
    cluster = gate()
    cluster.put(gated("low", 2, 4))
    settle(cluster)
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "low", "uid": "job/low", "controller": True}]
    for at, phase in enumerate(("Running", "Succeeded")):
        cluster.put(pod(f"low-{at}", 4), metadata__ownerReferences=owner, spec__nodeName="n0", status__phase=phase)
    cluster.change("job/low", status__succeeded=1)
    settle(cluster)
    cluster.put(queued(pod("high", 8, priority=10, schedulingGates=_GATE)))
    settle(cluster)
    leave(cluster, "low")
    settle(cluster)
    said(cluster)
    cluster.remove("pod/high")
    settle(cluster)
    assert [one.reason for one in said(cluster) if one.object == "low" and one.is_event] == ["Resumed"]
    cluster.change("job/low", status__ready=0)
    settle(cluster)
    cluster.put(pod("low-2", 4, schedulingGates=_GATE), metadata__ownerReferences=owner)
    settle(cluster)
    assert "schedulingGates" not in cluster.objects["pod/low-2"]["spec"]


def test_a_gang_that_could_not_be_bound_was_not_evicted():
    cluster = paper(nodes=1, policy=QUEUES)
    cluster.reconciler.name_quota(names(cluster))
    for name in ("a", "b"):
        cluster.put(queued(ours(name, 4, group=("g", 2))))
    cluster.step()
    for order in cluster.orders:
        WriteOutcomes(cluster.reconciler).settle(order, WriteOutcome.FAILED)
    cluster.step()
    told = {one.reason: one for one in said(cluster)}
    assert told.keys() == {"Admitted", "Requeued"}
    assert told["Requeued"].text == (
        "It could not be started and waits in LocalQueue default/team of ClusterQueue q: "
        "the cluster refused the decision. It is tried again."
    )
    assert told["Requeued"].warning


def test_a_job_that_lost_its_node_has_a_warning():
    cluster = gate()
    cluster.put(gated("j", 1, 8))
    settle(cluster)
    job_pods_of(cluster, "j")
    said(cluster)
    cluster.remove("node/n0")
    cluster.step()
    told = {one.reason: one for one in said(cluster)}
    assert told["Evicted"].text.startswith("Evicted: a node it ran on was lost.")
    assert told["Evicted"].warning
