"""Decodes Node objects into the model."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.kube.transport.objects import KubeObjectMeta
from tidegate.manifests.core_objects import SHAPE_LABELS, read_node
from tidegate.manifests.field_reader import Item
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.model.hardware import Node
from tidegate.model.struct import labels

#: Most distinct nodes in the cache.
_MOST_KEPT = 4_096


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Spec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: list[dict[str, Any]] | None = None


class _Status(msgspec.Struct, frozen=True):
    allocatable: dict[str, str | int] = {}
    conditions: list[_Condition] = []


class NodeObject(msgspec.Struct, frozen=True):
    """The needed fields of a Node."""

    metadata: KubeObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def read_node_object(seen: NodeObject) -> Node:
    """Decode a Node; one that is being deleted counts as cordoned."""
    meta, spec = seen.metadata, seen.spec
    value = {
        "metadata": {"name": meta.name, "labels": meta.labels or {}},
        "spec": {"unschedulable": spec.unschedulable or meta.deletion_timestamp is not None, "taints": spec.taints},
        "status": {
            "allocatable": seen.status.allocatable,
            "conditions": [{"type": one.type, "status": one.status} for one in seen.status.conditions],
        },
    }
    return read_node(Item(value, ManifestFindings(0), ObjectOrigin(kind="Node", name=meta.name)))


class NodeReader:
    """Decodes nodes, those that differ in name and labels only once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Node] = {}

    def read(self, seen: NodeObject) -> Node:
        """Decode a Node."""
        meta = seen.metadata
        found = meta.labels or {}
        going = meta.deletion_timestamp is not None
        key = msgspec.json.encode((seen.spec, seen.status, going, [found.get(label) for label in SHAPE_LABELS]))
        like = self._known.get(key)
        if like is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[key] = like = read_node_object(seen)
        return msgspec.structs.replace(like, name=meta.name, labels=labels(found))
