"""Pods of a list as Kubernetes writes them for itself: less work for the server, and for us, than JSON.

Only the fields that are needed are named; of what decides a pod's shape the bytes are enough, as pods of one shape have
the same. What bytes mean is learnt from one such pod, read as JSON. Field numbers are those of `k8s.io/api`, which
never change.
Must not know: what pods mean.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tidegate.kube.transport.objects import ListMeta, Meta, Owner

#: What is asked for: servers that do not have it answer in JSON.
ACCEPT = "application/vnd.kubernetes.protobuf, application/json"

#: What such an answer begins with.
MAGIC = b"k8s\x00"

_TEXT, _BYTES, _INT, _BOOL, _MESSAGE = (
    Field.TYPE_STRING,
    Field.TYPE_BYTES,
    Field.TYPE_INT64,
    Field.TYPE_BOOL,
    Field.TYPE_MESSAGE,
)

#: Messages with the fields that are needed: name, number, type or message; `*`: any number of them.
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
        ("generation", 7, _INT),
        ("created", 8, "Time"),
        ("deleted", 9, "Time"),
        ("labels*", 11, "Pair"),
        ("annotations*", 12, "Pair"),
        ("owners*", 13, "Owner"),
    ),
    "Container": (("ports*", 6, _BYTES), ("resources", 8, _BYTES), ("restart_policy", 24, _TEXT)),
    "Volume": (("source", 2, _BYTES),),
    "Gate": (("name", 1, _TEXT),),
    # A pod's spec, by what differs from pod to pod, and by what decides its shape.
    "Own": (
        ("volumes*", 1, "Volume"),
        ("node_name", 10, _TEXT),
        ("scheduler_name", 19, _TEXT),
        ("scheduling_gates*", 38, "Gate"),
        ("resource_claims*", 39, _BYTES),
    ),
    "Shape": (
        ("containers*", 2, "Container"),
        ("node_selector*", 7, _BYTES),
        ("affinity", 18, _BYTES),
        ("init_containers*", 20, "Container"),
        ("tolerations*", 22, _BYTES),
        ("priority", 25, _INT),
        ("overhead*", 32, _BYTES),
        ("topology_spread_constraints*", 33, _BYTES),
        ("resources", 40, _BYTES),
        ("scheduling_group", 43, _BYTES),
    ),
    # Of an affinity, how nodes are chosen by a field; the rest is kept as it is.
    "Field": (("key", 1, _TEXT), ("values*", 3, _TEXT)),
    "Term": (("fields*", 2, "Field"),),
    "Terms": (("terms*", 1, "Term"),),
    "Preference": (("term", 2, "Term"),),
    "ByNode": (("required", 1, "Terms"), ("preferred*", 2, "Preference")),
    "Affinity": (("by_node", 1, "ByNode"),),
    "Status": (("phase", 1, _TEXT),),
    "Pod": (("metadata", 1, "Meta"), ("spec", 2, _BYTES), ("status", 3, "Status")),
    "ListMeta": (("resource_version", 2, _TEXT), ("token", 3, _TEXT)),
    "PodList": (("metadata", 1, "ListMeta"), ("items*", 2, "Pod")),
}


class ListedPod(NamedTuple):
    """A pod of a list."""

    metadata: Meta
    own: Any  # node_name, scheduler_name, scheduling_gates, resource_claims
    shape: Hashable  # what decides what it asks for, but for its labels and annotations
    phase: str
    created_ms: int


class PodPage(NamedTuple):
    """A page of a list of pods."""

    metadata: ListMeta
    items: list[ListedPod]


def read_pods(body: bytes) -> PodPage | None:
    """A page of pods; None: it is not what it should be."""
    try:
        page = _PAGE.FromString(bytes(_raw(body)))
    except (DecodeError, IndexError):
        return None
    return PodPage(ListMeta(page.metadata.resource_version, page.metadata.token), [_listed(pod) for pod in page.items])


def read_token(body: bytes) -> str:
    """The token of the page after this one, without reading the rest; empty: there is none."""
    try:
        raw = _raw(body)
        (size, at) = _varint(raw, 1)
        return str(_LIST_META.FromString(bytes(raw[at : at + size])).token) if raw[0] == _FIRST else ""
    except (DecodeError, IndexError):
        return ""


def _listed(pod: Any) -> ListedPod:
    meta, own = pod.metadata, _OWN.FromString(pod.spec)
    labels = {pair.key: pair.value for pair in meta.labels}
    annotations = {pair.key: pair.value for pair in meta.annotations}
    told = Meta(
        name=meta.name,
        uid=meta.uid,
        namespace=meta.namespace,
        resource_version=meta.resource_version,
        generation=meta.generation,
        deletion_timestamp="" if meta.HasField("deleted") else None,
        labels=labels,
        annotations=annotations,
        owner_references=tuple(
            Owner(one.kind, one.name, one.uid, one.controller, one.api_version) for one in meta.owners
        ),
    )
    return ListedPod(told, own, _shape(pod.spec, own), pod.status.phase, meta.created.seconds * 1000)


def _shape(spec: bytes, own: Any) -> Hashable:
    """The fields that decide a shape and no others; of volumes only what kinds there are."""
    shape = _SHAPE.FromString(spec)
    shape.DiscardUnknownFields()
    if _NODE_FIELD in shape.affinity:
        shape.affinity = _for_any_node(shape.affinity)
    return shape.SerializeToString(), frozenset(_first_number(volume.source) for volume in own.volumes)


def _for_any_node(affinity: bytes) -> bytes:
    """An affinity without the name of the node that a pod is meant for: pods of a DaemonSet differ in nothing else."""
    read = _AFFINITY.FromString(affinity)
    by_node = read.by_node
    for term in (*by_node.required.terms, *(one.term for one in by_node.preferred)):
        for field in term.fields:
            del field.values[:]
    return bytes(read.SerializeToString())


# -- bytes -------------------------------------------------------------------------------------------------------

#: The field by which a node is chosen.
_NODE_FIELD = b"metadata.name"

#: Tags of messages in the first and second field.
_FIRST, _SECOND = 0x0A, 0x12


def _raw(body: bytes) -> memoryview:
    """What is in the envelope: a type, then the object."""
    view, at = memoryview(body), len(MAGIC)
    while view[at] != _SECOND:
        size, at = _varint(view, at + 1)
        at += size
    size, at = _varint(view, at + 1)
    return view[at : at + size]


def _varint(view: memoryview | bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while True:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # the highest bit: more follows
            return value, at


def _first_number(message: bytes) -> int:
    """The number of a message's first field; 0: it has none."""
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
_PAGE, _LIST_META, _OWN, _SHAPE, _AFFINITY = (
    _MADE[name] for name in ("PodList", "ListMeta", "Own", "Shape", "Affinity")
)
