"""How much it does: only watch, open the gate, or bind."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What is written to the cluster."""

    SHADOW = "shadow"  # nothing but the Lease
    GATE = "gate"  # work may start, and must stop; the cluster's scheduler binds
    BIND = "bind"  # pods are bound

    @property
    def writes(self) -> bool:
        """Whether work is touched at all."""
        return self is not Mode.SHADOW
