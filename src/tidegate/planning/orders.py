"""Who goes first where work waits."""

from __future__ import annotations

from enum import StrEnum


class Order(StrEnum):
    """Who goes first where work waits."""

    OVERTAKE = "overtake"  # first come, and whoever fits may pass one that does not: the engine's default
    STRICT = "strict"  # first come, and nobody passes a head that must wait
