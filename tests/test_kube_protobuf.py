"""Pods listed in protobuf are the same to us as pods listed as JSON; where they cannot be, they are listed as JSON."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubebench import Options, Plane, pod
from tidegate.kube.mirror.pod_spec_cache import PodSpecCache
from tidegate.kube.mirror.pods import PodObject, ProtobufPods, UnmanagedPod, note_in, see_listed, see_pod
from tidegate.kube.transport.client import ApiRequest, Client
from tidegate.kube.transport.kubeconfig import config_access
from tidegate.kube.transport.protobuf import ACCEPT, MAGIC, ListedPod, Words, read_kind, read_pods, read_token
from tidegate.kube.transport.reflector import Reflector, ReflectorOptions, WatchedKind
from tidegate.kube.transport.resources import PODS
from tidegate.kube.transport.update_queue import UpdateQueue
from tidegate.manifests.label_names import GROUP, GROUP_TOTAL, HANDOVER_NOTE, QUEUE

_PODS = "/api/v1/namespaces/default/pods"

_NO_WORDS = Words(frozenset(), frozenset())

_KINDS = {
    "plain": {},
    "gated": {"schedulingGates": [{"name": "tidegate.io/admission"}]},
    "held-by-others": {"schedulingGates": [{"name": "example.com/other"}]},
    "picky": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
                }
            }
        },
    },
    "spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ]
    },
    "with-volumes": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/tmp"}}]},
    "with-init": {
        "initContainers": [
            {"name": "i", "image": "x", "resources": {"requests": {"cpu": "3"}}, "restartPolicy": "Always"}
        ]
    },
}


@pytest.fixture(scope="module")
def plane(kube_programs):
    """A control plane without controllers, which would delete pods on nodes that are not there."""
    with Plane(Options(build=False, scheduler=False, kwok=False, controllers="")) as plane:
        yield plane


@pytest.fixture
def filled(cluster):
    for name, more in _KINDS.items():
        for number in range(2):
            cluster.admin.post(_PODS, pod(f"{name}-{number}", number + 1, scheduler="nobody", **more))
    for number in range(3):
        cluster.admin.post(_PODS, pod(f"g-{number}", 8, scheduler="nobody", group=("g", 3)))
    return cluster


def ask(plane, *requests):
    async def run():
        async with Client(config_access([plane.kubeconfig("tidegate")], clock=lambda: 0)) as client:
            return [await client.ask(request) for request in requests]

    return asyncio.run(run())


def listed(plane, pages=None, page=5, namespace="default"):
    """All pods of a list as they come into the inbox, and the follower."""

    async def run():
        shapes, updates = PodSpecCache(), UpdateQueue()
        shrink = lambda one: see_listed(one, shapes) if isinstance(one, ListedPod) else see_pod(one, shapes)  # noqa: E731
        async with Client(config_access([plane.kubeconfig("tidegate")], clock=lambda: 0)) as client:
            asked = Counting(client)
            form = pages(shapes) if pages else None
            watched = WatchedKind(PODS, PodObject, shrink, namespace, pages=form)
            follower = Reflector(asked, watched, updates, lambda: 0.0, options=ReflectorOptions(page=page))
            task = asyncio.create_task(follower.follow())
            async with asyncio.timeout(20):
                await follower.listed.wait()
            task.cancel()
        return {getattr(news.thing, "name", news.uid): news.thing for news in updates.take()[0]}, asked.asked

    return asyncio.run(run())


class Counting:
    """A client that keeps what it was asked."""

    def __init__(self, client):
        self._client, self.asked = client, []

    async def ask(self, request, *more):
        self.asked.append(request)
        return await self._client.ask(request, *more)

    def stream(self, *more):
        return self._client.stream(*more)


def comparable(seen):
    shape = seen.shape
    rest = msgspec.structs.replace(seen, shape=None)
    return rest, shape.work, shape.request, shape.charge, shape.refusals, shape.unbound


def test_pods_are_the_same_in_both_forms(filled):
    plain, _ = listed(filled)
    packed, asked = listed(filled, ProtobufPods)
    assert len(plain) == 2 * len(_KINDS) + 3
    assert {name: comparable(one) for name, one in packed.items()} == {n: comparable(one) for n, one in plain.items()}
    singles = [one for one in asked if "fieldSelector" in one.query]
    # One of each shape was read as JSON: gates do not matter to it, nor which member of a group it is.
    assert len(singles) == 2 * (len(_KINDS) - 2) + 1
    assert all(one.path == _PODS and one.query for one in asked)  # lists, also of one pod: `get` is another right
    assert all(one.accept for one in asked if one not in singles)


class Shy(ProtobufPods):
    """Learns nothing."""

    def learn(self, listed, whole):
        del listed, whole
        return False


class Many(ProtobufPods):
    """Knows nothing of anything."""

    def lacking(self, pods):
        return [*pods] * 100


@pytest.mark.parametrize("pages", [Shy, Many])
def test_what_cannot_be_learnt_is_listed_as_json(filled, pages):
    plain, _ = listed(filled)
    packed, asked = listed(filled, pages)
    assert {name: comparable(one) for name, one in packed.items()} == {n: comparable(one) for n, one in plain.items()}
    assert [one for one in asked if one.path == _PODS and not one.accept]


def meant_for(name, node, *, prefers=False):
    """A pod as a DaemonSet makes it: meant for one node, and on it already."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    by = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    if prefers:
        by = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}]}
    return pod(name, 1, scheduler="nobody", nodeName=node, affinity={"nodeAffinity": by})


