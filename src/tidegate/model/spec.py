"""What every spec is: a frozen value with strict fields, made once at the edge.

Must not know: columns, rows, time.
"""

from __future__ import annotations

import msgspec


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen value. Equal fields make equal specs, and equal specs have equal bytes."""


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
