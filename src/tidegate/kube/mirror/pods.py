"""Decodes pods, from JSON watches and protobuf lists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from tidegate.kube.mirror.job_adapters import ROLE_LABELS
from tidegate.kube.mirror.job_patch import BEFORE, GATE
from tidegate.kube.mirror.pod_spec_cache import SHAPING, PodShape, PodSpec, PodSpecCache, meaning
from tidegate.kube.transport.objects import KubeObjectMeta, KubeOwnerReference, ListMeta, time_ms
from tidegate.kube.transport.protobuf import (
    ACCEPT,
    MAGIC,
    ListedPod,
    PodKind,
    Words,
    read_kind,
    read_pairs,
    read_pods,
    read_token,
)
from tidegate.kube.transport.writes import Ref, pod_ref
from tidegate.manifests.label_names import GROUP, GROUP_TOTAL, HANDOVER_NOTE, QUEUE


class PodPhase(IntEnum):
    """The phase of a pod."""

    PENDING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and holds nothing."""
        return self >= PodPhase.SUCCEEDED


class GateOwner(IntEnum):
    """Who has to remove scheduling gates from a pod."""

    OPEN = 0
    OURS = 1  # only Tidegate
    OTHERS = 2  # another controller


#: Labels and annotation of a LeaderWorkerSet that make its pods a group: name, index and size.
_SETS = "leaderworkerset.x-k8s.io"
_SET, _SET_GROUP, _SET_SIZE = (f"leaderworkerset.sigs.k8s.io/{word}" for word in ("name", "group-index", "size"))

#: Labels and annotations that are decoded from a list.
_SHARED = SHAPING | {GROUP, GROUP_TOTAL, QUEUE, BEFORE, _SET, _SET_GROUP, _SET_SIZE, *ROLE_LABELS}
_WORDS = Words(frozenset(word.encode() for word in _SHARED), frozenset((HANDOVER_NOTE.encode(),)))

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
    """The needed fields of a Pod."""

    metadata: KubeObjectMeta
    spec: PodSpec = PodSpec()
    status: _Status = _Status()


class PodTraits(NamedTuple):
    """What a pod shares with others of its kind."""

    namespace: str
    gate: GateOwner
    started: bool  # Tidegate started it
    queued: bool  # it names a queue
    scheduler: str
    owner: KubeOwnerReference | None  # its controller
    role: str  # its role label: the pod set of its job
    group: str
    group_total: int


class SeenPod(msgspec.Struct, frozen=True, gc=False):
    """An observed pod, as small as possible, as there are many."""

    uid: str
    name: str
    node: str  # empty: not bound
    life: PodPhase
    terminating: bool  # it is being deleted
    created_ms: int
    traits: PodTraits
    shape: PodShape
    claims: tuple[str, ...] = ()  # names of its ResourceClaims; empty for one that is not created yet

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.traits.namespace

    @property
    def gate(self) -> GateOwner:
        """Who has to remove its scheduling gates."""
        return self.traits.gate

    @property
    def started(self) -> bool:
        """Whether Tidegate started it."""
        return self.traits.started

    @property
    def queued(self) -> bool:
        """Whether it names a queue."""
        return self.traits.queued

    @property
    def scheduler(self) -> str:
        """Its schedulerName."""
        return self.traits.scheduler

    @property
    def owner(self) -> KubeOwnerReference | None:
        """Its controller."""
        return self.traits.owner

    @property
    def group(self) -> str:
        """Its pod group."""
        return self.traits.group

    @property
    def ref(self) -> Ref:
        """The reference."""
        return pod_ref(self.traits.namespace, self.name, self.uid)

    def unmanaged(self) -> UnmanagedPod | None:
        """The pod as an unmanaged one; None if it holds nothing of a node."""
        return UnmanagedPod(self.node, self.shape) if self.node and not self.life.is_over else None

    def is_edited_since(self, before: SeenPod) -> bool:
        """Whether its requests, queue or group changed while it waits. Our own writes do not count."""
        if before.shape is self.shape and before.traits == self.traits:
            return False
        was, names = before.traits, self.traits
        asks = (was.group, was.group_total, was.queued) != (names.group, names.group_total, names.queued)
        return (asks or before.shape.work != self.shape.work) and not (self.node or self.terminating or self.started)


class UnmanagedPod(msgspec.Struct, frozen=True, gc=False):
    """A bound pod that is not managed: there may be more of these than of all others."""

    node: str
    shape: PodShape


