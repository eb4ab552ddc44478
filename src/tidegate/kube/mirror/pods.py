"""Pods as the API server has them: who they are, where they are, how they fare, and what they ask for.

Must not know: workloads, places.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from tidegate.kube.mirror.job_adapters import ROLE_LABELS
from tidegate.kube.mirror.job_patch import BEFORE, GATE
from tidegate.kube.mirror.pod_spec_cache import PodShape, PodSpec, PodSpecCache, key_of
from tidegate.kube.transport.objects import ListMeta, Meta, Owner
from tidegate.kube.transport.protobuf import ACCEPT, MAGIC, ListedPod, read_pods, read_token
from tidegate.kube.transport.writes import Ref, pod_ref
from tidegate.manifests.clock import read_time_ms
from tidegate.manifests.words import GROUP, GROUP_TOTAL, QUEUE
from tidegate.model.units import UnitError


class PodPhase(IntEnum):
    """How far a pod is in its life."""

    PENDING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3

    @property
    def is_over(self) -> bool:
        """It holds nothing any more."""
        return self >= PodPhase.SUCCEEDED


class GateOwner(IntEnum):
    """What keeps a pod from being scheduled."""

    OPEN = 0
    OURS = 1  # nobody but us
    OTHERS = 2  # somebody else has to let it go first


#: Words of a LeaderWorkerSet that make a group of its pods: whose, which, and of how many.
_SETS = "leaderworkerset.x-k8s.io"
_SET, _SET_GROUP, _SET_SIZE = (f"leaderworkerset.sigs.k8s.io/{word}" for word in ("name", "group-index", "size"))

_LIVES = {"Running": PodPhase.RUNNING, "Succeeded": PodPhase.SUCCEEDED, "Failed": PodPhase.FAILED}


class _Made(msgspec.Struct, rename="camel", frozen=True):
    name: str
    resource_claim_name: str | None = None


class _Status(msgspec.Struct, rename="camel", frozen=True):
    phase: str = ""
    resource_claim_statuses: list[_Made] | None = None


class _Claim(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodObject(msgspec.Struct, frozen=True):
    """A Pod, the fields that are needed."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: _Status = _Status()


class SeenPod(NamedTuple):
    """A pod, as small as it gets: there are a hundred thousand."""

    uid: str
    namespace: str
    name: str
    node: str  # empty: it has none yet
    life: PodPhase
    leaving: bool  # it was told to go
    gate: GateOwner
    started: bool  # we let it go
    queued: bool  # it names a queue
    scheduler: str
    owner: Owner | None  # the one that controls it
    role: str  # which pod set of its job it belongs to, as its labels call it
    group: str
    group_total: int
    created_ms: int
    shape: PodShape
    claims: tuple[str, ...] = ()  # names of its claims for devices; of one that is not made yet, nothing

    @property
    def ref(self) -> Ref:
        """The object."""
        return pod_ref(self.namespace, self.name, self.uid)


def created_ms(meta: Meta) -> int:
    """When an object was made."""
    try:
        return read_time_ms(meta.creation_timestamp)
    except UnitError:
        return 0


