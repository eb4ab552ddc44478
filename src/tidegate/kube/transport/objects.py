"""Metadata, lists and watch events of API objects: only the fields that are needed."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.units import UnitError


class KubeOwnerReference(msgspec.Struct, frozen=True):
    """An owner reference."""

    kind: str
    name: str
    uid: str
    controller: bool = False
    api_version: str = msgspec.field(default="", name="apiVersion")

    @property
    def group_kind(self) -> tuple[str, str]:
        """The API group, empty for the core group, and the kind: kinds of other groups may share the name."""
        group, _, version = self.api_version.partition("/")
        return (group if version else "", self.kind)


class KubeObjectMeta(msgspec.Struct, rename="camel", frozen=True):
    """The ObjectMeta of an object."""

    name: str = ""
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0  # counts changes of the spec
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[KubeOwnerReference, ...] | None = None


class KubeObject(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> KubeObjectMeta:
        """Its metadata."""


T = TypeVar("T", bound=KubeObject)


class ListMeta(msgspec.Struct, rename="camel"):
    """The ListMeta of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[T]):
    """A page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, Generic[T]):
    """A watch event with an object: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T


class PartialObject(msgspec.Struct, frozen=True):
    """An object of which only the metadata is decoded."""

    metadata: KubeObjectMeta


class WatchStatus(msgspec.Struct):
    """The Status of a watch event of type ERROR."""

    code: int = 0
    reason: str = ""
    message: str = ""


class WatchErrorEvent(msgspec.Struct):
    """A watch event of type ERROR."""

    type: str
    object: WatchStatus


def time_ms(text: str | None) -> int:
    """A timestamp of an object in milliseconds since 1970; 0 if there is none, or it cannot be read."""
    try:
        return read_time_ms(text or "")
    except UnitError:
        return 0
