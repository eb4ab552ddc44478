"""Tidegate that stands still before it writes while a file is there: `python kubestall.py FILE run …`.

While FILE.after is there it stands still once more, after it tried to write.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

_FILE = Path(sys.argv[1])
_REACHED, _AFTER = _FILE.with_suffix(".reached"), _FILE.with_suffix(".after")


def _stall(send: Any) -> Any:
    """Stall with writes in hand: what was decided, or was decided before and can be done now."""

    def stalled(self: Any) -> None:
        if self.reconciler.actuator.writes:
            while _FILE.exists():
                _REACHED.touch()
                time.sleep(0.02)
        send(self)
        while _REACHED.exists() and _AFTER.exists():
            time.sleep(0.02)

    return stalled


if __name__ == "__main__":
    from tidegate.kube.world import KubeWorld

    KubeWorld._send = _stall(KubeWorld._send)  # type: ignore[method-assign]
    from tidegate.cli.main import app

    app(sys.argv[2:])
