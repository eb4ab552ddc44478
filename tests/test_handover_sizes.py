"""Jobs whose size changes while they run hold what they held before, whoever leads; in between no quota is exceeded."""

from __future__ import annotations

import pytest

from kubebench.objects import job
from kubepaper import job_pods, ours, queued
from kuberelay import Relay, make_pods, relay
from tidegate.kube.write_outcomes import WriteOutcomes
from tidegate.model.facts import WriteOutcome


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_a_job_that_was_made_smaller_keeps_its_places(bound):
    """A pod that is made again after the hand-over goes to a place of its job, and nobody is sent away."""
    cluster = relay()
    cluster.put(queued(job("j", 3, 2, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    cluster.change("job/j", spec__parallelism=2)
    job_pods(cluster, "j", bound, gpus=2)
    cluster.step()
    cluster.obey()
    cluster.take_over()
    assert cluster.step() == []
    job_pods(cluster, "j", 2 - bound, first=bound, gpus=2)
    assert [kind for kind, _ in cluster.step()] == ["bind"] * (2 - bound)
    cluster.obey()
    assert cluster.usage()["queue/q"][1] == 4
    assert all(cluster.nodes_of("j-0", "j-1"))


def _shrunk_running() -> Relay:
    """A running Job of two pods of four GPUs is made smaller by one."""
    cluster = relay()
    cluster.put(queued(job("j", 2, 4, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.change("job/j", spec__parallelism=1)
    cluster.remove("pod/j-1")
    return cluster


@pytest.mark.parametrize("seen", [False, True])
def test_a_job_that_shrank_and_grew_holds_no_more_after_the_hand_over(seen):
    """What it gave back is taken; who led saw that it grew, or not, and died before it was set back."""
    cluster = _shrunk_running()
    cluster.put(queued(ours("next", 4)))
    cluster.step()
    cluster.obey()
    assert cluster.nodes_of("next") != [None]
    cluster.change("job/j", spec__parallelism=2)
    job_pods(cluster, "j", 1, first=2, gpus=4)
    if seen:
        assert cluster.step() == [("trim", "job/j")]
    cluster.take_over()
    assert cluster.step() == [("trim", "job/j")]
    assert cluster.usage()["queue/q"][1] == 8
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 1
    assert cluster.nodes_of("j-2") == [None]
    cluster.remove("pod/j-2")
    cluster.take_over()
    assert cluster.step() == []
    assert cluster.usage()["queue/q"][1] == 8


@pytest.mark.parametrize("outcome", [WriteOutcome.UNKNOWN, WriteOutcome.FAILED])
def test_quota_is_given_back_once_the_next_leader_can_know(outcome):
    """Until its annotation says that the Job holds less, the next leader would believe that it holds all."""
    cluster = _shrunk_running()
    cluster.put(queued(ours("next", 4)))
    assert cluster.step() == [("note_size", "job/j")]
    assert cluster.usage()["queue/q"][1] == 8
    WriteOutcomes(cluster.reconciler).settle(cluster.orders[0], outcome)
    assert cluster.step() == [("note_size", "job/j")]
    assert cluster.orders[0].again == 1
    cluster.obey()
    assert cluster.nodes_of("next") != [None]


def test_a_job_that_shrank_while_nobody_led_is_handed_over_as_smaller():
    cluster = _shrunk_running()
    cluster.take_over()
    assert cluster.step() == [("note_size", "job/j")]
    cluster.obey()
    cluster.put(queued(ours("next", 4)))
    cluster.step()
    cluster.obey()
    cluster.change("job/j", spec__parallelism=2)
    cluster.take_over()
    assert cluster.step() == [("trim", "job/j")]
    assert cluster.usage()["queue/q"][1] == 8


def test_who_only_watches_gives_back_quota_at_once():
    """It writes nothing, and nobody takes over from it."""
    cluster = _shrunk_running()
    cluster.change("job/j", spec__parallelism=2)
    job_pods(cluster, "j", 1, first=1, gpus=4)
    cluster.change("pod/j-1", spec__nodeName="n0")
    cluster.begin_anew(watches=True)
    cluster.step()
    assert cluster.usage()["queue/q"][1] == 8
    cluster.change("job/j", spec__parallelism=1)
    cluster.remove("pod/j-1")
    assert cluster.step() == []
    assert cluster.usage()["queue/q"][1] == 4


def test_a_job_that_grows_again_before_it_gave_back_quota_keeps_it():
    cluster = _shrunk_running()
    cluster.step()
    cluster.change("job/j", spec__parallelism=2)
    job_pods(cluster, "j", 1, first=2, gpus=4)
    assert ("bind", "pod/j-2") in cluster.step()
    cluster.take_over()
    cluster.step()
    cluster.obey()
    assert cluster.nodes_of("j-2") != [None]
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 2


def test_an_elastic_job_that_is_done_in_part_and_grew_goes_on_after_the_hand_over():
    """It holds two pods by its annotation and has two that run; pods that are done hold nothing twice."""
    cluster = relay()
    cluster.put(queued(job("j", 4, 2, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.change("pod/j-0", status__phase="Succeeded")
    cluster.change("job/j", status__succeeded=1)
    cluster.step()
    _resize(cluster, 3)
    cluster.remove("pod/j-3")
    assert cluster.step() == [("note_size", "job/j")]
    cluster.obey()
    _resize(cluster, 5)
    job_pods(cluster, "j", 2, first=4, gpus=2)
    cluster.take_over()
    assert cluster.step() == [("trim", "job/j")]
    assert cluster.usage()["queue/q"][1] == 4
    assert cluster.nodes_of("j-4", "j-5") == [None, None]
    cluster.obey()
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 2
    assert cluster.usage()["queue/q"][1] == 4


def _resize(cluster: Relay, pods: int) -> None:
    """An owner changes how many pods an elastic Job is of."""
    cluster.objects["job/j"]["spec"] |= {"completions": pods}
    cluster.change("job/j", spec__parallelism=pods)


def test_a_job_that_is_done_in_part_and_grew_holds_no_more_than_before_the_hand_over():
    """Its annotation says two pods; one of them was done since, and what it held is taken."""
    cluster = relay()
    cluster.put(queued(job("j", 4, 2, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    _resize(cluster, 2)
    for name in ("pod/j-2", "pod/j-3"):
        cluster.remove(name)
    cluster.step()
    cluster.obey()
    cluster.change("pod/j-0", status__phase="Succeeded")
    cluster.change("job/j", status__succeeded=1)
    cluster.put(queued(ours("next", 6)))
    cluster.step()
    cluster.obey()
    assert cluster.nodes_of("next") != [None]
    _resize(cluster, 4)
    job_pods(cluster, "j", 2, first=4, gpus=2)
    cluster.take_over()
    assert cluster.step() == [("trim", "job/j")]
    assert cluster.usage()["queue/q"][1] == 8
    assert cluster.nodes_of("j-4", "j-5") == [None, None]


@pytest.mark.parametrize("written", [False, True])
def test_a_shrink_that_no_leader_saw_frees_quota_once_the_annotation_says_so(written):
    """A leader that dies before it has written that the Job holds less has given its quota to nobody."""
    cluster = _shrunk_running()
    cluster.put(queued(ours("next", 4)))
    cluster.take_over()
    assert cluster.step() == [("note_size", "job/j")]
    assert cluster.usage()["queue/q"][1] == 8
    if written:
        cluster.obey()
        assert cluster.nodes_of("next") != [None]
    cluster.change("job/j", spec__parallelism=2)
    job_pods(cluster, "j", 1, first=2, gpus=4)
    cluster.take_over()
    told = cluster.step()
    assert told == ([("trim", "job/j")] if written else [("bind", "pod/j-2")])
    cluster.obey()
    assert cluster.usage()["queue/q"][1] == 8
    assert cluster.nodes_of("next", "j-2").count(None) == 1


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_job_that_shrank_is_started_with_all_its_pods_after_an_eviction(takes_over):
    """The pod that it gave up when it shrank is none of those that it asks for now."""
    cluster = relay()
    cluster.put(queued(job("j", 3, 2, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.change("job/j", spec__parallelism=2)
    cluster.remove("pod/j-2")
    cluster.step()
    cluster.obey()
    cluster.put(queued(ours("high", 8, priority=10)))
    assert cluster.step() == [("stop", "job/j")]
    cluster.obey()
    if takes_over:
        cluster.take_over()
        assert cluster.step() == []
    for name in ("pod/j-0", "pod/j-1"):
        cluster.remove(name)
    assert cluster.step() == [("bind", "pod/high")]
    cluster.obey()
    cluster.remove("pod/high")
    assert cluster.step() == [("start", "job/j")]
    cluster.obey()
    make_pods(cluster)
    assert cluster.usage()["queue/q"][1] == 4
    assert cluster.objects["job/j"]["spec"]["parallelism"] == 2


def test_pods_of_a_job_that_its_owner_suspended_hold_no_quota_again_while_they_leave():
    """What they held is given to others at once; that they change before they are gone makes nothing of it."""
    cluster = relay()
    cluster.take_over()  # the first look is over
    cluster.put(queued(job("j", 3, 2, suspend=True, scheduler="tidegate")))
    cluster.step()
    cluster.obey()
    make_pods(cluster)
    cluster.change("job/j", spec__suspend=True)
    cluster.put(queued(ours("next", 6, priority=10)))
    assert cluster.step() == [("bind", "pod/next")]
    cluster.obey()
    for name in ("pod/j-0", "pod/j-1", "pod/j-2"):
        cluster.change(name, status__phase="Running")
    assert cluster.step() == []
    assert cluster.usage()["queue/q"][1] == 6
