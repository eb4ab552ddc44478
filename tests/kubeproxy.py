"""A proxy between a replica and the API server that loses, refuses, delays and cuts what passes through it."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from kubebench import Plane
from kubebench.process import free_port

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_DROPPED = ("Transfer-Encoding", "Content-Length", "Connection", "Host")

#: A plugin of a kubeconfig whose tokens are good for seconds.
_PLUGIN = """\
until=$(date -u -d '+5 seconds' +%Y-%m-%dT%H:%M:%SZ)
printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
printf '"status":{{"token":"%s","expirationTimestamp":"%s"}}}}' "$(cat {file})" "$until"
"""

#: How long it may take to start.
_PATIENCE_S = 30


class Proxy:
    """Stands in front of the API server of a plane. Use it in a with statement."""

    def __init__(self, plane: Plane) -> None:
        self._plane, self.port = plane, free_port()
        self.refuses = 0  # status that writes are refused with; 0: they pass
        self.loses = ""  # "before" or "after" the server has seen it a write is lost, and no answer comes
        self.stalls = False  # writes, but those of Leases, wait here until it is calm
        self.stalled = 0  # how many do
        self.bytes_per_s = 0  # at which watches are read; 0: as fast as they come
        self.forgets = False  # watches are answered with 410, and lists come in pages of which all but one fail
        self.token = ""  # the only one that is accepted, instead of the user's; empty: tokens pass as they are
        self.refused = self.lost = self.cuts = self.unauthorized = self.torn = self.muted = 0
        self._draw = random.Random(0)
        self._user = ""
        self._transports: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()
        self._mute: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()  # half-open: nothing passes any more
        self._streams: dict[int, web.Request] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_PATIENCE_S):
            raise RuntimeError(
                f"the proxy on port {self.port} did not start in {_PATIENCE_S} s: see its thread's error"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def kubeconfig(self, user: str = "tidegate") -> Path:
        """A kubeconfig of a user that leads through here."""
        return self._write_config(user, {"token": self._plane.token(user)}, "")

    def expiring(self, token_file: Path, user: str = "tidegate") -> tuple[Path, Path]:
        """Two kubeconfigs of a user whose tokens do not last: one reads a file, one asks a plugin."""
        self._user = user
        script = token_file.with_suffix(".sh")
        script.write_text(_PLUGIN.format(file=token_file))
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": [str(script)],
            "interactiveMode": "Never",
        }  # fmt: skip
        by_file = self._write_config(user, {"tokenFile": str(token_file)}, "-file")
        return by_file, self._write_config(user, {"exec": plugin}, "-plugin")

    def _write_config(self, user: str, identity: dict[str, object], suffix: str) -> Path:
        config = yaml.safe_load(self._plane.kubeconfig(user).read_text())
        config["clusters"][0]["cluster"]["server"] = self.url
        config["users"][0]["user"] = identity
        path = self._plane.kubeconfig(user).with_suffix(f".by-{self.port}{suffix}")
        path.write_text(yaml.safe_dump(config))
        return path

    def cut(self) -> None:
        """Cut every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def go_silent(self) -> None:
        """Let every connection there is stay open, and nothing pass through it again; new ones are well."""
        self._loop.call_soon_threadsafe(self._go_silent)

    def calm(self) -> None:
        """Let everything pass."""
        self.refuses, self.loses, self.bytes_per_s, self.stalls, self.forgets = 0, "", 0, False, False

    def counts(self) -> dict[str, int]:
        """What was done to requests and connections so far."""
        names = ("refused", "lost", "cuts", "unauthorized", "torn", "muted")
        return {name: getattr(self, name) for name in names}

    # -- in the thread -----------------------------------------------------------------------------------------

    def _cut(self) -> None:
        for request in list(self._streams.values()):
            if request.transport is not None:
                self.cuts += 1
                request.transport.abort()

    def _go_silent(self) -> None:
        self.muted += len(self._transports)
        self._mute.update(self._transports)

    async def _serve(self) -> None:
        logging.getLogger("aiohttp.server").disabled = True  # requests on connections that we aborted
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._plane._authority.issue_cert("127.0.0.1").configure_cert(served)
        trusted = ssl.create_default_context(cafile=str(self._plane.authority))
        connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            application = web.Application(client_max_size=1 << 26)
            application.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=served).start()
            self._ready.set()
            await self._stopping.wait()
            self._cut()
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._transports.add(request.transport)
        await self._listen(request.transport)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            self.unauthorized += 1
            return _refusal(401, "Unauthorized")
        if self.forgets and (request.query.get("watch") == "true" or "continue" in request.query):
            return self._forget(request)
        return await self._forward(request)

    def _forget(self, request: web.Request) -> web.StreamResponse:
        """Answer a watch, or a page of a list after the first, as a server that has lost it."""
        if request.query.get("watch") == "true":
            return _refusal(410, "Expired")
        self.torn += 1
        status = self._draw.choice((0, 410, 500))
        return _refusal(status, "Expired" if status == 410 else "InternalError") if status else self._lose(request)

    async def _listen(self, transport: asyncio.BaseTransport | None) -> None:
        """Wait for as long as nothing passes through this connection."""
        while transport is not None and transport in self._mute and not transport.is_closing():
            await asyncio.sleep(0.1)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        writes = request.method in _WRITES
        if writes and self.refuses and "/leases/" not in request.path:
            self.refused += 1
            return _refusal(self.refuses, "Storm")
        if writes and self.stalls and "/leases/" not in request.path:
            await self._stall()
        if writes and self.loses == "before":
            return self._lose(request)
        try:
            body = await request.read()
        except ConnectionError:
            return self._lose(request)
        headers = {name: value for name, value in request.headers.items() if name not in _DROPPED}
        if self.token:
            headers["Authorization"] = f"Bearer {self._plane.token(self._user)}"
        url = f"{self._plane.url}{request.path_qs}"
        if self.forgets:
            url = url.replace("limit=1000", "limit=1")
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
            ) as answer:
                if writes and self.loses == "after":
                    await answer.read()
                    return self._lose(request)
                return await self._answer(request, answer)
        except (aiohttp.ClientError, OSError):
            return self._lose(request)

    async def _stall(self) -> None:
        self.stalled += 1
        while self.stalls:
            await asyncio.sleep(0.05)
        self.stalled -= 1

    def _lose(self, request: web.Request) -> web.StreamResponse:
        self.lost += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {name: value for name, value in answer.headers.items() if name not in _DROPPED}
        response = web.StreamResponse(status=answer.status, headers=headers)
        self._streams[id(request)] = request
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await self._listen(request.transport)
                await response.write(chunk)
                if self.bytes_per_s:
                    await asyncio.sleep(min(len(chunk) / self.bytes_per_s, 1.0))
            with suppress(ConnectionError):
                await response.write_eof()
        except (ConnectionError, aiohttp.ClientError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams.pop(id(request), None)
        return response


def _refusal(status: int, reason: str) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": reason, "message": "a storm"}
    return web.json_response(body, status=status, headers={"Retry-After": "1"} if status in (409, 429) else None)
