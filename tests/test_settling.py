"""Facts that contradict each other, or change what others stand on: what runs is counted, and step never raises."""

from __future__ import annotations

import pytest

from builders import Cluster, evicted, fleet, held, job, placed, pods, rejected
from strategies import replace
from test_engine_mirroring import bound
from test_queues import queue, queue_cluster
from tidegate.engine.quota_reservations import holding_of
from tidegate.model.facts import FactKind
from tidegate.model.observed_status import DecayedUsage, ObservedStatus, PodSetAssignment, UnmanagedPods
from tidegate.model.policy import AdmissionKind, Policy
from tidegate.model.queues import FlavorGroup, LocalQueue, Queue, QueueSetup, Quota, StopPolicy
from tidegate.model.reasons.catalogue import Reason
from tidegate.state.cluster import ClusterState


def without(policy: Policy, name: str) -> Policy:
    """The policy without a queue."""
    queues = tuple(one for one in policy.shares.queues if one.name != name)
    return replace(policy, shares=replace(policy.shares, queues=queues))


def usage(cluster: Cluster, name: str) -> int:
    """The GPUs that a queue uses, in thousandths."""
    tables = cluster.state.quota
    return int(tables.quota_nodes.usage[tables.quota_node_rows[f"queue/{name}"]].sum())


def observe(cluster: Cluster, name: str, standing: ObservedStatus) -> Cluster:
    cluster._facts.observed_status(cluster.numbers[name], standing, cluster.now_ms)
    return cluster


def grants(cluster: Cluster, name: str) -> tuple[PodSetAssignment, ...]:
    """What a workload was granted, as the world would tell it."""
    row = cluster.state.workload_numbers.row(cluster.numbers[name])
    holding = holding_of(cluster.state, row)
    return tuple(
        PodSetAssignment(
            pod_set=f"s{at}",
            count=count,
            flavors=tuple((resource, flavor) for ordinal, resource, flavor, _ in holding.claims if ordinal == at),
            charge=tuple((resource, amount) for ordinal, resource, _, amount in holding.claims if ordinal == at),
        )
        for at, count in enumerate(holding.pods)
    )


# -- the policy changes under those who hold -----------------------------------------------------------------------


@pytest.mark.parametrize("between", ["queue", "all queues"])
def test_who_runs_in_a_queue_that_is_made_again_holds_its_quota(between):
    cluster = queue_cluster(fleet("2x h100x8"), queue("a", 8), queue("b", 8))
    before = cluster.policy
    cluster.submit(job("j1", "1x8", queue="a")).step()
    cluster.set_policy(without(before, "a") if between == "queue" else replace(before, shares=QueueSetup()))
    assert cluster.step() == []
    cluster.set_policy(before)
    assert cluster.step() == []
    assert usage(cluster, "a") == 8000
    assert cluster.submit(job("j2", "1x8", queue="a", at=9)).step() == [held("j2", Reason.WAITS_FOR_QUOTA)]
    cluster.tell(FactKind.WORKLOAD_FINISHED, "j1")
    cluster.step()
    assert usage(cluster, "a") == 8000


def partly_granted() -> Cluster:
    """A gang of four small pods and a large one, of which two small ones and the large one were granted."""
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 6), queue("b", 8))
    cluster.submit(job("g", replace(pods("4x1"), min_count=1), pods("1x4"), queue="a")).step()
    assert usage(cluster, "a") == 6000
    return cluster


def test_a_gang_that_was_granted_in_part_runs_on_without_its_queue():
    cluster = partly_granted()
    before = cluster.policy
    cluster.set_policy(without(before, "a"))
    assert cluster.step() == []
    twin = ClusterState.load(cluster.state.dump())
    assert twin.digest() == cluster.state.digest()
    cluster.tell(FactKind.POD_BOUND, "g", pod=2, arg=0)
    assert cluster.step() == []
    cluster.set_policy(before)
    assert cluster.step() == []
    assert usage(cluster, "a") == 6000


