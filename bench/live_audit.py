"""What schedulers did, by the audit log of the API server: when each first looked at pods, and when it bound them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

#: Bindings, and who looks at pods; nothing else.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create], resources: [{group: '', resources: [pods/binding]}]}
- {level: Metadata, verbs: [list, watch], resources: [{group: '', resources: [pods]}]}
- {level: None}
"""


class Audit:
    """The log from now on. It is a file: to look at it costs the server nothing."""

    def __init__(self, path: Path, program: str) -> None:
        self._file = path.open("rb")
        self._file.seek(0, 2)
        self._program = program  # as its requests name it
        self._rest = b""
        self.looked_s = 0.0  # when it first asked for pods
        self.bound_s: list[float] = []  # when each pod was bound

    def read(self) -> None:
        """Take in what was written since."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        if not line.get("userAgent", "").startswith(f"{self._program}/"):
            return
        if line["verb"] == "create":
            if line["stage"] == "ResponseComplete" and line["responseStatus"]["code"] < 300:
                self.bound_s.append(_seconds(line["stageTimestamp"]))
        elif not self.looked_s:
            self.looked_s = _seconds(line["requestReceivedTimestamp"])

    def close(self) -> None:
        """Look no more."""
        self._file.close()


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
