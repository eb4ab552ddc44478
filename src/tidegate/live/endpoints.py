"""The HTTP endpoints: /healthz, /readyz and /metrics.

A small server on an event loop of its own. Each connection has a deadline and serves one response. The number of
connections is limited, and the oldest yields to a new one, so that half-open sockets do not shut probes out.
/metrics may require a bearer token or a client certificate; probes never do.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, Self

from tidegate.kube.transport.loop_thread import LoopThread
from tidegate.model.errors import UserError

TEXT = "text/plain; charset=utf-8"

#: The paths.
_ALIVE, _READY, _METRICS = ("/healthz", "/livez"), ("/readyz",), ("/metrics",)

#: Most connections, the backlog of the socket, the deadline of a connection, and most bytes of a request's head.
_MOST_CONNECTIONS, _BACKLOG, _DEADLINE_S, _HEAD_BYTES = 32, 64, 5.0, 16_384

#: Between two reloads of the certificate.
_RENEWED_EVERY_S = 60.0


class ListenAddressError(UserError):
    """The server cannot listen, or read a file it needs; the text says why and what to do."""


class Probes(NamedTuple):
    """What the endpoints return; `alive` and `ready` return problems, none if all is well."""

    alive: Callable[[], list[str]]
    ready: Callable[[], list[str]]
    metrics: Callable[[], tuple[bytes, str]]  # the text and its type


class EndpointAccess(NamedTuple):
    """How the endpoints are protected; the default is plain HTTP without authentication."""

    token_file: Path | None = None  # with the bearer token of /metrics; read for each request, so it may change
    certificate: Path | None = None  # for TLS, with its key
    key: Path | None = None
    client_authority: Path | None = None  # CA of the client certificates that /metrics requires


class _Response(NamedTuple):
    status: HTTPStatus
    body: bytes
    kind: str = TEXT


class Endpoints:
    """The server, in a thread of its own. Use it in a with statement."""

    def __init__(self, address: str, probes: Probes, access: EndpointAccess = EndpointAccess()) -> None:  # noqa: B008
        self._address, self._probes, self._access = address, probes, access
        self._host, self._asked_port = read_address(address)
        self._context = _tls(access)
        self._open: dict[asyncio.StreamWriter, None] = {}  # open connections, the oldest first
        self.port = 0
        self._listens = threading.Event()  # or failed to
        self._refusal: OSError | None = None  # why it failed to
        self._thread = LoopThread("tidegate-http", self._serve, lambda _: self._listens.set())

    def __enter__(self) -> Self:
        self._thread.start()
        self._listens.wait()
        if self._refusal is not None:
            self._thread.stop()
            why = self._refusal.strerror or self._refusal
            raise ListenAddressError(f"--listen {self._address}: {why}; name another address or port")
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()

    # -- in the thread -----------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            server = await asyncio.start_server(
                self._handle, self._host, self._asked_port, limit=_HEAD_BYTES, backlog=_BACKLOG
            )
        except OSError as error:
            self._refusal = error
            self._listens.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        renewing = asyncio.create_task(self._renew_certificate())
        try:
            await self._thread.stopping.wait()
        finally:
            renewing.cancel()
            server.close()

    async def _renew_certificate(self) -> None:
        """Reload the certificate, which is renewed on disk."""
        while self._context is not None and self._access.certificate is not None:
            await asyncio.sleep(_RENEWED_EVERY_S)
            try:
                self._context.load_cert_chain(self._access.certificate, self._access.key)
            except OSError:
                continue  # it is being written; the loaded one stays

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > _MOST_CONNECTIONS:  # the oldest yields: it is slow
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await self._converse(reader, writer)
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # it was too slow, closed, or sent too much
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._context is not None:
            await writer.start_tls(self._context)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        response = self._respond(head, certified=bool(writer.get_extra_info("peercert")))
        status = response.status
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {response.kind}",
            f"Content-Length: {len(response.body)}",
            "Connection: close",
            *(["WWW-Authenticate: Bearer"] if status is HTTPStatus.UNAUTHORIZED else []),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + response.body)
        writer.close()  # after the response is written
        await writer.wait_closed()

    def _respond(self, head: list[str], *, certified: bool) -> _Response:
        method, _, pause = head[0].partition(" ")
        path = pause.partition(" ")[0].partition("?")[0]
        if method != "GET":
            return _Response(HTTPStatus.METHOD_NOT_ALLOWED, b"expected GET\n")
        try:
            return self._metrics(head, certified=certified) if path in _METRICS else self._probe(path)
        except Exception as error:  # noqa: BLE001 - a bug in a metric must not stop the probes
            return _Response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}\n".encode())

    def _probe(self, path: str) -> _Response:
        if path not in _ALIVE and path not in _READY:
            return _Response(HTTPStatus.NOT_FOUND, b"here are /healthz, /readyz and /metrics\n")
        problems = (self._probes.alive if path in _ALIVE else self._probes.ready)()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return _Response(status, ("\n".join(problems or ["ok"]) + "\n").encode())

    def _metrics(self, head: list[str], *, certified: bool) -> _Response:
        if self._access.client_authority is not None and not certified:
            return _Response(HTTPStatus.FORBIDDEN, b"expected a client certificate\n")
        if self._access.token_file is not None:
            expected = f"Bearer {self._access.token_file.read_text().strip()}"
            given = next((line for line in head if line.lower().startswith("authorization:")), "")
            if not hmac.compare_digest(given.partition(":")[2].strip().encode(), expected.encode()):
                return _Response(HTTPStatus.UNAUTHORIZED, b"expected a bearer token\n")
        body, kind = self._probes.metrics()
        return _Response(HTTPStatus.OK if body else HTTPStatus.SERVICE_UNAVAILABLE, body, kind)


def _tls(access: EndpointAccess) -> ssl.SSLContext | None:
    """The TLS context; None without a certificate."""
    if access.certificate is None:
        if access.client_authority is not None:
            raise ListenAddressError("--metrics-client-ca-file: needs --tls-cert-file and --tls-key-file")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(access.certificate, access.key)
        if access.client_authority is not None:
            context.load_verify_locations(access.client_authority)
            context.verify_mode = ssl.CERT_OPTIONAL  # kubelets have none, and need probes only
    except OSError as error:
        named = ", ".join(str(path) for path in access[1:] if path is not None)
        raise ListenAddressError(f"--tls-cert-file: cannot be used: {named}: {error}") from None
    return context


def read_address(text: str) -> tuple[str, int]:
    """Parse an address such as :8080, 127.0.0.1:8080 or [::]:8080."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ListenAddressError(f"--listen: expected HOST:PORT or :PORT, found {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - probes come from outside the pod
