"""Modes: shadow, gate and bind."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What Tidegate writes to the cluster."""

    SHADOW = "shadow"  # only the Lease
    GATE = "gate"  # starts and stops work; kube-scheduler binds
    BIND = "bind"  # binds pods, too

    @property
    def writes(self) -> bool:
        """Whether it writes to work."""
        return self is not Mode.SHADOW