def test_quota_without_a_place_is_lost_with_its_queue():
    cluster = queue_cluster(fleet("1x h100x4"), queue("a", 8), queue("b", 8), admission="kueue")
    before = cluster.policy
    cluster.submit(job("j", "1x8", queue="a")).step()
    cluster.set_policy(without(before, "a"))
    assert cluster.step() == [evicted("j", Reason.RESERVATION_LOST), held("j", Reason.NO_QUEUE)]
    cluster.set_policy(before)
    cluster.step()
    cluster.add_node(fleet("1x h100x4", "1x h100x8")[1])
    assert cluster.step() == [placed("j", Reason.PLACED_AGAIN)]


def test_quota_without_a_place_is_no_admission_once_admission_comes_with_one():
    cluster = queue_cluster(fleet("1x h100x4"), queue("a", 8), admission="kueue")
    cluster.submit(job("j", "1x8", queue="a")).step()
    cluster.set_policy(replace(cluster.policy, admission=AdmissionKind.TIDEGATE))
    assert evicted("j", Reason.RESERVATION_LOST) in cluster.step()
    assert usage(cluster, "a") == 0
    cluster.add_node(fleet("1x h100x4", "1x h100x8")[1])
    assert placed("j", Reason.PLACED_AGAIN) in cluster.step()


def test_an_entrance_that_is_drained_when_no_queue_is_left():
    cluster = queue_cluster(fleet("1x h100x4"), queue("a", 8))
    cluster.step()
    drained = QueueSetup(entrances=(LocalQueue(id="ns/lq", queue="a", stop=StopPolicy.DRAIN),))
    cluster.set_policy(replace(cluster.policy, shares=drained))
    assert cluster.step() == []


def test_work_that_may_not_run_may_not_run_when_queues_are_made_again():
    cluster = queue_cluster([], queue("a", 8))
    before = cluster.policy
    observe(cluster.submit(job("j", "1x8", queue="a")), "j", ObservedStatus(active=False))
    assert cluster.step() == [held("j", Reason.DEACTIVATED)]
    cluster.set_policy(replace(before, shares=QueueSetup()))
    cluster.step()
    cluster.set_policy(before)
    cluster.add_node(fleet("1x h100x8")[0])
    assert placed("j") not in cluster.step()


def test_work_that_runs_and_moves_to_another_queue_keeps_what_it_holds():
    """Its new queue counts CPU too, of which it asks for none: it is asked for more there than where it is."""
    counts_cpu = replace(queue("b", 8), groups=(FlavorGroup(resources=("cpu", "gpu"), flavors=("any",)),))
    cluster = queue_cluster(fleet("2x h100x8"), queue("a", 8), counts_cpu)
    sets = [replace(pods(text), charge=(("cpu", 0), ("gpu", 1000 * gpus))) for text, gpus in (("1x2", 2), ("1x4", 4))]
    cluster.submit(job("j", *sets, queue="a")).step()
    cluster.change(job("j", *sets, queue="b")).step()
    row = cluster.state.workload_numbers.row(cluster.numbers["j"])
    assert holding_of(cluster.state, row).claims == ((0, "gpu", "any", 2000), (1, "gpu", "any", 4000))
    cluster.tell(FactKind.POD_DONE, "j", pod=1).step()
    assert usage(cluster, "a") == 2000


# -- pods of a gang that was granted in part ---------------------------------------------------------------------


def test_a_pod_of_a_gang_granted_in_part_gives_back_its_own_quota():
    cluster = partly_granted()
    cluster.tell(FactKind.POD_DONE, "g", pod=2)  # the large one: two small ones come before it
    assert cluster.step() == []
    assert usage(cluster, "a") == 2000
    assert cluster.state.nodes.idle[0] == 6


