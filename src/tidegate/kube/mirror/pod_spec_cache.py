"""The pod spec cache: equal pod specs are decoded once, as a cluster has many pods and few kinds of them.

The key is the bytes that decide the requests; `manifests` decodes them. Pods that differ only in the node they are
meant for, as those of a DaemonSet, share a shape. A shape without pods is freed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from tidegate.kube.mirror.limits import excess
from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.manifests.cluster_defaults import NO_DEFAULTS
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import check_fields
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.jobs.pod import POD, read_pod
from tidegate.manifests.jobs.to_workload import read_job
from tidegate.manifests.label_names import GROUP, HANDOVER_NOTE, KNOWN_LABELS, ROLE, RUNTIME, SUBMIT
from tidegate.model.problem import Severity
from tidegate.model.struct import Resources, resources
from tidegate.model.work import Work

#: Labels and annotations that do not affect requests; all other known ones may.
_OF_ONE = frozenset((GROUP, RUNTIME, HANDOVER_NOTE, SUBMIT))
SHAPING = frozenset(KNOWN_LABELS) - _OF_ONE

#: Most shapes that are kept without pods.
_RECENT = 4096

#: The affinity field with the name of one node, and its value in a shape.
_FIELDS, _ANY_NODE = b'"matchFields"', ["*"]

#: Fields that Tidegate cannot honour when it binds.
_NOT_BOUND = ("volumes",)


class Container(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """The needed fields of a container."""

    resources: msgspec.Raw = msgspec.Raw(b"null")
    ports: msgspec.Raw = msgspec.Raw(b"null")
    restart_policy: str = ""


class PodSpec(msgspec.Struct, rename="camel", frozen=True):
    """The needed fields of a pod spec: first those that differ between pods, then those that decide the shape."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[dict[str, str]] | None = None
    priority: int = 0
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None
    node_selector: msgspec.Raw = msgspec.Raw(b"null")
    affinity: msgspec.Raw = msgspec.Raw(b"null")
    tolerations: msgspec.Raw = msgspec.Raw(b"null")
    overhead: msgspec.Raw = msgspec.Raw(b"null")
    resources: msgspec.Raw = msgspec.Raw(b"null")
    topology_spread_constraints: msgspec.Raw = msgspec.Raw(b"null")
    resource_claims: msgspec.Raw = msgspec.Raw(b"null")
    scheduling_group: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PodShape:
    """The requests of equal pods, which share one object: shapes are compared by identity."""

    work: Work  # of one such pod
    request: Resources  # of its node
    charge: Resources
    refusals: tuple[str, ...]  # why it is not supported
    excess: tuple[str, ...]  # which limits it exceeds
    unbound: tuple[str, ...]  # why Tidegate cannot bind it, though kube-scheduler could
    item: Item  # that it was decoded from
    role: object  # equal for pods of one role in a group
    pods: int = 1  # how many pods it counts as

    def refused(self, why: tuple[str, ...]) -> PodShape:
        """The shape with other refusals."""
        return replace(self, refusals=why)


class PodSpecCache:
    """The shapes of pods, each decoded once and kept while a pod has it."""

    def __init__(self) -> None:
        self._known = WeakValueDictionary[bytes, PodShape]()
        # By the key of a shape in protobuf.
        self._learnt = WeakValueDictionary[Hashable, PodShape]()
        self._with_devices = WeakKeyDictionary[PodShape, dict[Resources, PodShape]]()
        self._beyond = WeakKeyDictionary[PodShape, dict[Resources, PodShape | None]]()
        self._recent = deque[PodShape](maxlen=_RECENT)  # keeps shapes alive between pods, and until a page is decoded

    def __len__(self) -> int:
        return len(self._known)

    def of(self, meta: KubeObjectMeta, spec: PodSpec) -> PodShape:
        """The shape of a pod."""
        words = _words(meta)
        kinds = sorted({kind for volume in spec.volumes or () for kind in volume if kind != "name"})
        key = msgspec.json.encode(
            (
                meta.namespace, words, spec.priority, spec.containers, spec.init_containers, kinds,
                spec.node_selector, _for_any_node(spec.affinity), spec.tolerations, spec.overhead, spec.resources,
                spec.topology_spread_constraints, spec.resource_claims, spec.scheduling_group,
            )
        )  # fmt: skip
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = _read(msgspec.json.decode(key), meta)
            self._recent.append(shape)
        return shape

    def learnt(self, key: Hashable) -> PodShape | None:
        """The shape of pods with this key; None if it was not learnt yet."""
        return self._learnt.get(key)

    def learn(self, key: Hashable, shape: PodShape) -> None:
        """Note the shape of pods with this key."""
        self._learnt[key] = shape

    def with_devices(self, shape: PodShape, devices: Resources) -> PodShape:
        """The shape of such a pod with claims for these devices, by the resource that they count as."""
        known = self._with_devices.setdefault(shape, {})
        if devices not in known:
            known[devices] = _claiming(shape, devices)
        return known[devices]

    def beyond(self, shape: PodShape, held: Resources) -> PodShape | None:
        """What such a pod takes of its node beyond its reservation; None: nothing."""
        known = self._beyond.setdefault(shape, {})
        if held not in known:
            had = dict(held)
            more = {name: amount - had.get(name, 0) for name, amount in shape.work.pod_sets[0].request}
            excess = resources({name: amount for name, amount in more.items() if amount > 0})
            known[held] = replace(shape, request=excess, charge=excess, pods=0) if excess else None
        return known[held]


