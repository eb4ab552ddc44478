"""A small HTTP server that does what a test tells it to: refuse, hang, cut, send half of a body, or stream.

It stands for what a real API server does once in a thousand times; how it behaves otherwise is tested on a real one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from tidegate.kube.transport.connection import Connection, Identity, StaticCredentials


class Asked(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


Behave = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class Fake:
    """Answers each request with the next behaviour; the last one goes on."""

    def __init__(self, *behaviours: Behave) -> None:
        self.behaviours = list(behaviours)
        self.asked: list[Asked] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.access = Connection(f"http://127.0.0.1:{port}", StaticCredentials(Identity("a-token")))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await _read(reader)
                self.asked.append(asked)
                behave = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
                await behave(asked, writer)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Asked(method, parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}, headers, body)


def answer(status: int, body: Any, **headers: str) -> Behave:
    """A whole answer."""

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(content)}", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()

    return behave


def refusal(status: int, reason: str, message: str = "", retry_after: int = 0) -> Behave:
    """A refusal as Kubernetes words it."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return answer(status, body, **({"Retry_After": str(retry_after)} if retry_after else {}))


def hang(seconds: float = 60) -> Behave:
    """No answer at all."""

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        writer.close()

    return behave


def cut() -> Behave:
    """The connection is gone before an answer."""

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    return behave


def half(body: bytes) -> Behave:
    """Half of a body, and then the connection is gone."""

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
        writer.write(head.encode() + body[: len(body) // 2])
        await writer.drain()
        writer.transport.abort()

    return behave


def stream(*parts: dict[str, Any] | bytes, then: str = "end", pause_s: float = 0.0) -> Behave:
    """Events one by one; then an orderly end, a cut in the middle, or silence."""

    async def behave(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n")
        for part in parts:
            line = part if isinstance(part, bytes) else json.dumps(part, separators=(",", ":")).encode() + b"\n"
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await writer.drain()
            await asyncio.sleep(pause_s)
        if then == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        elif then == "cut":
            writer.transport.abort()
        else:
            await asyncio.sleep(60)

    return behave


def thing(uid: str, version: int, **more: Any) -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": uid, "uid": uid, "namespace": "default", "resourceVersion": str(version)}, **more}


def listing(version: int, *things: dict[str, Any], more: str = "") -> Behave:
    """A page of a list."""
    return answer(200, {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(things)})


def event(kind: str, uid: str, version: int) -> dict[str, Any]:
    """An event of a watch."""
    return {"type": kind, "object": thing(uid, version)}


def bookmark(version: int) -> dict[str, Any]:
    """A bookmark of a watch."""
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def gone() -> dict[str, Any]:
    """The event that says that the version is too old."""
    return {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
