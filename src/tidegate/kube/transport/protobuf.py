"""Pod lists in protobuf: less work for the server and the client than JSON.

Only needed fields are declared. What pods of a kind share stays bytes and is decoded once for all of them; their shape
is learnt from one pod that is read as JSON. Field numbers are those of `k8s.io/api`, which never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import msgspec
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tidegate.kube.transport.objects import KubeObjectMeta, KubeOwnerReference, ListMeta

#: The Accept header: servers without protobuf answer in JSON.
ACCEPT = "application/vnd.kubernetes.protobuf, application/json"

#: The first bytes of a protobuf response.
MAGIC = b"k8s\x00"

_TEXT, _BYTES, _INT, _BOOL, _MESSAGE = (
    Field.TYPE_STRING,
    Field.TYPE_BYTES,
    Field.TYPE_INT64,
    Field.TYPE_BOOL,
    Field.TYPE_MESSAGE,
)

#: Messages with the needed fields: name, number, type or message; `*`: repeated.
_MESSAGES: dict[str, tuple[tuple[str, int, Field.Type.ValueType | str], ...]] = {
    "Time": (("seconds", 1, _INT),),
    "Pair": (("key", 1, _TEXT), ("value", 2, _TEXT)),
    "Owner": (
        ("kind", 1, _TEXT),
        ("name", 3, _TEXT),
        ("uid", 4, _TEXT),
        ("api_version", 5, _TEXT),
        ("controller", 6, _BOOL),
    ),
    "Meta": (
        ("name", 1, _TEXT),
        ("namespace", 3, _TEXT),
        ("uid", 5, _TEXT),
        ("resource_version", 6, _TEXT),
        ("created", 8, "Time"),
        ("deleted", 9, _BYTES),
        ("labels*", 11, _BYTES),
        ("annotations*", 12, _BYTES),
        ("owners*", 13, _BYTES),
    ),
    "Container": (("ports*", 6, _BYTES), ("resources", 8, _BYTES), ("restart_policy", 24, _TEXT)),
    "Volume": (("source", 2, _BYTES),),
    "Gate": (("name", 1, _TEXT),),
    "Spec": (
        ("volumes*", 1, "Volume"),
        ("containers*", 2, "Container"),
        ("node_selector*", 7, _BYTES),
        ("node_name", 10, _TEXT),
        ("affinity", 18, "Affinity"),
        ("scheduler_name", 19, _TEXT),
        ("init_containers*", 20, "Container"),
        ("tolerations*", 22, _BYTES),
        ("priority", 25, _INT),
        ("overhead*", 32, _BYTES),
        ("topology_spread_constraints*", 33, _BYTES),
        ("scheduling_gates*", 38, "Gate"),
        ("resource_claims*", 39, _BYTES),
        ("resources", 40, _BYTES),
        ("scheduling_group", 43, _BYTES),
    ),
    # An affinity without the values of node fields: pods of a DaemonSet differ in them only.
    "NodeField": (("key", 1, _TEXT), ("operator", 2, _TEXT)),
    "Term": (("expressions*", 1, _BYTES), ("fields*", 2, "NodeField")),
    "Terms": (("terms*", 1, "Term"),),
    "Preference": (("weight", 1, _INT), ("term", 2, "Term")),
    "NodeAffinity": (("required", 1, "Terms"), ("preferred*", 2, "Preference")),
    "Affinity": (("node", 1, "NodeAffinity"), ("pod", 2, _BYTES), ("pod_anti", 3, _BYTES)),
    "Status": (("phase", 1, _TEXT),),
    "Pod": (("metadata", 1, "Meta"), ("spec", 2, "Spec"), ("status", 3, "Status")),
    "ListMeta": (("resource_version", 2, _TEXT), ("token", 3, _TEXT)),
    "PodList": (("metadata", 1, "ListMeta"), ("items*", 2, "Pod")),
}


class PodKind(NamedTuple):
    """What pods of a kind share, as bytes that are decoded once for all of them."""

    namespace: str
    labels: tuple[bytes, ...]  # that are wanted
    annotations: tuple[bytes, ...]
    owners: tuple[bytes, ...]
    spec: bytes


class ListedPod(msgspec.Struct):
    """A pod of a list."""

    metadata: KubeObjectMeta  # name, namespace, uid and version only
    node: str
    phase: str
    terminating: bool
    created_ms: int
    marks: tuple[bytes, ...]  # wanted annotations that each pod has for itself
    kind: Any  # the decoded kind


class ReadKind(NamedTuple):
    """A decoded kind of pods."""

    labels: dict[str, str]
    annotations: dict[str, str]
    owners: tuple[KubeOwnerReference, ...]
    scheduler: str
    gates: list[str]
    claims: bool  # it claims devices
    shape: tuple[bytes, frozenset[int]]  # the fields that decide its requests, apart from labels and annotations


class Words(NamedTuple):
    """Wanted labels and annotations: those that pods of a kind share, and those of each pod."""

    shared: AbstractSet[bytes]
    own: AbstractSet[bytes]


class PodPage(NamedTuple):
    """A page of a list of pods."""

    metadata: ListMeta
    items: list[ListedPod]
    kinds: list[Any]  # the decoded kinds


def read_pods(body: bytes, words: Words, make: Callable[[PodKind], Any]) -> PodPage | None:
    """Decode a page of pods and their kinds; None if it cannot be decoded."""
    try:
        page = _PAGE.FromString(bytes(_raw(body)))
        page.DiscardUnknownFields()
        kinds = _Kinds(words, make)
        items = [_listed(pod, words, kinds) for pod in page.items]
    except (DecodeError, IndexError, UnicodeDecodeError):
        return None
    return PodPage(ListMeta(page.metadata.resource_version, page.metadata.token), items, list(kinds.made.values()))


def read_token(body: bytes) -> str:
    """The continue token of a page, without decoding the rest; empty: it is the last page."""
    try:
        raw = _raw(body)
        (size, at) = _varint(raw, 1)
        return str(_LIST_META.FromString(bytes(raw[at : at + size])).token) if raw[0] == _FIRST else ""
    except (DecodeError, IndexError):
        return ""


class _Kinds:
    """The kinds of the pods of a page.

    Pods with the same bytes are of one kind, and comparing bytes is faster than decoding labels. So labels are decoded
    only for bytes that are new: pods of a kind may differ in labels that are not wanted.
    """

    def __init__(self, words: Words, make: Callable[[PodKind], Any]) -> None:
        self._words, self._make = words, make
        self._known: dict[tuple[tuple[bytes, ...], bytes, bytes], Any] = {}
        self.made: dict[PodKind, Any] = {}

    def of(self, annotations: tuple[bytes, ...], meta: Any, spec: Any) -> Any:
        """The kind of a pod with these annotations and remaining metadata and spec."""
        key = (annotations, meta.SerializeToString(), spec.SerializeToString())
        if key not in self._known:
            labels = _pairs(meta.labels, self._words.shared)
            kind = PodKind(meta.namespace, labels, annotations, tuple(meta.owners), key[2])
            if kind not in self.made:
                self.made[kind] = self._make(kind)
            self._known[key] = self.made[kind]
        return self._known[key]


def _pairs(pairs: Iterable[bytes], words: AbstractSet[bytes]) -> tuple[bytes, ...]:
    """The pairs with wanted keys; the key comes first and is shorter than 128 bytes."""
    return tuple([pair for pair in pairs if pair[2 : 2 + pair[1]] in words])


def _listed(pod: Any, words: Words, kinds: _Kinds) -> ListedPod:
    """Decode a pod; what remains after clearing its own fields identifies its kind."""
    meta, spec, own, shared = pod.metadata, pod.spec, _NO_PAIRS, _NO_PAIRS
    who = KubeObjectMeta(meta.name, meta.uid, meta.namespace, meta.resource_version)
    node, terminating, created_ms = spec.node_name, meta.HasField("deleted"), meta.created.seconds * 1000
    if meta.annotations:
        annotations = list(meta.annotations)
        own, shared = _pairs(annotations, words.own), _pairs(annotations, words.shared)
    clear = meta.ClearField
    for field in _OF_ONE:
        clear(field)
    spec.ClearField("node_name")
    kind = kinds.of(shared, meta, spec)
    return ListedPod(who, node, pod.status.phase, terminating, created_ms, own, kind)


def read_kind(kind: PodKind) -> ReadKind:
    """Decode what pods of a kind share."""
    spec = _SPEC.FromString(kind.spec)
    scheduler, gates, claims = spec.scheduler_name, [gate.name for gate in spec.scheduling_gates], spec.resource_claims
    volumes = frozenset(_first_number(volume.source) for volume in spec.volumes)
    for field in _NO_SHAPE:
        spec.ClearField(field)
    return ReadKind(
        read_pairs(kind.labels),
        read_pairs(kind.annotations),
        tuple(_owner(raw) for raw in kind.owners),
        scheduler,
        gates,
        bool(claims),
        (spec.SerializeToString(), volumes),
    )


def read_pairs(raw: tuple[bytes, ...]) -> dict[str, str]:
    """Labels or annotations."""
    pairs = (_PAIR.FromString(one) for one in raw)
    return {pair.key: pair.value for pair in pairs}


def _owner(raw: bytes) -> KubeOwnerReference:
    one = _OWNER.FromString(raw)
    return KubeOwnerReference(one.kind, one.name, one.uid, one.controller, one.api_version)


# -- bytes -------------------------------------------------------------------------------------------------------

#: Fields of a pod's metadata that differ from pod to pod.
_OF_ONE = ("name", "uid", "resource_version", "created", "deleted", "annotations")

_NO_PAIRS: tuple[bytes, ...] = ()

#: Fields of a spec that do not decide the shape as they are.
_NO_SHAPE = ("volumes", "scheduler_name", "scheduling_gates", "resource_claims")

#: Tags of messages in the first and second field.
_FIRST, _SECOND = 0x0A, 0x12


def _raw(body: bytes) -> memoryview:
    """The object in the envelope, after its type."""
    view, at = memoryview(body), len(MAGIC)
    while view[at] != _SECOND:
        size, at = _varint(view, at + 1)
        at += size
    size, at = _varint(view, at + 1)
    return view[at : at + size]


def _varint(view: memoryview | bytes, at: int) -> tuple[int, int]:
    """Decode a varint; the number, and where it ends."""
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # the highest bit: more follows
            return value, at


def _first_number(message: bytes) -> int:
    """The number of the first field of a message; 0 if it is empty."""
    return _varint(message, 0)[0] >> 3 if message else 0


def _messages() -> dict[str, Any]:
    file = FileDescriptorProto(name="tidegate_pods.proto", package="tidegate", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            many = field.endswith("*")
            added = message.field.add(
                name=field.rstrip("*"), number=number, label=Field.LABEL_REPEATED if many else Field.LABEL_OPTIONAL
            )
            if isinstance(kind, str):
                added.type, added.type_name = _MESSAGE, f".tidegate.{kind}"
            else:
                added.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"tidegate.{name}")) for name in _MESSAGES}


_MADE = _messages()
_PAGE, _LIST_META, _SPEC, _PAIR, _OWNER = (_MADE[name] for name in ("PodList", "ListMeta", "Spec", "Pair", "Owner"))