def _claiming(shape: PodShape, devices: Resources) -> PodShape:
    """Decode a pod as if one more container requested the devices of its claims."""
    value = shape.item.value
    spec = {name: field for name, field in value["spec"].items() if name != "resourceClaims"}
    for key in ("containers", "initContainers"):
        spec[key] = [_without_claims(container) for container in spec.get(key) or ()]
    amounts = {name: str(count) for name, count in devices}
    spec["containers"].append({"resources": {"limits": amounts}})
    return _shaped({**value, "spec": spec}, shape.item.origin, shape.work.priority)


def _without_claims(container: dict[str, Any]) -> dict[str, Any]:
    asked = container.get("resources")
    if not isinstance(asked, dict):
        return container
    return {**container, "resources": {name: field for name, field in asked.items() if name != "claims"}}


def _words(meta: KubeObjectMeta) -> tuple[dict[str, str], dict[str, str]]:
    """Known labels and annotations."""
    return meaning(meta.labels), meaning(meta.annotations)


def meaning(pairs: dict[str, str] | None) -> dict[str, str]:
    """The labels or annotations that decide a shape, sorted."""
    meant = [key for key in pairs or () if key in SHAPING]
    meant.sort()
    return {key: pairs[key] for key in meant} if pairs else {}


def _for_any_node(affinity: msgspec.Raw) -> msgspec.Raw | dict[str, Any]:
    """An affinity without the name of the pod's one node."""
    if _FIELDS not in bytes(affinity):
        return affinity
    read = msgspec.json.decode(affinity, type=dict[str, Any])
    for term in _terms(read.get("nodeAffinity")):
        for field in term.get("matchFields") or ():
            field["values"] = _ANY_NODE
    return read


def _terms(by_node: Any) -> list[Any]:
    """The required and preferred terms of a node affinity."""
    required = (by_node or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    preferred = (by_node or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return [*(required.get("nodeSelectorTerms") or ()), *(one.get("preference") or {} for one in preferred)]


def _read(key: list[Any], meta: KubeObjectMeta) -> PodShape:
    namespace, (labels, annotations), priority, containers, inits, kinds, *rest = key
    names = ("nodeSelector", "affinity", "tolerations", "overhead", "resources", "topologySpreadConstraints",
             "resourceClaims", "schedulingGroup")  # fmt: skip
    spec = {
        "containers": containers,
        "initContainers": inits,
        "volumes": [{kind: {"name": kind}} for kind in kinds],
        **dict(zip(names, rest, strict=True)),
    }
    value = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": meta.name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {name: field for name, field in spec.items() if field},
    }
    return _shaped(value, ObjectOrigin(kind="Pod", name=f"{namespace}/{meta.name}"), priority)


def _shaped(value: dict[str, Any], origin: ObjectOrigin, priority: int) -> PodShape:
    findings = ManifestFindings()
    item = Item(value, findings, origin)
    check_fields(item, POD.form)
    work = msgspec.structs.replace(read_job(item, POD, NO_DEFAULTS)[0].planned.workload.work, priority=priority)
    pod = read_pod(item.quiet(), NO_DEFAULTS)
    role = value["metadata"]["annotations"].get(ROLE) or work.pod_sets[0]
    return PodShape(work, pod.request, pod.charge, refusals(findings), excess(work), unbindable(findings), item, role)


def refusals(findings: ManifestFindings) -> tuple[str, ...]:
    """The errors of a decoded object, each with its field and what to do."""
    return tuple(found.problem.text() for found in findings.listed if found.problem.severity is Severity.ERROR)


def unbindable(findings: ManifestFindings) -> tuple[str, ...]:
    """Fields that a scheduler has to honour and Tidegate does not."""
    return tuple(
        found.problem.text()
        for found in findings.listed
        if found.problem.severity is Severity.WARNING and set(found.problem.path) & set(_NOT_BOUND)
    )