def controller(meta: Meta) -> Owner | None:
    """Who controls an object, if anybody does."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


class _Fare(NamedTuple):
    """Where a pod is, and how it fares."""

    node: str
    scheduler: str
    gates: list[str]
    phase: str
    created_ms: int


def see_pod(seen: PodObject, pod_specs: PodSpecCache) -> SeenPod:
    """What a Pod is to us."""
    meta, spec = seen.metadata, seen.spec
    gates = [gate.get("name", "") for gate in spec.scheduling_gates or ()]
    fare = _Fare(spec.node_name, spec.scheduler_name, gates, seen.status.phase, created_ms(meta))
    claims = _claims(seen) if spec.resource_claims != _NONE else ()
    return _see(meta, fare, pod_specs.of(meta, spec), claims)


def _see(meta: Meta, fare: _Fare, shape: PodShape, claims: tuple[str, ...]) -> SeenPod:
    labels, annotations = meta.labels or {}, meta.annotations or {}
    group, total = _group(labels, annotations)
    return SeenPod(
        uid=meta.uid,
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        node=sys.intern(fare.node),
        life=_LIVES.get(fare.phase, PodPhase.PENDING),
        leaving=meta.deletion_timestamp is not None,
        gate=_gate(fare.gates),
        started=BEFORE in annotations,
        queued=bool(labels.get(QUEUE)),
        scheduler=sys.intern(fare.scheduler),
        owner=controller(meta),
        role=next((sys.intern(labels[label].lower()) for label in ROLE_LABELS if label in labels), ""),
        group=group,
        group_total=int(total) if total.isdecimal() and len(total) < 7 else 0,
        created_ms=fare.created_ms,
        shape=shape,
        claims=claims,
    )


class ProtobufPods:
    """Pages of pods in protobuf. Pods of a shape that is not known yet are learnt from one of them, read as JSON."""

    accept, magic = ACCEPT, MAGIC

    def __init__(self, pod_specs: PodSpecCache) -> None:
        self._pod_specs = pod_specs

    def token(self, body: bytes) -> str:
        """The token of the page after this one; empty: there is none."""
        return read_token(body)

    def read(self, body: bytes) -> tuple[ListMeta, list[KeyedPod]] | None:
        """A page; None if it cannot be read, or only as JSON."""
        page = read_pods(body)
        if page is None or any(pod.own.resource_claims for pod in page.items):
            return None
        return page.metadata, [KeyedPod(pod, key_of(pod.metadata, pod.shape)) for pod in page.items]

    def lacking(self, pods: list[KeyedPod]) -> list[KeyedPod]:
        """One pod of each shape that is not known yet."""
        return list({pod.key: pod for pod in pods if self._pod_specs.learnt(pod.key) is None}.values())

    def learn(self, listed: KeyedPod, whole: PodObject) -> bool:
        """Learn a shape from a pod as JSON; False if it has become another since it was listed."""
        mine, now = listed.metadata, whole.metadata
        if (mine.uid, mine.resource_version) != (now.uid, now.resource_version):
            return False
        self._pod_specs.learn(listed.key, self._pod_specs.of(now, whole.spec))
        return True


class KeyedPod(NamedTuple):
    """A listed pod, and what it has in common with those of its shape."""

    pod: ListedPod
    key: Hashable

    @property
    def metadata(self) -> Meta:
        """Who it is."""
        return self.pod.metadata


def see_listed(seen: KeyedPod, pod_specs: PodSpecCache) -> SeenPod:
    """What a pod of a list is to us; its shape is known."""
    pod, shape = seen.pod, pod_specs.learnt(seen.key)
    assert shape is not None
    gates = [gate.name for gate in pod.own.scheduling_gates]
    fare = _Fare(pod.own.node_name, pod.own.scheduler_name, gates, pod.phase, pod.created_ms)
    return _see(pod.metadata, fare, shape, ())


_NONE = msgspec.Raw(b"null")
_CLAIMS = msgspec.json.Decoder(list[_Claim])


def _claims(seen: PodObject) -> tuple[str, ...]:
    """The names of a pod's claims: its own words, or what was made of a template for it."""
    made = {one.name: one.resource_claim_name or "" for one in seen.status.resource_claim_statuses or ()}
    try:
        asked = _CLAIMS.decode(seen.spec.resource_claims)
    except msgspec.ValidationError:
        return ("",)  # as if it was not made yet
    return tuple(one.resource_claim_name or made.get(one.name, "") for one in asked)


def _group(labels: dict[str, str], annotations: dict[str, str]) -> tuple[str, str]:
    """The group that a pod belongs to and how many pods that has, as Kueue or a LeaderWorkerSet says it.

    A LeaderWorkerSet's groups begin with its API group: no label does, so that no other group has the name.
    """
    if labels.get(GROUP):
        return labels[GROUP], annotations.get(GROUP_TOTAL, "")
    if labels.get(_SET) and _SET_GROUP in labels:
        return f"{_SETS}/{labels[_SET]}-{labels[_SET_GROUP]}", annotations.get(_SET_SIZE, "")
    return "", ""


def _gate(gates: list[str]) -> GateOwner:
    if not gates:
        return GateOwner.OPEN
    return GateOwner.OURS if all(gate == GATE for gate in gates) else GateOwner.OTHERS
