"""What every object has, and lists and watch events of objects of one type: only the fields that are needed."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.units import UnitError


class KubeOwnerReference(msgspec.Struct, frozen=True):
    """Whom an object belongs to."""

    kind: str
    name: str
    uid: str
    controller: bool = False
    api_version: str = msgspec.field(default="", name="apiVersion")

    @property
    def group_kind(self) -> tuple[str, str]:
        """Its API group, empty for the core group, and its kind: kinds of other groups may have the same name."""
        group, _, version = self.api_version.partition("/")
        return (group if version else "", self.kind)


class KubeObjectMeta(msgspec.Struct, rename="camel", frozen=True):
    """Who an object is."""

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
    """Any object."""

    @property
    def metadata(self) -> KubeObjectMeta:
        """Who it is."""


T = TypeVar("T", bound=KubeObject)


class ListMeta(msgspec.Struct, rename="camel"):
    """Where a list stands."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[T]):
    """A page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, Generic[T]):
    """An event of a watch that is about an object."""

    type: str
    object: T


class PartialObject(msgspec.Struct, frozen=True):
    """Just who it is: what a bookmark has."""

    metadata: KubeObjectMeta


class WatchStatus(msgspec.Struct):
    """An event of a watch that says why there are no more."""

    code: int = 0
    reason: str = ""
    message: str = ""


class WatchErrorEvent(msgspec.Struct):
    """An event of a watch that is an error."""

    type: str
    object: WatchStatus


def time_ms(text: str | None) -> int:
    """A timestamp of an object in milliseconds since 1970; 0 if there is none, or it cannot be read."""
    try:
        return read_time_ms(text or "")
    except UnitError:
        return 0
