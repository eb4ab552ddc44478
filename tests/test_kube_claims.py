"""Devices by claim on a real control plane: allocated before the bind, never twice; what is not simple is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from kubebench import Options, Plane, node, pod
from kubelive import Live

_PODS, _NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
_DRA = "/apis/resource.k8s.io/v1"
_CLAIMS, _TEMPLATES = f"{_DRA}/namespaces/default/resourceclaims", f"{_DRA}/namespaces/default/resourceclaimtemplates"
_API = "resource.k8s.io/v1"
_DRIVER = "gpu.nvidia.com"


def whole(kind, name, spec):
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def published(node_name, devices=8):
    """What a driver publishes of a node."""
    listed = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(devices)]
    listed.append({"name": "gpu-0-mig-1g", "attributes": {"type": {"string": "mig"}}})
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    return whole(
        "ResourceSlice",
        f"{node_name}-gpus",
        {"driver": _DRIVER, "nodeName": node_name, "pool": pool, "devices": listed},
    )


def exactly(**request):
    return {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": _DRIVER, **request}}]}}


@pytest.fixture(scope="module")
def plane(kube_programs):
    controllers = f"{Options().controllers},resourceclaim-controller"
    with Plane(Options(build=False, scheduler=False, controllers=controllers)) as plane:
        simple = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == 'gpu'"
        plane.admin.post(
            f"{_DRA}/deviceclasses", whole("DeviceClass", _DRIVER, {"selectors": [{"cel": {"expression": simple}}]})
        )
        odd = f"{simple} && device.attributes['{_DRIVER}'].uuid.startsWith('x')"
        plane.admin.post(
            f"{_DRA}/deviceclasses", whole("DeviceClass", "picky", {"selectors": [{"cel": {"expression": odd}}]})
        )
        plane.admin.post(_TEMPLATES, whole("ResourceClaimTemplate", "four", {"spec": exactly(count=4)}))
        for number in range(2):
            made = node(f"n{number}")
            del made["status"]["capacity"]["nvidia.com/gpu"]
            plane.admin.post(_NODES, made)
            plane.admin.post(f"{_DRA}/resourceslices", published(f"n{number}"))
        yield plane


@pytest.fixture
def cluster(plane):
    yield plane
    plane.clear(_PODS)
    plane.clear(_CLAIMS)


def claiming(name, **claim):
    made = pod(name, 0, scheduler="tidegate", runs=claim.pop("runs", ""), resourceClaims=[{"name": "gpus", **claim}])
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return made


def of_four(name, **more):
    return claiming(name, resourceClaimTemplateName="four", **more)


def pods(plane):
    return {one["metadata"]["name"]: one for one in plane.admin.get(_PODS)["items"]}


def bound(plane):
    return sorted(name for name, one in pods(plane).items() if one["spec"].get("nodeName"))


def allocated(plane):
    """The devices of each claim, with the node that they are on."""
    found = []
    for claim in plane.admin.get(_CLAIMS)["items"]:
        results = (claim.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", [])
        found += [(one["pool"], one["device"]) for one in results]
    return found


def test_claims_have_devices_before_their_pods_are_bound_and_nobody_shares_one(cluster):
    for number in range(5):
        cluster.admin.post(_PODS, of_four(f"p{number}"))
    with Live.on(cluster) as live:
        live.until(lambda: len(bound(cluster)) == 4, what="room for four of five")
        assert Counter(Counter(allocated(cluster)).values()) == {1: 16}
        assert not any("mig" in device for _, device in allocated(cluster))
        places = Counter(one["spec"].get("nodeName") for one in pods(cluster).values())
        assert places == {"n0": 2, "n1": 2, None: 1}
        for claim in cluster.admin.get(_CLAIMS)["items"]:
            if "allocation" in claim.get("status", {}):
                (user,) = claim["status"]["reservedFor"]
                at = pods(cluster)[user["name"]]["spec"]["nodeName"]
                assert {one["pool"] for one in claim["status"]["allocation"]["devices"]["results"]} == {at}


def test_devices_are_used_again_when_a_pod_is_done(cluster):
    for number in range(8):
        cluster.admin.post(_PODS, of_four(f"p{number}", runs="1s"))
    with Live.on(cluster) as live:
        live.until(lambda: all(one["status"]["phase"] == "Succeeded" for one in pods(cluster).values()), most_s=60)


def test_a_claim_of_its_own_is_allocated_too(cluster):
    cluster.admin.post(_CLAIMS, whole("ResourceClaim", "own", exactly(count=8)))
    cluster.admin.post(_PODS, claiming("p", resourceClaimName="own"))
    with Live.on(cluster) as live:
        live.until(lambda: bound(cluster) == ["p"])
    assert len(allocated(cluster)) == 8


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (exactly(allocationMode="All"), "allocationMode All"),
        (exactly(selectors=[{"cel": {"expression": "true"}}]), "selectors"),
        (exactly(deviceClassName="picky"), "DeviceClass picky"),
        (exactly(deviceClassName="absent"), "no DeviceClass absent"),
        (
            {"devices": {"requests": [{"name": "x", "firstAvailable": [{"name": "a", "deviceClassName": _DRIVER}]}]}},
            "alternatives",
        ),
    ],
)
def test_what_is_not_simple_is_refused_by_name(cluster, spec, named):
    cluster.admin.post(_CLAIMS, whole("ResourceClaim", "odd", spec))
    cluster.admin.post(_PODS, claiming("p", resourceClaimName="odd"))

    def told():
        conditions = pods(cluster)["p"]["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "PodScheduled"), None)

    with Live.on(cluster) as live:
        live.until(told, what="a condition")
    assert told()["reason"] == "NotSupported"
    assert named in told()["message"]


def test_a_claim_that_is_anothers_is_not_shared(cluster):
    cluster.admin.post(_CLAIMS, whole("ResourceClaim", "own", exactly(count=1)))
    for name in ("a", "b"):
        cluster.admin.post(_PODS, claiming(name, resourceClaimName="own"))
    with Live.on(cluster) as live:
        live.until(lambda: bound(cluster))
        live.until(lambda: live.world.reconciler.refused, what="the other one refused")
    assert len(bound(cluster)) == 1


def test_finalizers_of_others_survive(cluster):
    own = whole("ResourceClaim", "own", exactly(count=1))
    own["metadata"]["finalizers"] = ["example.com/audit"]
    cluster.admin.post(_CLAIMS, own)
    cluster.admin.post(_PODS, claiming("p", resourceClaimName="own"))
    try:
        with Live.on(cluster) as live:
            live.until(lambda: bound(cluster) == ["p"])
        kept = cluster.admin.get(f"{_CLAIMS}/own")["metadata"]["finalizers"]
        assert sorted(kept) == ["example.com/audit", "resource.kubernetes.io/delete-protection"]
    finally:
        cluster.admin.patch(
            f"{_CLAIMS}/own", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        )


def test_an_allocation_that_somebody_else_made_meanwhile_is_not_overwritten(cluster):
    """Another scheduler gives the claim to its pod after we looked: ours is not bound, theirs keeps its devices."""
    cluster.admin.post(_CLAIMS, whole("ResourceClaim", "own", exactly(count=1)))
    cluster.admin.post(_PODS, claiming("ours", resourceClaimName="own"))
    theirs = claiming("theirs", resourceClaimName="own")
    theirs["spec"]["schedulerName"] = "another"
    made = cluster.admin.post(_PODS, theirs)
    with Live.on(cluster) as live:
        claims = live.world.reconciler._claims
        allocate = claims.allocate

        def after_them(*asked):
            writes = allocate(*asked)
            if not allocated(cluster):
                _allocate_by_hand(cluster, made)
            return writes

        claims.allocate = after_them
        live.until(lambda: live.world.reconciler.refused, what="the claim is another pod's")
    assert bound(cluster) == []
    claim = cluster.admin.get(f"{_CLAIMS}/own")
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["theirs"]


def _allocate_by_hand(cluster, made):
    result = {"request": "gpus", "driver": _DRIVER, "pool": "n1", "device": "gpu-7"}
    user = {"resource": "pods", "name": "theirs", "uid": made["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    cluster.admin.patch(f"{_CLAIMS}/own/status", {"status": status})
