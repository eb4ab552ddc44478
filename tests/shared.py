"""Where the shared data is: tests that need it skip, and say what is missing, where it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parent.parent.parent / "shared"


def shared(path: str) -> Path:
    """A file or folder of the shared data; the test is skipped where it is not there."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"needs ../shared/{path}, which is not on this machine")
    return found
