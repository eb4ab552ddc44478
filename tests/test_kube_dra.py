"""Claims on paper: what is written to them, and what no claim of a tenant can do."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tidegate.kube.mirror.dra import CLAIMS, CLASSES, SLICES, ClaimObject, DeviceClaims
from tidegate.kube.transport.client import JSON_PATCH
from tidegate.kube.transport.writes import pod_ref

_DRIVER = "gpu.nvidia.com"
_OURS = "resource.kubernetes.io/delete-protection"
_POD = pod_ref("d", "p", "p1")


def decoded(thing: dict[str, Any]) -> ClaimObject:
    return msgspec.convert(thing, ClaimObject)


def claim(spec: Any = None, status: Any = None, **meta: Any) -> ClaimObject:
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": _DRIVER}}]}}
    about = {"name": "k", "namespace": "d", "uid": "k1", "resourceVersion": "7", **meta}
    return decoded({"metadata": about, "spec": asked if spec is None else spec, "status": status or {}})


def devices(count: int = 1) -> DeviceClaims:
    made = DeviceClaims()
    selector = {"cel": {"expression": f"device.driver == '{_DRIVER}'"}}
    made.see(CLASSES, "c1", decoded({"metadata": {"name": _DRIVER, "uid": "c1"}, "spec": {"selectors": [selector]}}))
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    names = [{"name": f"gpu-{number}"} for number in range(count)]
    spec = {"driver": _DRIVER, "nodeName": "n0", "pool": pool, "devices": names}
    made.see(SLICES, "s1", decoded({"metadata": {"name": "s", "uid": "s1"}, "spec": spec}))
    return made


def steps_of(made: DeviceClaims) -> list[list[dict[str, Any]]]:
    writes = made.allocate(_POD, ("k",), "n0")
    assert writes is not None
    assert all(write.request.content_type == JSON_PATCH for write in writes)
    return [json.loads(write.request.body or b"[]") for write in writes]


def test_our_finalizer_is_added_to_those_of_others():
    made = devices()
    made.see(CLAIMS, "k1", claim(finalizers=["example.com/audit"]))
    protecting, _ = steps_of(made)
    assert protecting[1:] == [{"op": "add", "path": "/metadata/finalizers/-", "value": _OURS}]
    made.see(CLAIMS, "k1", claim(finalizers=["example.com/audit", _OURS]))
    made.forget_promises("d", ("k",))
    assert len(steps_of(made)) == 1


def test_an_allocation_is_written_only_where_there_is_none():
    made = devices()
    made.see(CLAIMS, "k1", claim())
    *_, allocating = steps_of(made)
    tests = [(step["path"], step["value"]) for step in allocating if step["op"] == "test"]
    assert tests == [("/metadata/uid", "k1"), ("/status/allocation", None), ("/status/reservedFor", None)]


def test_a_stale_allocation_is_taken_back_only_as_it_was_seen():
    made, result = devices(), {"request": "r", "driver": _DRIVER, "pool": "n0", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "p1"}]}
    made.see(CLAIMS, "k1", claim(status=status))
    back, _, _ = steps_of(made)
    assert [step for step in back if step["op"] == "test"][1:] == [
        {"op": "test", "path": "/status/allocation", "value": status["allocation"]},
        {"op": "test", "path": "/status/reservedFor", "value": status["reservedFor"]},
    ]


@pytest.mark.parametrize(
    "exact",
    [
        {"deviceClassName": _DRIVER, "count": 10**30},
        {"deviceClassName": _DRIVER, "count": -1},
        {"deviceClassName": _DRIVER, "count": "2"},
        {"deviceClassName": ["x"]},
        {"deviceClassName": "absent"},
        {},
        None,
    ],
)
def test_what_cannot_be_had_is_refused(exact):
    made = devices()
    made.see(CLAIMS, "k1", claim(spec={"devices": {"requests": [{"name": "r", "exactly": exact}]}}))
    assert made.asked("d", ("k",), "p1").refusals
    assert made.allocate(_POD, ("k",), "n0") is None


@pytest.mark.parametrize("spec", [{"devices": 3}, {"devices": {"requests": [3]}}, {"devices": {"requests": {}}}])
def test_no_claim_raises(spec):
    made = devices()
    made.see(CLAIMS, "k1", claim(spec=spec, status={"allocation": 3, "reservedFor": "x"}))
    assert made.asked("d", ("k",), "p1").refusals
    assert made.allocate(_POD, ("k",), "n0") is None
