"""Dynamic resource allocation (DRA): devices of nodes, requests of claims, and allocations.

Supported is an exact count of whole devices of a DeviceClass that selects only a driver's GPUs; everything else is
refused by name. Devices count like GPUs; a claim gets its devices when its pod is bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from tidegate.kube.mirror.job_adapters import find
from tidegate.kube.mirror.pod_spec_cache import PodSpecCache
from tidegate.kube.mirror.pods import GateOwner, SeenPod
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.kube.transport.resources import Resource
from tidegate.kube.transport.writes import Ref, Write, edit, looked_up
from tidegate.model.hardware import MOST_DEVICES, is_device
from tidegate.model.struct import resources

SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")

CLAIM_KINDS = (SLICES, CLASSES, CLAIMS)

#: The finalizer of a claim that holds devices.
_FINALIZER = "resource.kubernetes.io/delete-protection"

#: The fields that an allocation writes.
_ALLOCATION, _RESERVED = "/status/allocation", "/status/reservedFor"

#: Drivers whose devices are whole GPUs, and the resource that they count as.
_DRIVERS = {"gpu.nvidia.com": "nvidia.com/gpu", "gpu.amd.com": "amd.com/gpu"}

#: The selector of a class that selects only the GPUs of a driver.
_SIMPLE = re.compile(
    r"""\s*device\.driver\s*==\s*["'](?P<driver>[^"']+)["']"""
    r"""(\s*&&\s*device\.attributes\[["'][^"']+["']\]\.type\s*==\s*["']gpu["'])?\s*"""
)

#: Fields of a supported device request.
_SIMPLE_REQUEST = {"deviceClassName", "allocationMode", "count"}


class ClaimMeta(KubeObjectMeta, rename="camel", frozen=True):
    """Metadata with finalizers."""

    finalizers: tuple[str, ...] | None = None


class ClaimObject(msgspec.Struct, frozen=True):
    """A ResourceSlice, DeviceClass or ResourceClaim."""

    metadata: ClaimMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class _Pool(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class _SliceSpec(msgspec.Struct, rename="camel", frozen=True):
    driver: str = ""
    pool: _Pool = _Pool()
    node_name: str = ""
    devices: list[dict[str, Any]] | None = None


class _Request(msgspec.Struct, frozen=True):
    name: str = ""
    exactly: dict[str, Any] | None = None


class _Requests(msgspec.Struct, frozen=True):
    requests: list[_Request] | None = None
    constraints: list[Any] | None = None
    config: list[Any] | None = None


class _ClaimSpec(msgspec.Struct, frozen=True):
    devices: _Requests = _Requests()


class _Result(msgspec.Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""


class _Results(msgspec.Struct, frozen=True):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Results = _Results()


class _Consumer(msgspec.Struct, frozen=True):
    uid: str = ""


class _ClaimStatus(msgspec.Struct, rename="camel", frozen=True):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class _Claim(NamedTuple):
    """A decoded claim."""

    thing: ClaimObject
    spec: _ClaimSpec | None  # None: it cannot be decoded
    status: _ClaimStatus

    def devices(self) -> set[Device]:
        """Its allocated devices."""
        results = self.status.allocation.devices.results if self.status.allocation else None
        return {Device(one.driver, one.pool, one.device) for one in results or ()}


class Device(NamedTuple):
    """One device."""

    driver: str
    pool: str
    name: str


class RequestedDevices(NamedTuple):
    """The requests of a pod's claims."""

    devices: Mapping[str, int]  # by resource
    refusals: tuple[str, ...] = ()
    waits: bool = False  # for claims that do not exist yet


class DeviceClaims:
    """The slices, classes and claims of a cluster."""

    def __init__(self) -> None:
        self._slices: dict[str, _SliceSpec] = {}  # by uid
        self._classes: dict[str, tuple[str, str]] = {}  # by uid: name, and driver; empty: not supported
        self._claims: dict[tuple[str, str], _Claim] = {}  # by namespace and name
        self._names: dict[str, tuple[str, str]] = {}  # of claims, by uid
        self._promised: dict[Device, str] = {}  # by device: uid of the claim that is about to get it
        self._by_driver: dict[str, str] = dict(_DRIVERS)

    # -- observed objects --------------------------------------------------------------------------------------

    def see(self, resource: Resource, uid: str, thing: ClaimObject | None) -> None:
        """Handle an update of an object; None: it was deleted."""
        if resource is SLICES:
            self._put(self._slices, uid, None if thing is None else _read(thing.spec, _SliceSpec))
        elif resource is CLASSES:
            self._put(self._classes, uid, None if thing is None else self._read_class(thing))
        elif thing is not None:
            self._names[uid] = (thing.metadata.namespace, thing.metadata.name)
            status = _read(thing.status, _ClaimStatus) or _ClaimStatus()
            self._claims[self._names[uid]] = _Claim(thing, _read(thing.spec, _ClaimSpec), status)
            if status.allocation is not None:
                self._withdraw_promises({uid})
        else:
            name = self._names.pop(uid, ("", ""))
            if name in self._claims and self._claims[name].thing.metadata.uid == uid:
                del self._claims[name]
            self._withdraw_promises({uid})

    @staticmethod
    def _put(kept: dict[str, Any], uid: str, thing: object) -> None:
        if thing is None:
            kept.pop(uid, None)
        else:
            kept[uid] = thing

    def _read_class(self, thing: ClaimObject) -> tuple[str, str]:
        """The name and driver of a class; the driver is empty if the class is not supported."""
        name, spec = thing.metadata.name, thing.spec
        found = _SIMPLE.fullmatch(_only_selector(spec))
        if found is None or spec.get("config"):
            return name, ""
        counted = spec.get("extendedResourceName")
        if isinstance(counted, str) and is_device(counted):
            self._by_driver.setdefault(found["driver"], counted)
        return name, found["driver"]

    # -- devices -----------------------------------------------------------------------------------------------

    def devices(self) -> dict[str, list[Device]]:
        """The whole devices of each node, from pools that are published completely."""
        pools: dict[tuple[str, str], list[_SliceSpec]] = {}
        for one in self._slices.values():
            pools.setdefault((one.driver, one.pool.name), []).append(one)
        found: dict[str, list[Device]] = {}
        for (driver, pool), slices in sorted(pools.items()):
            latest = max(one.pool.generation for one in slices)
            whole = [one for one in slices if one.pool.generation == latest]
            if driver not in self._by_driver or len(whole) != whole[0].pool.resource_slice_count:
                continue
            for one in whole:
                names = [device["name"] for device in one.devices or () if one.node_name and _is_whole(device)]
                found.setdefault(one.node_name, []).extend(Device(driver, pool, name) for name in names)
        return {node: sorted(devices) for node, devices in found.items() if node and devices}

    def counts(self) -> dict[str, dict[str, int]]:
        """How many devices each node has, by the resource that they count as."""
        counted: dict[str, dict[str, int]] = {}
        for node, devices in self.devices().items():
            for device in devices:
                inner = counted.setdefault(node, {})
                inner[self._by_driver[device.driver]] = inner.get(self._by_driver[device.driver], 0) + 1
        return counted

    # -- what a pod's claims ask for ---------------------------------------------------------------------------

    def asked(self, namespace: str, names: tuple[str, ...], pod: str) -> RequestedDevices:
        """The requests of a pod's claims in total; the name of a claim that is not created yet is empty."""
        total: dict[str, int] = {}
        refusals: list[str] = []
        for name in names:
            claim = self._claims.get((namespace, name))
            if claim is None:
                return RequestedDevices({}, waits=True)
            if any(one.uid != pod for one in claim.status.reserved_for or ()):
                refusals.append(f"claim {name}: it is another pod's, and sharing is not supported; use a template")
            for _, driver, count in self._requests(claim, refusals):
                total[self._by_driver[driver]] = total.get(self._by_driver[driver], 0) + count
        return RequestedDevices(total, tuple(refusals))

    def with_devices(self, pod: SeenPod, pod_specs: PodSpecCache) -> SeenPod:
        """A pod with the devices of its claims; one whose claims do not exist yet waits as if gated by others."""
        asked = self.asked(pod.namespace, pod.claims, pod.uid)
        if asked.waits:
            return msgspec.structs.replace(pod, traits=pod.traits._replace(gate=GateOwner.OTHERS))
        shape = pod_specs.with_devices(pod.shape, resources(dict(asked.devices)))
        return msgspec.structs.replace(pod, shape=shape.refused(asked.refusals) if asked.refusals else shape)

    def _requests(self, claim: _Claim, refusals: list[str]) -> Iterator[tuple[str, str, int]]:
        """The name, driver and count of a claim's requests; refusals are added to the list."""
        about = f"claim {claim.thing.metadata.name}"
        if claim.spec is None:
            refusals.append(f"{about}: spec cannot be read; expected devices.requests")
            return
        inner = claim.spec.devices
        odd = [name for name in ("constraints", "config") if getattr(inner, name)]
        refusals += [f"{about}: {name} is not supported; leave it out" for name in odd]
        drivers = dict(self._classes.values())
        for request in inner.requests or ():
            why = self._why_not(request, drivers)
            if why:
                refusals.append(f"{about}, request {request.name}: {why}")
            elif request.exactly is not None:
                yield request.name, drivers[request.exactly["deviceClassName"]], request.exactly.get("count", 1)

    def _why_not(self, request: _Request, drivers: Mapping[str, str]) -> str:
        """Why a request is not supported, and what to do; empty if it is."""
        exact = request.exactly
        if not exact:
            return "alternatives are not supported; ask for exactly one class"
        odd = sorted(name for name, value in exact.items() if value and name not in _SIMPLE_REQUEST)
        if odd:
            return f"{', '.join(odd)} are not supported; ask for a count of whole devices"
        mode, count, wanted = exact.get("allocationMode", "ExactCount"), exact.get("count", 1), _class_of(exact)
        if mode != "ExactCount":
            return f"allocationMode {mode} is not supported; use ExactCount"
        if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MOST_DEVICES:
            found = msgspec.json.encode(count).decode()
            return f"count: expected 1 to {MOST_DEVICES}, as many as one node has; found {found}"
        if drivers.get(wanted) in self._by_driver:
            return ""
        expected = "expected one that selects nothing but the GPUs of a driver"
        known = wanted in drivers
        return f"DeviceClass {wanted} is not supported; {expected}" if known else f"there is no DeviceClass {wanted}"

    # -- allocating --------------------------------------------------------------------------------------------

    def allocate(self, pod: Ref, names: tuple[str, ...], node: str) -> list[Write] | None:
        """The writes that allocate devices of a node to a pod's claims; None if there are not enough."""
        free = self._free(node, {(pod.namespace, name) for name in names})
        writes: list[Write] = []
        for name in names:
            claim, refusals = self._claims.get((pod.namespace, name)), list[str]()
            if claim is None:
                return None
            results = []
            for request, driver, count in self._requests(claim, refusals):
                chosen = [device for device in free if device.driver == driver][:count]
                if len(chosen) < count:
                    return None
                free = [device for device in free if device not in chosen]
                results += [{"request": request, **device._asdict()} for device in chosen]
            if refusals:
                return None
            writes += self._write(claim.thing, pod, node, results)
        return [write._replace(key=pod.uid) for write in writes]  # in order, and before the pod is bound

    def _free(self, node: str, own: set[tuple[str, str]]) -> list[Device]:
        taken = set(self._promised)
        for name, claim in self._claims.items():
            if name not in own:
                taken |= claim.devices()
        return [device for device in self.devices().get(node, []) if device not in taken]

    def _write(self, claim: ClaimObject, pod: Ref, node: str, results: list[dict[str, str]]) -> Iterator[Write]:
        """The writes that allocate a claim; each fails if the claim changed meanwhile."""
        meta = claim.metadata
        ref = Ref(CLAIMS, meta.namespace, meta.name, meta.uid)
        told = [{("device" if key == "name" else key): value for key, value in one.items()} for one in results]
        for one in told:
            self._promised[Device(one["driver"], one["pool"], one["device"])] = meta.uid
        if claim.status.get("allocation"):  # by the previous leader, for a pod that was not bound
            steps = [_test(claim, "allocation"), _test(claim, "reservedFor"), {"op": "remove", "path": _ALLOCATION}]
            steps += [{"op": "remove", "path": _RESERVED}] if claim.status.get("reservedFor") else []
            yield edit(ref, steps, part="status")
        if _FINALIZER not in (meta.finalizers or ()):
            yield looked_up(edit(ref, _protecting(meta)), ref, _is_protected)
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        allocation = {"devices": {"results": told}, "nodeSelector": selector}
        reserved = [{"resource": "pods", "name": pod.name, "uid": pod.uid}]
        steps = [{"op": "test", "path": path, "value": None} for path in (_ALLOCATION, _RESERVED)]
        steps += [{"op": "add", "path": _ALLOCATION, "value": allocation}]
        steps += [{"op": "add", "path": _RESERVED, "value": reserved}]
        yield looked_up(edit(ref, steps, part="status"), ref, lambda thing: _has_devices(thing, told, pod.uid))

    def forget_promises(self, namespace: str, names: tuple[str, ...]) -> None:
        """Release the devices of claims that were not allocated."""
        there = (self._claims[namespace, name] for name in names if (namespace, name) in self._claims)
        self._withdraw_promises({claim.thing.metadata.uid for claim in there})

    def _withdraw_promises(self, uids: set[str]) -> None:
        self._promised = {device: held for device, held in self._promised.items() if held not in uids}


_T = TypeVar("_T")


def _read(value: object, kind: type[_T]) -> _T | None:
    """Decode a part of an object; None if it does not have that type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _only_selector(spec: Mapping[str, Any]) -> str:
    """The expression of a class's only selector; empty if it has none or several."""
    found = spec.get("selectors")
    if not isinstance(found, list) or len(found) != 1:
        return ""
    expression = find(found[0], ("cel", "expression"))
    return expression if isinstance(expression, str) else ""


def _class_of(exact: Mapping[str, Any]) -> str:
    wanted = exact.get("deviceClassName")
    return wanted if isinstance(wanted, str) else ""


def _is_whole(device: Mapping[str, Any]) -> bool:
    """Whether a device is a whole GPU for one claim: not a partition, not shared, not tainted."""
    odd = ("consumesCounters", "allowMultipleAllocations", "taints", "nodeSelector", "allNodes", "bindsToNode")
    kind = find(device, ("attributes", "type", "string")) or "gpu"
    return isinstance(device.get("name"), str) and kind == "gpu" and not any(device.get(name) for name in odd)


def _test(claim: ClaimObject, field: str) -> dict[str, Any]:
    """The JSON patch step that fails if a status field changed since it was observed."""
    return {"op": "test", "path": f"/status/{field}", "value": claim.status.get(field)}


def _protecting(meta: ClaimMeta) -> list[dict[str, Any]]:
    """The JSON patch steps that add our finalizer."""
    if meta.finalizers:
        return [{"op": "add", "path": "/metadata/finalizers/-", "value": _FINALIZER}]
    none = {"op": "test", "path": "/metadata/finalizers", "value": None}
    return [none, {"op": "add", "path": "/metadata/finalizers", "value": [_FINALIZER]}]


def _is_protected(thing: Mapping[str, Any]) -> bool:
    return _FINALIZER in (find(thing, ("metadata", "finalizers")) or ())


def _has_devices(thing: Mapping[str, Any], told: list[dict[str, str]], pod: str) -> bool:
    """Whether a claim shows the allocation that was written."""
    results = find(thing, ("status", "allocation", "devices", "results")) or []
    reserved = find(thing, ("status", "reservedFor")) or []
    mine = [{key: one.get(key) for key in ("request", "driver", "pool", "device")} for one in results]
    return mine == told and [one.get("uid") for one in reserved] == [pod]
