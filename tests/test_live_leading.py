"""Who leads: threads that must not end unnoticed, Leases in whole seconds, and instances that manage the same work."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubefake import Fake, answer, refusal
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.loop_thread import LoopThread, ThreadEndedError
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.live.election import Claiming, Election, LeaseName
from tidegate.live.lease import Candidate, LeaseObject, LeaseTimes
from tidegate.live.scope_claim import CLAIM_PREFIX, Claimant, InstanceScope

TIMES = LeaseTimes(lease_s=15, renew_s=10, retry_s=2)
QUICK = LeaseTimes(lease_s=2, renew_s=1.2, retry_s=0.1)
BIND, GATE = InstanceScope("bind", "tidegate"), InstanceScope("gate")


# -- threads -------------------------------------------------------------------------------------------------------


def test_a_thread_that_ends_though_nobody_stopped_it_is_seen():
    async def breaks():
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    async def returns():
        return

    for main, cause in ((breaks, ZeroDivisionError), (returns, type(None))):
        thread = LoopThread("worker", main)
        thread.check()  # not started yet
        thread.start()
        thread._thread.join()
        assert thread.problem().startswith("the thread worker has ended")
        with pytest.raises(ThreadEndedError) as raised:
            thread.check()
        assert isinstance(raised.value.__cause__, cause)
        thread.call(print)  # nothing happens
        thread.stop()


def test_a_thread_that_was_stopped_is_well():
    async def waits():
        await thread.stopping.wait()

    thread = LoopThread("worker", waits)
    thread.start()
    thread.check()
    thread.stop()
    assert thread.problem() == ""


@contextmanager
def serving(*behaviours):
    """A server that misbehaves, in a thread of its own."""
    ready, done, box = threading.Event(), threading.Event(), []

    def serve():
        async def run():
            async with Fake(*behaviours) as fake:
                box.append(fake)
                ready.set()
                await asyncio.to_thread(done.wait)

        asyncio.run(run())

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    try:
        yield box[0]
    finally:
        done.set()
        thread.join()


def wait_for(holds, most_s=10.0):
    until_s = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < until_s, "it did not come about"
        time.sleep(0.02)


def test_an_answer_that_is_no_lease_is_trouble_and_ends_nothing():
    with serving(answer(200, b"<html>maintenance</html>")) as fake:
        election = Election(fake.access, LeaseName("a", "b"), "me", QUICK)
        election.start()
        wait_for(lambda: len(fake.asked) > 2)
        election.thread.check()
        assert "no Lease" in election.problem
        assert not election.leads()
        election.stop()


# -- Leases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lease_s", "written"), [(15, 15), (4.4, 5), (0.4, 1), (2.0001, 3)])
def test_others_are_given_the_whole_duration_of_a_lease_in_seconds_rounded_up(lease_s, written):
    candidate = Candidate("a", LeaseTimes(lease_s, lease_s / 2, lease_s / 4))
    assert candidate.claim(0, "t").spec.lease_duration_seconds == written


# -- claims of scopes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (BIND, BIND, True),
        (GATE, GATE, True),
        (BIND, GATE, True),  # a job may name a queue and the scheduler
        (BIND, InstanceScope("bind", "other"), False),
    ],
)
def test_scopes_overlap_where_some_work_may_be_of_both(one, other, overlap):
    assert one.overlaps(other) is overlap
    assert other.overlaps(one) is overlap


class Claims:
    """The object with the claims, as an API server has it."""

    def __init__(self):
        self.lease: LeaseObject | None = None
        self.version = 0

    def write(self, wanted, version):
        if version != (self.lease.metadata.resource_version if self.lease else ""):
            return None
        self.version += 1
        meta = KubeObjectMeta(name="c", resource_version=str(self.version), annotations=wanted["annotations"])
        self.lease = LeaseObject(meta, wanted["spec"])
        return self.lease

    def turn(self, claimant, at_s):
        claimant.see(self.lease, at_s)
        wanted = claimant.claim(at_s, f"t{at_s}")
        written = self.write(wanted, claimant.version) if wanted is not None else None
        if written is not None:
            claimant.won(written, at_s, at_s)
        return claimant.holds(at_s)


def claimant(lease, scope=BIND, holder="pod"):
    return Claimant(lease, holder, scope, TIMES)


def test_of_two_instances_with_the_same_scope_one_has_the_claim():
    claims, a, b = Claims(), claimant("tidegate/tidegate"), claimant("default/tidegate")
    assert claims.turn(a, 0)
    assert not claims.turn(b, 1)
    assert b.conflict(1) == ""  # it may be the claim of an instance that is gone
    assert claims.turn(a, 2)
    assert not claims.turn(b, 3)
    assert "Lease tidegate/tidegate (bind, schedulerName tidegate; pod leads) manages the same work" in b.conflict(3)
    assert "--mode shadow" in b.conflict(3)
    assert claims.lease.spec.holder_identity == "tidegate/tidegate"


def test_a_claim_that_is_not_renewed_lapses_as_a_lease_does():
    claims, a, b = Claims(), claimant("tidegate/tidegate"), claimant("default/tidegate")
    assert claims.turn(a, 0)
    assert not claims.turn(b, 1)
    assert not claims.turn(b, 15.9)  # first seen at 1
    assert not a.holds(10.1)
    assert claims.turn(b, 16.1)
    assert not claims.turn(a, 17)
    assert len(claims.lease.metadata.annotations) == 1


def test_a_replica_that_takes_over_continues_the_claim_of_its_instance():
    claims, a = Claims(), claimant("tidegate/tidegate", holder="pod-a")
    overlapping_claim, b = claimant("default/tidegate"), claimant("tidegate/tidegate", holder="pod-b")
    assert claims.turn(a, 0)
    assert not claims.turn(overlapping_claim, 1)
    assert claims.turn(b, 2)
    assert not claims.turn(overlapping_claim, 3)


def test_instances_with_scopes_of_their_own_do_not_disturb_each_other():
    claims, a, b = Claims(), claimant("a/tidegate"), claimant("b/tidegate", InstanceScope("bind", "other"))
    for at_s in range(0, 60, 2):
        assert claims.turn(a, at_s)
        assert claims.turn(b, at_s + 1)
    assert (a.term, b.term) == (1, 1)
    assert claims.lease.spec.holder_identity == "a/tidegate, b/tidegate"


def test_a_claim_that_cannot_be_read_is_respected():
    claims, a = Claims(), claimant("a/tidegate")
    assert claims.turn(a, 0)
    claims.lease.metadata.annotations[CLAIM_PREFIX + "odd"] = "{"
    b = claimant("a/tidegate")
    assert not claims.turn(b, 1)
    assert b.unreadable == CLAIM_PREFIX + "odd"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 8.0), st.booleans(), st.booleans()), max_size=60))
def test_never_do_two_instances_with_overlapping_scopes_hold_claims_at_a_time(turns):
    """Whoever comes when, whether it reads first, and whether or not it hears of what it wrote."""
    claims, now_s = Claims(), 0.0
    scopes = (BIND, GATE, InstanceScope("bind", "other"), BIND)
    some = [claimant(f"n{number}/tidegate", scope) for number, scope in enumerate(scopes)]
    for number, pause_s, looks, heard in turns:
        now_s += pause_s
        one = some[number]
        if looks or not one.holds(now_s):
            one.see(claims.lease, now_s)
        wanted = one.claim(now_s, f"{now_s}")
        written = claims.write(wanted, one.version) if wanted is not None else None
        if written is not None and heard:
            one.won(written, now_s, now_s)
        held = [one.scope for one in some if one.holds(now_s)]
        assert not any(a.overlaps(b) for at, a in enumerate(held) for b in held[at + 1 :])


# -- elections with claims -----------------------------------------------------------------------------------------


class Server:
    """Leases of an API server, by their paths."""

    def __init__(self):
        self.leases, self.version, self.events = {}, 0, []
        self.forbids = ""

    async def __call__(self, asked, writer):
        await self._respond(asked)(asked, writer)

    def _respond(self, asked):
        if self.forbids and self.forbids in asked.path:
            return refusal(403, "Forbidden", "no")
        if asked.path.endswith("/events"):
            self.events.append(json.loads(asked.body))
            return answer(201, {})
        if asked.method == "GET":
            there = self.leases.get(asked.path)
            return answer(200, there) if there else refusal(404, "NotFound")
        return self._write(asked)

    def _write(self, asked):
        body = json.loads(asked.body)
        path = asked.path if asked.method == "PUT" else f"{asked.path}/{body['metadata']['name']}"
        there = self.leases.get(path)
        if body["metadata"].get("resourceVersion", "") != (there["metadata"]["resourceVersion"] if there else ""):
            return refusal(409, "Conflict")
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.leases[path] = body
        return answer(200, body)


@contextmanager
def election(access: Connection, namespace: str, identity: str, scope: InstanceScope | None = BIND):
    claiming = Claiming(scope) if scope is not None else None
    made = Election(access, LeaseName(namespace, "tidegate"), identity, QUICK, claiming)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_a_second_instance_with_the_same_scope_does_not_lead_and_says_why():
    server = Server()
    with serving(server) as fake, election(fake.access, "tidegate", "pod-0") as first:
        wait_for(first.leads)
        with election(fake.access, "default", "laptop") as second:
            wait_for(lambda: second.conflict)
            assert second.holder == "laptop"  # it has its own Lease
            assert not second.leads()
            assert "Lease tidegate/tidegate" in second.conflict
            wait_for(lambda: server.events)
            (event,) = server.events
            assert (event["reason"], event["type"]) == ("ScopeConflict", "Warning")
            assert event["regarding"]["namespace"] == "default"
            assert first.leads()
            first.stop()
            wait_for(second.leads)  # once the claim has lapsed
            assert second.conflict == ""
    assert len(server.events) == 1


def test_a_shadow_claims_nothing_and_conflicts_with_nobody():
    server = Server()
    with (
        serving(server) as fake,
        election(fake.access, "tidegate", "pod-0") as first,
        election(fake.access, "default", "laptop", scope=None) as shadow,
    ):
        wait_for(lambda: first.leads() and shadow.leads())
        assert not shadow.conflict


def test_two_schedulers_lead_side_by_side():
    server = Server()
    with (
        serving(server) as fake,
        election(fake.access, "a", "pod-a") as first,
        election(fake.access, "b", "pod-b", InstanceScope("bind", "other")) as second,
    ):
        wait_for(lambda: first.leads() and second.leads())
        terms = first.term, second.term
        time.sleep(2 * QUICK.renew_s)
        assert (first.term, second.term) == terms  # neither lapsed


def test_an_instance_that_may_not_claim_its_scope_does_not_lead():
    server = Server()
    server.forbids = "kube-system"
    with serving(server) as fake, election(fake.access, "a", "pod-a") as made:
        wait_for(lambda: made.problem)
        assert made.problem == "the claim of the scope: 403 Forbidden: no"
        assert not made.leads()


def test_a_claim_that_lapsed_and_is_ours_again_is_another_term():
    server = Server()
    with serving(server) as fake, election(fake.access, "a", "pod-a") as made:
        wait_for(made.leads)
        term = made.term
        server.forbids = "kube-system"
        wait_for(lambda: not made.leads())
        server.forbids = ""
        wait_for(made.leads)
        assert not made.leads(term)
        assert made.term == term + 1


def test_labels_and_annotations_of_a_lease_stay():
    server = Server()
    with serving(server) as fake, election(fake.access, "a", "pod-a") as made:
        wait_for(made.leads)
    (path,) = (path for path in server.leases if "/namespaces/a/" in path)
    server.leases[path]["metadata"]["labels"]["team"] = "x"
    server.leases[path]["metadata"]["annotations"]["note"] = "y"
    with serving(server) as fake, election(fake.access, "a", "pod-b") as made:
        wait_for(made.leads)
        meta = server.leases[path]["metadata"]
        assert meta["labels"] == {"team": "x", "app.kubernetes.io/name": "tidegate"}
        assert meta["annotations"] == {"note": "y"}
