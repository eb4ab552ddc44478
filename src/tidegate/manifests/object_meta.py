"""Metadata of an object: name, namespace, labels, annotations, age and owners."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import ANYTHING, FieldSchema, merged, schema

META = schema(
    "name namespace generateName creationTimestamp uid",
    idle="deletionGracePeriodSeconds deletionTimestamp finalizers generation managedFields resourceVersion selfLink",
    labels=ANYTHING,
    annotations=ANYTHING,
    ownerReferences=schema("apiVersion kind name uid controller", idle="blockOwnerDeletion"),
)

#: Of a pod template only labels and annotations matter.
TEMPLATE_META = schema(
    idle="name namespace generateName creationTimestamp finalizers deletionGracePeriodSeconds deletionTimestamp "
    "generation managedFields ownerReferences resourceVersion selfLink uid",
    labels=ANYTHING,
    annotations=ANYTHING,
)


class OwnerRef(NamedTuple):
    """An owner reference."""

    group: str  # empty: the core group
    kind: str
    name: str


class ManifestMeta(NamedTuple):
    """Metadata of an object."""

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    created_ms: int
    owners: tuple[OwnerRef, ...]
    generated: bool  # the name is only the beginning of one

    @property
    def id(self) -> str:
        """The name with its namespace."""
        return f"{self.namespace}/{self.name}"

    def word(self, key: str) -> str:
        """The value of a label, or of the annotation if there is no such label."""
        return self.labels.get(key) or self.annotations.get(key, "")


def object_schema(
    spec: FieldSchema | None = None, status: FieldSchema | None = None, *, top: str = "", idle: str = ""
) -> FieldSchema:
    """The schema of a whole object; `top` are fields next to its metadata, and status is idle unless given."""
    whole = schema(f"apiVersion kind {top}", idle=idle, metadata=META)
    if spec is None:
        return whole
    return merged(whole, schema(spec=spec), schema(idle="status") if status is None else schema(status=status))


def api_group(item: Item) -> str:
    """The API group of an object or of a reference to one; empty: the core group."""
    group, slash, _ = item.text("apiVersion").rpartition("/")
    return group if slash else ""


def read_meta(item: Item, namespace: str = "") -> ManifestMeta:
    """Read the metadata of an object; without a namespace of its own it is in the given one."""
    inner = item.mapping("metadata")
    name, generated = inner.text("name"), inner.text("generateName")
    if not (inner.get("name") or inner.get("generateName")):
        inner.report("name", found="required field is missing")
    owners = inner.items("ownerReferences")
    return ManifestMeta(
        name=name or generated.rstrip("-"),
        namespace=inner.text("namespace") or namespace,
        labels=inner.pairs("labels"),
        annotations=inner.pairs("annotations"),
        created_ms=inner.time_ms("creationTimestamp"),
        owners=tuple(OwnerRef(api_group(owner), owner.text("kind"), owner.text("name")) for owner in owners),
        generated=not name,
    )
