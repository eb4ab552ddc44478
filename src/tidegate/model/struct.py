"""The base of specs: frozen values with strict fields and canonical bytes."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec.inspect import DictType, StructType, Type, VarTupleType, type_info


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen value. Equal fields make equal specs, and equal specs have equal bytes."""


T = TypeVar("T")


def decode_known(text: str | bytes, type_: type[T]) -> T:
    """What is written as JSON, by this version or another one: fields that this version does not know are left out.

    A MsgspecError is raised where it is no such value even so.
    """
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.ValidationError:
        return msgspec.convert(_without_unknown(msgspec.json.decode(text), type_info(type_)), type_)


def _without_unknown(value: Any, kind: Type) -> Any:
    if isinstance(kind, StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        return {name: _without_unknown(inner, known[name]) for name, inner in value.items() if name in known}
    if isinstance(kind, VarTupleType) and isinstance(value, list):
        return [_without_unknown(inner, kind.item_type) for inner in value]
    if isinstance(kind, DictType) and isinstance(value, dict):
        return {name: _without_unknown(inner, kind.value_type) for name, inner in value.items()}
    return value


def encode(spec: object) -> bytes:
    """The canonical bytes of a spec: the same value gives the same bytes on every machine."""
    return msgspec.msgpack.encode(spec, order="deterministic")


#: Amounts by resource name, sorted by name. `cpu` counts milli-cores, `memory` MiB, everything else units.
Resources = tuple[tuple[str, int], ...]

#: Key and value pairs, sorted by key.
Labels = tuple[tuple[str, str], ...]


def resources(amounts: dict[str, int]) -> Resources:
    """Sort amounts into the canonical order and drop the zeros."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def labels(pairs: dict[str, str]) -> Labels:
    """Sort pairs into the canonical order."""
    return tuple(sorted(pairs.items()))
