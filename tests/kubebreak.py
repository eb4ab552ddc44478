"""Tidegate of which a thread breaks once a file is there: `python kubebreak.py FILE lease|policy|watch run …`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_FILE, _PART = Path(sys.argv[1]), sys.argv[2]


def _breaking(function: Any) -> Any:
    def broken(*arguments: Any, **named: Any) -> Any:
        if _FILE.exists():
            raise ZeroDivisionError("a bug")
        return function(*arguments, **named)

    return broken


if __name__ == "__main__":
    from tidegate.kube.transport.reflector import Reflector
    from tidegate.live.election import Election
    from tidegate.live.policy_watcher import PolicyWatcher

    owner, name = {
        "lease": (Election, "_pause"),
        "policy": (PolicyWatcher, "_wait"),
        "watch": (Reflector, "_take"),
    }[_PART]
    setattr(owner, name, _breaking(getattr(owner, name)))
    from tidegate.cli.main import app

    app(sys.argv[3:])
