"""The policy followed: read at the start, and again when it changed or somebody asks. One that is bad is refused.

Must not know: what a policy means, or who uses it.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import NamedTuple

from tidegate.kube.transport.client import Client
from tidegate.kube.transport.connection import Connection
from tidegate.live.policy_sources import PolicyContent, PolicyError, PolicySource, PolicyUnreachableError
from tidegate.model.policy import Policy

#: How long the first look may take: a server may just have started.
_PATIENCE_S = 30.0


class PolicyUpdate(NamedTuple):
    """What came of reading the policy again."""

    policy: Policy | None  # None: it was refused, or cannot be read
    trouble: str = ""


class PolicyWatcher:
    """Reads the policy every now and then, in a thread of its own."""

    def __init__(self, access: Connection, source: PolicySource, every_s: float) -> None:
        self.source = source
        self._access, self._every_s = access, every_s
        self._content: bytes | None = None
        self._trouble = ""
        self._news: PolicyUpdate | None = None
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), name="tidegate-policy", daemon=True)

    def first(self, most_s: float = _PATIENCE_S) -> Policy:
        """Read it for the first time; BadPolicy, or Unreachable where that cannot be done for so long."""
        found = asyncio.run(self._find_first(most_s))
        policy = self.source.read(found)
        self._content = found.content
        return policy

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """End it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(timeout=5)

    def ask(self) -> None:
        """Read it again now, and say what came of it even if nothing changed."""
        self._loop.call_soon_threadsafe(self._ask)

    def take(self) -> PolicyUpdate | None:
        """What there is to say since the last time."""
        with self._lock:
            news, self._news = self._news, None
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

    def _stop(self) -> None:
        self._stopping = True
        self._asked.set()

    def _ask(self) -> None:
        self._content = None
        self._asked.set()

    async def _follow(self) -> None:
        self._loop, self._asked, self._stopping = asyncio.get_running_loop(), asyncio.Event(), False
        self._ready.set()
        async with Client(self._access, connections=2) as client:
            while not self._stopping:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._asked.wait(), self._every_s)
                self._asked.clear()
                if not self._stopping:
                    await self._look(client)

    async def _look(self, client: Client) -> None:
        try:
            found = await self.source.find(client)
            if found.content == self._content:
                return
            self._content = found.content
            policy = self.source.read(found)
        except (PolicyError, PolicyUnreachableError) as error:
            self._content = None if isinstance(error, PolicyUnreachableError) else self._content
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._tell(PolicyUpdate(None, self._trouble))
            return
        self._trouble = ""
        self._tell(PolicyUpdate(policy))

    def _tell(self, reload: PolicyUpdate) -> None:
        with self._lock:
            self._news = reload
