"""Tidegate with a clock that can be set: `python kubeclock.py FILE run …`; the file has milliseconds to add.

So that tests need not wait, a watch that says nothing is given up after seconds instead of two minutes, and gauges are
set several times a second.
"""

from __future__ import annotations

import sys
import time
from dataclasses import astuple
from pathlib import Path

_FILE, _real = Path(sys.argv[1]), time.time_ns

#: How long a watch may say nothing, and how often gauges are set.
QUIET_S, GAUGES_S = 10.0, 0.2


def _shifted() -> int:
    return _real() + int(_FILE.read_text() or 0) * 1_000_000


if __name__ == "__main__":
    time.time_ns = _shifted
    from tidegate.kube.transport.reflector import ReflectorOptions

    ReflectorOptions.__init__.__defaults__ = astuple(ReflectorOptions(quiet_s=QUIET_S))  # type: ignore[misc]
    from tidegate.live import leader_loop

    leader_loop._GAUGES_S = GAUGES_S
    from tidegate.cli.main import app

    app(sys.argv[2:])