def test_a_pod_of_a_gang_granted_in_part_that_is_moved_takes_what_it_takes():
    cluster = partly_granted()
    cluster.add_node(fleet("1x h100x8", "1x h100x8")[1])
    cluster.tell(FactKind.POD_BOUND, "g", pod=2, arg=1)
    assert cluster.step() == []
    assert cluster.state.nodes.idle[:2].tolist() == [6, 4]


@pytest.mark.parametrize("done", [(), (1,), (2,), (0, 1)])
def test_a_gang_granted_in_part_is_whole_after_a_restart(done):
    """Places and pods that are done are told before what was granted, and may be told in several runs."""
    told = grants(partly_granted(), "g")
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 6))
    cluster.submit(job("g", replace(pods("4x1"), min_count=1), pods("1x4"), queue="a"))
    for pod in done:
        cluster.tell(FactKind.POD_DONE, "g", pod=pod)
    for pod in {0, 1, 2} - set(done):
        cluster.tell(FactKind.POD_BOUND, "g", pod=pod, arg=0).tell(FactKind.POD_STARTED, "g", pod=pod)
    observe(cluster, "g", ObservedStatus(queue="a", grants=told, granted_ms=1, admitted=True))
    assert cluster.step() == []
    left = 6 - sum(4 if pod == 2 else 1 for pod in done)
    assert cluster.state.nodes.idle[0] == 8 - left
    assert usage(cluster, "a") == left * 1000
    cluster.tell(FactKind.WORKLOAD_FINISHED, "g").step()
    assert usage(cluster, "a") == 0
    assert not cluster.state.done
    assert not cluster.state.granted


def test_a_gang_that_is_shown_in_several_runs_of_facts_is_not_broken():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("g", "2x8"))
    for pod in range(2):
        cluster.tell(FactKind.POD_BOUND, "g", pod=pod, arg=pod).tell(FactKind.POD_STARTED, "g", pod=pod)
    assert cluster.step() == []


# -- facts that contradict each other ----------------------------------------------------------------------------


def test_a_node_is_gone_and_its_work_holds_nothing():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8))
    cluster.submit(job("j", "1x8", queue="a")).step()
    observe(cluster.tell(FactKind.NODE_REMOVED, "h100-0-00"), "j", ObservedStatus())
    assert cluster.step() == [held("j", Reason.NO_NODES)]
    assert cluster.step() == []


def test_work_is_cancelled_and_holds_nothing():
    cluster = queue_cluster([], queue("a", 8), admission="kueue")
    cluster.submit(job("j", "1x8", queue="a"), job("k", "1x8", queue="a", at=1)).step()
    observe(cluster.tell(FactKind.WORKLOAD_CANCELLED, "j"), "j", ObservedStatus())
    assert [said.id for said in cluster.step()] == ["k"]
    assert len(cluster.state.live_workloads()) == 1


def test_a_grant_of_a_queue_that_is_not_there_is_none():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8))
    grant = PodSetAssignment(pod_set="s0", count=1, flavors=(("gpu", "any"),), charge=(("gpu", 8000),))
    standing = ObservedStatus(queue="gone", grants=(grant,), granted_ms=1, admitted=True)
    observe(cluster.submit(job("j", "1x8", queue="a")), "j", standing)
    assert placed("j") in cluster.step()


def test_where_work_stands_that_nobody_knows():
    cluster = queue_cluster([], queue("a", 8))
    cluster._facts.observed_status(0, ObservedStatus())
    assert cluster.step() == []


def test_what_is_submitted_twice_is_there_once():
    cluster = Cluster(fleet("1x h100x8"))
    cluster.submit(job("a", "1x4"), job("b", "1x1")).submit(job("a", "1x4"))
    assert cluster.step() == [placed("a"), placed("b")]
    assert len(cluster.state.live_workloads()) == 2
    cluster.tell(FactKind.WORKLOAD_FINISHED, "a").tell(FactKind.WORKLOAD_FINISHED, "b").step()
    assert cluster.state.nodes.idle[0] == 8


