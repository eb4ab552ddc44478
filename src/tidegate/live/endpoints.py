"""What can be asked over HTTP: is it alive, is it ready, and its metrics.

Must not know: what makes it so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from typing import NamedTuple, Self

TEXT = "text/plain; charset=utf-8"

#: Where people and kubelets look.
_ALIVE, _READY, _METRICS = ("/healthz", "/livez"), ("/readyz",), ("/metrics",)


class ListenAddressError(ValueError):
    """An address that cannot be listened on; the text says why and what to do."""


class Probes(NamedTuple):
    """What is asked. Troubles are sentences; none: all is well."""

    alive: Callable[[], list[str]]
    ready: Callable[[], list[str]]
    metrics: Callable[[], tuple[bytes, str]]  # the text and its type


class Endpoints:
    """A small server, in threads of its own. Use it in a with statement."""

    def __init__(self, address: str, probes: Probes) -> None:
        host, port = read_address(address)
        try:
            self._server = (
                _Server6((host, port), _handler(probes)) if ":" in host else _Server((host, port), _handler(probes))
            )
        except OSError as error:
            raise ListenAddressError(
                f"--listen {address}: {error.strerror or error}; name another address or port"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="tidegate-http", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = AF_INET6


def read_address(text: str) -> tuple[str, int]:
    """The host and port of an address such as :8080, 127.0.0.1:8080 or [::]:8080."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ListenAddressError(f"--listen: expected HOST:PORT or :PORT, found {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - a pod is asked from outside


def _handler(probes: Probes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path in _METRICS:
                self._answer(HTTPStatus.OK, *probes.metrics())
            elif path in _ALIVE or path in _READY:
                troubles = (probes.alive if path in _ALIVE else probes.ready)()
                status = HTTPStatus.SERVICE_UNAVAILABLE if troubles else HTTPStatus.OK
                self._answer(status, ("\n".join(troubles or ["ok"]) + "\n").encode(), TEXT)
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"here are /healthz, /readyz and /metrics\n", TEXT)

        def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Say nothing: probes come every few seconds."""

    return Handler
