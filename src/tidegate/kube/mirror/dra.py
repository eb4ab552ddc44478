"""Devices by claim (DRA): which nodes have them, what a pod's claims ask for, and which devices a claim gets.

Only what is simple is done: an exact count of whole devices of a class that is nothing but a driver's GPUs. Everything
else is refused by name. Devices are counted like GPUs; which of them a claim gets is chosen when its pod is bound.
Must not know: workloads, when anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.kube.transport.objects import Meta
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.writes import Ref, Write, merge
from tidegate.model.hardware import is_device

SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")

CLAIM_KINDS = (SLICES, CLASSES, CLAIMS)

#: What keeps a claim from being deleted while it holds devices.
_FINALIZER = "resource.kubernetes.io/delete-protection"

#: Drivers whose devices are whole GPUs, and the resource that they are counted as.
_DRIVERS = {"gpu.nvidia.com": "nvidia.com/gpu", "gpu.amd.com": "amd.com/gpu"}

#: A class that is nothing but the GPUs of a driver.
_SIMPLE = re.compile(
    r"""\s*device\.driver\s*==\s*["'](?P<driver>[^"']+)["']"""
    r"""(\s*&&\s*device\.attributes\[["'][^"']+["']\]\.type\s*==\s*["']gpu["'])?\s*"""
)

#: What a request for devices may have and still be simple.
_SIMPLE_REQUEST = {"deviceClassName", "allocationMode", "count"}


class ClaimObject(msgspec.Struct, frozen=True):
    """A slice, a class or a claim."""

    metadata: Meta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Device(NamedTuple):
    """One device."""

    driver: str
    pool: str
    name: str


class RequestedDevices(NamedTuple):
    """What the claims of a pod ask for."""

    devices: Mapping[str, int]  # by resource
    refusals: tuple[str, ...] = ()
    waits: bool = False  # for claims that are not there yet


class DeviceClaims:
    """The slices, classes and claims of a cluster."""

    def __init__(self) -> None:
        self._slices: dict[str, ClaimObject] = {}  # by uid
        self._classes: dict[str, tuple[str, str]] = {}  # by uid: name, and driver or why it is not simple
        self._claims: dict[tuple[str, str], ClaimObject] = {}  # by namespace and name
        self._names: dict[str, tuple[str, str]] = {}  # of claims, by uid
        self._promised: dict[Device, str] = {}  # to the claim with this uid, which does not show it yet
        self._by_driver: dict[str, str] = dict(_DRIVERS)

    # -- what is seen ------------------------------------------------------------------------------------------

    def see(self, resource: Resource, uid: str, thing: ClaimObject | None) -> None:
        """An object is as it is now, or gone."""
        if resource is SLICES:
            self._put(self._slices, uid, thing)
        elif resource is CLASSES:
            self._put(self._classes, uid, None if thing is None else self._read_class(thing))
        elif thing is not None:
            self._names[uid] = (thing.metadata.namespace, thing.metadata.name)
            self._claims[self._names[uid]] = thing
            self._keep_promises(uid, thing)
        else:
            name = self._names.pop(uid, ("", ""))
            if name in self._claims and self._claims[name].metadata.uid == uid:
                del self._claims[name]
            self._promised = {device: held for device, held in self._promised.items() if held != uid}

    @staticmethod
    def _put(kept: dict[str, Any], uid: str, thing: object) -> None:
        if thing is None:
            kept.pop(uid, None)
        else:
            kept[uid] = thing

    def _keep_promises(self, uid: str, claim: ClaimObject) -> None:
        if claim.status.get("allocation"):
            self._promised = {device: held for device, held in self._promised.items() if held != uid}

    def _read_class(self, thing: ClaimObject) -> tuple[str, str]:
        """The driver of a simple class; of another, nothing."""
        name, spec = thing.metadata.name, thing.spec
        selectors = [one.get("cel", {}).get("expression", "") for one in spec.get("selectors") or ()]
        found = _SIMPLE.fullmatch(selectors[0]) if len(selectors) == 1 else None
        if found is None or spec.get("config"):
            return name, ""
        counted = spec.get("extendedResourceName", "")
        if is_device(counted):
            self._by_driver.setdefault(found["driver"], counted)
        return name, found["driver"]

    # -- devices -----------------------------------------------------------------------------------------------

    def devices(self) -> dict[str, list[Device]]:
        """The whole devices of each node, of pools that are published in full."""
        pools: dict[tuple[str, str], list[ClaimObject]] = {}
        for one in self._slices.values():
            pools.setdefault((one.spec["driver"], one.spec["pool"]["name"]), []).append(one)
        found: dict[str, list[Device]] = {}
        for (driver, pool), slices in sorted(pools.items()):
            latest = max(one.spec["pool"]["generation"] for one in slices)
            whole = [one for one in slices if one.spec["pool"]["generation"] == latest]
            if driver not in self._by_driver or len(whole) != whole[0].spec["pool"]["resourceSliceCount"]:
                continue
            for one in whole:
                node = one.spec.get("nodeName", "")
                names = [device["name"] for device in one.spec.get("devices") or () if node and _is_whole(device)]
                found.setdefault(node, []).extend(Device(driver, pool, name) for name in names)
        return {node: sorted(devices) for node, devices in found.items() if node and devices}

    def counts(self) -> dict[str, dict[str, int]]:
        """How many devices each node has, by the resource that they are counted as."""
        counted: dict[str, dict[str, int]] = {}
        for node, devices in self.devices().items():
            for device in devices:
                inner = counted.setdefault(node, {})
                inner[self._by_driver[device.driver]] = inner.get(self._by_driver[device.driver], 0) + 1
        return counted

    # -- what a pod's claims ask for ---------------------------------------------------------------------------

    def asked(self, namespace: str, names: tuple[str, ...], pod: str) -> RequestedDevices:
        """What the claims of a pod ask for together; the name of one that is not made yet is empty."""
        total: dict[str, int] = {}
        refusals: list[str] = []
        for name in names:
            claim = self._claims.get((namespace, name))
            if claim is None:
                return RequestedDevices({}, waits=True)
            if any(one.get("uid") != pod for one in claim.status.get("reservedFor") or ()):
                refusals.append(f"claim {name}: it is another pod's, and sharing is not supported; use a template")
            for driver, count in self._requests(claim, refusals):
                total[self._by_driver[driver]] = total.get(self._by_driver[driver], 0) + count
        return RequestedDevices(total, tuple(refusals))

    def _requests(self, claim: ClaimObject, refusals: list[str]) -> Iterator[tuple[str, int]]:
        """The drivers and counts that a claim asks for; why not, where it is not simple."""
        inner, about = claim.spec.get("devices") or {}, f"claim {claim.metadata.name}"
        odd = [name for name in ("constraints", "config") if inner.get(name)]
        refusals += [f"{about}: {name} is not supported; leave it out" for name in odd]
        drivers = dict(self._classes.values())
        for request in inner.get("requests") or ():
            where, exact = f"{about}, request {request.get('name')}", request.get("exactly")
            if not exact:
                refusals.append(f"{where}: alternatives are not supported; ask for exactly one class")
                continue
            odd = sorted(name for name, value in exact.items() if value and name not in _SIMPLE_REQUEST)
            driver = drivers.get(exact["deviceClassName"])
            if odd:
                refusals.append(f"{where}: {', '.join(odd)} are not supported; ask for a count of whole devices")
            elif exact.get("allocationMode", "ExactCount") != "ExactCount":
                refusals.append(f"{where}: allocationMode {exact['allocationMode']} is not supported; use ExactCount")
            elif driver is None:
                refusals.append(f"{where}: there is no DeviceClass {exact['deviceClassName']}; create it")
            elif driver not in self._by_driver:
                refusals.append(
                    f"{where}: DeviceClass {exact['deviceClassName']} is not supported; expected one that selects "
                    "nothing but the GPUs of a driver"
                )
            else:
                yield driver, int(exact.get("count", 1))

    # -- allocating --------------------------------------------------------------------------------------------

    def allocate(self, pod: Ref, names: tuple[str, ...], node: str) -> list[Write] | None:
        """The writes that give a pod's claims devices of its node; None if there are not enough."""
        free = self._free(node, {(pod.namespace, name) for name in names})
        writes: list[Write] = []
        for name in names:
            claim = self._claims[pod.namespace, name]
            results = []
            for request in claim.spec["devices"]["requests"]:
                driver = dict(self._classes.values())[request["exactly"]["deviceClassName"]]
                count = int(request["exactly"].get("count", 1))
                chosen = [device for device in free if device.driver == driver][:count]
                if len(chosen) < count:
                    return None
                free = [device for device in free if device not in chosen]
                results += [{"request": request["name"], **device._asdict()} for device in chosen]
            writes += self._write(claim, pod, node, results)
        return [write._replace(key=pod.uid) for write in writes]  # one after the other, and before the pod is bound

    def _free(self, node: str, own: set[tuple[str, str]]) -> list[Device]:
        taken = set(self._promised)
        for name, claim in self._claims.items():
            if name not in own:
                taken |= {Device(one["driver"], one["pool"], one["device"]) for one in _results(claim)}
        return [device for device in self.devices().get(node, []) if device not in taken]

    def _write(self, claim: ClaimObject, pod: Ref, node: str, results: list[dict[str, str]]) -> Iterator[Write]:
        meta = claim.metadata
        ref = Ref(CLAIMS, meta.namespace, meta.name, meta.uid)
        told = [{("device" if key == "name" else key): value for key, value in one.items()} for one in results]
        for one in told:
            self._promised[Device(one["driver"], one["pool"], one["device"])] = meta.uid
        if claim.status.get("allocation"):  # by who led before us, for a pod that was not bound
            yield merge(ref, {"status": {"allocation": None, "reservedFor": None}}, part="status")
        yield merge(ref, {"metadata": {"finalizers": [_FINALIZER]}})
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation = {
            "devices": {"results": told},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
        reserved = [{"resource": "pods", "name": pod.name, "uid": pod.uid}]
        yield merge(ref, {"status": {"allocation": allocation, "reservedFor": reserved}}, part="status")

    def forget_promises(self, namespace: str, names: tuple[str, ...]) -> None:
        """Claims got no devices after all."""
        uids = {self._claims[namespace, name].metadata.uid for name in names if (namespace, name) in self._claims}
        self._promised = {device: held for device, held in self._promised.items() if held not in uids}


def _is_whole(device: Mapping[str, Any]) -> bool:
    """Whether a device is a whole GPU that one claim may have: not a part of one, not shared, not tainted."""
    odd = ("consumesCounters", "allowMultipleAllocations", "taints", "nodeSelector", "allNodes", "bindsToNode")
    kind = (device.get("attributes") or {}).get("type", {}).get("string", "gpu")
    return kind == "gpu" and not any(device.get(name) for name in odd)


def _results(claim: ClaimObject) -> list[dict[str, str]]:
    allocation = claim.status.get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []
