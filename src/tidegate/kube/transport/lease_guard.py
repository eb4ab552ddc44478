"""Requests that ask once more, when their connection is there and before their first byte goes out, whether they may.

Between the wish to write and the first byte lie a free connection, a handshake, a thread that has to wait its turn:
time enough for a Lease to lapse.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

import aiohttp
from aiohttp.connector import Connection

#: Whether a request may be sent, now.
MaySend = Callable[[], bool]

#: What the requests of a task ask; None: they may always be sent.
MAY_SEND: ContextVar[MaySend | None] = ContextVar("fence", default=None)


class LeaseLapsedError(aiohttp.ClientError):
    """A request was not sent, as it might not be any more."""


class GuardedRequest(aiohttp.ClientRequest):
    """A request that asks before it goes out."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Send it, if it still may be."""
        may_send = MAY_SEND.get()
        if may_send is not None and not may_send():
            raise LeaseLapsedError
        return await super().send(conn)
