"""Faults at random points of a live run; `bench/faults.py --points 200` is the long form."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from kubebench import pod
from kubefaults import Ordeal, draw_points
from kubefaulttable import FAULTS
from kubeinvariants import QUOTA, Watcher, bound_twice, evicted_in_silence

#: A control plane each for so many parts of so many points.
SEED, PARTS, POINTS = 21, 4, 5

#: A part begins no point after this time: a machine that has other things to do endures fewer of them.
BUDGET_S = 40.0

#: What the proxy counts when a fault has done something.
COUNTED = {
    "conflicts": "refused",
    "busy": "refused",
    "lost-before": "lost",
    "lost-after": "lost",
    "cut": "cuts",
    "expired-credentials": "unauthorized",
    "torn-lists": "torn",
    "half-open": "muted",
}


def test_points_are_those_of_their_seed():
    assert draw_points(7, 60) == draw_points(7, 60) != draw_points(8, 60)
    assert draw_points(7, 60)[:9] == draw_points(7, 9)  # so that a point repeats alone
    counts = Counter(point.fault for point in draw_points(7, 60))
    assert counts.keys() == FAULTS.keys()
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {point.fault for point in draw_points(7, 60, ["drain", "taint"])} == {"drain", "taint"}


@pytest.mark.usefixtures("kube_programs")
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_goes_wrong_breaks_what_must_hold(part):
    points = draw_points(SEED, PARTS * POINTS)[part * POINTS : (part + 1) * POINTS]
    with Ordeal() as ordeal:
        until_s, endured = time.monotonic() + BUDGET_S, 0
        while endured < len(points) and time.monotonic() < until_s:
            ordeal.endure(points[endured])
            endured += 1
        ordeal.finish()
        done = ordeal.proxy.counts()
        assert all(done[COUNTED[point.fault]] for point in points[:endured] if point.fault in COUNTED)
        assert ordeal.violations == []


# -- what must hold is noticed when it does not ----------------------------------------------------------------------


def complaints_of(*looks):
    """What a watcher says of pods, look by look."""
    told = []
    watcher = Watcher(None, told.append)
    for pods in looks:
        watcher._check_quota(pods)
    return told


def bound(name, node, gpus=1):
    made = pod(name, gpus, nodeName=node)
    made["metadata"]["uid"] = name
    return made | {"status": {"phase": "Running"}}


def test_a_quota_that_is_exceeded_is_a_violation():
    within, beyond = bound("a", "n0", QUOTA), bound("b", "n0", 1)
    assert complaints_of([within]) == []
    (told,) = complaints_of([within, beyond], [within, beyond])
    assert told.startswith(f"the queue holds {QUOTA + 1} GPUs of {QUOTA}")
    over = beyond | {"status": {"phase": "Succeeded"}}
    assert complaints_of([within, over]) == []


def test_a_pod_on_a_closed_node_is_a_violation():
    told = []
    watcher = Watcher(None, told.append)
    watcher._closed = {"n1": {"old"}}
    watcher._check_closed([bound("old", "n1"), bound("new", "n0")], {"n1": {"old"}})
    assert told == []
    watcher._check_closed([bound("new", "n1")], {"n1": {"old"}})
    assert told == ["pod new was bound to n1, which the leader knew to take no pods"]


def request(verb, resource, name, body=None, *, part="", second=0, code=201):
    return {
        "verb": verb,
        "user": {"username": "tidegate"},
        "stage": "ResponseComplete",
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-11-18T19:00:{second:02}.000000Z",
        "objectRef": {"resource": resource, "name": name, "subresource": part},
        "requestObject": body or {},
    }


def test_a_pod_that_is_bound_twice_is_a_violation():
    binding = request("create", "pods", "p", part="binding")
    assert bound_twice([binding, request("create", "pods", "p", part="binding", code=409)]) == []
    assert bound_twice([binding, binding]) == ["pod p was bound 2 times"]


@pytest.mark.parametrize(
    "stopped",
    [
        request("create", "pods", "w-0", part="eviction"),
        request("patch", "jobs", "w-0", [{"op": "add", "path": "/spec/suspend", "value": True}], code=200),
        request("patch", "jobs", "w-0", {"spec": {"suspend": True}}, code=200),
    ],
)
def test_an_eviction_without_an_event_is_a_violation(stopped):
    def event(name, reason, second):
        return request("create", "events", "", {"reason": reason, "regarding": {"name": name}}, second=second)

    assert evicted_in_silence([stopped, event("w-0", "Evicted", 1)]) == []
    assert len(evicted_in_silence([stopped])) == 1
    assert len(evicted_in_silence([stopped, event("w-0", "Queued", 1)])) == 1
    assert len(evicted_in_silence([stopped, event("other", "Evicted", 1)])) == 1
    assert len(evicted_in_silence([stopped, event("w-0", "Evicted", 50)])) == 1
    refused = stopped | {"responseStatus": {"code": 429}}
    assert evicted_in_silence([refused]) == []


def test_an_eviction_at_the_end_of_a_term_may_have_no_event():
    def renewed(holder, second):
        return request("update", "leases", "tidegate", {"spec": {"holderIdentity": holder}}, second=second, code=200)

    stopped = request("create", "pods", "p", part="eviction", second=5)
    assert len(evicted_in_silence([renewed("a", 1), stopped, renewed("a", 7)])) == 1
    assert evicted_in_silence([renewed("a", 1), stopped, renewed("b", 9)]) == []
    assert len(evicted_in_silence([renewed("a", 1), renewed("b", 3), stopped, renewed("b", 9)])) == 1
