"""The policy watcher: reads the policy at the start, when it changes, and on SIGHUP.

An invalid policy is refused. A policy that cannot be read is unreachable: an API outage says nothing about it. In both
cases the policy in force stays.
"""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

from tidegate.kube.transport.client import Client
from tidegate.kube.transport.connection import Connection
from tidegate.kube.transport.loop_thread import LoopThread
from tidegate.kube.transport.reflector import Reflector, WatchedKind
from tidegate.live.policy_sources import (
    PolicyContent,
    PolicyError,
    PolicySource,
    PolicyUnreachableError,
)
from tidegate.model.policy import Policy

#: Timeout of the first read: a server may just have started.
_PATIENCE_S = 30.0

#: How long an outage lasts before it is reported: a server may restart.
_OUTAGE_S = 10.0

#: How long changes are gathered, so that those of one `kubectl apply` are read together.
_SETTLE_S = 0.1

#: Between two checks of the watches, and of the version of a kind that the server prefers.
_LOOK_EVERY_S, _DISCOVER_EVERY_S = 1.0, 30.0

#: For watches and other requests.
_CONNECTIONS = 16


class PolicyResult(StrEnum):
    """The result of reading the policy again."""

    READ = "read"
    REFUSED = "refused"  # it is invalid
    UNREACHABLE = "unreachable"  # it cannot be read
    REACHABLE = "reachable"  # it can be read again, and is unchanged


class PolicyUpdate(NamedTuple):
    """An update of the policy."""

    result: PolicyResult
    policy: Policy | None = None  # what was read
    problem: str = ""  # why it was refused, or cannot be read


