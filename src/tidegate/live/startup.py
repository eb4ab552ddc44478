"""Startup: the probes before the service exists; they report the phase of the start."""

from __future__ import annotations

import time

from tidegate.live.endpoints import TEXT, Probes
from tidegate.live.logs import ServiceLog

#: A longer phase is stuck; compiling all kernels takes minutes on a slow node.
_STUCK_S = 1_200.0

#: Between two log lines about the progress of compiling.
_PROGRESS_S = 5.0


class Startup:
    """The probes of a process that starts."""

    def __init__(self, log: ServiceLog) -> None:
        self._log = log
        self._service: Probes | None = None
        self._logged_s = float("-inf")
        self.begin("starting")

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        self.phase, self._began_s = phase, time.monotonic()

    def note_compiling(self, done: int, total: int) -> None:
        """Log the progress of compiling; progress keeps the process alive."""
        phase = f"compiling kernels: {done} of {total or '…'}"
        if phase != self.phase:
            self.begin(phase)
        if time.monotonic() - self._logged_s >= _PROGRESS_S:
            self._logged_s = time.monotonic()
            self._log.info("compiling kernels", done=done, total=total)

    def end(self, service: Probes) -> None:
        """End the start: the service answers from now on."""
        self._service = service

    @property
    def probes(self) -> Probes:
        """The functions behind the endpoints."""
        return Probes(self._alive, self._ready, self._metrics)

    def _alive(self) -> list[str]:
        if self._service is not None:
            return self._service.alive()
        since_s = time.monotonic() - self._began_s
        return [f"{self.phase} for {since_s:.0f} s"] if since_s > _STUCK_S else []

    def _ready(self) -> list[str]:
        return [self.phase] if self._service is None else self._service.ready()

    def _metrics(self) -> tuple[bytes, str]:
        return (b"", TEXT) if self._service is None else self._service.metrics()