def test_pods_that_differ_in_the_node_they_are_meant_for_share_a_shape(cluster):
    for number in range(4):
        cluster.admin.post(_PODS, meant_for(f"d-{number}", f"gone-{number % 2}"))  # which starts nothing
        cluster.admin.post(_PODS, meant_for(f"e-{number}", f"gone-{number % 2}", prefers=True))
        cluster.admin.post(_PODS, pod(f"f-{number}", 1, scheduler="nobody"))
    plain, _ = listed(cluster)
    packed, asked = listed(cluster, ProtobufPods, page=50)
    assert {name: comparable(one) for name, one in packed.items()} == {n: comparable(one) for n, one in plain.items()}
    assert sum("fieldSelector" in one.query for one in asked) == 3
    for seen in (plain, packed):
        shapes = [{seen[f"{kind}-{number}"].shape for number in range(4)} for kind in "def"]
        assert [len(each) for each in shapes] == [1, 1, 1]
        assert len(set.union(*shapes)) == 3  # whether it is meant for a node, or likes one, tells them apart
        assert seen["d-0"].node == "gone-0"
        assert "matchFields" in seen["d-0"].shape.refusals[0]  # ours to bind it would not be


def test_the_node_of_a_daemon_set_is_left_out_however_long_its_name_is(plane):
    # With 99 bytes and more, each message around the name needs a byte more for its length.
    lengths = range(1, 254)
    put(plane, "lengths", {f"d-{length:03d}": {"spec": meant_for("", "n" * length)["spec"]} for length in lengths})
    packed, asked = listed(plane, ProtobufPods, page=100, namespace="lengths")
    assert sorted(len(one.node) for one in packed.values()) == [*lengths]
    assert len({one.shape for one in packed.values()}) == 1
    assert sum("fieldSelector" in one.query for one in asked) == 1


def put(plane, namespace, pods):
    """Write pods as no server lets them be created: in any phase, on nodes that are not there."""
    whole = []
    for number, (name, made) in enumerate(pods.items()):
        meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{number}", **made.get("metadata", {})}
        meta["creationTimestamp"] = f"2026-01-01T00:00:{number % 60:02d}Z"
        whole.append((f"pods/{namespace}/{name}", {"apiVersion": "v1", "kind": "Pod", **made, "metadata": meta}))
    plane.store.put_all(whole)
    path = f"/api/v1/namespaces/{namespace}/pods"  # the server's cache takes a transaction in one write after another
    plane.wait_for(lambda: len(plane.admin.get(path)["items"]) == len(pods), 20, "every pod in the server's cache")


# -- any pods ----------------------------------------------------------------------------------------------------


def some(keys, values):
    """Some of these keys, each with one of these values."""
    return st.dictionaries(st.sampled_from(keys), st.sampled_from(values), max_size=len(keys))


_NODE_NAMES = ("gone", "a-node", "n" * 99, "n" * 140)


