"""The decision log: one line for each decision that changes something, and for each failed write.

A repeated failure of an object is logged once a minute, and many failures at a time are counted instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tidegate.kube.actuator.workload_events import DecisionLine
from tidegate.kube.world import WriteFailure
from tidegate.live.logs import ServiceLog

#: How long a repeated failure is not logged, and the rate limit of such lines: so many in ten seconds.
_AGAIN_S, _WINDOW_S, _MOST_LINES = 60.0, 10.0, 20


def log_decisions(log: ServiceLog, lines: Iterable[DecisionLine], *, proposed: bool) -> None:
    """Log one line for each decision; `proposed`: it is not written."""
    for line in lines:
        log.info(
            "proposal" if proposed else "decision", **{key: value for key, value in line._asdict().items() if value}
        )


class FailureLog:
    """Logs failed writes."""

    def __init__(self, log: ServiceLog) -> None:
        self._log = log
        self._logged: dict[WriteFailure, float] = {}
        self._began_s, self._lines, self._left_out = 0.0, 0, 0

    def note(self, failures: Iterable[WriteFailure]) -> None:
        """Log new failures."""
        now_s = time.monotonic()
        if now_s - self._began_s >= _WINDOW_S:
            if self._left_out:
                self._log.warning("more writes failed", writes=self._left_out)
            self._began_s, self._lines, self._left_out = now_s, 0, 0
            self._logged = {one: at_s for one, at_s in self._logged.items() if now_s - at_s < _AGAIN_S}
        for failure in failures:
            if failure in self._logged:
                continue
            if self._lines >= _MOST_LINES:
                self._left_out += 1
                continue
            self._lines += 1
            self._logged[failure] = now_s
            word = "write failed" if failure.outcome == "failed" else "write outcome unknown"
            self._log.warning(word, object=failure.object, write=failure.write, message=failure.message)
