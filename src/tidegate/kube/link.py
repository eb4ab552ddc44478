"""The network in a thread of its own: it fills the inbox and carries orders out, and never waits for who decides.

Must not know: what objects and orders mean.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tidegate.kube.access import Access
from tidegate.kube.client import Client
from tidegate.kube.following import Follower, Pace, Pages, Tally
from tidegate.kube.inbox import Inbox
from tidegate.kube.orders import Order
from tidegate.kube.pauses import Draw, Pauses
from tidegate.kube.pool import Limits, Pool, Result
from tidegate.kube.resources import Resource
from tidegate.model.facts import Outcome

#: The pause after an order that failed.
_AFTER_FAILURE_MS = 1_000

#: The longest pause before an order that came to nothing is tried again.
_MOST_AGAIN_MS = 30_000


class Topic(NamedTuple):
    """A kind of object to follow: what is decoded of it, and what is kept."""

    resource: Resource
    type: type[Any]
    shrink: Callable[[Any], object]
    selector: Mapping[str, str] = MappingProxyType({})
    optional: bool = False  # the server need not have this kind
    pages: Pages | None = None  # another form of its lists


class Carried(NamedTuple):
    """An order, and what came of it."""

    order: Order
    result: Result


class Link:
    """A thread that talks to one API server."""

    def __init__(
        self,
        access: Access,
        topics: list[Topic],
        draw: Draw,
        *,
        limits: Limits,
        pace: Pace,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.inbox = Inbox()
        self._access, self._topics, self._draw, self._limits, self._pace = access, topics, draw, limits, pace
        self._may_write = may_write
        self._thread = threading.Thread(target=self._run, name="tidegate-kube", daemon=True)
        self._ready = threading.Event()
        self.listed = threading.Event()  # every topic has been listed once
        self.failure: BaseException | None = None  # a bug that ended the thread
        self.tallies: list[Tally] = [Tally() for _ in topics]

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """End it; what is in flight may or may not be carried out."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def send(self, orders: list[Order]) -> None:
        """Carry orders out; what comes of each is noted in the inbox."""
        self._loop.call_soon_threadsafe(self._submit, orders)

    def told(self) -> list[tuple[str, Tally]]:
        """How following went so far, by the kind of object."""
        return [(topic.resource.plural, tally) for topic, tally in zip(self._topics, self.tallies, strict=True)]

    def left_out(self) -> list[tuple[str, str]]:
        """Kinds that we may not read and do without: why, and what would lift it."""
        return [(plural, tally.left_out) for plural, tally in self.told() if tally.left_out]

    def trouble(self) -> list[str]:
        """Why there are no news, where there should be."""
        return [f"{plural}: {tally.trouble}" for plural, tally in self.told() if tally.trouble]

    # -- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._talk())
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody looks
            self.failure = error
            self._ready.set()
            self.inbox.note(error)

    async def _talk(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with Client(self._access, connections=self._limits.in_flight + 2 * len(self._topics)) as client:
            self.pool = Pool(client, self._draw, self._limits, self._may_write)
            followers = [self._follower(client, kind, topic) for kind, topic in enumerate(self._topics)]
            self._ready.set()
            async with asyncio.TaskGroup() as tasks:
                following = [tasks.create_task(follower.follow()) for follower in followers]
                following.append(tasks.create_task(self._await_lists(followers)))
                await self._stopping.wait()
                for task in following:
                    task.cancel()
            await self.pool.close()

    def _follower(self, client: Client, kind: int, topic: Topic) -> Follower[Any]:
        return Follower(
            client,
            topic.resource,
            topic.type,
            self.inbox,
            self._draw,
            kind=kind,
            shrink=topic.shrink,
            selector=dict(topic.selector),
            optional=topic.optional,
            pages=topic.pages,
            pace=self._pace,
            tally=self.tallies[kind],
        )

    async def _await_lists(self, followers: list[Follower[Any]]) -> None:
        for follower in followers:
            await follower.listed.wait()
        self.listed.set()
        self.inbox.note(None)

    def _submit(self, orders: list[Order]) -> None:
        for order in orders:
            if not order.again:
                self._submit_one(order)
                continue
            pauses = Pauses(self._draw, first_ms=500, most_ms=_MOST_AGAIN_MS)
            pauses.tries = order.again
            self._loop.call_later(pauses.next_ms() / 1000, self._submit_one, order)

    def _submit_one(self, order: Order) -> None:
        self.pool.submit(order.write, lambda result: self._note(Carried(order, result)))

    def _note(self, carried: Carried) -> None:
        """Tell what came of an order; a failure not at once, as what follows may well be the same order again."""
        if carried.result.outcome is not Outcome.FAILED:
            self.inbox.note(carried)
            return
        pause_ms = Pauses(self._draw, first_ms=_AFTER_FAILURE_MS).next_ms()
        self._loop.call_later(pause_ms / 1000, self.inbox.note, carried)