@pytest.mark.parametrize("pod", [-1, 1, 99_999, 100_000, 2**31 - 1])
def test_a_pod_that_work_does_not_have_is_not_there(pod):
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("j", "1x1"), job("k", "1x2"))
    cluster.tell(FactKind.POD_BOUND, "j", pod=pod, arg=0).tell(FactKind.POD_BOUND, "k", pod=0, arg=1)
    assert cluster.step() == [placed("j")]
    cluster.tell(FactKind.POD_DONE, "k", pod=pod)
    assert cluster.step() == []
    assert not cluster.state.done


def test_a_pod_that_is_done_gives_back_its_quota_once():
    cluster = queue_cluster([], queue("a", 8), admission="kueue")
    cluster.submit(job("j", "4x2", queue="a")).step()
    for _ in range(3):
        cluster.tell(FactKind.POD_DONE, "j", pod=0).tell(FactKind.POD_DONE, "j", pod=0).step()
        assert usage(cluster, "a") == 6000
    cluster.tell(FactKind.POD_DONE, "j", pod=1).step()
    assert usage(cluster, "a") == 4000


def test_work_that_goes_first_and_is_granted_elsewhere_goes_first_no_more():
    cluster = queue_cluster([], queue("a", 0), queue("b", 8), admission="kueue")
    cluster.submit(job("j", "1x1", queue="a")).step()
    observe(cluster, "j", ObservedStatus(nominated=True)).step()
    grant = PodSetAssignment(pod_set="s0", count=1, flavors=(("gpu", "any"),), charge=(("gpu", 1000),))
    observe(cluster, "j", ObservedStatus(queue="b", grants=(grant,), granted_ms=1)).step()
    assert (cluster.state.quota.quota_nodes.sticky == -1).all()
    assert cluster.submit(job("k", "1x2", queue="a", at=1)).step() == [held("k", Reason.ABOVE_QUOTA)]


def test_a_gang_is_evicted_in_part_only_once():
    cluster = Cluster(fleet("2x h100x8"))
    cluster.submit(job("g", "2x8"))
    assert bound(cluster, "g", "h100-0-00").step() == [evicted("g", Reason.GANG_BROKEN)]


def test_a_pod_that_is_there_and_was_not_granted_is_one_too_many():
    cluster = queue_cluster(fleet("1x h100x8"), queue("a", 8), admission="kueue")
    cluster.submit(job("j", "1x1", queue="a")).step()
    grant = PodSetAssignment(pod_set="s0", count=0, flavors=(("gpu", "any"),))
    observe(cluster, "j", ObservedStatus(queue="a", grants=(grant,), granted_ms=1))
    assert cluster.step() == [evicted("j", Reason.GANG_BROKEN)]


# -- numbers beyond all bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -1])
def test_a_pod_of_work_that_was_granted_no_pods_is_one_too_many(count):
    """Without queues a grant is only noted; a world that shows a pod of none contradicts itself, and the work goes."""
    cluster = Cluster(fleet("1x h100x8")).submit(job("j", "1x1"))
    cluster.step()
    cluster.tell(FactKind.POD_BOUND, "j", arg=cluster.nodes["h100-0-00"])
    grant = PodSetAssignment(pod_set="s0", count=count, flavors=(("gpu", "any"),))
    observe(cluster, "j", ObservedStatus(queue="a", grants=(grant,), granted_ms=1))
    assert cluster.step() == [evicted("j", Reason.GANG_BROKEN)]


