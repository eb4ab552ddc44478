"""Writes against a server that misbehaves: done, failed or unknown, and never the wrong one of them."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import NamedTuple

import pytest

from kubefake import Fake, answer, cut, hang, refusal, thing
from tidegate.kube.transport.api_thread import ApiThread
from tidegate.kube.transport.client import Client
from tidegate.kube.transport.reflector import ReflectorOptions
from tidegate.kube.transport.resources import JOBS
from tidegate.kube.transport.response import NO_ANSWER, NOT_ALLOWED, NOT_SENT
from tidegate.kube.transport.write_pool import WriteLimits, WritePool
from tidegate.kube.transport.writes import (
    EventMessage,
    Ref,
    Write,
    apply,
    bind,
    create,
    delete,
    edit,
    event_write,
    evict,
    merge,
    pod_ref,
)
from tidegate.model.facts import WriteOutcome

_POD = pod_ref("default", "p", "u1")
_BIND = bind(_POD, "n1")
_OK = answer(201, {"kind": "Status", "status": "Success"})
_QUICK = WriteLimits(deadline_s=0.4)


def bound_to(node, uid="u1"):
    return answer(200, thing(uid, 5, spec={"nodeName": node} if node else {}))


def carry_out(write, *behaviours, limits=_QUICK):
    async def run():
        async with Fake(*behaviours) as fake, Client(fake.access) as client:
            return await _one(client, write, limits), fake.asked

    return asyncio.run(run())


async def _one(client, write, limits):
    pool = WritePool(client, lambda: 0.0, limits)
    told = asyncio.get_running_loop().create_future()
    pool.submit(write, told.set_result)
    async with asyncio.timeout(20):
        return await told


def timing_out(write):
    return write._replace(request=write.request._replace(timeout_s=0.1))


def test_a_pod_is_bound_with_its_uid_as_precondition():
    result, requests = carry_out(_BIND, _OK)
    assert result.outcome is WriteOutcome.DONE
    assert requests[0].path == "/api/v1/namespaces/default/pods/p/binding"
    body = json.loads(requests[0].body)
    assert body["metadata"]["uid"] == "u1"
    assert body["target"]["name"] == "n1"
    assert requests[0].headers["authorization"] == "Bearer a-token"


@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        (bound_to("n1"), WriteOutcome.DONE),  # it was us, a try earlier
        (bound_to("n2"), WriteOutcome.FAILED),
        (bound_to(""), WriteOutcome.FAILED),
        (bound_to("n1", uid="u2"), WriteOutcome.FAILED),  # another pod of the same name
        (refusal(404, "NotFound"), WriteOutcome.FAILED),
    ],
)
def test_a_conflict_is_looked_into(shown, outcome):
    result, _ = carry_out(_BIND, refusal(409, "Conflict", "already assigned"), shown)
    assert result.outcome is outcome


@pytest.mark.parametrize("problem", [cut(), refusal(503, "ServiceUnavailable"), refusal(500, "InternalError")])
def test_what_may_pass_is_tried_again(problem):
    result, _ = carry_out(_BIND, problem, problem, _OK, limits=WriteLimits(deadline_s=10))
    assert result.outcome is WriteOutcome.DONE
    assert result.tries == 3


@pytest.mark.parametrize(
    ("shown", "outcome"),
    [(bound_to("n1"), WriteOutcome.DONE), (bound_to(""), WriteOutcome.UNKNOWN), (cut(), WriteOutcome.UNKNOWN)],
)
def test_a_timeout_is_unknown_unless_the_world_shows_that_it_was_done(shown, outcome):
    """A pod that is not bound may be bound yet: the request may still be on its way."""

    async def behave(asked, writer):
        await (hang() if asked.method == "POST" else shown)(asked, writer)

    result, _ = carry_out(timing_out(_BIND), behave)
    assert result.outcome is outcome
    assert result.answer.reason == NO_ANSWER


def test_what_was_never_sent_has_failed():
    async def run():
        async with Fake(_OK) as fake:
            access = fake.access
        async with Client(access._replace(server="http://127.0.0.1:1")) as client:
            return await _one(client, _BIND, _QUICK)

    result = asyncio.run(run())
    assert result.outcome is WriteOutcome.FAILED
    assert result.answer.reason == NOT_SENT


def test_who_may_not_write_any_more_once_the_connection_is_there_sends_nothing():
    allowed = [True, False]  # when it is taken up, and when the first byte is about to go

    async def run():
        async with Fake(_OK) as fake, Client(fake.access) as client:
            pool, told = WritePool(client, lambda: 0.0, _QUICK, lambda: allowed.pop(0)), []
            pool.submit(_BIND, told.append)
            async with asyncio.timeout(20):
                while not told:
                    await asyncio.sleep(0.01)
            return told[0], fake.asked

    result, requests = asyncio.run(run())
    assert (result.outcome, result.answer.reason, requests) == (WriteOutcome.FAILED, NOT_ALLOWED, [])


def test_a_server_that_has_just_started_forbids_what_it_will_allow():
    result, _ = carry_out(_BIND, refusal(403, "Forbidden"), refusal(403, "Forbidden"), _OK)
    assert result.outcome is WriteOutcome.DONE
    result, requests = carry_out(_BIND, refusal(403, "Forbidden"), limits=WriteLimits(deadline_s=20, unready_s=0.3))
    assert result.outcome is WriteOutcome.FAILED
    assert 2 <= len(requests) <= 5


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_refusal_that_stands_is_not_tried_again(status):
    result, requests = carry_out(_BIND, refusal(status, "No", "because"))
    assert result.outcome is WriteOutcome.FAILED
    assert result.answer.text() == f"{status} No: because"
    assert len(requests) == 1


def test_too_many_requests_surely_was_not_done():
    result, _ = carry_out(_BIND, refusal(429, "TooManyRequests"))
    assert result.outcome is WriteOutcome.FAILED


def test_a_pod_that_is_gone_has_been_evicted_and_deleted():
    for write in (evict(_POD), delete(_POD)):
        for status in (404, 409):
            assert carry_out(write, refusal(status, "x"))[0].outcome is WriteOutcome.DONE
    assert carry_out(delete(_POD, version="5"), refusal(409, "Conflict"))[0].outcome is WriteOutcome.FAILED


def test_deleting_names_whom_it_means():
    _, requests = carry_out(delete(_POD, version="5", grace_s=0), answer(200, {}))
    body = json.loads(requests[0].body)
    assert body["preconditions"] == {"uid": "u1", "resourceVersion": "5"}
    assert body["gracePeriodSeconds"] == 0


def test_patches_say_who_writes_and_whom_they_mean():
    job = Ref(JOBS, "default", "j", "u7")
    cases = [
        (merge(job, {"spec": {"suspend": True}}, version="3"), "application/merge-patch+json"),
        (edit(job, [{"op": "replace", "path": "/spec/suspend", "value": True}]), "application/json-patch+json"),
        (apply(job, {"spec": {"suspend": True}}, force=True), "application/apply-patch+yaml"),
    ]
    bodies = []
    for write, kind in cases:
        result, requests = carry_out(write, answer(200, {}))
        assert result.outcome is WriteOutcome.DONE
        assert requests[0].headers["content-type"] == kind
        assert requests[0].query["fieldManager"] == "tidegate"
        bodies.append(json.loads(requests[0].body))
    assert bodies[0] == {"spec": {"suspend": True}, "metadata": {"uid": "u7", "resourceVersion": "3"}}
    assert bodies[1][0] == {"op": "test", "path": "/metadata/uid", "value": "u7"}
    assert (bodies[2]["kind"], bodies[2]["apiVersion"], bodies[2]["metadata"]["name"]) == ("Job", "batch/v1", "j")


def test_a_remark_that_was_made_a_try_earlier_is_not_made_twice():
    said = event_write(_POD, EventMessage("LACKS_GPU", "waits for 8 GPUs", "Hold"), "p.1", 1_763_280_000_000)
    result, requests = carry_out(said, cut(), refusal(409, "AlreadyExists"))
    assert result.outcome is WriteOutcome.DONE
    assert json.loads(requests[0].body)["regarding"]["uid"] == "u1"


def test_created_under_a_name_of_its_own():
    thing_ = {"metadata": {"name": "a", "namespace": "x"}}
    assert carry_out(create(JOBS, thing_), refusal(409, "AlreadyExists"))[0].outcome is WriteOutcome.DONE


def _many(count, behave, *, keys, limits):
    """Carry many writes out; the pool, the order in which they ended, and the most that were in flight at once."""

    async def run():
        flying = most = 0
        order = []

        async def counted(asked, writer):
            nonlocal flying, most
            flying += 1
            most = max(most, flying)
            await asyncio.sleep(0.002)
            flying -= 1
            await behave(asked, writer)

        async with Fake(counted) as fake, Client(fake.access) as client:
            pool = WritePool(client, lambda: 0.0, limits)
            for number in range(count):
                write = bind(pod_ref("default", f"p{number}", f"u{number % keys}"), "n1")
                pool.submit(write, lambda result, number=number: order.append((number, result.outcome)))
            async with asyncio.timeout(20):
                while len(pool):
                    await asyncio.sleep(0.005)
            return pool, order, most

    return asyncio.run(run())


def test_so_many_in_flight_and_those_of_one_object_in_order():
    pool, order, most = _many(200, _OK, keys=20, limits=WriteLimits(in_flight=8))
    assert most <= 8
    assert pool.most_in_flight == 8
    for key in range(20):
        mine = [number for number, _ in order if number % 20 == key]
        assert mine == sorted(mine)
    assert {outcome for _, outcome in order} == {WriteOutcome.DONE}


def test_too_many_requests_means_fewer_at_a_time():
    refused = 0

    async def busy(asked, writer):
        nonlocal refused
        refused += 1
        await (refusal(429, "TooManyRequests") if refused <= 20 else _OK)(asked, writer)

    pool, order, _ = _many(60, busy, keys=60, limits=WriteLimits(in_flight=32, least_in_flight=2))
    assert {outcome for _, outcome in order} == {WriteOutcome.DONE}
    assert pool.slowed == 20
    assert pool.allowed < 32


def test_an_eviction_that_its_budget_forbids_slows_nobody_down():
    body = {
        "kind": "Status",
        "code": 429,
        "reason": "TooManyRequests",
        "details": {"causes": [{"reason": "DisruptionBudget"}]},
    }

    async def run():
        async def behave(asked, writer):
            await (answer(429, body) if asked.path.endswith("eviction") else _OK)(asked, writer)

        async with Fake(behave) as fake, Client(fake.access) as client:
            pool, told = WritePool(client, lambda: 0.0, WriteLimits(in_flight=1, deadline_s=1.0)), []
            pool.submit(evict(pod_ref("default", "v", "uv")), lambda result: told.append(("evict", result)))
            for number in range(20):
                write = bind(pod_ref("default", f"p{number}", f"u{number}"), "n1")
                pool.submit(write, lambda result: told.append(("bind", result)))
            async with asyncio.timeout(10):
                while len(pool):
                    await asyncio.sleep(0.01)
            return pool, told

    pool, told = asyncio.run(run())
    assert [kind for kind, _ in told] == ["bind"] * 20 + ["evict"]
    assert told[-1][1].outcome is WriteOutcome.FAILED
    assert "DisruptionBudget" in told[-1][1].answer.causes
    assert pool.slowed == 0


# -- the end -------------------------------------------------------------------------------------------------------


def drained(*behaviours, most_s, in_flight_s, count=1, limits=_QUICK):
    """Drain a pool with writes; whether nothing is in flight, what came of each, what the server was asked before."""

    async def run():
        async with Fake(*behaviours) as fake, Client(fake.access) as client:
            pool, results = WritePool(client, lambda: 0.0, limits), []
            for number in range(count):
                pool.submit(bind(pod_ref("default", f"p{number}", f"u{number}"), "n1"), results.append)
            over = await pool.drain(most_s, in_flight_s)
            asked = len(fake.asked)
            await asyncio.sleep(0.3)
            assert len(fake.asked) == asked  # nothing was sent after it
            await pool.close()
            return over, [result.outcome for result in results], asked

    return asyncio.run(run())


async def _slow_ok(asked, writer):
    await asyncio.sleep(0.2)
    await _OK(asked, writer)


def test_what_is_being_written_is_written_before_the_end():
    limits = WriteLimits(in_flight=1, least_in_flight=1)
    assert drained(_slow_ok, most_s=5, in_flight_s=5, count=3, limits=limits) == (True, [WriteOutcome.DONE] * 3, 3)


def test_when_there_is_no_time_what_was_sent_is_waited_for_and_the_rest_is_not_sent():
    limits = WriteLimits(in_flight=1, least_in_flight=1)
    over, outcomes, asked = drained(_slow_ok, most_s=0.05, in_flight_s=5, count=3, limits=limits)
    assert (over, asked) == (True, 1)
    assert outcomes == [WriteOutcome.DONE, WriteOutcome.FAILED, WriteOutcome.FAILED]


def test_a_request_that_is_never_answered_is_not_over():
    assert drained(hang(), most_s=0.1, in_flight_s=0.2) == (False, [], 1)


def test_a_write_that_waits_to_be_tried_again_is_not_in_flight():
    limits = WriteLimits(deadline_s=30)
    over, _, asked = drained(refusal(429, "TooManyRequests", retry_after=20), most_s=0.2, in_flight_s=1, limits=limits)
    assert (over, asked) == (True, 1)


def test_what_was_sent_just_before_counts_as_being_written():
    """Writes go to the network's thread: none that is on its way there may be overlooked."""

    class Pending(NamedTuple):
        write: Write
        again: int = 0

    ready, done, box = threading.Event(), threading.Event(), {}

    def serve():
        async def run():
            async with Fake(_slow_ok) as fake:
                box["fake"] = fake
                ready.set()
                await asyncio.to_thread(done.wait)

        asyncio.run(run())

    server = threading.Thread(target=serve)
    server.start()
    ready.wait()
    api = ApiThread(box["fake"].access, [], lambda: 0.0, limits=WriteLimits(), reflector_options=ReflectorOptions())
    try:
        api.start()
        api.send([Pending(_BIND)])
        assert api.drain(5)
        assert len(box["fake"].asked) == 1
        assert [report.result.outcome for report in api.updates.take()[1] if report] == [WriteOutcome.DONE]
    finally:
        api.stop()
        done.set()
        server.join()


def test_a_write_that_raises_ends_the_thread_instead_of_being_lost():
    async def run():
        bugs = []
        async with Fake(_OK) as fake, Client(fake.access) as client:
            pool = WritePool(client, lambda: 0.0, _QUICK, on_bug=bugs.append)
            pool.submit(_BIND, lambda result: 1 / 0)
            async with asyncio.timeout(10):
                while not bugs:
                    await asyncio.sleep(0.01)
        return bugs

    assert isinstance(asyncio.run(run())[0], ZeroDivisionError)
