"""Pods as the API server has them: who they are, where they are, how they fare, and what they ask for."""

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
from tidegate.manifests.label_names import GROUP, GROUP_TOTAL, QUEUE, STANDING


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

#: Words of a pod that are wanted of a list.
_SHARED = SHAPING | {GROUP, GROUP_TOTAL, QUEUE, BEFORE, _SET, _SET_GROUP, _SET_SIZE, *ROLE_LABELS}
_WORDS = Words(frozenset(word.encode() for word in _SHARED), frozenset((STANDING.encode(),)))

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

    metadata: KubeObjectMeta
    spec: PodSpec = PodSpec()
    status: _Status = _Status()


class PodTraits(NamedTuple):
    """What a pod has in common with others of its kind."""

    namespace: str
    gate: GateOwner
    started: bool  # we let it go
    queued: bool  # it names a queue
    scheduler: str
    owner: KubeOwnerReference | None  # the one that controls it
    role: str  # which pod set of its job it belongs to, as its labels call it
    group: str
    group_total: int


class SeenPod(msgspec.Struct, frozen=True, gc=False):
    """A pod, as small as it gets: there are a hundred thousand."""

    uid: str
    name: str
    node: str  # empty: it has none yet
    life: PodPhase
    terminating: bool  # it was told to go
    created_ms: int
    traits: PodTraits
    shape: PodShape
    claims: tuple[str, ...] = ()  # names of its claims for devices; of one that is not made yet, nothing

    @property
    def namespace(self) -> str:
        """The path of the object, or of a subresource."""
        return self.traits.namespace

    @property
    def gate(self) -> GateOwner:
        """What keeps it from being scheduled."""
        return self.traits.gate

    @property
    def started(self) -> bool:
        """Whether we let it go."""
        return self.traits.started

    @property
    def queued(self) -> bool:
        """Whether it names a queue."""
        return self.traits.queued

    @property
    def scheduler(self) -> str:
        """Who schedules it."""
        return self.traits.scheduler

    @property
    def owner(self) -> KubeOwnerReference | None:
        """Who controls it."""
        return self.traits.owner

    @property
    def group(self) -> str:
        """The group that it says it belongs to."""
        return self.traits.group

    @property
    def ref(self) -> Ref:
        """The object."""
        return pod_ref(self.traits.namespace, self.name, self.uid)

    def unmanaged(self) -> UnmanagedPod | None:
        """What it is to us if it is somebody else's; None: it holds nothing of a node."""
        return UnmanagedPod(self.node, self.shape) if self.node and not self.life.is_over else None

    def is_edited_since(self, before: SeenPod) -> bool:
        """Whether its requests, queue or group changed while it waits. Our own writes do not count."""
        if before.shape is self.shape and before.traits == self.traits:
            return False
        was, names = before.traits, self.traits
        asks = (was.group, was.group_total, was.queued) != (names.group, names.group_total, names.queued)
        return (asks or before.shape.work != self.shape.work) and not (self.node or self.terminating or self.started)


class UnmanagedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that is not ours, on a node: there may be more of these than of all others."""

    node: str
    shape: PodShape


def controller(meta: KubeObjectMeta) -> KubeOwnerReference | None:
    """Who controls an object, if anybody does."""
    return next((owner for owner in meta.owner_references or () if owner.controller), None)


def see_pod(seen: PodObject, pod_specs: PodSpecCache) -> SeenPod:
    """What a Pod is to us."""
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


#: Whether pods with these traits can never be ours.
Ignores = Callable[[PodTraits], bool]


def ignores_none(traits: PodTraits) -> bool:
    """Look at all pods as if they could be ours."""
    del traits
    return False


class _Kind:
    """Pods of a page that have all but themselves in common."""

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
        self.key: Hashable = (kind.namespace, *shaping, read.shape)  # by which its shape is known
        self.shape: PodShape | None = None


class ProtobufPods:
    """Pages of pods in protobuf. Pods of a shape that is not known yet are learnt from one of them, read as JSON."""

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
        """One pod of each shape that is not known yet."""
        return list({pod.kind.key: pod for pod in pods if pod.kind.shape is None}.values())

    def learn(self, listed: ListedPod, whole: PodObject) -> bool:
        """Learn a shape from a pod as JSON; False if it has become another since it was listed."""
        mine, now = listed.metadata, whole.metadata
        if (mine.uid, mine.resource_version) != (now.uid, now.resource_version):
            return False
        listed.kind.shape = self._pod_specs.of(now, whole.spec)
        self._pod_specs.learn(listed.kind.key, listed.kind.shape)
        return True


def see_listed(seen: ListedPod, pod_specs: PodSpecCache) -> SeenPod | UnmanagedPod:
    """What a pod of a list is to us; its shape is known."""
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
    """What a leader before us left with a pod of a list; empty: nothing."""
    return read_pairs(seen.marks).get(STANDING, "") if seen.marks else ""


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
