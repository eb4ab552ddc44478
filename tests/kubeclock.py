"""Tidegate with a clock that can be set: `python kubeclock.py FILE run …`; the file has milliseconds to add.

A watch that says nothing is given up after seconds instead of two minutes, so that tests need not wait for that.
"""

from __future__ import annotations

import sys
import time
from dataclasses import astuple
from pathlib import Path

_FILE, _real = Path(sys.argv[1]), time.time_ns

#: How long a watch may say nothing.
QUIET_S = 10.0


def _shifted() -> int:
    return _real() + int(_FILE.read_text() or 0) * 1_000_000


if __name__ == "__main__":
    time.time_ns = _shifted
    from tidegate.kube.transport.reflector import ReflectorOptions

    ReflectorOptions.__init__.__defaults__ = astuple(ReflectorOptions(quiet_s=QUIET_S))  # type: ignore[misc]
    from tidegate.cli.main import app

    app(sys.argv[2:])
