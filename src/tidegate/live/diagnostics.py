"""Diagnostics by signals: SIGUSR1 logs the stacks of all threads and a summary, SIGUSR2 changes the log level.

A thread of its own reads the numbers of signals, so that it answers also while the main thread is stuck.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping

from tidegate.live.logs import ServiceLog

#: The state of a process, by name.
Summary = Callable[[], Mapping[str, object]]


class Diagnostics:
    """Answers signals with log lines."""

    def __init__(self, log: ServiceLog) -> None:
        self._log = log
        self.summary: Summary = dict

    def start(self) -> None:
        """Start answering; called in the main thread, before other signal handlers."""
        reads, writes = os.pipe()
        os.set_blocking(writes, False)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        threading.Thread(target=self._answer, args=(reads,), name="tidegate-signals", daemon=True).start()

    def _answer(self, reads: int) -> None:
        while numbers := os.read(reads, 64):
            for number in numbers:
                if number == signal.SIGUSR1:
                    self.dump()
                elif number == signal.SIGUSR2:
                    self._log.info("log level changed", to=self._log.toggle_debug())

    def dump(self) -> None:
        """Log the stack of each thread, and a summary of the state."""
        frames = sys._current_frames()  # noqa: SLF001 - documented, for debuggers
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
            self._log.info("thread", name=thread.name, daemon=thread.daemon, stack=stack)
        try:
            summary = dict(self.summary())
        except Exception as error:  # noqa: BLE001 - other threads change it meanwhile
            summary = {"error": f"{type(error).__name__}: {error}"}
        self._log.info("state", **summary)


def _ignore(number: int, frame: object) -> None:
    """Python needs a handler, so that the signal does not end the process; the thread does the work."""
    del number, frame