def controller(meta: KubeObjectMeta) -> KubeOwnerReference | None:
    """The controller of an object, if it has one."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def see_pod(seen: PodObject, pod_specs: PodSpecCache) -> SeenPod:
    """Decode a pod."""
    meta, spec = seen.metadata, seen.spec
    gates = [gate.get("name", "") for gate in spec.scheduling_gates or ()]
    return SeenPod(
        uid=meta.uid,
        name=meta.name,
        node=sys.intern(spec.node_name),
        life=_LIVES.get(seen.status.phase, PodPhase.PENDING),
        terminating=meta.deletion_timestamp is not None,
        created_ms=time_ms(meta.creation_timestamp),
        traits=_traits(meta, spec.scheduler_name, gates),
        shape=pod_specs.of(meta, spec),
        claims=_claims(seen) if spec.resource_claims != _NONE else (),
    )


def _traits(meta: KubeObjectMeta, scheduler: str, gates: list[str]) -> PodTraits:
    labels, annotations = meta.labels or {}, meta.annotations or {}
    group, total = _group(labels, annotations)
    return PodTraits(
        namespace=sys.intern(meta.namespace),
        gate=_gate(gates),
        started=BEFORE in annotations,
        queued=bool(labels.get(QUEUE)),
        scheduler=sys.intern(scheduler),
        owner=controller(meta),
        role=next((sys.intern(labels[label].lower()) for label in ROLE_LABELS if label in labels), ""),
        group=group,
        group_total=int(total) if total.isdecimal() and len(total) < 7 else 0,
    )


#: Whether pods with these traits are never managed.
Ignores = Callable[[PodTraits], bool]


def ignores_none(traits: PodTraits) -> bool:
    """Ignore no pods."""
    del traits
    return False


class _Kind:
    """A kind of pods in a page: they share everything but their names and nodes."""

    def __init__(self, kind: PodKind, ignores: Ignores) -> None:
        read = read_kind(kind)
        meta = KubeObjectMeta(
            namespace=kind.namespace,
            labels=read.labels,
            annotations=read.annotations,
            owner_references=read.owners,
        )
        self.traits = _traits(meta, read.scheduler, read.gates)
        self.ignored = ignores(self.traits)
        self.claims = read.claims
        shaping = (tuple(meaning(pairs).items()) for pairs in (read.labels, read.annotations))
        self.key: Hashable = (kind.namespace, *shaping, read.shape)  # the key of its shape
        self.shape: PodShape | None = None


class ProtobufPods:
    """Decodes pages of pods in protobuf; an unknown shape is learnt from one pod, read as JSON."""

    accept, magic = ACCEPT, MAGIC

    def __init__(self, pod_specs: PodSpecCache, ignores: Ignores = ignores_none) -> None:
        self._pod_specs, self._ignores = pod_specs, ignores

    def token(self, body: bytes) -> str:
        """The continue token of the page; empty: it is the last."""
        return read_token(body)

    def read(self, body: bytes) -> tuple[ListMeta, list[ListedPod]] | None:
        """Decode a page; None if it has to be read as JSON."""
        page = read_pods(body, _WORDS, lambda kind: _Kind(kind, self._ignores))
        if page is None or any(kind.claims for kind in page.kinds):
            return None
        for kind in page.kinds:
            kind.shape = self._pod_specs.learnt(kind.key)
        return page.metadata, page.items

    def lacking(self, pods: list[ListedPod]) -> list[ListedPod]:
        """One pod of each unknown shape."""
        return list({pod.kind.key: pod for pod in pods if pod.kind.shape is None}.values())

    def learn(self, listed: ListedPod, whole: PodObject) -> bool:
        """Learn a shape from a pod read as JSON; False if it changed since it was listed."""
        mine, now = listed.metadata, whole.metadata
        if (mine.uid, mine.resource_version) != (now.uid, now.resource_version):
            return False
        listed.kind.shape = self._pod_specs.of(now, whole.spec)
        self._pod_specs.learn(listed.kind.key, listed.kind.shape)
        return True


def see_listed(seen: ListedPod, pod_specs: PodSpecCache) -> SeenPod | UnmanagedPod:
    """Decode a listed pod, whose shape is known."""
    kind, node = seen.kind, sys.intern(seen.node)
    shape = kind.shape
    if shape is None:  # learnt from another kind of the same shape
        shape = kind.shape = pod_specs.learnt(kind.key)
    life = _LIVES.get(seen.phase, PodPhase.PENDING)
    if kind.ignored and node and not life.is_over:
        return UnmanagedPod(node, shape)
    meta = seen.metadata
    return SeenPod(meta.uid, meta.name, node, life, seen.terminating, seen.created_ms, kind.traits, shape)


def note_in(seen: ListedPod) -> str:
    """The handover annotation of a listed pod; empty if it has none."""
    return read_pairs(seen.marks).get(HANDOVER_NOTE, "") if seen.marks else ""


_NONE = msgspec.Raw(b"null")
_CLAIMS = msgspec.json.Decoder(list[_Claim])


def _claims(seen: PodObject) -> tuple[str, ...]:
    """The names of a pod's ResourceClaims, from its spec or created from templates."""
    made = {one.name: one.resource_claim_name or "" for one in seen.status.resource_claim_statuses or ()}
    try:
        asked = _CLAIMS.decode(seen.spec.resource_claims)
    except msgspec.ValidationError:
        return ("",)  # as if it was not created yet
    return tuple(one.resource_claim_name or made.get(one.name, "") for one in asked)


def _group(labels: dict[str, str], annotations: dict[str, str]) -> tuple[str, str]:
    """The group of a pod and its size, by the labels of Kueue or of a LeaderWorkerSet.

    Names of a LeaderWorkerSet's groups begin with its API group, so that they are unique.
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
