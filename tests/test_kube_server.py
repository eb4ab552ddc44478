"""The client against a real API server: what it means by its refusals, and that nothing is lost on the way."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from kubebench import Options, Plane, job, node, pod
from kubebench.plane import SERVER
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.kubeconfig import config_access
from tidegate.kube.transport.objects import PartialObject
from tidegate.kube.transport.reflector import Reflector, ReflectorOptions, WatchedKind
from tidegate.kube.transport.resources import JOBS, NODES, PODS, Resource
from tidegate.kube.transport.update_queue import UpdateQueue
from tidegate.kube.transport.write_pool import WriteLimits, WritePool
from tidegate.kube.transport.writes import (
    EventMessage,
    Ref,
    apply,
    bind,
    create,
    edit,
    event_write,
    evict,
    looked_up,
    merge,
    merge_by_key,
    pod_ref,
)
from tidegate.model.facts import WriteOutcome

_PODS = "/api/v1/namespaces/default/pods"
_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_names = (f"p{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def plane(kube_programs):
    """No controllers but those of disruption budgets, and nobody who schedules or runs pods."""
    with Plane(Options(build=False, scheduler=False, kwok=False, controllers="disruption-controller")) as plane:
        for name in ("n1", "n2"):
            plane.admin.post("/api/v1/nodes", node(name))
        yield plane


def access(plane, user="tidegate"):
    return config_access([plane.kubeconfig(user)], clock=lambda: int(time.time() * 1000))


def carry_out(plane, *writes, user="tidegate", limits=None):
    """Carry writes out one after the other; what came of each."""

    async def run():
        async with Client(access(plane, user)) as client:
            pool, results = WritePool(client, lambda: 0.5, limits or WriteLimits(deadline_s=5)), []
            for write in writes:
                told = asyncio.get_running_loop().create_future()
                pool.submit(write, told.set_result)
                results.append(await asyncio.wait_for(told, 30))
            return results

    return asyncio.run(run())


def make_pod(plane, **more):
    made = plane.admin.post(_PODS, pod(next(_names), scheduler="tidegate", **more))
    return pod_ref("default", made["metadata"]["name"], made["metadata"]["uid"])


def outcomes(results):
    return [result.outcome for result in results]


def test_binding_twice_is_done_and_binding_elsewhere_is_not(plane):
    ref = make_pod(plane)
    results = carry_out(plane, bind(ref, "n1"), bind(ref, "n1"), bind(ref, "n2"))
    assert outcomes(results) == [WriteOutcome.DONE, WriteOutcome.DONE, WriteOutcome.FAILED]
    assert results[2].answer.status == 409
    assert plane.admin.get(f"{_PODS}/{ref.name}")["spec"]["nodeName"] == "n1"


def test_another_pod_of_the_same_name_is_not_bound(plane):
    old = make_pod(plane)
    plane.admin.delete(f"{_PODS}/{old.name}", {"gracePeriodSeconds": 0})
    assert carry_out(plane, bind(old, "n1"))[0].answer.status == 404
    plane.admin.post(_PODS, pod(old.name, scheduler="tidegate"))
    (result,) = carry_out(plane, bind(old, "n1"))
    assert result.outcome is WriteOutcome.FAILED
    assert "nodeName" not in plane.admin.get(f"{_PODS}/{old.name}")["spec"]
    assert carry_out(plane, evict(old))[0].outcome is WriteOutcome.DONE  # the one that was meant is gone
    assert plane.admin.get(f"{_PODS}/{old.name}")


def test_a_write_beyond_our_rules_fails_with_the_servers_words(plane):
    thing = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "default"}}
    (result,) = carry_out(plane, create(Resource("", "v1", "secrets", "Secret"), thing))
    assert result.outcome is WriteOutcome.FAILED
    assert "403 Forbidden: secrets is forbidden" in result.answer.text()


def test_an_eviction_waits_for_its_disruption_budget(plane):
    ref = make_pod(plane)
    plane.admin.patch(f"{_PODS}/{ref.name}", {"metadata": {"labels": {"app": "guarded"}}})
    carry_out(plane, bind(ref, "n1"))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    plane.admin.patch(f"{_PODS}/{ref.name}/status", ready)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    plane.admin.post(budgets, budget)
    plane.wait_for(lambda: plane.admin.get(f"{budgets}/guard")["status"].get("currentHealthy") == 1)
    (result,) = carry_out(plane, evict(ref), limits=WriteLimits(deadline_s=1))
    assert result.outcome is WriteOutcome.FAILED
    assert "DisruptionBudget" in result.answer.causes
    plane.admin.delete(f"{budgets}/guard")
    assert outcomes(carry_out(plane, evict(ref, grace_s=0), evict(ref))) == [WriteOutcome.DONE, WriteOutcome.DONE]


def test_patches_change_what_they_mean_to_and_own_no_more(plane):
    made = plane.admin.post(_CONFIG_MAPS.path("default"), config_map("m", a="1"))
    ref = Ref(_CONFIG_MAPS, "default", "m", made["metadata"]["uid"])
    other = ref._replace(uid="00000000-0000-0000-0000-000000000000")
    old = made["metadata"]["resourceVersion"]
    results = carry_out(
        plane,
        merge(ref, {"data": {"b": "2"}}),
        merge(ref, {"data": {"b": "3"}}, version=old),  # it has changed since
        merge(other, {"data": {"b": "4"}}),
        edit(ref, [{"op": "replace", "path": "/data/a", "value": "5"}]),
        edit(other, [{"op": "remove", "path": "/data/a"}]),
        apply(ref, {"data": {"c": "6"}}),
        apply(ref, {"data": {"a": "7"}}),  # another owner has it
        apply(ref, {"data": {"a": "8", "c": "6"}}, force=True),
        user="admin",
    )
    done = [result.outcome is WriteOutcome.DONE for result in results]
    assert done == [True, False, False, True, False, True, False, True]
    assert plane.admin.get(ref.path())["data"] == {"a": "8", "b": "2", "c": "6"}


def test_conditions_and_events_are_told(plane):
    ref = make_pod(plane)
    condition = {"type": "PodScheduled", "status": "False", "reason": "LACKS_GPU", "message": "waits"}
    said = event_write(
        ref, EventMessage("LACKS_GPU", "waits for 8 GPUs", "Hold", warning=True), "e1", 1_763_280_000_000
    )
    results = carry_out(plane, merge_by_key(ref, {"status": {"conditions": [condition]}}, part="status"), said, said)
    assert outcomes(results) == [WriteOutcome.DONE] * 3
    shown = plane.admin.get(f"{_PODS}/{ref.name}")["status"]["conditions"]
    assert [one["reason"] for one in shown if one["type"] == "PodScheduled"] == ["LACKS_GPU"]
    events = plane.admin.get("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={ref.name}")
    assert [event["message"] for event in events["items"]] == ["waits for 8 GPUs"]


@pytest.mark.parametrize("user", ["admin-by-certificate", "tidegate"])
def test_certificates_and_tokens_let_us_in(plane, user):
    by_certificate = user != "tidegate"
    path = plane.certificate_config(user, "system:masters") if by_certificate else plane.kubeconfig(user)

    async def run(way):
        async with Client(way) as client:
            return await client.ask(ApiRequest("GET", NODES.path()))

    way = config_access([path], clock=lambda: 0)
    assert asyncio.run(run(way)).status == 200
    stranger = way._replace(authority="")
    refused = asyncio.run(run(stranger))  # whom the system trusts did not sign the server's certificate
    assert (refused.status, refused.sent) == (0, False)
    assert "certificate verify failed" in refused.message


# -- following -----------------------------------------------------------------------------------------------------


class Mirror:
    """What a follower told, kept."""

    def __init__(self):
        self.versions, self.updates = {}, UpdateQueue()

    def take(self):
        for news in self.updates.take()[0]:
            if news.thing is None:
                self.versions.pop(news.uid, None)
            else:
                self.versions[news.uid] = news.thing.metadata.resource_version

    def equals(self, plane, path):
        self.take()
        return self.versions == shown(plane, path)


def shown(plane, path):
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in plane.admin.get(path)["items"]}


def follow(plane, resource, lifecycle, options=ReflectorOptions(), **more):  # noqa: B008 - frozen
    """Follow while a story happens, in a thread of its own; the follower, and what it had told at the end."""

    async def run():
        mirror = Mirror()
        async with Client(access(plane, "admin")) as client:
            follower = Reflector(
                client, WatchedKind(resource, PartialObject, **more), mirror.updates, lambda: 0.5, options=options
            )
            task = asyncio.create_task(follower.follow())
            await asyncio.wait_for(follower.listed.wait(), 20)
            await asyncio.to_thread(lifecycle)
            path = resource.path("default") if resource.namespaced else resource.path()
            async with asyncio.timeout(30):
                while not await asyncio.to_thread(mirror.equals, plane, path):
                    await asyncio.sleep(0.05)
            task.cancel()
            return follower

    return asyncio.run(run())


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_what_comes_changes_and_goes_is_told(plane):
    path = _CONFIG_MAPS.path("default")
    for number in range(25):
        plane.admin.post(path, config_map(f"f{number}"))

    def lifecycle():
        for number in range(25):
            plane.admin.patch(f"{path}/f{number}", {"data": {"x": str(number)}})
        for number in range(0, 25, 2):
            plane.admin.delete(f"{path}/f{number}")

    follower = follow(plane, _CONFIG_MAPS, lifecycle, options=ReflectorOptions(page=7), namespace="default")
    assert follower.stats.lists == 1
    assert follower.stats.events >= 38


def test_a_server_that_is_killed_and_comes_back_costs_nothing(plane):
    path = _CONFIG_MAPS.path("default")

    def lifecycle():
        plane.admin.post(path, config_map("before"))
        plane.restart(SERVER, kill=True)
        plane.admin.post(path, config_map("after"))

    follower = follow(plane, _CONFIG_MAPS, lifecycle, namespace="default")
    assert follower.stats.watches >= 2


def test_a_slow_consumer_is_cut_and_loses_nothing(plane):
    """We stop reading for seconds while megabytes are sent: the server ends the watch, and we take it up again."""
    path = _CONFIG_MAPS.path("default")
    for number in range(4):
        plane.admin.post(path, config_map(f"s{number}"))
    slept = []

    def slow(thing):
        if len(slept) < 2 and thing.metadata.name.startswith("s") and follower_is_watching:
            slept.append(time.sleep(3))  # the whole loop, its reader included
        return thing

    follower_is_watching = []

    def lifecycle():
        follower_is_watching.append(True)
        for number in range(200):
            plane.admin.patch(f"{path}/s{number % 4}", {"data": {"x": f"{number} " + "x" * 100_000}})

    follower = follow(plane, _CONFIG_MAPS, lifecycle, shrink=slow, namespace="default")
    assert len(slept) == 2
    assert follower.stats.lists == 1
    assert follower.stats.events == 200
    if follower.stats.watches == 1:
        pytest.skip("the server did not cut us this time: its buffers held all that we did not read")


def test_many_pods_come_page_by_page(plane):
    for number in range(120):
        plane.admin.post(_PODS, pod(f"many-{number}"))
    follower = follow(plane, PODS, lambda: None, options=ReflectorOptions(page=50))
    assert follower.stats.lists == 1
    for number in range(120):
        plane.admin.delete(f"{_PODS}/many-{number}", {"gracePeriodSeconds": 0})


def test_jobs_are_there(plane):
    follower = follow(plane, JOBS, lambda: None)
    assert follower.stats.problem == ""


def test_a_patch_of_what_has_changed_since_is_refused_and_one_that_is_done_is_done(plane):
    made = plane.admin.post("/apis/batch/v1/namespaces/default/jobs", job(next(_names), 1, suspend=True))
    ref = Ref(JOBS, "default", made["metadata"]["name"], made["metadata"]["uid"])

    def start(generation):
        test = {"op": "test", "path": "/metadata/generation", "value": generation}
        write = edit(ref, [test, {"op": "add", "path": "/spec/suspend", "value": False}])
        return looked_up(write, ref, lambda thing: not thing["spec"]["suspend"])

    plane.admin.patch(f"/apis/batch/v1/namespaces/default/jobs/{ref.name}", {"spec": {"parallelism": 2}})
    stale, right, again = carry_out(plane, start(1), start(2), start(2))
    assert outcomes([stale, right, again]) == [WriteOutcome.FAILED, WriteOutcome.DONE, WriteOutcome.DONE]
    assert (stale.answer.status, again.answer.status) == (422, 422)
