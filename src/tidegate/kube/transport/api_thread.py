"""The API thread: runs reflectors and the write pool, and never waits for decisions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import NamedTuple, Protocol

from tidegate.kube.transport.backoff import Backoff, Jitter
from tidegate.kube.transport.client import Client
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.loop_thread import LoopThread
from tidegate.kube.transport.reflector import Reflector, ReflectorOptions, ReflectorStats, WatchedKind
from tidegate.kube.transport.update_queue import UpdateQueue
from tidegate.kube.transport.write_pool import WriteLimits, WritePool, WriteResult
from tidegate.kube.transport.writes import Write
from tidegate.model.facts import WriteOutcome

#: How long requests in flight may take once nothing more is sent.
_IN_FLIGHT_S = 5.0

#: The first backoff before a failed write is reported, as a retry of it often follows.
_AFTER_FAILURE_MS = 1_000

#: The longest backoff before a write is retried.
_MOST_AGAIN_MS = 30_000


class QueuedWrite(Protocol):
    """A write in the queue of the API thread."""

    @property
    def write(self) -> Write:
        """The write."""

    @property
    def again(self) -> int:
        """How often it failed before."""


class WriteReport(NamedTuple):
    """A write and its result."""

    pending: QueuedWrite
    result: WriteResult


class ApiThread:
    """A thread that talks to one API server."""

    def __init__(
        self,
        access: Connection,
        kinds: list[WatchedKind],
        jitter: Jitter,
        *,
        limits: WriteLimits,
        reflector_options: ReflectorOptions,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.updates = UpdateQueue()
        self._access, self._kinds, self._jitter, self._limits = access, kinds, jitter, limits
        self._reflector_options = reflector_options
        self._may_write = may_write
        self.thread = LoopThread("tidegate-kube", self._run, self.updates.note)
        self.listed = threading.Event()  # every kind has been listed once
        self._opened = threading.Event()  # writes can be sent
        self._bug: BaseException | None = None  # what a write raised
        self.stats: list[ReflectorStats] = [ReflectorStats() for _ in kinds]

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()
        while not self._opened.wait(0.1) and self.thread.is_alive():
            pass

    def stop(self) -> None:
        """Stop the thread; the outcome of requests in flight is unknown."""
        self.thread.stop()

    @property
    def failure(self) -> BaseException | None:
        """The bug that ended the thread."""
        return self.thread.failure

    def send(self, writes: Sequence[QueuedWrite]) -> None:
        """Submit writes; the result of each goes into the update queue."""
        self.thread.call(self._submit, writes)

    def drain(self, most_s: float) -> bool:
        """Wait so long for submitted writes, then send nothing more; False: some are still in flight."""
        if not self.thread.is_alive():
            return False
        drained = asyncio.run_coroutine_threadsafe(self.pool.drain(most_s, _IN_FLIGHT_S), self.thread.loop)
        try:
            return drained.result(most_s + 2 * _IN_FLIGHT_S)
        except (TimeoutError, CancelledError):
            return False

    def stats_by_kind(self) -> list[tuple[str, ReflectorStats]]:
        """Statistics of the reflectors, by plural and group."""
        return [(watched.resource.full_plural, stats) for watched, stats in zip(self._kinds, self.stats, strict=True)]

    def left_out(self) -> list[tuple[str, str]]:
        """Kinds that may not be read and are left out: why, and which permission is missing."""
        return [(kind, stats.left_out) for kind, stats in self.stats_by_kind() if stats.left_out]

    def problems(self) -> list[str]:
        """Why a kind has no updates, where it should have some."""
        return [f"{kind}: {stats.problem}" for kind, stats in self.stats_by_kind() if stats.problem]

    # -- in the thread -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        async with Client(self._access, connections=self._limits.in_flight + 2 * len(self._kinds)) as client:
            self.pool = WritePool(client, self._jitter, self._limits, self._may_write, self._fail)
            reflectors = [
                Reflector(client, watched, self.updates, self._jitter, kind, self._reflector_options, self.stats[kind])
                for kind, watched in enumerate(self._kinds)
            ]
            self._opened.set()
            async with asyncio.TaskGroup() as tasks:
                following = [tasks.create_task(reflector.follow()) for reflector in reflectors]
                following.append(tasks.create_task(self._await_lists(reflectors)))
                await self.thread.stopping.wait()
                for task in following:
                    task.cancel()
            await self.pool.close()
        if self._bug is not None:
            raise self._bug

    def _fail(self, bug: BaseException) -> None:
        """End the thread, because a write raised an exception and has no result."""
        self._bug = bug
        self.thread.stopping.set()

    async def _await_lists(self, reflectors: list[Reflector]) -> None:
        for reflector in reflectors:
            await reflector.listed.wait()
        self.listed.set()
        self.updates.note(None)

    def _submit(self, writes: Sequence[QueuedWrite]) -> None:
        for pending in writes:
            if not pending.again:
                self._submit_one(pending)
                continue
            backoff = Backoff(self._jitter, first_ms=500, most_ms=_MOST_AGAIN_MS)
            backoff.tries = pending.again
            self.thread.loop.call_later(backoff.next_ms() / 1000, self._submit_one, pending)

    def _submit_one(self, pending: QueuedWrite) -> None:
        self.pool.submit(pending.write, lambda result: self._note(WriteReport(pending, result)))

    def _note(self, carried: WriteReport) -> None:
        """Report the result of a write; a failure after a backoff, as the same write often follows."""
        if carried.result.outcome is not WriteOutcome.FAILED:
            self.updates.note(carried)
            return
        pause_ms = Backoff(self._jitter, first_ms=_AFTER_FAILURE_MS).next_ms()
        self.thread.loop.call_later(pause_ms / 1000, self.updates.note, carried)