def affinities():
    """Affinities that differ in one thing or another, and some only in the node that they name."""
    for operator, names, chosen in itertools.product(("In", "NotIn"), (*_NODE_NAMES, ""), ("", "v", "w")):
        by_name = {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [names]}]}
        by_label = {"matchExpressions": [{"key": "k", "operator": operator, "values": [chosen]}]}
        term = {**(by_name if names else {}), **(by_label if chosen else {})}
        yield {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, term]}}}
        for weight in (1, 2):
            preferred = [{"weight": weight, "preference": term}]
            yield {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    for kind, zone in itertools.product(("podAffinity", "podAntiAffinity"), "ab"):
        term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": zone}
        yield {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_affinities_are_told_apart_by_all_but_the_node_they_name(plane):
    put(
        plane,
        "affine",
        {f"a-{n:03d}": {"spec": {**pod("", 1)["spec"], "affinity": a}} for n, a in enumerate(affinities())},
    )
    same_in_both_forms(plane, "affine")


def same_in_both_forms(plane, namespace):
    """List pods in both forms and compare them; the annotations that each of them has for itself."""
    notes = Counter()

    class Noting(ProtobufPods):
        def read(self, body):
            page = super().read(body)
            notes.update(note_in(one) for one in page[1])
            return page

    plain, _ = listed(plane, page=9, namespace=namespace)
    packed, asked = listed(plane, Noting, page=9, namespace=namespace)
    assert {name: comparable(one) for name, one in packed.items()} == {n: comparable(one) for n, one in plain.items()}
    pairs = {(one.shape, packed[name].shape) for name, one in plain.items()}
    assert len(pairs) == len({one for one, _ in pairs}) == len({one for _, one in pairs})
    assert all(one.accept or "fieldSelector" in one.query for one in asked)  # no page was listed as JSON
    return notes


_OWNERS = [
    [{"apiVersion": api, "kind": kind, "name": "o", "uid": "o", "controller": True}]
    for api, kind in (("apps/v1", "DaemonSet"), ("batch/v1", "Job"))
]
_METADATA = {
    "labels": some([QUEUE, GROUP, "app", "batch.kubernetes.io/job-completion-index"], ["1", "2"]),
    "annotations": some([HANDOVER_NOTE, GROUP_TOTAL, "app"], ["1", "2"]),
    "ownerReferences": st.sampled_from(_OWNERS),
    "deletionTimestamp": st.just("2026-01-02T00:00:00Z"),
}
_CONTAINERS = [[{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}] for amount in "12"]
_SPEC = {
    "affinity": st.sampled_from([*affinities()]),
    "nodeName": st.sampled_from(_NODE_NAMES),
    "nodeSelector": some(["zone"], ["a", "gone"]),
    "tolerations": st.lists(st.sampled_from([{"operator": "Exists"}, {"key": "k", "value": "gone"}]), max_size=2),
    "schedulerName": st.sampled_from(["nobody", "tidegate"]),
    "schedulingGates": st.just([{"name": "tidegate.io/admission"}]),
    "volumes": st.lists(st.sampled_from([{"name": name, "emptyDir": {}} for name in "vw"]), max_size=2),
    "priority": st.sampled_from([0, 5]),
}
_ANY_PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({}, optional=_METADATA),
        "spec": st.fixed_dictionaries({"containers": st.sampled_from(_CONTAINERS)}, optional=_SPEC),
        "status": st.fixed_dictionaries({"phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])}),
    }
)
_NAMESPACES = (f"drawn-{number}" for number in itertools.count())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(_ANY_PODS, min_size=1, max_size=30))
def test_any_pods_are_the_same_in_both_forms(plane, drawn):
    namespace = next(_NAMESPACES)
    put(plane, namespace, {f"p{number:02d}": one for number, one in enumerate(drawn)})
    notes = same_in_both_forms(plane, namespace)
    assert notes == Counter(one["metadata"].get("annotations", {}).get(HANDOVER_NOTE, "") for one in drawn)


# -- what is kept of pods ----------------------------------------------------------------------------------------


def test_pods_that_are_never_ours_are_a_node_and_a_shape(cluster):
    cluster.admin.post(_PODS, meant_for("placed", "gone"))
    cluster.admin.post(_PODS, pod("unplaced", 1, scheduler="nobody"))
    plain, _ = listed(cluster)
    packed, _ = listed(cluster, lambda shapes: ProtobufPods(shapes, lambda traits: traits.scheduler == "nobody"))
    unplaced = packed["unplaced"]
    assert comparable(unplaced) == comparable(plain["unplaced"])
    (placed,) = [one for one in packed.values() if one is not unplaced]
    assert isinstance(placed, UnmanagedPod)
    assert (placed.node, placed.shape.request) == ("gone", plain["placed"].shape.request)


def read(cache, thing):
    whole = {**thing, "metadata": {**thing["metadata"], "uid": "u"}}
    return see_pod(msgspec.json.decode(msgspec.json.encode(whole), type=PodObject), cache)


def test_shapes_that_no_pod_has_are_freed():
    cache = PodSpecCache()
    kept = read(cache, pod("kept", 1))
    for number in range(6000):
        read(cache, pod(f"p{number}", 1, nodeSelector={"n": str(number)}))
    assert len(cache) <= 4097
    assert read(cache, pod("again", 1)).shape is kept.shape
    cache.learn("key", kept.shape)
    assert cache.learnt("key") is kept.shape
    del kept
    for number in range(5000):
        read(cache, pod(f"q{number}", 1, nodeSelector={"n": str(number)}))
    assert cache.learnt("key") is None


def test_pods_with_claims_are_listed_as_json(cluster):
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    cluster.admin.post(_PODS, pod("claiming", 0, scheduler="nobody", resourceClaims=claims))
    packed, _ = listed(cluster, ProtobufPods)
    assert packed["claiming"].claims == ("mine",)


def test_a_page_that_is_cut_is_not_read(filled):
    request = ApiRequest("GET", _PODS, {"limit": "3"}, accept=ACCEPT)
    (answer,) = ask(filled, request)
    assert answer.body.startswith(MAGIC)
    page = read_pods(answer.body, _NO_WORDS, read_kind)
    assert len(page.items) == 3
    assert read_token(answer.body) == page.metadata.continue_ != ""
    for size in (len(MAGIC), len(MAGIC) + 3, 40, len(answer.body) // 2):
        assert read_pods(answer.body[:size], _NO_WORDS, read_kind) is None
        read_token(answer.body[:size])  # whatever it finds, it does not fail
    assert read_pods(MAGIC + b"\x12\xff\xff", _NO_WORDS, read_kind) is None
