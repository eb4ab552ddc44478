"""Tidegate with a clock that can be set: `python kubeclock.py FILE run …`; the file has milliseconds to add."""

from __future__ import annotations

import sys
import time
from pathlib import Path

_FILE, _real = Path(sys.argv[1]), time.time_ns


def _shifted() -> int:
    return _real() + int(_FILE.read_text() or 0) * 1_000_000


if __name__ == "__main__":
    time.time_ns = _shifted
    from tidegate.cli.main import app

    app(sys.argv[2:])