@pytest.mark.parametrize("lends", [None, 0, 1 << 60])
def test_what_is_charged_beyond_all_bounds_can_be_given_back(lends):
    """Quota that is as good as unlimited, and jobs that ask for as much: a typo, Ei for Gi."""
    huge, small = 1 << 60, 1 << 30
    quotas = (Quota(flavor="any", resource="memory", nominal=huge, lend_limit=lends),)
    groups = (FlavorGroup(resources=("memory",), flavors=("any",)),)
    queues = [Queue(name=name, cohort="c", groups=groups, quotas=quotas) for name in "ab"]
    cluster = queue_cluster([], *queues, admission="kueue")
    asked = [("small", small), ("typo", huge), *((f"half{n}", huge // 2) for n in range(3))]
    for at, (name, memory) in enumerate(asked):
        cluster.submit(job(name, replace(pods("1x0"), charge=(("memory", memory),)), queue="a", at=at))
    cluster.step()
    for name, _ in asked[1:]:
        cluster.tell(FactKind.WORKLOAD_FINISHED, name)
    cluster.step()
    assert usage(cluster, "a") == small
    cluster.set_policy(replace(cluster.policy, shares=replace(cluster.policy.shares, partial=False)))
    cluster.step()
    cluster.tell(FactKind.WORKLOAD_FINISHED, "small").step()
    assert not cluster.state.quota.quota_nodes.usage.any()


@pytest.mark.parametrize(
    "work",
    [
        job("j", "1x1", priority=2**63).work,
        job("j", "1x1", priority=-(2**64)).work,
        job("j", replace(pods("1x1"), charge=(("gpu", -50_000),))).work,
        job("j", replace(pods("1x1"), charge=(("gpu", 2**63),))).work,
        job("j", replace(pods("1x1"), footprint=(("gpu", 2**63),))).work,
        replace(job("j", "1x1").work, protected_ms=2**63),
    ],
)
@pytest.mark.parametrize("admission", [None, "kueue", "tidegate"])
def test_work_with_numbers_beyond_all_bounds_is_refused(work, admission):
    cluster = Cluster(fleet("1x h100x8"))
    if admission:
        cluster = queue_cluster(fleet("1x h100x8"), queue("default", 8), admission=admission)
    assert cluster.submit(replace(job("j", "1x1"), work=work)).step() == [rejected("j", Reason.MALFORMED)]


def test_a_node_with_numbers_beyond_all_bounds_has_as_much_as_can_be_counted():
    node = fleet("1x h100x8")[0]
    cluster = Cluster([node])
    cluster.submit(job("j", "1x1")).step()
    huge = (("cpu", 2**64), ("example.com/nic", 2**70), ("memory", 2**64), ("pods", 2**64))
    cluster.add_node(replace(node, shape=replace(node.shape, capacity=huge, gpu_memory_mib=2**64)))
    assert cluster.submit(job("k", "1x1", at=1)).step() == [placed("k")]
    cluster.add_node(replace(node, shape=replace(node.shape, gpu_count=-3, gpu_memory_mib=-1)))
    cluster.step()
    cluster.add_node(node)
    assert cluster.step() == []
    assert cluster.state.nodes.idle[0] == 6


def test_what_the_world_tells_in_numbers_beyond_all_bounds_is_bounded():
    cluster = queue_cluster(fleet("1x h100x8"), replace(queue("a", 8), weight_milli=2**70), admission="tidegate")
    cluster.submit(job("j", "1x1", queue="a"))
    far = ObservedStatus(requeue_at_ms=2**64, evictions=2**64, passed_over_ms=2**70, reserved=(("h100-0-00", 10**12),))
    observe(cluster, "j", replace(far, nominated=True, reclaimable=(("s0", 2**64),)))
    cluster._facts.unmanaged_pods(
        0, UnmanagedPods(node="h100-0-00", request=(("cpu", 2**64),), charge=(("cpu", 2**64),), pods=-1)
    )
    cluster._facts.decayed_usage(DecayedUsage(entrance="a", milli=(("gpu", 2**70),), at_ms=2))
    assert placed("j") not in cluster.step()
    cluster._facts.unmanaged_pods(0, UnmanagedPods(node="h100-0-00"))
    assert placed("j", Reason.PLACED_AGAIN) in observe(cluster, "j", ObservedStatus()).step()
