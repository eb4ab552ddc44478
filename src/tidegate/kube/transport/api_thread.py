"""The network in a thread of its own: it fills the update queue and makes writes, and never waits for decisions."""

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
from tidegate.model.facts import Outcome

#: How long requests in flight may take to be answered once nothing more is sent.
_IN_FLIGHT_S = 5.0

#: The pause after an order that failed.
_AFTER_FAILURE_MS = 1_000

#: The longest pause before an order that came to nothing is tried again.
_MOST_AGAIN_MS = 30_000


class QueuedWrite(Protocol):
    """A write that somebody wants made."""

    @property
    def write(self) -> Write:
        """What is written."""

    @property
    def again(self) -> int:
        """How often it was tried before, in vain."""


class WriteReport(NamedTuple):
    """An order, and what came of it."""

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
        """Begin to follow."""
        self.thread.start()
        while not self._opened.wait(0.1) and self.thread.is_alive():
            pass

    def stop(self) -> None:
        """End it; what is in flight may or may not be carried out."""
        self.thread.stop()

    @property
    def failure(self) -> BaseException | None:
        """The bug that ended the thread."""
        return self.thread.failure

    def send(self, writes: Sequence[QueuedWrite]) -> None:
        """Make writes; the result of each goes into the update queue."""
        self.thread.call(self._submit, writes)

    def drain(self, most_s: float) -> bool:
        """Let what was sent be written, for so long; then send nothing more. False: something is still in flight."""
        if not self.thread.is_alive():
            return False
        drained = asyncio.run_coroutine_threadsafe(self.pool.drain(most_s, _IN_FLIGHT_S), self.thread.loop)
        try:
            return drained.result(most_s + 2 * _IN_FLIGHT_S)
        except (TimeoutError, CancelledError):
            return False

    def stats_by_kind(self) -> list[tuple[str, ReflectorStats]]:
        """How following went so far, by the kind of object, as kubectl names it."""
        return [(watched.resource.full_plural, stats) for watched, stats in zip(self._kinds, self.stats, strict=True)]

    def left_out(self) -> list[tuple[str, str]]:
        """Kinds that we may not read and do without: why, and what would lift it."""
        return [(kind, stats.left_out) for kind, stats in self.stats_by_kind() if stats.left_out]

    def problems(self) -> list[str]:
        """Why there are no news, where there should be."""
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
        """A write raised something: it is lost without a result, so the thread ends and says so."""
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
        """Tell what came of an order; a failure not at once, as what follows may well be the same order again."""
        if carried.result.outcome is not Outcome.FAILED:
            self.updates.note(carried)
            return
        pause_ms = Backoff(self._jitter, first_ms=_AFTER_FAILURE_MS).next_ms()
        self.thread.loop.call_later(pause_ms / 1000, self.updates.note, carried)
