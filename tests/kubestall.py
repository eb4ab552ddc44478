"""Tidegate that stands still between deciding and writing while a file is there: `python kubestall.py FILE run …`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

_FILE = Path(sys.argv[1])


def _stall(carry_out: Any) -> Any:
    def stalled(self: Any, decisions: Any) -> None:
        reached = _FILE.with_suffix(".reached")
        while _FILE.exists() and len(decisions.id):
            reached.touch()
            time.sleep(0.05)
        carry_out(self, decisions)

    return stalled


if __name__ == "__main__":
    from tidegate.kube.world import KubeWorld

    KubeWorld.carry_out = _stall(KubeWorld.carry_out)  # type: ignore[method-assign]
    from tidegate.cli.main import app

    app(sys.argv[2:])
