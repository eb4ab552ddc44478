"""The API client: requests with whole responses, and watch streams. Errors come back as data.

A request may be guarded by the Lease: its guard is called once a connection is open, right before the first byte.
Between the decision to write and the first byte are a free connection, a handshake and a busy thread: time enough for
a Lease to lapse.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp

import tidegate
from tidegate.kube.transport.connection import Connection, ConnectionConfigError, Identity, secure
from tidegate.kube.transport.response import NO_ANSWER, NO_CREDENTIALS, NOT_ALLOWED, NOT_SENT, ApiResponse, read_refusal

#: Whether a request may be sent now.
MaySend = Callable[[], bool]

#: The guard of the requests of a task; None: they are not guarded.
MAY_SEND: ContextVar[MaySend | None] = ContextVar("fence", default=None)


class LeaseLapsedError(aiohttp.ClientError):
    """A request was not sent, because the Lease does not hold any more."""


class GuardedRequest(aiohttp.ClientRequest):
    """A request that calls its guard before it is sent."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send it, if the guard allows it."""
        may_send = MAY_SEND.get()
        if may_send is not None and not may_send():
            raise LeaseLapsedError
        return await super().send(conn)


JSON, MERGE_PATCH, JSON_PATCH = "application/json", "application/merge-patch+json", "application/json-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

#: Timeouts of connecting, and of a whole response.
_CONNECT_S, _ANSWER_S = 10, 30

#: How long TLS connections take to close; aiohttp does not wait for them.
_PARTING_S = 0.1

#: Bytes that are buffered before the network has to wait.
_READ_AHEAD = 1 << 20


class ApiRequest(NamedTuple):
    """A request to the API server."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    timeout_s: float = _ANSWER_S
    accept: str = ""  # a media type other than JSON, if the server has it


class WatchStream:
    """A response body that is read as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.cut = ""  # why it was cut; empty: it ended normally

    async def chunk(self) -> bytes:
        """The next bytes; empty when it has ended or was cut."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.cut = _error_text(error)
            return b""


class Client:
    """An HTTP client of one API server. Use it in an async with statement, in one event loop."""

    def __init__(self, access: Connection, *, connections: int = 100) -> None:
        self.access = access
        self._connections = connections
        self._contexts: dict[tuple[str, str], ssl.SSLContext] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=60),
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"tidegate/{tidegate.__version__}"},
            auto_decompress=False,
            request_class=GuardedRequest,
            read_bufsize=_READ_AHEAD,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await asyncio.sleep(_PARTING_S)

    async def ask(self, request: ApiRequest, may_send: MaySend | None = None) -> ApiResponse:
        """Send a request and wait for the whole response; on 401, retry once with renewed credentials.

        `may_send` is called once a connection is open, right before the first byte.
        """
        MAY_SEND.set(may_send)  # visible to this task only
        identity: Identity | None = None
        answer = ApiResponse(0, NO_CREDENTIALS, sent=False)
        for _ in range(2):
            refused = identity
            try:
                identity = await self.access.credentials.identity(refused)
            except ConnectionConfigError as error:
                return ApiResponse(0, NO_CREDENTIALS, str(error), sent=False)
            if identity == refused:
                break
            answer = await self._ask_as(identity, request)
            if answer.status != 401:
                break
        return answer

    async def _ask_as(self, identity: Identity, request: ApiRequest) -> ApiResponse:
        timeout = aiohttp.ClientTimeout(total=request.timeout_s, connect=_CONNECT_S)
        try:
            async with self._session.request(**self._arguments(identity, request), timeout=timeout) as response:
                body = await response.read()
                if response.status < 300:
                    return ApiResponse(response.status, body=body, date=response.headers.get("Date", ""))
                return read_refusal(response.status, body, response.headers.get("Retry-After", ""))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return ApiResponse(0, NOT_SENT, _error_text(error), sent=False)
        except ConnectionConfigError as error:
            return ApiResponse(0, NO_CREDENTIALS, str(error), sent=False)
        except LeaseLapsedError:
            return ApiResponse(0, NOT_ALLOWED, sent=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return ApiResponse(0, NO_ANSWER, _error_text(error))

    @asynccontextmanager
    async def stream(self, request: ApiRequest, quiet_s: float) -> AsyncIterator[WatchStream | ApiResponse]:
        """Open a stream, or return the refusal. It is cut if nothing arrives for `quiet_s`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=quiet_s)
        try:
            identity = await self.access.credentials.identity()
            response = await self._session.request(**self._arguments(identity, request), timeout=timeout)
        except ConnectionConfigError as error:
            yield ApiResponse(0, NO_CREDENTIALS, str(error), sent=False)
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            yield ApiResponse(0, NO_ANSWER, _error_text(error))
            return
        try:
            yield await self._opened(response, identity)
        finally:
            response.close()  # the rest of a watch is not needed

    async def _opened(self, response: aiohttp.ClientResponse, identity: Identity) -> WatchStream | ApiResponse:
        if response.status == 200:
            return WatchStream(response)
        try:
            body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return ApiResponse(0, NO_ANSWER, _error_text(error))
        if response.status == 401:
            try:
                await self.access.credentials.identity(identity)  # so that the next try has renewed credentials
            except ConnectionConfigError as error:
                return ApiResponse(0, NO_CREDENTIALS, str(error), sent=False)
        return read_refusal(response.status, body, response.headers.get("Retry-After", ""))

    def _arguments(self, identity: Identity, request: ApiRequest) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {identity.token}"} if identity.token else {}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if request.accept:
            headers["Accept"] = request.accept
        return {
            "method": request.method,
            "url": self.access.server + request.path,
            "params": request.query,
            "data": request.body,
            "headers": headers,
            "ssl": self._context(identity),
            "server_hostname": self.access.server_name or None,
            "proxy": self.access.proxy or None,
            "allow_redirects": False,
        }

    def _context(self, identity: Identity) -> ssl.SSLContext:
        key = (identity.certificate, identity.key)
        if key not in self._contexts:
            self._contexts = {key: secure(self.access, identity)}  # only the latest certificate is of use
        return self._contexts[key]


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
