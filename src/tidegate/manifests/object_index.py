"""Indexes objects by kind: splits Lists, checks kinds and versions, reports duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from tidegate.config.messages import did_you_mean
from tidegate.manifests.field_reader import Item
from tidegate.manifests.field_support import check_fields
from tidegate.manifests.findings import ManifestFindings, ObjectOrigin
from tidegate.manifests.kinds import IGNORED_GROUPS, IGNORED_KINDS, KINDS, KUEUE, REFUSED_KINDS, GroupKind
from tidegate.manifests.kueue_validation import validate_object
from tidegate.manifests.label_names import IGNORE
from tidegate.manifests.object_meta import api_group
from tidegate.manifests.yunikorn import is_queues_file
from tidegate.model.problem import Path, found_text

#: Namespace of objects that name none.
DEFAULT_NAMESPACE = "default"

#: Keys of a ConfigMap whose text is YAML that is read.
_EMBEDDED = ("queues.yaml", "controller_manager_config.yaml")


class ManifestDocument(NamedTuple):
    """A document of a file, as plain data."""

    value: Any
    file: str = ""
    number: int = 0  # in the file, counted from 1
    within: Path = ()  # where in the file's document it stands, if it is text inside of one


class ObjectIndex:
    """Objects by their kind, in the order they were found."""

    def __init__(self) -> None:
        self.by_key: dict[GroupKind, list[Item]] = {}
        self.queue_files: list[Item] = []  # of YuniKorn
        self.unread: dict[GroupKind, set[str]] = {}  # names of those that are there and cannot be read

    def of(self, group: str, kind: str) -> list[Item]:
        """The objects of one kind."""
        return self.by_key.get((group, kind), [])

    def names(self, group: str, kind: str) -> set[str]:
        """The names of one kind, of those that cannot be read too."""
        return {item.origin.name for item in self.of(group, kind)} | self.unread.get((group, kind), set())

    def jobs(self) -> Iterator[tuple[GroupKind, Item]]:
        """The objects that are work, pods aside."""
        for key, items in self.by_key.items():
            if KINDS[key].job is not None and key != ("", "Pod"):
                for item in items:
                    yield key, item


def take(
    value: Any, kind: str, findings: ManifestFindings, *, group: str = KUEUE, origin: ObjectOrigin | None = None
) -> Item:
    """An object whose kind is known without its saying so, ready to be read; unknown fields are named."""
    item = Item(value, findings, origin or ObjectOrigin(kind=kind))
    check_fields(item, KINDS[group, kind].form)
    return item


def embedded(value: object) -> list[tuple[Path, str]]:
    """Texts in a ConfigMap that are YAML to be read, with where they stand."""
    if not isinstance(value, dict) or value.get("kind") != "ConfigMap" or not isinstance(value.get("data"), dict):
        return []
    found = value["data"]
    return [(("data", key), found[key]) for key in _EMBEDDED if isinstance(found.get(key), str)]


def index_objects(documents: Iterable[ManifestDocument], findings: ManifestFindings) -> ObjectIndex:
    """Index the objects of documents by kind; objects that cannot be read are reported."""
    objects = ObjectIndex()
    first: dict[tuple[GroupKind, str], ObjectOrigin] = {}
    for document in documents:
        for item in _expanded(document, findings):
            _sort(item, objects, first)
    return objects


def _expanded(document: ManifestDocument, findings: ManifestFindings) -> Iterator[Item]:
    """The objects of a document: one, those of a List, or none if it is empty."""
    origin = ObjectOrigin(file=document.file, document=document.number, within=document.within)
    whole = Item(document.value, findings, origin)
    if document.value is None:
        return
    if not isinstance(document.value, dict):
        hint = "separate documents by a line of ---" if isinstance(document.value, list) else ""
        whole.report("", expected="a Kubernetes object: a mapping", found=found_text(document.value), hint=hint)
        return
    kind = whole.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in whole):
        yield whole
        return
    for item in whole.items("items"):
        typed = {"apiVersion": whole.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
        yield Item({**typed, **item.value}, findings, origin, item.path)


def _sort(item: Item, objects: ObjectIndex, first: dict[tuple[GroupKind, str], ObjectOrigin]) -> None:
    if is_queues_file(item.value):
        named = msgspec.structs.replace(item.origin, kind="queues.yaml")
        objects.queue_files.append(Item(item.value, item.findings, named, item.path))
        return
    if not _is_object(item):
        return
    key = _key(item)
    item = _named(item, key)
    if _is_ignored(item) or not _is_read(item, key):
        objects.unread.setdefault(key, set()).add(item.origin.name)
        return
    known = KINDS[key]
    again = first.setdefault((key, item.origin.name), item.origin)
    if again is not item.origin and item.mapping("metadata").text("name"):
        place = f"{again.file}, document {again.document}" if again.document else "before"
        item.mapping("metadata").report("name", expected="a name of its own", found=f"the same as in {place}")
        return
    check_fields(item, known.form)
    validate_object(key, item)
    objects.by_key.setdefault(key, []).append(item)


def _is_object(item: Item) -> bool:
    if "apiVersion" in item and "kind" in item:
        return bool(item.text("apiVersion")) and bool(item.text("kind"))
    if item.get("version") == "v1" and ("mig-configs" in item or "sharing" in item or "flags" in item):
        what = "mig-parted" if "mig-configs" in item else "the device plugin"
        item.warn("", f"is not read: a configuration of {what}; how nodes are set up is not read from it")
        return False
    missing = "kind" if "apiVersion" in item else "apiVersion"
    item.report(
        missing, found="required field is missing: not a Kubernetes object", hint="add it, or move the file away"
    )
    return False


def _key(item: Item) -> GroupKind:
    return api_group(item), item.text("kind")


def _named(item: Item, key: GroupKind) -> Item:
    """The object, with its kind and name in its origin."""
    meta = item.get("metadata")
    found = meta if isinstance(meta, dict) else {}
    name = found.get("name") or found.get("generateName") or ""
    if key in KINDS and KINDS[key].namespaced:
        name = f"{found.get('namespace') or DEFAULT_NAMESPACE}/{name}"
    origin = msgspec.structs.replace(item.origin, kind=key[1], name=str(name))
    return Item(item.value, item.findings, origin, item.path)


def _is_ignored(item: Item) -> bool:
    meta = item.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    if not isinstance(annotations, dict) or annotations.get(IGNORE) != "true":
        return False
    item.note("", f"is not read: its annotation {IGNORE} says so")
    return True


def _is_read(item: Item, key: GroupKind) -> bool:
    """Whether it is of a kind and version that is read; the findings say why not."""
    group, kind = key
    version = item.text("apiVersion").rpartition("/")[2]
    if key in KINDS:
        if version not in KINDS[key].versions:
            known = " or ".join(f"{group}/{name}" if group else name for name in KINDS[key].versions)
            item.refuse("apiVersion", known, item.text("apiVersion"))
        return version in KINDS[key].versions
    if key in REFUSED_KINDS:
        why, _, remedy = REFUSED_KINDS[key].partition("; ")
        item.report("kind", found=f"{kind} is refused: {why}", hint=remedy)
    elif key in IGNORED_KINDS or group in IGNORED_GROUPS:
        if not embedded(item.value):
            item.warn("kind", f"{kind} is not read: {IGNORED_KINDS.get(key) or IGNORED_GROUPS[group]}")
    else:
        _refuse_kind(item, group, kind)
    return False


def _refuse_kind(item: Item, group: str, kind: str) -> None:
    """Say that nothing is known of a kind: by its group, if that is known, or of its group."""
    remedy = f"move it out of the folder, or annotate it {IGNORE}: 'true'"
    kinds = [name for known, name in (*KINDS, *REFUSED_KINDS) if known == group]
    if kinds:
        hint = did_you_mean(kind, kinds) or f"{', '.join(sorted(kinds))} are read; {remedy}"
        item.report("kind", found=f"unknown kind {found_text(kind)} of {group}", hint=hint)
        return
    hint = did_you_mean(group, [known for known, name in KINDS if name == kind and known]) or remedy
    item.report("apiVersion", found=f"unknown apiVersion {found_text(item.text('apiVersion'))} of a {kind}", hint=hint)
