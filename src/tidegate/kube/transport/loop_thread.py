"""An event loop in a thread of its own; `check` raises if the thread ended without being stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tidegate.model.errors import TidegateError


class ThreadEndedError(TidegateError, RuntimeError):
    """A thread ended without being stopped; the cause is the exception that ended it."""


class LoopThread:
    """Runs one coroutine until it is stopped. The coroutine waits for `stopping`, and ends when it is set."""

    def __init__(
        self,
        name: str,
        main: Callable[[], Coroutine[Any, Any, None]],
        on_failure: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self.name = name
        self._main, self._on_failure = main, on_failure
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ready = threading.Event()
        self._stops = False
        self.failure: BaseException | None = None  # the exception that ended it

    def start(self) -> None:
        """Start it, and wait until its event loop runs."""
        self._thread.start()
        self._ready.wait()

    def stop(self, most_s: float | None = None) -> None:
        """Ask it to end, and wait at most so long."""
        self._stops = True
        if self._thread.is_alive():
            self.call(self.stopping.set)
            self._thread.join(most_s)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in its event loop; does nothing if the loop does not run."""
        if not self._thread.is_alive():
            return
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def problem(self) -> str:
        """Why it ended; empty: it runs, was stopped, or was never started."""
        if self._stops or self._thread.ident is None or (self._thread.is_alive() and self.failure is None):
            return ""
        return f"the thread {self.name} has ended" + (f": {_error_text(self.failure)}" if self.failure else "")

    def check(self) -> None:
        """Raise ThreadEndedError if it ended without being stopped."""
        problem = self.problem()
        if problem:
            raise ThreadEndedError(problem) from self.failure

    # -- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._begin())
        except BaseException as error:  # noqa: BLE001 - `check` raises it
            self.failure = error
            self._on_failure(error)
        finally:
            self._ready.set()

    async def _begin(self) -> None:
        self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._main()


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