class PolicyWatcher:
    """Watches the policy, or polls its files, in a thread of its own."""

    def __init__(self, access: Connection, source: PolicySource, every_s: float, outage_s: float = _OUTAGE_S) -> None:
        self.source = source
        self._access, self._every_s, self._outage_s = access, every_s, outage_s
        self._content: bytes | None = None  # as it was last read
        self._refusal = ""  # why the latest was refused
        self._outage_since_s: float | None = None  # since when it is unreachable, by the loop's clock
        self._outage_told = False
        self._discover_s = 0.0  # when to check the versions of kinds next, by the loop's clock
        self._news: list[PolicyUpdate] = []
        self._lock = threading.Lock()
        self.thread = LoopThread("tidegate-policy", self._follow)
        self._asked: asyncio.Event  # there is a reason to read it

    def first(self, most_s: float = _PATIENCE_S) -> Policy:
        """Read it for the first time; PolicyError if it is invalid, PolicyUnreachableError after so long."""
        found = asyncio.run(self._find_first(most_s))
        policy = self.source.read(found)
        self._content = found.content
        return policy

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def stop(self) -> None:
        """End it."""
        self.thread.call(self._end)
        self.thread.stop(5)

    def ask(self) -> None:
        """Read it again now, and report the result even if nothing changed."""
        self.thread.call(self._forget)

    def take(self) -> list[PolicyUpdate]:
        """The updates since the last call."""
        with self._lock:
            news, self._news = self._news, []
        return news

    # -- in the thread -----------------------------------------------------------------------------------------

    async def _find_first(self, most_s: float) -> PolicyContent:
        until_s = asyncio.get_running_loop().time() + most_s
        async with Client(self._access, connections=2) as client:
            while True:
                try:
                    return await self.source.find(client)
                except PolicyUnreachableError:
                    if asyncio.get_running_loop().time() > until_s:
                        raise
                await asyncio.sleep(1)

    def _end(self) -> None:
        self.thread.stopping.set()
        self._asked.set()

    def _forget(self) -> None:
        self._content, self._refusal, self._outage_told = None, "", False
        self._asked.set()

    async def _follow(self) -> None:
        self._asked = asyncio.Event()
        async with Client(self._access, connections=_CONNECTIONS) as client:
            while not self.thread.stopping.is_set():
                try:
                    kinds = await self.source.kinds(client)
                except (PolicyError, PolicyUnreachableError) as error:
                    self._note(error)
                    await self._wait(self._every_s)
                    continue
                if kinds:
                    await self._watch(client, kinds)
                else:
                    await self._wait(self._every_s)
                    await self._read_files(client)

    async def _wait(self, most_s: float) -> None:
        """Wait until there is a reason to read it, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), most_s)
        self._asked.clear()

    async def _read_files(self, client: Client) -> None:
        if self.thread.stopping.is_set():
            return
        try:
            self._accept(await self.source.find(client))
        except (PolicyError, PolicyUnreachableError) as error:
            self._note(error)

    # -- watching ----------------------------------------------------------------------------------------------

    async def _watch(self, client: Client, kinds: tuple[WatchedKind, ...]) -> None:
        """Watch the objects until it stops, or other kinds have to be watched."""
        seen = _Objects(len(kinds), self._asked)
        reflectors = [Reflector(client, kind, seen, random.random, number) for number, kind in enumerate(kinds)]
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(reflector.follow()) for reflector in reflectors]
            while not self.thread.stopping.is_set() and not await self._has_moved(client, kinds, reflectors):
                await self._wait(_LOOK_EVERY_S)
                await asyncio.sleep(_SETTLE_S)
                self._look_at(seen, reflectors)
            for task in following:
                task.cancel()

    def _look_at(self, seen: _Objects, reflectors: list[Reflector]) -> None:
        refusals = [one.stats.refusal for one in reflectors if one.stats.refusal]
        if refusals:
            self._note(PolicyUnreachableError(f"{self.source.name}: {refusals[0]}"))
            return
        doubtful = self._content is None or self._outage_since_s is not None
        if (seen.changed or doubtful) and all(reflector.listed.is_set() for reflector in reflectors):
            seen.changed = False
            try:
                self._accept(self.source.content(seen.by_kind()))
            except PolicyError as error:
                self._note(error)

    async def _has_moved(self, client: Client, kinds: tuple[WatchedKind, ...], reflectors: list[Reflector]) -> bool:
        """Whether the server has the kinds in another version now; checked only if it lacks one."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._discover_s or not any(reflector.stats.absent for reflector in reflectors):
            return False
        self._discover_s = now_s + _DISCOVER_EVERY_S
        with suppress(PolicyError, PolicyUnreachableError):
            return [kind.resource for kind in await self.source.kinds(client)] != [kind.resource for kind in kinds]
        return False

    # -- results -----------------------------------------------------------------------------------------------

    def _accept(self, found: PolicyContent) -> None:
        """Report a policy that changed; PolicyError if it is invalid."""
        outage, self._outage_told, self._outage_since_s = self._outage_told, False, None
        if found.content != self._content:
            self._content = found.content
            policy = self.source.read(found)
            self._refusal = ""
            self._tell(PolicyUpdate(PolicyResult.READ, policy))
        elif outage:
            self._tell(PolicyUpdate(PolicyResult.REACHABLE))

    def _note(self, error: PolicyError | PolicyUnreachableError) -> None:
        """Report an error once; an outage when it has lasted for a while."""
        if isinstance(error, PolicyError):
            self._outage_told, self._outage_since_s = False, None
            if str(error) != self._refusal:
                self._refusal = str(error)
                self._tell(PolicyUpdate(PolicyResult.REFUSED, problem=self._refusal))
            return
        now_s = asyncio.get_running_loop().time()
        if self._outage_since_s is None:
            self._outage_since_s = now_s
        if not self._outage_told and now_s - self._outage_since_s >= self._outage_s:
            self._outage_told = True
            self._tell(PolicyUpdate(PolicyResult.UNREACHABLE, problem=str(error)))

    def _tell(self, update: PolicyUpdate) -> None:
        with self._lock:
            self._news.append(update)


class _Objects:
    """The objects of a policy, as reflectors put them."""

    def __init__(self, kinds: int, wake: asyncio.Event) -> None:
        self._kept: list[dict[str, Any]] = [{} for _ in range(kinds)]
        self._wake = wake
        self.changed = True  # since the last read

    def put(self, kind: int, uid: str, thing: object | None) -> None:
        """Put the latest state of an object; None: it was deleted."""
        if thing is None:
            self._kept[kind].pop(uid, None)
        elif self._kept[kind].get(uid) != thing:  # status changes are not kept
            self._kept[kind][uid] = thing
        else:
            return
        self.changed = True
        self._wake.set()

    def by_kind(self) -> list[list[Any]]:
        """All objects."""
        return [list(some.values()) for some in self._kept]
