"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp_of(at_ms: int) -> str:
    """A time in milliseconds, with microseconds, as objects of Kubernetes have it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
